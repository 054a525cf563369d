"""Barriers of a block: bar.sync, bar.arrive and bar.red, by number; which warps wait, and what happens if some never come."""

from dataclasses import dataclass

import numpy as np

from helpers.simt.faults import Deadlock, UnreachedBarrier
from helpers.simt.operands import reader, unknown, writer
from helpers.simt.threads import WARP

BARRIERS = 16  # of a block
REDUCTIONS = {"popc": np.add, "and": np.logical_and, "or": np.logical_or}
RULE = "Every thread of a block must come to the same __syncthreads()"
VOLTA = "GPUs since Volta go on without threads that have ended (early_exit=True)"
ENDED = f"CUDA leaves open what happens otherwise: {VOLTA}"


@dataclass
class Barrier:
    """A decoded barrier. `read` and the others are functions of the machine."""

    waits: bool
    read: list  # its number and, if given, how many threads it is for
    reduction: np.ufunc | None = None  # over `value` of all threads, which `write` then receives
    value: object = None
    write: object = None
    dtype: type = np.uint32


def decode(instruction, kernel) -> Barrier:
    """bar.sync a[, n]; bar.arrive a, n; bar.red.op.type d, a[, n], [!]p"""
    parts = set(instruction.parts) - {"bar", "barrier", "cta", "aligned"}
    if instruction.predicate is not None:
        raise unknown(instruction, "a barrier under a predicate")
    if "red" in parts:
        operation = parts - {"red", "u32", "pred"}
        target, *numbers, value = instruction.operands
        dtype = np.bool_ if instruction.parts[-1] == "pred" else np.uint32
        if len(operation) != 1 or not operation <= {*REDUCTIONS}:
            raise unknown(instruction)
        return Barrier(True, [reader(instruction, kernel, text, np.uint32) for text in numbers],
                       REDUCTIONS[operation.pop()], reader(instruction, kernel, value, np.bool_),
                       writer(instruction, kernel, target, dtype), dtype)
    if parts not in ({"sync"}, {"arrive"}):
        raise unknown(instruction)
    return Barrier("sync" in parts, [reader(instruction, kernel, text, np.uint32) for text in instruction.operands])


class Barriers:
    """The barriers of the blocks of a machine."""

    def __init__(self, machine, early_exit: bool):
        self.m, self.early_exit = machine, early_exit
        count = machine.threads.warps
        self.owner = np.arange(count) // machine.threads.warps_per_block
        self.name = np.zeros(count, np.int64)  # of the barrier at which a warp waits
        self.expected = np.zeros(count, np.int64)  # warps that it is for; 0: all of the block
        self.arrived = np.zeros(BARRIERS * len(machine.threads.blocks), np.int64)  # that did not stay to wait

    def arrive(self, block, here) -> None:
        """The warps of `here` reach the barrier that ends a basic block; those whose barriers are complete go on."""
        m, barrier, warps = self.m, block.leave.run, self.m.warps
        self._need_whole_warps(block.leave.instruction, here)
        number, *threads = (np.broadcast_to(get(m), m.lanes)[::WARP].astype(np.int64) for get in barrier.read)
        self.name[here] = (self.owner * BARRIERS + number % BARRIERS)[here]
        self.expected[here] = (threads[0] // WARP)[here] if threads else 0
        if barrier.waits:
            warps.waiting |= here
        else:
            np.add.at(self.arrived, self.name[here], 1)
            warps.at[here] = block.next
            warps.settle(here)
        self.release()

    def release(self) -> bool:
        """Let go every warp whose barrier is complete."""
        m, warps, each = self.m, self.m.warps, self.m.threads.warps_per_block
        arrived = np.bincount(self.name[warps.waiting], minlength=len(self.arrived)) + self.arrived
        there = warps.live.any(axis=1).reshape(-1, each).sum(axis=1)[self.owner] if self.early_exit else each
        free = warps.waiting & (arrived[self.name] >= np.where(self.expected > 0, self.expected, there))
        if not free.any():
            return False
        self._need_one_place(free & (self.expected == 0))
        places = np.unique(warps.at[free])
        for at in places:
            barrier = m.program.blocks[at].leave.run
            if barrier.reduction is not None:
                self._reduce(barrier, free & (warps.at == at))
        self.arrived[self.name[free]] = 0
        warps.waiting[free] = False
        for at in places:
            warps.at[free & (warps.at == at)] = m.program.blocks[at].next
        if m.races:
            m.races.barrier(np.unique(self.owner[free]))
        warps.settle(free)
        return True

    def _reduce(self, barrier: Barrier, free) -> None:
        lanes = (self.m.warps.active & free[:, None]).reshape(-1)
        name = np.repeat(self.name, WARP)
        value = np.broadcast_to(barrier.value(self.m), self.m.lanes)
        out = np.zeros(self.m.lanes, barrier.dtype)
        for one in np.unique(name[lanes]):
            among = lanes & (name == one)
            out[among] = barrier.reduction.reduce(value[among].astype(barrier.dtype))
        barrier.write(self.m, out, lanes)

    # ------------------------------------------------------------------------------------------ what goes wrong

    def _need_whole_warps(self, instruction, here) -> None:
        warps = self.m.warps
        missing = here[:, None] & ~warps.active & (warps.live if self.early_exit else warps.exists)
        for warp, lane in np.argwhere(missing):
            ended = not warps.live[warp, lane] or self.returns(warps.pending(warp, lane))
            if self.early_exit and ended:
                warps.live[warp, lane] = False
                continue
            present = warp * WARP + int(np.argmax(warps.active[warp]))
            raise self._unreached(instruction, present, warp * WARP + lane, "it has ended" if ended else "it took another path")

    def returns(self, at: int) -> bool:
        """Whether nothing but the kernel's end comes at a place."""
        if at == self.m.warps.end:
            return True
        block = self.m.program.blocks[at]
        return not block.steps and block.leave is not None and block.targets == [self.m.warps.end] and block.next is None

    def _need_one_place(self, free) -> None:
        warps = self.m.warps
        for name in np.unique(self.name[free]) if len(np.unique(warps.at[free])) > 1 else ():
            same = np.flatnonzero(free & (self.name == name))
            other = next((w for w in same if warps.at[w] != warps.at[same[0]]), None)
            if other is not None:
                raise self._elsewhere(int(same[0]), int(other))

    def _elsewhere(self, warp: int, other: int) -> UnreachedBarrier:
        first, second = (self.m.program.blocks[self.m.warps.at[w]].leave.instruction for w in (warp, other))
        return self._unreached(first, warp * WARP, other * WARP, f"it waits at another one {self.m.place(second)}")

    def explain(self) -> Exception:
        """No warp may run: say which one waits for which."""
        warps, each = self.m.warps, self.m.threads.warps_per_block
        warp = int(np.argmax(warps.waiting))
        leave = self.m.program.blocks[warps.at[warp]].leave.instruction
        others = [w for w in range(warp // each * each, (warp // each + 1) * each) if w != warp]
        if self.expected[warp]:
            return Deadlock(f"{self.m.threads.name(warp * WARP)} waits for ever at a barrier for {self.expected[warp] * WARP} "
                            f"threads that fewer reach. {self.m.place(leave)}")
        other = next((w for w in others if not warps.waiting[w]), None)
        if other is not None:
            return self._unreached(leave, warp * WARP, other * WARP, "it has ended")
        other = next((w for w in others if warps.at[w] != warps.at[warp]), None)
        if other is not None:
            return self._elsewhere(warp, other)
        return Deadlock(f"{self.m.threads.name(warp * WARP)} waits for ever at a barrier. {self.m.place(leave)}")

    def _unreached(self, instruction, lane: int, other: int, why: str) -> UnreachedBarrier:
        rest = f"{RULE}. {ENDED}." if why == "it has ended" else f"{RULE}."
        return UnreachedBarrier(f"{self.m.threads.name(lane)} waits at a barrier that thread {self.m.threads.index(other)} of its "
                                f"block does not reach: {why}. {rest} {self.m.place(instruction)}")
