"""Tests of the exercises of lesson 10."""

import torch

from helpers.cuda.launch import CudaKernel
from helpers.lesson.exercise import NotStarted, exercise, started
from helpers.simt import Race

PASSES = r"""
extern "C" __global__ void strided(float* y, int s)
{
    extern __shared__ float tile[];
    for (int i = threadIdx.x; i < 32 * 65; i += 32) tile[i] = i;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x * s];
}
"""


@exercise("10_shared_memory.1")
def _(tiled_reads):
    if tiled_reads(4, 4, 4, 2) is ...:
        raise NotStarted
    for m, k, n, tile in ((4, 4, 4, 2), (5, 3, 4, 2), (9, 10, 7, 4), (3, 17, 2, 8), (1, 1, 1, 4)):
        kernel = CudaKernel("matmul.cu", "tiled_matmul", (f"-DTILE={tile}",))
        a, b, c = torch.rand(m, k), torch.rand(k, n), torch.empty(m, n)
        report = kernel.counted((-(-n // tile), -(-m // tile)), (tile, tile), a, b, c, m, n, k)
        real, answer = report.of("global load").lanes, tiled_reads(m, k, n, tile)
        assert answer == real, f"({m}, {k}) @ ({k}, {n}) with T = {tile}: counted {real} reads, you say {answer}"


@exercise("10_shared_memory.2")
def _(reverse):
    x, y = torch.randn(768), torch.full((768,), float("nan"))
    try:
        report = reverse.counted(3, 256, x, y, races=True, trace=((0, 0, 0), 0))
    except Race as race:
        raise AssertionError(f"a race: {race}") from None
    started(y)
    expected = x.view(3, 256).flip(1).flatten()
    assert torch.equal(y, expected), f"y[0] must be x[255] = {x[255]:.4g}, it is {y[0]:.4g}"
    assert report.of("shared store").requests and report.of("shared load").requests, "go through shared memory"
    for step in report.trace:
        if step.access and step.access.space == "global":
            ahead = int(step.access.offsets[1]) - int(step.access.offsets[0])
            assert ahead == 4, (f"`{step.text}`: lane 1 is {ahead} bytes on from lane 0, and 4 are asked for; "
                                "shared memory can do the turning")


@exercise("10_shared_memory.3")
def _(passes):
    if passes(1) is ...:
        raise NotStarted
    kernel = CudaKernel(PASSES, "strided")
    for s in (1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 0):
        report = kernel.counted(1, 32, torch.empty(32), s, shared_bytes=4 * 32 * 65)
        real, answer = report.of("shared load").wavefronts, passes(s)
        assert answer == real, f"s = {s}: the access takes {real} pass{'es' * (real > 1)}, you say {answer}"


@exercise("10_shared_memory.4")
def _(quad):
    n = 64
    a, b, c = torch.rand(n, n), torch.rand(n, n), torch.full((n, n), float("nan"))
    try:
        report = quad.counted((2, 2), (32, 8), a, b, c, n, races=True)
    except Race as race:
        raise AssertionError(f"a race: {race}") from None
    if not c.any():
        raise NotStarted
    wrong = (~torch.isclose(c, a @ b, atol=1e-4)).nonzero().tolist()
    assert not wrong, f"{len(wrong)} of {n * n} elements are wrong, c{wrong[0]} first: which row of tile_a belongs to sum[r]?"
    read, again = report.of("shared load").lanes / n**3, report.of("global load").lanes * 32 / n**3
    assert again == 2, "all inputs of the inner loop come from the tiles"
    assert read <= 5 / 4, f"right, with {read:g} numbers from shared memory for each multiply-add; 5/4 are enough"
