"""What the lanes of a warp do together: shuffles, votes, reductions. Registers are seen as (warps, 32)."""

import functools

import numpy as np

from helpers.simt import floats
from helpers.simt.instructions import allow
from helpers.simt.operands import reader, unknown, writer

LANE = np.arange(32)
LANE_BITS = np.uint32(1) << LANE.astype(np.uint32)


def decode(instruction, kernel):
    """("warp", function that executes it) of an instruction of whole warps; None for others."""
    build = BUILDERS.get(instruction.name)
    return ("warp", build(instruction, kernel)) if build else None


def bits_of(flags: np.ndarray) -> np.ndarray:
    """(warps, 32) flags as (warps,) words, lane 0 in the lowest bit."""
    return np.bitwise_or.reduce(np.where(flags, LANE_BITS, np.uint32(0)), axis=1)


def by_warp(m, values) -> np.ndarray:
    return np.broadcast_to(values, m.lanes).reshape(-1, 32)


def _members(instruction, kernel, text):
    """The lanes that an instruction names, as (warps, 32), after checking that all of them are here."""
    get = reader(instruction, kernel, text, np.uint32)

    def members(m, lanes):
        here = m.flags(lanes).reshape(-1, 32)
        named = by_warp(m, get(m))
        mask = np.bitwise_or.reduce(np.where(here, named, np.uint32(0)), axis=1)
        wanted = (mask[:, None] & LANE_BITS) != 0
        m.need_together(instruction, wanted, here)
        return wanted & here
    return members


def _each(m, per_warp):
    return np.repeat(per_warp, 32)


def _shfl(instruction, kernel):
    """shfl.sync.mode.b32 d[|p], a, b, c, members"""
    parts = allow(instruction, {"sync", "up", "down", "bfly", "idx"})
    if instruction.parts[-1] != "b32" or "sync" not in parts:
        raise unknown(instruction)
    mode = (parts - {"sync"}).pop()
    first, *rest, mask = instruction.operands
    names = [n.strip() for n in first.split("|")]
    write = writer(instruction, kernel, names[0], np.uint32)
    write_found = writer(instruction, kernel, names[1], np.bool_) if len(names) > 1 else None
    value, b, c = (reader(instruction, kernel, text, np.uint32) for text in rest)
    members = _members(instruction, kernel, mask)

    def step(m, lanes):
        members(m, lanes)
        count, limits = by_warp(m, b(m)).astype(np.int64) & 31, by_warp(m, c(m)).astype(np.int64)
        clamp, segment = limits & 31, (limits >> 8) & 31
        lowest, last = LANE & segment, (LANE & segment) | (clamp & ~segment)
        source = {"up": LANE - count, "down": LANE + count, "bfly": LANE ^ count,
                  "idx": lowest | (count & ~segment)}[mode]
        found = source >= last if mode == "up" else source <= last
        source = np.where(found, source, LANE)
        write(m, np.take_along_axis(by_warp(m, value(m)), source, axis=1).reshape(-1), lanes)
        if write_found:
            write_found(m, np.broadcast_to(found, source.shape).reshape(-1), lanes)
    return step


def _vote(instruction, kernel):
    """vote.sync.{all,any,uni}.pred p, [!]a, members and vote.sync.ballot.b32 d, [!]a, members"""
    parts = allow(instruction, {"sync", "all", "any", "uni", "ballot"})
    if "sync" not in parts:
        raise unknown(instruction)
    mode = (parts - {"sync"}).pop()
    target, source, mask = instruction.operands
    write = writer(instruction, kernel, target, np.uint32 if mode == "ballot" else np.bool_)
    get, members = reader(instruction, kernel, source, np.bool_), _members(instruction, kernel, mask)

    def step(m, lanes):
        among = members(m, lanes)
        true = by_warp(m, get(m))
        yes, no = (among & true).any(axis=1), (among & ~true).any(axis=1)
        result = {"ballot": lambda: bits_of(among & true), "all": lambda: ~no, "any": lambda: yes,
                  "uni": lambda: ~(yes & no)}[mode]()
        write(m, _each(m, result), lanes)
    return step


REDUCTIONS = {"add": (np.add, 0), "and": (np.bitwise_and, -1), "or": (np.bitwise_or, 0), "xor": (np.bitwise_xor, 0),
              "min": (np.minimum, "max"), "max": (np.maximum, "min")}


def _redux(instruction, kernel):
    if instruction.parts[-1] == "f32":
        return _redux_of_floats(instruction, kernel)
    parts = allow(instruction, {"sync"}, REDUCTIONS)
    function, neutral = REDUCTIONS[(parts - {"sync"}).pop()]
    kind = instruction.parts[-1]
    if kind not in ("u32", "s32", "b32"):
        raise unknown(instruction)
    dtype = np.dtype(np.int32 if kind == "s32" else np.uint32)
    if isinstance(neutral, str):
        neutral = getattr(np.iinfo(dtype), neutral)
    neutral = np.array(neutral).astype(dtype)
    target, source, mask = instruction.operands
    write, get = writer(instruction, kernel, target, dtype), reader(instruction, kernel, source, dtype)
    members = _members(instruction, kernel, mask)

    def step(m, lanes):
        among = members(m, lanes)
        write(m, _each(m, function.reduce(np.where(among, by_warp(m, get(m)), neutral), axis=1, dtype=dtype)), lanes)
    return step


def _redux_of_floats(instruction, kernel):
    """redux.sync.{min,max}[.abs][.NaN].f32 d, a, members: of compute capability 10.0. Without .NaN, a NaN loses."""
    parts = allow(instruction, {"sync", "min", "max", "abs", "NaN"})
    if "min" in parts:
        neutral, function = np.inf, floats.minimum_nan if "NaN" in parts else floats.minimum
    else:
        neutral, function = -np.inf, floats.maximum_nan if "NaN" in parts else floats.maximum
    neutral = np.float32(neutral if "NaN" in parts else np.nan)
    target, source, mask = instruction.operands
    write, get = writer(instruction, kernel, target, np.float32), reader(instruction, kernel, source, np.float32)
    members = _members(instruction, kernel, mask)

    def step(m, lanes):
        among, values = members(m, lanes), by_warp(m, get(m))
        values = np.where(among, np.abs(values) if "abs" in parts else values, neutral)
        write(m, _each(m, floats.one_nan(functools.reduce(function, values.T))), lanes)
    return step


def _match(instruction, kernel):
    """match.any.sync d, a, members: which lanes hold the same value. match.all: all of them or none."""
    parts = allow(instruction, {"sync", "any", "all"})
    dtype = np.dtype(f"u{int(instruction.parts[-1][1:]) // 8}")
    target, source, mask = instruction.operands
    names = [n.strip() for n in target.split("|")]
    write = writer(instruction, kernel, names[0], np.uint32)
    write_all = writer(instruction, kernel, names[1], np.bool_) if len(names) > 1 else None
    get, members = reader(instruction, kernel, source, dtype), _members(instruction, kernel, mask)

    def step(m, lanes):
        among = members(m, lanes)
        values = by_warp(m, get(m))
        same = (values[:, :, None] == values[:, None, :]) & among[:, None, :]
        everyone = (same == among[:, None, :]).all(axis=2)
        if "all" in parts:
            same &= everyone[:, :, None]
        words = np.bitwise_or.reduce(np.where(same, LANE_BITS, np.uint32(0)), axis=2)
        write(m, words.reshape(-1), lanes)
        if write_all:
            write_all(m, everyone.reshape(-1), lanes)
    return step


def _activemask(instruction, kernel):
    write = writer(instruction, kernel, instruction.operands[0], np.uint32)
    return lambda m, lanes: write(m, _each(m, bits_of(m.flags(lanes).reshape(-1, 32))), lanes)


def _warp_barrier(instruction, kernel):
    """bar.warp.sync: the named lanes of a warp are here together, and see each other's writes from now on."""
    if instruction.parts[1:] != ("warp", "sync"):
        raise unknown(instruction)
    members = _members(instruction, kernel, instruction.operands[0])
    return lambda m, lanes: m.warps_synchronised(members(m, lanes))


BUILDERS = {"shfl": _shfl, "vote": _vote, "redux": _redux, "match": _match, "activemask": _activemask,
            "bar": _warp_barrier, "barrier": _warp_barrier}
