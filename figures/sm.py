"""Figures of lesson 02: one SM (Fig 1-3), levels of threads (Fig 1-4), the scheduler (Fig 1-5), warps on the hardware."""

from figures.style import MARKERS, ROLE, SERIES, Picture, box, diagram, new
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
        box(ax, left + 1, 17, width - 2, 4, text, role="model", fill=0.25, fontsize=8.5)
    extra = f"; Tensor Memory {facts['tmem_kib']} KiB" if facts["tmem_kib"] else ""
    box(ax, 3, 3, 94, 10, f"L1 cache and shared memory: {facts['unified_kib']} KiB, of which shared at most "
        f"{facts['shared_kib']} KiB{extra}\none block's threads meet here", role="memory", fill=0.22, fontsize=9)
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
    return Picture(fig, sm_alt(name), "published · CUDA Programming Guide tables 30-33, table 1-1")


# ------------------------------------------------------------------------------------- Fig 1-4: levels
LEVELS = [  # level, how many, runs on, what its members share
    ("grid", "all blocks of a launch", "the whole GPU", "device memory, L2"),
    ("cluster", "up to 8 blocks (9.0 and later, optional)", "neighbouring SMs", "distributed shared memory"),
    ("block", "1 to 32 warps", "one SM, until it ends", "shared memory, barriers"),
    ("warp", "32 threads", "one SMSP, for life", "the issue slot, shuffles"),
    ("thread", "", "one lane", "its registers"),
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
    """The warps of each SMSP at a cycle: names and states. All compute, but those of one SMSP wait for memory."""
    found = []
    for s, held in enumerate(smsps(blocks, warps_per_block)):
        memory = [Instruction("load", 400, needs=0), Instruction("fma", 4)]
        stream = memory if s == waiting_smsp else chain(40)
        trace = schedule([stream] * len(held), cycles=cycle + 1)
        found.append({"names": [f"B{block} w{warp}" for block, warp in held],
                      "states": [states[cycle] for states in trace.states]})
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


def streams(warps: int, latency: int = 4, work: str = "dependent FMAs") -> list[list[Instruction]]:
    """Instruction streams of the widget: a load takes 20 cycles there, so that a page can show several."""
    if work not in WORK:
        raise ValueError(f"work must be one of {', '.join(WORK)}, got {work!r}")
    kind = WORK[work]
    stream = chain(64, latency) if kind == "compute" else loop(8, 8, fma_latency=latency, memory_latency=20,
                                                              early=kind == "early")
    return [stream] * warps


def draw_timeline(ax, trace, cycles: int):
    """One row a warp and one below for the issue slot; one column a cycle."""
    warps = len(trace.states)
    looks = {ISSUED: ROLE["compute"], READY: ROLE["accent"], WAITING: "#e4e4e4", DONE: "white"}
    for warp, states in enumerate(trace.states):
        for cycle in range(min(cycles, trace.cycles)):
            state = states[cycle]
            load = state == ISSUED and trace.kinds[cycle] != "fma"
            box(ax, cycle + 0.04, -warp + 0.08, 0.92, 0.84, role=ROLE["memory"] if load else looks[state],
                fill=1.0 if state != DONE else 0.0)
    for cycle in range(min(cycles, trace.cycles)):
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
    return (f"{len(trace.states)} warps over {cycles} cycles. Issued: {' '.join(trace.text().split()[:cycles])}. "
            f"{trace.utilisation:.0%} of the issue slots are used.")


def show_scheduler(warps: int = 1, latency: int = 4, work: str = "dependent FMAs", policy: str = "fixed order",
                   cycles: int = 24) -> Picture:
    """The first `cycles` cycles of an SMSP with `warps` equal warps."""
    trace = schedule(streams(warps, latency, work), cycles=cycles, policy=policy)
    fig, ax = new(7.6, 1.5 + 0.24 * warps)
    draw_timeline(ax, trace, cycles)
    ax.set_title(f"{warps} warp{'s' * (warps > 1)}: {trace.utilisation:.0%} of {cycles} issue slots used", pad=20)
    return Picture(fig, timeline_alt(trace, cycles), simulated("scheduler model, one SMSP"))


# ------------------------------------------------------------------------------------- measured: who shares a scheduler
def pair_ratios(table) -> dict[tuple[int, int], float]:
    """(first, second) -> cycles of `first` beside `second`, in units of the median of a warp that works alone."""
    alone = table[table["first"] == table["second"]]["cycles"].median()
    return {(int(f), int(s)): c / alone for f, s, c in zip(table["first"], table["second"], table["cycles"], strict=True)}


def sharing(table) -> list[list[int]]:
    """Groups of warps that slow each other down: more than 1.5 times the time of one alone."""
    ratios = pair_ratios(table)
    warps = sorted({f for f, _ in ratios})
    groups = []
    for warp in warps:
        home = next((g for g in groups if ratios[(g[0], warp)] > 1.5), None)
        if home is None:
            groups.append([warp])
        else:
            home.append(warp)
    return groups


def draw_pairs(ax, table):
    """A square for each pair of warps: how much longer the first takes beside the second."""
    ratios = pair_ratios(table)
    warps = sorted({f for f, _ in ratios})
    for (first, second), ratio in ratios.items():
        slow = ratio > 1.5
        box(ax, second, first, 1, 1, f"{ratio:.1f}", role="compute" if slow else "muted", fill=0.75 if slow else 0.12,
            fontsize=8.5, color="white" if slow else "#555555")
    ax.set(xlim=(0, len(warps)), ylim=(len(warps), 0), aspect="equal", xlabel="warp beside it", ylabel="warp that is timed")
    ax.set_xticks([w + 0.5 for w in warps], warps)
    ax.set_yticks([w + 0.5 for w in warps], warps)
    ax.grid(False)
    ax.tick_params(length=0)
    return ax


def pairs_alt(table) -> str:
    groups = ", ".join("{" + ", ".join(map(str, g)) + "}" for g in sharing(table))
    return f"Time of one warp beside another, in units of one alone. Warps that double each other's time: {groups}."


def show_pairs(table, evidence="") -> Picture:
    """`table` is that of measure("scheduler_pairs")."""
    fig, ax = new(6.2, 4.4)
    draw_pairs(ax, table)
    groups = sharing(table)
    by_four = all(len({w % 4 for w in g}) == 1 for g in groups) and len(groups) == 4
    ax.set_title("Warps w and w + 4 take turns, all others do not" if by_four else f"{len(groups)} groups of warps take turns")
    return Picture(fig, pairs_alt(table), evidence)


def draw_block_shapes(ax, table):
    """Time over the number of warps on an SM, as one block or as blocks of one warp; one alone is 1."""
    alone = table[table["warps"] == 1]["time_us"].median()
    for (variant, rows), marker, role in zip(table.groupby("variant", sort=False), MARKERS, ("measured", "accent"),
                                             strict=False):
        rows = rows.sort_values("warps")
        ax.plot(rows["warps"], rows["time_us"] / alone, marker=marker, color=ROLE[role], label=variant,
                markersize=6 if role == "measured" else 4, zorder=3 if role == "accent" else 2)
    most = int(table["warps"].max())
    steps = [-(-w // 4) for w in range(1, most + 1)]
    ax.step(range(1, most + 1), steps, where="mid", color=ROLE["model"], linestyle="--", linewidth=1.3, zorder=1,
            label="w / 4, rounded up")
    ax.set(xlabel="w: busy warps on every SM", ylabel="time (one warp = 1)", ylim=(0, max(steps) * 1.15))
    ax.set_xticks(range(1, most + 1))
    ax.legend(loc="upper left")
    return ax


def block_shapes_alt(table) -> str:
    alone = table[table["warps"] == 1]["time_us"].median()
    parts = []
    for variant, rows in table.groupby("variant", sort=False):
        at = rows.set_index("warps")["time_us"] / alone
        parts.append(f"{variant}: " + ", ".join(f"{at[w]:.2f} at w = {w}" for w in (4, 5, 8) if w in at.index))
    return f"Time of w busy warps on every SM in units of one. {'; '.join(parts)}."


def show_block_shapes(table, evidence="") -> Picture:
    """`table` is that of measure("block_shapes")."""
    fig, ax = new(7.2, 3.5)
    draw_block_shapes(ax, table)
    one = table[table["warps"] == 1]["time_us"].median()
    four = table[table["warps"] == 4]["time_us"].max() / one
    ax.set_title("Four busy warps take as long as one, the fifth waits" if four < 1.1 else
                 f"Four busy warps take {four:.1f} times as long as one")
    return Picture(fig, block_shapes_alt(table), evidence)


# ------------------------------------------------------------------------------------- measured: placement
def first_sm(row, warps_per_block: int) -> list[dict]:
    """The warps on the SM that got block 0: block, warp, slot, slot mod 4; `row` is one of measure("warp_placement")."""
    sm, slot = row["sm"], row["slot"]
    return [{"block": i // warps_per_block, "warp": i % warps_per_block, "SM": sm[i], "warp slot": slot[i],
             "slot mod 4": slot[i] % 4} for i in range(len(sm)) if sm[i] == sm[0]]


def placement_summary(table) -> list[dict]:
    """One line a launch: how evenly blocks spread over the SMs, and whether a block's warps take slots in turn: warp w
    of a block has the slot of its warp 0 plus w, modulo 4."""
    found = []
    for _, row in table.iterrows():
        warps, slot = int(row["warps_per_block"]), row["slot"]
        sms = row["sm"][::warps]
        counts = sorted(sms.count(sm) for sm in set(sms))
        in_turn = sum((slot[i] - slot[i - i % warps]) % 4 == i % warps % 4 for i in range(len(slot))) / len(slot)
        on_sm = {sm: [s % 4 for s, at in zip(slot, row["sm"], strict=True) if at == sm] for sm in set(sms)}
        even = sum(max(map(taken.count, range(4))) - min(map(taken.count, range(4))) == 0 for taken in on_sm.values())
        found.append({"blocks": len(sms), "warps a block": warps, "SMs used": len(on_sm),
                      "blocks on an SM": f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}",
                      "warps whose slot is in turn": f"{in_turn:.0%}" if warps > 1 else "one warp only",
                      "SMs with equal numbers of slots mod 4": f"{even / len(on_sm):.0%}"})
    return found
