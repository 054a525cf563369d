"""From raw samples to a row: median and spread, rates, and what is doubtful about them."""

import math
import statistics
from dataclasses import dataclass

RESOLUTION_US = 0.5  # what CUDA events resolve; a shorter time is not a measurement
UNSTABLE_SPREAD = 0.10  # (p80 - p20) / median from which a row is flagged


@dataclass(frozen=True)
class Timing:
    """Times of one call in microseconds: median, 20th and 80th percentile, all samples, and what is doubtful."""

    median: float
    p20: float
    p80: float
    samples: tuple[float, ...]
    flags: tuple[str, ...] = ()


def summarise(samples_us) -> Timing:
    """Median and spread of times in microseconds. Raises ValueError for no samples, or any not positive and finite."""
    samples = tuple(float(s) for s in samples_us)
    if not samples:
        raise ValueError("no samples to summarise: the call was never timed")
    wrong = [s for s in samples if not (math.isfinite(s) and s >= 0)]
    if wrong:
        raise ValueError(f"times must be finite and not negative, got {wrong[0]}")
    median = statistics.median(samples)
    if len(samples) == 1:
        p20 = p80 = median
    else:
        fifths = statistics.quantiles(samples, n=5, method="inclusive")
        p20, p80 = fifths[0], fifths[3]
    flags = []
    if median < RESOLUTION_US:
        flags.append("below resolution")
    elif p80 - p20 > UNSTABLE_SPREAD * median:
        flags.append("unstable")
    return Timing(median, p20, p80, samples, tuple(flags))


def bandwidth_gb_per_s(traffic_bytes: float, time_us: float) -> float | None:
    """Rate in GB/s (1e9 bytes a second), or None below the clock's resolution of 0.5 us. Never infinite or NaN.

    Raises ValueError for negative bytes or a negative time.
    """
    return _rate(traffic_bytes, time_us, 1e3)


def tflops(flops: float, time_us: float) -> float | None:
    """Rate in TFLOPS (1e12 operations a second), or None below the clock's resolution; see `bandwidth_gb_per_s`."""
    return _rate(flops, time_us, 1e6)


def _rate(amount: float, time_us: float, scale: float) -> float | None:
    if amount is None or not math.isfinite(amount) or amount < 0:
        raise ValueError(f"amount must be finite and not negative, got {amount}")
    if time_us is not None and time_us < 0:
        raise ValueError(f"time_us must not be negative, got {time_us}")
    if time_us is None or not math.isfinite(time_us) or time_us < RESOLUTION_US:
        return None
    rate = float(amount / time_us / scale)
    return rate if math.isfinite(rate) else float(amount / scale / time_us)


MEASURED = ("time_us", "time_us_p20", "time_us_p80", "samples", "traffic_bytes", "flops", "bandwidth_gb_per_s", "tflops", "flags")
NOT_TIMED = dict.fromkeys(MEASURED) | {"flags": ""}  # a row whose values come from elsewhere than the clock


def row_of(samples_us, traffic_bytes, flops, spec, flags=()) -> dict:
    """The measured columns of one row. A rate above the datasheet's is not device memory's: it is flagged.

    Raises AssertionError if the time is shorter than the FLOPs allow at the chip's highest peak.
    """
    timing = summarise(samples_us)
    flags = [*timing.flags, *flags]
    bandwidth = bandwidth_gb_per_s(traffic_bytes, timing.median) if traffic_bytes else None
    rate = tflops(flops, timing.median) if flops else None
    if bandwidth and spec.bandwidth_gb_per_s and bandwidth > spec.bandwidth_gb_per_s:
        flags.append("from cache")
    peaks = [p for p in (spec.fp32_tflops, spec.tf32_tflops, spec.bf16_tflops, spec.fp16_tflops) if p]
    if rate and peaks and rate > max(peaks):
        raise AssertionError(f"{rate:.0f} TFLOPS is above the chip's peak of {max(peaks):.0f}: the work was not done")
    return {
        "time_us": round(timing.median, 3),
        "time_us_p20": round(timing.p20, 3),
        "time_us_p80": round(timing.p80, 3),
        "samples": list(timing.samples),
        "traffic_bytes": traffic_bytes,
        "flops": flops,
        "bandwidth_gb_per_s": bandwidth,
        "tflops": rate,
        "flags": ", ".join(flags),
    }
