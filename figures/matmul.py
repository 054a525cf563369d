"""Figures of lesson 06: tiles (Fig 2-4), what a tile costs, the order of tiles, the ladder, the roofline, errors."""

import math

import numpy as np

from figures.style import MARKERS, ROLE, SERIES, Picture, arrow, box, diagram, limit_line, new
from helpers import tile_costs
from helpers.evidence import simulated
from helpers.occupancy import occupancy
from helpers.specs import gpu


# ---------------------------------------------------------------- Fig 2-4: tiles
def draw_tiles(ax, m: int, n: int, k: int, tile: tuple[int, int, int]):
    """c = a @ b in tiles, to scale: one tile of c, the rows of a and columns of b it needs, one step of K."""
    block_m, block_n, block_k = tile
    scale = 100 / (k + n) / 1.25
    gap = 14
    diagram(ax, (k + n) * scale + gap + 22, (k + m) * scale + gap + 12)
    left, bottom = 10, 6  # of a
    a_w, a_h, b_h, c_w = k * scale, m * scale, k * scale, n * scale
    c_x, b_y = left + a_w + gap, bottom + a_h + gap
    for x, y, w, h, name in ((left, bottom, a_w, a_h, f"a  {m} × {k}"), (c_x, b_y, c_w, b_h, f"b  {k} × {n}"),
                             (c_x, bottom, c_w, a_h, f"c  {m} × {n}")):
        box(ax, x, y, w, h, role="muted", fill=0.12)
        ax.text(x, y + h + 1.2, name, fontsize=9)
    i, j, step = (m // block_m) // 3, (n // block_n) // 2, (k // block_k) // 2
    row_y = bottom + a_h - (i + 1) * block_m * scale
    col_x = c_x + j * block_n * scale
    box(ax, left, row_y, a_w, block_m * scale, role="memory", fill=0.25)
    box(ax, col_x, b_y, block_n * scale, b_h, role="memory", fill=0.25)
    box(ax, left + step * block_k * scale, row_y, block_k * scale, block_m * scale, role="accent", fill=0.8)
    box(ax, col_x, b_y + b_h - (step + 1) * block_k * scale, block_n * scale, block_k * scale, role="accent", fill=0.8)
    box(ax, col_x, row_y, block_n * scale, block_m * scale, role="compute", fill=0.6)
    arrow(ax, (left + a_w + 1, row_y + block_m * scale / 2), (col_x - 0.6, row_y + block_m * scale / 2))
    arrow(ax, (col_x + block_n * scale / 2, b_y - 1), (col_x + block_n * scale / 2, row_y + block_m * scale + 0.6))
    ax.text(left + a_w / 2, row_y - 3.6, f"{math.ceil(k / block_k)} steps of {block_k}", fontsize=8.5, ha="center",
            color=ROLE["limit"])
    ax.text(col_x + block_n * scale / 2, row_y - 3.8, f"one program:\n{block_m} × {block_n} of c", fontsize=8.5,
            ha="center", va="top", color=ROLE["compute"])
    loaded, flops = (block_m + block_n) * block_k * 4, 2 * block_m * block_n * block_k
    ax.text(left, b_y + b_h, f"one step\n{block_m} × {block_k} of a,\n{block_k} × {block_n} of b: {loaded:,} bytes\n"
            f"{block_m} × {block_n} × {block_k} FMAs: {flops:,} FLOPs\n{flops / loaded:.3g} FLOP per byte",
            fontsize=8.5, va="top", linespacing=1.6)
    return ax


def tiles_alt(m: int, n: int, k: int, tile) -> str:
    return (f"One program computes {tile[0]} × {tile[1]} elements of c ({m} × {n}) from {tile[0]} rows of a and "
            f"{tile[1]} columns of b, in {math.ceil(k / tile[2])} steps of {tile[2]}.")


def show_tiles(m=512, n=512, k=512, tile=(64, 64, 32), evidence="") -> Picture:
    fig, ax = new(6.4, 5.2)
    draw_tiles(ax, m, n, k, tile)
    reuse = 2 * tile[0] * tile[1] / (tile[0] + tile[1]) / 4
    ax.set_title(f"Every loaded number serves a whole side of the tile: {reuse:.3g} FLOP/B")
    return Picture(fig, tiles_alt(m, n, k, tile), evidence)


# ---------------------------------------------------------------- what a tile costs
COST_CONTROLS = {
    "gpu_name": list(tile_costs.GPUS),
    "tile": (list(tile_costs.TILES), "64x64x32"),
    "num_warps": (list(tile_costs.NUM_WARPS), 4),
    "num_stages": ([2, 3, 4, 5], 3),
}


def tile_cost(gpu_name: str, tile: str, num_warps: int, num_stages: int) -> dict:
    """What an fp32 tile asks of an SM, as compiled, and saves: `tile_costs`, threads, sums a thread, intensity, occupancy."""
    block_m, block_n, _ = map(int, tile.split("x"))
    cost = tile_costs.tile_cost(gpu_name, tile, num_warps, num_stages) | {"threads": 32 * num_warps}
    return cost | {"intensity": 2 * block_m * block_n / (block_m + block_n) / 4, "sums": block_m * block_n // cost["threads"],
                   "occupancy": occupancy(gpu_name, cost["threads"], cost["registers"], cost["shared_bytes"])}


def draw_cost(axes, spec, cost: dict):
    left, right = axes
    found = cost["occupancy"]
    counts = {"threads": found.by_threads, "registers": found.by_registers, "shared memory": found.by_shared,
              "blocks": found.by_blocks}
    needs = (f"{cost['threads']}\nthreads", f"{cost['registers']} registers\na thread",
             f"{cost['shared_bytes'] / 1024:g} KiB\nshared", "blocks")
    left.bar(range(4), counts.values(), 0.55,
             color=[ROLE["compute"] if name in found.limiters else ROLE["muted"] for name in counts])
    for i, count in enumerate(counts.values()):
        left.annotate(str(count), (i, count), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8.5)
    left.set_xticks(range(4), needs)
    left.yaxis.get_major_locator().set_params(integer=True)
    left.set(ylabel="programs an SM could hold", ylim=(0, 1.18 * max(counts.values())))
    left.grid(axis="x", visible=False)
    peak, rate = spec.fp32_tflops, spec.bandwidth_gb_per_s
    x = np.logspace(-1, 2.5, 60)
    right.plot(x, np.minimum(peak, x * rate / 1e3), color=ROLE["limit"])
    for intensity, text in ((0.25, "no tile"), (cost["intensity"], "this tile")):
        y = min(peak, intensity * rate / 1e3)
        right.plot(intensity, y, marker="o", color=ROLE["compute"])
        right.annotate(f"{text}\n{intensity:.3g} FLOP/B", (intensity, y), va="top", ha="left", fontsize=8.5,
                       xytext=(8, -5), textcoords="offset points")
    right.set(xscale="log", yscale="log", xlabel="FLOP per byte loaded", ylabel="TFLOPS if all came from memory",
              ylim=(0.05 * rate / 1e3, 2.5 * peak))
    limit_line(right, peak, f"FP32 peak: {peak:.0f}")


def explore_cost(gpu_name: str, tile: str, num_warps: int, num_stages: int) -> Picture:
    """What a tile asks of an SM (programs by resource) and what it saves (intensity on the roofline)."""
    spec = gpu(gpu_name)
    cost = tile_cost(gpu_name, tile, num_warps, num_stages)
    found = cost["occupancy"]
    fig, axes = new(8.4, 3.5, 1, 2)
    draw_cost(axes, spec, cost)
    if found.blocks:
        title = f"{found.blocks} program{'s' * (found.blocks != 1)} an SM, {found.warps} warps ({found.fraction:.0%})"
    else:
        title = "cannot launch: more shared memory than a block may have"
    axes[0].set_title(title, fontsize=10)
    spilled = f", {cost['spill_bytes']} bytes spilled" if cost["spill_bytes"] else ""
    axes[1].set_title(f"{cost['sums']} sums a thread{spilled}", fontsize=10)
    alt = (f"{tile} with {num_warps} warps and {num_stages} stages on {gpu_name}: {cost['intensity']:.3g} FLOP/B, "
           f"{cost['shared_bytes']} bytes of shared memory, {cost['sums']} sums in {cost['registers']} registers a thread"
           f"{spilled}, {found.blocks} programs an SM.")
    return Picture(fig, alt, tile_costs.evidence(gpu_name))


# ---------------------------------------------------------------- the order of tiles
ORDER_CONTROLS = {"group": [1, 2, 4, 8, 16], "at_work": ([8, 16, 32, 64], 32)}


def tile_order(tile_rows: int, tile_cols: int, group: int) -> np.ndarray:
    """(tile_rows, tile_cols) numbers of the programs that compute each tile, as in matmul_relu_grouped_kernel."""
    order = np.empty((tile_rows, tile_cols), int)
    for program in range(tile_rows * tile_cols):
        first_row = program // (group * tile_cols) * group
        group_rows = min(tile_rows - first_row, group)
        inside = program % (group * tile_cols)
        order[first_row + inside % group_rows, inside // group_rows] = program
    return order


def strips_needed(order: np.ndarray, at_work: int) -> tuple[int, int]:
    """How many strips of a and of b the first `at_work` programs read between them."""
    rows, cols = np.nonzero(order < at_work)
    return len(set(rows)), len(set(cols))


def draw_order(ax, order: np.ndarray, at_work: int):
    """The tiles of c with the numbers of their programs; those at work first are filled, their strips marked."""
    tile_rows, tile_cols = order.shape
    diagram(ax, tile_cols + 3, tile_rows + 3)
    rows, cols = np.nonzero(order < at_work)
    for i in range(tile_rows):
        box(ax, 0.4, tile_rows - 1 - i, 1.4, 0.92, role="memory" if i in rows else "muted",
            fill=0.7 if i in rows else 0.08)
    for j in range(tile_cols):
        box(ax, 2.6 + j, tile_rows + 0.6, 0.92, 1.4, role="memory" if j in cols else "muted",
            fill=0.7 if j in cols else 0.08)
    for (i, j), program in np.ndenumerate(order):
        box(ax, 2.6 + j, tile_rows - 1 - i, 0.92, 0.92, str(program), role="compute" if program < at_work else "muted",
            fill=0.5 if program < at_work else 0.08, fontsize=6.5, in_layout=False)  # 256 texts to measure took a second
    ax.text(1.1, tile_rows + 0.3, "a", ha="center", fontsize=9)
    ax.text(2.2, tile_rows + 1.2, "b", ha="center", va="center", fontsize=9)


def explore_order(group: int, at_work: int) -> Picture:
    """16 × 16 tiles of c: which strips of a and b the first programs read, for a group size."""
    order = tile_order(16, 16, group)
    a, b = strips_needed(order, at_work)
    fig, ax = new(5.6, 5.4)
    draw_order(ax, order, at_work)
    ax.set_title(f"{at_work} programs read {a} + {b} = {a + b} strips")
    alt = (f"With groups of {group} rows of tiles, the first {at_work} of 256 programs read {a} strips of a "
           f"and {b} of b, {a + b} together.")
    return Picture(fig, alt, simulated("order of the programs, 16 × 16 tiles"))


# ---------------------------------------------------------------- the ladder
def draw_ladder(ax, data, peaks: dict[str, float | None]):
    """TFLOPS of each version at one size, slowest below; `peaks` are named limits in TFLOPS, None where unknown."""
    data = data.sort_values("tflops")
    for i, row in enumerate(data.itertuples()):
        library = row.variant.startswith("cuBLAS")
        ax.barh(i, row.tflops, 0.62, color=ROLE["muted"] if library else ROLE["measured"])
        ax.annotate(f"{row.tflops:.1f}", (row.tflops, i), xytext=(4, 0), textcoords="offset points", va="center",
                    fontsize=9, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    ax.set_yticks(range(len(data)), data["variant"])
    top = data["tflops"].max()
    shown = {name: value for name, value in peaks.items() if value and value < 1.6 * top}
    for name, value in shown.items():
        limit_line(ax, value, f"{name}: {value:.0f}", axis="x")
    ax.set(xlabel="TFLOPS (2MNK / time)", xlim=(0, 1.2 * max([top, *shown.values()])), ylim=(-0.6, len(data) + 0.1))
    ax.grid(axis="y", visible=False)
    return ax


def ladder_alt(data) -> str:
    parts = ", ".join(f"{r.variant} {r.tflops:.1f}" for r in data.sort_values("tflops").itertuples())
    return f"TFLOPS of matmul + ReLU at n = {data['n'].iloc[0]}: {parts}."


def show_ladder(data, peaks=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.9)
    draw_ladder(ax, data, peaks or {})
    rate = data.set_index("variant")["tflops"]
    ax.set_title(f"In true float32, ours reaches {rate['ieee'] / rate['cuBLAS']:.0%} of cuBLAS")
    return Picture(fig, ladder_alt(data), evidence)


# ---------------------------------------------------------------- the roofline of the ladder
def draw_rungs(ax, data, intensities: dict[str, float], spec):
    """TFLOPS of versions over the FLOP per byte that each asks for; the roofline, if the datasheet is known."""
    peak, rate = spec.fp32_tflops, spec.bandwidth_gb_per_s
    tensor = spec.tf32_tflops if peak and spec.tf32_tflops and spec.tf32_tflops > 1.2 * peak else None  # GeForce: the same
    rates = data.set_index("variant")["tflops"]
    if peak and rate:
        x = np.logspace(-1, 3, 100)
        ax.plot(x, np.minimum(tensor or peak, x * rate / 1e3), color=ROLE["limit"], linewidth=1.4)
        ax.annotate("rate of device memory", (0.8, 0.8 * rate / 1e3), xytext=(12, -4), textcoords="offset points",
                    fontsize=8.5, color=ROLE["limit"], va="top")
        limit_line(ax, peak, f"FP32 peak: {peak:.0f} TFLOPS")
        if tensor:
            limit_line(ax, tensor, f"TF32 peak of the Tensor Cores: {tensor:.0f} TFLOPS")
    for colour, marker, (variant, intensity) in zip(SERIES, MARKERS, intensities.items(), strict=False):
        ax.plot(intensity, rates[variant], marker=marker, linestyle="", color=colour, markersize=7,
                label=f"{variant}: {rates[variant]:.1f}")
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte that the kernel loads", ylabel="TFLOPS",
           ylim=(0.3, 3 * (tensor or peak or rates.max())), xlim=(0.1, 1000))
    ax.legend(loc="lower right", title="TFLOPS measured", alignment="left")
    return ax


def rungs_alt(data, intensities) -> str:
    rates = data.set_index("variant")["tflops"]
    return "Roofline: " + ", ".join(f"{v} asks for {1 / i:.2g} bytes a FLOP and reaches {rates[v]:.1f} TFLOPS"
                                    for v, i in intensities.items()) + "."


def show_rungs(data, intensities, spec, evidence="") -> Picture:
    fig, ax = new(7.2, 3.9)
    draw_rungs(ax, data, intensities, spec)
    lo, hi = min(intensities.values()), max(intensities.values())
    ax.set_title(f"Tiles raise the reuse {hi / lo:.0f} times; then arithmetic is the limit")
    return Picture(fig, rungs_alt(data, intensities), evidence)


# ---------------------------------------------------------------- errors
def draw_error(ax, data):
    """Root-mean-square error over K, one line a version; grey lines that grow with sqrt(K) and with K."""
    for colour, marker, (variant, rows) in zip(SERIES, MARKERS, data.groupby("variant", sort=False), strict=False):
        rows = rows.sort_values("k")
        ax.plot(rows["k"], rows["rms_error"], marker=marker, color=colour, label=variant)
    for variant, power, name, dash in (("tf32", 0.5, "∝ √K", "--"), ("tile 64x64x32 ieee", 1, "∝ K", ":")):
        start = data[data["variant"] == variant].sort_values("k")
        if len(start):
            k = start["k"].to_numpy()
            ax.plot(k, start["rms_error"].iloc[0] * 1.8 * (k / k[0]) ** power, color=ROLE["limit"], linestyle=dash,
                    label=name)
    ax.set_xscale("log", base=2)
    ax.set(yscale="log", xlabel="K (products of numbers from N(0, 1))", ylabel="root-mean-square error")
    ax.legend(loc="upper left", ncols=3)
    ax.set_ylim(data["rms_error"].min() / 2, 60 * data["rms_error"].max())
    return ax


def error_alt(data) -> str:
    last = data[data["k"] == data["k"].max()]
    parts = ", ".join(f"{r.variant} {r.rms_error:.1e} (largest {r.max_error:.1e})" for r in last.itertuples())
    return f"Root-mean-square error against float64 at K = {data['k'].max()}: {parts}."


def show_error(data, evidence="") -> Picture:
    fig, ax = new(7.2, 3.9)
    draw_error(ax, data)
    last = data[data["k"] == data["k"].max()].set_index("variant")["rms_error"]
    ax.set_title(f"At K = {data['k'].max()}, tf32 errs {last['tf32'] / last['ieee']:,.0f} times as much as ieee")
    return Picture(fig, error_alt(data), evidence)
