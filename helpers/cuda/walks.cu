// Two ways to add up a row-major matrix x (rows, cols), fp32. Each thread adds a line of it by itself, and every element
// is read once either way: what differs is where the neighbours of a lane are at the same moment.

// sums[row]: a thread walks along its row. The lanes of a warp are in 32 different rows, cols elements apart.
extern "C" __global__ void walk_rows(const float* x, float* sums, long long rows, long long cols)
{
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (long long col = 0; col < cols; col++) sum += x[row * cols + col];
    sums[row] = sum;
}

// sums[col]: a thread walks down its column. The lanes of a warp are side by side in one row.
extern "C" __global__ void walk_columns(const float* x, float* sums, long long rows, long long cols)
{
    long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float sum = 0.0f;
    for (long long row = 0; row < rows; row++) sum += x[row * cols + col];
    sums[col] = sum;
}
