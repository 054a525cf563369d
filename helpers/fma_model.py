"""A prediction of Fig 2-5: a chain of k dependent FMAs an element, walked over by m warps on every SMSP.

It knows four numbers, each measured on its own and none fitted to the figure: the latency of an FMA, the latency of a
load from device memory, the rate of a copy, and how many instructions the loop has beside its FMAs. With them it plays
one SMSP: a warp waits for its load, then asks for one issue slot every `fma_latency` cycles; warps are served in a fixed
order, each with an equal share of the elements. All SMSPs do the same, since the programs spread evenly. Where they ask
for much of the bandwidth, loads take longer: latency / (1 - u^2) at a share u, an assumed shape.
"""

import functools
import numbers
import statistics
from dataclasses import dataclass

from helpers.specs import Gpu

STEPS = 24  # that each warp makes in the model: enough for the ends not to count


@dataclass(frozen=True)
class Variant:
    """`others`: instructions of one step beside its FMAs, counted in the SASS for sm_90 by tests/test_fma_model.py."""

    elements_per_thread: int
    early: bool  # the next load is on its way during the chain
    others: int


VARIANTS = {
    "plain loads": Variant(1, False, 10),
    "one element": Variant(1, True, 13),
    "four elements": Variant(4, True, 17),
    "four elements, plain loads": Variant(4, False, 11),
}


@dataclass(frozen=True)
class Machine:
    """Latencies in cycles; `lanes`: FP32 lanes of an SMSP, so that a warp's FMA takes 32 / lanes issue slots."""

    sm_count: int
    clock_mhz: float
    bandwidth_gb_per_s: float
    memory_latency: float
    fma_latency: float = 4
    lanes: int = 32
    smsps_per_sm: int = 4

    @property
    def peak_tflops(self) -> float:
        return 2 * self.sm_count * self.smsps_per_sm * self.lanes * self.clock_mhz * 1e-6


def machine_of(gpu: Gpu, memory_latency: float | None = None, bandwidth_gb_per_s: float | None = None,
               fma_latency: float = 4, clock_mhz: float | None = None) -> Machine:
    """The model's view of a GPU: published latency of device memory, datasheet bandwidth and clock where none are given.

    Raises ValueError where a number that the model needs is not known.
    """
    latency, bandwidth = memory_latency or gpu.latency_cycles["dram"], bandwidth_gb_per_s or gpu.bandwidth_gb_per_s
    clock = clock_mhz or gpu.boost_mhz
    needed = {"SM count": gpu.sm_count, "clock": clock, "bandwidth": bandwidth, "memory latency": latency,
              "FP32 lanes": gpu.limits.fp32_lanes_per_smsp}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise ValueError(f"{gpu.name}: the model needs {', '.join(missing)}, which nobody published")
    return Machine(gpu.sm_count, clock, bandwidth, latency, fma_latency, gpu.limits.fp32_lanes_per_smsp)


def measured_machine(gpu: Gpu, latencies, copies, fma) -> Machine:
    """The same from tables of measure("load_latency"), ("copy_bandwidth") and ("fma_latency"): the latency in the largest
    working set, the rate of the largest copy, and the FMA's latency in whole cycles. A GPU without a published clock has
    the one that it ran at: cycles over nanoseconds."""
    largest = latencies.loc[latencies["bytes"].idxmax()]
    bandwidth = copies[copies["bytes"] == copies["bytes"].max()]["bandwidth_gb_per_s"].max()
    clock = gpu.boost_mhz or 1e3 * float(largest["cycles"]) / float(largest["ns"])
    return machine_of(gpu, float(largest["cycles"]), float(bandwidth), round(float(fma["cycles"].median())), clock)


def warps_for_bandwidth(machine: Machine, elements_per_thread: int = 1) -> float:
    """Warps an SMSP whose loads, one each, together fill the memory: rate x latency by Little's law.

    Half of the chain's traffic is read; writes wait for nobody.
    """
    on_their_way = machine.bandwidth_gb_per_s / 2 * machine.memory_latency / machine.clock_mhz * 1e3  # bytes
    return on_their_way / (machine.sm_count * machine.smsps_per_sm * 32 * 4 * elements_per_thread)


@functools.cache
def fraction_of_peak(machine: Machine, k: int, warps: int, variant: str = "one element") -> float:
    """Predicted share of the FP32 peak with `warps` warps on each SMSP. Raises ValueError for an unknown variant, and
    for other than whole numbers of at least 1."""
    if variant not in VARIANTS:
        raise ValueError(f"the model knows {', '.join(VARIANTS)}, not {variant!r}")
    if not all(isinstance(n, numbers.Real) and n >= 1 and n % 1 == 0 for n in (k, warps)):
        raise ValueError(f"k and warps must be whole numbers of at least 1, got {k!r} and {warps!r}")
    warps = int(warps)
    elements = warps * STEPS * VARIANTS[variant].elements_per_thread * 32 * machine.smsps_per_sm * machine.sm_count

    def seconds(share: float) -> float:
        latency = machine.memory_latency / (1 - share**2)
        return _cycles(machine, VARIANTS[variant], k, warps, latency) / (machine.clock_mhz * 1e6)

    def used(time: float) -> float:
        """Share of the bandwidth: each element is read and written, 8 bytes."""
        return 8 * elements / time / (machine.bandwidth_gb_per_s * 1e9)

    least, time = 0.0, seconds(0)
    most = 0.999 if used(time) > 0.1 else 0.0  # a small share changes nothing; otherwise find the one that repeats
    while most - least > 0.01:
        share = (least + most) / 2
        time = seconds(share)
        least, most = (share, most) if used(time) > share else (least, share)
    return 2 * k * elements / time / (machine.peak_tflops * 1e12)


def _cycles(machine: Machine, variant: Variant, k: int, warps: int, latency: float) -> float:
    """Cycles that one SMSP needs until each of its warps has made STEPS steps."""
    fma = variant.elements_per_thread * 32 / machine.lanes  # issue slots of one link in all chains of a warp
    slots = k * fma + variant.others  # of a step
    alone = k * max(machine.fma_latency, fma) + variant.others  # cycles of a step if nobody else is there
    speed = slots / alone
    work, arrives = [0.0] * warps, [latency] * warps  # slots left in the chain; when the next element is there
    steps, now = [STEPS] * warps, 0.0
    while any(steps):
        free, running, waiting = 1.0, {}, []
        for warp in range(warps):  # in fixed order: the first ones get what they ask for
            if work[warp] > 0:
                running[warp] = min(speed, free)
                free -= running[warp]
            elif steps[warp]:
                waiting.append(arrives[warp])
        ends = [now + work[warp] / rate for warp, rate in running.items() if rate > 1e-9]
        then = max(now, min(ends + waiting))
        for warp, rate in running.items():
            work[warp] -= rate * (then - now)
            if work[warp] < 1e-6:
                work[warp] = 0.0
                steps[warp] -= 1
                if not variant.early:
                    arrives[warp] = then + latency
        now = then
        for warp in range(warps):
            if steps[warp] and work[warp] == 0 and arrives[warp] <= now:
                work[warp] = slots
                if variant.early:
                    arrives[warp] = now + latency
    return now


def predicted(table, machine: Machine):
    """The rows of `measure("fma_chain_warps")` that the model knows, with columns `measured`, `predicted`, `error`.

    `measured` and `predicted` are shares of the machine's FP32 peak, `error` is predicted / measured - 1.
    """
    rows = table[table["variant"].isin(list(VARIANTS))].copy()
    rows["measured"] = rows["tflops"] / machine.peak_tflops
    cases = zip(rows["k"], rows["warps_per_smsp"], rows["variant"], strict=True)
    rows["predicted"] = [fraction_of_peak(machine, int(k), int(m), variant) for k, m, variant in cases]
    rows["error"] = rows["predicted"] / rows["measured"] - 1
    return rows


def median_error(rows) -> float:
    """Median size of the errors of `predicted`, as a fraction."""
    return statistics.median(abs(rows["error"]))


def errors_by_line(rows) -> list[dict]:
    """Median size of the error of each line of Fig 2-5, a row a variant and a column a k."""
    return [{"variant": variant} | {f"k = {k}": f"{median_error(line):.0%}" for k, line in lines.groupby("k")}
            | {"all": f"{median_error(lines):.0%}"} for variant, lines in rows.groupby("variant", sort=False)]


def plateau(table, variant: str, k: int = 1, within: float = 0.05) -> int:
    """The fewest warps per SMSP from which on a line of Fig 2-5 stays within 5 % of its highest rate; on a line that
    falls by more at its end, the fewest that reach it."""
    rows = table[(table["variant"] == variant) & (table["k"] == k)]
    near = rows["bandwidth_gb_per_s"] >= (1 - within) * rows["bandwidth_gb_per_s"].max()
    low = rows[~near]["warps_per_smsp"]
    stays = rows[rows["warps_per_smsp"] > (low.max() if len(low) else 0)]
    return int((stays if len(stays) else rows[near])["warps_per_smsp"].min())
