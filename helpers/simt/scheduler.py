"""A model of the SMSP's warp scheduler, cycle by cycle: at most one instruction a cycle, from a warp that may go on.

A warp issues in order. An instruction that needs an earlier result may issue once that result's latency has passed;
until then the warp waits, and the scheduler issues for another one at no cost. Which of several ready warps it takes is
not documented; two rules are offered here:

    "fixed order"   always the first ready one of A, B, C, ...: what an H200 was seen to do (lesson 07)
    "in turn"       the one that issued longest ago
"""

from dataclasses import dataclass

NAMES = "ABCDEFGHIJKLMNOP"
POLICIES = ("fixed order", "in turn")
ISSUED, READY, WAITING, DONE = "issued", "ready", "waiting", "done"


@dataclass(frozen=True)
class Instruction:
    """`latency`: cycles until its result may be used. `needs`: how many instructions back its input was made (0: none).

    `pipe_cycles`: cycles in which no other instruction of this kind can issue (an FMA on 16 lanes takes 2).
    """

    kind: str
    latency: int
    needs: int = 1
    pipe_cycles: int = 1


@dataclass(frozen=True)
class Trace:
    """What happened: `issued[cycle]` is the number of the warp that issued, or None; `states[warp][cycle]` in words."""

    issued: tuple[int | None, ...]
    kinds: tuple[str | None, ...]
    states: tuple[tuple[str, ...], ...]

    @property
    def cycles(self) -> int:
        return len(self.issued)

    @property
    def utilisation(self) -> float:
        """Share of the cycles in which an instruction was issued."""
        return sum(warp is not None for warp in self.issued) / len(self.issued)

    def text(self) -> str:
        """One letter a cycle for the warp that issued, a dot where none did: "A . . . A"."""
        return " ".join("." if warp is None else NAMES[warp] for warp in self.issued)


def schedule(warps: list[list[Instruction]], cycles: int | None = None, *, policy: str = "fixed order") -> Trace:
    """Run the warps' instruction streams on one SMSP, for `cycles` or until all have issued everything.

    Raises ValueError for no or more than 16 warps, an unknown policy, and an instruction that needs one before the
    stream's start.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    if not 1 <= len(warps) <= len(NAMES):
        raise ValueError(f"an SMSP holds 1 to {len(NAMES)} warps, got {len(warps)}")
    for stream in warps:
        for i, instruction in enumerate(stream):
            if instruction.needs > i + 1 or instruction.needs < 0 or instruction.latency < 1:
                raise ValueError(f"instruction {i} ({instruction}) needs one before the start of the stream")
    finished = [[] for _ in warps]  # per warp: the cycle from which each issued instruction's result may be used
    last_issue, in_turn = [-1] * len(warps), policy == "in turn"
    pipe_free = {}
    issued, kinds, states = [], [], [[] for _ in warps]
    cycle = 0
    while cycle < cycles if cycles is not None else any(len(f) < len(w) for f, w in zip(finished, warps, strict=True)):
        ready = []
        for number, stream in enumerate(warps):
            at = len(finished[number])
            if at == len(stream):
                states[number].append(DONE)
            elif _may_issue(stream[at], finished[number], at, cycle) and pipe_free.get(stream[at].kind, 0) <= cycle:
                ready.append(number)
                states[number].append(READY)
            else:
                states[number].append(WAITING)
        chosen = min(ready, key=lambda number: (last_issue[number] * in_turn, number)) if ready else None
        if chosen is not None:
            instruction = warps[chosen][len(finished[chosen])]
            finished[chosen].append(cycle + instruction.latency)
            last_issue[chosen] = cycle
            pipe_free[instruction.kind] = cycle + instruction.pipe_cycles
            states[chosen][-1] = ISSUED
        issued.append(chosen)
        kinds.append(None if chosen is None else instruction.kind)
        cycle += 1
    return Trace(tuple(issued), tuple(kinds), tuple(map(tuple, states)))


def _may_issue(instruction: Instruction, finished: list[int], at: int, cycle: int) -> bool:
    needed = at - instruction.needs
    return instruction.needs == 0 or needed < 0 or finished[needed] <= cycle


def chain(fmas: int, latency: int = 4, *, lanes: int = 32) -> list[Instruction]:
    """A warp's stream of dependent multiply-adds, on an SMSP with `lanes` FP32 lanes."""
    return [Instruction("fma", latency, pipe_cycles=32 // lanes)] * fmas


def loop(steps: int, fmas: int, *, fma_latency: int = 4, memory_latency: int = 400, early: bool = False,
         lanes: int = 32) -> list[Instruction]:
    """A warp that walks over elements: load, `fmas` dependent multiply-adds, store; `steps` times.

    With `early`, the load of the next element is issued before the chain of this one.
    """
    def fma(needs):
        return Instruction("fma", fma_latency, needs, pipe_cycles=32 // lanes)

    load, store, rest = Instruction("load", memory_latency, needs=0), Instruction("store", 1), [fma(1)] * (fmas - 1)
    if not early:
        return [load, fma(1), *rest, store] * steps
    # between a load and the chain that needs it lie the whole chain before, its store and the next load
    return [load, load, fma(2), *rest, store, *([load, fma(fmas + 3), *rest, store] * (steps - 1))]


def smsps(blocks: int, warps_per_block: int, partitions: int = 4) -> list[list[tuple[int, int]]]:
    """Which (block, warp) each SMSP holds if warp w of a block goes to SMSP w mod 4 (observed, not documented)."""
    return [[(block, warp) for block in range(blocks) for warp in range(warps_per_block) if warp % partitions == s]
            for s in range(partitions)]
