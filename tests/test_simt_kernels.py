"""The course's compiled kernels on the SIMT machine: right values on three architectures, and speed."""

import time

import numpy as np
import pytest
import torch

from helpers import simt  # before Triton
from helpers.compile import compile_kernel
from helpers.cuda.nvrtc import compile_cuda
from helpers.kernels import gelu, matmul, row_sum, softmax

import triton  # isort: skip
import triton.language as tl  # isort: skip

TARGETS = ("sm_80", "sm_90", "sm_120")
RNG = np.random.default_rng(0)


def values(*shape) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def nothing(*shape) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


# ------------------------------------------------------------------------------------------------ CUDA C++


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n,block", [(1, 32), (31, 32), (1000, 256), (1023, 96), (5000, 1024), (777, 33)])
def test_vec_add(target, n, block):
    a, b, c = values(n), values(n), nothing(n)
    report = simt.run(compile_cuda("vec_add.cu", "vec_add", target), -(-n // block), block, [a, b, c, n])
    assert (c == a + b).all()
    assert report.of("global store").lanes == n


@pytest.mark.parametrize("target", TARGETS)
def test_copies(target):
    x = values(1000)
    for stride in (1, 3, 32):
        y = nothing(-(-1000 // stride))
        simt.run(compile_cuda("copies.cu", "strided_copy", target), 4, 256, [x, y, len(y), stride])
        assert (y == x[::stride]).all()
    for offset in (0, 1, 13):
        y = nothing(1000 - offset)
        simt.run(compile_cuda("copies.cu", "offset_copy", target), 4, 256, [x, y, len(y), offset])
        assert (y == x[offset:]).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ["naive_matmul", "tiled_matmul"])
@pytest.mark.parametrize("m,k,n", [(1, 1, 1), (33, 65, 40), (64, 32, 32), (31, 5, 70)])
def test_matmul(target, kernel, m, k, n):
    a, b, c = values(m, k), values(k, n), nothing(m, n)
    simt.run(compile_cuda("matmul.cu", kernel, target), (-(-n // 32), -(-m // 32)), (32, 32), [a, b, c, m, n, k])
    expected = a.astype(np.float64) @ b
    assert np.abs(c - expected).max() < 1e-5 * np.abs(a.astype(np.float64)).sum(axis=1).max()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("version", ["naive", "tiled", "padded"])
def test_transpose(target, version):
    for rows, cols in ((1, 1), (32, 32), (50, 70), (33, 97)):
        x, y = values(rows, cols), nothing(cols, rows)
        report = simt.run(compile_cuda("transpose.cu", f"transpose_{version}", target),
                          (-(-cols // 32), -(-rows // 32)), (32, 8), [x, y, rows, cols])
        assert (y == x.T).all()
    assert (report.bank_conflicts > 0) == (version == "tiled")


# ------------------------------------------------------------------------------------------------ Triton


def run_triton(kernel, grid, warps, *args, target, **constants):
    """Compile and run; arguments that Triton turns into constants (those equal to 1) are not passed on."""
    compiled = compile_kernel(kernel, *args, target=target, num_warps=warps, **constants)
    return simt.run(compiled, grid, 32 * warps, [a for a in args if isinstance(a, torch.Tensor) or a != 1])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 1000, 3001])
def test_gelu(target, dtype, n):
    x, y = torch.randn(n).to(dtype), torch.full((n,), float("nan"), dtype=dtype)
    expected = gelu.gelu_reference(x)
    for kernel in (gelu.gelu_kernel, gelu.gelu_tail_kernel):
        run_triton(kernel, -(-n // 1024), 4, x, y, n, target=target, BLOCK=1024)
        tolerance = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
        assert (y.double() - expected).abs().max() < tolerance
        y.fill_(float("nan"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows,cols,warps", [(3, 1000, 4), (5, 129, 1), (1, 1, 1), (2, 4096, 8)])
def test_softmax_and_row_sum(target, rows, cols, warps):
    x, y, sums = torch.randn(rows, cols), torch.full((rows, cols), float("nan")), torch.full((rows,), float("nan"))
    expected = torch.softmax(x.double(), 1)
    block = max(16, softmax.padded(cols))
    run_triton(softmax.softmax_kernel, rows, warps, x, y, cols, cols, 1, cols, target=target, BLOCK=block)
    assert (y.double() - expected).abs().max() < 1e-6
    y.fill_(float("nan"))
    run_triton(softmax.online_softmax_kernel, rows, warps, x, y, cols, cols, 1, cols, target=target, TILE=512)
    assert (y.double() - expected).abs().max() < 1e-6
    run_triton(row_sum.row_sum_kernel, rows, warps, x, sums, cols, cols, 1, target=target, TILE=1024)
    assert (sums.double() - x.double().sum(1)).abs().max() < 1e-6 * cols


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softmax_and_row_sum_of_short_floats(target, dtype):
    """For sm_120, Triton adds and subtracts them with sums in float32 (`sub.f32.bf16`)."""
    rows, cols = 3, 1000
    x, sums = torch.randn(rows, cols).to(dtype), torch.full((rows,), float("nan"), dtype=dtype)
    expected, tolerance = torch.softmax(x.double(), 1), {torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    for kernel, constants in ((softmax.softmax_kernel, {"BLOCK": 1024}), (softmax.online_softmax_kernel, {"TILE": 512})):
        y = torch.full((rows, cols), float("nan"), dtype=dtype)
        run_triton(kernel, rows, 4, x, y, cols, cols, 1, cols, target=target, **constants)
        assert ((y.double() - expected).abs() <= tolerance * expected.abs() + 1e-6).all()
    run_triton(row_sum.row_sum_kernel, rows, 4, x, sums, cols, cols, 1, target=target, TILE=1024)
    assert ((sums.double() - x.double().sum(1)).abs() <= tolerance * x.double().abs().sum(1) / 16).all()


@pytest.mark.parametrize("target", ["sm_75", "sm_87", "sm_100", "sm_103", "sm_121"])
def test_every_other_target_runs_softmax(target):
    """sm_100 has an instruction for the largest float of a warp."""
    rows, cols = 3, 1000
    x, y = torch.randn(rows, cols), torch.full((rows, cols), float("nan"))
    for kernel, constants in ((softmax.softmax_kernel, {"BLOCK": 1024}), (softmax.online_softmax_kernel, {"TILE": 512})):
        x[1, 5], x[2, :] = float("nan"), float("-inf")
        run_triton(kernel, rows, 4, x, y, cols, cols, 1, cols, target=target, **constants)
        assert ((y[0].double() - torch.softmax(x[0].double(), 0)).abs().max() < 1e-6) and y[1:].isnan().all()
        y.fill_(-7)


@triton.jit
def advised_kernel(x_ptr, y_ptr, sums_ptr, largest_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, eviction_policy="evict_last") + tl.load(x_ptr + i, eviction_policy="evict_first")
    tl.store(y_ptr + i, tl.clamp(x, -0.5, 1.5), eviction_policy="evict_last")
    tl.atomic_add(sums_ptr + i % 8, x, sem="relaxed")
    tl.store(largest_ptr, tl.max(tl.abs(x)))
    tl.store(largest_ptr + 1, tl.min(x))


@pytest.mark.parametrize("target", [*TARGETS, "sm_75", "sm_100"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_advice_to_caches_clamps_and_vectors_of_atomics(target, dtype):
    x = (torch.arange(256) % 17 - 8).to(dtype) / 8
    y, sums, largest = torch.full((256,), 7, dtype=dtype), torch.zeros(8, dtype=dtype), torch.zeros(2, dtype=dtype)
    run_triton(advised_kernel, 1, 4, x, y, sums, largest, target=target, N=256)
    assert (y == (2 * x).clamp(-0.5, 1.5)).all() and (sums == (2 * x).view(-1, 8).sum(0)).all()
    assert largest.tolist() == [2, -2]


@pytest.mark.parametrize("target", TARGETS)
def test_row_sum_split(target):
    """Each row in parts, and then the parts of each row."""
    rows, cols, parts, each = 3, 9001, 4, 2251
    x, sums, out = torch.randn(rows, cols), torch.full((rows, parts), float("nan")), torch.full((rows,), float("nan"))
    run_triton(row_sum.row_sum_part_kernel, rows * parts, 4, x, sums, cols, parts, each, cols, 1, target=target, TILE=1024)
    run_triton(row_sum.row_sum_kernel, rows, 4, sums, out, parts, parts, 1, target=target, TILE=1024)
    assert (out.double() - x.double().sum(1)).abs().max() < 1e-3


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m,k,n,tile,warps", [(70, 50, 90, (32, 32, 32), 4), (64, 64, 64, (32, 32, 16), 2),
                                              (33, 100, 65, (64, 64, 32), 4)])
def test_triton_matmul(target, m, k, n, tile, warps):
    """Asynchronous copies into a pipeline of tiles, barriers, and (in the last case) matrix loads."""
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.full((m, n), float("nan"))
    report = run_triton(matmul.matmul_relu_kernel, (-(-m // tile[0]), -(-n // tile[1])), warps, a, b, c, m, n, k, k, 1, n,
                        1, n, target=target, BLOCK_M=tile[0], BLOCK_N=tile[1], BLOCK_K=tile[2], PRECISION="ieee")
    expected = torch.relu(a.double() @ b.double())
    assert (c.double() - expected).abs().max() < 2e-5
    assert report.of("global async copy").requests > 0


@pytest.mark.parametrize("target", TARGETS)
def test_grouped_triton_matmul_in_parts_of_k(target):
    """What matmul_relu launches: tiles in groups of rows, K in parts, whose sums a second kernel adds."""
    m, k, n, parts = 40, 70, 33, 2
    a, b = torch.randn(m, k), torch.randn(k, n)
    sums, c = torch.full((parts, m, n), float("nan")), torch.full((m, n), float("nan"))
    run_triton(matmul.matmul_relu_grouped_kernel, (2 * 2, parts), 4, a, b, sums, m, n, k, 48, k, 1, n, 1, n, target=target,
               BLOCK_M=32, BLOCK_N=32, BLOCK_K=16, PRECISION="ieee", GROUP=2, WHOLE_K=False, RELU=False)
    run_triton(matmul.sum_parts_kernel, 2, 4, sums, c, m * n, parts, target=target, BLOCK=1024)
    assert (c.double() - torch.relu(a.double() @ b.double())).abs().max() < 2e-5


# ------------------------------------------------------------------------------------------------ speed


def seconds(run) -> float:
    """Processor time of a run, the compiler's excluded (the first run also decodes the PTX)."""
    start = time.process_time()
    run()
    return time.process_time() - start


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, SUMS: tl.constexpr):
    rows, cols, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a, b = tl.load(a_ptr + rows * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + cols)
    tl.store(c_ptr + rows * N + cols, tl.dot(a, b, input_precision=PRECISION, out_dtype=SUMS))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype,precision,sums,error", [
    (torch.float16, None, tl.float32, 1e-6), (torch.float16, None, tl.float16, 2e-3), (torch.bfloat16, None, tl.float32, 1e-6),
    (torch.float32, "tf32", tl.float32, 2e-3), (torch.float32, "tf32x3", tl.float32, 2e-6), (torch.float32, "bf16x6", tl.float32, 2e-6),
    (torch.int8, None, tl.int32, 0), (torch.float8_e5m2, None, tl.float32, 1e-6),
])
def test_products_on_tensor_cores(target, dtype, precision, sums, error):
    """Of short operands exact but for one rounding; others lose what their formats lose."""
    m, n, k = 32, 64, 64
    a, b = ((torch.randn(shape, generator=torch.Generator().manual_seed(5)) * (40 if dtype == torch.int8 else 1)).to(dtype)
            for shape in ((m, k), (k, n)))
    out_dtype = {tl.float32: torch.float32, tl.float16: torch.float16, tl.int32: torch.int32}[sums]
    c = torch.full((m, n), -77, dtype=out_dtype)
    compiled = compile_kernel(dot_kernel, a, b, c, M=m, N=n, K=k, PRECISION=precision, SUMS=sums, target=target, num_warps=4)
    report = simt.run(compiled, 1, 128, [a, b, c])
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    assert ((c.double() - exact).abs() <= error * size).all() and report.of("tensor core").executed > 0
    if precision == "tf32":  # and it is not the ieee product
        assert ((c.double() - exact).abs() > 1e-5 * size).any()


def test_runs_are_quick():
    n = 100_000
    a, b, c = values(n), values(n), nothing(n)
    add = compile_cuda("vec_add.cu", "vec_add")
    assert seconds(lambda: simt.run(add, -(-n // 256), 256, [a, b, c, n])) < 1
    assert (c == a + b).all()

    n = 65_536
    x, y = torch.randn(n), torch.full((n,), float("nan"))
    compiled = compile_kernel(gelu.gelu_kernel, x, y, n, target="sm_120", BLOCK=1024)
    assert seconds(lambda: simt.run(compiled, n // 1024, 128, [x, y, n])) < 3
    assert (y - gelu.gelu_reference(x)).abs().max() < 1e-6

    m = 128
    a, b, c = values(m, m), values(m, m), nothing(m, m)
    tiled = compile_cuda("matmul.cu", "tiled_matmul")
    assert seconds(lambda: simt.run(tiled, (4, 4), (32, 32), [a, b, c, m, m, m])) < 10
    assert np.abs(c - a.astype(np.float64) @ b).max() < 1e-4
