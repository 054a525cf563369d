"""The machine: runs the warps of many blocks together, all lanes of a group at one instruction, and counts.

Lanes are kept in flat arrays, 32 to a warp. Every lane has its own program counter; the group at the smallest one is
run until it branches or meets waiting lanes, so that diverged lanes meet again where their paths join. Counts are per
warp: warps never share a request, however many run together.
"""

import numpy as np
from helpers.simt.access import decode_memory

from helpers.simt.faults import Deadlock, SimtError, TooLong
from helpers.simt.instructions import decode, unknown
from helpers.simt.memory import Global
from helpers.simt.report import Count, Report

WARP = 32
LANES_AT_ONCE = 1 << 16
LIMIT = 20_000_000  # warp instructions
CONTROL = {"bra", "ret", "exit", "bar", "barrier", "trap"}
MEMORY = {"ld", "st", "ldu", "atom", "red", "cp", "shfl", "vote", "activemask", "redux", "match"}
NOTHING = {"membar", "fence", "prefetch", "nop", "griddepcontrol", "discard", "applypriority"}
DONE = np.int32(1 << 30)
WAITING = np.int32(1 << 29)  # added to the program counter of a lane that waits at a barrier


class Machine:
    """One kernel with its arguments; `run` executes a grid."""

    def __init__(self, kernel, memory: Global, params: dict, shared_bytes: int, races: bool, trace=None, limit=LIMIT):
        self.kernel, self.memory, self.params = kernel, memory, params
        self.shared_size = kernel.shared_bytes + shared_bytes
        self.races, self.limit = races, limit
        self.trace_warp = trace
        self.trace = [] if trace is not None else None
        self.counts = [Count(i.text, i.line, i.source_line) for i in kernel.instructions]
        self.steps = [self._decode(i) for i in kernel.instructions]  # all of them: unknown PTX is refused here
        self.targets = [self._target(i) for i in kernel.instructions]
        self.stops = sorted({*kernel.labels.values(), *(i.index + 1 for i in kernel.instructions if self._control(i))})
        self.executed = 0

    @staticmethod
    def _control(instruction) -> bool:
        return instruction.parts[0] in CONTROL

    def _decode(self, instruction):
        name = instruction.parts[0]
        if name in CONTROL:
            return None
        if name in NOTHING or (name == "bar" and "warp" in instruction.parts):
            return lambda m, on: None
        if name in MEMORY:
            return decode_memory(instruction, self.kernel)
        return decode(instruction, self.kernel)

    def _target(self, instruction):
        if instruction.parts[0] != "bra":
            return None
        label = instruction.operands[0]
        if label not in self.kernel.labels:
            raise unknown(instruction, "no such label")
        return self.kernel.labels[label]

    # -------------------------------------------------------------------------------------------- a grid

    def run(self, grid, block) -> Report:
        threads = block[0] * block[1] * block[2]
        warps = -(-threads // WARP)
        total = grid[0] * grid[1] * grid[2]
        at_once = max(1, LANES_AT_ONCE // (warps * WARP))
        # A fixed shuffle: a kernel whose result depends on the order of its blocks must not look right.
        order = np.random.default_rng(20).permutation(total)
        with np.errstate(all="ignore"):
            for start in range(0, total, at_once):
                self._run_blocks(order[start:start + at_once], grid, block, threads, warps)
        return Report(self.kernel.name, grid, block, self.counts, self.trace)

    def _run_blocks(self, blocks, grid, block, threads, warps) -> None:
        self.blocks, self.warps_per_block = blocks, warps
        self.lanes = len(blocks) * warps * WARP
        self.block_of = np.repeat(np.arange(len(blocks)), warps * WARP)
        thread = np.tile(np.arange(warps * WARP), len(blocks))
        self.thread = thread
        self.special = self._special(blocks[self.block_of], thread, grid, block, warps)
        self.regs = {name: np.zeros(self.lanes, np.bool_ if size == 0 else f"u{size}")
                     for name, size in self.kernel.registers.items()}
        self.shared = np.zeros((len(blocks), max(1, self.shared_size)), np.uint8)
        self.last_touch = {}
        self.local = np.zeros((self.lanes, self.kernel.local_bytes), np.uint8) if self.kernel.local_bytes else None
        self.pc = np.where(thread < threads, 0, DONE).astype(np.int32)
        self.epoch = np.zeros(len(blocks), np.int64)
        self._loop()

    def _special(self, block, thread, grid, shape, warps) -> dict:
        u32 = lambda v: np.asarray(v).astype(np.uint32)  # noqa: E731
        lane = thread % WARP
        found = {
            "%tid.x": u32(thread % shape[0]), "%tid.y": u32(thread // shape[0] % shape[1]),
            "%tid.z": u32(thread // (shape[0] * shape[1])), "%ctaid.x": u32(block % grid[0]),
            "%ctaid.y": u32(block // grid[0] % grid[1]), "%ctaid.z": u32(block // (grid[0] * grid[1])),
            "%laneid": u32(lane), "%warpid": u32(thread // WARP), "%nwarpid": u32(warps), "%smid": u32(block % 1),
            "%nsmid": u32(1), "%lanemask_eq": u32(1 << lane), "%lanemask_lt": u32((1 << lane) - 1),
            "%lanemask_le": u32((2 << lane) - 1), "%lanemask_gt": u32(0xFFFFFFFF ^ ((2 << lane) - 1)),
            "%lanemask_ge": u32(0xFFFFFFFF ^ ((1 << lane) - 1)), "%clock": u32(0), "%clock64": np.uint64(0),
            "%globaltimer": np.uint64(0),
        }
        for name, sizes in (("%ntid", shape), ("%nctaid", grid)):
            found |= {f"{name}.{axis}": u32(size) for axis, size in zip("xyz", sizes, strict=True)}
        return found

    # -------------------------------------------------------------------------------------------- a batch of blocks

    def _loop(self) -> None:
        while True:
            pc = int(self.pc.min())
            if pc >= WAITING:
                if pc >= DONE:
                    return
                self._explain_deadlock()
            on = self.pc == pc
            others = self.pc[~on]
            ahead = others[(others > pc) & (others < WAITING)]
            stop = int(ahead.min()) if ahead.size else len(self.kernel.instructions)
            self._straight(pc, stop, on)

    def _straight(self, pc: int, stop: int, on) -> None:
        """Run the lanes of `on` from `pc` until control moves or other lanes are met."""
        full = None if on.all() else on
        warps = on.reshape(-1, WARP).any(axis=1)
        active_warps, active_lanes = int(warps.sum()), int(on.sum())
        instructions = self.kernel.instructions
        while True:
            if pc >= len(instructions):
                self.pc[on] = DONE
                return
            if pc == stop:
                self.pc[on] = pc
                return
            instruction = instructions[pc]
            count = self.counts[pc]
            count.executed += active_warps
            count.lanes += active_lanes
            self.executed += active_warps
            if self.executed > self.limit:
                raise TooLong(f"{self.limit:,} warp instructions and no end: does the loop around PTX line "
                              f"{instruction.line} (source line {instruction.source_line}) ever stop?")
            mask = full
            if instruction.predicate is not None:
                p = self.regs[instruction.predicate]
                p = ~p if instruction.negated else p
                mask = p & on
            if self.trace is not None:
                self._trace(instruction, on if mask is None else mask)
            step = self.steps[pc]
            if step is None:
                moved = self._control_step(instruction, on if mask is None else mask, on, pc)
                if moved:
                    return
            elif instruction.predicate is None or mask.any():
                self.now = instruction
                step(self, mask)
            pc += 1

    def _control_step(self, instruction, taken, on, pc) -> bool:
        """Branches, exits and barriers; True if the group's program counters were set and it must stop here."""
        name = instruction.parts[0]
        if name == "trap":
            if taken.any():
                raise SimtError(self.explain(int(np.argmax(taken)), "the kernel trapped"))
            return False
        if name in ("ret", "exit"):
            if not taken.any():
                return False
            self.pc[on] = pc + 1
            self.pc[taken] = DONE
            return True
        if name == "bra":
            some = taken.reshape(-1, WARP).any(axis=1)
            rest = (on & ~taken).reshape(-1, WARP).any(axis=1)
            self.counts[pc].divergent += int((some & rest).sum())
            self.counts[pc].kind = "branch"
            if not taken.any():
                return False
            self.pc[on] = pc + 1
            self.pc[taken] = self.targets[pc]
            return True
        if "warp" in instruction.parts:  # bar.warp.sync: lanes of a group are together already
            return False
        self.counts[pc].kind = "barrier"
        self.pc[on] = pc + 1
        self.pc[taken] = pc + WAITING
        self._release()
        return True

    def _release(self) -> None:
        """Let blocks go on whose threads all wait at one barrier."""
        waiting = (self.pc >= WAITING) & (self.pc < DONE)
        per_block = self.warps_per_block * WARP
        wait = waiting.reshape(-1, per_block)
        done = (self.pc >= DONE).reshape(-1, per_block)
        ready = wait.any(axis=1) & (wait | done).all(axis=1)
        if not ready.any():
            return
        left_early = done & (self.thread.reshape(-1, per_block) < self._threads())
        for b in np.flatnonzero(ready):
            places = np.unique(self.pc.reshape(-1, per_block)[b][wait[b]])
            if len(places) > 1 or left_early[b].any():
                self._explain_deadlock(int(b))
        lanes = np.repeat(ready, per_block) & waiting
        self.pc[lanes] += 1 - WAITING
        self.epoch[ready] += 1
        for b in np.flatnonzero(ready):
            self.last_touch.pop(int(b), None)

    def _threads(self) -> int:
        ntid = [int(self.special[f"%ntid.{axis}"]) for axis in "xyz"]
        return ntid[0] * ntid[1] * ntid[2]

    def _explain_deadlock(self, block: int | None = None) -> None:
        per_block = self.warps_per_block * WARP
        pcs = self.pc.reshape(-1, per_block)
        threads = self._threads()
        if block is None:
            block = int(np.argmax(((pcs >= WAITING) & (pcs < DONE)).any(axis=1)))
        mine = pcs[block][:threads]
        waits = (mine >= WAITING) & (mine < DONE)
        place = self.kernel.instructions[int(mine[waits][0] - WAITING)]
        at = f"the barrier on source line {place.source_line} (PTX line {place.line})"
        gone = np.flatnonzero(mine >= DONE)
        if gone.size:
            raise Deadlock(f"Block {self._block_name(block)}: threads {_ranges(np.flatnonzero(waits))} wait at {at}, but "
                           f"threads {_ranges(gone)} ended without reaching it. Every thread of a block must reach a "
                           "barrier: move it out of the branch.")
        elsewhere = np.flatnonzero(mine != mine[waits][0])
        other = self.kernel.instructions[int(mine[elsewhere[0]] - WAITING)]
        raise Deadlock(f"Block {self._block_name(block)}: threads {_ranges(np.flatnonzero(mine == mine[waits][0]))} wait at "
                       f"{at}, threads {_ranges(elsewhere)} at another on source line {other.source_line}. All threads "
                       "of a block must meet at the same barrier.")

    # -------------------------------------------------------------------------------------------- words

    def _block_name(self, block: int) -> str:
        lane = block * self.warps_per_block * WARP
        return "(" + ", ".join(str(int(self.special[f"%ctaid.{axis}"][lane])) for axis in "xyz") + ")"

    def explain(self, lane: int, what: str) -> str:
        """A fault in a sentence: which thread of which block, at which instruction and source line."""
        thread = ", ".join(str(int(self.special[f"%tid.{axis}"][lane])) for axis in "xyz")
        i = self.now
        where = f"source line {i.source_line}, " if i.source_line else ""
        return (f"Block {self._block_name(int(self.block_of[lane]))}, thread ({thread}): {what}. At {where}PTX line "
                f"{i.line}: {i.text}")

    def _trace(self, instruction, mask) -> None:
        """Remember what the traced warp (block, warp) does here."""
        block, warp = self.trace_warp
        found = np.flatnonzero(self.blocks == block)
        if not found.size:
            return
        first = (int(found[0]) * self.warps_per_block + warp) * WARP
        active = mask[first:first + WARP]
        if active.any():
            values = {name: self.regs[name][first:first + WARP].copy()
                      for name in instruction.operands[0].strip("{}").replace(",", " ").split()
                      if name in self.regs} if instruction.operands else {}
            self.trace.append({"text": instruction.text, "line": instruction.line, "active": active.copy(),
                               "source_line": instruction.source_line, "before": values, "index": instruction.index})


def _ranges(numbers) -> str:
    """[0, 1, 2, 5] as "0-2, 5"."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    words = [f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts]
    return ", ".join(words[:4]) + (", ..." if len(words) > 4 else "")
