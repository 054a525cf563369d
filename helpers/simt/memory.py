"""Memory as the machine sees it: bounded global buffers, shared memory per block, and what a warp's access costs."""

import numpy as np

from helpers.simt.faults import Misaligned, OutOfBounds

SECTOR = 32  # bytes, the least that is moved from or to device memory
BANKS = 32  # of 4 bytes each
FIRST_ADDRESS = 1 << 32
GAP = 1 << 20  # between buffers: an index off by a little lands in no buffer


class Global:
    """Argument buffers at addresses of their own, aligned as an allocation on the GPU would be."""

    def __init__(self):
        self.bases, self.bytes, self.names = [], [], []

    def add(self, data: np.ndarray, misalignment: int, name: str) -> int:
        """Take a flat uint8 view; returns its address."""
        last = self.bases[-1] + len(self.bytes[-1]) if self.bases else FIRST_ADDRESS
        base = -(-(last + GAP) // 256) * 256 + misalignment
        self.bases.append(base)
        self.bytes.append(data)
        self.names.append(name)
        return base

    def find(self, addresses: np.ndarray, size: int, explain) -> list[tuple[int, np.ndarray]]:
        """Which buffer each access falls into: [(buffer, positions in `addresses`)]. Raises OutOfBounds, Misaligned."""
        wrong = addresses % size != 0
        if wrong.any():
            raise Misaligned(explain(int(np.argmax(wrong)), f"the address is not a multiple of {size} bytes"))
        bases = np.array(self.bases, np.uint64)
        which = np.searchsorted(bases, addresses, "right").astype(np.int64) - 1
        ends = bases + np.array([len(b) for b in self.bytes], np.uint64)
        outside = (which < 0) | (addresses + np.uint64(size) > ends[np.maximum(which, 0)])
        if outside.any():
            at = int(np.argmax(outside))
            raise OutOfBounds(explain(at, self._where(int(addresses[at]), size)))
        first = which[0]
        if (which == first).all():
            return [(int(first), slice(None))]
        return [(int(b), np.flatnonzero(which == b)) for b in np.unique(which)]

    def _where(self, address: int, size: int) -> str:
        """An address in words, relative to the nearest buffer."""
        if not self.bases:
            return "no buffer was passed"
        near = min(range(len(self.bases)), key=lambda b: max(self.bases[b] - address,
                                                             address - self.bases[b] - len(self.bytes[b])))
        offset, length = address - self.bases[near], len(self.bytes[near])
        if abs(offset) > GAP + length:
            return f"address {address:#x} lies in no buffer"
        return f"{size} bytes at byte {offset} of {self.names[near]}, which has {length} bytes"

    def load(self, addresses, size, explain) -> np.ndarray:
        """(lanes, size) bytes at the addresses, as uint8."""
        out = np.empty((len(addresses), size), np.uint8)
        span = np.arange(size)
        for buffer, where in self.find(addresses, size, explain):
            offset = (addresses[where] - np.uint64(self.bases[buffer])).astype(np.int64)
            out[where] = self.bytes[buffer][offset[:, None] + span]
        return out

    def store(self, addresses, values, explain) -> None:
        """Write (lanes, size) bytes; where lanes write one address, the last lane wins."""
        size = values.shape[1]
        span = np.arange(size)
        for buffer, where in self.find(addresses, size, explain):
            offset = (addresses[where] - np.uint64(self.bases[buffer])).astype(np.int64)
            self.bytes[buffer][offset[:, None] + span] = values[where]


def sectors_of(addresses: np.ndarray, active: np.ndarray, size: int) -> np.ndarray:
    """Distinct 32-byte sectors that each warp's active lanes touch: (warps, 32) addresses -> (warps,)."""
    first = np.where(active, addresses // np.uint64(SECTOR), np.uint64(2**63))
    first = np.sort(first, axis=1)
    new = np.ones(first.shape, bool)
    new[:, 1:] = first[:, 1:] != first[:, :-1]
    return (new & (first != np.uint64(2**63))).sum(axis=1)  # an aligned access of up to 16 bytes lies in one sector


def wavefronts_of(offsets: np.ndarray, active: np.ndarray, size: int) -> np.ndarray:
    """Passes through shared memory that each warp's access takes: (warps, 32) byte offsets -> (warps,).

    A pass serves each bank one word. 8-byte accesses go half a warp at a time, 16-byte ones a quarter.
    """
    parts = max(1, size // 4)
    words = (offsets.astype(np.int64) // 4)[..., None] + np.arange(parts)
    warps = len(offsets)
    groups = parts if parts in (2, 4) else 1
    words = words.reshape(warps * groups, -1)
    on = np.repeat(active[..., None], parts, axis=2).reshape(warps * groups, -1)
    words = np.sort(np.where(on, words, -1), axis=1)
    new = words >= 0
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    row, column = np.nonzero(new)
    counts = np.bincount(row * BANKS + words[row, column] % BANKS, minlength=len(words) * BANKS)
    return counts.reshape(len(words), BANKS).max(axis=1).reshape(warps, groups).sum(axis=1)
