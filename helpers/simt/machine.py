"""The machine: warps of 32 lanes, run together wherever they stand at the same basic block of a program."""

import numpy as np

from helpers.simt.faults import Deadlock, TooLong, Trap
from helpers.simt.kernel import TYPES
from helpers.simt.lane_memory import LaneMemory
from helpers.simt.program import Block, Program, Step
from helpers.simt.report import Count, TraceStep
from helpers.simt.threads import WARP, Threads
from helpers.simt.warps import Warps

BARRIERS = 16  # of a block


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
        self.steps = 0
        self.barrier = np.zeros(self.threads.warps, np.int64)  # which one a waiting warp waits at
        self.traced = launch.traced_warp(self.threads)

    def run(self) -> None:
        """Until all threads have ended. Raises the faults that the kernel commits."""
        while (found := self.warps.next_block()) is not None:
            self._execute(self.program.blocks[found[0]], found[1])
        if self.warps.waiting.any():
            raise Deadlock(self._who_waits())

    def _execute(self, block: Block, here: np.ndarray) -> None:
        """Run a basic block in the active lanes of the warps of `here`, and move them on."""
        flags = self.warps.active & here[:, None]
        lanes = None if flags.all() else flags.reshape(-1)
        warps, active = int(here.sum()), int(flags.sum())
        traced = self.traced if self.traced is not None and here[self.traced] else None
        self._limit(block)
        for step in block.steps:
            chosen = self._chosen(step, lanes)
            amount = active if chosen is lanes else int(chosen.sum())
            self._count(step, warps, amount)
            if amount:
                self.memory.last = None
                step.run(self, chosen)
                if traced is not None:
                    self._record(step, traced, chosen)
        if block.leave is None:
            self.warps.go(here, [(block.next, flags)], block.joins)
            return
        self._count(block.leave, warps, active)
        if traced is not None:
            self.memory.last = None
            self._record(block.leave, traced, lanes)
        if block.leave.kind == "barrier":
            self._arrive(block, here)
        else:
            self._branch(block, here, flags)

    def _limit(self, block: Block) -> None:
        self.steps += len(block.steps) + 1
        if self.steps > self.launch.limit:
            last = (block.leave or block.steps[-1]).instruction
            raise TooLong(f"more than {self.launch.limit} instructions one after the other: an endless loop? The machine "
                          f"stopped at {self.place(last)}")

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

    # ------------------------------------------------------------------------------------------ waiting

    def _arrive(self, block: Block, here) -> None:
        """Warps reach a barrier; those whose blocks are complete go on."""
        warps = self.warps
        missing = here & (warps.active != warps.exists).any(axis=1)
        if missing.any():
            raise Deadlock(self._left_alone(block.leave.instruction, int(np.argmax(missing))))
        number, *threads = (np.broadcast_to(v, self.lanes)[::WARP].astype(np.int64) for v in block.leave.run(self))
        owner = np.arange(len(here)) // self.threads.warps_per_block
        warps.waiting |= here
        self.barrier[here] = number[here]
        with_me = warps.waiting & (warps.at == warps.at[here][0])
        name = owner * BARRIERS + self.barrier
        arrived = np.bincount(name[with_me], minlength=BARRIERS * len(self.threads.blocks))[name]
        free = with_me & (arrived >= (threads[0] // WARP if threads else self.threads.warps_per_block))
        if free.any():
            warps.waiting[free] = False
            warps.at[free] = block.next
            if self.races:
                self.races.barrier(np.unique(owner[free]))
            warps.settle(free)

    def need_together(self, instruction, wanted, here) -> None:
        """Raise Deadlock if an instruction names lanes of its warp that live but stand elsewhere."""
        absent = wanted & self.warps.live & ~here & here.any(axis=1)[:, None]
        if absent.any():
            warp, lane = (int(i[0]) for i in np.nonzero(absent))
            present = warp * WARP + int(np.argmax(here[warp]))
            raise Deadlock(f"{self.threads.name(present)} exchanges values with its warp and names lane {lane}, which took "
                           f"another path and is not here. {self.place(instruction)}")

    def warps_synchronised(self, members) -> None:
        if self.races:
            self.races.warps(members)

    def _left_alone(self, instruction, warp: int) -> str:
        present = warp * WARP + int(np.argmax(self.warps.active[warp]))
        other = warp * WARP + int(np.argmax(self.warps.exists[warp] & ~self.warps.active[warp]))
        why = "it took another path" if self.warps.live.reshape(-1)[other] else "it has ended"
        return self._stuck(instruction, present, other, why)

    def _who_waits(self) -> str:
        """No warp may run: say which one waits for which."""
        warps, each = self.warps, self.threads.warps_per_block
        warp = int(np.argmax(warps.waiting))
        others = [w for w in range(warp // each * each, (warp // each + 1) * each) if w != warp]
        other = next((w for w in others if not warps.waiting[w] or warps.at[w] != warps.at[warp]), None)
        leave = self.program.blocks[warps.at[warp]].leave.instruction
        if other is None:
            return (f"{self.threads.name(warp * WARP)} waits for ever: its barrier asks for more threads than the block "
                    f"has, or for others at another number. {self.place(leave)}")
        why = "it has ended"
        if warps.waiting[other]:
            elsewhere = self.program.blocks[warps.at[other]].leave.instruction
            why = f"it waits at another one {self.place(elsewhere)}"
        return self._stuck(leave, warp * WARP, other * WARP, why)

    def _stuck(self, instruction, lane: int, other: int, why: str) -> str:
        return (f"{self.threads.name(lane)} waits at a barrier that thread {self.threads.index(other)} of its block does "
                f"not reach: {why}. Every thread of a block must come to the same __syncthreads(). "
                f"{self.place(instruction)}")

    # ------------------------------------------------------------------------------------------ for instructions

    def flags(self, lanes) -> np.ndarray:
        return np.ones(self.lanes, bool) if lanes is None else lanes

    def numbers(self, lanes) -> np.ndarray:
        return np.arange(self.lanes) if lanes is None else np.flatnonzero(lanes)

    def special(self, name: str) -> np.ndarray:
        """A special register; clocks count the instructions so far."""
        if name in ("%clock", "%clock64", "%globaltimer"):
            return np.array(self.steps)
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
