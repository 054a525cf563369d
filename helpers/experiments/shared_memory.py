"""Experiments of lesson 10: the matmul ladder naive, tiled, Triton, cuBLAS; tile edges; one tile-deep products."""

import functools
import re

import torch

from helpers import cuda
from helpers.cuda.launch import CudaKernel
from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.matmul import matmul_flops, matmul_relu, matmul_traffic_bytes

EDGES = {edge: CudaKernel("matmul.cu", "tiled_matmul", (f"-DTILE={edge}",)) for edge in (4, 8, 16, 32)}


def _prepare(call, m: int, k: int, n: int, relu: bool = False) -> Run:
    a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")

    def check(out):
        some = slice(0, m, max(1, m // 256))  # every tile row is met; all of c in float64 would take too long
        expected = a[some].double() @ b.double()
        error = (out[some].double() - (expected.relu() if relu else expected)).abs().max().item()
        assert error < 1e-4 * k**0.5, f"largest error {error:.3g}"
        assert torch.isfinite(out).all(), "some elements were never written"

    return Run(lambda: call(a, b), check, matmul_traffic_bytes(m, n, k), matmul_flops(m, n, k))


LADDER = {"naive": cuda.naive_matmul, "tiled": cuda.tiled_matmul, "Triton": matmul_relu, "cuBLAS": torch.matmul}


@experiment(lesson="10_shared_memory", title="The matmul ladder", variants=LADDER,
            cases=product(n=[1024, 2048, 4096]))
def cuda_matmul_ladder(variant, n):
    """Square products in float32; Triton's is lesson 06's, with its ReLU. Traffic is the least: each matrix once."""
    return _prepare(variant, n, n, n, relu=variant is matmul_relu)


@experiment(lesson="10_shared_memory", title="Products one tile deep",
            variants={"naive": cuda.naive_matmul, "tiled": cuda.tiled_matmul},
            cases=product(n=[8192], k=[32]))
def thin_product(variant, n, k):
    """(n, 32) times (32, n), the shape of the Best Practices Guide's example: writing c is most of the traffic."""
    return _prepare(variant, n, k, n)


def tiled(a: torch.Tensor, b: torch.Tensor, edge: int) -> torch.Tensor:
    """`tiled_matmul` with tiles of edge x edge, edge**2 threads a block."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, device=a.device)
    EDGES[edge].launch((-(-n // edge), -(-m // edge)), (edge, edge), a, b, out, m, n, k)
    return out


@experiment(lesson="10_shared_memory", title="Edge of the tile", variants={"tiled": tiled},
            cases=product(n=[4096], edge=list(EDGES)))
def tile_edges(variant, n, edge):
    """`variant(a, b, edge=)`."""
    return _prepare(functools.partial(variant, edge=edge), n, n, n)


@experiment(lesson="10_shared_memory", title="What torch.compile writes", cases=[{}],
            variants={"softmax": functools.partial(torch.softmax, dim=1)})
def inductor_source(variant):
    """The Triton kernels that TorchInductor generates for a (4096, 4096) input. Nothing is timed."""

    def values():
        from torch._inductor.utils import run_and_get_code  # torch offers no public way to the generated code

        torch.compiler.reset()
        _, written = run_and_get_code(torch.compile(variant), torch.randn(4096, 4096, device="cuda"))
        kernels = re.findall(r"^@triton\.jit\n.*?(?=^''')", written[0], flags=re.M | re.S)
        assert kernels, "no Triton kernel in the generated code"
        return {"source": "\n".join(kernels)}

    return Run(None, None, values=values)
