"""Atomic operations on device and shared memory: lanes that share an address take turns in the order of their numbers."""

import numpy as np

from helpers.simt import floats
from helpers.simt.access import VECTORS, address, hints, space_of
from helpers.simt.kernel import SIZES, TYPES
from helpers.simt.memory import check_aligned
from helpers.simt.operands import names_in, reader, unknown, writer


def _exchange(old, new):
    return np.broadcast_to(new, old.shape)


def _wrapping_increment(old, limit):
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _wrapping_decrement(old, limit):
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def _compare_and_swap(old, expected, new):
    return np.where(old == expected, new, old)


OPERATIONS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
              "xor": np.bitwise_xor, "exch": _exchange, "inc": _wrapping_increment, "dec": _wrapping_decrement,
              "cas": _compare_and_swap}


def decode(instruction, kernel):
    """("global atomic", ..., function that executes it) of atom and red; None for others.

    An `atom` whose result nothing reads counts as a reduction: ptxas makes one of it. Those of vectors (since sm_90) take
    their members one by one.
    """
    if instruction.name not in ("atom", "red"):
        return None
    name = next((p for p in instruction.parts[1:] if p in OPERATIONS), None)
    kind = instruction.parts[-1]
    if name is None or kind not in SIZES or kind == "f32x2":
        raise unknown(instruction)
    hints(instruction, OPERATIONS, VECTORS, {"noftz"})
    returns = instruction.name == "atom"
    where_text, *value_texts = instruction.operands[1:] if returns else instruction.operands
    if "L2::cache_hint" in instruction.parts:
        value_texts.pop()
    function, dtype = _typed(OPERATIONS[name], kind)
    targets = names_in(instruction.operands[0]) if returns else []
    writers = [writer(instruction, kernel, text, dtype) for text in targets]
    where, space = address(instruction, kernel, where_text), space_of(instruction)
    members = [[reader(instruction, kernel, text, dtype) for text in texts]
               for texts in zip(*map(names_in, value_texts), strict=True)]
    if len(members) != next((VECTORS[p] for p in instruction.parts if p in VECTORS), 1) or returns and len(targets) != len(members):
        raise unknown(instruction, "operands")
    raw, typed = np.dtype(f"u{dtype.itemsize}"), kind if kind in ("f16", "f32", "f64") else None
    returns = not kernel.read.isdisjoint(targets)

    def step(m, lanes):
        addresses, active = where(m), m.numbers(lanes)
        size = dtype.itemsize * len(members)
        check_aligned(addresses[active], size, m.explain(instruction, active, "updated"))
        m.memory.count(instruction, space, addresses, lanes, size)
        for i, values in enumerate(members):
            old = member(m, addresses + np.uint64(i * dtype.itemsize), active, lanes, values)
            if writers:
                result = np.zeros(m.lanes, dtype)
                result[active] = old
                writers[i](m, result, lanes)

    def member(m, addresses, active, lanes, values):
        """What the active lanes found there."""
        before = m.memory.load(instruction, space, addresses, lanes, raw, 1, typed, counted=False, atomic=True)[:, 0].view(dtype)
        _, first, place = np.unique(m.memory.identities(space, addresses, active), return_index=True, return_inverse=True)
        state, old = before[first], before.copy()
        new = [np.broadcast_to(get(m), m.lanes)[active] for get in values]
        if isinstance(function, np.ufunc) and not returns:
            function.at(state, place, new[0])
        else:
            for turn in _turns(place):
                old[turn] = state[place[turn]]
                state[place[turn]] = function(old[turn], *(v[turn] for v in new))
        writing = np.zeros(m.lanes, bool)
        writing[active[first]] = True
        ordered = state[place[np.searchsorted(active, np.flatnonzero(writing))]]
        m.memory.store(instruction, space, addresses, writing, ordered[:, None].view(raw), typed, counted=False, atomic=True)
        return old
    return f"{space} {'atomic' if returns or space == 'shared' else 'reduction'}", step


def _typed(function, kind: str):
    """The operation on register values of a PTX type, and the numpy type of those."""
    if kind in ("bf16", "f16x2", "bf16x2"):
        return floats.of_short(function, kind), np.dtype(f"u{SIZES[kind]}")
    return function, np.dtype(TYPES[kind])


def _turns(places: np.ndarray):
    """Positions in groups: no place occurs twice in a group, and a place's positions come in order."""
    order = np.argsort(places, kind="stable")
    ranked = places[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    turn = np.arange(len(places)) - np.repeat(starts, np.diff(np.r_[starts, len(places)]))
    by_turn = np.argsort(turn, kind="stable")
    yield from np.split(order[by_turn], np.flatnonzero(np.diff(turn[by_turn])) + 1)
