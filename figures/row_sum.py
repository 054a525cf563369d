"""Figures of lesson 05: partial sums (Fig 2-3), num_warps in two shapes, bytes in flight, row counts, accuracy."""

import math

import numpy as np

from figures.style import MARKERS, ROLE, SERIES, Picture, arrow, box, diagram, limit_line, new
from helpers.evidence import simulated
from helpers.occupancy import occupancy
from helpers.specs import gpu, latencies

NUM_WARPS = [1, 2, 4, 8, 16, 32]


# ---------------------------------------------------------------- Fig 2-3: partial sums
def draw_partial_sums(ax, tiles: int, tile: int, parts: int = 1):
    """A row of `tiles` tiles of `tile` columns, added place by place; then each part's places, then the parts."""
    diagram(ax, 100, 46)
    per_part = math.ceil(tiles / parts)
    width = 94 / tiles
    for i in range(tiles):
        x = 3 + i * width
        for j in range(tile):
            box(ax, x + j * width * 0.92 / tile, 36, width * 0.92 / tile, 5, role="memory" if j != 1 else "accent",
                fill=0.55 if j == 1 else 0.2)
    ax.text(3, 43, "one row in device memory, read tile by tile", fontsize=9)
    for part in range(parts):
        first, last = part * per_part, min(tiles, (part + 1) * per_part)
        left, right = 3 + first * width, 3 + last * width
        middle = (left + right) / 2
        w = min(16, (right - left) * 0.8)
        for j in range(tile):
            box(ax, middle - w / 2 + j * w / tile, 19, w / tile, 5, role="compute" if j != 1 else "accent",
                fill=0.3 if j != 1 else 0.55)
        for i in range(first, last):
            arrow(ax, (3 + (i + 0.46 * 3 / tile) * width, 35.6), (middle - w / 2 + 1.5 * w / tile, 24.6), role="accent")
        ax.text(middle + w / 2 + 1.2, 21.5, f"{tile} partial sums\nin registers" if part == 0 else "", fontsize=8.5,
                va="center")
        arrow(ax, (middle, 18.6), (middle, 12.6) if parts > 1 else (middle, 9.6))
        if parts > 1:
            box(ax, middle - 2.5, 8, 5, 4.2, role="compute", fill=0.3)
            arrow(ax, (middle, 7.6), (50, 4.8))
    ax.text(52 if parts == 1 else 3, 14 if parts == 1 else 14.6, "once a row: threads talk to each other"
            if parts == 1 else "once a part", fontsize=8.5, color=ROLE["limit"], ha="left")
    box(ax, 47.5, 5 if parts == 1 else 0.4, 5, 4.2, "", role="compute", fill=0.6)
    ax.text(54, 7 if parts == 1 else 2.4, "sum of the row" + ("" if parts == 1 else ", by a second launch"),
            fontsize=9, va="center")
    return ax


def partial_sums_alt(tiles: int, tile: int, parts: int = 1) -> str:
    text = (f"A row of {tiles} tiles of {tile} columns: column j of every tile is added to partial sum j, "
            f"and the {tile} partial sums are added once")
    return text + (" at the end." if parts == 1 else f" in each of {parts} parts; a second launch adds the parts.")


def show_partial_sums(tiles: int = 6, tile: int = 4, parts: int = 1, evidence="") -> Picture:
    fig, ax = new(7.2, 3.3)
    draw_partial_sums(ax, tiles, tile, parts)
    ax.set_title("Threads meet once a row, not once a tile" if parts == 1 else "Several programs share one row")
    return Picture(fig, partial_sums_alt(tiles, tile, parts), evidence)


# ---------------------------------------------------------------- num_warps in two shapes
def draw_num_warps(ax, data, published=()):
    """Time over num_warps, one line for each number of rows; `published`: (num_warps, low, high, machine) in µs."""
    shapes = sorted(data["rows"].unique())
    for colour, marker, rows in zip((ROLE["compute"], ROLE["measured"]), MARKERS, shapes, strict=False):
        part = data[data["rows"] == rows].sort_values("num_warps")
        x = [NUM_WARPS.index(w) for w in part["num_warps"]]
        ax.plot(x, part["time_us"], marker=marker, color=colour, label=f"{rows:,} rows × {part['cols'].iloc[0]:,}")
        for i, time_us in zip(x, part["time_us"], strict=True):
            low = rows == shapes[-1]
            ax.annotate(f"{time_us:.0f}", (i, time_us), xytext=(3, -12 if low else 5), textcoords="offset points",
                        fontsize=8.5, color=colour)
    for i, (warps, low, high, machine) in enumerate(published):
        x = NUM_WARPS.index(warps)
        ax.plot([x, x], [low, high], marker="D", markersize=4, linestyle="-", color=ROLE["published"], alpha=0.8,
                label=f"published, {machine}" if i == 0 else None)
    top = max([data["time_us"].max(), *(p[2] for p in published)])
    ax.set_xticks(range(len(NUM_WARPS)), NUM_WARPS)
    ax.set(xlabel="num_warps (TILE = 128 × num_warps)", ylabel="time (µs)", ylim=(0, 1.12 * top))
    ax.legend(loc="upper right")
    return ax


def num_warps_alt(data) -> str:
    parts = [f"{rows:,} rows " + ", ".join(f"{r.num_warps}: {r.time_us:.0f}" for r in part.itertuples())
             for rows, part in data.groupby("rows")]
    return f"Row-sum times in µs by num_warps: {'; '.join(parts)}."


def show_num_warps(data, published=(), evidence="") -> Picture:
    fig, ax = new(7.2, 3.8)
    draw_num_warps(ax, data, published)
    few = data[data["rows"] == data["rows"].min()]["time_us"]
    many = data[data["rows"] == data["rows"].max()]["time_us"]
    ax.set_title(f"Few rows: num_warps changes the time {few.max() / few.min():.1f} times; "
                 f"many rows: {many.max() / many.min():.2f} times")
    return Picture(fig, num_warps_alt(data), evidence)


# ---------------------------------------------------------------- Little's law
CHASED = {"RTX 5090": "RTX 5090", "RTX 4090": "RTX 4090", "H200": "GH200", "B200": "B200", "A100": "A100"}
IN_FLIGHT_CONTROLS = {
    "gpu_name": list(CHASED),
    "rows_per_sm": [1, 2, 4, 16, 64],
    "loads_under_way": ([1, 2, 4, 8], 4),
}
REGISTERS = 36  # of row_sum_kernel, compiled for sm_120; too few to be the limit anywhere


def memory_latency_ns(gpu_name: str) -> float:
    """Latency of device memory by pointer chase, in ns at the boost clock; for the H200 that of a GH200."""
    cycles = max(row["dram_cycles"] for row in latencies() if row["gpu"] == CHASED[gpu_name] and "dram_cycles" in row)
    return cycles / gpu(gpu_name).boost_mhz * 1e3


def in_flight(spec, latency_ns: float, rows_per_sm: int, num_warps: int, loads_under_way: int) -> dict:
    """Resident warps of an SM, bytes that they have under way on the GPU, and the rate these allow (Little's law).

    Each lane waits for `loads_under_way` loads of 16 bytes at a time. A GPU of unknown bandwidth sets no limit.
    """
    resident = occupancy(spec.limits.target, 32 * num_warps, REGISTERS)
    programs = min(resident.blocks, rows_per_sm)
    moving = spec.sm_count * programs * num_warps * 32 * 16 * loads_under_way
    return {"programs": programs, "warps": programs * num_warps, "bytes_in_flight": moving,
            "gb_per_s": min(moving / latency_ns, spec.bandwidth_gb_per_s or math.inf)}


def draw_in_flight(axes, spec, latency_ns: float, rows_per_sm: int, loads_under_way: int):
    left, right = axes
    facts = [in_flight(spec, latency_ns, rows_per_sm, w, loads_under_way) for w in NUM_WARPS]
    x = range(len(NUM_WARPS))
    left.bar(x, [f["warps"] / 4 for f in facts], 0.78, color=ROLE["memory"])
    for i, f in enumerate(facts):
        full = f["warps"] == spec.limits.max_warps_per_sm  # above the bar stands the name of the limit
        left.annotate(f"{f['programs']} × {NUM_WARPS[i]}", (i, f["warps"] / 4), xytext=(0, -3 if full else 2),
                      textcoords="offset points", ha="center", va="top" if full else "bottom", fontsize=8,
                      color="white" if full else "black")
    left.set(ylabel="resident warps an SMSP", ylim=(0, 1.2 * max(spec.limits.max_warps_per_sm / 4, 1)))
    limit_line(left, spec.limits.max_warps_per_sm / 4, f"room for {spec.limits.max_warps_per_sm // 4}")
    right.plot(x, [f["gb_per_s"] for f in facts], marker="o", linestyle="--", color=ROLE["model"])
    right.set(ylabel="rate allowed (GB/s)", ylim=(0, 1.2 * spec.bandwidth_gb_per_s))
    limit_line(right, spec.bandwidth_gb_per_s, f"datasheet: {spec.bandwidth_gb_per_s:,.0f} GB/s")
    for ax in axes:
        ax.set_xticks(x, NUM_WARPS)
        ax.set_xlabel("num_warps")
        ax.grid(axis="x", visible=False)
    return facts


def explore_in_flight(gpu_name: str, rows_per_sm: int, loads_under_way: int) -> Picture:
    """Resident warps and the bandwidth they can ask for, by num_warps, for a number of rows an SM."""
    spec = gpu(gpu_name)
    latency_ns = memory_latency_ns(gpu_name)
    fig, axes = new(8.4, 3.3, 1, 2)
    facts = draw_in_flight(axes, spec, latency_ns, rows_per_sm, loads_under_way)
    count = f"{rows_per_sm} row{'s' * (rows_per_sm != 1)} an SM"
    axes[0].set_title(f"{gpu_name}, {count}")
    enough = [w for w, f in zip(NUM_WARPS, facts, strict=True) if f["gb_per_s"] > 0.99 * spec.bandwidth_gb_per_s]
    axes[1].set_title(f"Enough from num_warps = {enough[0]} on" if enough else "Never enough under way")
    parts = ", ".join(f"{w}: {f['warps']} warps, {f['gb_per_s']:,.0f} GB/s"
                      for w, f in zip(NUM_WARPS, facts, strict=True))
    alt = (f"{gpu_name} with {count} and {loads_under_way} loads under way: resident warps an SM and the rate "
           f"they allow, by num_warps: {parts}.")
    return Picture(fig, alt, simulated(f"bytes under way / latency of {latency_ns:.0f} ns"))


# ---------------------------------------------------------------- row counts
def draw_rows(ax, data, peak_gb_per_s: float | None):
    """Bandwidth over the number of rows at the same number of elements, one line a variant."""
    colours = {"one program a row": ROLE["compute"], "row_sum": ROLE["measured"], "torch": ROLE["limit"]}
    extra = iter(SERIES[2:])
    for marker, (variant, rows) in zip(MARKERS, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("rows")
        ax.plot(rows["rows"], rows["bandwidth_gb_per_s"], marker=marker, label=variant,
                color=colours.get(variant) or next(extra))
    ax.set_xscale("log", base=2)
    top = max(peak_gb_per_s or 0, data["bandwidth_gb_per_s"].max())
    ax.set(xlabel="rows (the same number of elements in all)", ylabel="read (GB/s)", ylim=(0, 1.15 * top))
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.legend(loc="lower right")
    return ax


def rows_alt(data) -> str:
    parts = []
    for variant, rows in data.groupby("variant", sort=False):
        rows = rows.sort_values("rows")
        parts.append(f"{variant} " + ", ".join(f"{r.rows:,}: {r.bandwidth_gb_per_s:,.0f}" for r in rows.itertuples()))
    return f"Bandwidth in GB/s by number of rows: {'; '.join(parts)}."


def show_rows(data, peak_gb_per_s=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.8)
    draw_rows(ax, data, peak_gb_per_s)
    ours = data[data["variant"] == "row_sum"].set_index("rows")["time_us"]
    ax.set_title(f"row_sum takes {ours.min():.0f} to {ours.max():.0f} µs whatever the number of rows")
    return Picture(fig, rows_alt(data), evidence)


# ---------------------------------------------------------------- accuracy
def draw_accuracy(ax, data):
    """Relative error over n, one line an order of adding."""
    smallest = 1e-9
    for colour, marker, (variant, rows) in zip(SERIES, MARKERS, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("n")
        ax.plot(rows["n"], rows["relative_error"].clip(lower=smallest), marker=marker, color=colour, label=variant)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="numbers added (uniform from 0 to 1)", ylabel="relative error against float64")
    return ax


def accuracy_alt(data) -> str:
    largest = data[data["n"] == data["n"].max()]
    parts = ", ".join(f"{r.variant} {r.relative_error:.1e}" for r in largest.itertuples())
    return f"Relative error of the sum of {data['n'].max():,} numbers: {parts}."


def show_accuracy(data, evidence="") -> Picture:
    fig, ax = new(7.2, 3.6)
    draw_accuracy(ax, data)
    ax.legend(loc="upper left")
    at_end = data[data["n"] == data["n"].max()].set_index("variant")["relative_error"]
    ratio = at_end["one running sum"] / max(at_end["1024 partial sums"], 1e-9)
    digits = 10 ** math.floor(math.log10(ratio)) if ratio > 1 else 1
    ax.set_title(f"At n = {data['n'].max():,}, 1024 partial sums err {np.round(ratio / digits) * digits:,.0f} "
                 "times less than one")
    return Picture(fig, accuracy_alt(data), evidence)
