"""Finding races on shared memory: two threads, one word, at least one write, and nothing that orders them.

For every word the checker keeps who wrote it last and who read it since the last barrier. A barrier of the block orders
everything; `bar.warp.sync` orders what the lanes that it names did, which vector clocks keep (Lamport 1978, Mattern 1989).
"""

import numpy as np

from helpers.simt.faults import Race

NOBODY = -1
WARP = 32
# An access in one number: its lane, instruction and time, from the lowest bit on.
LANE_BITS, INSTRUCTION_BITS = 20, 20


class RaceChecker:
    """Races of the blocks that run together. `raises`: stop at the first; otherwise collect sentences in `found`.

    Of a word's readers three are kept, which is enough to find one that a writer races with: the last one, the last one
    that is another lane than that, and the last one of another warp.
    """

    def __init__(self, machine, shared_bytes: int, grain: int, raises: bool, found: dict):
        self.machine, self.grain, self.raises, self.found = machine, grain, raises, found
        blocks, lanes = len(machine.threads.blocks), machine.lanes
        self.words = -(-shared_bytes // 16) * 16 // grain
        self.writer, self.reader, self.other_reader, self.distant_reader = np.full((4, blocks * self.words), NOBODY, np.int64)
        self.atomic = np.zeros(len(self.writer), bool)  # the last write was one
        self.clocks = np.zeros((lanes // WARP, WARP, WARP), np.int64)  # [warp, a, b]: the time of lane b, as far as a knows

    def barrier(self, rows) -> None:
        for table in (self.writer, self.reader, self.other_reader, self.distant_reader):
            table.reshape(-1, self.words)[rows] = NOBODY

    def warps(self, members) -> None:
        """The lanes of `members` (warps, 32) meet: all of them know what each had known, and a new time begins for them."""
        here = np.flatnonzero(members.any(axis=1))
        among, known = members[here][:, :, None], self.clocks[here]
        joined = np.where(among, known, 0).max(axis=1) + members[here]
        self.clocks[here] = np.where(among, joined[:, None], known)

    def _touched(self, instruction, lanes, places, size):
        """Each word that is accessed: by which lane, where, and the access in one number."""
        parts = max(1, size // self.grain)
        words = ((places // self.grain)[:, None] + np.arange(parts)).reshape(-1)
        times = self.clocks[lanes // WARP, lanes % WARP, lanes % WARP]
        access = lanes | instruction.index << LANE_BITS | times << LANE_BITS + INSTRUCTION_BITS
        return np.repeat(lanes, parts), words, np.repeat(access, parts)

    def _unordered(self, lanes, earlier):
        """Whether another lane's earlier access is ordered by nothing before this one."""
        if not (earlier != NOBODY).any():
            return np.zeros(len(lanes), bool)
        others, times = _lane(earlier), earlier >> LANE_BITS + INSTRUCTION_BITS
        same_warp = others // WARP == lanes // WARP
        known = self.clocks[lanes // WARP, lanes % WARP, others % WARP]
        return (earlier != NOBODY) & (others != lanes) & ~(same_warp & (times < known))

    def read(self, instruction, lanes, places, size, atomic) -> None:
        lanes, words, access = self._touched(instruction, lanes, places, size)
        wrong = self._unordered(lanes, self.writer[words])
        if atomic:
            wrong &= ~self.atomic[words]
        if wrong.any():
            self._report(instruction, lanes, words, wrong, self.writer, "read", "wrote")
        if atomic:
            return
        before = self.reader[words]
        self.reader[words] = access
        last = _lane(self.reader[words])
        for earlier in (before, access):  # also the other lanes that read a word in this instruction
            differs = np.flatnonzero((_lane(earlier) != last) & (earlier != NOBODY))
            if len(differs):
                self.other_reader[words[differs]] = earlier[differs]
                differs = differs[_lane(earlier[differs]) // WARP != last[differs] // WARP]
                self.distant_reader[words[differs]] = earlier[differs]

    def write(self, instruction, lanes, places, size, atomic, harmless, keep=True) -> None:
        """`harmless` marks accesses that store what is there already: their order does not matter. `keep`: remember it."""
        harmless = np.repeat(np.broadcast_to(harmless, len(lanes)), max(1, size // self.grain))
        lanes, words, access = self._touched(instruction, lanes, places, size)
        wrong = self._unordered(lanes, self.writer[words]) & ~harmless
        if atomic:
            wrong &= ~self.atomic[words]
        if wrong.any():
            self._report(instruction, lanes, words, wrong, self.writer, "wrote", "wrote")
        for table in (self.reader, self.other_reader, self.distant_reader):
            wrong = self._unordered(lanes, table[words]) & ~harmless
            if wrong.any():
                self._report(instruction, lanes, words, wrong, table, "wrote", "read")
        if keep:
            self.writer[words] = access
            self.atomic[words] = atomic

    def write_together(self, instruction, lanes, places, values) -> None:
        """Lanes that store different values to one word in the same instruction."""
        order = np.lexsort((lanes, places))
        places, values, lanes = places[order], values[order], lanes[order]
        wrong = (places[1:] == places[:-1]) & (values[1:] != values[:-1]).any(axis=1)
        if wrong.any():
            at = int(np.argmax(wrong))
            m = self.machine
            self._found(("wrote", instruction, "wrote", instruction), (
                f"Race on byte {places[at] % (self.words * self.grain)} of shared memory: {m.threads.name(int(lanes[at]))} "
                f"and thread {m.threads.index(int(lanes[at + 1]))} write different values to it in one instruction. "
                f"Which stays is chance. {m.place(instruction)}"))

    def _report(self, instruction, lanes, words, wrong, table, did, other_did) -> None:
        m, at = self.machine, int(np.argmax(wrong))
        lane, word = int(lanes[at]), int(words[at])
        access = int(table[word])
        other, earlier = _lane(access), m.kernel.instructions[access >> LANE_BITS & (1 << INSTRUCTION_BITS) - 1]
        sentence = (f"Race on byte {word % self.words * self.grain} of shared memory: {m.threads.name(lane)} {did} it "
                    f"{m.place(instruction)}, thread {m.threads.index(other)} {other_did} it {m.place(earlier)}, and no "
                    "barrier lies between them. Which comes first is chance: __syncthreads() is missing.")
        self._found((did, instruction, other_did, earlier), sentence)

    def _found(self, what, sentence: str) -> None:
        """Raise, or keep the first sentence about each pair of source lines."""
        if self.raises:
            raise Race(sentence)
        key = tuple(part if isinstance(part, str) else part.source_line or part.index for part in what)
        self.found.setdefault(key, sentence)


def _lane(access):
    return access & (1 << LANE_BITS) - 1
