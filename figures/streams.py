"""Figures of lesson 11: engines over time, time over the number of chunks, copy rates over size."""

from figures.style import MARKERS, ROLE, SERIES, Picture, new
from helpers.evidence import simulated
from helpers.timeline import Span, schedule

SCHEDULE_CONTROLS = {
    "chunks": ([1, 2, 4, 8, 16], 4), "copy_ms": ([2, 5, 8, 12], 8), "kernel_ms": ([2, 6, 10, 16], 10),
    "copy_back_ms": ([0, 4, 8], 0), "copy_engines": [1, 2],
}
ROWS = ("copy in", "kernel", "copy out")
COLOURS = {"copy in": ROLE["memory"], "kernel": ROLE["compute"], "copy out": ROLE["model"]}


def schedule_view(chunks=4, copy_ms=8, kernel_ms=10, copy_back_ms=0, copy_engines=1) -> Picture:
    """The widget of lesson 11: one queue above, a queue for each chunk below, by the model of `helpers.timeline`."""
    one = schedule(chunks, copy_ms, kernel_ms, copy_back_ms, overlap=False)
    many = schedule(chunks, copy_ms, kernel_ms, copy_back_ms, copy_engines=copy_engines)
    return show_schedules(one, many, simulated(f"queues and engines, {copy_engines} for copies"))


def draw_timeline(ax, spans, unit: str = "ms"):
    """Spans as bars, one line an engine; chunks are numbered where there is room."""
    rows = [name for name in ROWS if any(s.engine == name for s in spans)]
    end = max(s.end for s in spans)
    for s in spans:
        y = len(rows) - 1 - rows.index(s.engine)
        ax.barh(y, s.end - s.start, left=s.start, height=0.62, color=COLOURS[s.engine], edgecolor="white",
                alpha=0.75 - 0.3 * (s.chunk % 2), linewidth=0.8)
        if s.end - s.start > 0.035 * end:
            ax.text((s.start + s.end) / 2, y, str(s.chunk), ha="center", va="center", fontsize=8)
    ax.set_yticks(range(len(rows)), rows[::-1])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_xlim(0, 1.02 * end)
    ax.grid(visible=False, axis="y")
    ax.set(xlabel=f"time ({unit})")
    return ax


def show_schedules(one: list[Span], many: list[Span], evidence="") -> Picture:
    """The same chunks in one queue and in a queue each, on one scale of time."""
    fig, (top, below) = new(7.2, 3.7, 2, 1, sharex=True)
    draw_timeline(top, one)
    draw_timeline(below, many)
    ends = [max(s.end for s in spans) for spans in (one, many)]
    top.set(xlabel="", xlim=(0, 1.02 * max(ends)))
    top.set_title(f"One stream: {ends[0]:.4g} ms. A stream for each chunk: {ends[1]:.4g} ms")
    top.axvline(ends[0], color=ROLE["limit"], linestyle="--", linewidth=1)
    below.axvline(ends[1], color=ROLE["limit"], linestyle="--", linewidth=1)
    return Picture(fig, f"Copies and kernels of {1 + max(s.chunk for s in one)} chunks take {ends[0]:.4g} ms in one "
                        f"stream and {ends[1]:.4g} ms with a stream each.", evidence)


def spans_of(row) -> list[Span]:
    """The measured timeline of a row of `copy_compute_overlap`, in ms from its first span."""
    zero = min(start for _, _, start, _ in row["timeline"])
    return [Span(engine, chunk, (start - zero) / 1e3, (end - zero) / 1e3)
            for engine, chunk, start, end in row["timeline"]]


def show_measured_timelines(rows, evidence="") -> Picture:
    """`rows` of `copy_compute_overlap`, one below the other on one scale of time."""
    fig, axes = new(7.2, 1.35 + 1.15 * len(rows), len(rows), 1, sharex=True)
    ends = []
    for ax, (_, row) in zip(axes, rows.iterrows(), strict=True):
        spans = spans_of(row)
        draw_timeline(ax, spans)
        ends.append(max(s.end for s in spans))
        ax.set(xlabel="")
        ax.set_title(f"{row['variant']}: {ends[-1]:.1f} ms", fontsize=9.5, weight="normal", pad=4)
    axes[-1].set(xlabel="time (ms), between events", xlim=(0, 1.02 * max(ends)))
    said = ", ".join(f"{v}: {e:.1f} ms" for v, e in zip(rows["variant"], ends, strict=True))
    return Picture(fig, f"Measured timelines of {rows['chunks'].iloc[0]} chunks. {said}.", evidence)


def draw_overlap(ax, data):
    """Time over the number of chunks: each variant, and the estimate for pinned memory in streams."""
    for colour, marker, (variant, rows) in zip(SERIES, MARKERS, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("chunks")
        ax.plot(rows["chunks"], rows["time_us"] / 1e3, marker=marker, color=colour, label=variant)
    best = data[data["variant"] == "pinned, a stream each"].sort_values("chunks")
    ax.plot(best["chunks"], best["estimate_us"] / 1e3, color=ROLE["limit"], linestyle="--", label="estimate for pinned")
    ax.set_xscale("log", base=2)
    ax.set_xticks(best["chunks"], best["chunks"])
    ax.set_ylim(0, 1.3 * data["time_us"].max() / 1e3)
    ax.set(xlabel="chunks", ylabel="time (ms)")
    ax.legend(loc="upper right", ncols=2, fontsize=8.5)
    return ax


def overlap_alt(data) -> str:
    best = data[data["variant"] == "pinned, a stream each"].set_index("chunks")
    most = best.index.max()
    first, last, estimate = best.loc[1, "time_us"], best.loc[most, "time_us"], best.loc[most, "estimate_us"]
    return (f"Copy and kernel with pinned memory and a stream for each chunk: {first / 1e3:.1f} ms in 1 chunk, "
            f"{last / 1e3:.1f} ms in {most}; estimated {estimate / 1e3:.1f} ms.")


def show_overlap(data, evidence="") -> Picture:
    fig, ax = new(7.2, 3.8)
    draw_overlap(ax, data)
    best = data[data["variant"] == "pinned, a stream each"]
    off = (best["time_us"] / best["estimate_us"] - 1).abs().max()
    ax.set_title(f"The estimate is at most {off:.0%} away from what was measured")
    return Picture(fig, overlap_alt(data), evidence)


def draw_copies(ax, data, direction: str):
    """Rate of pinned and pageable copies over size in one direction."""
    for variant, colour, marker in (("pinned", ROLE["measured"], "o"), ("pageable", ROLE["compute"], "s")):
        rows = data[(data["variant"] == variant) & (data["direction"] == direction)].sort_values("n")
        ax.plot(4 * rows["n"], rows["bandwidth_gb_per_s"], marker=marker, color=colour, label=variant)
    ax.set_xscale("log", base=2)
    ax.set_xticks([2**k for k in (12, 16, 20, 24, 28)], ["4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"], fontsize=8)
    ax.set_ylim(0, 1.15 * data["bandwidth_gb_per_s"].max())
    ax.set(xlabel="bytes copied", ylabel="rate (GB/s)", title=direction)
    ax.legend(loc="upper left")
    return ax


def copies_alt(data) -> str:
    at = data[data["n"] == data["n"].max()].set_index(["direction", "variant"])["bandwidth_gb_per_s"]
    rates = "; ".join(f"{d}: pinned {at[d, 'pinned']:.1f}, pageable {at[d, 'pageable']:.1f}"
                      for d in dict.fromkeys(data["direction"]))
    return f"Copy rates of {4 * data['n'].max() / 2**20:.0f} MiB in GB/s, {rates}."


def show_copies(data, evidence="") -> Picture:
    fig, axes = new(7.2, 3.4, 1, 2, sharey=True)
    for ax, direction in zip(axes, dict.fromkeys(data["direction"]), strict=True):
        draw_copies(ax, data, direction)
    axes[1].set(ylabel="")
    return Picture(fig, copies_alt(data), evidence)
