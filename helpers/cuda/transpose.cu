// y (cols, rows) = x (rows, cols) transposed, fp32, contiguous. Blocks of 32 x 8 threads; each thread moves 4 elements.

#define TILE 32
#define STEP 8

// A grid has at most 65535 blocks along y; the rest of them lie along z.
__device__ long long block_row() { return (long long)blockIdx.z * gridDim.y + blockIdx.y; }

// Reads along rows, writes along columns: a warp's 32 stores go to 32 different sectors.
extern "C" __global__ void transpose_naive(const float* x, float* y, long long rows, long long cols)
{
    long long col = (long long)blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += STEP) {
        long long row = block_row() * TILE + i;
        if (row < rows && col < cols) y[col * rows + row] = x[row * cols + col];
    }
}

// The turn happens in shared memory, so that device memory is read and written along rows. PAD = 0 puts a column of the
// tile into one bank (32-way conflict); PAD = 1 shifts each row by one bank, and the conflicts are gone.
template <int PAD>
__device__ void transpose_through_tile(const float* x, float* y, long long rows, long long cols)
{
    __shared__ float tile[TILE][TILE + PAD];
    long long col = (long long)blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += STEP) {
        long long row = block_row() * TILE + i;
        if (row < rows && col < cols) tile[i][threadIdx.x] = x[row * cols + col];
    }
    __syncthreads();  // the tile is complete
    long long out_col = block_row() * TILE + threadIdx.x;  // a column of y is a row of x
    for (int i = threadIdx.y; i < TILE; i += STEP) {
        long long out_row = (long long)blockIdx.x * TILE + i;
        if (out_row < cols && out_col < rows) y[out_row * rows + out_col] = tile[threadIdx.x][i];
    }
}

extern "C" __global__ void transpose_tiled(const float* x, float* y, long long rows, long long cols)
{
    transpose_through_tile<0>(x, y, rows, cols);
}

extern "C" __global__ void transpose_padded(const float* x, float* y, long long rows, long long cols)
{
    transpose_through_tile<1>(x, y, rows, cols);
}
