"""Atomic operations on device and shared memory: lanes that share an address take turns in the order of their numbers."""

import numpy as np

from helpers.simt import floats
from helpers.simt.access import address, hints, space_of
from helpers.simt.kernel import SIZES, TYPES
from helpers.simt.operands import reader, unknown, writer


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

    An `atom` whose result nothing reads counts as a reduction: ptxas makes one of it.
    """
    if instruction.name not in ("atom", "red"):
        return None
    name = next((p for p in instruction.parts[1:] if p in OPERATIONS), None)
    kind = instruction.parts[-1]
    if name is None or kind not in SIZES or kind == "f32x2":
        raise unknown(instruction)
    hints(instruction, OPERATIONS, {"noftz"})
    returns = instruction.name == "atom"
    where_text, *value_texts = instruction.operands[1:] if returns else instruction.operands
    function, dtype = _typed(OPERATIONS[name], kind)
    write = writer(instruction, kernel, instruction.operands[0], dtype) if returns else None
    where, space = address(instruction, kernel, where_text), space_of(instruction)
    values = [reader(instruction, kernel, text, dtype) for text in value_texts]
    raw, typed = np.dtype(f"u{dtype.itemsize}"), kind if kind in ("f16", "f32", "f64") else None
    returns = returns and instruction.operands[0] in kernel.read

    def step(m, lanes):
        addresses, active = where(m), m.numbers(lanes)
        m.memory.count(instruction, space, addresses, lanes, dtype.itemsize)
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
        if write:
            result = np.zeros(m.lanes, dtype)
            result[active] = old
            write(m, result, lanes)
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
