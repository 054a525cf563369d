"""Figures of lesson 01: twenty years (Fig 1-1), the roofline, the hierarchy (Fig 1-2), measured rates and latencies."""

import numpy as np
from matplotlib.ticker import FuncFormatter

from figures.style import MARKERS, ROLE, SERIES, Picture, limit_line, new
from helpers.roofline import attainable_tflops, fitted, growth, operations
from helpers.specs import gpu, latencies, products

WALL_SERIES = {  # series: name, role, marker, place of the label in points
    "HW FLOPS": ("peak compute", "compute", "s", 0),
    "DRAM BW": ("memory bandwidth", "memory", "o", 8),
    "Interconnect": ("link between chips", "muted", "^", -8),
}

KIB, MIB, GIB = 2**10, 2**20, 2**30


def size_text(size: float) -> str:
    """A capacity in words: 256 KiB, 1.5 MiB, 4 GiB."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.3g} B"


def capacity_text(size: float) -> str:
    """As makers print it: caches and registers in binary units, device memory in GB."""
    return f"{size / 1e9:g} GB" if size >= 1e9 else size_text(size)


def _sizes(axis, ticks) -> None:
    axis.set_ticks(ticks)
    axis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))


# ------------------------------------------------------------------------------------- Fig 1-1: twenty years
def draw_memory_wall(ax, points):
    """Points and fitted lines of the three series, each relative to its first machine."""
    for series, (name, role, marker, dy) in WALL_SERIES.items():
        rows = points[points["series"] == series]
        ax.scatter(rows["year"], rows["normalised"], s=16, marker=marker, color=ROLE[role], alpha=0.55, linewidth=0)
        years = np.array([rows["year"].min(), rows["year"].max()])
        line = fitted(rows, years)
        ax.plot(years, line, color=ROLE[role])
        ax.annotate(f"{name}\n{growth(rows):.1f}x in 2 years", (2022.8, line[1]), xytext=(8, dy), va="center",
                    textcoords="offset points", fontsize=9, color=ROLE["limit"] if role == "muted" else ROLE[role],
                    annotation_clip=False)
    ax.set(yscale="log", ylabel="relative to the first machine", xlabel="year", xlim=(1996, 2023.2))
    return ax


def _rates(points) -> dict[str, float]:
    return {name: growth(points[points["series"] == series]) for series, (name, *_) in WALL_SERIES.items()}


def memory_wall_alt(points) -> str:
    rates = ", ".join(f"{name} {rate:.1f}x" for name, rate in _rates(points).items())
    return f"Growth in two years, fitted to {len(points)} machines and parts from 1997 to 2022: {rates}."


def show_memory_wall(points, source: str = "") -> Picture:
    fig, ax = new(7.2, 3.9)
    draw_memory_wall(ax, points)
    rates = _rates(points)
    ratio = (rates["peak compute"] / rates["memory bandwidth"]) ** 10
    ax.set_title(f"In twenty years compute outgrew memory {_two_digits(ratio):,.0f}-fold")
    return Picture(fig, memory_wall_alt(points), source)


def _two_digits(value: float) -> float:
    return float(f"{value:.1g}")


# ------------------------------------------------------------------------------------- the roofline
INTENSITIES = [2.0**k for k in range(-5, 12)]
ROOFLINE_CONTROLS = {
    "name": ([g.name for g in products()], "RTX 5090"),
    "precision": (["fp32", "tf32", "bf16"], "fp32"),
    "intensity": (INTENSITIES, 1.0),
}


def draw_roofline(ax, name: str, precision: str = "fp32", intensity: float | None = None):
    """The roof of one GPU, the course's kernels on it (fp32 only), and one intensity to look at."""
    spec = gpu(name)
    ridge, peak = spec.ridge(precision), getattr(spec, f"{precision}_tflops")
    x = np.array([2.0**-5, ridge, max(2.0**11, 2 * ridge)])
    roof = np.array([attainable_tflops(spec, value, precision) for value in x])
    ax.plot(x[:2], roof[:2], color=ROLE["memory"], linewidth=2.4)
    ax.plot(x[1:], roof[1:], color=ROLE["compute"], linewidth=2.4)
    ax.set(xscale="log", yscale="log", xlabel="intensity (FLOP per byte of device memory)",
           ylabel=f"attainable {precision.upper()} TFLOPS", xlim=(2.0**-5, x[2]))
    ax.set_ylim(roof[0] / 1.5, peak * 4)
    ax.plot([ridge, ridge], [roof[0] / 1.5, peak], color=ROLE["limit"], linestyle=":", linewidth=1)
    ax.annotate(f"ridge\n{ridge:.1f} FLOP/B", (ridge, roof[0] / 1.5), xytext=(5, 5), textcoords="offset points",
                fontsize=8.5, color=ROLE["limit"], va="bottom")
    ax.text(x[2], peak * 1.12, f"{peak:,.4g} TFLOPS", ha="right", va="bottom", fontsize=8.5, color=ROLE["compute"])
    low = 2.0**-2.5
    ax.annotate(f"{spec.bandwidth_gb_per_s:,.0f} GB/s", (low, low * spec.bandwidth_gb_per_s / 1e3), xytext=(-6, 8),
                textcoords="offset points", fontsize=8.5, color=ROLE["memory"], ha="right")
    if precision == "fp32":
        for i, operation in enumerate(operations()):
            y = attainable_tflops(spec, operation.intensity)
            ax.plot(operation.intensity, y, "o", color=ROLE["limit"], markersize=5, zorder=4)
            place = {"xytext": (0, -11 - 11 * (i % 2)), "ha": "center"}  # below the flat roof
            if operation.intensity < ridge:  # beside the slope, on the side away from the ridge's line
                near = operation.intensity > ridge / 6
                place = {"xytext": (-8, 3), "ha": "right"} if near else {"xytext": (7, -3), "ha": "left"}
            ax.annotate(operation.name, (operation.intensity, y), fontsize=8, color=ROLE["limit"], va="center",
                        textcoords="offset points", **place)
    if intensity is not None:
        y = attainable_tflops(spec, intensity, precision)
        ax.plot(intensity, y, "D", color=ROLE["accent"], markersize=9, markeredgecolor="black", zorder=5)
    return ax


def _side(spec, precision, intensity) -> str:
    return "memory" if intensity < spec.ridge(precision) else "compute"


def roofline_alt(name: str, precision: str = "fp32", intensity: float | None = None) -> str:
    spec = gpu(name)
    text = (f"Roofline of the {spec.name} in {precision.upper()}: {getattr(spec, f'{precision}_tflops'):,.4g} TFLOPS, "
            f"{spec.bandwidth_gb_per_s:,.0f} GB/s, ridge at {spec.ridge(precision):.1f} FLOP/B.")
    if intensity is not None:
        text += (f" At {intensity:g} FLOP/B an operation reaches at most "
                 f"{attainable_tflops(spec, intensity, precision):,.3g} TFLOPS: {_side(spec, precision, intensity)} is "
                 "the limit.")
    return text


def show_roofline(name: str = "RTX 5090", precision: str = "fp32", intensity: float | None = None):
    """The roofline of any GPU of the table; a sentence where its peak in that precision is not known."""
    spec = gpu(name)
    if spec.ridge(precision) is None:
        return Message(f"The {spec.name} has no {precision.upper()} peak in the table: "
                       + ("it has no unit for it." if precision in spec.without else "nobody published one."))
    fig, ax = new(7.2, 4.2)
    draw_roofline(ax, name, precision, intensity)
    if intensity is None:
        below = [o.name for o in operations() if o.intensity < spec.ridge(precision)]
        ax.set_title(f"{spec.name}: {len(below)} of the course's {len(operations())} operations wait for memory")
    else:
        share = attainable_tflops(spec, intensity, precision) / getattr(spec, f"{precision}_tflops")
        ax.set_title(f"{spec.name}: at {intensity:g} FLOP/B {_side(spec, precision, intensity)} is the limit, "
                     f"{share:.2g} of the peak" if share < 0.01 else
                     f"{spec.name}: at {intensity:g} FLOP/B {_side(spec, precision, intensity)} is the limit, "
                     f"{share:.0%} of the peak")
    return Picture(fig, roofline_alt(name, precision, intensity), "derived · peak and bandwidth of table 1-1")


class Message:
    """One sentence where a picture cannot be drawn."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self):
        return self.text

    def _repr_html_(self):
        return f"<p>{self.text}</p>"


# ------------------------------------------------------------------------------------- Fig 1-2: the hierarchy
HIERARCHY_CONTROLS = {"name": ([g.name for g in products()], "RTX 5090")}


def hierarchy(name: str) -> list[dict]:
    """Level by level: capacity of the whole GPU in bytes, bandwidth in TB/s, latency in cycles; None where unknown."""
    spec = gpu(name)
    latency = spec.latency_cycles
    size = lambda mib: None if mib is None else mib * MIB  # noqa: E731
    return [
        {"level": "registers", "managed by": "the compiler", "bytes": size(spec.registers_mib),
         "tb_per_s": spec.register_read_tb_per_s, "cycles": None},
        {"level": "L1 + shared", "managed by": "hardware + you", "bytes": size(spec.l1_mib),
         "tb_per_s": spec.l1_tb_per_s, "cycles": latency["l1"]},
        {"level": "L2", "managed by": "hardware", "bytes": spec.l2_bytes, "tb_per_s": spec.l2_tb_per_s,
         "cycles": latency["l2"]},
        {"level": "device memory", "managed by": "you", "bytes": None if spec.memory_gb is None else spec.memory_gb * 1e9,
         "tb_per_s": None if spec.bandwidth_gb_per_s is None else spec.bandwidth_gb_per_s / 1e3,
         "cycles": latency["dram"]},
    ]


def draw_hierarchy(axes, name: str):
    """Capacity, bandwidth and latency of the four levels, each on a log scale."""
    levels = hierarchy(name)
    colours = [ROLE["compute"], ROLE["accent"], SERIES[5], ROLE["memory"]]
    columns = [("bytes", "capacity, whole GPU", capacity_text),
               ("tb_per_s", "read bandwidth (TB/s)", "{:,.3g} TB/s".format),
               ("cycles", "latency of a load (cycles)", "{:,.0f} cycles".format)]
    for ax, (column, label, text) in zip(axes, columns, strict=True):
        known = [level[column] for level in levels if level[column] is not None]
        floor, top = (min(known) / 4, max(known) * 60) if known else (10, 1e4)
        floor = 2 * MIB if column == "bytes" else floor
        for i, (level, colour) in enumerate(zip(levels, colours, strict=True)):
            value = level[column]
            if value is None:
                note = "part of the instruction" if column == "cycles" and i == 0 else "not published"
                ax.text(floor * 1.15, i, note, va="center", fontsize=8, color=ROLE["limit"], style="italic")
                continue
            ax.barh(i, value - floor, left=floor, height=0.62, color=colour, alpha=0.85)
            ax.text(value * 1.15, i, text(value), va="center", fontsize=8.5)
        ax.set(xscale="log", xlim=(floor, top), xlabel=label, yticks=range(4),
               yticklabels=[level["level"] for level in levels] if ax is axes[0] else [""] * 4)
        ax.minorticks_off()
        ax.grid(axis="y", visible=False)
        ax.set_ylim(3.5, -0.5)
    _sizes(axes[0].xaxis, [MIB, 32 * MIB, GIB, 32 * GIB])
    axes[0].set_xlim(2 * MIB, 4096 * GIB)
    return axes


def hierarchy_alt(name: str) -> str:
    parts = []
    for level in hierarchy(name):
        known = [None if level["bytes"] is None else capacity_text(level["bytes"]),
                 None if level["tb_per_s"] is None else f"{level['tb_per_s']:.3g} TB/s",
                 None if level["cycles"] is None else f"{level['cycles']:g} cycles"]
        parts.append(f"{level['level']}: " + (", ".join(filter(None, known)) or "not published"))
    return f"Memory hierarchy of the {gpu(name).name}. {'; '.join(parts)}."


def show_hierarchy(name: str = "RTX 5090") -> Picture:
    fig, axes = new(9.2, 2.7, ncols=3)
    draw_hierarchy(axes, name)
    levels = hierarchy(name)
    fast, slow = levels[0]["tb_per_s"], levels[-1]["tb_per_s"]
    ratio = f": registers deliver {fast / slow:,.0f} times what device memory does" if fast and slow else ""
    axes[0].set_title(f"{gpu(name).name}{ratio}")
    return Picture(fig, hierarchy_alt(name), "published or derived · sources in table 1-1 and below")


# ------------------------------------------------------------------------------------- measured: rates by working set
LEVELS = {"L1": "accent", "L2": SERIES[5], "device memory": "memory"}


def plateaus(table, sms: int, l1_bytes: int, l2_bytes: int) -> dict[str, float]:
    """The rate of each level in GB/s: the median over working sets that surely lie in it (None where none does).

    L1 and L2 count sets that fill at most half of them; L2 is read past L1 and from 16 KiB an SM on, where all its
    slices take part; device memory counts sets of at least four times the L2.
    """
    kinds = {name: rows for name, rows in table.groupby("variant")}
    total = {name: rows["bytes_per_sm"] * sms for name, rows in kinds.items()}
    chosen = {
        "L1": kinds["read"][kinds["read"]["bytes_per_sm"] <= l1_bytes / 2],
        "L2": kinds["read past L1"][(total["read past L1"] <= l2_bytes / 2)
                                    & (kinds["read past L1"]["bytes_per_sm"] >= 16 * KIB)],
        "device memory": kinds["read"][total["read"] >= 4 * l2_bytes],
    }
    return {level: float(rows["bandwidth_gb_per_s"].median()) if len(rows) else None for level, rows in chosen.items()}


def draw_working_sets(ax, table, sms: int, l1_bytes: int, l2_bytes: int, peak_gb_per_s: float | None):
    """Read rate over the working set of an SM, with and without L1; capacities and the datasheet's rate as lines."""
    names = {"read past L1": "read, not through L1"}
    for (variant, rows), marker, role in zip(table.groupby("variant", sort=False), MARKERS, ("measured", "accent", "compute"),
                                             strict=False):
        rows = rows.sort_values("bytes_per_sm")
        ax.plot(rows["bytes_per_sm"], rows["bandwidth_gb_per_s"] / 1e3, marker=marker, color=ROLE[role],
                label=names.get(variant, variant))
    top = table["bandwidth_gb_per_s"].max() / 1e3 * 1.18
    ax.set(xscale="log", ylim=(0, top), ylabel="read (TB/s)", xlabel="working set of one SM")
    low, high = table["bytes_per_sm"].min(), table["bytes_per_sm"].max()
    _sizes(ax.xaxis, [2.0**k for k in range(11, 26, 2) if low <= 2**k <= high])
    ax.minorticks_off()
    for capacity, text in ((l1_bytes, f"L1: {size_text(l1_bytes)}"), (l2_bytes / sms, f"L2 / {sms} SMs")):
        ax.axvline(capacity, color=ROLE["limit"], linestyle=":", linewidth=1)
        ax.annotate(text, (capacity, top), xytext=(-4 if text[:2] == "L1" else 4, -3), textcoords="offset points",
                    ha="right" if text[:2] == "L1" else "left", va="top", fontsize=8.5, color=ROLE["limit"])
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s / 1e3, f"device memory, datasheet: {peak_gb_per_s / 1e3:.1f} TB/s")
    whole = ax.secondary_xaxis("top", functions=(lambda b: b * sms, lambda b: b / sms))
    whole.set_xlabel(f"working set of all {sms} SMs")
    _sizes(whole.xaxis, [MIB, 16 * MIB, 256 * MIB, 4 * GIB])
    whole.minorticks_off()
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.62))
    return ax


def _plateau_text(levels) -> str:
    return ", ".join(f"{level} {rate / 1e3:.3g} TB/s" for level, rate in levels.items() if rate)


def working_sets_alt(table, sms: int, l1_bytes: int, l2_bytes: int) -> str:
    levels = plateaus(table, sms, l1_bytes, l2_bytes)
    return (f"Read rate over the working set of an SM, {size_text(table['bytes_per_sm'].min())} to "
            f"{size_text(table['bytes_per_sm'].max())} on each of {sms} SMs. Plateaus: {_plateau_text(levels)}.")


def show_working_sets(table, spec, evidence="") -> Picture:
    """`table` is that of measure("read_bandwidth"), `spec` the Gpu that measured."""
    fig, ax = new(7.6, 4.2)
    args = spec.sm_count, spec.limits.unified_cache_kib * KIB, spec.l2_bytes
    draw_working_sets(ax, table, *args, spec.bandwidth_gb_per_s)
    levels = plateaus(table, *args)
    ax.set_title(f"What fits in L1 is read {levels['L1'] / levels['device memory']:.1f} times as fast as what does not "
                 "fit in L2", pad=14)
    return Picture(fig, working_sets_alt(table, *args), evidence)


# ------------------------------------------------------------------------------------- measured: latency
def latency_plateaus(table, l1_bytes: int, l2_bytes: int) -> dict[str, float]:
    """Cycles of a load from each level: the median over working sets of at most half of L1, between twice L1 and a
    quarter of L2, and of at least eight times L2."""
    size, cycles = table["bytes"], table["cycles"]
    chosen = {"L1": size <= l1_bytes / 2, "L2": (size >= 2 * l1_bytes) & (size <= l2_bytes / 4),
              "device memory": size >= 8 * l2_bytes}
    return {level: float(cycles[rows].median()) for level, rows in chosen.items() if rows.any()}


def published_latencies(*names: str) -> dict[str, dict[str, float]]:
    """Published cycles by level ("l1", "l2", "dram") of the named GPUs. Raises KeyError where nobody published them."""
    printed = {row["gpu"]: row for row in reversed(latencies()) if "dram_cycles" in row}
    return {name: {level: printed[name].get(f"{level}_cycles") for level in ("l1", "l2", "dram")} for name in names}


def draw_latency(ax, table, l1_bytes: int, l2_bytes: int, published: dict[str, dict] | None = None):
    """Cycles of one dependent load over the working set; published plateaus of named GPUs as short lines."""
    rows = table.sort_values("bytes")
    ax.plot(rows["bytes"], rows["cycles"], marker="o", color=ROLE["measured"], label="measured")
    low, high = rows["bytes"].min(), rows["bytes"].max()
    spans = {"l1": (low, l1_bytes / 2), "l2": (2 * l1_bytes, l2_bytes / 2), "dram": (4 * l2_bytes, high)}
    colours = [ROLE["published"], ROLE["muted"], ROLE["model"]]
    for (name, levels), colour, style in zip((published or {}).items(), colours, ("--", ":", "-."), strict=False):
        for level, span in spans.items():
            if levels.get(level):
                ax.plot(span, [levels[level]] * 2, color=colour, linestyle=style, linewidth=1.6,
                        label=f"{name}, published" if level == "dram" else None)
    for capacity, text in ((l1_bytes, "L1"), (l2_bytes, "L2")):
        ax.axvline(capacity, color=ROLE["limit"], linestyle=":", linewidth=1)
        ax.annotate(f"{text}: {size_text(capacity)}", (capacity, 1), xycoords=("data", "axes fraction"), xytext=(-4, -3),
                    textcoords="offset points", ha="right", va="top", fontsize=8.5, color=ROLE["limit"])
    ax.set(xscale="log", ylim=(0, rows["cycles"].max() * 1.15), xlabel="working set", ylabel="latency of a load (cycles)")
    _sizes(ax.xaxis, [2.0**k for k in range(14, 33, 3) if low <= 2**k <= high])
    ax.minorticks_off()
    ax.legend(loc="upper left", bbox_to_anchor=(0.01, 0.9))
    return ax


def latency_alt(table, l1_bytes: int, l2_bytes: int) -> str:
    levels = latency_plateaus(table, l1_bytes, l2_bytes)
    mhz = float((table["cycles"] / table["ns"]).median()) * 1e3
    cycles = ", ".join(f"{level} {value:.0f} cycles ({value / mhz * 1e3:.0f} ns)" for level, value in levels.items())
    return f"Latency of one dependent load over the working set: {cycles}, at {mhz:.0f} MHz."


def show_latency(table, spec, published: dict[str, dict] | None = None, evidence="") -> Picture:
    """`table` is that of measure("load_latency"), `spec` the Gpu that measured, `published` name -> cycles by level."""
    fig, ax = new(7.6, 3.9)
    args = spec.limits.unified_cache_kib * KIB, spec.l2_bytes
    draw_latency(ax, table, *args, published)
    levels = latency_plateaus(table, *args)
    ax.set_title(f"Device memory answers after {levels['device memory']:.0f} cycles, L1 after {levels['L1']:.0f}")
    return Picture(fig, latency_alt(table, *args), evidence)


# ------------------------------------------------------------------------------------- measured: copies
def draw_copy(ax, table, peak_gb_per_s: float | None):
    """Rate of a copy over its size; rates above the datasheet's, from cache, are drawn hollow."""
    for (variant, rows), marker, role in zip(table.groupby("variant", sort=False), MARKERS, ("measured", "muted", "compute"),
                                             strict=False):
        rows = rows.sort_values("bytes")
        ax.plot(rows["bytes"], rows["bandwidth_gb_per_s"], marker=marker, color=ROLE[role],
                label="Triton" if variant == "copy" else variant)
        cached = rows[rows["flags"].str.contains("from cache")]
        ax.plot(cached["bytes"], cached["bandwidth_gb_per_s"], marker, color="white", markeredgecolor=ROLE[role])
    ax.set(xscale="log", xlabel="size of the tensor", ylabel="read + written (GB/s)")
    _sizes(ax.xaxis, [2.0**k for k in range(18, 33, 2)])
    ax.minorticks_off()
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.set_ylim(0, 1.15 * max(peak_gb_per_s or 0, table["bandwidth_gb_per_s"].max()))
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.88))
    return ax


def _largest_copy(table):
    best = table[(table["bytes"] == table["bytes"].max())]
    return best.loc[best["bandwidth_gb_per_s"].idxmax()]


def copy_alt(table, peak_gb_per_s: float | None) -> str:
    top = _largest_copy(table)
    share = f", {top.bandwidth_gb_per_s / peak_gb_per_s:.0%} of the datasheet" if peak_gb_per_s else ""
    small = table[table["bytes"] == table["bytes"].min()]["bandwidth_gb_per_s"].max()
    return (f"Copy rate over the size: {size_text(top.bytes)} at {top.bandwidth_gb_per_s:,.0f} GB/s{share}; "
            f"{size_text(table['bytes'].min())} at {small:,.0f} GB/s, where the launch takes the time.")


def show_copy(table, spec, evidence="") -> Picture:
    """`table` is that of measure("copy_bandwidth"), `spec` the Gpu that measured."""
    fig, ax = new(7.2, 3.4)
    draw_copy(ax, table, spec.bandwidth_gb_per_s)
    top = _largest_copy(table)
    share = f", {top.bandwidth_gb_per_s / spec.bandwidth_gb_per_s:.0%} of the datasheet" if spec.bandwidth_gb_per_s else ""
    ax.set_title(f"A large copy runs at {top.bandwidth_gb_per_s / 1e3:.2f} TB/s{share}")
    return Picture(fig, copy_alt(table, spec.bandwidth_gb_per_s), evidence)
