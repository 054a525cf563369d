"""Figures of lesson A: the parts of a TensorCore (A-1), who reads registers (A-2), utilisation, rooflines."""

import numpy as np

from figures.style import ROLE, Picture, arrow, box, diagram, label_line, new


def core_facts(tpu: dict) -> dict:
    """What Fig A-1 says, derived from the facts of a TPU (name -> value)."""
    cells = tpu["mxu_rows"] * tpu["mxu_columns"]
    alus = tpu["vpu_sublanes"] * tpu["vpu_lanes"] * tpu["vpu_alus_per_lane"]
    clock = tpu["clock_mhz"] * 1e6
    return {
        "cells_per_mxu": cells,
        "cells_per_core": cells * tpu["mxus_per_core"],
        "vpu_alus": alus,
        "mxu_tflops_per_core": 2 * cells * tpu["mxus_per_core"] * clock / 1e12,
        "vpu_tflops_per_core": alus * clock / 1e12,
        "chip_tflops": 2 * cells * tpu["mxus_per_core"] * tpu["cores"] * clock / 1e12,
        "vreg_kib": tpu["vregs_per_core"] * tpu["vpu_sublanes"] * tpu["vpu_lanes"] * 4 / 1024,
        "ridge_flop_per_byte": tpu["bf16_tflops"] * 1e3 / tpu["bandwidth_gb_per_s"],
    }


def draw_tensor_core(ax, tpu: dict):
    """Fig A-1: memory, registers and units of one TensorCore of a v5p, and the one unit that directs them."""
    facts = core_facts(tpu)
    diagram(ax, 108, 62)
    box(ax, 22, 1, 85, 60, role="limit", fill=0.03)
    ax.text(24, 3, f"TensorCore, {tpu['cores']} on a chip", fontsize=9, color="#555555")
    box(ax, 1, 8, 14, 34, f"{tpu['memory_type']}\n\n{tpu['memory_gb']} GB\nof the chip", role="memory")
    box(ax, 29, 8, 14, 34, f"VMEM\n\n{tpu['vmem_mib_per_core']} MiB\nscratchpad", role="memory")
    vregs = f"{tpu['vregs_per_core']} registers\nof {tpu['vpu_sublanes']} × {tpu['vpu_lanes']}\nnumbers"
    box(ax, 52, 8, 14, 34, f"VREGs\n\n{facts['vreg_kib']:.0f} KiB\n{vregs}", role="memory")
    box(ax, 76, 33.5, 29, 8.5, f"VPU: {facts['vpu_alus']:,} ALUs", role="compute")
    mxu = f"MXU\n{tpu['mxu_rows']} × {tpu['mxu_columns']}"
    for k in range(tpu["mxus_per_core"]):
        box(ax, 76 + 14.75 * (k % 2), 20.5 - 7.5 * (k // 2), 14.25, 7, mxu, role="compute", fill=0.4, fontsize=8.5)
    box(ax, 76, 5.5, 29, 5, f"{tpu['xlus_per_core']} XLUs: move between lanes", role="muted", fontsize=8.5)
    box(ax, 29, 49, 76, 8, f"scalar unit with {tpu['smem_mib_per_core']} MiB SMEM: one stream of instructions for all "
        "of it", role="accent")
    for x in (36, 59, 90.5):
        ax.annotate("", (x, 42), (x, 49), arrowprops={"arrowstyle": "-|>", "color": ROLE["accent"], "linestyle": "--"})
    for left, right, y in ((15, 29, 25), (43, 52, 25), (66, 76, 37.5), (66, 76, 20.5), (66, 76, 8)):
        ax.annotate("", (left, y), (right, y), arrowprops={"arrowstyle": "<|-|>", "color": ROLE["limit"]})
    ax.text(22.2, 28, f"{tpu['bandwidth_gb_per_s']:,}\nGB/s\n(chip)", ha="center", fontsize=8.5, color=ROLE["memory"],
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    return ax


def tensor_core_alt(tpu: dict) -> str:
    facts = core_facts(tpu)
    return (f"A TPU v5p TensorCore. {tpu['memory_gb']} GB of {tpu['memory_type']} ({tpu['bandwidth_gb_per_s']:,} GB/s, "
            f"for the chip) feed {tpu['vmem_mib_per_core']} MiB of VMEM, which feeds {facts['vreg_kib']:.0f} KiB of "
            f"vector registers, which feed a VPU of {facts['vpu_alus']:,} ALUs, {tpu['mxus_per_core']} MXUs of "
            f"{tpu['mxu_rows']} x {tpu['mxu_columns']} cells and {tpu['xlus_per_core']} XLUs; results go back the same "
            "way. One scalar unit directs it all.")


def show_tensor_core(tpu: dict, evidence="") -> Picture:
    """Fig A-1, from the facts of a TPU (name -> value)."""
    fig, ax = new(8.2, 5)
    draw_tensor_core(ax, tpu)
    share = core_facts(tpu)["mxu_tflops_per_core"] / core_facts(tpu)["vpu_tflops_per_core"]
    ax.set_title(f"One stream of control for {tpu['mxus_per_core']} matrix units, {share:.0f} × as fast as the VPU")
    return Picture(fig, tensor_core_alt(tpu), evidence)


def accesses_per_multiply_add(rows: int, cols: int) -> dict[str, float]:
    """Register-file accesses for each multiply-add: a lane's FMA, and a full array that reads x and writes sums."""
    return {"FMA of one lane": 3 + 1, "systolic array": (rows + cols) / (rows * cols)}


def draw_register_traffic(ax, rows: int, cols: int):
    """Fig A-2: an FMA goes to the register file for all its operands, a cell only to its neighbours."""
    diagram(ax, 110, 54)
    box(ax, 4, 33, 38, 12, "register file", role="memory")
    box(ax, 13, 8, 20, 12, "FMA\na × b + c", role="compute")
    for x, name in ((15, "a"), (20, "b"), (25, "c")):
        arrow(ax, (x, 33), (x, 20), role="memory")
        ax.text(x - 1.4, 26, name, ha="center", fontsize=9)
    arrow(ax, (31, 20), (31, 33), role="compute")
    ax.text(34, 26, "result", fontsize=9)
    ax.text(23, 49, "A lane of a GPU", ha="center", fontsize=10, weight="bold")
    ax.text(23, 2.5, "3 reads + 1 write for each multiply-add", ha="center", fontsize=9)
    left, size = 60, 10
    box(ax, 50, 8, 5, 36, role="memory")
    ax.text(52.5, 26, "registers", rotation=90, ha="center", va="center", fontsize=9)
    for r in range(3):
        for c in range(3):
            x, y = left + 13 * c, 33 - 12.5 * r
            box(ax, x, y, size, size, f"w{r}{c}", role="compute", fill=0.25)
            arrow(ax, (x - 3.4 if c else 55, y + 7), (x, y + 7), role="memory")
            if r < 2:
                arrow(ax, (x + 5, y), (x + 5, y - 2.8), role="compute")
        ax.text(left + 39, 33 - 12.5 * r + 4.2, f"... {cols}", fontsize=9, color="#555555")
    for c in range(3):
        arrow(ax, (left + 13 * c + 5, 8), (left + 13 * c + 5, 4.6), role="compute")
    ax.text(left + 18, 49, "A weight-stationary array", ha="center", fontsize=10, weight="bold")
    ax.text(left + 18, 1.8, f"one x read for {cols} multiply-adds, one sum written for {rows}", ha="center", fontsize=9)
    ax.text(left - 2.2, 45.5, "x", fontsize=9, color=ROLE["memory"], ha="center")
    ax.text(left + 38.5, 5.5, "sums", fontsize=9, color=ROLE["compute"])
    return ax


def register_traffic_alt(rows: int, cols: int) -> str:
    lane, array = accesses_per_multiply_add(rows, cols).values()
    return (f"Left, a lane of a GPU: each multiply-add reads three registers and writes one, {lane} accesses. Right, a "
            f"systolic array of {rows} x {cols}: x goes from cell to cell, sums go down, weights stay; full, it makes "
            f"one register access for {1 / array:.0f} multiply-adds.")


def show_register_traffic(rows: int = 128, cols: int = 128, evidence="") -> Picture:
    """Fig A-2 for an array of rows x cols cells."""
    fig, ax = new(8.2, 4.2)
    draw_register_traffic(ax, rows, cols)
    lane, array = accesses_per_multiply_add(rows, cols).values()
    ax.set_title(f"For each multiply-add, a full array goes to the registers {lane / array:.0f} times less often")
    return Picture(fig, register_traffic_alt(rows, cols), evidence)


LOADS = {"hidden": ("load hidden", ROLE["compute"], "-"), "exposed": ("load exposed", ROLE["limit"], "--")}


def draw_utilisation(ax, data, over: str):
    """Utilisation over a column of `data` ("m" or "n"): the formula as a line, where `simulated` is known as dots."""
    for load, rows in data.groupby("weight_load", sort=False):
        name, colour, dash = LOADS[load]
        rows = rows.sort_values(over)
        line, = ax.plot(rows[over], rows["formula"], dash, color=colour)
        seen = rows.dropna(subset="simulated")
        ax.plot(seen[over], seen["simulated"], "o", color=colour)
        if data["weight_load"].nunique() > 1:
            label_line(ax, line, name, dy=5 if load == "hidden" else -5)
    ax.set(ylim=(0, 1.05), ylabel="share of the cells' time used")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return ax


def utilisation_alt(data, over: str, name: str) -> str:
    seen = data.dropna(subset="simulated")
    parts = (f"{LOADS[load][0]}: " + ", ".join(f"{u:.1%} at {v:,}" for v, u in zip(rows[over], rows["simulated"],
                                                                                   strict=True))
             for load, rows in seen.groupby("weight_load", sort=False))
    return f"Simulated utilisation over {name}. {'; '.join(parts)}. The formula's line goes through every point."


def show_utilisation_rows(data, evidence="") -> Picture:
    """Utilisation over the rows of x; data: m, weight_load, simulated (may be missing), formula."""
    fig, ax = new(7.2, 3.8)
    draw_utilisation(ax, data, "m")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_xlabel("rows of x that share one set of weights (dots: simulated, lines: formula)")
    hidden = data[data["weight_load"] == "hidden"].dropna(subset="simulated").sort_values("m")
    first, last = hidden.iloc[0], hidden.iloc[-1]
    ax.set_title(f"Few rows waste the array: {first['simulated']:.1%} used at {first['m']:,}, "
                 f"{last['simulated']:.0%} at {last['m']:,}")
    return Picture(fig, utilisation_alt(data, "m", "the rows of x"), evidence)


def show_utilisation_columns(data, cols: int, evidence="") -> Picture:
    """Utilisation over the columns of w; data as for `show_utilisation_rows`, with n instead of m."""
    fig, ax = new(7.2, 3.6)
    draw_utilisation(ax, data, "n")
    ax.set_xticks(np.arange(0, data["n"].max() + 1, cols))
    ax.set_xlabel("columns of w (dots: simulated, line: formula)")
    known = data.dropna(subset="simulated").set_index("n")["simulated"]
    ax.set_title(f"One column too many: {known[cols]:.0%} used at {cols}, {known[cols + 1]:.0%} at {cols + 1}")
    return Picture(fig, utilisation_alt(data, "n", "the columns of w"), evidence)


def draw_rooflines(ax, chips: list[dict]):
    """Attainable bf16 TFLOPS over FLOP per byte for chips of {name, kind, tflops, bandwidth_gb_per_s}."""
    intensity = np.geomspace(8, 2048, 200)
    for chip in chips:
        role, dash = (ROLE["accent"], "-") if chip["kind"] == "TPU" else (ROLE["limit"], "--")
        ridge = chip["tflops"] * 1e3 / chip["bandwidth_gb_per_s"]
        line, = ax.plot(intensity, np.minimum(chip["tflops"], intensity * chip["bandwidth_gb_per_s"] / 1e3), dash,
                        color=role, zorder=3 if chip["kind"] == "TPU" else 2,
                        linewidth=2.6 if chip["kind"] == "TPU" else 1.4)
        ax.plot([ridge], [chip["tflops"]], "o", color=role)
        ax.annotate(f"{ridge:.0f}", (ridge, chip["tflops"]), xytext=(5, -4), textcoords="offset points",
                    ha="left", va="top", fontsize=8.5, color="#333333")
        label_line(ax, line, f"{chip['name']}: {chip['tflops']:,.0f}")
    ax.set(xscale="log", yscale="log", xlabel="FLOP per byte of device memory (dots: the ridge)",
           ylabel="attainable bf16 TFLOPS")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.set_xticks([8, 32, 128, 512, 2048])
    ax.minorticks_off()
    return ax


def rooflines_alt(chips: list[dict]) -> str:
    parts = (f"{c['name']} {c['tflops']:,.0f} TFLOPS, {c['bandwidth_gb_per_s']:,.0f} GB/s, ridge at "
             f"{c['tflops'] * 1e3 / c['bandwidth_gb_per_s']:.0f} FLOP per byte" for c in chips)
    return f"Rooflines in bf16: {'; '.join(parts)}."


def show_rooflines(chips: list[dict], evidence="") -> Picture:
    fig, ax = new(7.6, 4.2)
    draw_rooflines(ax, chips)
    ridges = [c["tflops"] * 1e3 / c["bandwidth_gb_per_s"] for c in chips]
    ax.set_title(f"All need {min(ridges):.0f} to {max(ridges):.0f} FLOP for each byte of memory to reach their peak")
    return Picture(fig, rooflines_alt(chips), evidence)
