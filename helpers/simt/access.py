"""Loads, stores, atomics and asynchronous copies: which bytes each lane touches, and what that costs its warp."""

import re

import numpy as np

from helpers.simt import memory
from helpers.simt.instructions import allow
from helpers.simt.kernel import SIZES
from helpers.simt.operands import names_in, reader, symbol_address, unknown, writer

SPACES = ("global", "shared", "local", "const", "param")
# Parts of an opcode that change no value here: ordering (memory is always coherent) and advice to caches.
HINTS = {"volatile", "relaxed", "acquire", "release", "acq_rel", "weak", "cta", "gpu", "sys", "cluster", "nc", "ca",
         "cg", "cs", "cv", "lu", "wb", "wt", *SPACES, "shared::cta"}
U16, U32 = np.dtype(np.uint16), np.dtype(np.uint32)
VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def decode(instruction, kernel):
    """(kind for the counts, function that executes it) of an instruction that touches memory; None for others."""
    build = BUILDERS.get(instruction.name)
    return build(instruction, kernel) if build else None


def space_of(instruction) -> str:
    """ "global", "shared", ..., or "generic" where each address says for itself."""
    return next((p.split("::")[0] for p in instruction.parts if p.split("::")[0] in SPACES), "generic")


def address(instruction, kernel, text: str):
    """`[register+offset]` as a function machine -> (lanes,) uint64 addresses in the instruction's space."""
    match = re.fullmatch(r"\[\s*([\w$%.]+)\s*(?:\+\s*(-?(?:0[xX])?[0-9a-fA-F]+))?\s*\]", text)
    if not match:
        raise unknown(instruction, f"address {text}")
    base, offset = match.group(1), int(match.group(2) or "0", 0)
    if base in kernel.registers:
        get = reader(instruction, kernel, base, np.uint64 if kernel.registers[base] == 8 else np.uint32)
    elif symbol_address(kernel, base) is not None:
        get = reader(instruction, kernel, base, np.uint64)
    else:
        raise unknown(instruction, f"address {text}")
    if kernel.registers.get(base) == 4:  # sums of 32-bit addresses wrap
        short = np.array(offset % 2**32, np.uint32)
        return lambda m: np.broadcast_to(get(m) + short, m.lanes).astype(np.uint64)
    shift = np.array(offset % 2**64, np.uint64)
    return lambda m: np.broadcast_to(get(m), m.lanes).astype(np.uint64) + shift


def hints(instruction, *known):
    """Check the opcode's parts: every one of them must be known."""
    rest = [p for p in instruction.parts[1:-1] if not re.fullmatch(r"L[12]::[\w:]+", p)]
    allow(type(instruction)(**{**vars(instruction), "parts": (instruction.name, *rest, "")}), HINTS, *known)


def _element(instruction, kernel):
    """(type to register, unsigned type in memory, count, what the array must hold: "f32", ..., "int", or None)."""
    kind = instruction.parts[-1]
    if kind not in SIZES or kind.endswith("x2"):
        raise unknown(instruction, f"type .{kind}")
    size = SIZES[kind]
    count = next((VECTORS[p] for p in instruction.parts if p in VECTORS), 1)
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")
    names = names_in(instruction.operands[instruction.name == "st"])
    held = {kernel.contents.get(name) for name in names}
    typed = kind if kind in ("f32", "f64") else held.pop() if len(held) == 1 else None
    return dtype, np.dtype(f"u{size}"), count, typed if typed in (f"f{8 * size}", "int") else None


def _load(instruction, kernel):
    space = _space(instruction, kernel)
    if space == "parameter":
        return "parameter", _load_parameter(instruction, kernel)
    hints(instruction, VECTORS)
    dtype, raw, count, typed = _element(instruction, kernel)
    targets = [writer(instruction, kernel, name, dtype) for name in names_in(instruction.operands[0])]
    if len(targets) != count:
        raise unknown(instruction, f"{len(targets)} destinations")
    where, counted = address(instruction, kernel, instruction.operands[1]), space != "argument"

    def step(m, lanes):
        addresses = where(m)
        values = m.memory.load(instruction, space, addresses, lanes, raw, count, typed, counted).view(dtype)
        if lanes is None:
            full = values
        else:
            full = np.zeros((m.lanes, count), dtype)
            full[lanes] = values
        for i, write in enumerate(targets):
            write(m, full[:, i], lanes)
    return f"{space} load" if counted else "parameter", step


def _space(instruction, kernel) -> str:
    """The space of a load or store: of .param, "parameter" of the kernel (by its address: "const") or "argument" of a function
    it calls."""
    space = space_of(instruction)
    if space != "param":
        return space
    named = re.match(r"\[\s*(%?[\w$]*)", instruction.operands[instruction.name == "ld"]).group(1)
    if named in kernel.registers and instruction.name == "ld":
        return "const"
    return "argument" if named in kernel.local else "parameter"


def _load_parameter(instruction, kernel):
    dtype, raw, count, _ = _element(instruction, kernel)
    match = re.fullmatch(r"\[\s*([\w$]+)\s*(?:\+\s*(\d+))?\s*\]", instruction.operands[1])
    names = [p.name for p in kernel.params]
    targets = names_in(instruction.operands[0])
    if not match or match.group(1) not in names or len(targets) != count:
        raise unknown(instruction, "parameter")
    number, start = names.index(match.group(1)), int(match.group(2) or 0)
    if start + raw.itemsize * count > kernel.params[number].size:
        raise unknown(instruction, "beyond the parameter")
    writers = [writer(instruction, kernel, name, dtype) for name in targets]

    def step(m, lanes):
        values = m.params[number][start:start + raw.itemsize * count].view(dtype)
        for write, value in zip(writers, values, strict=True):
            write(m, value, lanes)
    return step


def _store(instruction, kernel):
    hints(instruction, VECTORS)
    _, raw, count, typed = _element(instruction, kernel)
    sources = [reader(instruction, kernel, name, raw) for name in names_in(instruction.operands[1])]
    if len(sources) != count:
        raise unknown(instruction, f"{len(sources)} values")
    where, space = address(instruction, kernel, instruction.operands[0]), _space(instruction, kernel)
    if space == "parameter":
        raise unknown(instruction)
    counted = space != "argument"

    def step(m, lanes):
        values = np.stack([np.broadcast_to(get(m), m.lanes) for get in sources], axis=1)
        m.memory.store(instruction, space, where(m), lanes, values if lanes is None else values[lanes], typed, counted)
    return f"{space} store" if counted else "parameter", step


def _load_matrix(instruction, kernel):
    """ldmatrix: 8 x 8 matrices of 16-bit values; lanes 8 i .. 8 i + 7 name the rows of matrix i, all lanes get 2 values."""
    parts = allow(instruction, {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"})
    if instruction.parts[-1] != "b16":
        raise unknown(instruction)
    targets = [writer(instruction, kernel, name, np.uint32) for name in names_in(instruction.operands[0])]
    where, lane = address(instruction, kernel, instruction.operands[1]), np.arange(32)

    def word(m, rows, lanes):
        """The 32 bits of each lane: values 2 (l % 4) and the next of row l // 4, or the same of the transposed."""
        if "trans" not in parts:
            addresses = rows[:, lane // 4] + (4 * (lane % 4)).astype(np.uint64)
            return m.memory.load(instruction, "shared", addresses.reshape(-1), lanes, U32, 1, None, counted=False)[:, 0]
        low, high = (m.memory.load(instruction, "shared", (rows[:, 2 * (lane % 4) + i] + (2 * (lane // 4)).astype(np.uint64))
                            .reshape(-1), lanes, U16, 1, None, counted=False)[:, 0].astype(np.uint32)
                     for i in range(2))
        return low | high << np.uint32(16)

    def step(m, lanes):
        addresses = where(m)
        naming = np.tile(lane < 8 * len(targets), m.threads.warps) & m.flags(lanes)
        m.memory.count(instruction, "shared", addresses, naming, 16)
        for i, write in enumerate(targets):
            values = np.zeros(m.lanes, np.uint32)
            values[m.numbers(lanes)] = word(m, addresses.reshape(-1, 32)[:, 8 * i:8 * i + 8], lanes)
            write(m, values, lanes)
    return "shared matrix load", step


def _store_matrix(instruction, kernel):
    """stmatrix: the way back, from the registers to the rows that lanes 8 i .. 8 i + 7 name."""
    parts = allow(instruction, {"sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"})
    if instruction.parts[-1] != "b16":
        raise unknown(instruction)
    where, lane = address(instruction, kernel, instruction.operands[0]), np.arange(32)
    sources = [reader(instruction, kernel, name, np.uint32) for name in names_in(instruction.operands[1])]

    def step(m, lanes):
        addresses = where(m)
        m.memory.count(instruction, "shared", addresses, np.tile(lane < 8 * len(sources), m.threads.warps) & m.flags(lanes), 16)
        for i, get in enumerate(sources):
            rows, word = addresses.reshape(-1, 32)[:, 8 * i:8 * i + 8], np.broadcast_to(get(m), m.lanes)[m.numbers(lanes)][:, None]
            if "trans" not in parts:
                places = [(rows[:, lane // 4] + (4 * (lane % 4)).astype(np.uint64), word)]
            else:
                places = [(rows[:, 2 * (lane % 4) + j] + (2 * (lane // 4)).astype(np.uint64), word.view(U16)[:, j:j + 1]) for j in range(2)]
            for at, values in places:
                m.memory.store(instruction, "shared", at.reshape(-1), lanes, values, None, counted=False)
    return "shared matrix store", step


# -------------------------------------------------------------------------------------------- copies, address spaces


def _async_copy(instruction, kernel):
    """cp.async: global to shared memory; what arrives is seen only after a wait_group (here: never earlier)."""
    if "commit_group" in instruction.parts:
        return "arithmetic", lambda m, lanes: m.memory.commit(lanes)
    if "wait_group" in instruction.parts or "wait_all" in instruction.parts:
        pending = int(instruction.operands[0]) if "wait_group" in instruction.parts else -1
        return "arithmetic", lambda m, lanes: m.memory.wait(lanes, pending)
    if instruction.parts[1] != "async" or instruction.parts[2] not in ("ca", "cg") or "bulk" in instruction.parts:
        raise unknown(instruction)
    hints(instruction, {"async"})
    target, source, size, *filled = instruction.operands
    size = int(size, 0)
    to, start = address(instruction, kernel, target), address(instruction, kernel, source)
    if "L2::cache_hint" in instruction.parts:
        filled.pop()
    taken = reader(instruction, kernel, filled[0], np.uint32) if filled else None

    def step(m, lanes):
        m.memory.copy(instruction, to(m), start(m), lanes, size, taken(m) if taken else None)
    return "global async copy", step


def _convert_address(instruction, kernel):
    """cvta: between the addresses of one space and generic ones."""
    parts = set(instruction.parts[1:-1]) - {"to"}
    space = space_of(instruction)
    if parts != {space}:
        raise unknown(instruction)
    slot = {"shared": memory.SHARED_SLOT, "local": memory.LOCAL_SLOT}.get(space)
    base = np.uint64(memory.address_of(slot) if slot else 0)
    dtype = np.dtype(f"u{SIZES[instruction.parts[-1]]}")
    target, source = instruction.operands
    write, get = writer(instruction, kernel, target, dtype), reader(instruction, kernel, source, dtype)
    if dtype.itemsize < 8 and slot:
        raise unknown(instruction, "32-bit generic addresses")
    if "to" in instruction.parts:
        return "arithmetic", lambda m, lanes: write(m, get(m) - base.astype(dtype), lanes)
    return "arithmetic", lambda m, lanes: write(m, get(m) + base.astype(dtype), lanes)


def _is_in_space(instruction, kernel):
    """isspacep.space p, a: whether a generic address lies in a space. Constants have no addresses of their own kind here."""
    space, (target, source) = instruction.parts[1].split("::")[0], instruction.operands
    if space not in ("global", "shared", "local"):
        raise unknown(instruction)
    write, get = writer(instruction, kernel, target, np.bool_), reader(instruction, kernel, source, np.uint64)
    own = {"shared": memory.SHARED_SLOT, "local": memory.LOCAL_SLOT}

    def step(m, lanes):
        slots = memory.slot_of(np.asarray(get(m)))
        write(m, slots == own[space] if space in own else ~np.isin(slots, [*own.values()]), lanes)
    return "arithmetic", step


BUILDERS = {"ld": _load, "ldu": _load, "st": _store, "cp": _async_copy,
            "cvta": _convert_address, "isspacep": _is_in_space, "ldmatrix": _load_matrix, "stmatrix": _store_matrix}
