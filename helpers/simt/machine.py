"""The machine: many warps of 32 lanes, run together wherever they stand at the same basic block.

A warp has one place in the code, a mask of active lanes, and a stack of places where it goes on later. At a branch that
splits its lanes it pushes the place where the paths join, then runs one path after the other up to there.
"""

import functools
from dataclasses import dataclass

import numpy as np

from helpers.simt import access, arithmetic, cfg, instructions, memory, ptx, together
from helpers.simt.faults import Deadlock, TooLong, Trap
from helpers.simt.operands import reader, unknown
from helpers.simt.report import Access, Count, TraceStep

WARP = 32


@dataclass
class Step:
    """One decoded instruction: `run(machine, lanes)` executes it in those lanes (None: all)."""

    instruction: ptx.Instruction
    run: object
    predicate: object  # function machine -> flags, or None
    kind: str


@dataclass
class Block:
    """A decoded basic block; `leave` is its branch or barrier as a step, with what it needs to choose a way."""

    steps: list[Step]
    leave: Step | None
    index: object  # for a branch through a table: function machine -> entry
    targets: list[int]
    next: int | None
    joins: int


class Program:
    """A kernel decoded: nothing in it depends on a launch. Raises UnknownInstruction for what is not implemented."""

    def __init__(self, kernel: ptx.Kernel):
        self.kernel = kernel
        self.blocks = [self._block(block) for block in cfg.basic_blocks(kernel)]

    def _block(self, block: cfg.BasicBlock) -> Block:
        leave = index = None
        if block.branch is not None:
            leave = Step(block.branch, None, self._predicate(block.branch), "barrier" if cfg.is_barrier(block.branch)
                         else "branch")
            if leave.kind == "barrier":
                leave.run = barrier(block.branch, self.kernel)
            elif block.branch.name == "brx":
                index = reader(block.branch, self.kernel, block.branch.operands[0], np.uint32)
        return Block([self._step(i) for i in block.instructions], leave, index, block.targets, block.next, block.joins)

    def _step(self, instruction) -> Step:
        found = access.decode(instruction, self.kernel)
        if found is None:
            run = together.decode(instruction, self.kernel)
            found = ("warp", run) if run else ("arithmetic", instructions.decode(instruction, self.kernel))
        kind, run = found
        return Step(instruction, run, self._predicate(instruction), kind)

    def _predicate(self, instruction):
        if instruction.predicate is None:
            return None
        text = ("!" if instruction.negated else "") + instruction.predicate
        return reader(instruction, self.kernel, text, np.bool_)


@functools.lru_cache(maxsize=64)
def program(text: str, name: str | None) -> Program:
    return Program(ptx.parse(text, name))


def barrier(instruction, kernel):
    """bar.sync id[, threads]: a function machine -> (id, threads or None)."""
    if "sync" not in instruction.parts or set(instruction.parts) - {"bar", "barrier", "cta", "sync", "aligned"}:
        raise unknown(instruction)
    if instruction.predicate is not None:
        raise unknown(instruction, "a barrier under a predicate")
    get = [reader(instruction, kernel, text, np.uint32) for text in instruction.operands]
    return lambda m: [g(m) for g in get]


class Machine:
    """Some blocks of a grid, and the state of all their threads.

    Registers are arrays of one value a lane; lane i is thread i % (32 * warps of a block) of its block.
    """

    def __init__(self, code: Program, launch, blocks: np.ndarray, registers: dict, counts: list[Count]):
        self.program, self.kernel, self.launch, self.counts = code, code.kernel, launch, counts
        self.params, self.memory = launch.params, launch.device
        self.block_ids = blocks
        self.warps_per_block = -(-launch.threads // WARP)
        self.warps = len(blocks) * self.warps_per_block
        self.lanes = self.warps * WARP
        self.row = np.arange(self.lanes) // (self.warps_per_block * WARP)  # which of `blocks` a lane belongs to
        self.thread = np.arange(self.lanes) % (self.warps_per_block * WARP)  # its number in the block
        self.registers = registers
        self.shared = memory.Rows("the block's shared memory", len(blocks), launch.shared_bytes)
        self.local = memory.Rows("the thread's local memory", self.lanes, self.kernel.local_bytes)
        self.races = launch.race_checker(len(blocks), self.lanes)
        if self.races:
            self.races.machine = self
        self._special = {}
        self.steps = 0
        self.copies, self.groups = [], np.zeros(self.lanes, np.int64)  # cp.async: under way, and committed so far

        end = len(code.blocks)
        self.exists = (self.thread < launch.threads).reshape(self.warps, WARP)
        self.active, self.live = self.exists.copy(), self.exists.copy()
        self.at = np.zeros(self.warps, np.int64)
        self.rejoin = np.full(self.warps, -1)  # where the current path ends; -1: nowhere
        self.depth = np.zeros(self.warps, np.int64)
        self.stack_at, self.stack_rejoin = np.zeros((2, self.warps, 4), np.int64)
        self.stack_active = np.zeros((self.warps, 4, WARP), bool)
        self.waiting = np.zeros(self.warps, bool)
        self.barrier = np.zeros(self.warps, np.int64)
        self.end = end

    # ------------------------------------------------------------------------------------------ running

    def run(self) -> None:
        while True:
            ready = ~self.waiting & (self.at != self.end)
            if not ready.any():
                break
            block = int(self.at[ready].min())
            self._execute(block, ready & (self.at == block))
        if self.waiting.any():
            raise Deadlock(self._who_waits())

    def _execute(self, number: int, here: np.ndarray) -> None:
        block = self.program.blocks[number]
        flags = self.active & here[:, None]
        lanes = None if flags.all() else flags.reshape(-1)
        warps, active = int(here.sum()), int(flags.sum())
        self.steps += len(block.steps) + 1
        if self.steps > self.launch.limit:
            last = (block.leave or block.steps[-1]).instruction
            raise TooLong(f"more than {self.launch.limit} instructions one after the other, an endless loop? "
                          f"The machine stopped at {self.place(last)}")
        traced = self.launch.traced_warp(self)
        traced = traced if traced is not None and here[traced] else None
        for step in block.steps:
            chosen = self._where(step, lanes)
            self._count(step, warps, active if chosen is lanes else int(chosen.sum()))
            if chosen is lanes or chosen.any():
                self.last_access = None
                step.run(self, chosen)
                if traced is not None:
                    self._record(step, traced, chosen)
        if block.leave is None:
            self._go(block, here, [(block.next, flags)])
            return
        self._count(block.leave, warps, active)
        if block.leave.kind == "barrier":
            self._arrive(block, here)
        else:
            self._branch(block, here, flags, lanes)
        if traced is not None:
            self._record(block.leave, traced, lanes)

    def _where(self, step: Step, lanes):
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

    # ------------------------------------------------------------------------------------------ going on

    def _branch(self, block: Block, here, flags, lanes) -> None:
        taken = flags
        if block.leave.predicate is not None:
            taken = flags & block.leave.predicate(self).reshape(-1, WARP)
        if block.leave.instruction.name == "trap" and taken.any():
            raise Trap(self.explain(block.leave.instruction, np.flatnonzero(taken.reshape(-1)))(0, "stopped the kernel"))
        ways = [(block.targets[0], taken)]
        if block.index is not None:
            entry = np.broadcast_to(block.index(self), self.lanes).reshape(-1, WARP)
            ways = [(target, taken & (entry == i)) for i, target in enumerate(block.targets)]
        if block.next is not None:
            ways.append((block.next, flags & ~taken))
        split = self._go(block, here, ways)
        self.counts[block.leave.instruction.index].divergent += split

    def _go(self, block: Block, here, ways) -> int:
        """Move the warps of `here` on: each (target, lanes) is a way that some lanes take. Returns how many split."""
        if len(ways) == 1 and ways[0][0] != self.end and not self.depth.any():
            self.at[here] = ways[0][0]
            return 0
        chosen = [(target, mask, mask.any(axis=1)) for target, mask in ways]
        split = here & (sum(has.astype(np.int64) for _, _, has in chosen) > 1)
        for target, _, has in chosen:
            self.at[has & here & ~split] = target
        if split.any():
            # Where the current path ends at the same place, the entry that waits there is on the stack already.
            self._push(split & (self.rejoin != block.joins), block.joins, self.rejoin, self.active)
            for target, mask, has in chosen:
                if target != block.joins:
                    self._push(split & has, target, np.full(self.warps, block.joins), mask)
            self._pop(split)
        self._settle(here)
        return int(split.sum())

    def _push(self, warps, at: int, rejoin, active) -> None:
        which = np.flatnonzero(warps)
        if not len(which):
            return
        depth = self.depth[which]
        if depth.max() == self.stack_at.shape[1]:
            self.stack_at, self.stack_rejoin = (np.tile(a, 2) for a in (self.stack_at, self.stack_rejoin))
            self.stack_active = np.tile(self.stack_active, (1, 2, 1))
        self.stack_at[which, depth], self.stack_rejoin[which, depth] = at, rejoin[which]
        self.stack_active[which, depth] = active[which]
        self.depth[which] += 1

    def _pop(self, warps) -> None:
        which = np.flatnonzero(warps)
        self.depth[which] -= 1
        depth = self.depth[which]
        self.at[which], self.rejoin[which] = self.stack_at[which, depth], self.stack_rejoin[which, depth]
        self.active[which] = self.stack_active[which, depth] & self.live[which]

    def _settle(self, here) -> None:
        """Lanes at the end leave; a path that has reached its join, or has no lanes left, gives way to the next."""
        while True:
            ended = here & (self.at == self.end)
            if ended.any():
                self.live[ended] &= ~self.active[ended]
                self.active[ended] = False
            over = here & ((self.at == self.rejoin) | ~self.active.any(axis=1))
            self.at[over & (self.depth == 0)] = self.end
            over &= self.depth > 0
            if not over.any():
                return
            self._pop(over)

    # ------------------------------------------------------------------------------------------ barriers

    def _arrive(self, block: Block, here) -> None:
        instruction = block.leave.instruction
        missing = here & (self.active != self.exists).any(axis=1)
        if missing.any():
            raise Deadlock(self._left_alone(instruction, int(np.argmax(missing))))
        operands = [np.broadcast_to(v, self.lanes).reshape(-1, WARP)[:, 0] for v in block.leave.run(self)]
        self.waiting |= here
        self.barrier[here] = operands[0][here] if operands else 0
        owner = np.arange(self.warps) // self.warps_per_block
        needed = operands[1].astype(np.int64) // WARP if len(operands) > 1 else np.full(self.warps, self.warps_per_block)
        together = owner * 16 + self.barrier  # 16 barriers a block
        at_this = self.waiting & (self.at == int(self.at[here][0]))
        arrived = np.bincount(together[at_this], minlength=16 * len(self.block_ids))
        free = at_this & (arrived[together] >= needed)
        if free.any():
            self.waiting[free] = False
            self.at[free] = block.next
            if self.races:
                self.races.barrier(np.unique(owner[free]))
            self._settle(free)

    def _left_alone(self, instruction, warp: int) -> str:
        present = warp * WARP + int(np.argmax(self.active[warp]))
        absent = np.flatnonzero(self.exists[warp] & ~self.active[warp])
        other = warp * WARP + int(absent[0])
        why = "took another path" if self.live.reshape(-1)[other] else "has ended"
        return (f"{self.thread_name(present)} waits at a barrier that thread {self.thread_index(other)} does not reach "
                f"with it: that thread {why}. Every thread of a block must reach the same barrier. {self.place(instruction)}")

    def _who_waits(self) -> str:
        warp = int(np.argmax(self.waiting))
        instruction = self._barrier_at(warp)
        row = warp // self.warps_per_block
        others = np.arange(row * self.warps_per_block, (row + 1) * self.warps_per_block)
        other = next(w for w in others if not self.waiting[w] or self.at[w] != self.at[warp]
                     or self.barrier[w] != self.barrier[warp] or w == others[-1])
        why = f"it waits at another one, {self.place(self._barrier_at(other))}" if self.waiting[other] else "it has ended"
        return (f"{self.thread_name(warp * WARP)} waits for ever at a barrier that thread "
                f"{self.thread_index(other * WARP)} of its block does not reach: {why}. Every thread of a block must "
                f"reach the same barrier. {self.place(instruction)}")

    def _barrier_at(self, warp: int):
        return self.program.blocks[self.at[warp]].leave.instruction

    def need_together(self, instruction, wanted, here) -> None:
        """Raise Deadlock if an instruction names lanes of its warp that live but stand elsewhere."""
        absent = wanted & self.live & ~here & here.any(axis=1)[:, None]
        if absent.any():
            warp, lane = (int(i[0]) for i in np.nonzero(absent))
            present = warp * WARP + int(np.argmax(here[warp]))
            raise Deadlock(f"{self.thread_name(present)} exchanges values with its warp and names lane {lane}, which took "
                           f"another path and is not here. {self.place(instruction)}")

    def warps_synchronised(self, members) -> None:
        if self.races:
            self.races.warps(members)

    # ------------------------------------------------------------------------------------------ memory

    def load(self, instruction, space, addresses, lanes, raw, count, typed, counted=True, atomic=False):
        """(active lanes, count) values of the unsigned type `raw`."""
        if counted:
            self.count(instruction, space, addresses, lanes, raw.itemsize * count)
        active = self.numbers(lanes)
        out = np.empty((len(active), count), raw)
        for part, where, found in self._by_space(space, addresses, active):
            explain = self.explain(instruction, active[where], "read")
            if part == "global":
                out[where] = self.memory.load(found, raw, count, explain, typed)
            else:
                rows, places = self._places(part, active[where], found, raw.itemsize * count, explain)
                if part == "shared" and self.races:
                    self.races.read(instruction, active[where], places, raw.itemsize * count, atomic)
                out[where] = rows.load(places, raw, count)
        return out

    def store(self, instruction, space, addresses, lanes, values, typed, counted=True, atomic=False) -> None:
        """Write (active lanes, count) values."""
        size = values.dtype.itemsize * values.shape[1]
        if counted:
            self.count(instruction, space, addresses, lanes, size)
        active = self.numbers(lanes)
        for part, where, found in self._by_space(space, addresses, active):
            explain = self.explain(instruction, active[where], "wrote")
            if part == "global":
                self.memory.store(found, values[where], explain, typed)
            else:
                rows, places = self._places(part, active[where], found, size, explain)
                if part == "shared" and self.races:
                    same = (rows.load(places, values.dtype, values.shape[1]) == values[where]).all(axis=1)
                    self.races.write(instruction, active[where], places, size, atomic, same)
                    if not atomic:
                        self.races.write_together(instruction, active[where], places, size, values[where])
                rows.store(places, values[where])

    def _places(self, space, lanes, offsets, size, explain):
        if space == "shared":
            return self.shared, self.shared.places(self.row[lanes], offsets, size, explain)
        return self.local, self.local.places(lanes, offsets, size, explain)

    def _by_space(self, space, addresses, active):
        """[(space, which of the active lanes, their addresses in it)]; only generic addresses can lie in several."""
        found = addresses if len(active) == len(addresses) else addresses[active]
        if space != "generic":
            yield ("global" if space == "const" else space), slice(None), found
            return
        slots = (found >> np.uint64(memory.SLOT_BITS)).astype(np.int64) - 1
        for name, slot in (("shared", memory.SHARED_SLOT), ("local", memory.LOCAL_SLOT)):
            if (slots == slot).any():
                where = np.flatnonzero(slots == slot)
                yield name, where, found[where] - np.uint64(memory.address_of(slot))
        rest = (slots != memory.SHARED_SLOT) & (slots != memory.LOCAL_SLOT)
        if rest.any():
            yield "global", np.flatnonzero(rest), found[rest]

    def unique_places(self, space, addresses, active):
        """For each access a number that two accesses share if they touch the same memory."""
        if space == "global":
            return addresses
        owner = self.row[active] if space == "shared" else active
        return addresses + (owner.astype(np.uint64) << np.uint64(44))

    def copy(self, instruction, targets, sources, lanes, size: int, taken) -> None:
        """Start an asynchronous copy of `size` bytes a lane; of `taken` bytes (if given), the rest zeros."""
        active = self.numbers(lanes)
        taken = np.broadcast_to(size if taken is None else taken, self.lanes)
        data = np.zeros((len(active), size), np.uint8)
        self.count(instruction, "global", sources, self.flags(lanes) & (taken > 0), size)
        for amount in np.unique(taken[active]):
            where = np.flatnonzero(taken[active] == amount)
            explain, start = self.explain(instruction, active[where], "read"), sources[active[where]]
            if amount == size:
                memory.check_aligned(start, size, explain)
                data[where] = self.memory.load(start, np.uint32, size // 4, explain).view(np.uint8)
            for i in range(amount if amount < size else 0):
                data[where, i] = self.memory.load(start + np.uint64(i), np.uint8, 1, explain)[:, 0]
        explain = self.explain(instruction, active, "wrote")
        places = self.shared.places(self.row[active], targets[active], size, explain)
        self.copies.append((instruction, active, self.groups[active], places, data))

    def commit_copies(self, lanes) -> None:
        self.groups[self.numbers(lanes)] += 1

    def wait_copies(self, lanes, pending: int) -> None:
        """Copies arrive, except those of the last `pending` groups that each lane committed."""
        flags, left = self.flags(lanes), []
        for instruction, active, group, places, data in self.copies:
            done = flags[active] & (group < self.groups[active] - pending)
            if self.races:
                self.races.write(instruction, active[done], places[done], data.shape[1], False, False)
            self.shared.store(places[done], np.ascontiguousarray(data[done]).view(np.uint32))
            if not done.all():
                left.append((instruction, active[~done], group[~done], places[~done], data[~done]))
        self.copies = left

    def count(self, instruction, space, addresses, lanes, size: int) -> None:
        """Add an access to the instruction's counts: requests, sectors, wavefronts."""
        count = self.counts[instruction.index]
        flags = self.flags(lanes).reshape(-1, WARP)
        self.last_access = (space, addresses, size)
        if space == "generic":
            spaces = {name for name, _, _ in self._by_space(space, addresses, self.numbers(lanes))}
            if len(spaces) > 1:  # rare enough to be left out of the traffic
                return
            space = spaces.pop()
            count.kind = count.kind.replace("generic", space)
            addresses = addresses & np.uint64((1 << memory.SLOT_BITS) - 1) if space != "global" else addresses
        if space == "const":
            return
        addresses, requests = addresses.reshape(-1, WARP), int(flags.any(axis=1).sum())
        count.requests += requests
        count.bytes += int(flags.sum()) * size
        if space == "shared":
            wavefronts = int(memory.wavefronts_of(addresses, flags, size).sum())
            count.wavefronts += wavefronts
            count.conflicts += wavefronts - requests * memory.least_wavefronts(size)
        elif space == "local":
            count.sectors += int(memory.local_sectors_of(addresses, flags, size).sum())
        else:
            count.sectors += int(memory.sectors_of(addresses, flags).sum())

    # ------------------------------------------------------------------------------------------ lanes, names

    def flags(self, lanes) -> np.ndarray:
        return np.ones(self.lanes, bool) if lanes is None else lanes

    def numbers(self, lanes) -> np.ndarray:
        return np.arange(self.lanes) if lanes is None else np.flatnonzero(lanes)

    def special(self, name: str):
        """A special register: one value for all lanes, or one for each."""
        if name in ("%clock", "%clock64", "%globaltimer", "%clock_hi"):
            return np.array(0 if name == "%clock_hi" else self.steps, np.uint64)
        if name not in self._special:
            self._special[name] = self._compute_special(name)
        return self._special[name]

    def _compute_special(self, name: str):
        base, _, axis = name[1:].partition(".")
        grid, block = self.launch.grid, self.launch.block
        if axis:
            sizes = block if base in ("tid", "ntid") else grid
            if base in ("ntid", "nctaid"):
                return np.array(sizes["xyz".index(axis)], np.uint32)
            return _coordinate(self.thread if base == "tid" else self.block_ids[self.row], sizes, axis)
        lane = np.arange(self.lanes, dtype=np.uint32) % WARP
        bit = np.uint32(1) << lane
        return {
            "laneid": lambda: lane, "warpid": lambda: self.thread // WARP,
            "nwarpid": lambda: np.array(self.warps_per_block), "smid": lambda: self.block_ids[self.row] % 128,
            "nsmid": lambda: np.array(128), "lanemask_eq": lambda: bit, "lanemask_lt": lambda: bit - np.uint32(1),
            "lanemask_le": lambda: (bit - np.uint32(1)) | bit, "lanemask_gt": lambda: ~((bit - np.uint32(1)) | bit),
            "lanemask_ge": lambda: ~(bit - np.uint32(1)), "dynamic_smem_size": lambda: np.array(self.launch.dynamic_bytes),
            "total_smem_size": lambda: np.array(self.launch.shared_bytes),
        }[base]()

    def thread_index(self, lane: int) -> tuple[int, int, int]:
        return tuple(int(_coordinate(self.thread[lane], self.launch.block, axis)) for axis in "xyz")

    def block_index(self, lane: int) -> tuple[int, int, int]:
        return tuple(int(_coordinate(self.block_ids[self.row[lane]], self.launch.grid, axis)) for axis in "xyz")

    def thread_name(self, lane: int) -> str:
        return f"Thread {self.thread_index(lane)} of block {self.block_index(lane)}"

    def place(self, instruction) -> str:
        line = f"line {instruction.source_line}" if instruction.source_line else "no source line known"
        file = f" of {self.kernel.source_file}" if instruction.source_line and self.kernel.source_file else ""
        return f"({line}{file}; PTX line {instruction.line}: `{instruction.text}`)"

    def explain(self, instruction, lanes, verb: str = ""):
        """A function (position in `lanes`, what) -> the sentence for a fault."""
        return lambda at, what: " ".join(
            part for part in (self.thread_name(int(lanes[at])), verb, what, self.place(instruction)) if part)

    def _record(self, step: Step, warp: int, lanes) -> None:
        """Add a step of the traced warp."""
        own = slice(warp * WARP, (warp + 1) * WARP)
        instruction, active = step.instruction, self.flags(lanes)[own].copy()
        if not active.any():
            return
        values = {}
        dtype = arithmetic.TYPES.get(instruction.parts[-1])
        for name in {n.strip("!|{}[]+, ") for text in instruction.operands for n in text.replace("|", ",").split(",")}:
            if name in self.kernel.registers:
                register = self.registers[name][own]
                same = dtype is not None and np.dtype(dtype).itemsize == register.itemsize and register.dtype != bool
                values[name] = register.view(dtype).copy() if same else register.copy()
        touched = None
        if self.last_access is not None and step.kind != "branch":
            space, addresses, size = self.last_access
            touched = Access(space, addresses[own].copy(), size)
        self.launch.trace.append(TraceStep(instruction.text, instruction.line, instruction.source_line, active, values,
                                           touched))


def _coordinate(number, sizes, axis: str):
    x, y, _ = sizes
    return {"x": lambda: number % x, "y": lambda: number // x % y, "z": lambda: number // (x * y)}[axis]()
