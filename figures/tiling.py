"""Figures of lesson 10: the phases of a tiled product, reads counted, banks of shared memory, the matmul ladder."""

import numpy as np
from matplotlib.patches import Rectangle

from figures.style import MARKERS, ROLE, SERIES, Picture, box, diagram, grouped_bars, limit_line, new

PHASE_CONTROLS = {
    "n": ([2, 4, 6, 8], 4), "tile": ([1, 2, 4], 2), "block": ([0, 1, 2, 3, 5, 8, 15], 0), "phase": ([0, 1, 2, 3], 0),
}
BANK_CONTROLS = {"words_a_row": ([32, 33, 34, 36, 40, 48, 64], 32), "access": (["row", "column", "diagonal"], "column")}


def phase_view(n: int = 4, tile: int = 2, block: int = 0, phase: int = 0) -> Picture:
    """The widget of lesson 10: what one block stages, and has used before, in one phase of a tiled n x n product."""
    blocks = -(-n // tile)
    return show_phase(n, tile, min(block, blocks**2 - 1), min(phase, blocks - 1))


def draw_phase(ax, n: int, tile: int, block: int, phase: int):
    """Matrices A, B and C: the tiles staged now, those of earlier phases, the block of C they are for, and what the
    block's first thread reads of them."""
    diagram(ax, 100, 40)
    blocks = -(-n // tile)
    top, left = block // blocks * tile, block % blocks * tile
    size = 26 / n
    for name, x in (("A", 4), ("B", 37), ("C", 70)):
        ax.text(x + 13, 35.5, name, ha="center", fontsize=10, weight="bold")
        for r in range(n):
            for c in range(n):
                along = {"A": c, "B": r, "C": 0}[name] // tile
                inside = {"A": top <= r < top + tile, "B": left <= c < left + tile,
                          "C": top <= r < top + tile and left <= c < left + tile}[name]
                now = inside and (name == "C" or along == phase)
                before = inside and name != "C" and along < phase
                role = "compute" if name == "C" and now else "accent" if now else "memory" if before else "muted"
                fill = 0.55 if now else 0.2 if before else 0.02
                box(ax, x + c * size, 33 - (r + 1) * size, size, size, role=role, fill=fill)
    wide = min(tile, n - phase * tile)  # the last tile may reach past the edge
    first = {"A": (4 + phase * tile * size, 33 - (top + 1) * size, wide, 1),
             "B": (37 + left * size, 33 - (phase * tile + wide) * size, 1, wide),
             "C": (70 + left * size, 33 - (top + 1) * size, 1, 1)}
    for x, y, columns, rows in first.values():
        ax.add_patch(Rectangle((x, y), columns * size, rows * size, fill=False, edgecolor="black", linewidth=2))
    ax.text(33.5, 20, "×", fontsize=13, ha="center", va="center")
    ax.text(66.5, 20, "=", fontsize=13, ha="center", va="center")
    for x, role, fill, text in ((4, "accent", 0.55, "in shared memory now"), (34, "memory", 0.2, "used before"),
                                (53, "compute", 0.55, "the block's part of C"), (82, "white", 0, "one thread's")):
        box(ax, x, 0.7, 2.4, 2.4, role=role, fill=fill)
        ax.text(x + 3.2, 1.9, text, fontsize=8.5, color="#333333", va="center")
    ax.add_patch(Rectangle((82, 0.7), 2.4, 2.4, fill=False, edgecolor="black", linewidth=2))
    return ax


def phase_alt(n: int, tile: int, block: int, phase: int) -> str:
    blocks = -(-n // tile)
    return (f"Phase {phase + 1} of {blocks}: block {block} of a {n} x {n} product stages {tile} x {tile} tiles of A "
            f"and B; each staged element is used {_times(tile)}.")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def show_phase(n: int, tile: int, block: int, phase: int, evidence="diagram, counted from n and the tile") -> Picture:
    fig, ax = new(7.2, 3.2)
    draw_phase(ax, n, tile, block, phase)
    ax.set_title(f"Phase {phase + 1} of {-(-n // tile)}: every staged element is read {_times(tile)} from its tile")
    return Picture(fig, phase_alt(n, tile, block, phase), evidence)


def draw_reads(ax, counted):
    """Lane reads of device memory over n. `counted`: columns n, tile (1: naive), reads. Lines: 2 n^3 / tile."""
    n = np.geomspace(counted["n"].min(), 4096, 50)
    for colour, marker, (tile, rows) in zip(SERIES, MARKERS, counted.groupby("tile"), strict=False):
        name = "naive" if tile == 1 else f"tiles of {tile} × {tile}"
        ax.plot(n, 2 * n**3 / tile, color=colour, linewidth=1.2, linestyle="--")
        ax.plot(rows["n"], rows["reads"], color=colour, marker=marker, linestyle="", label=f"{name}, counted")
        ax.annotate(f"{2 * 4096**3 / tile:.3g}", (4096, 2 * 4096**3 / tile), fontsize=8.5, va="center", color=colour,
                    xytext=(5, 5 if tile == 1 else -5), textcoords="offset points")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(right=4096 * 2.6)
    ax.set_xticks([4, 16, 64, 256, 1024, 4096], [4, 16, 64, 256, 1024, 4096])
    ax.set(xlabel="n (matrices n × n)", ylabel="reads of device memory by lanes")
    ax.legend(loc="upper left")
    return ax


def reads_alt(counted) -> str:
    said = "; ".join(f"n = {r.n}, {'naive' if r.tile == 1 else f'tile {r.tile}'}: {r.reads:,}"
                     for r in counted.itertuples())
    return f"Reads counted by running the compiled kernels, {'all' if _agree(counted) else 'not all'} equal to 2 n³ / tile: {said}."


def _agree(counted) -> bool:
    return all(r.reads == 2 * r.n**3 // r.tile for r in counted.itertuples())


def show_reads(counted, evidence="") -> Picture:
    fig, ax = new(7.2, 3.8)
    draw_reads(ax, counted)
    ax.set_title("Counted reads lie on 2 n³ / T" if _agree(counted) else "Counted reads leave 2 n³ / T")
    return Picture(fig, reads_alt(counted), evidence)


def bank_words(words_a_row: int, access: str) -> list[int]:
    """The word each of 32 lanes touches in a tile of 32 rows: along row 0, down column 0, or the diagonal."""
    steps = {"row": 1, "column": words_a_row, "diagonal": words_a_row + 1}
    return [lane * steps[access] for lane in range(32)]


def draw_banks(ax, words):
    """The 32 banks with the lanes that each has to serve, stacked."""
    bank_of = [word % 32 for word in words]
    most = max(bank_of.count(bank) for bank in bank_of)
    for lane, bank in enumerate(bank_of):
        level = bank_of[:lane].count(bank)
        box(ax, bank - 0.45, level + 0.06, 0.9, 0.88, str(lane) if most <= 8 else "", fontsize=7,
            role="accent" if level == 0 else "compute", fill=0.45)
    if most > 8:
        ax.text(bank_of[0] + 0.9, most / 2, f"{most} lanes wait for bank {bank_of[0]}", fontsize=9, va="center",
                color=ROLE["compute"])
    ax.set(xlim=(-0.8, 31.8), ylim=(0, max(4, most) + 0.5), xlabel="bank", ylabel="lanes to serve")
    ax.set_xticks(range(0, 32, 4))
    ax.set_yticks(range(0, max(4, most) + 1, 1 if most <= 8 else 4))
    ax.grid(visible=False, axis="x")
    return ax


def show_banks(words, wavefronts: int, what: str, evidence="") -> Picture:
    """`words`: the 4-byte word of each lane; `wavefronts`: the passes counted for the access."""
    fig, ax = new(7.2, 3.3)
    draw_banks(ax, words)
    passes = f"{wavefronts} pass{'es' * (wavefronts > 1)}"
    ax.set_title(f"{what}: {passes} through shared memory")
    banks = len({w % 32 for w in words})
    return Picture(fig, f"{what}: 32 lanes fall into {banks} bank{'s' * (banks > 1)}, counted {passes}.", evidence)


def draw_ladder(ax, data, peak_tflops=None):
    """TFLOPS of each rung, grouped by n."""
    grouped_bars(ax, data, "tflops", tick="n = {:,}", label="{:.1f}", fontsize=8)
    ax.set_ylim(0, 1.2 * max(data["tflops"].max(), peak_tflops or 0))
    if peak_tflops:
        limit_line(ax, peak_tflops, f"FP32 peak: {peak_tflops:g} TFLOPS")
    ax.set(ylabel="TFLOPS (fp32)")
    return ax


def ladder_alt(data) -> str:
    rows = data[data["n"] == data["n"].max()]
    return (f"Matrix product at n = {data['n'].max():,}: "
            + ", ".join(f"{r.variant} {r.tflops:.1f}" for r in rows.itertuples()) + " TFLOPS.")


def show_ladder(data, peak_tflops=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.7)
    draw_ladder(ax, data, peak_tflops)
    at = data[data["n"] == data["n"].max()].set_index("variant")["tflops"]
    ax.set_title(f"A 32nd of the reads, {at['tiled'] / at['naive']:.1f} times the speed")
    return Picture(fig, ladder_alt(data), evidence)
