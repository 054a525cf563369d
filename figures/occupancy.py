"""Figures of lesson 07: issue slots filled by waiting warps, and what limits occupancy. Fig 2-5 is in figures/fma_chain."""

from figures.style import ROLE, Picture, new
from helpers.evidence import simulated
from helpers.occupancy import RESOURCES, occupancy
from helpers.specs import capabilities

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
        ax.text(count + top * 0.01, i, f"{count}" + (", decides" if decides else ""), va="center", fontsize=9)
    ax.axvline(found.blocks, color=ROLE["limit"], linestyle="--", linewidth=1)
    ax.set(xlim=(0, top * 1.2), ylim=(3.5, -0.5), xlabel="blocks on an SM", yticks=range(4), yticklabels=RESOURCES)
    ax.grid(axis="y", visible=False)
    return ax


def occupancy_alt(found) -> str:
    return (f"{found.target}, {found.threads} threads, {found.registers} registers, {found.shared_bytes} bytes of shared "
            f"memory: {found.blocks} blocks, {found.warps} of {found.max_warps} warps. {found.reason}")


def show_occupancy(target="sm_90", threads: int = 256, registers: int = 32, shared_kib: float = 0, evidence=None) -> Picture:
    found = occupancy(target, threads, registers, int(shared_kib * 1024))
    fig, ax = new(7.2, 2.6)
    draw_occupancy(ax, found)
    verb = "decides" if found.limiters == ("shared memory",) else "decide"
    ax.set_title(f"{100 * found.fraction:.3g} % occupancy: {found.warps} of {found.max_warps} warps; "
                 f"{' and '.join(found.limiters)} {verb}" if found.blocks else "This kernel cannot be launched")
    return Picture(fig, occupancy_alt(found), evidence or "derived · limits of table 1-2")


def draw_latency_arithmetic(ax, latency: int, lanes: int = 32, most: int = 8):
    """min(1, m x slots / latency): the share of an SMSP's lanes that m warps with one chain each keep busy."""
    warps = range(1, most + 1)
    share = [100 * min(1, m * 32 / lanes / latency) for m in warps]
    ax.bar(warps, share, color=[ROLE["compute"] if s < 100 else ROLE["model"] for s in share], width=0.7)
    for m, s in zip(warps, share, strict=True):
        ax.text(m, s + 1.5, f"{s:.0f} %", ha="center", fontsize=8.5)
    ax.set(xlabel="warps on an SMSP, one chain of FMAs each", ylabel="time in which FMAs run (%)", ylim=(0, 115))
    ax.set_xticks(list(warps))
    return ax


def show_latency_arithmetic(latency: int = 4, lanes: int = 32) -> Picture:
    needed = -(-latency * lanes // 32)
    fig, ax = new(6.4, 3.0)
    draw_latency_arithmetic(ax, latency, lanes)
    ax.set_title(f"{latency} cycles from FMA to FMA on {lanes} lanes: {needed} warps fill them")
    alt = (f"With {latency} cycles from one FMA to the next and {lanes} lanes, one warp keeps the lanes busy "
           f"{min(1, 32 / lanes / latency):.0%} of the time and {needed} warps all of it.")
    return Picture(fig, alt, simulated("min(1, warps x 32 / lanes / latency)"))
