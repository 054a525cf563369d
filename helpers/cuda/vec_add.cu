// c = a + b for n floats, one thread an element. Reads 8 bytes and writes 4 for each addition.

extern "C" __global__ void vec_add(const float* a, const float* b, float* c, long long n)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // 64 bits: i passes 2^31 for large n
    if (i < n) c[i] = a[i] + b[i];  // the last block has more threads than elements are left
}

// The rest is a complete program: nvcc -o vec_add vec_add.cu && ./vec_add
// NVRTC, which compiles the kernel for Python, skips it.
#ifndef __CUDACC_RTC__

#include <cstdio>
#include <cstdlib>

// Every call of the runtime can fail, and says so only in what it returns.
#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t status = (call);                                                             \
        if (status != cudaSuccess) {                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

int main()
{
    const long long n = 1000;
    const size_t bytes = n * sizeof(float);

    // Pinned host memory: the copy engine reads it directly, so that copies can be asynchronous.
    float *host_a, *host_b, *host_c;
    CHECK(cudaMallocHost(&host_a, bytes));
    CHECK(cudaMallocHost(&host_b, bytes));
    CHECK(cudaMallocHost(&host_c, bytes));
    for (long long i = 0; i < n; i++) {
        host_a[i] = (float)i;
        host_b[i] = 2.0f * i;
    }

    float *a, *b, *c;
    CHECK(cudaMalloc(&a, bytes));
    CHECK(cudaMalloc(&b, bytes));
    CHECK(cudaMalloc(&c, bytes));
    CHECK(cudaMemcpy(a, host_a, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host_b, bytes, cudaMemcpyHostToDevice));

    const int threads = 256;
    const int blocks = (int)((n + threads - 1) / threads);  // rounded up: 4 blocks, 1024 threads
    vec_add<<<blocks, threads>>>(a, b, c, n);
    CHECK(cudaGetLastError());        // was the launch accepted?
    CHECK(cudaDeviceSynchronize());   // did the kernel run without a fault?
    CHECK(cudaMemcpy(host_c, c, bytes, cudaMemcpyDeviceToHost));

    for (long long i = 0; i < n; i++) {
        if (host_c[i] != 3.0f * i) {
            fprintf(stderr, "c[%lld] = %f, expected %f\n", i, host_c[i], 3.0f * i);
            return 1;
        }
    }
    printf("c[999] = %.0f\n", host_c[999]);

    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(c));
    CHECK(cudaFreeHost(host_a));
    CHECK(cudaFreeHost(host_b));
    CHECK(cudaFreeHost(host_c));
    return 0;
}

#endif
