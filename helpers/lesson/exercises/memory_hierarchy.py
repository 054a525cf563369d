"""Tests of the exercises of lesson 01."""

import math
import numbers

import torch
import triton

from helpers.lesson.exercise import NotStarted, exercise, poisoned_like, started
from helpers.mode import device
from helpers.roofline import attainable_tflops
from helpers.specs import gpu


def _close(answer, expected: float) -> bool:
    assert isinstance(answer, numbers.Real), f"the answer must be a number, got {answer!r}"
    return math.isclose(answer, expected, rel_tol=1e-6)


@exercise("01_memory_hierarchy.1")
def _(roof):
    if roof(100.0, 1000.0, 1.0) is ...:
        raise NotStarted
    for name in ("RTX 5090", "H200", "T4"):
        spec = gpu(name)
        for intensity in (1 / 12, 1.0, spec.ridge(), 100.0, 1000.0):
            expected = attainable_tflops(spec, intensity)
            answer = roof(spec.fp32_tflops, spec.bandwidth_gb_per_s, intensity)
            assert _close(answer, expected), (
                f"{name} at {intensity:.3g} FLOP/B reaches {expected:.4g} TFLOPS, you say {answer:.4g}"
            )


@exercise("01_memory_hierarchy.2")
def _(bytes_in_flight):
    if bytes_in_flight(1000.0, 500.0, 1000.0) is ...:
        raise NotStarted
    for bandwidth, cycles, mhz in ((1000.0, 1000.0, 1000.0), (1792.0, 936.0, 2407.0), (4800.0, 688.0, 1980.0)):
        expected = bandwidth * 1e9 * cycles / (mhz * 1e6)
        answer = bytes_in_flight(bandwidth, cycles, mhz)
        assert _close(answer, expected), (
            f"{bandwidth:.0f} GB/s and {cycles:.0f} cycles at {mhz:.0f} MHz need {expected:,.0f} bytes, you say {answer:,.0f}"
        )


@exercise("01_memory_hierarchy.3")
def _(kernel):
    for n, s in ((1000, -0.5), (1, 2.0), (1025, 3.0)):
        x, y = (torch.randn(n, device=device()) for _ in range(2))
        out = poisoned_like(x)
        kernel[(triton.cdiv(n, 256),)](x, y, out, s, n, BLOCK=256)
        started(out)
        assert not out.isnan().any(), f"{int(out.isnan().sum())} elements were never written at n = {n}"
        expected = x.double() + s * y.double()
        worst = (out.double() - expected).abs().argmax()
        assert torch.allclose(out.double(), expected, rtol=1e-5, atol=1e-6), (
            f"at element {worst} of {n} the kernel gives {out[worst]:.6g}, expected {expected[worst]:.6g}"
        )
