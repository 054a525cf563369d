"""Figures of lesson 07: the FMA chain over warps (Fig 2-5), who ended when, and where occupancy comes from."""

from figures.style import MARKERS, ROLE, SERIES, Picture, limit_line, new
from helpers.evidence import simulated
from helpers.fma_model import Machine, fraction_of_peak, median_error
from helpers.occupancy import RESOURCES, occupancy
from helpers.specs import capabilities

K_COLOURS = {1: SERIES[0], 8: SERIES[5], 64: SERIES[2], 512: SERIES[1], 2048: "#222222"}


# ------------------------------------------------------------------------------------- Fig 2-5
def draw_fma_chain(ax, table, machine: Machine, ks=(64, 512, 2048), variant="one element", published=()):
    """Measured shares of the FP32 peak over warps per SMSP for some k, dashed the prediction, diamonds the published."""
    for k, marker in zip(ks, MARKERS, strict=False):
        rows = table[(table["variant"] == variant) & (table["k"] == k)].sort_values("warps_per_smsp")
        warps, share = rows["warps_per_smsp"], 100 * rows["tflops"] / machine.peak_tflops
        ax.plot(warps, share, marker=marker, color=K_COLOURS[k], linewidth=0, markersize=6, zorder=3)
        ax.plot(warps, [100 * fraction_of_peak(machine, k, int(m), variant) for m in warps], color=K_COLOURS[k],
                linestyle="--", linewidth=1.4, zorder=2)
        ax.annotate(f"k = {k}", (warps.iloc[-1], share.iloc[-1]), xytext=(9, 0), textcoords="offset points", va="center",
                    fontsize=9, color=K_COLOURS[k], annotation_clip=False)
    for warps, share in published:
        ax.plot(warps, 100 * share, "D", color=ROLE["published"], markersize=9, markeredgecolor="black", zorder=4)
        ax.annotate(f"{share:.0%} published", (warps, 100 * share), xytext=(10, 6 if share > 0.5 else -14),
                    textcoords="offset points", fontsize=8.5, color=ROLE["published"])
    most = int(table["warps_per_smsp"].max())
    ax.set(xlabel="warps on every SMSP", ylabel="share of the FP32 peak (%)", ylim=(0, 108), xlim=(0.4, most + 0.6))
    ax.set_xticks(range(1, most + 1))
    return ax


def _dips(table, variant, k) -> str:
    share = table[(table["variant"] == variant) & (table["k"] == k)].set_index("warps_per_smsp")["tflops"]
    return ", ".join(f"{m} warps {share[m] / share[4]:.0%}" for m in (5, 6, 7, 8) if m in share.index)


def fma_chain_alt(table, machine: Machine, ks=(64, 512, 2048), variant="one element") -> str:
    parts = []
    for k in ks:
        share = table[(table["variant"] == variant) & (table["k"] == k)].set_index("warps_per_smsp")["tflops"]
        share = share / machine.peak_tflops
        parts.append(f"k = {k}: " + ", ".join(f"{share[m]:.0%} at {m}" for m in (1, 4, 5, 8) if m in share.index))
    return f"Share of the FP32 peak over warps per SMSP, {variant}. {'; '.join(parts)}."


def show_fma_chain(table, machine: Machine, rows=None, ks=(64, 512, 2048), variant="one element", published=(),
                   evidence="") -> Picture:
    """`table` of measure("fma_chain_warps"); `rows` of fma_model.predicted, for the error in the title."""
    fig, ax = new(7.6, 4.3)
    draw_fma_chain(ax, table, machine, ks, variant, published)
    best = table[(table["variant"] == variant) & (table["warps_per_smsp"] == 4)]["tflops"].max() / machine.peak_tflops
    error = f"; model (dashed) off by {median_error(rows):.0%}" if rows is not None else ""
    ax.set_title(f"{variant}: four warps reach {best:.0%} of the peak{error}")
    return Picture(fig, fma_chain_alt(table, machine, ks, variant), evidence)


def draw_variants(ax, table, machine: Machine, k: int = 512, variants=None):
    """Share of the peak over warps for several ways of writing the same chain."""
    looks = {"plain loads": (ROLE["memory"], "o", "-"), "one element": (ROLE["compute"], "s", "-"),
             "one element, load moved down": (ROLE["compute"], "v", ":"), "four elements": (ROLE["model"], "D", "-"),
             "four elements, plain loads": (ROLE["model"], "P", ":")}
    for variant in variants or looks:
        rows = table[(table["variant"] == variant) & (table["k"] == k)].sort_values("warps_per_smsp")
        if len(rows):
            colour, marker, style = looks[variant]
            ax.plot(rows["warps_per_smsp"], 100 * rows["tflops"] / machine.peak_tflops, marker=marker, color=colour,
                    linestyle=style, label=variant)
    most = int(table["warps_per_smsp"].max())
    ax.set(xlabel="warps on every SMSP", ylabel="share of the FP32 peak (%)", ylim=(0, 108), xlim=(0.4, most + 0.6))
    ax.set_xticks(range(1, most + 1))
    ax.legend(loc="lower right")
    return ax


def variants_alt(table, machine: Machine, k: int = 512) -> str:
    parts = []
    for variant, rows in table[table["k"] == k].groupby("variant", sort=False):
        share = rows.set_index("warps_per_smsp")["tflops"] / machine.peak_tflops
        parts.append(f"{variant}: {share[1]:.0%} at 1 warp, {share[4]:.0%} at 4")
    return f"Share of the FP32 peak with k = {k}. {'; '.join(parts)}."


def show_variants(table, machine: Machine, k: int = 512, evidence="") -> Picture:
    fig, ax = new(7.6, 4.1)
    draw_variants(ax, table, machine, k)
    at_one = table[(table["k"] == k) & (table["warps_per_smsp"] == 1)].set_index("variant")["tflops"] / machine.peak_tflops
    ax.set_title(f"One warp: {at_one['one element']:.0%} with one chain a thread, {at_one['four elements']:.0%} with four")
    return Picture(fig, variants_alt(table, machine, k), evidence)


def draw_memory_lines(ax, table, machine: Machine, peak_gb_per_s: float):
    """Rate over warps of the chains that memory limits, k = 1 and 8, with one and four elements a thread."""
    for variant, style, marker in (("one element", "-", "o"), ("four elements", ":", "D")):
        for k in (1, 8):
            rows = table[(table["variant"] == variant) & (table["k"] == k)].sort_values("warps_per_smsp")
            warps = rows["warps_per_smsp"]
            ax.plot(warps, rows["bandwidth_gb_per_s"] / 1e3, marker=marker, color=K_COLOURS[k], linestyle=style,
                    label=f"{variant}, k = {k}")
            if variant == "one element" and k == 1:
                rate = [fraction_of_peak(machine, k, int(m), variant) * machine.peak_tflops * 4 / k for m in warps]
                ax.plot(warps, rate, color=ROLE["model"], linestyle="--", linewidth=1.4, label="model, one element, k = 1")
    limit_line(ax, peak_gb_per_s / 1e3, f"datasheet: {peak_gb_per_s / 1e3:.1f} TB/s")
    most = int(table["warps_per_smsp"].max())
    ax.set(xlabel="warps on every SMSP", ylabel="read + written (TB/s)", ylim=(0, peak_gb_per_s / 1e3 * 1.15),
           xlim=(0.4, most + 0.6))
    ax.set_xticks(range(1, most + 1))
    ax.legend(loc="lower right", fontsize=8.5)
    return ax


def plateau(table, variant: str, k: int = 1, within: float = 0.05) -> int:
    """The fewest warps per SMSP that come within 5 % of the line's highest rate."""
    rows = table[(table["variant"] == variant) & (table["k"] == k)].sort_values("warps_per_smsp")
    rate = rows["bandwidth_gb_per_s"]
    return int(rows["warps_per_smsp"][rate >= (1 - within) * rate.max()].iloc[0])


def memory_lines_alt(table) -> str:
    parts = []
    for variant in ("one element", "four elements"):
        rows = table[(table["variant"] == variant) & (table["k"] == 1)].sort_values("warps_per_smsp")
        rate = rows.set_index("warps_per_smsp")["bandwidth_gb_per_s"] / 1e3
        parts.append(f"{variant}: {rate.iloc[0]:.2f} TB/s at 1 warp, {rate.max():.2f} at most, within 5 % of it from "
                     f"{plateau(table, variant)} warps on")
    return f"Rate of a chain of one FMA over warps per SMSP. {'; '.join(parts)}."


def show_memory_lines(table, machine: Machine, peak_gb_per_s: float, evidence="") -> Picture:
    fig, ax = new(7.6, 4.0)
    draw_memory_lines(ax, table, machine, peak_gb_per_s)
    ax.set_title(f"Memory is near its best from {plateau(table, 'one element')} warps on, with four elements from "
                 f"{plateau(table, 'four elements')}")
    return Picture(fig, memory_lines_alt(table), evidence)


# ------------------------------------------------------------------------------------- who ended when
def draw_ends(ax, table, k: int = 2048, variant: str = "one element"):
    """For each number of warps: when a quarter, half and three quarters of the programs had ended, in % of the whole."""
    rows = table[(table["variant"] == variant) & (table["k"] == k)].sort_values("warps_per_smsp")
    columns = (("quarter_ended", "a quarter ended", "o"), ("half_ended", "half", "s"),
               ("three_quarters_ended", "three quarters", "^"))
    for (column, label, marker), colour in zip(columns, (SERIES[5], ROLE["memory"], ROLE["compute"]), strict=True):
        ax.plot(rows["warps_per_smsp"], 100 * rows[column], marker=marker, color=colour, label=label)
    most = int(rows["warps_per_smsp"].max())
    ax.set(xlabel="warps on every SMSP", ylabel="after this share of the time (%)", ylim=(0, 108), xlim=(0.4, most + 0.6))
    ax.set_xticks(range(1, most + 1))
    ax.legend(loc="lower left")
    return ax


def ends_alt(table, k: int = 2048, variant: str = "one element") -> str:
    rows = table[(table["variant"] == variant) & (table["k"] == k)].set_index("warps_per_smsp")
    parts = [f"{m} warps: a quarter of the programs had ended after {rows['quarter_ended'][m]:.0%} of the time, three "
             f"quarters after {rows['three_quarters_ended'][m]:.0%}" for m in (4, 5, 8) if m in rows.index]
    return f"When programs of equal work ended, k = {k}. {'; '.join(parts)}."


def show_ends(table, k: int = 2048, variant: str = "one element", evidence="") -> Picture:
    fig, ax = new(7.6, 3.5)
    draw_ends(ax, table, k, variant)
    rows = table[(table["variant"] == variant) & (table["k"] == k)].set_index("warps_per_smsp")
    ax.set_title(f"With 5 warps, three quarters of the programs end after {rows['three_quarters_ended'][5]:.0%} of the time")
    return Picture(fig, ends_alt(table, k, variant), evidence)


# ------------------------------------------------------------------------------------- occupancy
OCCUPANCY_CONTROLS = {
    "target": ([f"sm_{c.replace('.', '')}" for c in capabilities()], "sm_90"),
    "threads": ([32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024], 256),
    "registers": ([16, 24, 32, 33, 37, 40, 48, 64, 80, 96, 128, 168, 200, 255], 32),
    "shared_kib": ([0, 1, 8, 16, 32, 45, 48, 64, 96, 100, 128, 164, 227], 0),
}


def draw_occupancy(ax, found):
    """Blocks that each resource alone would allow; the scarcest one decides."""
    counts = [found.by_threads, found.by_registers, found.by_shared, found.by_blocks]
    top = max(c for c in counts if c is not None)
    for i, (name, count) in enumerate(zip(RESOURCES, counts, strict=True)):
        if count is None:
            ax.text(top * 0.01, i, "not used", va="center", fontsize=8.5, color=ROLE["limit"], style="italic")
            continue
        decides = name in found.limiters
        ax.barh(i, count, height=0.6, color=ROLE["compute"] if decides else ROLE["muted"])
        ax.text(count + top * 0.01, i, f"{count}" + (" decides" if decides else ""), va="center", fontsize=9)
    ax.axvline(found.blocks, color=ROLE["limit"], linestyle="--", linewidth=1)
    ax.set(xlim=(0, top * 1.2), ylim=(3.5, -0.5), xlabel="blocks on an SM", yticks=range(4), yticklabels=RESOURCES)
    ax.grid(axis="y", visible=False)
    return ax


def occupancy_alt(found) -> str:
    return (f"{found.target}, {found.threads} threads, {found.registers} registers, {found.shared_bytes} bytes of shared "
            f"memory: {found.blocks} blocks, {found.warps} of {found.max_warps} warps. {found.reason}")


def show_occupancy(target="sm_90", threads: int = 256, registers: int = 32, shared_kib: float = 0) -> Picture:
    found = occupancy(target, threads, registers, int(shared_kib * 1024))
    fig, ax = new(7.2, 2.6)
    draw_occupancy(ax, found)
    verb = "decide" if found.limiter.endswith("s") else "decides"
    ax.set_title(f"{found.fraction:.1%} occupancy: {found.warps} of {found.max_warps} warps, {found.limiter} {verb}"
                 if found.blocks else "This kernel cannot be launched")
    return Picture(fig, occupancy_alt(found), "derived · limits of table 1-2")


def show_latency_arithmetic(machine: Machine, latency: int = 4) -> Picture:
    """min(1, m / latency): the share of issue slots that m warps with one chain each can fill."""
    fig, ax = new(6.4, 3.0)
    warps = range(1, 9)
    share = [100 * min(1, m / latency) for m in warps]
    ax.bar(warps, share, color=[ROLE["compute"] if s < 100 else ROLE["model"] for s in share], width=0.7)
    for m, s in zip(warps, share, strict=True):
        ax.text(m, s + 1.5, f"{s:.0f} %", ha="center", fontsize=8.5)
    ax.set(xlabel="warps on an SMSP", ylabel="issue slots filled (%)", ylim=(0, 115))
    ax.set_xticks(list(warps))
    ax.set_title(f"{latency} cycles of latency need {latency} warps")
    return Picture(fig, f"With a latency of {latency} cycles, 1 warp fills {100 / latency:.0f} % of the issue slots and "
                        f"{latency} warps fill all.", simulated("min(1, warps / latency)"))
