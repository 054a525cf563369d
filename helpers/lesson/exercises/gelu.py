"""Tests of the exercises of lesson 03."""

import torch
import triton

from helpers.compile import compile_kernel
from helpers.kernels.gelu import gelu_kernel
from helpers.lesson.exercise import NotStarted, exercise, poisoned_like, started
from helpers.mode import device


@exercise("03_gelu.1")
def _(kernel):
    for n in (1, 127, 1000, 1025):
        x = torch.randn(n, device=device()) * 3
        x[0] = 60.0  # e^-102 underflows, e^102 overflows: both must come out right
        x[-1] = -60.0
        out = poisoned_like(x)
        kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        started(out)
        assert not out.isnan().any(), f"NaN or unwritten elements at n = {n}: x = {x[out.isnan()][:3].tolist()}"
        expected = x.double() * torch.sigmoid(1.702 * x.double())
        worst = (out.double() - expected).abs().argmax()
        assert torch.allclose(out.double(), expected, rtol=1e-4, atol=1e-5), (
            f"at x = {x[worst]:.4g} the kernel gives {out[worst]:.6g}, expected {expected[worst]:.6g}"
        )


@exercise("03_gelu.2")
def _(grid_of):
    if grid_of(1000, 256, 170) is ...:
        raise NotStarted
    for n, block, expected in ((1000, 256, 4), (1024, 256, 4), (1025, 256, 5), (1, 1024, 1), (0, 256, 0)):
        for sm_count in (132, 170):
            grid = grid_of(n, block, sm_count)
            assert grid in ((expected,), [expected], expected), (
                f"n = {n}, BLOCK = {block} on {sm_count} SMs needs {expected} programs, you launch {grid}"
            )


@exercise("03_gelu.3")
def _(loads_per_thread):
    if loads_per_thread(1024, 4) is ...:
        raise NotStarted
    x = torch.empty(999, device="meta")
    for block, num_warps in ((1024, 4), (1024, 8), (512, 1), (128, 8)):
        compiled = compile_kernel(gelu_kernel, x, x, 999, target="sm_120", num_warps=num_warps, BLOCK=block)
        real, answer = compiled.count("ld.global"), loads_per_thread(block, num_warps)
        assert answer == real, (
            f"BLOCK = {block} with {num_warps} warps compiles to {real} loads a thread, you say {answer}"
        )
