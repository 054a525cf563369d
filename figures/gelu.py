"""Figures of lesson 03: programs over the elements (Fig 2-1), bandwidth over n, and the launch explorer."""

import math

from figures.style import MARKERS, ROLE, Picture, arrow, box, diagram, limit_line, new

LAUNCH_CONTROLS = {
    "n": ([1, 100, 1000, 1024, 1025, 4096, 10_000, 1_000_000, 2**28 - 3], 10_000),
    "block": ([128, 256, 512, 1024, 2048, 4096], 1024),
    "num_warps": ([1, 2, 4, 8, 16, 32], 4),
}


def launch_facts(n: int, block: int, num_warps: int, sm_count: int, blocks_per_sm: int | None = None) -> dict:
    """What a launch over n elements means: programs, elements a thread, lanes without work, waves over the SMs."""
    programs = math.ceil(n / block)
    threads = 32 * num_warps
    resident = sm_count * (blocks_per_sm or 1)
    return {
        "programs": programs,
        "threads": threads,
        "elements_per_thread": block / threads,
        "masked_elements": programs * block - n,
        "masked_fraction": (programs * block - n) / (programs * block),
        "waves": programs / resident,
    }


def draw_programs(ax, n: int, block: int):
    """Fig 2-1: n elements cut into programs of `block`; the part of the last program past n is masked."""
    diagram(ax, 100, 34)
    programs = math.ceil(n / block)
    shown = programs if programs <= 6 else 6
    left, width = 4, 92 / shown
    names = list(range(shown)) if shown == programs else [0, 1, 2, None, programs - 2, programs - 1]
    for i, program in enumerate(names):
        x = left + i * width
        if program is None:
            ax.text(x + width / 2, 17, "···", ha="center", va="center", fontsize=16, color=ROLE["limit"])
            continue
        first, last = program * block, min(n, (program + 1) * block)
        inside = (last - first) / block
        size = min(7.5, 7.5 * width * inside / len(f"to {last - 1:,}"))  # at 7.5 points a letter is about one unit wide
        box(ax, x, 12, width * inside, 9, f"{first:,}\nto {last - 1:,}" if size >= 6 else "", role="memory", fontsize=size)
        if inside < 1:
            masked = box(ax, x + width * inside, 12, width * (1 - inside), 9, role="muted", fill=0.08)
            masked.set(hatch="///", linewidth=0.6)
            ax.text(x + width * (1 + inside) / 2, 8.5, f"masked: {block - (last - first):,}", ha="center", fontsize=8,
                    color=ROLE["limit"])
        ax.text(x + width / 2, 27, f"program\n{program:,}", ha="center", fontsize=8.5)
        arrow(ax, (x + width / 2, 26.5), (x + width / 2, 21.5))
    ax.text(left, 2.5, f"n = {n:,} elements, BLOCK = {block:,}: grid of {programs:,} program{'s' * (programs != 1)}",
            fontsize=9)
    return ax


def programs_alt(n: int, block: int) -> str:
    programs = math.ceil(n / block)
    return (f"{n:,} elements cut into {programs:,} programs of {block:,}; "
            f"the last program has {programs * block - n:,} masked elements.")


def show_programs(n: int, block: int, evidence="diagram, counted from n and BLOCK") -> Picture:
    fig, ax = new(7.2, 2.6)
    draw_programs(ax, n, block)
    ax.set_title("The grid counts blocks of elements; the number of SMs does not enter it")
    return Picture(fig, programs_alt(n, block), evidence)


def draw_bandwidth(ax, data, peak_gb_per_s: float | None):
    """Bandwidth over n of each variant in a table of `measure("gelu_sizes")`; the datasheet's rate as a line."""
    colours = {"copy": ROLE["limit"], "gelu": ROLE["measured"]}
    others = iter([ROLE["accent"], ROLE["compute"], ROLE["model"], ROLE["published"]])
    for marker, (variant, rows) in zip(MARKERS, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("n")
        colour = colours.get(variant) or next(others)
        ax.plot(rows["n"], rows["bandwidth_gb_per_s"], marker=marker, color=colour, label=variant,
                zorder=3 if variant == "gelu" else 2)
    ax.set_xscale("log", base=2)
    ax.set_ylim(0)
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
        ax.set_ylim(0, 1.12 * max(peak_gb_per_s, data["bandwidth_gb_per_s"].max()))
    ax.set(xlabel="n (fp32 elements)", ylabel="read + written (GB/s)")
    ax.legend(loc="center left", bbox_to_anchor=(0, 0.62))
    return ax


def bandwidth_alt(data) -> str:
    largest = data[data["n"] == data["n"].max()].set_index("variant")["bandwidth_gb_per_s"]
    others = ", ".join(f"{name} {value:,.0f}" for name, value in largest.items() if name != "gelu")
    return f"Bandwidth over n: at n = {data['n'].max():,} gelu moves {largest['gelu']:,.0f} GB/s ({others})."


def show_bandwidth(data, peak_gb_per_s=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.8)
    draw_bandwidth(ax, data, peak_gb_per_s)
    at_top = data[data["n"] == data["n"].max()].set_index("variant")["bandwidth_gb_per_s"]
    share = at_top["gelu"] / at_top["copy"]
    ax.set_title(f"At the largest n, GELU moves data at {share:.0%} of a plain copy's rate")
    return Picture(fig, bandwidth_alt(data), evidence)
