"""Figures of lesson 02 drawn from facts and a model: one SM (Fig 1-3), levels (Fig 1-4), the scheduler (Fig 1-5)."""

from matplotlib.colors import to_rgba_array

from figures.style import ROLE, SERIES, Picture, box, diagram, new
from helpers.evidence import simulated
from helpers.simt.scheduler import (
    DONE,
    ISSUED,
    NAMES,
    POLICIES,
    READY,
    WAITING,
    Instruction,
    chain,
    loop,
    schedule,
    smsps,
)
from helpers.specs import gpu, products

# ------------------------------------------------------------------------------------- Fig 1-3: one SM
SM_CONTROLS = {"name": ([g.name for g in products()], "RTX 5090")}


def sm_facts(name: str) -> dict:
    """What an SM of a GPU holds, for the drawing; None where unknown."""
    sm = gpu(name).limits
    return {
        "gpu": gpu(name).name, "smsps": sm.smsps_per_sm, "lanes": sm.fp32_lanes_per_smsp,
        "registers_kib": sm.registers_kib_per_sm // sm.smsps_per_sm, "slots": sm.max_warps_per_smsp,
        "tensor_cores": None if sm.tensor_cores_per_sm is None else sm.tensor_cores_per_sm // sm.smsps_per_sm,
        "tensor_cores_doubtful": f"{sm.cc[0]}.{sm.cc[1]} is unverified" in (getattr(sm.fact("tensor_cores_per_sm"), "note", "")),
        "unified_kib": sm.unified_cache_kib, "shared_kib": sm.shared_kib_per_sm, "tmem_kib": sm.tensor_memory_kib_per_sm,
    }


def draw_sm(ax, name: str):
    """Four SMSPs side by side, each with scheduler, warp slots, registers, lanes and Tensor Cores; below, what they share."""
    facts = sm_facts(name)
    diagram(ax, 100, 58)
    box(ax, 1, 1, 98, 56, role="muted", fill=0.08)
    for s in range(facts["smsps"]):
        left, width = 3 + s * 24, 22
        box(ax, left, 16, width, 36, role="limit", fill=0.0)
        ax.text(left + width / 2, 53.2, f"SMSP {s}", ha="center", fontsize=9, fontweight="bold")
        box(ax, left + 1, 46, width - 2, 5, "warp scheduler", role="accent", fill=0.35, fontsize=8.5)
        slots = facts["slots"] or 0
        for i in range(slots):
            box(ax, left + 1 + i * (width - 2) / max(slots, 1), 43, (width - 2) / max(slots, 1), 2.2, role="accent", fill=0.12)
        ax.text(left + width / 2, 40.6, f"{slots or 'unknown number of'} warp slots", ha="center", fontsize=8,
                color=ROLE["limit"])
        box(ax, left + 1, 34.5, width - 2, 4.6, f"registers {facts['registers_kib']} KiB", role="compute", fill=0.25,
            fontsize=8.5)
        lanes = facts["lanes"] or 0
        for i in range(lanes):
            row, column = divmod(i, 8)
            box(ax, left + 1 + column * (width - 2) / 8, 31.6 - row * 2.3, (width - 2) / 8, 2.0, role="compute", fill=0.5)
        ax.text(left + width / 2, 22.6 if lanes > 16 else 27.0, f"{lanes or 'unknown number of'} FP32 lanes", ha="center",
                va="top" if lanes <= 16 else "center", fontsize=8, color=ROLE["limit"])
        cores = facts["tensor_cores"]
        text = "Tensor Core" if cores == 1 else "Tensor Cores: unknown" if cores is None else f"{cores} Tensor Cores"
        text += " ?" if facts["tensor_cores_doubtful"] else ""
        box(ax, left + 1, 17, width - 2, 4, text, role="model", fill=0.25, fontsize=8.5)
    extra = f"\nbeside it {facts['tmem_kib']} KiB of Tensor Memory for the Tensor Cores" if facts["tmem_kib"] else ""
    box(ax, 3, 3, 94, 10, f"L1 cache and shared memory: {facts['unified_kib']} KiB, of which shared at most "
        f"{facts['shared_kib']} KiB\none block's threads meet here{extra}", role="memory", fill=0.22, fontsize=9)
    return ax


def sm_alt(name: str) -> str:
    f = sm_facts(name)
    return (f"One SM of the {f['gpu']}: {f['smsps']} SMSPs, each with a warp scheduler, {f['slots']} warp slots, "
            f"{f['registers_kib']} KiB of registers and {f['lanes']} FP32 lanes; {f['unified_kib']} KiB of L1 and shared "
            f"memory for all.")


def show_sm(name: str = "RTX 5090") -> Picture:
    fig, ax = new(7.6, 4.7)
    draw_sm(ax, name)
    f = sm_facts(name)
    cycles = 32 // f["lanes"] if f["lanes"] else None
    took = {1: "in one cycle", 2: "in two cycles", None: ""}[cycles]
    ax.set_title(f"{f['gpu']}: {f['lanes']} lanes take a warp's 32 threads {took}")
    doubt = " · ? unverified" if f["tensor_cores_doubtful"] else ""
    return Picture(fig, sm_alt(name), f"published · CUDA Programming Guide tables 30-33, table 1-1{doubt}")


# ------------------------------------------------------------------------------------- Fig 1-4: levels
LEVELS = [  # level, how many, runs on, what its members share
    ("grid", "all blocks of a launch", "the whole GPU", "device memory, L2"),
    ("cluster", "up to 8 blocks (from 9.0 on, optional)", "neighbouring SMs", "each other's shared memory"),
    ("block", "1 to 32 warps", "one SM, until it ends", "shared memory, barriers"),
    ("warp", "32 threads", "one SMSP, for life", "the issue slot, shuffles"),
    ("thread", "", "one lane", "nothing (own registers)"),
]


def draw_levels(ax):
    """Five nested levels; beside each, where it runs and what its members share."""
    diagram(ax, 100, 50)
    shades = [ROLE["muted"], SERIES[5], ROLE["memory"], ROLE["accent"], ROLE["compute"]]
    ax.text(45, 46.5, "runs on", fontsize=9, fontweight="bold")
    ax.text(70, 46.5, "its members share", fontsize=9, fontweight="bold")
    for i, ((level, size, where, shares), colour) in enumerate(zip(LEVELS, shades, strict=True)):
        top = 45 - 9 * i
        box(ax, 1 + 2 * i, 1, 41 - 4 * i, top - 1 - 0.5 * i, role=colour, fill=0.16)
        ax.text(3 + 2 * i, top - 3.2 - 0.5 * i, level, fontsize=9.5, fontweight="bold", va="center")
        ax.text(3 + 2 * i, top - 6.2 - 0.5 * i, size, fontsize=7.5, va="center", color=ROLE["limit"])
        y = top - 4.5 - 0.5 * i
        ax.plot([42 - 2 * i, 44], [y, y], color=ROLE["muted"], linewidth=0.8)
        ax.text(45, y, where, fontsize=9, va="center")
        ax.text(70, y, shares, fontsize=9, va="center")
    return ax


def levels_alt() -> str:
    return "Levels of threads: " + "; ".join(f"a {level} runs on {where} and its members share {shares}"
                                             for level, _, where, shares in reversed(LEVELS)) + "."


def show_levels() -> Picture:
    fig, ax = new(7.6, 3.9)
    draw_levels(ax)
    ax.set_title("Each level has a piece of hardware of its own")
    return Picture(fig, levels_alt(), "published · CUDA Programming Guide, section 1.2")


# ------------------------------------------------------------------------------------- Fig 1-5: one cycle of an SM
def one_cycle(blocks: int = 3, warps_per_block: int = 4, cycle: int = 20, waiting_smsp: int = 2) -> list[dict]:
    """The warps of each SMSP at a cycle: names and states. Those of one SMSP wait for memory; the others compute on two
    independent chains a warp, so that now and then more than one may go on. SMSPs are not in step."""
    found = []
    memory = [Instruction("load", 400, needs=0), Instruction("fma", 4)]
    two_chains = [Instruction("fma", 4, needs=0)] * 2 + [Instruction("fma", 4, needs=2)] * 40
    for s, held in enumerate(smsps(blocks, warps_per_block)):
        stream, at = (memory, cycle) if s == waiting_smsp else (two_chains, cycle + 2 * (s % 2))
        trace = schedule([stream] * len(held), cycles=at + 1)
        found.append({"names": [f"B{block} w{warp}" for block, warp in held],
                      "states": [states[at] for states in trace.states]})
    return found


STATE_ROLE = {ISSUED: ("compute", 0.85), READY: ("accent", 0.45), WAITING: ("muted", 0.25), DONE: ("muted", 0.0)}


def draw_cycle(ax, held: list[dict], slots: int):
    """Resident warps of each SMSP and, above, what its scheduler issues in this cycle."""
    diagram(ax, 100, 44)
    for s, smsp in enumerate(held):
        left = 3 + s * 24.5
        box(ax, left, 2, 22, 34, role="limit", fill=0.0)
        ax.text(left + 11, 40.8, f"SMSP {s}", ha="center", fontsize=9, fontweight="bold")
        issued = [n for n, state in zip(smsp["names"], smsp["states"], strict=True) if state == ISSUED]
        ax.text(left + 11, 37.6, f"issues {issued[0]}" if issued else "issues nothing", ha="center", fontsize=8.5,
                color=ROLE["compute"] if issued else ROLE["limit"])
        for i, (name, state) in enumerate(zip(smsp["names"], smsp["states"], strict=True)):
            role, fill = STATE_ROLE[state]
            box(ax, left + 1.2, 28.5 - 8 * i, 19.6, 6.6, f"{name}\n{state}", role=role, fill=fill, fontsize=8,
                color="white" if state == ISSUED else "#1a1a1a")
        ax.text(left + 11, 4.2, f"{slots - len(smsp['names'])} slots free", ha="center", fontsize=8, color=ROLE["limit"])
    return ax


def cycle_alt(held: list[dict], slots: int) -> str:
    idle = [s for s, smsp in enumerate(held) if ISSUED not in smsp["states"]]
    resident = sum(len(smsp["names"]) for smsp in held)
    return (f"One cycle of an SM with {resident} of {slots * len(held)} warps resident: "
            f"{len(held) - len(idle)} SMSPs issue one warp each; SMSP {', '.join(map(str, idle)) or 'none'} issues nothing, "
            "all of its warps wait.")


def show_cycle(name: str = "RTX 5090", blocks: int = 3, warps_per_block: int = 4) -> Picture:
    slots = gpu(name).limits.max_warps_per_smsp
    held = one_cycle(blocks, warps_per_block)
    fig, ax = new(7.6, 3.7)
    draw_cycle(ax, held, slots)
    resident = blocks * warps_per_block
    issued = sum(ISSUED in smsp["states"] for smsp in held)
    ax.set_title(f"{resident} warps resident, {issued} issued: SMSP 2 has warps but none that may go on")
    return Picture(fig, cycle_alt(held, slots), simulated("scheduler model, one cycle"))


# ------------------------------------------------------------------------------------- the scheduler, cycle by cycle
WORK = {"dependent FMAs": "compute", "load, then 8 FMAs": "plain", "load ahead, 8 FMAs": "early"}
SCHEDULER_CONTROLS = {
    "warps": ([1, 2, 3, 4, 5, 6, 8, 12], 1),
    "latency": ([2, 4, 6, 8], 4),
    "work": (list(WORK), "dependent FMAs"),
    "policy": (list(POLICIES), "fixed order"),
    "cycles": ([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 20, 24, 32, 48], 24),
}


def streams(warps: int, latency: int = 4, work: str = "dependent FMAs", steps: int = 8) -> list[list[Instruction]]:
    """Instruction streams of the widget: a load takes 20 cycles there, so that a page can show several. `steps` loops of 8 FMAs."""
    if work not in WORK:
        raise ValueError(f"work must be one of {', '.join(WORK)}, got {work!r}")
    kind = WORK[work]
    stream = chain(8 * steps, latency) if kind == "compute" else loop(steps, 8, fma_latency=latency, memory_latency=20,
                                                              early=kind == "early")
    return [stream] * warps


def slots_used(warps=(1, 2, 4, 6, 8, 12), latency: int = 4, cycles: int = 1000) -> list[dict]:
    """Share of the issue slots that each kind of work uses in the long run, by the number of warps: the widget as a table."""
    return [{"work": work} | {f"{n} warp{'s' * (n > 1)}": f"{schedule(streams(n, latency, work, 400), cycles).utilisation:.0%}"
                              for n in warps} for work in WORK]


def draw_timeline(ax, trace, cycles: int):
    """One row a warp and one below for the issue slot; one column a cycle."""
    warps = len(trace.states)
    looks = {ISSUED: ROLE["compute"], READY: ROLE["accent"], WAITING: "#e4e4e4", DONE: "white"}
    shown = min(cycles, trace.cycles)
    colours = [[ROLE["memory"] if states[cycle] == ISSUED and trace.kinds[cycle] != "fma" else looks[states[cycle]]
                for cycle in range(shown)] for states in trace.states]
    ax.imshow(to_rgba_array(sum(colours, [])).reshape(warps, shown, 4)[..., :3], extent=(0, shown, 1 - warps, 1), aspect="auto",
              interpolation="nearest")
    ax.vlines(range(shown + 1), 1 - warps, 1, color="white", linewidth=0.8)
    ax.hlines(range(1 - warps, 2), 0, shown, color="white", linewidth=2.4)
    for cycle in range(shown):
        warp = trace.issued[cycle]
        ax.text(cycle + 0.5, -warps + 0.1, "." if warp is None else NAMES[warp], ha="center", va="center",
                fontsize=9 if cycles <= 24 else 7.5, family="DejaVu Sans Mono", fontweight="bold")
    ax.set(xlim=(-0.1, cycles + 0.1), ylim=(-warps - 0.5, 1.2), xlabel="cycle",
           yticks=[0.5 - w for w in range(warps)] + [-warps + 0.1],
           yticklabels=[f"warp {NAMES[w]}" for w in range(warps)] + ["issued"])
    step = 1 if cycles <= 12 else 4
    ax.set_xticks([c + 0.5 for c in range(0, cycles, step)], [str(c) for c in range(0, cycles, step)])
    ax.grid(False)
    for text, colour, x in (("FMA issued", ROLE["compute"], 0.0), ("load or store issued", ROLE["memory"], 0.17),
                            ("ready, not chosen", ROLE["accent"], 0.43), ("waiting", "#e4e4e4", 0.67)):
        ax.annotate("■", (x, 1.0), xycoords="axes fraction", color=colour, fontsize=10, va="bottom")
        ax.annotate(text, (x + 0.025, 1.01), xycoords="axes fraction", fontsize=8.5, va="bottom")
    return ax


def timeline_alt(trace, cycles: int) -> str:
    warps, issued = len(trace.states), " ".join(trace.text().split()[:cycles])
    return (f"{warps} warp{'s' * (warps > 1)} over {cycles} cycles. Issued: {issued} (a dot is an empty slot). "
            f"{trace.utilisation:.0%} of the issue slots are used.")


def show_scheduler(warps: int = 1, latency: int = 4, work: str = "dependent FMAs", policy: str = "fixed order",
                   cycles: int = 24) -> Picture:
    """The first `cycles` cycles of an SMSP with `warps` equal warps."""
    trace = schedule(streams(warps, latency, work), cycles=cycles, policy=policy)
    fig, ax = new(7.6, 1.5 + 0.24 * warps)
    draw_timeline(ax, trace, cycles)
    ax.set_title(f"{warps} warp{'s' * (warps > 1)}: {trace.utilisation:.0%} of {cycles} issue slots used", pad=20)
    return Picture(fig, timeline_alt(trace, cycles), simulated("scheduler model, one SMSP"))
