"""Finding races on shared memory: two threads, one word, at least one write, and nothing that orders them.

For every word the checker keeps who wrote it last and who read it since the last barrier. A barrier of the block orders
everything; `bar.warp.sync` orders what the lanes of one warp did, which is kept as an epoch of that warp.
"""

import numpy as np

from helpers.simt.faults import Race

NOBODY = -1
WARP = 32


class RaceChecker:
    """Races of the blocks that run together. `raises`: stop at the first; otherwise collect sentences in `found`."""

    def __init__(self, machine, shared_bytes: int, grain: int, raises: bool, found: dict):
        self.machine, self.grain, self.raises, self.found = machine, grain, raises, found
        blocks, lanes = len(machine.threads.blocks), machine.lanes
        self.words = -(-shared_bytes // 16) * 16 // grain
        self.writer = np.full(blocks * self.words, NOBODY, np.int32)
        self.reader, self.other_reader = self.writer.copy(), self.writer.copy()
        self.atomic = np.zeros(len(self.writer), bool)  # the last write was one
        self.writer_epoch, self.reader_epoch = np.zeros((2, len(self.writer)), np.int32)
        self.wrote, self.read_by = np.full((2, len(self.writer)), NOBODY, np.int16)  # instructions
        self.epoch = np.zeros(lanes // WARP, np.int32)

    def barrier(self, rows) -> None:
        for table in (self.writer, self.reader, self.other_reader):
            table.reshape(-1, self.words)[rows] = NOBODY

    def warps(self, members) -> None:
        self.epoch[members.any(axis=1)] += 1

    def _touched(self, lanes, places, size):
        parts = max(1, size // self.grain)
        words = (places // self.grain)[:, None] + np.arange(parts)
        return np.repeat(lanes, parts), words.reshape(-1)

    def _unordered(self, lanes, others, epochs):
        """Whether another lane's earlier access is ordered by nothing before this one."""
        same_warp = others // WARP == lanes // WARP
        return (others != NOBODY) & (others != lanes) & ~(same_warp & (epochs < self.epoch[lanes // WARP]))

    def read(self, instruction, lanes, places, size, atomic) -> None:
        lanes, words = self._touched(lanes, places, size)
        wrong = self._unordered(lanes, self.writer[words], self.writer_epoch[words])
        if atomic:
            wrong &= ~self.atomic[words]
        if wrong.any():
            self._report(instruction, lanes, words, wrong, self.writer, self.wrote, "read", "wrote")
        if atomic:
            return
        before = self.reader[words]
        keep = (before != NOBODY) & (before != lanes)
        self.other_reader[words] = np.where(keep, before, self.other_reader[words])
        self.reader[words] = lanes
        # Lanes that read one word in the same instruction: keep one of the others, too.
        last = self.reader[words]
        others = lanes != last
        self.other_reader[words[others]] = lanes[others]
        self.reader_epoch[words] = self.epoch[lanes // WARP]
        self.read_by[words] = instruction.index

    def write(self, instruction, lanes, places, size, atomic, harmless) -> None:
        """`harmless` marks accesses that store what is there already: their order does not matter."""
        harmless = np.repeat(np.broadcast_to(harmless, len(lanes)), max(1, size // self.grain))
        lanes, words = self._touched(lanes, places, size)
        wrong = self._unordered(lanes, self.writer[words], self.writer_epoch[words]) & ~harmless
        if atomic:
            wrong &= ~self.atomic[words]
        if wrong.any():
            self._report(instruction, lanes, words, wrong, self.writer, self.wrote, "wrote", "wrote")
        for table in (self.reader, self.other_reader):
            wrong = self._unordered(lanes, table[words], self.reader_epoch[words]) & ~harmless
            if wrong.any():
                self._report(instruction, lanes, words, wrong, table, self.read_by, "wrote", "read")
        self.writer[words] = lanes
        self.atomic[words] = atomic
        self.writer_epoch[words] = self.epoch[lanes // WARP]
        self.wrote[words] = instruction.index

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

    def _report(self, instruction, lanes, words, wrong, table, instructions, did, other_did) -> None:
        m, at = self.machine, int(np.argmax(wrong))
        lane, word = int(lanes[at]), int(words[at])
        other, earlier = int(table[word]), m.kernel.instructions[int(instructions[word])]
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
