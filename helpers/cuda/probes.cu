// Probes that read the SM's own registers: its cycle counter, its number, a warp's slot.
//
//   pointer_chase   one thread, one load after another           latency of a load
//   fma_latency     one warp, one chain of multiply-adds         cycles from one FMA to the next
//   busy            every warp keeps an issue slot full, and says which SM and which slot it has
//   warp_pair       two warps of a block work, the others leave  twice the time = they share a scheduler

__device__ unsigned sm_number() {
    unsigned n;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(n));
    return n;
}
__device__ unsigned warp_slot() {
    unsigned n;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(n));
    return n;
}
__device__ unsigned long long nanoseconds() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// CHAINS independent chains of `rounds` multiply-adds each, 512 / CHAINS at a time as straight-line code.
// With 8 of them one warp always has an FMA that may issue.
template <int CHAINS>
__device__ float work(float x, float a, float b, int rounds) {
    float v[CHAINS];
    for (int c = 0; c < CHAINS; ++c) v[c] = x + c;
#pragma unroll 1
    for (int r = 0; r < rounds; r += 512 / CHAINS)
#pragma unroll
        for (int i = 0; i < 512 / CHAINS; ++i)
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) v[c] = fmaf(v[c], a, b);
    float sum = 0;
    for (int c = 0; c < CHAINS; ++c) sum += v[c];
    return sum;
}

// Each line holds the address of the next one to visit. result: the last address, cycles, nanoseconds.
extern "C" __global__ void pointer_chase(unsigned long long at, int warm_steps, int steps, unsigned long long *result) {
#define NEXT(a) asm volatile("ld.global.u64 %0, [%1];" : "=&l"(a) : "l"(a))
    for (int i = 0; i < warm_steps; ++i) NEXT(at);
    unsigned long long ns = nanoseconds();
    long long cycles = clock64();
#pragma unroll 16
    for (int i = 0; i < steps; ++i) NEXT(at);
    result[0] = at;  // waits for the last load
    result[1] = clock64() - cycles;
    result[2] = nanoseconds() - ns;
}

// One warp. cycles[0]: for `rounds` dependent FMAs, cycles[1]: for half as many; the difference has no overhead in it.
extern "C" __global__ void fma_latency(int rounds, float a, float b, float *out, long long *cycles) {
    float x = out[threadIdx.x];
    for (int part = 0; part < 2; ++part) {
        long long began = clock64();
        x = work<1>(x, a, b, part == 0 ? rounds : rounds / 2);
        out[threadIdx.x] = x;
        cycles[part] = clock64() - began;
    }
}

// Every warp runs 8 chains from x. out: one value a thread; sm and slot: one value a warp.
extern "C" __global__ void busy(
        int rounds, float x, float a, float b,
        float *out, int *sm, int *slot) {
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    sm[thread / 32] = sm_number();
    slot[thread / 32] = warp_slot();
    out[thread] = work<8>(x, a, b, rounds);
}

// Warps `first` and `second` of the block work at the same time; cycles: how long each of them took.
extern "C" __global__ void warp_pair(int first, int second, int rounds, float a, float b, float *out,
                                     long long *cycles, int *slot) {
    int warp = threadIdx.x / 32;
    slot[warp] = warp_slot();
    float x = out[threadIdx.x];
    __syncthreads();
    if (warp != first && warp != second) return;
    long long began = clock64();
    x = work<8>(x, a, b, rounds);
    out[threadIdx.x] = x;
    cycles[warp] = clock64() - began;
}
