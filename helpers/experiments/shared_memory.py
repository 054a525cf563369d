"""Experiments of lesson 10: the matmul ladder naive, tiled, Triton, cuBLAS; tile edges; one tile-deep products; what
caches answer; what a missing barrier does."""

import functools
import re

import torch

from helpers import cuda, nsight
from helpers.cuda.launch import CudaKernel
from helpers.cuda.nvrtc import FOLDER
from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.matmul import matmul_flops, matmul_relu, matmul_traffic_bytes

EDGES = {edge: CudaKernel("matmul.cu", "tiled_matmul", (f"-DTILE={edge}",)) for edge in (4, 8, 16, 32)}


def product_by(kernel: CudaKernel, a: torch.Tensor, b: torch.Tensor, edge: int = 32) -> torch.Tensor:
    """a (m, k) times b (k, n) by a kernel of matmul.cu whose blocks make edge x edge elements of the result."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, device=a.device)
    kernel.launch((-(-n // edge), -(-m // edge)), (edge, edge), a, b, out, m, n, k)
    return out


def tiled(a: torch.Tensor, b: torch.Tensor, edge: int) -> torch.Tensor:
    """`tiled_matmul` with tiles of edge x edge, edge**2 threads a block."""
    return product_by(EDGES[edge], a, b, edge)


a_tiled = functools.partial(product_by, CudaKernel("matmul.cu", "a_tiled_matmul"))


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
            variants={"naive": cuda.naive_matmul, "A in shared memory": a_tiled, "tiled": cuda.tiled_matmul},
            cases=product(n=[8192], k=[32]))
def thin_product(variant, n, k):
    """(n, 32) times (32, n), the shape of the Best Practices Guide's example: writing c is most of the traffic."""
    return _prepare(variant, n, k, n)


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


# ------------------------------------------------------------------------------------------------ caches and barriers

COUNTED = nsight.METRICS | {
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "device_memory_read_bytes": "dram__bytes_read.sum",
}
COUNTED_CASES = product(n=[128, 1024, 4096])
COUNTED_KERNELS = {"naive": cuda.NAIVE_MATMUL, "tiled": cuda.TILED_MATMUL}


@experiment(lesson="10_shared_memory", title="Reads that Nsight Compute counts", variants=COUNTED_KERNELS,
            cases=COUNTED_CASES)
def matmul_counts(variant, n):
    """Requests, sectors, hits in the caches and bytes from device memory of two products (n, n). Nothing is timed."""
    launches = [(kernel, (-(-c["n"] // 32),) * 2, (32, 32), (*[torch.empty(c["n"], c["n"], device="meta")] * 3, *[c["n"]] * 3))
                for kernel in COUNTED_KERNELS.values() for c in COUNTED_CASES]
    position = list(COUNTED_KERNELS.values()).index(variant) * len(COUNTED_CASES) + COUNTED_CASES.index({"n": n})
    return Run(None, None, values=lambda: nsight.count(launches, COUNTED)[position])


def tiled_without(barrier: str) -> CudaKernel:
    """`tiled_matmul` without the line whose comment holds these words; all of it for an empty string."""
    lines = (FOLDER / "matmul.cu").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not (barrier and "__syncthreads" in line and barrier in line)]
    return CudaKernel("\n".join(kept), "tiled_matmul")


BARRIERS = {"both barriers": "", "without the first": "no thread may read", "without the second": "no thread may overwrite"}


@experiment(lesson="10_shared_memory", title="What a missing barrier does", cases=product(n=[1024], runs=[200]),
            variants={name: functools.partial(product_by, tiled_without(words)) for name, words in BARRIERS.items()})
def missing_barriers(variant, n, runs):
    """One product made `runs` times: how many of them hold a wrong element, and most wrong elements in one of them."""

    def values():
        a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
        right = a.double() @ b.double()
        wrong = torch.stack([((variant(a, b).double() - right).abs() > 1e-2).sum() for _ in range(runs)])
        return {"wrong_runs": int((wrong > 0).sum()), "most_wrong_elements": int(wrong.max()), "elements": n * n}

    return Run(None, None, values=values)
