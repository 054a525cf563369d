"""Where each warp stands, which of its lanes are active, and where the others go on.

A warp has one place in the code and a stack. A branch that splits its lanes pushes the place where the paths join, with
all lanes, and then each path with its own lanes. A path ends at the join; then the next entry goes on.
"""

import numpy as np


class Warps:
    """`exists`: (warps, 32), which lanes are threads. `end`: the number of the block after the last."""

    def __init__(self, exists: np.ndarray, end: int):
        count = len(exists)
        self.exists, self.end = exists, end
        self.live = exists.copy()  # has not ended
        self.active = exists.copy()
        self.at = np.zeros(count, np.int64)  # basic block
        self.join = np.full(count, -1)  # where the current path ends; -1: nowhere before the end
        self.waiting = np.zeros(count, bool)  # at a barrier
        self.overtaken, self.patience, self.last_favoured = 0, 512, 0  # see next_block
        self.depth = np.zeros(count, np.int64)
        self.stack_at, self.stack_join = np.zeros((2, count, 4), np.int64)
        self.stack_active = np.zeros((count, 4, exists.shape[1]), bool)

    def next_block(self) -> tuple[int, np.ndarray] | None:
        """The first block at which a warp may run, and the warps that stand there; None if no warp may.

        Taking the first one lets warps that lag behind catch up, so that many run together.
        """
        ready = ~self.waiting & (self.at != self.end)
        if not ready.any():
            return None
        places = self.at[ready]
        block = int(places.min())
        self.overtaken = self.overtaken + 1 if (places != block).any() else 0
        if self.overtaken >= self.patience:  # those that went on may be what the others wait for, in a loop
            beyond = places[places > max(block, self.last_favoured)]
            block = self.last_favoured = int(beyond.min() if len(beyond) else places[places > block].min())
            self.overtaken, self.patience = 0, max(4, self.patience // 2)
        return block, ready & (self.at == block)

    def go(self, here: np.ndarray, ways: list[tuple[int, np.ndarray]], joins: int) -> int:
        """Move warps on: each (block, lanes) is a way that some lanes take. Returns how many warps split."""
        if len(ways) == 1 and ways[0][0] != self.end and not self.depth.any():
            self.at[here] = ways[0][0]
            return 0
        ways = [(target, lanes, lanes.any(axis=1)) for target, lanes in ways]
        split = here & (sum(taken.astype(np.int64) for _, _, taken in ways) > 1)
        for target, _, taken in ways:
            self.at[taken & here & ~split] = target
        if split.any():
            # Where the current path ends at the same place, the entry that waits there is on the stack already.
            self._push(split & (self.join != joins), joins, self.join, self.active)
            for target, lanes, taken in ways:
                if target != joins:
                    self._push(split & taken, target, np.full(len(split), joins), lanes)
            self._pop(split)
        self.settle(here)
        return int(split.sum())

    def settle(self, here: np.ndarray) -> None:
        """Lanes at the end leave; a path that is at its join, or has no lanes left, gives way to the next."""
        while True:
            ended = here & (self.at == self.end)
            if ended.any():
                self.live[ended] &= ~self.active[ended]
                self.active[ended] = False
            over = here & ((self.at == self.join) | ~self.active.any(axis=1))
            self.at[over & (self.depth == 0)] = self.end
            over &= self.depth > 0
            if not over.any():
                return
            self._pop(over)

    def pending(self, warp: int, lane: int) -> int:
        """The block at which a lane that is not active will go on."""
        inside = np.flatnonzero(self.stack_active[warp, :self.depth[warp], lane])
        return int(self.stack_at[warp, inside[-1]])

    def _push(self, warps: np.ndarray, at: int, join: np.ndarray, active: np.ndarray) -> None:
        which = np.flatnonzero(warps)
        if not len(which):
            return
        depth = self.depth[which]
        if depth.max() == self.stack_at.shape[1]:
            self.stack_at, self.stack_join = np.tile(self.stack_at, 2), np.tile(self.stack_join, 2)
            self.stack_active = np.tile(self.stack_active, (1, 2, 1))
        self.stack_at[which, depth], self.stack_join[which, depth] = at, join[which]
        self.stack_active[which, depth] = active[which]
        self.depth[which] += 1

    def _pop(self, warps: np.ndarray) -> None:
        which = np.flatnonzero(warps)
        self.depth[which] -= 1
        depth = self.depth[which]
        self.at[which], self.join[which] = self.stack_at[which, depth], self.stack_join[which, depth]
        self.active[which] = self.stack_active[which, depth] & self.live[which]
