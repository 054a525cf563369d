"""Experiments of lesson 08: when a launch returns, what a vector add reaches over n, and over the block size."""

import torch

from helpers import cuda
from helpers.cuda import program
from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels import vec_add as triton_twin
from helpers.kernels.vec_add import vec_add_flops, vec_add_reference, vec_add_traffic_bytes
from helpers.timeline import host_times_us

VARIANTS = {"CUDA": cuda.vec_add, "Triton": triton_twin.vec_add, "torch": torch.add}


def _prepare(call, n: int, values=None) -> Run:
    a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")

    def check(out):
        for part in (slice(0, 1 << 20), slice(max(0, n - (1 << 20)), n)):
            torch.testing.assert_close(out[part].double(), vec_add_reference(a[part], b[part]), rtol=1e-6, atol=1e-6)
        assert not out.isnan().any(), "some elements were never written"

    return Run(lambda: call(a, b), check, vec_add_traffic_bytes(n), vec_add_flops(n),
               values=None if values is None else lambda: values(lambda: call(a, b)))


@experiment(lesson="08_cuda_threads", title="c = a + b over n", variants=VARIANTS,
            cases=product(n=[2**k for k in range(12, 29, 2)]))
def vec_add_sizes(variant, n):
    return _prepare(variant, n)


@experiment(lesson="08_cuda_threads", title="A clock stopped too early", variants={"CUDA": cuda.vec_add},
            cases=product(n=[2**k for k in range(12, 29, 4)]))
def launch_clock(variant, n):
    """The host's clock after the call returned and after the GPU had finished, beside the time between events."""
    return _prepare(variant, n, host_times_us)


@experiment(lesson="08_cuda_threads", title="Threads a block", variants={"CUDA": cuda.vec_add},
            cases=product(n=[2**28], block=[32, 33, 64, 96, 128, 192, 256, 384, 512, 768, 1000, 1024]))
def vec_add_blocks(variant, n, block):
    """`variant(a, b, block=)`."""
    return _prepare(lambda a, b: variant(a, b, block=block), n)


@experiment(lesson="08_cuda_threads", title="The complete program", variants={"vec_add.cu": "vec_add.cu"}, cases=[{}])
def vec_add_program(variant):
    """What the program prints after nvcc has built it. Nothing is timed; applies where there is an nvcc."""
    return None if program.why_not() else Run(None, None, values=lambda: {"printed": program.build_and_run(variant)})
