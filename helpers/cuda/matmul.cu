// C = A B, fp32: A is (m, k), B is (k, n), C is (m, n), all row-major and contiguous. One thread computes one element.

#ifndef T
#define T 32  // tile edge and block edge: T * T threads
#endif

// Each thread walks its row of A and its column of B in device memory: 2 k loads for one element of C.
// Warps run along a row of C, so a warp's load of A is one address for all lanes, its load of B 32 neighbours.
extern "C" __global__ void naive_matmul(const float* a, const float* b, float* c, int m, int n, int k)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; i++) sum += a[(long long)row * k + i] * b[(long long)i * n + col];
    c[(long long)row * n + col] = sum;
}

// The block stages a T x T tile of A and of B in shared memory, and every thread reads them T times from there:
// 2 k / T loads from device memory for one element of C.
extern "C" __global__ void tiled_matmul(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float tile_a[T][T];  // rows of this block, columns start .. start + T of A
    __shared__ float tile_b[T][T];  // rows start .. start + T of B, columns of this block
    int col = blockIdx.x * T + threadIdx.x;
    int row = blockIdx.y * T + threadIdx.y;
    float sum = 0.0f;
    for (int start = 0; start < k; start += T) {
        // threadIdx.x runs along the row in both loads, so that they are coalesced; zeros stand in for what is outside
        int a_col = start + threadIdx.x, b_row = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[(long long)row * k + a_col] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = b_row < k && col < n ? b[(long long)b_row * n + col] : 0.0f;
        __syncthreads();  // no thread may read a tile before all have written it
        for (int i = 0; i < T; i++) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();  // no thread may overwrite a tile while another still reads it
    }
    if (row < m && col < n) c[(long long)row * n + col] = sum;
}
