"""Figures of lesson 01 drawn from facts: twenty years (Fig 1-1), the roofline, the hierarchy (Fig 1-2)."""

import numpy as np
from matplotlib.ticker import FuncFormatter

from figures.style import ROLE, SERIES, Picture, new
from helpers.roofline import attainable_tflops, fitted, growth, operations
from helpers.specs import gpu, latencies, products, same_product, sources

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
            return f"{size / unit:.4g} {name}"
    return f"{size:.4g} B"


def capacity_text(size: float) -> str:
    """As makers print it: caches and registers in binary units, device memory in GB."""
    return f"{size / 1e9:g} GB" if size >= 1e9 else size_text(size)


def sizes_on(axis, ticks) -> None:
    """Ticks of a logarithmic axis of bytes, written as sizes."""
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


def wall_growth(points, source: dict) -> list[dict]:
    """Per series its growth in two and in twenty years: fitted to the points, and as printed beside the figure."""
    two, twenty = source["printed_growth_per_two_years"], source["printed_growth_in_twenty_years"]
    found = []
    for series, (name, *_) in WALL_SERIES.items():
        rows = points[points["series"] == series]
        found.append({"series": name, "points": len(rows), "years": f"{int(rows['year'].min())} to {int(rows['year'].max())}",
                      "2 years: fitted here": f"{growth(rows):.2f}x", "2 years: printed": f"{two[series]:.1f}x",
                      "20 years: fitted here": f"{float(f'{growth(rows, 20):.2g}'):,.0f}x", "20 years: printed": f"{twenty[series]:,}x"})
    return found


def _rates(points) -> dict[str, float]:
    return {name: growth(points[points["series"] == series]) for series, (name, *_) in WALL_SERIES.items()}


def _outgrown(points) -> str:
    rates = _rates(points)
    ratio = (rates["peak compute"] / rates["memory bandwidth"]) ** 10
    return f"At these rates compute outgrows memory {float(f'{ratio:.1g}'):,.0f}-fold in twenty years"


def memory_wall_alt(points) -> str:
    rates = ", ".join(f"{name} {rate:.1f}x" for name, rate in _rates(points).items())
    return (f"Growth in two years, fitted to {len(points)} machines and parts from {int(points['year'].min())} to "
            f"{int(points['year'].max())}: {rates}. {_outgrown(points)}.")


def show_memory_wall(points, source: str = "") -> Picture:
    fig, ax = new(7.2, 3.9)
    draw_memory_wall(ax, points)
    ax.set_title(_outgrown(points))
    return Picture(fig, memory_wall_alt(points), source)


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
            wide = operation.intensity > x[2] / 8  # below the flat roof, in two rows
            place = {"xytext": (0 if wide else -3, -11 - 11 * (i % 2)), "ha": "center" if wide else "left"}
            if operation.intensity < ridge:  # beside the slope, on the side away from the ridge's line
                near = operation.intensity > ridge / 6
                place = {"xytext": (-8, 3), "ha": "right"} if near else {"xytext": (7, -3), "ha": "left"}
            ax.annotate(operation.name, (operation.intensity, y), fontsize=8, color=ROLE["limit"], va="center",
                        textcoords="offset points", **place)
    if intensity is not None:
        y = attainable_tflops(spec, intensity, precision)
        ax.plot(intensity, y, "D", color=ROLE["accent"], markersize=9, markeredgecolor="black", zorder=5, clip_on=False)
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
        part = f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"
        ax.set_title(f"{spec.name}: at {intensity:g} FLOP/B {_side(spec, precision, intensity)} is the limit, {part} of the peak")
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
        {"level": "registers", "bytes": size(spec.registers_mib),
         "tb_per_s": spec.register_read_tb_per_s, "cycles": None},
        {"level": "L1 + shared", "bytes": size(spec.l1_mib),
         "tb_per_s": spec.l1_tb_per_s, "cycles": latency["l1"]},
        {"level": "L2", "bytes": spec.l2_bytes, "tb_per_s": spec.l2_tb_per_s,
         "cycles": latency["l2"]},
        {"level": "device memory", "bytes": None if spec.memory_gb is None else spec.memory_gb * 1e9,
         "tb_per_s": None if spec.bandwidth_gb_per_s is None else spec.bandwidth_gb_per_s / 1e3,
         "cycles": latency["dram"]},
    ]


WHO_DECIDES = [
    {"level": "registers", "managed by": "the compiler",
     "how": "assigned when compiling; values that find no place spill to device memory"},
    {"level": "L1", "managed by": "the hardware", "how": "a cache in each SM; shares one array with shared memory"},
    {"level": "shared memory", "managed by": "the programmer (in Triton: the compiler)",
     "how": "as much of that array as a kernel asks for, filled and read by name"},
    {"level": "L2", "managed by": "the hardware",
     "how": "a cache for all SMs; since 8.0 a window of it can be set aside for data that stays"},
    {"level": "device memory", "managed by": "the programmer", "how": "allocated by the program; loads and stores name it"},
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
    sizes_on(axes[0].xaxis, [MIB, 32 * MIB, GIB, 32 * GIB])
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
    fig.suptitle(f"{gpu(name).name}{ratio}", x=0.01, ha="left", fontsize=11, weight="bold")
    return Picture(fig, hierarchy_alt(name), hierarchy_sources(name))


def hierarchy_sources(name: str) -> str:
    """Where the numbers of the hierarchy come from; where sources differ on the latencies, what the others found."""
    titles, rows = sources(), [row for row in latencies() if same_product(gpu(name).name, row["gpu"]) and "l2_cycles" in row]
    of_latency = [f"latencies: {titles[row['source']]['title']}" if row is rows[0] else
                  f"{titles[row['source']]['title']}: {row['l1_cycles']:g}, {row['l2_cycles']:g}, {row['dram_cycles']:g} cycles"
                  for row in rows]
    lines = [f"published ({'; '.join([*of_latency[:1], 'L1 and L2 rates: Chips and Cheese'])}) or derived from table 1-1"]
    return "\n".join(lines + [f"others measured · {text}" for text in of_latency[1:]])
