"""Experiments of lesson 03: GELU against a plain copy, torch and torch.compile, over n; and the price of a mask."""

import functools

import torch
import triton

from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.gelu import BLOCK, NUM_WARPS, gelu, gelu_flops, gelu_kernel, gelu_reference, gelu_traffic_bytes


def gelu_masked(x):
    """The lesson's first kernel: every program loads and stores under a mask."""
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK, num_warps=NUM_WARPS)
    return y


def gelu_torch(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


@functools.cache
def _compiled():
    return torch.compile(gelu_torch, dynamic=False)


def gelu_torch_compile(x):
    return _compiled()(x)


def copy(x):
    """What any elementwise operation costs at least: read everything, write everything."""
    return x.clone()


VARIANTS = {
    "copy": copy,
    "gelu": gelu,
    "gelu, always masked": gelu_masked,
    "torch": gelu_torch,
    "torch.compile": gelu_torch_compile,
}


def _prepare(variant, n: int) -> Run:
    x = torch.randn(n, device="cuda") * 3

    def check(out):
        part = slice(max(0, n - (1 << 20)), n)  # the tail, where masks matter, and ...
        for where in (part, slice(0, 1 << 20)):
            expected = x[where].double() if variant is copy else gelu_reference(x[where])
            torch.testing.assert_close(out[where].double(), expected, rtol=1e-5, atol=1e-6)
        assert not torch.isnan(out).any(), "some elements were never written"

    return Run(lambda: variant(x), check, gelu_traffic_bytes(n), 0 if variant is copy else gelu_flops(n))


@experiment(lesson="03_gelu", title="GELU over n", variants=VARIANTS, cases=product(n=[2**k for k in range(12, 29, 2)]))
def gelu_sizes(variant, n):
    return _prepare(variant, n)


@experiment(lesson="03_gelu", title="What an odd length costs", variants=VARIANTS,
            cases=product(n=[2**28, 2**28 - 3]))
def gelu_odd_length(variant, n):
    return _prepare(variant, n)
