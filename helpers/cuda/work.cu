// y[i] = x[i] after `rounds` steps of v = a v + b: a kernel that takes as long as you like. 2 n rounds FLOPs.
extern "C" __global__ void iterate(const float* x, float* y, long long n, int rounds, float a, float b)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
#pragma unroll 32
    for (int r = 0; r < rounds; r++) v = fmaf(a, v, b);
    y[i] = v;
}
