// C = A B, fp32: A is (m, k), B is (k, n), C is (m, n), all row-major and contiguous. One thread computes one element.

#ifndef TILE
#define TILE 32  // edge of the tiles and of the block: TILE * TILE threads
#endif

// A grid has at most 65535 blocks along y; the rest of them lie along z.
__device__ long long block_row() { return (long long)blockIdx.z * gridDim.y + blockIdx.y; }

// Each thread walks its row of A and its column of B in device memory: 2 k loads for one element of C.
// Warps run along a row of C, so a warp's load of A is one address for all lanes, its load of B 32 neighbours.
extern "C" __global__ void naive_matmul(const float* a, const float* b, float* c, long long m, long long n, long long k)
{
    long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    long long row = block_row() * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (long long i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

// The block stages a TILE x TILE tile of A and of B in shared memory, and every element is read TILE times from there:
// 2 k / TILE loads from device memory for one element of C.
extern "C" __global__ void tiled_matmul(const float* a, const float* b, float* c, long long m, long long n, long long k)
{
    __shared__ float tile_a[TILE][TILE];  // rows of this block, columns start .. start + TILE of A
    __shared__ float tile_b[TILE][TILE];  // rows start .. start + TILE of B, columns of this block
    long long col = (long long)blockIdx.x * TILE + threadIdx.x;
    long long row = block_row() * TILE + threadIdx.y;
    float sum = 0.0f;
    for (long long start = 0; start < k; start += TILE) {
        // threadIdx.x runs along the row in both loads, so that they are coalesced; zeros stand in for what is outside
        long long a_col = start + threadIdx.x, b_row = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[row * k + a_col] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = b_row < k && col < n ? b[b_row * n + col] : 0.0f;
        __syncthreads();  // no thread may read a tile before all have written it
        for (int i = 0; i < TILE; i++) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();  // no thread may overwrite a tile while another still reads it
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

// Only A passes through shared memory; B is read from device memory again and again. The middle step of the example in
// NVIDIA's Best Practices Guide, section 10.2.3.2.
extern "C" __global__ void a_tiled_matmul(const float* a, const float* b, float* c, long long m, long long n, long long k)
{
    __shared__ float tile_a[TILE][TILE];
    long long col = (long long)blockIdx.x * TILE + threadIdx.x;
    long long row = block_row() * TILE + threadIdx.y;
    float sum = 0.0f;
    for (long long start = 0; start < k; start += TILE) {
        long long a_col = start + threadIdx.x;
        tile_a[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[row * k + a_col] : 0.0f;
        __syncthreads();  // the tile is complete
        for (int i = 0; i < TILE && start + i < k; i++)
            if (col < n) sum += tile_a[threadIdx.y][i] * b[(start + i) * n + col];
        __syncthreads();  // nobody reads it any more
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
