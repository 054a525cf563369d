"""Tests of the exercises of lesson 06."""

import torch
import triton

from helpers.lesson.exercise import NotStarted, exercise, started
from helpers.mode import device


@exercise("06_matmul.1")
def _(kernel):
    for m, n, k in ((1, 1, 1), (20, 33, 16), (32, 64, 40)):
        a, b = torch.randn(m, k, device=device()), torch.randn(k, n, device=device())
        bias = torch.randn(n, device=device()) * 3
        c = torch.full((m, n), float("nan"), device=device())
        grid = (triton.cdiv(m, 16), triton.cdiv(n, 32))
        kernel[grid](a, b, bias, c, m, n, k, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16)
        started(c)
        product = a.double() @ b.double()
        expected = torch.relu(product + bias.double())
        assert not c.isnan().any(), f"some of the {m} × {n} elements were not written"
        if torch.allclose(c.double(), expected, atol=1e-4):
            continue
        # Only an answer that is wrong can show this mistake: where product and bias are positive the two orders agree.
        after = torch.allclose(c.double(), torch.relu(product) + bias.double(), atol=1e-4)
        hint = "the bias was added after the ReLU; it belongs before" if after else (
            f"largest error {(c.double() - expected).abs().max():.3g}")
        raise AssertionError(f"{m} × {k} by {k} × {n}: {hint}")


@exercise("06_matmul.2")
def _(intensity):
    if intensity(64, 64, 32) is ...:
        raise NotStarted
    for bm, bn, bk, expected in ((64, 64, 32, 16.0), (64, 128, 16, 64 / 3), (1, 1, 32, 0.25), (128, 256, 64, 128 / 3)):
        answer = intensity(bm, bn, bk)
        assert abs(answer - expected) < 1e-9, (
            f"a {bm} × {bn} tile does {2 * bm * bn * bk} FLOPs a step and loads {(bm + bn) * bk} numbers of 4 bytes: "
            f"{expected:.4g} FLOP/B, you say {answer:.4g}"
        )


@exercise("06_matmul.3")
def _(strips):
    if strips(32, 4, 16) is ...:
        raise NotStarted
    for at_work, group, tile_cols in ((32, 4, 16), (32, 8, 16), (16, 1, 16), (64, 8, 32)):
        seen = {(i % (group * tile_cols) % group, i % (group * tile_cols) // group) for i in range(at_work)}
        expected = len({row for row, _ in seen}) + len({col for _, col in seen})
        answer = strips(at_work, group, tile_cols)
        assert answer == expected, (
            f"{at_work} programs in groups of {group} rows of tiles read {expected} strips of a and b, you say {answer}"
        )
