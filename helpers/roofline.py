"""How fast an operation can be: what the roofline says, where the course's kernels stand on it, and how the gap grew."""

import math
from dataclasses import dataclass

import numpy as np

from helpers.kernels.fma_chain import fma_chain_flops, fma_chain_traffic_bytes
from helpers.kernels.gelu import gelu_flops, gelu_traffic_bytes
from helpers.kernels.matmul import matmul_flops, matmul_traffic_bytes
from helpers.kernels.row_sum import row_sum_flops, row_sum_traffic_bytes
from helpers.kernels.softmax import softmax_flops, softmax_traffic_bytes
from helpers.specs import Gpu


@dataclass(frozen=True)
class Operation:
    """FLOPs and least device-memory bytes of one call; `intensity` is their quotient in FLOP/B."""

    name: str
    lesson: str
    flops: int
    traffic_bytes: int

    @property
    def intensity(self) -> float:
        return self.flops / self.traffic_bytes


def operations() -> list[Operation]:
    """The course's kernels in float32, at the sizes that their lessons measure, by rising intensity."""
    n, rows, cols = 2**26, 4096, 4096
    found = [
        Operation("vector add", "08", n, 12 * n),
        Operation("row sum", "05", row_sum_flops(rows, cols), row_sum_traffic_bytes(rows, cols)),
        Operation("softmax", "04", softmax_flops(rows, cols), softmax_traffic_bytes(rows, cols)),
        Operation("GELU", "03", gelu_flops(n), gelu_traffic_bytes(n)),
        Operation("FMA chain, 64", "07", fma_chain_flops(n, 64), fma_chain_traffic_bytes(n)),
        Operation("FMA chain, 512", "07", fma_chain_flops(n, 512), fma_chain_traffic_bytes(n)),
        Operation("matmul, 4096", "06", matmul_flops(rows, rows, rows), matmul_traffic_bytes(rows, rows, rows)),
    ]
    return sorted(found, key=lambda operation: operation.intensity)


def attainable_tflops(gpu: Gpu, intensity: float, precision: str = "fp32") -> float:
    """min(peak, intensity x bandwidth) in TFLOPS. Raises ValueError if the intensity is not positive and finite, or
    where peak or bandwidth are not known."""
    if not (math.isfinite(intensity) and intensity > 0):
        raise ValueError(f"intensity must be a positive number of FLOP/B, got {intensity}")
    ridge = gpu.ridge(precision)
    if ridge is None:
        raise ValueError(f"{gpu.name}: its {precision} peak or its bandwidth is not known")
    return min(getattr(gpu, f"{precision}_tflops"), intensity * gpu.bandwidth_gb_per_s / 1e3)


def growth(points, years: float = 2) -> float:
    """Factor by which a series grows in `years`: the straight line through log(normalised) over year that fits best.

    `points` has columns year and normalised; a factor of 3 per two years is 3^10 = 59,049 in twenty.
    """
    slope, _ = np.polyfit(points["year"], np.log10(points["normalised"]), 1)
    return float(10 ** (slope * years))


def fitted(points, years) -> np.ndarray:
    """The fitted line of `growth`, at the given years."""
    return 10 ** np.polyval(np.polyfit(points["year"], np.log10(points["normalised"]), 1), years)
