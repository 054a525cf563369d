// y (cols, rows) = x (rows, cols) transposed, fp32, contiguous. Blocks of 32 x 8 threads; each thread moves 4 elements.

#define TILE 32
#define STEP 8

// Reads along rows, writes along columns: a warp's 32 stores go to 32 different sectors.
extern "C" __global__ void transpose_naive(const float* x, float* y, int rows, int cols)
{
    int col = blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += STEP) {
        int row = blockIdx.y * TILE + i;
        if (row < rows && col < cols) y[(long long)col * rows + row] = x[(long long)row * cols + col];
    }
}

// The turn happens in shared memory, so that device memory is read and written along rows. PAD = 0 puts a column of the
// tile into one bank (32-way conflict); PAD = 1 shifts each row by one bank, and the conflicts are gone.
template <int PAD>
__device__ void transpose_through_tile(const float* x, float* y, int rows, int cols)
{
    __shared__ float tile[TILE][TILE + PAD];
    int col = blockIdx.x * TILE + threadIdx.x;
    for (int i = threadIdx.y; i < TILE; i += STEP) {
        int row = blockIdx.y * TILE + i;
        if (row < rows && col < cols) tile[i][threadIdx.x] = x[(long long)row * cols + col];
    }
    __syncthreads();  // the tile is complete
    int out_col = blockIdx.y * TILE + threadIdx.x;  // a column of y is a row of x
    for (int i = threadIdx.y; i < TILE; i += STEP) {
        int out_row = blockIdx.x * TILE + i;
        if (out_row < cols && out_col < rows) y[(long long)out_row * rows + out_col] = tile[threadIdx.x][i];
    }
}

extern "C" __global__ void transpose_tiled(const float* x, float* y, int rows, int cols)
{
    transpose_through_tile<0>(x, y, rows, cols);
}

extern "C" __global__ void transpose_padded(const float* x, float* y, int rows, int cols)
{
    transpose_through_tile<1>(x, y, rows, cols);
}
