"""Tests of the exercises of lesson 04."""

import math

import torch
import triton

from helpers.kernels.softmax import softmax_reference
from helpers.lesson.exercise import NotStarted, exercise, poisoned_like, started
from helpers.mode import device


@exercise("04_softmax.1")
def _(kernel):
    for n_rows, n_cols, rows in ((7, 20, 4), (1, 1, 4), (9, 33, 8), (5, 64, 2)):
        x = torch.randn(n_rows, n_cols, device=device()) * 3 - 20  # all negative: padding with 0 would show
        x[-1, 0] = 200.0  # e^200 overflows unless the maximum is taken off first
        out = poisoned_like(x)
        block = triton.next_power_of_2(n_cols)
        kernel[(triton.cdiv(n_rows, rows),)](x, out, n_rows, n_cols, ROWS=rows, BLOCK=block)
        started(out)
        assert not out.isnan().any(), (
            f"rows {out.isnan().any(1).nonzero().flatten().tolist()} of {n_rows} hold NaN; the largest number of all is {x.max():.0f}"
        )
        sums = out.double().sum(1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5), (
            f"each row must add to 1, yours add to {sums.tolist()[:4]}: over which axis do you take maximum and sum?"
        )
        assert torch.allclose(out.double(), softmax_reference(x), rtol=1e-4, atol=1e-7), "right sums, wrong values"


@exercise("04_softmax.2")
def _(merge):
    if merge(0.0, 1.0, 1.0, 2.0) is ...:
        raise NotStarted
    for left, right in (([1.0, 2.0], [3.0]), ([3.0, 0.5], [1.0, -2.0]), ([1000.0], [-1000.0, 5.0]), ([2.0], [2.0, 2.0])):
        parts = [(max(part), sum(math.exp(v - max(part)) for v in part)) for part in (left, right)]
        whole = left + right
        expected = (max(whole), sum(math.exp(v - max(whole)) for v in whole))
        for first, second in (parts, parts[::-1]):
            got = merge(*first, *second)
            assert isinstance(got, tuple) and len(got) == 2, f"return (maximum, sum), got {got!r}"
            assert math.isclose(got[0], expected[0]), f"{left} and {right}: maximum {got[0]}, expected {expected[0]}"
            assert math.isclose(got[1], expected[1], rel_tol=1e-9), (
                f"{left} and {right}: sum {got[1]:.6g}, expected {expected[1]:.6g}; which of the two sums must shrink?"
            )
