"""Experiments of lesson 06: the ladder of versions, the error of each precision, and a sweep of tiles and stages."""

import functools

import torch

from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.matmul import (
    matmul_flops,
    matmul_relu,
    matmul_relu_grouped,
    matmul_relu_reference,
    matmul_relu_tiled,
    matmul_traffic_bytes,
)


def naive_relu(a, b):
    """One element of c a thread, in CUDA C++ (lesson 10), and ReLU as an operation of its own."""
    from helpers.cuda import naive_matmul

    return torch.relu(naive_matmul(a, b))


def cublas_relu(a, b):
    """torch's product in true float32 (cuBLAS), and ReLU as an operation of its own."""
    return torch.relu(a @ b)


def cublas_tf32_relu(a, b):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return torch.relu(a @ b)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


LADDER = {
    "naive": naive_relu,
    "tile 64x64x32 ieee": matmul_relu_tiled,
    "ieee": matmul_relu,
    "tf32": functools.partial(matmul_relu, precision="tf32"),
    "tf32x3": functools.partial(matmul_relu, precision="tf32x3"),
    "bf16x6": functools.partial(matmul_relu, precision="bf16x6"),
    "cuBLAS": cublas_relu,
    "cuBLAS tf32": cublas_tf32_relu,
}
TF32 = ("tf32", "cuBLAS tf32")
NAIVE_LIMIT = 4096  # above, a single naive product takes most of a second


def _largest_error(variant, k: int) -> float:
    """What a right result may be off by, for normal numbers. A lost step of K costs more.

    Rounding the inputs gives an error that grows with sqrt(k); one running sum in float32 one that grows with k.
    """
    if any(variant is LADDER[name] for name in TF32):
        return 2e-2 * k**0.5
    return 1e-6 * k + 1e-5 * k**0.5


def _inputs(m, k, n):
    return torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")


def _prepare(variant, call, n: int) -> Run:
    a, b = _inputs(n, n, n)

    def check(out):
        some = slice(0, n, max(1, n // 256))  # every tile row is met; all of c in float64 would take too long
        error = (out[some].double() - matmul_relu_reference(a[some], b)).abs().max().item()
        assert error < _largest_error(variant, n), f"largest error {error:.3g}"
        assert torch.isfinite(out).all(), "some elements were never written"

    return Run(lambda: call(a, b), check, matmul_traffic_bytes(n, n, n), matmul_flops(n, n, n))


@experiment(lesson="06_matmul", title="Versions of matmul + ReLU", variants=LADDER,
            cases=product(n=[1024, 2048, 4096, 8192]))
def matmul_ladder(variant, n):
    if variant is naive_relu and n > NAIVE_LIMIT:
        return None
    return _prepare(variant, variant, n)


@experiment(lesson="06_matmul", title="Error against float64 over K",
            variants={name: LADDER[name] for name in ("tile 64x64x32 ieee", "ieee", "tf32", "tf32x3", "bf16x6", "cuBLAS")},
            cases=product(k=[64, 256, 1024, 4096, 16384]))
def matmul_error(variant, k):
    """Error of a 512 x k by k x 512 product of normal numbers: largest and root mean square. Nothing is timed."""

    def values():
        a, b = _inputs(512, k, 512)
        error = (variant(a, b).double() - matmul_relu_reference(a, b)).abs()
        worst = error.max().item()
        assert 0 < worst < _largest_error(variant, k), f"largest error {worst:.3g}"
        return {"max_error": worst, "rms_error": error.square().mean().sqrt().item()}

    return Run(None, None, values=values)


TILES = ["32x32x32", "64x64x16", "64x64x32", "64x128x16", "64x128x32", "128x128x16", "128x128x32"]


@experiment(lesson="06_matmul", title="Tiles and stages", variants={"ieee": matmul_relu_grouped},
            cases=product(n=[4096], tile=TILES, num_warps=[4, 8], num_stages=[2, 3, 4]))
def matmul_tiles(variant, n, tile, num_warps, num_stages):
    """`variant(a, b, tile=(BM, BN, BK), num_warps=, num_stages=)`."""
    blocks = tuple(int(size) for size in tile.split("x"))
    if (blocks[0] * blocks[2] + blocks[2] * blocks[1]) * 4 * (num_stages - 1) > 96 * 1024:
        return None  # more shared memory than a block may have on most GPUs
    return _prepare(variant, lambda a, b: variant(a, b, tile=blocks, num_warps=num_warps, num_stages=num_stages), n)
