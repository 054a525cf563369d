// Copies that differ from a plain one only in which addresses the lanes of a warp touch.
// Each reads n elements and writes n elements.

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

// Any of them, for one block: y[i] = x[(i ^ flip) * stride + offset]. `flip` permutes the lanes (31: back to front);
// stride 0 gives all lanes one address. -DELEMENT=float2 or float4 moves 8 or 16 bytes a lane.
#ifndef ELEMENT
#define ELEMENT float
#endif
extern "C" __global__ void pattern_copy(const ELEMENT* x, ELEMENT* y, int stride, int offset, int flip)
{
    int i = threadIdx.x;
    y[i] = x[(i ^ flip) * stride + offset];
}

// offset_copy with four elements a thread, a block's width apart: lanes stay side by side, and four loads are on their
// way at once. __restrict__ promises that x and y do not overlap, so that no load has to wait for a store.
extern "C" __global__ void offset_copy_four(const float* __restrict__ x, float* __restrict__ y, long long n, long long offset)
{
    long long first = 4LL * blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        long long i = first + k * blockDim.x;
        if (i < n) y[i] = x[i + offset];
    }
}
