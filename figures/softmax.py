"""Figures of lesson 04: traffic of five operations and of one (Fig 2-2), times, num_warps, the running maximum."""

import numpy as np

from figures.style import MARKERS, ROLE, SERIES, Picture, limit_line, new
from helpers.evidence import simulated


# ---------------------------------------------------------------- Fig 2-2: traffic
def draw_traffic(ax, operations, fused_elements: int, itemsize: int = 4):
    """Bars of megabytes read and written by each operation (dicts operation, reads, writes), and by one kernel."""
    rows = [*operations, {"operation": "one kernel", "reads": fused_elements / 2, "writes": fused_elements / 2}]
    places = [*range(len(operations)), len(operations) + 0.5]
    for y, row in zip(places, rows, strict=True):
        reads, writes = (row[k] * itemsize / 1e6 for k in ("reads", "writes"))
        ax.barh(y, reads, 0.62, color=ROLE["memory"], label="read" if y == 0 else None)
        ax.barh(y, writes, 0.62, left=reads, color=ROLE["accent"], hatch="///", edgecolor="white", linewidth=0,
                label="written" if y == 0 else None)
        ax.annotate(f"{reads + writes:.1f}", (reads + writes, y), xytext=(4, 0), textcoords="offset points",
                    va="center", fontsize=8.5)
    ax.axhline(len(operations) - 0.25, color=ROLE["muted"], linewidth=0.8)
    ax.set_yticks(places, [row["operation"] for row in rows], family="DejaVu Sans Mono", fontsize=8.5)
    ax.set(xlabel="device-memory traffic asked for (MB)", xlim=(0, 2.5 * rows[0]["reads"] * itemsize / 1e6))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper right", ncols=2, bbox_to_anchor=(1, 1.03))
    return ax


def _totals(operations, fused_elements, itemsize):
    eager = sum(op["reads"] + op["writes"] for op in operations) * itemsize / 1e6
    return eager, fused_elements * itemsize / 1e6


def traffic_alt(operations, fused_elements: int, itemsize: int = 4) -> str:
    eager, fused = _totals(operations, fused_elements, itemsize)
    return (f"Traffic of softmax: five separate operations read and write {eager:.1f} MB, "
            f"one kernel that keeps the row on chip {fused:.1f} MB, {eager / fused:.2f} times less.")


def show_traffic(operations, fused_elements: int, itemsize: int = 4, evidence="") -> Picture:
    fig, ax = new(7.2, 3.3)
    draw_traffic(ax, operations, fused_elements, itemsize)
    eager, fused = _totals(operations, fused_elements, itemsize)
    ax.set_title(f"Five operations ask for {eager:.0f} MB, one kernel for {fused:.0f} MB")
    return Picture(fig, traffic_alt(operations, fused_elements, itemsize), evidence)


# ---------------------------------------------------------------- versions at one size
def draw_times(ax, data, peak_gb_per_s: float | None, ours: str = "softmax"):
    """One bar a variant, in microseconds; a line where the least traffic takes the datasheet's bandwidth."""
    data = data.sort_values("time_us", ascending=False)
    for i, row in enumerate(data.itertuples()):
        ax.barh(i, row.time_us, 0.62, color=ROLE["measured"] if row.variant == ours else ROLE["muted"])
        ax.plot([row.time_us_p20, row.time_us_p80], [i, i], color="#333333", linewidth=1.2)
        ax.annotate(f"{row.time_us:.1f}", (row.time_us_p80, i), xytext=(5, 0), textcoords="offset points",
                    va="center", fontsize=9)
    ax.set_yticks(range(len(data)), data["variant"])
    ax.set_ylim(-0.6, len(data) - 0.1)
    ax.set(xlabel="time (µs), median; the dark line spans 20th to 80th percentile")
    ax.set_xlim(0, 1.12 * data["time_us_p80"].max())
    ax.grid(axis="y", visible=False)
    if peak_gb_per_s:
        floor_us = data["traffic_bytes"].min() / peak_gb_per_s / 1e3
        limit_line(ax, floor_us, f"2MN at the datasheet's rate: {floor_us:.1f}", axis="x")
    return ax


def times_alt(data, ours: str = "softmax") -> str:
    t = data.set_index("variant")["time_us"]
    others = ", ".join(f"{name} {value:.1f}" for name, value in t.items() if name != ours)
    return f"Times in µs: {ours} {t[ours]:.1f}; {others}."


def show_times(data, peak_gb_per_s: float | None = None, evidence="") -> Picture:
    fig, ax = new(7.2, 2.9)
    draw_times(ax, data, peak_gb_per_s)
    t = data.set_index("variant")["time_us"]
    ax.set_title(f"One kernel instead of five operations: {t['eager'] / t['softmax']:.1f} times faster")
    return Picture(fig, times_alt(data), evidence)


# ---------------------------------------------------------------- over sizes
def draw_sizes(ax, data, peak_gb_per_s: float | None):
    """Bandwidth over the length of a row, one line a variant; the datasheet's rate as a line."""
    colours = {"softmax": ROLE["measured"], "eager": ROLE["limit"], "copy": ROLE["muted"]}
    others = iter([SERIES[1], SERIES[2], SERIES[4], SERIES[3]])
    for marker, (variant, rows) in zip(MARKERS, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("cols")
        ax.plot(rows["cols"], rows["bandwidth_gb_per_s"], marker=marker, label=variant,
                color=colours.get(variant) or next(others), zorder=3 if variant == "softmax" else 2)
    ax.set_xscale("log", base=2)
    top = max(peak_gb_per_s or 0, data["bandwidth_gb_per_s"].max())
    ax.set(xlabel="columns N (fp32)", ylabel="2MN bytes / time (GB/s)", ylim=(0, 1.45 * top))
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.legend(loc="upper center", ncols=4, columnspacing=1.2, handletextpad=0.4)
    return ax


def sizes_alt(data) -> str:
    parts = [f"{variant} {rows['bandwidth_gb_per_s'].min():,.0f} to {rows['bandwidth_gb_per_s'].max():,.0f}"
             for variant, rows in data.groupby("variant", sort=False)]
    return (f"Effective bandwidth in GB/s over rows of {data['cols'].min()} to {data['cols'].max()} columns: "
            f"{', '.join(parts)}.")


def show_sizes(data, peak_gb_per_s=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.8)
    draw_sizes(ax, data, peak_gb_per_s)
    wide = data.pivot(index="cols", columns="variant", values="time_us")
    ratio = (wide["torch"] / wide["softmax"]).dropna()
    ax.set_title(f"torch takes {ratio.min():.2f} to {ratio.max():.2f} times as long as softmax")
    return Picture(fig, sizes_alt(data), evidence)


# ---------------------------------------------------------------- num_warps
def draw_registers(ax, compiled, target: str = ""):
    """Registers and spill bytes a thread over num_warps; `compiled` has num_warps, registers, spill_bytes."""
    x = range(len(compiled))
    ax.bar(x, compiled["registers"], 0.55, color=ROLE["muted"])
    limit_line(ax, 255, "limit: 255")
    for i, row in enumerate(compiled.itertuples()):
        ax.annotate(f"{row.registers}", (i, row.registers), xytext=(0, -3), textcoords="offset points", ha="center",
                    va="top", fontsize=8.5)
        spilled = f"{row.spill_bytes:,} B\nspilled" if row.spill_bytes else "no\nspill"
        ax.annotate(spilled, (i, 325), ha="center", va="center", fontsize=8,
                    color=ROLE["compute"] if row.spill_bytes else ROLE["limit"])
    ax.set_xticks(x, compiled["num_warps"])
    ax.set(ylabel=f"registers a thread{target and ', ' + target}", ylim=(0, 380), yticks=[0, 64, 128, 192, 255], xlabel="num_warps")
    ax.grid(axis="x", visible=False)
    return ax


def draw_warp_times(ax, data, published=()):
    """Time over num_warps; `published` is (num_warps, time_us, machine) points of another GPU."""
    order = list(data["num_warps"])
    ax.plot(range(len(order)), data["time_us"], marker="o", color=ROLE["measured"], label=data["machine"].iloc[0])
    for i, time_us in enumerate(data["time_us"]):
        ax.annotate(f"{time_us:.0f}", (i, time_us), xytext=(4, 6), textcoords="offset points", fontsize=8.5)
    top = data["time_us"].max()
    for i, (warps, time_us, machine) in enumerate(published):
        ax.plot(order.index(warps), time_us, marker="D", linestyle="", color=ROLE["published"], zorder=3,
                label=f"published, {machine}" if i == 0 else None)
        ax.annotate(f"{time_us:.0f}", (order.index(warps), time_us), xytext=(8, 4), textcoords="offset points",
                    fontsize=8.5, color=ROLE["published"])
        top = max(top, time_us)
    ax.legend(loc="upper right")
    ax.set_xticks(range(len(order)), order)
    ax.set(ylabel="time (µs)", xlabel="num_warps", ylim=(0, 1.2 * top), xlim=(-0.5, len(order) - 0.5))
    return ax


def num_warps_alt(compiled, data=None) -> str:
    parts = [f"{r.num_warps}: {r.registers} registers, {r.spill_bytes} bytes spilled" for r in compiled.itertuples()]
    text = f"Registers and spilled bytes a thread by num_warps: {'; '.join(parts)}."
    if data is not None:
        text += " Times in µs: " + ", ".join(f"{r.num_warps}: {r.time_us:.0f}" for r in data.itertuples()) + "."
    return text


def show_num_warps(compiled, data=None, published=(), evidence="", target="") -> Picture:
    """Registers and spills for a target, beside the times where there are any."""
    clean = compiled.loc[compiled["spill_bytes"] == 0, "num_warps"].min()
    title = f"From {clean} warps on, the row fits in registers"
    if data is None:
        fig, ax = new(7.2, 3.2)
        draw_registers(ax, compiled, target)
        ax.set_title(title)
    else:
        fig, (left, right) = new(8.4, 3.4, 1, 2)
        draw_registers(left, compiled, target)
        draw_warp_times(right, data, published)
        left.set_title(title)
        best = data.loc[data["time_us"].idxmin()]
        right.set_title(f"Fastest: {best['num_warps']:.0f} warps, {best['time_us']:.0f} µs")
    return Picture(fig, num_warps_alt(compiled, data), evidence)


# ---------------------------------------------------------------- the running maximum
PATTERNS = {
    "random": lambda n: np.random.default_rng(4).normal(0, 2, n),
    "rising": lambda n: np.linspace(-6, 6, n),
    "falling": lambda n: np.linspace(6, -6, n),
    "late spike": lambda n: np.where(np.arange(n) == n - 3, 7.0, np.random.default_rng(4).normal(0, 1, n)),
    "masked start": lambda n: np.where(np.arange(n) < n // 3, -np.inf, np.random.default_rng(4).normal(0, 2, n)),
}
RUNNING_CONTROLS = {"pattern": list(PATTERNS), "tile": [4, 8, 16, 32, 64]}


def online_steps(x, tile: int) -> list[dict]:
    """Maximum and sum of exp(x - maximum) after each tile, and the factor by which the old sum was corrected."""
    steps, maximum, total = [], -np.inf, 0.0
    for start in range(0, len(x), tile):
        part = x[start:start + tile]
        new_max = max(maximum, part.max())
        shift = 0.0 if new_max == -np.inf else new_max
        correction = float(np.exp(maximum - shift))
        total = total * correction + float(np.exp(part - shift).sum())
        maximum = new_max
        steps.append({"end": start + len(part), "max": float(maximum), "sum": total, "correction": correction})
    return steps


def draw_running(axes, x, tile: int):
    """Above: the row and its running maximum. Below: the running sum, and where it had to be corrected."""
    above, below = axes
    steps = online_steps(x, tile)
    finite = np.isfinite(x)
    above.plot(np.flatnonzero(finite), x[finite], linestyle="", marker=".", color=ROLE["muted"])
    ends = [0, *(s["end"] for s in steps)]
    for start, step in zip(ends, steps, strict=False):
        if np.isfinite(step["max"]):
            above.plot([start, step["end"]], [step["max"]] * 2, color=ROLE["compute"], linewidth=2)
    for axis in axes:
        for end in ends[1:-1]:
            axis.axvline(end, color=ROLE["muted"], linewidth=0.5)
    below.bar([(a + s["end"]) / 2 for a, s in zip(ends, steps, strict=False)], [s["sum"] for s in steps], tile * 0.7,
              color=[ROLE["accent"] if 0 < s["correction"] < 1 else ROLE["memory"] for s in steps])
    top = max(s["sum"] for s in steps)
    free_from = 0.0  # labels may be wider than bars: where the next one would reach into the last, it is left out
    for i, s in enumerate(steps):
        middle, label_width = (ends[i] + s["end"]) / 2, 0.08 * len(x)
        if 0 < s["correction"] < 1 and middle - label_width / 2 >= free_from:
            around = max(step["sum"] for step in steps[max(0, i - 1):i + 2])
            below.annotate(f"× {s['correction']:.2g}", (middle, around), xytext=(0, 3), textcoords="offset points",
                           ha="center", fontsize=7.5)
            free_from = middle + label_width / 2
    above.set(ylabel="value, maximum", xlim=(0, len(x)))
    below.set(ylabel="running sum", xlabel="column", ylim=(0, 1.25 * top))
    return steps


def explore_running(pattern: str, tile: int) -> Picture:
    """A row of 128 values met in tiles: the running maximum, and the sums that were corrected (orange)."""
    x = PATTERNS[pattern](128)
    fig, axes = new(7.2, 4.2, 2, 1, sharex=True)
    steps = draw_running(axes, x, tile)
    exact = np.exp(x - x.max()).sum()
    corrected = sum(0 < s["correction"] < 1 for s in steps)
    count = "1 correction" if corrected == 1 else f"{corrected} corrections"
    axes[0].set_title(f"{len(steps)} tiles, {count}; the sum ends at {steps[-1]['sum']:.4g}, exactly {exact:.4g}")
    alt = (f"A {pattern} row of 128 values in tiles of {tile}: after {len(steps)} tiles the running maximum is "
           f"{steps[-1]['max']:.3g} and the sum {steps[-1]['sum']:.4g} (exactly {exact:.4g}), after {count}.")
    return Picture(fig, alt, simulated("the algorithm of online_softmax in float64"))
