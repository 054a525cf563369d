"""Memory as the machine sees it: bounded buffers, shared memory per block, and what a warp's access costs."""

from dataclasses import dataclass, field

import numpy as np

from helpers.simt.faults import Misaligned, OutOfBounds, WrongType

SECTOR = 32  # bytes, the least that is moved from or to device memory
BANKS = 32  # of 4 bytes each

# Addresses: every buffer lies in the middle of a terabyte of its own, so that no wrong index lands in a neighbour unseen.
SLOT_BITS = 40
CONSTANT_SLOT = 128  # module arrays
SHARED_SLOT, LOCAL_SLOT = 254, 255  # where generic addresses see a block's shared and a thread's local memory


def address_of(slot: int) -> int:
    return ((slot + 1) << SLOT_BITS) + (1 << (SLOT_BITS - 1))


def place_of(value: int) -> tuple[int, int] | None:
    """(argument, offset in bytes) that a number is the address of, or None if it is no address of an argument's array.

    Alignment within 256 bytes counts towards the offset.
    """
    slot = (value >> SLOT_BITS) - 1
    offset = value - address_of(slot)
    return (slot, offset) if 0 <= slot < CONSTANT_SLOT and abs(offset) < 1 << (SLOT_BITS - 2) else None


def slot_of(addresses: np.ndarray) -> np.ndarray:
    return (addresses >> np.uint64(SLOT_BITS)).astype(np.int64) - 1


def within_slot(addresses: np.ndarray) -> np.ndarray:
    return addresses - np.uint64(address_of(0)) & np.uint64((1 << SLOT_BITS) - 1)


class _Bfloat16:
    """A type of array that numpy does not have, with what is asked of a dtype here."""

    kind, itemsize = "f", 2

    def __str__(self):
        return "bfloat16"


BFLOAT16 = _Bfloat16()


@dataclass
class Buffer:
    """An array of device memory: a flat uint8 view of it, and what its owner says is in it."""

    name: str
    bytes: np.ndarray
    dtype: np.dtype | None = None  # None: no claim
    misalignment: int = 0  # of its first byte, within 256 bytes
    seen: set = field(default_factory=set)  # sizes of floats that were read from it

    def taken_for_floats(self, size: int) -> int | None:
        """A number of an integer array, if all of them are too small to be the bits of floats. Looks once for each size."""
        if self.dtype is None or self.dtype.kind not in "iu" or self.dtype.itemsize == 1 or size in self.seen:
            return None
        self.seen.add(size)
        numbers = self.bytes.view(self.dtype)
        if not numbers.any() or (np.abs(numbers.astype(np.float64)) >= {2: 1 << 10, 4: 1 << 23, 8: 1 << 52}[size]).any():
            return None
        return int(numbers[np.flatnonzero(numbers)[0]])

    def describe(self, offset: int, size: int) -> str:
        """An offset outside the buffer, in words."""
        item = self.dtype.itemsize if self.dtype is not None else 1
        length = len(self.bytes) // item
        what = f"{self.dtype} element" if item > 1 else "byte"
        if offset % item:
            return f"byte {offset} of {self.name}, which has {len(self.bytes)} bytes"
        index = offset // item
        many = f"s {index} to {index + size // item - 1}" if size > item else f" {index}"
        return f"{what}{many} of {self.name}, which has elements 0 to {length - 1}" if length else (
            f"{what}{many} of {self.name}, which is empty")


class Global:
    """Device memory: buffers by slot."""

    def __init__(self):
        self.buffers: dict[int, Buffer] = {}

    def add(self, slot: int, buffer: Buffer) -> int:
        """Returns the buffer's address, which is as aligned as the buffer is."""
        self.buffers[slot] = buffer
        return address_of(slot) + buffer.misalignment

    def _locate(self, addresses, item: int, count: int, typed, explain, reads: bool):
        """[(buffer, offsets in it, which of the accesses)] Raises OutOfBounds, Misaligned, WrongType."""
        size = item * count
        check_aligned(addresses, size, explain)
        slots = slot_of(addresses)
        groups = [(slots[0], slice(None))] if (slots == slots[0]).all() else [
            (slot, np.flatnonzero(slots == slot)) for slot in np.unique(slots)]
        for slot, where in groups:
            buffer, first = self.buffers.get(int(slot)), np.arange(len(addresses))[where][0]
            if buffer is None:
                raise OutOfBounds(explain(first, f"address {int(addresses[first]):#x}, which is in no array that was passed"))
            if typed is not None and buffer.dtype is not None and not fits(typed, item, buffer.dtype, reads):
                raise WrongType(explain(first, f"{buffer.name} as {_named(typed, item)}, but it is an array of {buffer.dtype}"))
            if reads and typed not in (None, "int") and (number := buffer.taken_for_floats(item)) is not None:
                raise WrongType(explain(first, f"{buffer.name} as {_named(typed, item)}, but it is an array of {buffer.dtype}: the "
                                               f"bits of a {number} are no sensible float"))
            offsets = addresses[where].view(np.int64) - (address_of(int(slot)) + buffer.misalignment)
            outside = (offsets < 0) | (offsets > len(buffer.bytes) - size)
            if outside.any():
                at = np.flatnonzero(outside)[0]
                raise OutOfBounds(explain(np.arange(len(addresses))[where][at],
                                          buffer.describe(int(offsets[at]), size)))
            yield buffer, offsets, where

    def load(self, addresses, dtype, count: int, explain, typed=None) -> np.ndarray:
        """(lanes, count) values of an unsigned dtype, side by side from each address."""
        item = np.dtype(dtype).itemsize
        out = np.empty((len(addresses), count), dtype)
        for buffer, offsets, where in self._locate(addresses, item, count, typed, explain, True):
            if buffer.misalignment % item == 0:
                view = buffer.bytes[: len(buffer.bytes) // item * item].view(dtype)
                out[where] = view[(offsets // item)[:, None] + np.arange(count)]
            else:
                raw = buffer.bytes[offsets[:, None] + np.arange(item * count)]
                out[where] = np.ascontiguousarray(raw).view(dtype)
        return out

    def store(self, addresses, values: np.ndarray, explain, typed=None) -> bool:
        """Write (lanes, count) values; where lanes write one address, the last lane wins. Returns whether anything changed."""
        item, count, changed = values.dtype.itemsize, values.shape[1], False
        for buffer, offsets, where in self._locate(addresses, item, count, typed, explain, False):
            if not buffer.bytes.flags.writeable:
                raise OutOfBounds(explain(0, f"{buffer.name}, which may only be read"))
            if buffer.misalignment % item == 0:
                view = buffer.bytes[: len(buffer.bytes) // item * item].view(values.dtype)
                changed |= _put(view, (offsets // item)[:, None] + np.arange(count), values[where])
            else:
                raw = np.ascontiguousarray(values[where]).view(np.uint8)
                changed |= _put(buffer.bytes, offsets[:, None] + np.arange(item * count), raw)
        return changed


class Rows:
    """Memory of which each block (shared) or thread (local) has its own row."""

    def __init__(self, name: str, rows: int, size: int):
        self.name, self.size = name, size
        self.row_bytes = -(-size // 16) * 16
        # Never zero: a kernel that reads what nobody wrote should not look right. As float32 this is NaN.
        self.bytes = np.full(rows * self.row_bytes, 0xFF, np.uint8)

    def places(self, rows, offsets, size: int, explain) -> np.ndarray:
        """Byte positions in the flat memory. Raises OutOfBounds, Misaligned."""
        offsets = offsets.astype(np.uint64)
        check_aligned(offsets, size, explain)
        outside = offsets > np.uint64(max(self.size - size, -1) % 2**64) if self.size >= size else offsets >= 0
        if outside.any():
            at = int(np.argmax(outside))
            raise OutOfBounds(explain(at, f"byte {offsets[at].astype(np.int64)} of {self.name}, which has "
                                          f"{self.size} bytes"))
        return rows * self.row_bytes + offsets.view(np.int64)

    def load(self, places, dtype, count: int) -> np.ndarray:
        return self.bytes.view(dtype)[(places // np.dtype(dtype).itemsize)[:, None] + np.arange(count)]

    def store(self, places, values) -> bool:
        """Write (lanes, count) values. Returns whether anything changed."""
        view = self.bytes.view(values.dtype)
        return _put(view, (places // values.dtype.itemsize)[:, None] + np.arange(values.shape[1]), values)


def _put(memory: np.ndarray, places: np.ndarray, values: np.ndarray) -> bool:
    changed = not np.array_equal(memory[places], values)
    memory[places] = values
    return changed


def check_aligned(addresses, size: int, explain) -> None:
    wrong = addresses & np.uint64(size - 1) != 0
    if wrong.any():
        at = int(np.argmax(wrong))
        raise Misaligned(explain(at, f"{size} bytes at an address that is not a multiple of {size}: "
                                     f"{int(addresses[at]) % 256} past a multiple of 256"))


def _named(typed: str, size: int) -> str:
    return f"{'int' if typed == 'int' else 'float'}{8 * size}"


def fits(typed: str, size: int, dtype: np.dtype, reads: bool) -> bool:
    """Whether values used as `typed` ("f32", ..., "int") of `size` bytes may come from or go to an array of `dtype`.

    An array of bytes may hold anything, and whole numbers the bits of floats, of which a part may be read. Floats of 16 bits
    are often put together and taken apart as whole numbers.
    """
    if dtype.kind == "f" and dtype.itemsize == 2:
        return typed == "int" or typed == "f16" and dtype == np.float16
    return dtype.itemsize in (1, size) or (dtype.kind != "f" and (typed == "int" or reads and dtype.itemsize > size))


# ------------------------------------------------------------------------------------------------ what it costs


def sectors_of(addresses: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Distinct 32-byte sectors that each warp's active lanes touch: (warps, 32) addresses -> (warps,).

    An aligned access of up to 32 bytes lies in one sector.
    """
    nowhere = np.uint64(2**64 - 1)
    sectors = np.where(active, addresses // np.uint64(SECTOR), nowhere)
    if (sectors[:, 1:] < sectors[:, :-1]).any():
        sectors = np.sort(sectors, axis=1)
    new = sectors[:, 1:] != sectors[:, :-1]
    return (new & (sectors[:, 1:] != nowhere)).sum(axis=1) + (sectors[:, 0] != nowhere)


def local_sectors_of(offsets: np.ndarray, active: np.ndarray, size: int) -> np.ndarray:
    """The same for local memory, which is laid out so that word k of all 32 lanes stands side by side."""
    words = offsets.astype(np.int64)[..., None] // 4 + np.arange(max(1, size // 4))
    addresses = words * 128 + 4 * np.arange(32)[:, None]
    return sectors_of(addresses.reshape(len(offsets), -1).astype(np.uint64), np.repeat(active, words.shape[-1], axis=1))


def wavefronts_of(offsets: np.ndarray, active: np.ndarray, size: int, load: bool) -> tuple[np.ndarray, np.ndarray]:
    """Passes through shared memory of each warp's access, and the fewest it could take: (warps, 32) offsets -> 2 x (warps,).

    A pass serves each bank one word. 8-byte accesses go half a warp at a time, 16-byte ones a quarter; two such parts of a
    load go together where the lanes come in pairs (neighbours, or those two apart) that want the same element. NVIDIA does
    not document that: an H200 was seen to do it (tests/test_simt_counts.py).
    """
    parts, warps = max(1, size // 4), len(offsets)
    groups = np.full(warps, parts if parts in (2, 4) else 1)
    if parts > 1 and load:
        groups = np.where(_paired(offsets, active, 1) | _paired(offsets, active, 2), groups // 2, groups)
    words = (offsets.astype(np.int64) // 4)[..., None] + np.arange(parts)
    on = np.repeat(active[..., None], parts, axis=2)
    passes, fewest = np.zeros((2, warps), np.int64)
    for count in np.unique(groups):
        same = np.flatnonzero(groups == count)
        rows = len(same) * count
        each = _passes(words[same].reshape(rows, -1), on[same].reshape(rows, -1)).reshape(-1, count)
        passes[same], fewest[same] = each.sum(axis=1), (each > 0).sum(axis=1)
    return passes, fewest


def _paired(offsets, active, apart: int) -> np.ndarray:
    """Whether every lane of a warp wants the same as the one `apart` from it, unless one of them is not active."""
    partner = np.arange(32) ^ apart
    return ((offsets == offsets[:, partner]) | ~active | ~active[:, partner]).all(axis=1)


def _passes(words: np.ndarray, on: np.ndarray) -> np.ndarray:
    """For each row of 4-byte words: the most different words that lie in one bank."""
    words = np.sort(np.where(on, words, -1), axis=1)
    new = words >= 0
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    row, column = np.nonzero(new)
    counts = np.bincount(row * BANKS + words[row, column] % BANKS, minlength=len(words) * BANKS)
    return counts.reshape(len(words), BANKS).max(axis=1)
