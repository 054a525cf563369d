"""Tests of the exercises of lesson 05."""

import math

import torch

from helpers.lesson.exercise import NotStarted, exercise, started
from helpers.mode import device


@exercise("05_row_sum.1")
def _(kernel):
    for n_rows, n_cols in ((1, 1), (3, 255), (2, 256), (4, 1000)):
        x = torch.randn(n_rows, n_cols, device=device()) - 50  # all negative: a maximum that starts at 0 would show
        out = torch.full((n_rows,), float("nan"), device=device())
        kernel[(n_rows,)](x, out, n_cols, TILE=256)
        started(out)
        if (out == -math.inf).all():  # what the skeleton stores: no element was looked at
            raise NotStarted
        expected = x.amax(1)
        hint = ""
        if (out == 0).any():
            hint = "; what do the columns past the end contribute?"
        elif n_rows > 1 and (out == out[0]).all():
            hint = "; all rows give the same: where does `row` enter the address?"
        elif (out <= expected).all():
            hint = "; some columns were left out: does tl.maximum take partial and the tile, number by number?"
        assert torch.equal(out, expected), f"{n_rows} × {n_cols}: got {out.tolist()[:3]}, expected {expected.tolist()[:3]}{hint}"


@exercise("05_row_sum.2")
def _(warps_needed):
    if warps_needed(1792, 389, 170, 2048) is ...:
        raise NotStarted
    cases = ((1792, 389, 170, 2048), (4800, 348, 132, 2048), (2039, 330, 108, 512))
    for rate, latency_ns, sm_count, bytes_per_warp in cases:
        expected = math.ceil(rate * latency_ns / (sm_count * bytes_per_warp))
        answer = warps_needed(rate, latency_ns, sm_count, bytes_per_warp)
        assert answer == expected, (
            f"{rate} GB/s and {latency_ns} ns need {rate * latency_ns:,} bytes under way, {bytes_per_warp} a warp: "
            f"{expected} warps on each of {sm_count} SMs, you say {answer}"
        )
