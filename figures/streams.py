"""Figures of lesson 11: engines over time, time over the number of chunks, copy rates over size."""

import numpy as np

from figures.style import ROLE, Picture, new
from helpers.evidence import simulated
from helpers.timeline import Span, schedule, served_in_turn

SCHEDULE_CONTROLS = {
    "chunks": ([1, 2, 4, 8, 16], 4), "copy_ms": ([2, 5, 8, 12], 8), "kernel_ms": ([2, 6, 10, 16], 10),
    "copy_back_ms": ([0, 4, 8], 8), "copy_engines": [1, 2],  # so that a second engine has something to do
}
TIMELINE_CONTROLS = {"chunks": ([1, 2, 4, 8, 16], 4), "kernel": ["longer", "shorter"]}
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
    seen = dict.fromkeys(rows, 0)
    for s in sorted(spans, key=lambda s: s.start):
        y = len(rows) - 1 - rows.index(s.engine)
        seen[s.engine] += 1
        ax.barh(y, s.end - s.start, left=s.start, height=0.62, color=COLOURS[s.engine], edgecolor="white",
                alpha=0.45 + 0.3 * (seen[s.engine] % 2), linewidth=0.8)
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
    top.set_title(f"One stream: {ends[0]:.3g} ms. A stream for each chunk: {ends[1]:.3g} ms")
    top.axvline(ends[0], color=ROLE["limit"], linestyle="--", linewidth=1)
    below.axvline(ends[1], color=ROLE["limit"], linestyle="--", linewidth=1)
    return Picture(fig, f"Copies and kernels of {1 + max(s.chunk for s in one)} chunks take {ends[0]:.3g} ms in one "
                        f"stream and {ends[1]:.3g} ms with a stream each.", evidence)


def spans_of(row) -> list[Span]:
    """The measured timeline of a row of `copy_compute_overlap`, in ms from its first span, each engine's work in turn."""
    zero = min(start for _, _, start, _ in row["timeline"])
    return served_in_turn([Span(engine, chunk, (start - zero) / 1e3, (end - zero) / 1e3)
                           for engine, chunk, start, end in row["timeline"]])


def show_measured_timelines(rows, evidence="") -> Picture:
    """`rows` of `copy_compute_overlap`, one below the other; those whose host memory is of one kind share a scale."""
    fig, axes = new(7.2, 1.1 + 1.3 * len(rows), len(rows), 1)
    spans = [spans_of(row) for _, row in rows.iterrows()]
    ends = [max(s.end for s in some) for some in spans]
    memory = [variant.split(",")[0] for variant in rows["variant"]]
    for i, (ax, (_, row)) in enumerate(zip(np.atleast_1d(axes), rows.iterrows(), strict=True)):
        draw_timeline(ax, spans[i])
        ax.axvline(row["estimate_us"] / 1e3, color=ROLE["limit"], linestyle="--", linewidth=1)
        longest = max(max(e, w) for e, w, m in zip(ends, rows["estimate_us"] / 1e3, memory, strict=True) if m == memory[i])
        ax.set(xlabel="", xlim=(0, 1.02 * longest))
        ax.set_title(f"{row['variant']}: {ends[i]:.1f} ms, estimated {row['estimate_us'] / 1e3:.1f}", fontsize=9.5,
                     weight="normal", pad=4)
    ax.set(xlabel="time (ms), from events; dashed: the estimate")
    at = dict(zip(rows["variant"], ends, strict=True))
    if {STREAMS, ONE_STREAM} <= set(at):
        chunks = int(rows["chunks"].iloc[0])
        _finding(fig, f"{chunks} chunk{'s' * (chunks > 1)}, pinned: {at[ONE_STREAM]:.1f} ms in one stream, {at[STREAMS]:.1f} ms in "
                      f"a stream each")
    said = ", ".join(f"{variant}: {end:.1f} ms" for variant, end in at.items())
    return Picture(fig, f"Measured timelines of {rows['chunks'].iloc[0]} chunks. {said}.", evidence)


STREAMS, ONE_STREAM, PAGEABLE = "pinned, a stream each", "pinned, one stream", "pageable, a stream each"


def draw_overlap(ax, data):
    """One length of kernel: time over the number of chunks, the estimate, and what no number of chunks can beat."""
    for variant, colour, marker in ((ONE_STREAM, ROLE["compute"], "s"), ("yours", ROLE["accent"], "^"),
                                    (STREAMS, ROLE["measured"], "o")):
        rows = data[data["variant"] == variant].sort_values("chunks")
        if len(rows):
            ax.plot(rows["chunks"], rows["time_us"] / 1e3, marker=marker, color=colour, label=variant)
    ax.plot(rows["chunks"], rows["estimate_us"] / 1e3, color=ROLE["model"], linestyle="--", label="estimate for streams")
    copy, kernel = rows["copy_us"].iloc[0] / 1e3, rows["kernel_us"].iloc[0] / 1e3
    ax.axhline(max(copy, kernel), color=ROLE["limit"], linestyle=":", linewidth=1.2)
    # at the right end: the legend, a line longer with the reader's own variant, may reach it at the left
    ax.annotate(f"the {'copy' if copy > kernel else 'kernel'} alone", (rows["chunks"].max(), max(copy, kernel)), xytext=(0, -4),
                fontsize=8.5, textcoords="offset points", ha="right", va="top", color=ROLE["limit"])
    ax.set_xscale("log", base=2)
    ax.set_xticks(rows["chunks"], rows["chunks"])
    ax.minorticks_off()
    ax.set(xlabel="chunks", ylabel="time (ms)")
    ax.set_title(f"copy {copy:.1f} ms, kernel {kernel:.1f} ms", fontsize=9.5, weight="normal")
    slow = data.loc[data["variant"] == PAGEABLE, "time_us"] / 1e3
    if len(slow):
        ax.text(0.02, 0.985, f"↑ {PAGEABLE}: {slow.min():.0f} to {slow.max():.0f} ms", transform=ax.transAxes,
                fontsize=8.5, va="top", color=ROLE["limit"])
    return ax


def overlap_alt(data) -> str:
    said = []
    for _, some in data[data["variant"] == STREAMS].groupby("rounds"):
        some = some.sort_values("chunks")
        first, last = some.iloc[0], some.iloc[-1]
        said.append(f"copy {first.copy_us / 1e3:.1f} and kernel {first.kernel_us / 1e3:.1f} ms: {first.time_us / 1e3:.1f} ms in "
                    f"{first.chunks} chunk, {last.time_us / 1e3:.1f} ms in {last.chunks}, estimated {last.estimate_us / 1e3:.1f}")
    return f"Pinned memory, a stream for each chunk. {'; '.join(said)}."


def show_overlap(data, evidence="") -> Picture:
    """Rows of `copy_compute_overlap`: a panel for each length of the kernel."""
    lengths = sorted(data["rounds"].unique())
    fig, axes = new(7.2, 3.9, 1, len(lengths), sharey=True, squeeze=False)
    for ax, rounds in zip(axes[0], lengths, strict=True):
        draw_overlap(ax, data[data["rounds"] == rounds])
        ax.label_outer()
    pinned = data[data["variant"] != PAGEABLE]
    axes[0][0].set_ylim(0, 1.3 * pinned["time_us"].max() / 1e3)
    axes[0][0].legend(loc="lower left", fontsize=8.5)
    best = data[data["variant"] == STREAMS]
    off = (best["time_us"] / best["estimate_us"] - 1).abs().max()
    _finding(fig, f"Streams and pinned memory: within {off:.0%} of the estimate")
    return Picture(fig, overlap_alt(data), evidence)


def _finding(fig, text: str) -> None:
    """The title of a figure of several panels, set as the title of one."""
    fig.suptitle(text, x=0.01, ha="left", fontsize=11, weight="bold")


def draw_copies(ax, data, direction: str):
    """Rate of pinned and pageable copies over size in one direction."""
    for variant, colour, marker in (("pinned", ROLE["measured"], "o"), ("pageable", ROLE["compute"], "s")):
        rows = data[(data["variant"] == variant) & (data["direction"] == direction)].sort_values("n")
        ax.plot(4 * rows["n"], rows["bandwidth_gb_per_s"], marker=marker, color=colour, label=variant)
    ax.set_xscale("log", base=2)
    ax.set_xticks([2**k for k in (12, 16, 20, 24, 28)], ["4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB"], fontsize=8)
    ax.set_ylim(0, 1.15 * data["bandwidth_gb_per_s"].max())
    ax.set(xlabel="bytes copied", ylabel="rate (GB/s)")
    ax.set_title(direction, fontsize=9.5, weight="normal")
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
    rows = data[data["n"] == data["n"].max()]
    rates = rows.groupby("variant")["bandwidth_gb_per_s"].agg(["min", "max"])
    _finding(fig, f"{4 * data['n'].max() / 2**20:.0f} MiB: pinned {_span(*rates.loc['pinned'])} GB/s, "
                  f"pageable {_span(*rates.loc['pageable'])} GB/s")
    return Picture(fig, copies_alt(data), evidence)


def _span(low: float, high: float) -> str:
    return f"{low:.0f}" if f"{low:.0f}" == f"{high:.0f}" else f"{low:.0f} to {high:.0f}"
