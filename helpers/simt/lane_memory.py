"""Loads and stores of many warps at once: bytes go to the right space, and every access is counted."""

import numpy as np

from helpers.simt import memory
from helpers.simt.faults import Uninitialised
from helpers.simt.report import Access
from helpers.simt.threads import WARP


class LaneMemory:
    """Device memory, shared memory and local memory as the lanes of a machine see them.

    `lanes` are flags (None: all); `addresses` have one entry for every lane, values only for the active ones.
    """

    def __init__(self, machine, uninitialised: bool):
        self.m = machine
        launch, threads = machine.launch, machine.threads
        self.device = launch.device
        self.shared = memory.Rows("the block's shared memory", len(threads.blocks), launch.shared_bytes)
        self.local = memory.Rows("the thread's local memory", threads.lanes, machine.kernel.local_bytes)
        self.written = np.zeros(len(self.shared.bytes), bool) if uninitialised else None
        self.copies, self.groups = [], np.zeros(threads.lanes, np.int64)  # cp.async: under way, and committed so far
        self.changes = 0  # how many accesses changed something
        self.last = None  # (space, addresses, size, whether it loads) of the step that runs

    def load(self, instruction, space, addresses, lanes, raw, count, typed, counted=True, atomic=False) -> np.ndarray:
        """(active lanes, count) values of the unsigned type `raw`, side by side from each address."""
        if counted:
            self.count(instruction, space, addresses, lanes, raw.itemsize * count)
        active = self.m.numbers(lanes)
        out = np.empty((len(active), count), raw)
        for part, where, found in self._by_space(space, addresses, active):
            explain = self.m.explain(instruction, active[where], "read")
            if part == "global":
                out[where] = self.device.load(found, raw, count, explain, typed)
                continue
            rows, places = self._places(part, active[where], found, raw.itemsize * count, explain)
            if part == "shared" and self.written is not None:
                self._need_written(places, raw.itemsize * count, explain)
            if part == "shared" and self.m.races:
                self.m.races.read(instruction, active[where], places, raw.itemsize * count, atomic)
            out[where] = rows.load(places, raw, count)
        return out

    def store(self, instruction, space, addresses, lanes, values, typed, counted=True, atomic=False) -> None:
        """Write (active lanes, count) values."""
        if counted:
            self.count(instruction, space, addresses, lanes, values.dtype.itemsize * values.shape[1])
        active = self.m.numbers(lanes)
        for part, where, found in self._by_space(space, addresses, active):
            explain = self.m.explain(instruction, active[where], "wrote")
            if part == "global":
                self.changes += self.device.store(found, values[where], explain, typed)
                continue
            rows, places = self._places(part, active[where], found, values.dtype.itemsize * values.shape[1], explain)
            if part == "shared":
                self._check_shared_store(instruction, active[where], places, values[where], atomic)
            self.changes += rows.store(places, values[where])

    def _check_shared_store(self, instruction, active, places, values, atomic) -> None:
        size = values.dtype.itemsize * values.shape[1]
        if self.written is not None:
            self.written[places[:, None] + np.arange(size)] = True
        if self.m.races:
            same = (self.shared.load(places, values.dtype, values.shape[1]) == values).all(axis=1)
            self.m.races.write(instruction, active, places, size, atomic, same)
            if not atomic:
                self.m.races.write_together(instruction, active, places, values)

    def _need_written(self, places, size: int, explain) -> None:
        wrong = ~self.written[places[:, None] + np.arange(size)].all(axis=1)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise Uninitialised(explain(at, f"byte {places[at] % self.shared.row_bytes} of shared memory, "
                                            "which no thread of the block had written"))

    def _places(self, space, lanes, offsets, size, explain):
        if space == "shared":
            return self.shared, self.shared.places(self.m.threads.row[lanes], offsets, size, explain)
        return self.local, self.local.places(lanes, offsets, size, explain)

    def touched(self, own: slice, active: np.ndarray) -> Access:
        """What the lanes of one warp touched in the last access, for the trace."""
        space, addresses, size, load = self.last
        addresses, flags = addresses[own], active[None]
        if space == "generic":
            space = next(self._by_space(space, addresses, np.flatnonzero(active)))[0]
            addresses = memory.within_slot(addresses) if space != "global" else addresses
        if space not in ("global", "const"):
            if space == "shared":
                cost = memory.wavefronts_of(addresses[None], flags, size, load)[0]
            else:
                cost = memory.local_sectors_of(addresses[None], flags, size)
            return Access(space, f"{space} memory", addresses.astype(np.int64), size, int(cost[0]))
        slot = int(memory.slot_of(addresses[active])[0])
        start = memory.address_of(slot) + self.device.buffers[slot].misalignment
        return Access(space, self.device.buffers[slot].name, addresses.view(np.int64) - start, size,
                      int(memory.sectors_of(addresses[None], flags)[0]))

    def _by_space(self, space, addresses, active):
        """[(space, which of the active lanes, their addresses in it)]; only generic addresses can lie in several."""
        found = addresses if len(active) == len(addresses) else addresses[active]
        if space != "generic":
            yield ("global" if space == "const" else space), slice(None), found
            return
        slots = memory.slot_of(found)
        for name, slot in (("shared", memory.SHARED_SLOT), ("local", memory.LOCAL_SLOT)):
            if (slots == slot).any():
                where = np.flatnonzero(slots == slot)
                yield name, where, found[where] - np.uint64(memory.address_of(slot))
        rest = np.flatnonzero((slots != memory.SHARED_SLOT) & (slots != memory.LOCAL_SLOT))
        if len(rest):
            yield "global", rest, found[rest]

    def identities(self, space, addresses, active) -> np.ndarray:
        """For each active lane a number that two lanes share if they name the same memory."""
        found, row = addresses[active], self.m.threads.row[active]
        slots = memory.slot_of(found) if space == "generic" else np.full(len(active), {"shared": memory.SHARED_SLOT}.get(space, 0))
        owner = np.where(slots == memory.SHARED_SLOT, row, np.where(slots == memory.LOCAL_SLOT, active, 0))
        return found + (owner.astype(np.uint64) << np.uint64(48))

    # ------------------------------------------------------------------------------------------ asynchronous copies

    def copy(self, instruction, targets, sources, lanes, size: int, taken) -> None:
        """Start a copy of `size` bytes a lane from device to shared memory; of `taken` bytes, then zeros, if given."""
        active = self.m.numbers(lanes)
        taken = np.broadcast_to(size if taken is None else taken, self.m.lanes)
        data = np.zeros((len(active), size), np.uint8)
        self.count(instruction, "global", sources, self.m.flags(lanes) & (taken > 0), size)
        for amount in np.unique(taken[active]):
            where = np.flatnonzero(taken[active] == amount)
            explain, start = self.m.explain(instruction, active[where], "read"), sources[active[where]]
            if amount == size:
                memory.check_aligned(start, size, explain)
                data[where] = self.device.load(start, np.uint32, size // 4, explain).view(np.uint8)
            for i in range(amount if amount < size else 0):
                data[where, i] = self.device.load(start + np.uint64(i), np.uint8, 1, explain)[:, 0]
        places = self.shared.places(self.m.threads.row[active], targets[active], size,
                                    self.m.explain(instruction, active, "wrote"))
        if self.m.races:  # it may arrive from now on, whoever still reads what is there
            self.m.races.write(instruction, active, places, size, False, np.array(False), keep=False)
        self.copies.append((instruction, active, self.groups[active], places, data))
        self.changes += 1

    def commit(self, lanes) -> None:
        self.groups[self.m.numbers(lanes)] += 1
        self.changes += 1

    def wait(self, lanes, pending: int) -> None:
        """Copies arrive, except those of the last `pending` groups that each lane committed (-1: all, committed or not)."""
        flags, left = self.m.flags(lanes), []
        for instruction, active, group, places, data in self.copies:
            done = flags[active] & (group < self.groups[active] - pending)
            values = np.ascontiguousarray(data[done]).view(np.uint32)
            self._check_shared_store(instruction, active[done], places[done], values, False)
            self.changes += self.shared.store(places[done], values)
            if not done.all():
                left.append((instruction, active[~done], group[~done], places[~done], data[~done]))
        self.copies = left

    # ------------------------------------------------------------------------------------------ counting

    def count(self, instruction, space, addresses, lanes, size: int) -> None:
        """Add an access to the instruction's counts: requests, bytes, and sectors or wavefronts."""
        self.last = (space, addresses, size, instruction.name == "ld")
        count = self.m.counts[instruction.index]
        flags = self.m.flags(lanes).reshape(-1, WARP)
        if space == "generic":
            spaces = {name for name, _, _ in self._by_space(space, addresses, self.m.numbers(lanes))}
            if len(spaces) > 1:  # rare enough to be left out of the traffic
                return
            space = spaces.pop()
            count.kind = count.kind.replace("generic", space)
            addresses = memory.within_slot(addresses) if space != "global" else addresses
        if space == "const":
            return
        addresses = addresses.reshape(-1, WARP)
        requests = int(flags.any(axis=1).sum())
        count.requests += requests
        count.bytes += int(flags.sum()) * size
        if space == "shared":
            passes, fewest = memory.wavefronts_of(addresses, flags, size, instruction.name == "ld")
            count.wavefronts += int(passes.sum())
            count.conflicts += int((passes - fewest).sum())
        elif space == "local":
            count.sectors += int(memory.local_sectors_of(addresses, flags, size).sum())
        else:
            count.sectors += int(memory.sectors_of(addresses, flags).sum())
