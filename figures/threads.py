"""Figures of lesson 08: the threads of a launch, the host's clock around it, rates over n and over the block size."""

import math

from figures.style import MARKERS, ROLE, SERIES, Picture, arrow, box, diagram, limit_line, new

GRID_CONTROLS = {
    "n": ([1, 33, 256, 257, 1000, 1024, 4000, 100_000], 1000), "block": ([32, 64, 100, 128, 256, 512, 1024], 100),
    "thread": ([0, 5, 31, 32, 255, 1023], 5),
}
LANE = 0.69  # width of a lane in the drawing of a warp


def launch_facts(n: int, block: int) -> dict[str, int]:
    """What a launch of one thread an element needs: blocks, threads, and the lanes that have no element."""
    blocks = math.ceil(n / block)
    warps = math.ceil(block / 32)
    return {"blocks": blocks, "threads": blocks * block, "idle threads": blocks * block - n,
            "lanes without a thread": blocks * (warps * 32 - block)}


def launch_sentence(n: int, block: int) -> str:
    facts = launch_facts(n, block)
    text = (f"{facts['blocks']:,} block{'s' * (facts['blocks'] > 1)}, {facts['threads']:,} threads, "
            f"{facts['idle threads']:,} without an element")
    return text + (f", {facts['lanes without a thread']:,} lanes without a thread" if block % 32 else "")


def draw_grid(ax, n: int, block: int, thread: int = 5, which: int = 2):
    """The grid as blocks, one of them named, and the warps of the last block with their lanes."""
    diagram(ax, 100, 52)
    blocks, warps = math.ceil(n / block), math.ceil(block / 32)
    which = min(which, blocks - 1)
    names = list(range(blocks)) if blocks <= 6 else sorted({0, 1, 2, which, blocks - 2, blocks - 1})
    width = 92 / (len(names) + (blocks > 6))
    x = 4.0
    for i, b in enumerate(names):
        if i and b != names[i - 1] + 1:
            ax.text(x + width / 2, 44, "···", ha="center", va="center", fontsize=14, color=ROLE["limit"])
            x += width
        first, last = b * block, (b + 1) * block - 1
        box(ax, x, 39.5, width - 1, 9, f"block {b:,}\n{first:,} to {last:,}", fontsize=7.5,
            role="accent" if b == which else "memory")
        x += width
    thread = min(thread, block - 1)
    index = which * block + thread
    ax.text(4, 34.8, f"blockIdx.x = {which}, threadIdx.x = {thread}:   i = {which} × {block} + {thread} = {index:,}"
            + ("" if index < n else f"   (no element: i ≥ {n:,})"), fontsize=9.5)
    last_first = (blocks - 1) * block
    some = "; the first and the last four" if warps > 8 else ""
    ax.text(4, 27.6, f"block {blocks - 1:,}, the last one, has {warps} warp{'s' * (warps > 1)} of 32 lanes{some}:", fontsize=9)
    shown = list(range(warps)) if warps <= 8 else [*range(4), *range(warps - 4, warps)]
    per_row = 4
    for k, w in enumerate(shown):
        left, y = 4 + (k % per_row) * 24, 16.5 - 13 * (k // per_row)
        active = max(0, min(32, block - w * 32, n - last_first - w * 32))
        for first, count, role, fill in ((0, active, "memory", 0.45), (active, 32 - active, "muted", 0.08)):
            if count:
                box(ax, left + first * LANE, y, count * LANE, 4.6, role=role, fill=fill)
        ax.vlines([left + lane * LANE for lane in range(1, 32)], y + 0.35, y + 4.25, color="white", linewidth=0.8)
        ax.text(left, y + 5.6, f"warp {w}", fontsize=7.5)
        ax.text(left + 22, y + 5.6, f"{active} active", fontsize=7.5, ha="right",
                color=ROLE["limit"] if active == 32 else ROLE["compute"], weight="normal" if active == 32 else "bold")
    return ax


def grid_alt(n: int, block: int) -> str:
    return f"n = {n:,} in blocks of {block}: {launch_sentence(n, block)}. Threads without an element are in the last block only."


def show_grid(n: int = 1000, block: int = 256, thread: int = 5, evidence="diagram, counted from n and the block size") -> Picture:
    fig, ax = new(7.2, 4.1)
    draw_grid(ax, n, block, thread)
    ax.set_title(launch_sentence(n, block))
    return Picture(fig, grid_alt(n, block), evidence)


def draw_launch_clock(ax, data):
    """Host clock when the call returned and when the GPU had finished, and time between events, over n."""
    for column, text, colour, marker in (
        ("finished_us", "until the GPU has finished", ROLE["measured"], "o"),
        ("time_us", "the kernel (events)", ROLE["limit"], "s"),
        ("returned_us", "until the call returns", ROLE["accent"], "^"),
    ):
        rows = data.sort_values("n")
        ax.plot(rows["n"], rows[column], marker=marker, color=colour, label=text)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set(xlabel="n (fp32 elements)", ylabel="time (µs)")
    ax.legend(loc="upper left")
    return ax


def launch_clock_alt(data) -> str:
    last = data.sort_values("n").iloc[-1]
    return (f"At n = {last['n']:,} the call returns after {last['returned_us']:.0f} µs, "
            f"the GPU finishes after {last['finished_us']:.0f} µs.")


def show_launch_clock(data, evidence="") -> Picture:
    fig, ax = new(7.2, 3.6)
    draw_launch_clock(ax, data)
    last = data.sort_values("n").iloc[-1]
    ax.set_title(f"The call returns {last['finished_us'] / last['returned_us']:.0f} times sooner than the GPU finishes")
    return Picture(fig, launch_clock_alt(data), evidence)


def draw_bandwidth(ax, data, peak_gb_per_s: float | None):
    """Bandwidth over n of each variant; the datasheet's rate as a line."""
    for marker, colour, (variant, rows) in zip(MARKERS, SERIES, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("n")
        ax.plot(rows["n"], rows["bandwidth_gb_per_s"], marker=marker, color=colour, label=variant)
    ax.set_xscale("log", base=2)
    top = max(data["bandwidth_gb_per_s"].max(), peak_gb_per_s or 0)
    ax.set_ylim(0, 1.14 * top)
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.set(xlabel="n (fp32 elements)", ylabel="read + written (GB/s)")
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.85))
    return ax


def bandwidth_alt(data) -> str:
    largest = data[data["n"] == data["n"].max()]
    rates = ", ".join(f"{r.variant} {r.bandwidth_gb_per_s:,.0f} GB/s" for r in largest.itertuples())
    return f"Bandwidth of c = a + b over n; at n = {data['n'].max():,}: {rates}."


def show_bandwidth(data, peak_gb_per_s=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.6)
    draw_bandwidth(ax, data, peak_gb_per_s)
    rates = data[data["n"] == data["n"].max()].set_index("variant")["bandwidth_gb_per_s"]
    ax.set_title(f"At the largest n, {rates.idxmin()} reaches {rates.min() / rates.max():.0%} of the rate of {rates.idxmax()}")
    return Picture(fig, bandwidth_alt(data), evidence)


def blocks_per_us(data):
    """Blocks of one thread an element that a launch got through in a microsecond, by block size."""
    rows = data.sort_values("block")
    return rows["n"] / rows["block"] / rows["time_us"]


def draw_blocks(ax, data):
    """Bandwidth over threads a block, beside what blocks got through as fast as the smallest ones would move.

    The model line belongs to the first variant; further ones (the reader's own) are drawn beside it.
    """
    variants = [rows.sort_values("block") for _, rows in data.groupby("variant", sort=False)]
    rows, top = variants[0], 1.15 * data["bandwidth_gb_per_s"].max()
    rate = blocks_per_us(rows).iloc[0]
    smallest = rate * rows["traffic_bytes"] / rows["n"] * rows["block"] / 1e3  # GB/s
    reached = smallest < top
    ax.plot(rows["block"][reached], smallest[reached], linestyle="--", color=ROLE["model"], zorder=1)
    ax.annotate(f"{rate:,.0f} blocks a µs", (rows["block"][reached].iloc[-1], smallest[reached].iloc[-1]), xytext=(-8, 2),
                textcoords="offset points", ha="right", fontsize=8.5, color=ROLE["model"])
    for one, colour, marker in zip(variants, (ROLE["measured"], ROLE["accent"]), "os", strict=False):
        ax.plot(one["block"], one["bandwidth_gb_per_s"], marker=marker, color=colour, label=one["variant"].iloc[0])
    odd = rows[rows["block"] % 32 != 0]
    ax.plot(odd["block"], odd["bandwidth_gb_per_s"], linestyle="", marker="X", markersize=9, color=ROLE["compute"])
    for row in odd.itertuples():
        ax.annotate(f"{row.block}: no multiple of 32", (row.block, row.bandwidth_gb_per_s),
                    xytext=(9, -13) if row.block < 500 else (6, -32), textcoords="offset points",
                    ha="left" if row.block < 500 else "right", fontsize=8.5, color=ROLE["compute"])
    if len(variants) > 1:
        ax.legend(loc="lower right")
    ax.set_xscale("log", base=2)
    ax.set_xticks([32, 64, 128, 256, 512, 1024], [32, 64, 128, 256, 512, 1024])
    ax.set_ylim(0, top)
    ax.set(xlabel="threads a block", ylabel="read + written (GB/s)")
    return ax


def blocks_alt(data) -> str:
    best, worst = data.loc[data["bandwidth_gb_per_s"].idxmax()], data.loc[data["bandwidth_gb_per_s"].idxmin()]
    rate = worst["n"] / worst["block"] / worst["time_us"]
    return (f"Bandwidth over the block size: from {worst['bandwidth_gb_per_s']:,.0f} GB/s at {worst['block']} threads, "
            f"{rate:,.0f} blocks a µs, to {best['bandwidth_gb_per_s']:,.0f} GB/s at {best['block']}.")


def show_blocks(data, evidence="") -> Picture:
    fig, ax = new(7.2, 3.3)
    draw_blocks(ax, data)
    best, worst = data.loc[data["bandwidth_gb_per_s"].idxmax()], data.loc[data["bandwidth_gb_per_s"].idxmin()]
    ax.set_title(f"{best['block']} threads a block move {best['bandwidth_gb_per_s'] / worst['bandwidth_gb_per_s']:.1f} times "
                 f"what {worst['block']} do")
    return Picture(fig, blocks_alt(data), evidence)


def draw_trip(ax):
    """Who does what: the host enqueues copies and the kernel, the GPU works through its queue."""
    diagram(ax, 100, 34)
    ax.text(2, 29, "host", fontsize=9.5, va="center", weight="bold")
    ax.text(2, 9, "GPU", fontsize=9.5, va="center", weight="bold")
    steps = [("enqueue\ncopy a, b", 11), ("enqueue\nkernel", 25), ("enqueue\ncopy c", 39)]
    for text, x in steps:
        box(ax, x, 25, 12, 8, text, role="accent", fontsize=8)
    box(ax, 53, 25, 31, 8, "free to do other work", role="muted", fontsize=8.5)
    box(ax, 86, 25, 12, 8, "synchronise", role="accent", fontsize=8)
    for text, x, w in (("copy a, b", 20, 20), ("kernel", 40, 34), ("copy c", 74, 12)):
        box(ax, x, 5, w - 0.4, 8, text, role="compute" if text == "kernel" else "memory", fontsize=8.5)
    for x, to in ((17, 20.5), (31, 40.5), (45, 74.5)):
        arrow(ax, (x, 24.6), (to, 13.4))
    arrow(ax, (86, 13.4), (91, 24.6))
    return ax


def show_trip() -> Picture:
    fig, ax = new(7.2, 2.7)
    draw_trip(ax)
    ax.set_title("A launch puts work into a queue; the host does not wait")
    return Picture(fig, "The host enqueues copies and the kernel and goes on; the GPU works through its queue in "
                        "order; only synchronising waits for it.", "diagram, not to scale")
