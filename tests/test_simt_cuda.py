"""Constructs of CUDA C++ on the SIMT machine, compiled for three architectures: each against what the source says."""

import numpy as np
import pytest
import torch

from helpers import simt
from helpers.cuda.nvrtc import compile_cuda

TARGETS = ("sm_80", "sm_90", "sm_120")
LANE = np.arange(32)
RNG = np.random.default_rng(1)


@pytest.fixture(params=TARGETS)
def run(request):
    """run(parameters, body, args, grid, block): a kernel whose `t` is the thread's number in the grid."""
    def launch(parameters, body, args, grid=1, block=32, before="", options=(), **kw):
        source = f'{before}\nextern "C" __global__ void k({parameters}) {{ int t = threadIdx.x + blockIdx.x * blockDim.x; {body} }}'
        return simt.run(compile_cuda(source, "k", request.param, options), grid, block, args, **kw)
    return launch


def test_shuffles_of_all_kinds(run):
    y, d = np.zeros((5, 32), np.int32), np.zeros(32)
    run("int* y, double* d", "y[t] = __shfl_sync(~0u, t * 3, t + 5); y[32 + t] = __shfl_up_sync(~0u, t * 3, 3);"
        "y[64 + t] = __shfl_down_sync(~0u, t * 3, 7, 16); y[96 + t] = __shfl_xor_sync(~0u, t * 3, 9, 8);"
        "y[128 + t] = __shfl_sync(~0u, t * 3, 5, 8); d[t] = __shfl_xor_sync(~0u, t * 1.5, 1);", [y, d])
    sources = [(LANE + 5) % 32, np.where(LANE >= 3, LANE - 3, LANE), np.where(LANE % 16 < 9, LANE + 7, LANE),
               np.where(LANE ^ 9 <= LANE // 8 * 8 + 7, LANE ^ 9, LANE), LANE // 8 * 8 + 5]
    assert (y == 3 * np.array(sources)).all() and (d == (LANE ^ 1) * 1.5).all()


def test_votes_matches_and_reductions_of_a_warp(run):
    y = np.zeros((8, 32), np.uint32)
    run("unsigned* y", "int p; y[t] = __ballot_sync(~0u, t % 3 == 0); y[32 + t] = __all_sync(~0u, t < 31); "
        "y[64 + t] = __any_sync(~0u, t == 7); y[96 + t] = __match_any_sync(~0u, t / 5); y[128 + t] = __match_all_sync(~0u, 4, &p) + p;"
        "y[160 + t] = __reduce_add_sync(~0u, t); y[192 + t] = __reduce_min_sync(~0u, -t); y[224 + t] = __reduce_xor_sync(~0u, t * 7);", [y])
    assert (y[0] == sum(1 << i for i in range(0, 32, 3))).all() and (y[1] == 0).all() and (y[2] == 1).all()
    assert y[3].tolist() == [sum(1 << j for j in range(32) if j // 5 == i // 5) for i in range(32)]
    assert (y[4] == 0).all() and (y[5] == 496).all() and (y[6].view(np.int32) == -31).all()
    assert (y[7] == np.bitwise_xor.reduce(LANE * 7)).all()


def test_reductions_at_a_barrier(run):
    y = np.zeros((3, 64), np.int32)
    run("int* y", "y[t] = __syncthreads_count(t % 3 == 0); y[64 + t] = __syncthreads_and(t < 64); y[128 + t] = __syncthreads_or(t == 99);",
        [y], block=64)
    assert (y[0] == 22).all() and (y[1] != 0).all() and (y[2] == 0).all()


def test_named_barriers_between_warps(run):
    x, y = np.arange(64, dtype=np.float32), np.zeros(32, np.float32)
    run("const float* x, float* y", """__shared__ float s[32]; int lane = t & 31;
        if (t < 32) for (int i = 0; i < 2; i++) {
            s[lane] = x[i * 32 + lane]; asm volatile("bar.sync 1, 64;" ::: "memory"); asm volatile("bar.sync 2, 64;" ::: "memory");
        } else { float v = 0; for (int i = 0; i < 2; i++) {
            asm volatile("bar.sync 1, 64;" ::: "memory"); v += s[31 - lane]; asm volatile("bar.sync 2, 64;" ::: "memory"); } y[lane] = v; }""",
        [x, y], block=64)
    assert (y == x[:32][::-1] + x[32:][::-1]).all()
    run("const float* x, float* y", """__shared__ float s[32]; if (t < 32) { s[t] = x[t]; asm volatile("bar.arrive 1, 64;" ::: "memory"); }
        else { asm volatile("bar.sync 1, 64;" ::: "memory"); y[t - 32] = s[63 - t]; }""", [x, y], block=64)
    assert (y == x[:32][::-1]).all()
    with pytest.raises(simt.Deadlock, match="barrier for 96 threads that fewer reach"):
        run("float* y", 'asm volatile("bar.sync 1, 96;");', [y], block=64)


def test_an_early_return_before_a_barrier(run):
    """CUDA leaves it open, GPUs since Volta go on: seen on an H200."""
    x, body = np.arange(48, dtype=np.float32), "__shared__ float s[64]; if (t >= n) return; s[t] = x[t]; __syncthreads(); y[t] = s[n - 1 - t];"
    for n in (48, 50, 32, 1):
        x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        run("const float* x, float* y, int n", body, [x, y, n], block=64, early_exit=True)
        assert (y == x[::-1]).all()
        with pytest.raises(simt.UnreachedBarrier, match=r"it has ended.*GPUs since Volta go on .*early_exit=True"):
            run("const float* x, float* y, int n", body, [x, y, n], block=64)
    with pytest.raises(simt.UnreachedBarrier, match="took another path"):
        run("float* y", "if (t & 1) { __syncthreads(); y[t] = 1; } else y[t] = 2; y[t] += y[t ^ 1];", [y := np.zeros(64, np.float32)],
            block=64, early_exit=True)


def test_an_early_return_before_a_shuffle(run):
    """Threads that have ended need not come to a shuffle that names them; PTX does not tell an early return from an if around the rest."""
    y, tree = np.zeros(2, np.int32), """if (t >= n) return; int v = t + 1; for (int o = 16; o; o /= 2) { int u = __shfl_down_sync(~0u, v, o); if (t + o < n) v += u; }
        __syncwarp(); int c = __popc(__ballot_sync(~0u, 1)); if (t == 0) { y[0] = v; y[1] = c; }"""
    for n in (20, 32, 1):
        run("int* y, int n", tree, [y, n], early_exit=True)
        assert y.tolist() == [n * (n + 1) // 2, n]
    with pytest.raises(simt.Deadlock, match=r"names lane 20, which took another path and is not here. It ends there: GPUs .*early_exit=True"):
        run("int* y, int n", tree, [y, 20])
    with pytest.raises(simt.Deadlock, match=r"names lane 20, which took another path and is not here. \("):
        run("int* y", "int v = t; if (t < 20) v = __shfl_xor_sync(~0u, v, 1); y[t & 1] = v;", [y], early_exit=True)


def test_atomics_on_integers(run):
    x, c = RNG.integers(-1000, 1000, 256).astype(np.int32), np.zeros(11, np.int32)
    c[4:7] = -1, 2**30, -(2**30)
    old = np.zeros(256, np.int32)
    run("const int* x, int* c, int* old", "int v = x[t]; atomicAdd(c, v); atomicSub(c + 1, v); atomicOr(c + 2, v); atomicXor(c + 3, v);"
        "atomicAnd(c + 4, v | 7); atomicMin(c + 5, v); atomicMax(c + 6, v); atomicInc((unsigned*)c + 7, 9u);"
        "atomicDec((unsigned*)c + 8, 5u); atomicExch(c + 9, 77); old[t] = atomicAdd(c + 10, 2);", [x, c, old], 2, 128)
    total, down = int(x.sum()), 0
    for _ in range(256):
        down = 5 if down == 0 else down - 1
    expected = [total, -total, np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x), np.bitwise_and.reduce(x | 7), x.min(), x.max(), 6,
                down, 77, 512]
    assert c.tolist() == expected and sorted(old) == list(range(0, 512, 2))


def test_atomics_on_floats_and_shared_memory(run):
    x, f, d = np.arange(256, dtype=np.float32), np.full(2, -9, np.float32), np.zeros(2)
    largest = """__device__ void atomic_max(float* at, float v) { int old = *(int*)at, seen;
        do { seen = old; old = atomicCAS((int*)at, seen, __float_as_int(fmaxf(v, __int_as_float(seen)))); } while (seen != old); }"""
    run("const float* x, float* f, double* d", """__shared__ float s; __shared__ unsigned long long q; if (threadIdx.x == 0) { s = 0; q = 0; }
        __syncthreads(); atomicAdd(f, x[t]); atomic_max(f + 1, x[t] - 100); atomicAdd(d, (double)x[t]); atomicAdd(&s, 1.5f);
        atomicAdd(&q, 1ull << 33); __syncthreads(); if (threadIdx.x == 0) atomicAdd(d + 1, s + (double)(q >> 33));""", [x, f, d], 2, 128, largest)
    assert f.tolist() == [x.sum() - 9, 155] and d.tolist() == [x.sum(), 2 * (1.5 * 128 + 128)]


def test_atomics_through_pointers_of_any_space(run):
    """The compiler does not know what a called function's pointer points to: the address says so."""
    y = np.zeros(3, np.int32)
    run("int* y", "__shared__ int s; if (threadIdx.x == 0) s = 0; __syncthreads(); bump(y, 1); bump(threadIdx.x & 1 ? &s : y + 1, 1); __syncthreads();"
        "if (threadIdx.x == 0) bump(y + 2, s);", [y], 3, 64, "__noinline__ __device__ void bump(int* p, int by) { atomicAdd(p, by); }")
    assert y.tolist() == [192, 96, 96]


@pytest.mark.parametrize("target", ["sm_90", "sm_121"])
def test_atomics_on_vectors(target):
    """Since sm_90 one instruction adds up to 16 bytes, each member for itself."""
    source = """extern "C" __global__ void k(float4* f, float2* g, float2* old) { int t = threadIdx.x; atomicAdd(f + t % 2, make_float4(1, t, -1, .5f));
        old[t] = atomicAdd(g, make_float2(1, 2)); }"""
    f, g, old = np.zeros((2, 4), np.float32), np.zeros(2, np.float32), np.zeros((32, 2), np.float32)
    report = simt.run(compile_cuda(source, "k", target), 1, 32, [f, g, old])
    assert (f == [[16, 240, -16, 8], [16, 256, -16, 8]]).all() and g.tolist() == [32, 64]
    assert (old == np.stack([LANE, 2 * LANE], 1)).all()
    added, fetched = report.of("global reduction"), report.of("global atomic")
    assert (added.requests, added.bytes, added.sectors, fetched.bytes) == (1, 32 * 16, 1, 32 * 8)
    with pytest.raises(simt.Misaligned, match="updated 16 bytes at an address that is not a multiple of 16"):
        simt.run(compile_cuda(source, "k", target), 1, 32, [np.zeros(9, np.float32)[1:], g, old])


def test_half_precision(run):
    """Values are held as bits; fma, min and the rounding to bf16 and f16 happen once."""
    x = RNG.standard_normal(64).astype(np.float32)
    h, b = x.astype(np.float16), (x.view(np.uint32) >> 16).astype(np.uint16)
    y, z = np.zeros((3, 64), np.float16), np.zeros((2, 64), np.uint16)
    run("const unsigned short* h, const unsigned short* b, unsigned short* y, unsigned short* z", """unsigned short r; int u = 63 - t;
        asm("fma.rn.f16 %0, %1, %2, %1;" : "=h"(r) : "h"(h[t]), "h"(h[u])); y[t] = r;
        asm("min.f16 %0, %1, %2;" : "=h"(r) : "h"(h[t]), "h"(h[u])); y[64 + t] = r;
        asm volatile("atom.add.noftz.f16 %0, [%1], %2;" : "=h"(r) : "l"(y + 128), "h"(h[0]));
        asm("fma.rn.bf16 %0, %1, %2, %1;" : "=h"(r) : "h"(b[t]), "h"(b[u])); z[t] = r;
        asm("max.bf16 %0, %1, %2;" : "=h"(r) : "h"(b[t]), "h"(b[u])); z[64 + t] = r;""", [h, b, y, z], block=64)
    wide, short = h.astype(np.float64), (b.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    assert (y[0] == (wide * wide[::-1] + wide).astype(np.float16)).all() and (y[1] == np.minimum(h, h[::-1])).all()
    assert y[2, 0] == np.add.accumulate(np.full(64, h[0]))[-1]
    exact = torch.from_numpy(short * short[::-1] + short).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert (z[0] == exact).all() and (z[1] == np.where(short > short[::-1], b, b[::-1])).all()


def test_pairs_of_halves_are_compared(run):
    x, z = RNG.integers(-3, 3, (2, 64)).astype(np.float16)
    x[5], y, mask = np.nan, np.zeros((2, 64), np.float16), np.zeros(64, np.uint16)
    run("const half2* x, const half2* z, half2* y, unsigned* mask", "y[t] = __hgt2(x[t], z[t]); y[32 + t] = __hneu2(x[t], z[t]);"
        "mask[t] = __hle2_mask(x[t], z[t]);", [x, z, y, mask], before="#include <cuda_fp16.h>")
    assert (y == [x > z, x != z]).all() and (mask == np.where(x <= z, 0xFFFF, 0)).all()


def test_bfloat16_converts_and_compares(run):
    x = torch.tensor([1.5, -2.75, 300, 1e9, float("nan"), float("-inf"), -0.0, 0.5] * 4).bfloat16()
    whole, d = RNG.integers(-2**62, 2**62, 32), RNG.standard_normal(32) * 1e-3
    y, z = np.zeros((3, 32), np.int32), torch.zeros(6, 32).bfloat16()
    run("const __nv_bfloat16* x, const long long* w, const double* d, int* y, __nv_bfloat16* z", """__nv_bfloat16 v = x[t]; y[t] = (int)v;
        y[32 + t] = v > (__nv_bfloat16)1.f; y[64 + t] = __hisnan(v); z[t] = hfloor(v); z[32 + t] = __ll2bfloat16_rn(w[t]);
        z[64 + t] = __double2bfloat16(d[t]); z[96 + t] = __float2bfloat16_rz(d[t]); z[128 + t] = __float2bfloat16_rd(d[t]);
        z[160 + t] = __float2bfloat16_ru(d[t]);""", [x, whole, d, y, z], before="#include <cuda_bf16.h>")
    wide, exactly = x.float().numpy(), d.astype(np.float32).astype(np.float64)
    whole_part = np.nan_to_num(np.clip(np.trunc(wide), -2.0**31, 2.0**31 - 1), nan=0)
    assert (y == [whole_part.astype(np.int64), wide > 1, np.isnan(wide)]).all()
    assert np.array_equal(z[0].float(), np.floor(wide), equal_nan=True)
    assert (z[1].double().numpy() == torch.from_numpy(whole.astype(np.float64)).bfloat16().double().numpy()).all()
    assert (z[2] == torch.from_numpy(d).bfloat16()).all()
    down, up = z[4].double().numpy(), z[5].double().numpy()
    assert (down < exactly).all() and (exactly < up).all() and (up - down <= 2.0**-7 * np.abs(exactly)).all()
    assert (z[3].double().numpy() == np.where(d > 0, down, up)).all()


def test_dot_products_of_bytes(run):
    p, q = RNG.integers(-2**31, 2**31, (2, 32)).astype(np.int32)
    y = np.zeros((4, 32), np.int32)
    run("const int* a, const int* b, int* y", "int p = a[t], q = b[t]; y[t] = __dp4a(p, q, t); y[32 + t] = __dp4a((unsigned)p, (unsigned)q, 7u);"
        "y[64 + t] = __dp2a_lo(p, q, 5); y[96 + t] = __dp2a_hi((unsigned)p, (unsigned)q, 3u);", [p, q, y])
    bytes_p, bytes_q, halves = (v.view(dtype).reshape(32, -1).astype(int) for v, dtype in ((p, np.int8), (q, np.int8), (p, np.int16)))
    positive_p, positive_q = bytes_p & 255, bytes_q & 255
    assert (y == [(bytes_p * bytes_q).sum(1) + LANE, (positive_p * positive_q).sum(1) + 7, (halves * bytes_q[:, :2]).sum(1) + 5,
                  ((halves & 65535) * positive_q[:, 2:]).sum(1) + 3]).all()


def test_whole_numbers_side_by_side(run):
    """For sm_90 and newer these are instructions, for older ones the compiler writes them out."""
    a, b, c = RNG.integers(-2**31, 2**31, (3, 32)).astype(np.int32)
    y, z = np.zeros((8, 32), np.int32), np.zeros((5, 32), np.uint32)
    run("const unsigned* a, const unsigned* b, const unsigned* c, unsigned* y, unsigned* z", """unsigned p = a[t], q = b[t], r = c[t];
        y[t] = __vadd2(p, q); y[32 + t] = __vmaxs2(p, q); y[64 + t] = __viaddmax_s16x2(p, q, r); y[96 + t] = __vimin3_s16x2_relu(p, q, r);
        y[128 + t] = __vimax_s32_relu(p, q); y[160 + t] = __viaddmin_s32_relu(p, q, r); y[192 + t] = __vminu2(p, q); y[224 + t] = __vsubss2(p, q);
        z[t] = __vabsdiffu4(p, q); z[32 + t] = __vsadu4(p, q); z[64 + t] = __vsadu2(p, q); z[96 + t] = __vabs4(p); z[128 + t] = __vaddus4(p, q);""",
        [a, b, c, y, z])
    p, q, r = (v.view(np.int16) for v in (a, b, c))
    for row, expected in zip(y, [p + q, np.maximum(p, q), np.maximum(p + q, r), np.maximum(np.minimum(np.minimum(p, q), r), 0),
                                 np.maximum(np.maximum(a, b), 0), np.maximum(np.minimum(a + b, c), 0),
                                 np.minimum(p.view(np.uint16), q.view(np.uint16)),
                                 np.clip(p.astype(int) - q, -2**15, 2**15 - 1).astype(np.int16)], strict=True):
        assert (row == expected.view(np.int32)).all()
    p, q = (v.view(np.uint8).astype(int) for v in (a, b))
    halves = np.abs(a.view(np.uint16).astype(int) - b.view(np.uint16))
    assert (z[0] == np.abs(p - q).astype(np.uint8).view(np.uint32)).all() and (z[1] == np.abs(p - q).reshape(32, 4).sum(1)).all()
    assert (z[2] == halves.reshape(32, 2).sum(1)).all() and (z[3] == np.abs(a.view(np.int8)).view(np.uint32)).all()
    assert (z[4] == np.minimum(p + q, 255).astype(np.uint8).view(np.uint32)).all()


def test_floats_of_eight_bits(run):
    """Converted by the instructions of sm_89 and newer, by the header's own arithmetic for older ones: every code, and ties."""
    x = np.concatenate([RNG.standard_normal(150) * 10.0 ** RNG.integers(-6, 4, 150), np.arange(-50, 50) * 2.0**-11, [np.nan, np.inf, -np.inf],
                        [0, -0.0, 464, -464]])
    x = np.resize(x, 256).astype(np.float32)
    codes, y, h = np.arange(256, dtype=np.uint8), np.zeros((4, 256), np.uint8), np.zeros((2, 256), np.float16)
    run("const float* x, const unsigned char* c, unsigned char* y, __half* h", """y[t] = __nv_cvt_float_to_fp8(x[t], __NV_SATFINITE, __NV_E4M3);
        y[256 + t] = __nv_cvt_float_to_fp8(x[t], __NV_SATFINITE, __NV_E5M2); __nv_fp8x2_e4m3 two(make_float2(x[t], x[t ^ 1]));
        y[512 + t] = two.__x >> 8; y[768 + t] = __nv_cvt_halfraw_to_fp8(__half_raw(__float2half(x[t])), __NV_SATFINITE, __NV_E4M3);
        h[t] = __half(__nv_cvt_fp8_to_halfraw(c[t], __NV_E4M3)); h[256 + t] = __half(__nv_cvt_fp8_to_halfraw(c[t], __NV_E5M2));""",
        [x, codes, y, h], block=256, before="#include <cuda_fp8.h>")
    for row, given, kind in ((y[0], x, torch.float8_e4m3fn), (y[1], x, torch.float8_e5m2), (y[2], x.reshape(-1, 2)[:, ::-1].reshape(-1),
                             torch.float8_e4m3fn), (y[3], x.astype(np.float16), torch.float8_e4m3fn)):
        most = torch.finfo(kind).max
        expected = torch.from_numpy(np.clip(given.astype(np.float32), -most, most)).to(kind).view(torch.uint8).numpy()
        same = np.where(np.isnan(given), row & 127 == 127, row == expected)
        assert same.all(), (kind, given[~same], row[~same], expected[~same])
    for row, kind in zip(h, (torch.float8_e4m3fn, torch.float8_e5m2), strict=True):
        assert np.array_equal(row, torch.from_numpy(codes).view(kind).half().numpy(), equal_nan=True)


def test_arrays_that_hold_addresses(run):
    y = np.zeros(32, np.float32)
    before = """__device__ int seven = 7; __device__ int* where = &seven; __constant__ const char* names[2] = {"even", "odd"};
        __device__ float table[3] = {1.5f, 2.5f, -1.f}; struct S { int a; float* p; }; __device__ S pairs[2] = {{4, table + 2}, {9, table}};"""
    report = run("float* y", 'y[t] = *where + *pairs[t & 1].p + pairs[t & 1].a; if (t < 2) printf("%s ", names[t]);', [y], before=before)
    assert y[:2].tolist() == [10, 17.5] and report.printed == "even odd "


def test_clocks_move_within_a_block_of_code(run):
    y = np.zeros((2, 32), np.int64)
    run("long long* y, float f", "long long a = clock64(); int b = clock(); f = f * f + 1; f = f * f + 2; y[t] = clock64() - a + (f == 77);"
        "y[32 + t] = clock() - b;", [y, 1.5])
    assert (y > 0).all() and (y < 30).all()


def test_a_contended_counter_is_quick(run):
    c = np.zeros(2, np.int32)
    report = run("int* c, int n", "if (t < n) { atomicAdd(c, 1); if (atomicAdd(c + 1, 1) == n) c[0] = 0; }", [c, 100_000], 391, 256)
    assert c.tolist() == [100_000] * 2
    assert report.of("global reduction").requests == report.of("global atomic").requests == 3125


def test_asynchronous_copies(run):
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    run("const float* x, float* y", """__shared__ __align__(16) float s[256]; unsigned a = (unsigned)__cvta_generic_to_shared(s + 4 * t);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(a), "l"(x + 4 * t));
        asm volatile("cp.async.commit_group;"); asm volatile("cp.async.wait_group 0;"); __syncthreads();
        for (int i = 0; i < 4; i++) y[t + 64 * i] = s[255 - (t + 64 * i)];""", [x, y], block=64)
    assert (y == x[::-1]).all()


def test_dynamic_and_static_shared_memory(run):
    """Addresses of shared memory are 32-bit numbers that wrap: s[99 - t] is s - 4 t + 396."""
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    run("const float* x, float* y", "extern __shared__ float s[]; __shared__ int q[10]; q[t % 10] = 1; int* b = (int*)(s + 100); s[t] = x[t];"
        "b[t] = t; __syncthreads(); y[t] = s[99 - t] + b[(t + 1) % 100] + q[3];", [x, y], block=100, shared_bytes=800)
    assert (y == 99 - x + (x + 1) % 100 + 1).all()


def test_each_kernel_names_dynamic_shared_memory_as_it_likes(run):
    """One memory under several names, in a file of two kernels and in one kernel that uses two types of it."""
    other = 'extern "C" __global__ void other(float* y) { extern __shared__ float theirs[]; theirs[threadIdx.x] = 1; y[0] = theirs[3]; }'
    y, z = np.zeros(32, np.int32), np.zeros(32)
    run("int* y, double* z", """extern __shared__ int s[]; extern __shared__ double d[]; __shared__ char before[5]; before[t % 5] = t; s[t] = t;
        __syncthreads(); y[t] = s[31 - t]; __syncthreads(); d[t] = t * .5; __syncthreads(); z[t] = d[31 - t] + (before[3] == 128);""", [y, z],
        before=other, shared_bytes=256)
    assert (y == 31 - LANE).all() and (z == y / 2).all()
    y[:] = 0
    run("int* y", """extern __shared__ __align__(128) char s[]; __shared__ char before[5]; before[t % 5] = t;
        y[t] = (unsigned)__cvta_generic_to_shared(s) % 128 + (before[3] == 128);""", [y], shared_bytes=4)
    assert (y == 0).all()


def test_functions_that_are_called(run):
    y = np.zeros(64, np.float32)
    before = """struct P { float a; int b; double c; };
        __noinline__ __device__ float sum(float a, int n) { float s = 0; for (int i = 0; i < n; i++) { if (i == 40) return -1; s += a * i; } return s; }
        __noinline__ __device__ void change(P* p, int k) { p->a += k; p->b *= 2; p->c += sum(1, 3); }
        __noinline__ __device__ P doubled(P p) { p.a *= 2; return p; }"""
    run("float* y", "P p = {1.f, t, 2.}; change(&p, t); p = doubled(p); y[t] = p.a + p.b + p.c + sum(1.5f, t);", [y], block=64, before=before)
    t = np.arange(64)
    assert (y == 2 * (1 + t) + 2 * t + 5 + np.where(t > 40, -1, 1.5 * t * (t - 1) / 2)).all()
    with pytest.raises(simt.UnknownInstruction, match="PTX line .*fib.*a function that calls itself"):
        run("int* y", "y[t] = fib(t % 8);", [np.zeros(32, np.int32)],
            before="__noinline__ __device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }")


REDUX = """.version 8.8\n.target sm_100a\n.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y) { .reg .f32 f<4>; .reg .b32 r; .reg .b64 a, b, o;
ld.param.u64 a, [x]; ld.param.u64 b, [y]; mov.u32 r, %tid.x; mul.wide.u32 o, r, 4; add.s64 a, a, o; add.s64 b, b, o; ld.global.f32 f0, [a];
redux.sync.max.NaN.f32 f1, f0, -1; st.global.f32 [b], f1; redux.sync.min.abs.f32 f2, f0, -1; st.global.f32 [b+128], f2;
redux.sync.max.f32 f3, f0, -1; st.global.f32 [b+256], f3; ret; }"""


def test_the_largest_float_of_a_warp():
    """Of all lanes or of those that are there; a NaN wins with .NaN and loses without, unless there is nothing else."""
    for values, threads, expected in ((LANE - 7.5, 32, (23.5, 0.5, 23.5)), (LANE - 7.5, 20, (11.5, 0.5, 11.5)),
                                      (np.where(LANE == 3, np.nan, LANE - 7.5), 32, (np.nan, 0.5, 23.5)), (LANE * np.nan, 32, (np.nan,) * 3)):
        y = np.full((3, 32), -99, np.float32)
        simt.run(REDUX, 1, threads, [values.astype(np.float32)[:threads].copy(), y])
        assert np.array_equal(y[:, :threads], np.repeat(expected, threads).reshape(3, threads).astype(np.float32), equal_nan=True)


def test_advice_to_the_cache_changes_nothing(run):
    x, y = np.arange(128, dtype=np.float32), np.zeros(129, np.float32)
    run("const float* x, float* y", """__shared__ __align__(16) float s[128]; unsigned q = (unsigned)__cvta_generic_to_shared(s + 4 * t);
        unsigned long long p; asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
        asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, 8, %2;" :: "r"(q), "l"(x + 4 * t), "l"(p) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory"); __syncwarp(); for (int i = 0; i < 4; i++) y[t + 32 * i] = s[t + 32 * i];
        asm volatile("red.global.add.L2::cache_hint.f32 [%0], %1, %2;" :: "l"(y + 128), "f"(1.f), "l"(p));""", [x, y])
    assert (y == [*np.where(x % 4 < 2, x, 0), 32]).all()


def test_shared_memory_of_a_function_is_the_same_in_every_call(run):
    y = np.zeros(32, np.int32)
    report = run("int* y", "swap(t, 1); __syncthreads(); y[t] = swap(31 - t, 0);", [y],
                 before="__noinline__ __device__ int swap(int i, int put) { __shared__ int s[9000]; if (put) s[i] = 3 * i; return s[i]; }")
    assert (y == 3 * (31 - LANE)).all() and report.of("shared store").requests == 1
    ballast = "__noinline__ __device__ void put(int i) { __shared__ int s[9000]; s[i] = i; } "  # thrice would be more than an SM has
    run("int* y", "for (int i = 0; i < 2; i++) { put(t); __syncthreads(); } put(t + 1); __syncthreads(); put(t + 2);", [y], before=ballast)


def test_structures_as_parameters(run):
    record = np.array([(1.0, 2, (3, 4, 5))], dtype=[("a", "f4"), ("b", "i4"), ("c", "f4", 3)])
    y = np.zeros(32, np.float32)
    args = ("P p, float* y", "y[t] = p.a + p.b + p.c[1];")
    run(*args, [record, y], before="struct P { float a; int b; float c[3]; };")
    assert (y == 7).all()
    with pytest.raises(TypeError, match="structure of 20 bytes .*got 4 bytes"):
        run(*args, [np.float32(1), y], before="struct P { float a; int b; float c[3]; };")


@pytest.mark.parametrize("options", [(), ("-G",)])
def test_the_address_of_a_parameter(run, options):
    record, y = np.array([(np.arange(8) * 1.5, 3)], dtype=[("w", "f4", 8), ("n", "i4")]), np.zeros((3, 32), np.float32)
    run("const __grid_constant__ P p, P q, float* y", "y[t] = p.w[t & 7] + p.n; y[32 + t] = at(&p, t); q.w[t & 7] += 1; y[64 + t] = at(&q, t);",
        [record, record, y], options=options,
        before="""struct P { float w[8]; int n; }; __noinline__ __device__ float at(const P* p, int t) { return p->w[t & 7] + p->n; }""")
    assert (y == 1.5 * (LANE & 7) + np.array([3, 3, 4])[:, None]).all()


def test_what_is_subnormal_is_flushed(run):
    y, d = np.full(7, 9, np.float32), np.array([1e-40, -1e-40])
    run("float* y, const double* d, float a", "if (t == 0) { y[0] = d[0]; y[1] = d[1]; y[2] = a * .7f; y[3] = a + a; y[4] = fmaxf(a, -1); y[5] = a > 0; y[6] = rintf(a); }",
        [y, d, 1e-40], options=("-ftz=true",))
    assert (y == 0).all() and np.signbit(y).tolist() == [False, True, *[False] * 5]


def test_wide_integers(run):
    a, b, y = RNG.integers(-(2**63), 2**63, 32), RNG.integers(-(2**40), 2**40, 32), np.zeros((5, 32), np.int64)
    run("const long long* a, const long long* b, long long* y", "long long p = a[t], q = b[t]; y[t] = p / q; y[32 + t] = p % q;"
        "y[64 + t] = __mul64hi(p, q); __int128 w = (__int128)p * q + p; y[96 + t] = (long long)w; y[128 + t] = (long long)(w >> 64);",
        [a, b, y], options=("--device-int128",))
    for p, q, column in zip(a.tolist(), b.tolist(), y.T.tolist(), strict=True):
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        whole = p * q + p
        assert column == [quotient, p - quotient * q, p * q >> 64, (whole + 2**63) % 2**64 - 2**63, whole >> 64]


def test_double_precision_functions(run):
    x, y = np.linspace(0.01, 6, 64), np.zeros((6, 64))
    run("const double* x, double* y", "double v = x[t]; y[t] = sin(v); y[64 + t] = exp(v); y[128 + t] = log(v); y[192 + t] = pow(v, 1.7);"
        "y[256 + t] = tanh(v); y[320 + t] = 1 / v;", [x, y], block=64)
    expected = np.array([np.sin(x), np.exp(x), np.log(x), x**1.7, np.tanh(x), 1 / x])
    assert (np.abs(y - expected) <= 4e-15 * np.maximum(np.abs(expected), 0.1)).all()


def test_roundings_in_a_direction(run):
    y, d = np.zeros(6, np.float32), np.zeros(4)
    run("float* y, double* d, float a, float b", "y[0] = __fdiv_rz(a, b); y[1] = __fdiv_ru(a, b); y[2] = __frcp_rd(b); y[3] = __frcp_ru(b);"
        "y[4] = __fsqrt_rd(a); y[5] = __fsqrt_ru(a); d[0] = __dadd_rd(a, 1e-30); d[1] = __dadd_ru(a, 1e-30); d[2] = __fma_rz(a, b, 1e-40);"
        "d[3] = __fma_ru(a, b, 1e-40);", [y, d, 1.1, 3.3])
    a, b = float(np.float32(1.1)), float(np.float32(3.3))
    for low, high, exact in ((y[0], y[1], a / b), (y[2], y[3], 1 / b), (y[4], y[5], a**0.5)):
        assert float(low) < exact < float(high) and high == np.nextafter(low, np.float32(9))
    assert d[0] == a and d[1] == np.nextafter(a, 9) and d[3] == np.nextafter(d[2], 9)


def test_warps_that_wait_for_each_other(run):
    """A flag that another warp sets, a lock between blocks, and lanes that take turns."""
    y = np.zeros(32, np.int32)
    run("int* y", "__shared__ volatile int flag; if (t == 0) flag = 0; __syncthreads(); if (t < 32) { while (flag == 0); y[t] = flag; }"
        "else if (t == 32) flag = 7;", [y], block=64, races=False)
    assert (y == 7).all()
    c = np.zeros(2, np.int32)
    run("int* c", "if (threadIdx.x == 0) { while (atomicCAS(c, 0, 1)); volatile int* v = c + 1; *v = *v + 1; __threadfence(); atomicExch(c, 0); }",
        [c], 12)
    assert c.tolist() == [0, 12]
    with pytest.raises(simt.TooLong, match=r"Thread .* is in an endless loop.* of its warp waits where their paths meet.*lock"):
        run("int* c", "while (atomicCAS(c, 0, 1)); c[1]++; atomicExch(c, 0);", [c], limit=3000)


def test_bits_of_floats_in_integer_arrays_are_no_wrong_type(run):
    x, y, z = np.linspace(-5, 5, 32).astype(np.float32), np.zeros(32, np.int32), np.zeros(32, np.float32)
    run("const float* x, int* y", "y[t] = __float_as_int(x[t] * 2);", [x, y])
    run("const int* y, float* z", "z[t] = __int_as_float(y[t]) + 1;", [y, z])
    assert (y.view(np.float32) == 2 * x).all() and (z == 2 * x + 1).all()
    with pytest.raises(simt.WrongType, match="argument 0 as float32, but it is an array of int64: the bits of a 1 are no sensible float"):
        run("const float* y, float* z", "z[t] = y[t] + 1;", [np.arange(32), z])
    with pytest.raises(simt.WrongType, match="wrote argument 1 as float32, but it is an array of float64"):
        run("const float* y, float* z", "z[t] = y[t] + 1;", [x, np.zeros(32)])


def test_halves_may_be_handled_as_whole_numbers(run):
    x = RNG.standard_normal(64).astype(np.float16)
    y = np.zeros(64, np.float16)
    run("const unsigned* x, unsigned* y", "y[t] = x[t] ^ 0x80008000u;", [x, y])
    assert (y == -x).all()
    with pytest.raises(simt.WrongType, match="argument 0 as float32, but it is an array of float16"):
        run("const float* x, float* y", "y[t] = x[t] + 1;", [x, np.zeros(32, np.float32)])


@pytest.mark.parametrize("options", [(), ("-G",)])
def test_pointers_to_nothing_and_pointers_that_nothing_follows(run, options):
    """Unused, or only compared with null: PTX does not tell them from numbers, and both are accepted."""
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    body = "if (bias) y[t] = x[t] + bias[t]; else y[t] = (other != nullptr) + 10 * (other2 == nullptr);"
    for bias, other, other2, expected in ((x, x, x, 2), (0, x, x, 1), (0, 0, x, 0), (0, x, 0, 11)):
        run("const float* x, const float* bias, const float* other, const float* other2, float* unused, float* y", body,
            [x, bias, other, other2, x, y], options=options)
        assert (y == expected).all()
    with pytest.raises(simt.OutOfBounds, match="read address 0x0, which is in no array"):
        run("const float* x, float* y", "y[t] = x[0];", [0, y], options=options)
    with pytest.raises(TypeError, match="argument 0 .* is a number .* got an array"):
        run("long long n, float* y", "if (t < n) y[t] = n;", [x, y], options=options)


def test_generic_addresses_know_their_space(run):
    y = np.zeros(32, np.int32)
    run("int* y", "__shared__ int s[32]; int own[4]; own[t & 3] = s[t] = t; y[t] = kind(y) + 10 * kind(s + t) + 100 * kind(own + (t & 3));", [y],
        before="__noinline__ __device__ int kind(int* p) { return *p >= 0 ? __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) : 0; }")
    assert (y == 421).all()


MMA = """unsigned a = %s; float d, e, f, g; %s asm volatile("mma.sync.aligned.%s {%%0,%%1,%%2,%%3},{%%4,%%4},{%%4},{%%5,%%5,%%5,%%5};"
    : "=f"(d), "=f"(e), "=f"(f), "=f"(g) : "r"(a), "f"(5.f)); c[t] = d + e + f + g;"""


def test_a_tensor_core_instruction(run):
    c = np.zeros(32, np.float32)
    report = run("float* c", MMA % ("0x40003c00", "", "m16n8k8.row.col.f32.f16.f16.f32"), [c])  # 1 and 2 side by side
    assert (c == 4 * (4 * (1 + 4) + 5)).all() and report.of("tensor core").executed == 1
    with pytest.raises(simt.Deadlock, match="names lane 8, which took another path"):
        run("float* c", MMA % ("t", "if (t < 8)", "m16n8k8.row.col.f32.f16.f16.f32"), [c])


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_of_registers_go_to_shared_memory_and_back(target, trans):
    """PTX ISA: of matrix i, lane l holds values 2 (l % 4) and the next of row l // 4, or of the transposed."""
    source = """extern "C" __global__ void k(unsigned short* y, unsigned* z) { __shared__ __align__(16) unsigned short s[256]; int t = threadIdx.x;
        unsigned v = t / 4 * 8 + t % 4 * 2, r = v | v + 1 << 16, a = (unsigned)__cvta_generic_to_shared(s + t * 8);
        asm volatile("stmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 [%0], {%1,%2,%3,%4};" :: "r"(a), "r"(r), "r"(r + 0x400040), "r"(r + 0x800080),
            "r"(r + 0xc000c0)); __syncthreads(); for (int i = 0; i < 8; i++) y[t * 8 + i] = s[t * 8 + i];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4TRANS.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(z[t]), "=r"(z[32 + t]), "=r"(z[64 + t]),
            "=r"(z[96 + t]) : "r"(a)); }""".replace("TRANS", trans)
    y, z = np.zeros((4, 8, 8), np.uint16), np.zeros((4, 32, 2), np.uint16)
    report = simt.run(compile_cuda(source, "k", target), 1, 32, [y, z])
    numbers = np.arange(256).reshape(4, 8, 8)
    assert (y == (numbers.transpose(0, 2, 1) if trans else numbers)).all() and (z.reshape(4, 8, 8) == numbers).all()
    assert report.of("shared matrix store").wavefronts == report.of("shared matrix load").wavefronts == 4


def test_other_tensor_core_instructions_are_not_there_and_it_says_so(run):
    with pytest.raises(simt.UnknownInstruction, match=r"PTX line \d+: 'wmma.load.a.sync.*reached by mma.sync here"):
        run("half* x, float* c", """nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, half, nvcuda::wmma::row_major> a;
            nvcuda::wmma::load_matrix_sync(a, x, 16); c[t] = a.x[0];""", [np.zeros(256, np.float16), np.zeros(32, np.float32)],
            before="#include <mma.h>")


def test_printf(run, capsys):
    report = run("int* y, float* x", 'if (t % 16 == 3) printf("thread %d of %u: %5.2f %s %lld %c%%\\n", t, blockDim.x, x[t] / 3, '
                 '"text", 1ll << 40, 65 + t); y[t] = t;', [np.zeros(32, np.int32), np.arange(32, dtype=np.float32)])
    assert report.printed == capsys.readouterr().out == (
        "thread 3 of 32:  1.00 text 1099511627776 D%\nthread 19 of 32:  6.33 text 1099511627776 T%\n")


def test_printf_takes_what_c_takes(run, capsys):
    report = run("int n", r"""if (t == 0) printf("%c%c|%*d|%-5d|%.*f|%+05d|%#x|%hhu|%.3s|%e|%i%%\n", 321, -158, 5, n, n, 2, 1.2345, n, n, 7, "text", 1.5, -n);""",
                 [42])
    assert report.printed == capsys.readouterr().out == "Ab|   42|42   |1.23|+0042|0x2a|7|tex|1.500000e+00|-42%\n"


def test_a_failed_assertion(run):
    before = ('extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);'
              '\n#define check(x) ((x) ? (void)0 : __assertfail(#x, "cell.cu", __LINE__, "k", 1))')
    with pytest.raises(simt.Trap, match=r"Thread \(20, 0, 0\) .* its assertion `t < 20` does not hold"):
        run("int* y", "check(t < 20); y[t] = t;", [np.zeros(32, np.int32)], before=before)
