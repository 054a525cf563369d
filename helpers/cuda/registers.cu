// Kernels that need as many registers as wanted, to ask how many blocks of them an SM holds.
//
//   hold   each thread keeps VALUES numbers in registers, a block has SHARED bytes of static shared memory

#ifndef VALUES
#define VALUES 8
#endif
#ifndef SHARED
#define SHARED 0
#endif

// x: VALUES rows of n numbers, a column a thread; each round mixes a thread's numbers, so that all stay alive.
extern "C" __global__ void hold(float *x, int n, int rounds) {
    float v[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i) v[i] = x[i * n + threadIdx.x];
#if SHARED > 0
    __shared__ float part[SHARED / 4];
    part[threadIdx.x % (SHARED / 4)] = v[0];
    __syncthreads();
    v[0] = part[threadIdx.x * 7 % (SHARED / 4)];
#endif
#pragma unroll 1
    for (int r = 0; r < rounds; ++r)
#pragma unroll
        for (int i = 0; i < VALUES; ++i) v[i] = fmaf(v[i], v[(i + 1) % VALUES], 1.0f);
#pragma unroll
    for (int i = 0; i < VALUES; ++i) x[i * n + threadIdx.x] = v[i];
}
