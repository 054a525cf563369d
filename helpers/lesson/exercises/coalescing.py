"""Tests of the exercises of lesson 09."""

import torch

from helpers.cuda.counting import count_warp
from helpers.cuda.launch import CudaKernel
from helpers.lesson.exercise import NotStarted, exercise, started


@exercise("09_coalescing.1")
def _(sectors):
    if sectors(1, 0) in (None, ...):
        raise NotStarted
    for stride, offset in ((1, 0), (1, 1), (1, 8), (2, 0), (2, 3), (3, 0), (5, 1), (8, 7), (9, 2), (32, 5), (0, 3)):
        real, answer = count_warp(stride, offset).sectors, sectors(stride, offset)
        assert answer == real, f"stride {stride}, offset {offset}: the compiled kernel touches {real}, you say {answer}"


@exercise("09_coalescing.2")
def _(scale_rows):
    for rows, cols in ((8, 32), (24, 64), (17, 70)):
        x, f, y = torch.randn(rows, cols), torch.randn(rows), torch.full((rows, cols), float("nan"))
        report = scale_rows.counted((-(-cols // 32), -(-rows // 8)), (32, 8), x, f, y, rows, cols)
        started(y)
        assert torch.allclose(y, f[:, None] * x), f"wrong values for {rows} × {cols}: does every element have a thread?"
        store = report.of("global store")
        least = rows * -(-cols // 32)
        assert store.requests == least and store.sectors <= 5 * least, (
            f"{rows} × {cols}: {store.sectors / store.requests:.3g} sectors a store. "
            "Which index must threadIdx.x run along?"
        )


@exercise("09_coalescing.3")
def _(used_share):
    answer = used_share()
    if answer in (None, ...):
        raise NotStarted
    take = CudaKernel('extern "C" __global__ void take(const float* p, float* x, int step)'
                      "{ int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = p[i * step]; }", "take")
    loads = [take.counted(8, 256, torch.zeros(2048 * 3), torch.empty(2048), step).of("global load") for step in (3, 1)]
    real = tuple(load.bytes / (32 * load.sectors) for load in loads)
    assert isinstance(answer, tuple | list) and len(answer) == 2, f"two shares are asked for, (interleaved, planes), got {answer!r}"
    for what, said, counted in zip(("interleaved", "planes"), answer, real, strict=True):
        assert abs(said - counted) < 0.002, f"{what}: counted {counted:.3f} of the moved bytes, you say {said:.3f}"
