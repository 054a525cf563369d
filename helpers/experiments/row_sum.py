"""Experiments of lesson 05: num_warps for two shapes of 340 MiB, plain and split over row counts, orders of adding."""

import numpy as np
import torch

from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.row_sum import (
    row_sum,
    row_sum_flops,
    row_sum_one_program,
    row_sum_reference,
    row_sum_split,
    row_sum_traffic_bytes,
)

NUM_WARPS = [1, 2, 4, 8, 16, 32]
LONG, SHORT = 524_288, 8192  # columns; LONG = 64 x SHORT


def row_sum_torch(x):
    return x.sum(dim=-1)


def _prepare(call, rows: int, cols: int) -> Run:
    x = torch.randn(rows, cols, device="cuda")

    def check(out):
        expected = row_sum_reference(x)
        # a sum of n normal numbers is about sqrt(n); float32 partial sums are good to a few 1e-7 of the numbers' sum
        torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5 * cols**0.5)

    return Run(lambda: call(x), check, row_sum_traffic_bytes(rows, cols), row_sum_flops(rows, cols))


def _two_shapes(gpu):
    """The article's 170 and 10880 rows, in proportion: one row an SM, and 64."""
    return [{"rows": rows, "cols": cols, "num_warps": w} for rows, cols in ((gpu.sm_count, LONG),
            (64 * gpu.sm_count, SHORT)) for w in NUM_WARPS]


@experiment(lesson="05_row_sum", title="num_warps at four values a thread and step",
            variants={"row_sum": row_sum_one_program}, cases=_two_shapes)
def row_sum_num_warps(variant, rows, cols, num_warps):
    """`variant(x, num_warps, tile)` with one program a row and TILE = 128 num_warps."""
    return _prepare(lambda x: variant(x, num_warps, 128 * num_warps), rows, cols)


def _row_counts(gpu):
    """The same number of elements in fewer and fewer rows."""
    sms, total = gpu.sm_count, 64 * gpu.sm_count * SHORT
    return [{"rows": rows, "cols": total // rows} for rows in (1, 4, 16, 64, sms, 2 * sms, 4 * sms, 16 * sms, 64 * sms)]


@experiment(lesson="05_row_sum", title="The same elements in fewer rows",
            variants={"one program a row": row_sum_one_program, "row_sum": row_sum, "torch": row_sum_torch},
            cases=_row_counts)
def row_sum_rows(variant, rows, cols):
    return _prepare(variant, rows, cols)


def running_sum(x):
    """One sum, element after element, in x's own dtype: what the simplest loop does."""
    dtype = {torch.float32: np.float32, torch.float16: np.float16}[x.dtype]
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.cumsum(x.cpu().numpy(), axis=1, dtype=dtype)[:, -1].copy())


@experiment(lesson="05_row_sum", title="Error of orders of adding",
            variants={"one running sum": running_sum, "1024 partial sums": row_sum_one_program,
                      "parts of rows": row_sum_split, "torch": row_sum_torch},
            cases=product(n=[2**k for k in range(8, 23, 2)], dtype=["float32", "float16"]))
def row_sum_accuracy(variant, n, dtype):
    """Relative error of the sum of n numbers from 0 to 1, worst of 8 rows. Nothing is timed."""
    if dtype == "float16" and n > 2**16:
        return None  # the sum itself passes float16's largest number, 65504

    def values():
        # one set of numbers on every device, rounded to the dtype before the exact sum is taken
        x = torch.rand(8, n, generator=torch.Generator().manual_seed(n)).to(getattr(torch, dtype)).to("cuda")
        expected = row_sum_reference(x).cpu()
        return {"relative_error": float(((variant(x).cpu().double() - expected) / expected).abs().max())}

    return Run(None, None, values=values)
