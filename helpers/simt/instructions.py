"""Instructions that only move values between registers, decoded once into functions of (machine, mask of lanes)."""

import re
import struct

import numpy as np

from helpers.simt import arithmetic as A
from helpers.simt.faults import UnknownInstruction
from helpers.simt.ptx import Instruction, Kernel


def unknown(instruction: Instruction, why: str = "") -> UnknownInstruction:
    return UnknownInstruction(f"PTX line {instruction.line}: {instruction.text!r} is not implemented"
                              + (f" ({why})" if why else ""))


def immediate(text: str, dtype):
    """A literal operand as a number of `dtype`, or None: 12, -3, 0x1F, 0f3F800000, 0d..., true."""
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return np.array(int(text[2:], 16), np.uint32).view(np.float32).astype(dtype) if np.dtype(
            dtype).kind == "f" else np.array(int(text[2:], 16), np.uint32).astype(dtype)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return np.array(struct.unpack(">d", bytes.fromhex(text[2:]))[0]).astype(dtype)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        value = int(text.rstrip("U"), 0)
        if np.dtype(dtype).kind == "f":
            return np.array(value, dtype)
        if dtype == np.bool_:
            return np.array(bool(value))
        bits = 8 * np.dtype(dtype).itemsize
        return np.array(value & ((1 << bits) - 1), f"u{bits // 8}").view(dtype)
    return None


def source(instruction: Instruction, kernel: Kernel, text: str, dtype):
    """An operand as a function machine -> array of `dtype` (or a scalar that broadcasts)."""
    if text in kernel.registers:
        if kernel.registers[text] == 0:
            return lambda m: m.regs[text]
        size = np.dtype(dtype).itemsize
        if kernel.registers[text] == size:
            return lambda m: m.regs[text].view(dtype)
        if kernel.registers[text] > size:  # the low part of a wider register
            return lambda m: m.regs[text].astype(f"u{size}").view(dtype)
        raise unknown(instruction, f"{text} is narrower than its use")
    if text.startswith("%"):
        if text not in SPECIAL:
            raise unknown(instruction, f"register {text}")
        return lambda m: m.special[text].astype(dtype)
    table = kernel.shared if text in kernel.shared else kernel.local
    if text in table:
        offset = np.array(table[text]).astype(dtype)
        return lambda m: offset
    if text == kernel.dynamic_shared:
        return lambda m: np.array(m.kernel.shared_bytes).astype(dtype)
    value = immediate(text, dtype)
    if value is None:
        raise unknown(instruction, f"operand {text}")
    return lambda m: value


SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"} | {
    "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%clock", "%clock64", "%lanemask_eq", "%lanemask_lt",
    "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%globaltimer",
}


def write(m, name: str, values, on) -> None:
    """Write a register in the lanes of `on` (None: all)."""
    register = m.regs[name]
    values = np.asarray(values)
    if register.dtype != np.bool_:
        if values.dtype.itemsize != register.dtype.itemsize:
            # A narrower value in a wider register: sign-extended if signed, as ld, cvt and mov do.
            values = values.astype(f"{'i' if values.dtype.kind == 'i' else 'u'}{register.dtype.itemsize}")
        values = values.view(register.dtype)
    if on is None:
        register[:] = values
    else:
        np.copyto(register, values, where=on)


def decode(instruction: Instruction, kernel: Kernel):
    """The function that executes an instruction without memory or control flow. Raises UnknownInstruction."""
    name = instruction.parts[0]
    build = BUILDERS.get(name)
    if build is None:
        raise unknown(instruction)
    return build(instruction, kernel)


def _simple(function, arity: int, *, floats_only=False):
    """An instruction dst, a, b, ... of one type, given by its last dotted part."""
    def build(instruction, kernel):
        kind = instruction.parts[-1]
        if kind not in A.TYPES or (floats_only and A.TYPES[kind] is not np.float32):
            raise unknown(instruction, f"type .{kind}")
        if len(instruction.operands) != arity + 1:
            raise unknown(instruction, f"{len(instruction.operands)} operands")
        dtype = A.TYPES[kind]
        f = function(instruction, dtype)
        if "ftz" in instruction.parts and dtype == np.float32:
            inner = f
            f = lambda *v: A.flush(inner(*(A.flush(x) for x in v)))  # noqa: E731
        if "sat" in instruction.parts and dtype == np.float32:
            unclamped = f
            f = lambda *v: np.clip(np.nan_to_num(unclamped(*v), nan=0.0), 0, 1).astype(np.float32)  # noqa: E731
        dst, *rest = instruction.operands
        sources = [source(instruction, kernel, text, dtype) for text in rest]

        def step(m, on):
            write(m, dst, f(*(get(m) for get in sources)), on)
        return step
    return build


def _plain(function):
    """The same function for every type; NaN results get the hardware's pattern."""
    def choose(instruction, dtype):
        if any(p in ("rz", "rm", "rp", "cc") for p in instruction.parts):
            raise unknown(instruction, "rounding or carry")
        if np.dtype(dtype).kind == "f":
            return lambda *v: A.nan_of(np.asarray(function(*v), dtype))
        return function
    return choose


def _by_kind(on_float, on_int):
    return lambda instruction, dtype: _plain(on_float if np.dtype(dtype).kind == "f" else on_int)(instruction, dtype)


def _mul(instruction, dtype):
    if np.dtype(dtype).kind == "f":
        return _plain(np.multiply)(instruction, dtype)
    if "wide" in instruction.parts:
        return A.wide
    return A.high if "hi" in instruction.parts else np.multiply


def _division(instruction, dtype):
    return _plain(np.divide)(instruction, dtype) if np.dtype(dtype).kind == "f" else A.divide_int


def _mad(instruction, kernel):
    """mad: like mul, plus a third operand of the result's type; fma for floats."""
    kind = instruction.parts[-1]
    dtype = A.TYPES.get(kind)
    if dtype is None or any(p in ("rz", "rm", "rp", "cc", "sat") for p in instruction.parts):
        raise unknown(instruction)
    result = np.dtype(f"{np.dtype(dtype).kind}{2 * np.dtype(dtype).itemsize}") if "wide" in instruction.parts else dtype
    dst, a, b, c = instruction.operands
    a, b = (source(instruction, kernel, text, dtype) for text in (a, b))
    c = source(instruction, kernel, c, result)
    floating, ftz = np.dtype(dtype).kind == "f", "ftz" in instruction.parts
    multiply = None if floating else _mul(instruction, dtype)

    def step(m, on):
        x, y, z = a(m), b(m), c(m)
        if not floating:
            write(m, dst, (multiply(x, y) + z).astype(result), on)
            return
        values = np.broadcast_arrays(x, y, z, np.empty(m.lanes))[:3]
        out = A.nan_of(A.fma(*(A.flush(v) if ftz else v for v in values)))
        write(m, dst, A.flush(out) if ftz else out, on)
    return step


def _fma_pairs(instruction, kernel):
    """fma/add/mul on two packed floats in a 64-bit register (.f32x2)."""
    dst, *rest = instruction.operands
    sources = [source(instruction, kernel, text, np.uint64) for text in rest]
    operation = {"fma": A.fma, "add": np.add, "mul": np.multiply, "sub": np.subtract}[instruction.parts[0]]

    def step(m, on):
        # (lanes,) of 64 bits seen as (2 lanes,) of float32: low half first
        halves = [np.ascontiguousarray(np.broadcast_to(get(m), m.lanes)).view(np.float32) for get in sources]
        write(m, dst, np.ascontiguousarray(A.nan_of(operation(*halves))).view(np.uint64), on)
    return step


def _unary(name):
    function = A.UNARY_FLOAT[name]

    def choose(instruction, dtype):
        if dtype != np.float32:
            raise unknown(instruction, "only .f32")
        return function
    return _simple(choose, 1)


def _setp(instruction, kernel):
    """setp.cmp[.bool].type p[|q], a, b[, c]"""
    kind, name = instruction.parts[-1], instruction.parts[1]
    boolean = instruction.parts[2] if instruction.parts[2] in ("and", "or", "xor") else None
    dtype = A.TYPES[kind]
    first, *rest = instruction.operands
    names = [n.strip() for n in first.split("|")]
    a, b = (source(instruction, kernel, text, dtype) for text in rest[:2])
    third = _predicate(kernel, rest[2]) if boolean else None
    join = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(boolean)
    ftz = "ftz" in instruction.parts

    def step(m, on):
        x, y = np.broadcast_arrays(a(m), b(m))
        if ftz:
            x, y = A.flush(x), A.flush(y)
        true = A.compare(name, x, y)
        other = third(m) if third else None
        for register, value in zip(names, (true, ~true), strict=False):
            if register != "_":
                write(m, register, join(value, other) if join else value, on)
    return step


def _predicate(kernel, text):
    if text.startswith("!"):
        return lambda m: ~m.regs[text[1:]]
    return lambda m: m.regs[text]


def _selp(instruction, kernel):
    dtype = A.TYPES[instruction.parts[-1]]
    dst, a, b, p = instruction.operands
    a, b, p = source(instruction, kernel, a, dtype), source(instruction, kernel, b, dtype), _predicate(kernel, p)
    return lambda m, on: write(m, dst, np.where(p(m), a(m), b(m)).astype(dtype), on)


def _logic(f):
    def choose(instruction, dtype):
        return f
    return _simple(choose, 2)


def _not(instruction, kernel):
    return _simple(lambda i, d: np.logical_not if d == np.bool_ else np.invert, 1)(instruction, kernel)


def _shift(function):
    def build(instruction, kernel):
        dtype = A.TYPES[instruction.parts[-1]]
        dst, a, count = instruction.operands
        a, count = source(instruction, kernel, a, dtype), source(instruction, kernel, count, np.uint32)
        return lambda m, on: write(m, dst, function(a(m), count(m)), on)
    return build


def _mov(instruction, kernel):
    dst, src = instruction.operands
    dtype = A.TYPES[instruction.parts[-1]]
    if dst.startswith("{"):  # unpack
        names = [n.strip() for n in dst.strip("{}").split(",")]
        value = source(instruction, kernel, src, dtype)
        part = f"u{np.dtype(dtype).itemsize // len(names)}"

        def unpack(m, on):
            parts = np.ascontiguousarray(np.broadcast_to(value(m), m.lanes)).view(part).reshape(m.lanes, len(names))
            for i, name in enumerate(names):
                if name != "_":
                    write(m, name, np.ascontiguousarray(parts[:, i]), on)
        return unpack
    if src.startswith("{"):  # pack
        texts = [n.strip() for n in src.strip("{}").split(",")]
        part = f"u{np.dtype(dtype).itemsize // len(texts)}"
        values = [source(instruction, kernel, text, np.dtype(part)) for text in texts]

        def pack(m, on):
            both = np.stack([np.broadcast_to(get(m), m.lanes) for get in values], axis=1)
            write(m, dst, np.ascontiguousarray(both).view(dtype)[:, 0], on)
        return pack
    get = source(instruction, kernel, src, dtype)
    return lambda m, on: write(m, dst, get(m), on)


def _cvta(instruction, kernel):
    dst, src = instruction.operands
    get = source(instruction, kernel, src, A.TYPES[instruction.parts[-1]])
    return lambda m, on: write(m, dst, get(m), on)


def _cvt(instruction, kernel):
    """cvt[.round][.ftz][.sat].to.from, also two floats to one packed pair of halves."""
    modifiers, (to, frm) = instruction.parts[1:-2], instruction.parts[-2:]
    dst, *rest = instruction.operands
    if to in ("bf16x2", "f16x2") and frm == "f32":
        high, low = (source(instruction, kernel, text, np.float32) for text in rest)
        half = _to_bf16 if to == "bf16x2" else _to_f16
        word = lambda get, m: half(get(m)).astype(np.uint32)  # noqa: E731
        return lambda m, on: write(m, dst, word(low, m) | word(high, m) << np.uint32(16), on)
    from_bf16, to_bf16 = frm == "bf16", to == "bf16"
    a = A.TYPES.get("b16" if from_bf16 else frm)
    b = A.TYPES.get("b16" if to_bf16 else to)
    if a is None or b is None or len(rest) != 1:
        raise unknown(instruction)
    get = source(instruction, kernel, rest[0], a)
    rounding = next((p for p in modifiers if p in ("rni", "rzi", "rmi", "rpi")), None)
    if any(p in ("rz", "rm", "rp", "relu") for p in modifiers):
        raise unknown(instruction)

    def step(m, on):
        value = get(m)
        if from_bf16:
            value = (value.astype(np.uint32) << np.uint32(16)).view(np.float32)
        if "ftz" in modifiers and value.dtype == np.float32:
            value = A.flush(value)
        if to_bf16:
            write(m, dst, _to_bf16(value.astype(np.float32)), on)
            return
        write(m, dst, convert(value, b, rounding, "sat" in modifiers), on)
    return step


def convert(value, dtype, rounding, saturate):
    """A value in another type: integers wrap unless `saturate`, floats to integers clamp, NaN becomes 0."""
    to = np.dtype(dtype)
    if rounding:
        value = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](value)
    if to.kind in "iu" and (value.dtype.kind == "f" or saturate):
        info = np.iinfo(to)
        if value.dtype.kind == "f":
            wide = np.nan_to_num(value.astype(np.float64), nan=0.0, posinf=2.0**70, neginf=-(2.0**70))
            low, high = float(info.min), float(info.max)
            inside = np.where((wide > low) & (wide < high), wide, 0).astype(to)
            return np.where(wide >= high, info.max, np.where(wide <= low, info.min, inside)).astype(to)
        own = np.iinfo(value.dtype)
        return np.clip(value, max(info.min, own.min), min(info.max, own.max)).astype(to)
    out = value.astype(to)
    if to.kind == "f":
        out = A.nan_of(out)
        if saturate:
            out = np.clip(np.nan_to_num(out, nan=0.0), 0, 1).astype(to)
    return out


def _to_f16(values):
    return A.nan_of(np.asarray(values, np.float32).astype(np.float16)).view(np.uint16)


def _to_bf16(values):
    """Round to nearest even at 16 bits."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def _words(function, arity):
    """Bit instructions on 32-bit words (or the type given), results 32 bits."""
    def build(instruction, kernel):
        dtype = A.TYPES[instruction.parts[-1]]
        dst, *rest = instruction.operands
        sources = [source(instruction, kernel, text, dtype if i == 0 or arity == 1 else np.uint32)
                   for i, text in enumerate(rest)]
        f = function(instruction)
        return lambda m, on: write(m, dst, f(*(np.broadcast_to(get(m), m.lanes) for get in sources)), on)
    return build


def _lop3(instruction, kernel):
    dst, *rest, table = instruction.operands
    sources = [source(instruction, kernel, text, np.uint32) for text in rest]
    return lambda m, on: write(m, dst, A.lop3(*(np.broadcast_to(g(m), m.lanes) for g in sources), int(table, 0)), on)


def _shf(instruction, kernel):
    direction, wrap = instruction.parts[1], instruction.parts[2] == "wrap"
    dst, *rest = instruction.operands
    sources = [source(instruction, kernel, text, np.uint32) for text in rest]
    return lambda m, on: write(m, dst, A.funnel(*(g(m) for g in sources), direction, wrap), on)


def _pairs_or(build):
    return lambda instruction, kernel: (_fma_pairs if instruction.parts[-1] == "f32x2" else build)(instruction, kernel)


BUILDERS = {
    "mov": _mov, "cvt": _cvt, "cvta": _cvta, "setp": _setp, "selp": _selp, "not": _not, "lop3": _lop3, "shf": _shf,
    "add": _pairs_or(_simple(_plain(np.add), 2)), "sub": _pairs_or(_simple(_plain(np.subtract), 2)),
    "mul": _pairs_or(_simple(_mul, 2)), "mad": _mad, "fma": _pairs_or(_mad), "div": _simple(_division, 2),
    "rem": _simple(lambda i, d: A.remainder_int, 2), "neg": _simple(_plain(np.negative), 1),
    "abs": _simple(_plain(np.abs), 1), "min": _simple(_by_kind(A.minimum, np.minimum), 2),
    "max": _simple(_by_kind(A.maximum, np.maximum), 2), "and": _logic(np.bitwise_and), "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor), "shl": _shift(A.shift_left), "shr": _shift(A.shift_right),
    "popc": _words(lambda i: A.count_bits, 1), "clz": _words(lambda i: A.leading_zeros, 1),
    "brev": _words(lambda i: A.reverse_bits, 1), "bfe": _words(lambda i: A.extract_bits, 3),
    "prmt": _words(lambda i: A.permute_bytes, 3),
    **{name: _unary(name) for name in A.UNARY_FLOAT},
}
