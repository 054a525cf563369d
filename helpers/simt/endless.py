"""Loops that never end, noticed early: a machine that comes back to a state it was in before will do so for ever."""

import numpy as np


class Repetition:
    """Compares a machine's state with one that is kept, and keeps the present one whenever twice as many steps have run.

    That costs next to nothing, and finds every loop that changes nothing, whatever its length. It looks only while all warps
    that may run stand at one place: others could still be about to change something.
    """

    FIRST = 2000  # steps before the first state is kept

    def __init__(self, machine):
        self.machine, self.next, self.kept, self.where = machine, self.FIRST, [], None

    def found(self, here: np.ndarray) -> bool:
        """Called at the start of a basic block, with the warps that stand there."""
        m, warps = self.machine, self.machine.warps
        due = m.steps >= self.next
        if not due and (self.where is None or self.where[0] != m.memory.changes):
            return False
        where = m.memory.changes, int(warps.at[np.argmax(here)]), warps.patience
        if not (due or where == self.where) or (~warps.waiting & (warps.at != warps.end) & ~here).any():
            return False
        state = [warps.at, warps.live, warps.active, warps.depth, warps.stack_at, warps.stack_active, m.barriers.arrived,
                 *m.registers.values()]
        if due:
            self.kept, self.where, self.next = [part.copy() for part in state], where, 2 * m.steps
            self.order = list(range(len(state)))
            return False
        for place, i in enumerate(self.order):
            if not np.array_equal(state[i], self.kept[i]):
                self.order.insert(0, self.order.pop(place))  # what differed will probably differ the next time, too
                return False
        return True
