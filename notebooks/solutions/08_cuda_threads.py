"""Solutions of lesson 08. Each cell replaces the notebook's cell with the same tag; the tests run them."""

# %% exercise-1
saxpy = CudaKernel(r"""
extern "C" __global__ void saxpy(float alpha, const float* x, float* y, int n)
{
    // --- your code (about 2 lines)
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = alpha * x[i] + y[i];
    // --- end
}
""", "saxpy")

check("08_cuda_threads.1", saxpy)

# %% exercise-2
def idle(n, block):
    # --- your code (about 3 lines)
    blocks = (n + block - 1) // block
    last = n - (blocks - 1) * block  # elements of the last block
    # blocks that are no multiple of 32 start their warps anew
    return blocks, blocks * block - n, (last - 1) % 32 + 1
    # --- end

check("08_cuda_threads.2", idle)

# %% exercise-3
twice = CudaKernel(r"""
extern "C" __global__ void twice(const float* x, float* y, int n)
{
    // --- your code (about 2 lines)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = 2.0f * x[i];
    // --- end
}
""", "twice")

check("08_cuda_threads.3", twice)
