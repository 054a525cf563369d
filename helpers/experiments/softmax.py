"""Experiments of lesson 04: softmax in five versions and a copy over sizes, and what num_warps does to a long row."""

import functools
import warnings

import torch

from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.softmax import (
    MAX_COLS,
    online_softmax,
    softmax,
    softmax_flops,
    softmax_naive,
    softmax_reference,
    softmax_traffic_bytes,
)


def softmax_torch(x):
    return torch.softmax(x, dim=-1)


@functools.cache
def _compiled():
    return torch.compile(softmax_torch, dynamic=False)


def softmax_torch_compile(x):
    with warnings.catch_warnings():  # Inductor tells how it splits a long row
        warnings.filterwarnings("ignore", message="(?s).*Online softmax is disabled")
        return _compiled()(x)


def copy(x):
    """What reading and writing every element costs at least."""
    return x.clone()


VERSIONS = {
    "copy": copy,
    "eager": softmax_naive,
    "softmax": softmax,
    "online_softmax": online_softmax,
    "torch": softmax_torch,
    "torch.compile": softmax_torch_compile,
}
SIZES = [
    *product(rows=[4096], cols=[256, 1024, 4096, 5000, 16384, 32768]),
    {"rows": 65536, "cols": 256},
    {"rows": 1024, "cols": 32768},
    {"rows": 1024, "cols": 131072},
    {"rows": 128, "cols": 2**20},
]


def _prepare(call, rows: int, cols: int) -> Run:
    x = torch.randn(rows, cols, device="cuda")

    def check(out):
        if call is copy:
            assert torch.equal(out, x)
            return
        some = slice(0, rows, max(1, rows // 256))  # in float64, all rows would take more memory than the experiment
        torch.testing.assert_close(out[some].double(), softmax_reference(x[some]), rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(out.sum(-1), torch.ones(rows, device="cuda"), rtol=0, atol=1e-4)

    return Run(lambda: call(x), check, softmax_traffic_bytes(rows, cols), softmax_flops(rows, cols))


@experiment(lesson="04_softmax", title="Softmax in five versions, and a copy", variants=VERSIONS, cases=SIZES)
def softmax_versions(variant, rows, cols):
    whole_row_at_once = variant is softmax or variant not in VERSIONS.values()  # a reader's version is taken for one
    if whole_row_at_once and cols > MAX_COLS:
        return None
    return _prepare(variant, rows, cols)


@experiment(lesson="04_softmax", title="num_warps for a row of 32768", variants={"softmax": softmax},
            cases=product(rows=[1024], cols=[32768], num_warps=[1, 2, 4, 8, 16, 32]))
def softmax_num_warps(variant, rows, cols, num_warps):
    """`variant(x, num_warps)`: 32768 / (32 num_warps) values of the row in each thread."""
    return _prepare(lambda x: variant(x, num_warps), rows, cols)
