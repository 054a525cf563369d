"""Whole programs as students write them, on the SIMT machine: right for every target, and races found where they are."""

import numpy as np
import pytest

from helpers import simt
from helpers.cuda.nvrtc import compile_cuda

TARGETS = ("sm_80", "sm_90", "sm_120")
RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def launch(target, source, grid, block, *args, **kw):
    return simt.run(compile_cuda(source, "k", target), grid, block, args, **kw)


@pytest.mark.parametrize("target", TARGETS)
def test_last_block_finishes_a_sum(target):
    x, parts, y = floats(5000), np.zeros(50, np.float32), np.zeros(1, np.float32)
    launch(target, """__device__ unsigned count = 0;
        extern "C" __global__ void k(const float* x, float* parts, float* y, int n) { __shared__ float s[128]; __shared__ bool last;
        int t = threadIdx.x; float v = 0; for (int i = blockIdx.x * 128 + t; i < n; i += gridDim.x * 128) v += x[i]; s[t] = v; __syncthreads();
        for (int o = 64; o; o >>= 1) { if (t < o) s[t] += s[t + o]; __syncthreads(); }
        if (t == 0) { parts[blockIdx.x] = s[0]; __threadfence(); last = atomicInc(&count, gridDim.x - 1) == gridDim.x - 1; } __syncthreads();
        if (last && t == 0) { float r = 0; for (int i = 0; i < gridDim.x; i++) r += ((volatile float*)parts)[i]; *y = r; } }""",
           50, 128, x, parts, y, 5000)
    assert abs(y[0] - x.sum(dtype=np.float64)) < 1e-3


@pytest.mark.parametrize("target", TARGETS)
def test_scan_of_a_block_by_its_warps(target):
    x, y = RNG.integers(0, 100, 512).astype(np.int32), np.zeros(512, np.int32)
    launch(target, """__device__ int scan(int v) { int l = threadIdx.x & 31;
        for (int o = 1; o < 32; o <<= 1) { int n = __shfl_up_sync(~0u, v, o); if (l >= o) v += n; } return v; }
        extern "C" __global__ void k(const int* x, int* y) { __shared__ int s[32]; int t = threadIdx.x, v = scan(x[t]);
        if ((t & 31) == 31) s[t >> 5] = v; __syncthreads(); if (t < 32) s[t] = scan(t < blockDim.x / 32 ? s[t] : 0); __syncthreads();
        y[t] = v + (t >= 32 ? s[(t >> 5) - 1] : 0); }""", 1, 512, x, y)
    assert (y == np.cumsum(x)).all()


@pytest.mark.parametrize("target", TARGETS)
def test_compaction_with_one_atomic_a_warp(target):
    x, y, count = RNG.integers(-5, 5, 1000).astype(np.int32), np.full(1000, -99, np.int32), np.zeros(1, np.int32)
    report = launch(target, """extern "C" __global__ void k(const int* x, int* y, int* c, int n) { int t = blockIdx.x * blockDim.x + threadIdx.x;
        if (t >= n) return; if (x[t] > 0) { unsigned m = __activemask(); int leader = __ffs(m) - 1, lane = threadIdx.x & 31, base;
        if (lane == leader) base = atomicAdd(c, __popc(m)); base = __shfl_sync(m, base, leader);
        y[base + __popc(m & ((1u << lane) - 1))] = x[t]; } }""", 8, 128, x, y, count, 1000)
    assert (np.sort(y[:count[0]]) == np.sort(x[x > 0])).all() and (y[count[0]:] == -99).all()
    warps = (np.pad(x, (0, 24)).reshape(-1, 32) > 0).any(axis=1).sum()
    assert report.of("global atomic").requests == report.of("global atomic").lanes == warps > 28


@pytest.mark.parametrize("target", TARGETS)
def test_sorting_in_shared_memory_and_in_a_warp(target):
    x, keys = floats(256), RNG.integers(0, 2**16, 32).astype(np.uint32)
    wanted, sorted_keys = np.sort(x), np.sort(keys)
    launch(target, """extern "C" __global__ void k(float* x) { __shared__ float s[256]; int t = threadIdx.x; s[t] = x[t]; __syncthreads();
        for (int k = 2; k <= 256; k *= 2) for (int j = k / 2; j > 0; j /= 2) { int i = t ^ j; if (i > t) { bool up = (t & k) == 0;
        if ((s[t] > s[i]) == up) { float q = s[t]; s[t] = s[i]; s[i] = q; } } __syncthreads(); } x[t] = s[t]; }""", 1, 256, x)
    launch(target, """extern "C" __global__ void k(unsigned* x) { __shared__ unsigned s[32]; unsigned t = threadIdx.x, v = x[t], before = (1u << t) - 1;
        for (int b = 0; b < 16; b++) { unsigned zeros = __ballot_sync(~0u, !(v >> b & 1));
        s[v >> b & 1 ? __popc(zeros) + __popc(~zeros & before) : __popc(zeros & before)] = v; __syncwarp(); v = s[t]; __syncwarp(); } x[t] = v; }""",
           1, 32, keys)
    assert (x == wanted).all() and (keys == sorted_keys).all()


@pytest.mark.parametrize("target", TARGETS)
def test_loops_that_each_thread_leaves_elsewhere(target):
    x, y = RNG.integers(0, 100, 96).astype(np.int32), np.zeros(96, np.int32)

    def reference(n):
        total = 0
        for i in range(200):
            if i == n:
                break
            if i % 3 == 1:
                continue
            total += 100 + sum(range(min(i % 5, 3))) if i % 7 == n % 7 else i
        return total

    report = launch(target, """extern "C" __global__ void k(const int* x, int* y) { int t = blockIdx.x * 32 + threadIdx.x, n = x[t], s = 0;
        for (int i = 0; i < 200; i++) { if (i == n) break; if (i % 3 == 1) continue; if (i % 7 == n % 7) { s += 100;
        for (int j = 0; j < i % 5; j++) { if (j == 3) break; s += j; } continue; } s += i; } y[t] = s; }""", 3, 32, x, y)
    assert y.tolist() == [reference(n) for n in x.tolist()] and report.divergent_branches > 30


@pytest.mark.parametrize("target", TARGETS)
def test_two_tiles_on_their_way(target):
    """Asynchronous copies into one half of a buffer while the other half is read; without the last barrier it is a race."""
    source = """#include <cuda_pipeline.h>
        extern "C" __global__ void k(const float* x, float* y, int n) { __shared__ __align__(16) float s[2][256]; int t = threadIdx.x; float sum = 0;
        __pipeline_memcpy_async(&s[0][4 * t], x + 4 * t, 16); __pipeline_commit();
        for (int i = 0; i < n; i++) { if (i + 1 < n) __pipeline_memcpy_async(&s[(i + 1) & 1][4 * t], x + (i + 1) * 256 + 4 * t, 16);
        __pipeline_commit(); __pipeline_wait_prior(1); __syncthreads(); for (int j = 0; j < 4; j++) sum += s[i & 1][255 - (4 * t + j)];
        LAST } y[t] = sum; }"""
    x, y = floats(4, 256), np.zeros(64, np.float32)
    launch(target, source.replace("LAST", "__syncthreads();"), 1, 64, x, y, 4)
    assert np.allclose(y, x[:, ::-1].reshape(4, 64, 4).sum((0, 2)), atol=1e-5)
    with pytest.raises(simt.Race, match="cp.async"):
        launch(target, source.replace("LAST", ""), 1, 64, x, y, 4)


def test_copies_of_the_same_bytes_by_two_threads_are_no_race():
    x, y = floats(64), np.zeros(64, np.float32)
    launch("sm_90", """#include <cuda_pipeline.h>
        extern "C" __global__ void k(const float* x, float* y) { __shared__ __align__(16) float s[64]; int t = threadIdx.x, u = t % 16;
        __pipeline_memcpy_async(&s[4 * u], x + 4 * u, 16); __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); y[t] = s[63 - t]; }""",
           1, 64, x, y)
    assert (y == x[::-1]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_that_wait_for_each_other(target):
    x, y = np.zeros((2, 2048), np.int32)
    launch(target, """__device__ volatile unsigned arrived = 0;
        extern "C" __global__ void k(int* x, int* y) { int t = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x; x[t] = t;
        __threadfence(); __syncthreads(); if (threadIdx.x == 0) { atomicAdd((unsigned*)&arrived, 1u); while (arrived < gridDim.x); }
        __syncthreads(); y[t] = ((volatile int*)x)[all - 1 - t]; }""", 32, 64, x, y)
    assert (y == np.arange(2048)[::-1]).all()


def test_a_second_sum_needs_a_barrier_before_its_first_write():
    with pytest.raises(simt.Race, match=r"wrote it .* read it"):
        launch("sm_90", """extern "C" __global__ void k(const float* x, float* y) { __shared__ float s[4]; int t = threadIdx.x; float m = x[t];
            if (t % 32 == 0) s[t / 32] = m; __syncthreads(); m = s[0] + s[1]; if (t % 32 == 0) s[t / 32] = 2 * m; __syncthreads(); y[t] = s[1]; }""",
               1, 128, floats(128), floats(128))
