// Two copies that differ from a plain one only in which addresses the lanes of a warp touch.
// Reads n elements, writes n elements of 4 bytes.

// y[i] = x[i * stride], i = 0 .. n-1: lanes read `stride` elements apart, and write side by side.
extern "C" __global__ void strided_copy(const float* x, float* y, long long n, long long stride)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i * stride];
}

// y[i] = x[i + offset], i = 0 .. n-1: side by side, but starting anywhere in a 32-byte sector.
extern "C" __global__ void offset_copy(const float* x, float* y, long long n, long long offset)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i + offset];
}
