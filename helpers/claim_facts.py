"""Facts that claims may use beyond recordings and specs, computed from the same sources as the lessons.

A lesson that claims something about compiled code or about occupancy adds its function here.
"""

from helpers.compile import compile_kernel
from helpers.kernels.gelu import gelu_traffic_bytes
from helpers.systolic import SystolicArray


def gelu_counts(n: int, target: str = "sm_120") -> dict[str, int]:
    """Global loads and stores of the masked GELU kernel at BLOCK = 1024 and 4 warps, compiled for n elements."""
    import torch

    from helpers.kernels.gelu import gelu_kernel

    x = torch.empty(n, device="meta")
    compiled = compile_kernel(gelu_kernel, x, x, n, target=target, num_warps=4, BLOCK=1024)
    return {"loads": compiled.count("ld.global"), "stores": compiled.count("st.global")}


def systolic(m: int, k: int = 128, n: int = 128, **options):
    """The run of x (m, k) @ w (k, n) on a systolic array of 128 x 128 cells."""
    import numpy as np

    return SystolicArray(128, 128).run(np.ones((m, k), int), np.ones((k, n), int), **options)


FACTS = {
    "compile_kernel": compile_kernel,
    "gelu_counts": gelu_counts,
    "gelu_traffic_bytes": gelu_traffic_bytes,
    "systolic": systolic,
}
