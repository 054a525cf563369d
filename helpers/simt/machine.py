"""The machine: warps of 32 lanes, run together wherever they stand at the same basic block of a program."""

import numpy as np

from helpers.simt.barriers import VOLTA, Barriers
from helpers.simt.endless import Repetition
from helpers.simt.faults import Deadlock, TooLong, Trap
from helpers.simt.kernel import TYPES
from helpers.simt.lane_memory import LaneMemory
from helpers.simt.program import Block, Program, Step
from helpers.simt.report import Count, TraceStep
from helpers.simt.threads import WARP, Threads
from helpers.simt.warps import Warps


class Machine:
    """Some blocks of a grid and the state of their threads. Registers hold one value for each lane."""

    def __init__(self, program: Program, launch, blocks: np.ndarray, registers: dict, counts: list[Count]):
        self.program, self.kernel, self.launch, self.counts = program, program.kernel, launch, counts
        self.params = launch.params
        self.threads = Threads(launch.grid, launch.block, blocks, launch.shared_bytes, launch.dynamic_bytes)
        self.lanes = self.threads.lanes
        self.warps = Warps(self.threads.exists, len(program.blocks))
        self.registers = registers
        self.memory = LaneMemory(self, launch.uninitialised)
        self.races = launch.race_checker(self)
        self.steps, self.repetition = 0, Repetition(self)
        self.barriers = Barriers(self, launch.early_exit)
        self.traced = launch.traced_warp(self.threads)

    def run(self) -> None:
        """Until all threads have ended. Raises the faults that the kernel commits."""
        while True:
            while (found := self.warps.next_block()) is not None:
                self._execute(self.program.blocks[found[0]], found[1])
            if not self.warps.waiting.any():
                return
            if not self.barriers.release():
                raise self.barriers.explain()

    def _execute(self, block: Block, here: np.ndarray) -> None:
        """Run a basic block in the active lanes of the warps of `here`, and move them on."""
        flags = self.warps.active & here[:, None]
        lanes = None if flags.all() else flags.reshape(-1)
        warps, active = int(here.sum()), int(flags.sum())
        traced = self.traced if self.traced is not None and here[self.traced] else None
        if self.repetition.found(here) or self.steps + len(block.steps) >= self.launch.limit:
            raise self._too_long(block, flags)
        for step in block.steps:
            self.steps += 1
            chosen = self._chosen(step, lanes)
            amount = active if chosen is lanes else int(chosen.sum())
            self._count(step, warps, amount)
            if amount:
                self.memory.last = None
                step.run(self, chosen)
                if traced is not None:
                    self._record(step, traced, chosen)
        self.steps += 1
        if block.leave is None:
            self.warps.go(here, [(block.next, flags)], block.joins)
            return
        self._count(block.leave, warps, active)
        if traced is not None:
            self.memory.last = None
            self._record(block.leave, traced, lanes)
        if block.leave.kind == "barrier":
            self.barriers.arrive(block, here)
        else:
            self._branch(block, here, flags)

    def _too_long(self, block: Block, flags) -> TooLong:
        last = (block.leave or block.steps[-1]).instruction
        warp = int(np.argmax(flags.any(axis=1)))
        thread = self.threads.name(warp * WARP + int(np.argmax(flags[warp])))
        waiting = self.warps.live[warp] & ~self.warps.active[warp]
        others = ("" if not waiting.any() else f" Thread {self.threads.index(warp * WARP + int(np.argmax(waiting)))} of its warp "
                  "waits where their paths meet again: a lock that it holds is never given back.")
        if self.steps + len(block.steps) >= self.launch.limit:
            what = f"still runs after {self.launch.limit} instructions: an endless loop? (If not, give run a higher limit.)"
        else:
            what = f"is in an endless loop: after {self.steps} instructions nothing changes any more."
        return TooLong(f"{thread} {what}{others} It was at {self.place(last)[1:-1]}.")

    def _chosen(self, step: Step, lanes):
        """The lanes in which a step runs: those of the block whose predicate is true."""
        if step.predicate is None:
            return lanes
        true = step.predicate(self)
        return true.copy() if lanes is None else true & lanes

    def _count(self, step: Step, warps: int, lanes: int) -> None:
        count = self.counts[step.instruction.index]
        if not count.executed:
            count.kind = step.kind
        count.executed += warps
        count.lanes += lanes

    def _branch(self, block: Block, here, flags) -> None:
        leave, taken = block.leave, flags
        if leave.predicate is not None:
            taken = flags & leave.predicate(self).reshape(-1, WARP)
        if leave.instruction.name == "trap" and taken.any():
            raise Trap(self.explain(leave.instruction, np.flatnonzero(taken.reshape(-1)))(0, "stopped the kernel"))
        ways = [(block.targets[0], taken)]
        if leave.run is not None:  # through a table
            entry = np.broadcast_to(leave.run(self), self.lanes).reshape(-1, WARP)
            ways = [(target, taken & (entry == i)) for i, target in enumerate(block.targets)]
        if block.next is not None:
            ways.append((block.next, flags & ~taken))
        self.counts[leave.instruction.index].divergent += self.warps.go(here, ways, block.joins)

    def need_together(self, instruction, wanted, here) -> None:
        """Raise Deadlock if an instruction names lanes of its warp that live but stand elsewhere."""
        absent, warps = wanted & self.warps.live & ~here & here.any(axis=1)[:, None], self.warps
        for warp, lane in np.argwhere(absent).tolist():
            ends = not warps.active[warp, lane] and self.barriers.returns(warps.pending(warp, lane))
            if ends and self.launch.early_exit:
                warps.live[warp, lane] = False
                continue
            present = warp * WARP + int(np.argmax(here[warp]))
            raise Deadlock(f"{self.threads.name(present)} exchanges values with its warp and names lane {lane}, which took "
                           f"another path and is not here. {f'It ends there: {VOLTA}. ' if ends else ''}{self.place(instruction)}")

    def warps_synchronised(self, members) -> None:
        if self.races:
            self.races.warps(members)

    # ------------------------------------------------------------------------------------------ for instructions

    def flags(self, lanes) -> np.ndarray:
        return np.ones(self.lanes, bool) if lanes is None else lanes

    def numbers(self, lanes) -> np.ndarray:
        return np.arange(self.lanes) if lanes is None else np.flatnonzero(lanes)

    def special(self, name: str) -> np.ndarray:
        """A special register; clocks count the instructions so far."""
        if name in ("%clock", "%clock64", "%globaltimer", "%clock_hi"):
            return np.array(self.steps >> 32 if name == "%clock_hi" else self.steps)
        return self.threads.special(name)

    def place(self, instruction) -> str:
        """Where an instruction stands, for the reader."""
        file = f" of {self.kernel.source_file}" if self.kernel.source_file else ""
        line = f"line {instruction.source_line}{file}, " if instruction.source_line else ""
        return f"({line}PTX line {instruction.line}: `{instruction.text}`)"

    def explain(self, instruction, lanes, verb: str = ""):
        """A function (position in `lanes`, what) -> the sentence for a fault."""
        return lambda at, what: (f"{self.threads.name(int(lanes[at]))} {verb}{' ' if verb else ''}{what}. "
                                 f"{self.place(instruction)}")

    def _record(self, step: Step, warp: int, lanes) -> None:
        """Add a step of the traced warp."""
        own, instruction = slice(warp * WARP, (warp + 1) * WARP), step.instruction
        active = self.flags(lanes)[own].copy()
        if not active.any():
            return
        dtype = np.dtype(TYPES.get(instruction.parts[-1], np.bool_))
        values = {}
        for name in instruction.names():
            if name in self.kernel.registers:
                register = self.registers[name][own].copy()
                values[name] = register.view(dtype) if dtype.itemsize == register.itemsize else register
        touched = self.memory.touched(own, active) if self.memory.last is not None else None
        self.launch.trace.append(
            TraceStep(instruction.text, instruction.line, instruction.source_line, active, values, touched))
