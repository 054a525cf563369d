"""Solutions of lesson 10. Each cell replaces the notebook's cell with the same tag; the tests run them."""

# %% exercise-1
def tiled_reads(m, k, n, T):
    # --- your code (about 3 lines)
    blocks_along_n, blocks_along_m = -(-n // T), -(-m // T)
    # each element of A is loaded by the blocks along its row of C, each element of B by those along its column
    return m * k * blocks_along_n + k * n * blocks_along_m
    # --- end

check("10_shared_memory.1", tiled_reads)

# %% exercise-2
reverse = CudaKernel(r"""
extern "C" __global__ void reverse(const float* x, float* y)
{
    __shared__ float tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    // --- your code (about 3 lines)
    tile[threadIdx.x] = x[i];
    __syncthreads();  // the tile is complete
    y[i] = tile[255 - threadIdx.x];
    // --- end
}
""", "reverse")

check("10_shared_memory.2", reverse)

# %% exercise-3
def passes(s):
    # --- your code (about 2 lines)
    words = {lane * s for lane in range(32)}  # equal words are served together
    return max(sum(word % 32 == bank for word in words) for bank in range(32))
    # --- end

check("10_shared_memory.3", passes)
