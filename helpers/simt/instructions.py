"""Instructions that only move values between registers, decoded once into functions of (machine, lanes)."""

import functools
from dataclasses import replace

import numpy as np

from helpers.simt import carry, floats, integers
from helpers.simt.kernel import PACKED, TYPES
from helpers.simt.operands import names_in, reader, unknown, writer

ROUND = {*floats.ROUNDINGS}


def decode(instruction, kernel):
    """("arithmetic", function that executes it) of an instruction on registers; None for others."""
    build = carry.BUILDERS.get(instruction.name) if carry.concerns(instruction) else BUILDERS.get(instruction.name)
    return ("arithmetic", build(instruction, kernel)) if build else None


def allow(instruction, *known) -> set[str]:
    """The dotted parts between name and type. Raises UnknownInstruction where one of them is not known."""
    parts = set(instruction.parts[1:-1])
    strange = [p for p in parts if not any(p in names for names in known)]
    if strange:
        raise unknown(instruction, f".{' .'.join(sorted(strange))}")
    return parts


def _type(instruction, kinds: str = "uisfb"):
    """The numpy type named last, if its kind is among u(nsigned), i or s(igned), f(loat), b(its or predicate)."""
    name = instruction.parts[-1]
    dtype = TYPES.get(name)
    if dtype is None or not (name[0] in kinds or (name == "pred" and "p" in kinds)):
        raise unknown(instruction, f"type .{name}")
    return np.dtype(dtype)


def _operands(instruction, kernel, *dtypes):
    """A writer for the first operand and readers for the others."""
    if len(instruction.operands) != len(dtypes):
        raise unknown(instruction, f"{len(instruction.operands)} operands")
    target, *sources = instruction.operands
    return (writer(instruction, kernel, target, dtypes[0]),
            *(reader(instruction, kernel, text, dtype) for text, dtype in zip(sources, dtypes[1:], strict=True)))


def lanewise(instruction, kernel, function, result, *dtypes):
    """The step that writes function(operands)."""
    write, *get = _operands(instruction, kernel, result, *dtypes)
    if len(get) == 1:
        first, = get
        return lambda m, lanes: write(m, function(first(m)), lanes)
    if len(get) == 2:
        first, second = get
        return lambda m, lanes: write(m, function(first(m), second(m)), lanes)
    return lambda m, lanes: write(m, function(*(g(m) for g in get)), lanes)


# ------------------------------------------------------------------------------------------------ floats


def _float(function, arity: int, *, modes=(), rounds=False, nan=True):
    """An instruction on floats: `function(*values)`, with the rounding as a keyword if `rounds`."""
    def build(instruction, kernel):
        kind = instruction.parts[-1]
        if instruction.parts[-2] == "f32" and kind in ("f16", "bf16") and rounds:
            return _mixed(instruction, kernel, function, arity)
        parts = allow(instruction, {"ftz", "sat", "relu"}, modes, ROUND if rounds else {"rn"})
        rounding, packed = next(iter(parts & ROUND), "rn"), PACKED.get(kind)
        short = kind in ("bf16", "bf16x2")
        dtype = np.dtype(packed[1]) if packed else None if short else _type(instruction, "f")
        if rounding != "rn" and dtype not in (np.float32, np.float64):
            raise unknown(instruction, "rounding")

        def step(*values):
            if "ftz" in parts:
                values = [floats.flush(v) for v in values]
            out = function(*values) if rounding == "rn" else function(*values, rounding)
            if nan:
                out = floats.one_nan(out)
            if "relu" in parts:
                out = floats.positive(out)
            if "ftz" in parts:
                out = floats.flush(out)
            return floats.clamp(out) if "sat" in parts else out
        if short:
            if parts & {"ftz", "sat"}:
                raise unknown(instruction)
            register = np.uint16 if kind == "bf16" else np.uint32
            return lanewise(instruction, kernel, floats.of_short(function, kind, "relu" in parts), *[register] * (arity + 1))
        if packed:
            return lanewise(instruction, kernel, floats.pairwise(step, *packed), *[packed[0]] * (arity + 1))
        return lanewise(instruction, kernel, step, *[dtype] * (arity + 1))
    return build


def _mixed(instruction, kernel, function, arity: int):
    """add, sub or fma .f32.f16 and .f32.bf16: all operands but the last one are short."""
    parts = allow(without_last(instruction), ROUND, {"sat"})
    rounding, short = next(iter(parts & ROUND), "rn"), instruction.parts[-1] == "bf16"
    widen = floats.from_bf16 if short else lambda v: v.astype(np.float32)

    def step(*values):
        out = floats.one_nan(function(*(widen(v) for v in values[:-1]), values[-1], rounding))
        return floats.clamp(out) if "sat" in parts else out
    given = np.dtype(np.uint16 if short else np.float16)
    return lanewise(instruction, kernel, step, np.float32, *[given] * (arity - 1), np.float32)


def _division(instruction, kernel):
    return _float(floats.divide, 2, modes={"full", "approx"}, rounds=True)(instruction, kernel)


def _root(exact, approximated):
    """rcp and sqrt: exact with a rounding, otherwise approximated."""
    def build(instruction, kernel):
        if ROUND & {*instruction.parts}:
            return _float(exact, 1, rounds=True)(instruction, kernel)
        if instruction.parts[-1] == "f64" and "ftz" in instruction.parts:  # of the upper half only, as the start of a division
            return _float(floats.rough(approximated), 1, modes={"approx"})(instruction, kernel)
        if instruction.parts[-1] != "f32":
            raise unknown(instruction, "only .f32")
        return _float(floats.correctly_rounded(approximated), 1, modes={"approx"})(instruction, kernel)
    return build


def _approximated(name):
    def build(instruction, kernel):
        kind = instruction.parts[-1]
        if kind == "f64" and name == "rsqrt":
            f = floats.APPROXIMATED[name]
            return _float(floats.rough(f) if "ftz" in instruction.parts else f, 1, modes={"approx"})(instruction, kernel)
        if kind not in ("f32", "f16", "f16x2", "bf16", "bf16x2"):
            raise unknown(instruction, "only .f32")
        if kind != "f32":
            return _float(floats.APPROXIMATED[name], 1, modes={"approx"})(instruction, kernel)
        return _float(floats.correctly_rounded(floats.APPROXIMATED[name]), 1, modes={"approx"})(instruction, kernel)
    return build


def _extreme(plain, with_nan, integer):
    def build(instruction, kernel):
        if _on_floats(instruction.parts[-1]):
            function = with_nan if "NaN" in instruction.parts else plain
            count = 3 if len(instruction.operands) == 4 else 2  # three since PTX 8.8
            modes = {"NaN"}
            if "xorsign" in instruction.parts and "abs" in instruction.parts and count == 2:
                function, modes = floats.signs_multiplied(function), {"NaN", "xorsign", "abs"}
            return _float(lambda *values: functools.reduce(function, values), count, modes=modes)(instruction, kernel)
        if "relu" in instruction.parts:  # written behind the type
            parts = tuple(part for part in instruction.parts if part != "relu")
            if parts[-1] not in ("s32", "s16x2"):
                raise unknown(instruction)
            return _integer(lambda a, b: np.maximum(integer(a, b), 0), 2)(replace(instruction, parts=parts), kernel)
        return _integer(integer, 2)(instruction, kernel)
    return build


# ------------------------------------------------------------------------------------------------ integers


def _integer(function, arity: int, *, counts=(), kinds="usb", result=None):
    """An instruction on integers; the operands numbered in `counts` are 32-bit whatever the type."""
    def build(instruction, kernel):
        allow(instruction)
        if instruction.parts[-1] in HALVES and instruction.name in ("min", "max"):
            return lanewise(instruction, kernel, _of_halves(instruction, function), *[np.uint32] * (arity + 1))
        dtype = _type(instruction, kinds)
        dtypes = [np.uint32 if i in counts else dtype for i in range(arity)]
        return lanewise(instruction, kernel, function, result or dtype, *dtypes)
    return build


def _either(on_floats, on_integers):
    def build(instruction, kernel):
        return (on_floats if _on_floats(instruction.parts[-1]) else on_integers)(instruction, kernel)
    return build


def _on_floats(kind: str) -> bool:
    return kind[0] == "f" or kind in ("bf16", "bf16x2")


def _sum(function, saturating):
    """Integer add and sub, which clamp with .sat."""
    def build(instruction, kernel):
        if allow(instruction, {"sat"}):
            return lanewise(instruction, kernel, saturating, np.int32, np.int32, np.int32)
        if instruction.parts[-1] in HALVES:
            return lanewise(instruction, kernel, _of_halves(instruction, function), *[np.uint32] * 3)
        return lanewise(instruction, kernel, function, *[_type(instruction, "us")] * 3)
    return build


def _saturating(function):
    return lambda a, b: np.clip(function(a.astype(np.int64), b.astype(np.int64)), -(2**31), 2**31 - 1).astype(np.int32)


HALVES = {"s16x2": np.int16, "u16x2": np.uint16}  # two whole numbers in a register, since sm_90


def _of_halves(instruction, function):
    return floats.pairwise(function, np.uint32, HALVES[instruction.parts[-1]])


def _product(instruction, kernel, extra: bool):
    """mul and mad: the lower half, the upper half, or all of the product, plus a third operand for mad."""
    parts = allow(instruction, {"lo", "hi", "wide"})
    dtype = _type(instruction, "us")
    multiply = integers.multiply_wide if "wide" in parts else integers.multiply_high if "hi" in parts else np.multiply
    result = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}") if "wide" in parts else dtype
    if extra:
        return lanewise(instruction, kernel, lambda a, b, c: multiply(a, b) + c, result, dtype, dtype, result)
    return lanewise(instruction, kernel, multiply, result, dtype, dtype)


def _bitwise(function, arity):
    def build(instruction, kernel):
        allow(instruction)
        return lanewise(instruction, kernel, function, *[_type(instruction, "bp")] * (arity + 1))
    return build


def _lop3(instruction, kernel):
    *_, table = instruction.operands
    instruction_without_table = replace(instruction, operands=instruction.operands[:-1])
    return lanewise(instruction_without_table, kernel, lambda a, b, c: integers.lop3(a, b, c, int(table, 0)), *[np.uint32] * 4)


def _funnel(instruction, kernel):
    parts = allow(instruction, {"l", "r", "wrap", "clamp"})
    return lanewise(instruction, kernel, lambda a, b, c: integers.funnel(a, b, c, "l" in parts, "wrap" in parts),
                  *[np.uint32] * 4)


def _find_bit(instruction, kernel):
    as_shift = "shiftamt" in allow(instruction, {"shiftamt"})
    return lanewise(instruction, kernel, lambda a: integers.find_bit(a, as_shift), np.uint32, _type(instruction, "us"))


def _dot_product(instruction, kernel):
    """dp4a.atype.btype d, a, b, c and dp2a.{lo,hi}.atype.btype"""
    *_, left, right = instruction.parts
    parts, halves = allow(without_last(instruction), {"lo", "hi"}), instruction.name == "dp2a"
    if {left, right} - {"u32", "s32"} or len(parts) != halves:
        raise unknown(instruction)
    kinds, high = ["i" if kind == "s32" else "u" for kind in (left, right)], "hi" in parts if halves else None
    result = np.uint32 if kinds == ["u", "u"] else np.int32
    return lanewise(instruction, kernel, lambda a, b, c: integers.dot_product(a, b, c, *kinds, high), result,
                  np.uint32, np.uint32, result)


# ------------------------------------------------------------------------------------------------ predicates


def _setp(instruction, kernel):
    """setp.cmp[.bool][.ftz].type p[|q], a, b[, [!]c]"""
    parts = allow(instruction, floats.COMPARISONS, {"and", "or", "xor", "ftz"})
    short = instruction.parts[-1] == "bf16"
    dtype = np.dtype(np.uint16) if short else _type(instruction)
    name = instruction.parts[1]
    if not short and dtype.kind != "f" and name not in floats.COMPARE:
        raise unknown(instruction, f"comparison .{name}")
    join = next((f for n, f in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor))
                 if n in parts), None)
    first, a, b, *third = instruction.operands
    targets = [writer(instruction, kernel, text.strip(), np.bool_) for text in first.split("|")]
    a, b = reader(instruction, kernel, a, dtype), reader(instruction, kernel, b, dtype)
    third = [reader(instruction, kernel, text, np.bool_) for text in third]
    if (join is None) != (not third):
        raise unknown(instruction, "operands")

    def step(m, lanes):
        x, y = a(m), b(m)
        if short:
            x, y = floats.from_bf16(x), floats.from_bf16(y)
        if "ftz" in parts:
            x, y = floats.flush(x), floats.flush(y)
        true = np.asarray(floats.compare(name, x, y))
        other = third[0](m) if third else None
        for write, value in zip(targets, (true, ~true), strict=False):
            write(m, join(value, other) if third else value, lanes)
    return step


def _set(instruction, kernel):
    """set.cmp[.ftz].to.from d, a, b: 1 or all bits where the comparison holds, 0 elsewhere; of pairs, in each half."""
    *_, to, source = instruction.parts
    if source in ("f16x2", "bf16x2"):
        return _set_pairs(instruction, kernel)
    parts = allow(without_last(instruction), floats.COMPARISONS, {"ftz"})
    name, flush = instruction.parts[1], floats.flush if "ftz" in parts and source == "f32" else np.asarray
    short = source == "bf16"
    if to not in ("f16", "f32", "u32", "s32", "bf16") or not (short or source in TYPES):
        raise unknown(instruction)
    one = {"f16": np.float16(1), "f32": np.float32(1), "bf16": np.uint16(0x3F80)}.get(to, np.uint32(0xFFFFFFFF))
    take = floats.from_bf16 if short else flush
    dtype = np.dtype(np.uint16 if short else TYPES[source])
    return lanewise(instruction, kernel, lambda a, b: np.where(floats.compare(name, take(a), take(b)), one, one.dtype.type(0)),
                  one.dtype, dtype, dtype)


def _set_pairs(instruction, kernel):
    *_, to, source = instruction.parts
    allow(without_last(instruction), floats.COMPARISONS, {"ftz"})
    if to not in (source, "u32", "s32"):
        raise unknown(instruction)
    take = floats.from_bf16 if source == "bf16x2" else lambda bits: bits.view(np.float16)
    one = np.uint16({"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(to, 0xFFFF))
    name = instruction.parts[1]
    halves = floats.pairwise(lambda a, b: np.where(floats.compare(name, take(a), take(b)), one, np.uint16(0)), np.uint32, np.uint16)
    return lanewise(instruction, kernel, halves, *[np.uint32] * 3)


def _selp(instruction, kernel):
    allow(instruction)
    dtype = _type(instruction)
    return lanewise(instruction, kernel, lambda a, b, p: np.where(p, a, b), dtype, dtype, dtype, np.bool_)


# ------------------------------------------------------------------------------------------------ moves


def _mov(instruction, kernel):
    allow(instruction)
    dtype = _type(instruction, "uisfbp")
    target, source = instruction.operands
    if target.startswith("{"):
        writers = [writer(instruction, kernel, n, f"u{dtype.itemsize // len(names_in(target))}")
                   for n in names_in(target)]
        get = reader(instruction, kernel, source, dtype)
        part = np.dtype(f"u{dtype.itemsize // len(writers)}")

        def unpack(m, lanes):
            parts = integers.parts(get(m), part)
            for i, write in enumerate(writers):
                write(m, parts[..., i], lanes)
        return unpack
    if source.startswith("{"):
        part = np.dtype(f"u{dtype.itemsize // len(names_in(source))}")
        readers = [reader(instruction, kernel, n, part) for n in names_in(source)]
        write = writer(instruction, kernel, target, dtype)

        def pack(m, lanes):
            parts = np.stack(np.broadcast_arrays(*(get(m) for get in readers)), axis=-1)
            write(m, np.ascontiguousarray(parts).view(dtype)[..., 0], lanes)
        return pack
    return lanewise(instruction, kernel, np.asarray, dtype, dtype)


def without_last(instruction):
    return replace(instruction, parts=instruction.parts[:-1])


def _differences(instruction, kernel):
    """vabsdiff{2,4}.u32.u32.u32[.add] d, a, b, c: |a - b| of each part, or c plus their sum."""
    if instruction.parts[1:4] != ("u32",) * 3 or instruction.parts[4:] not in ((), ("add",)):
        raise unknown(instruction)
    part = np.uint16 if instruction.name == "vabsdiff2" else np.uint8

    def differ(a, b, c):
        x, y = (integers.parts(v, part) for v in np.broadcast_arrays(a, b))
        apart = integers.absolute_difference(x, y, part(0))
        return c + apart.sum(axis=-1, dtype=np.uint32) if "add" in instruction.parts else apart.view(np.uint32)[..., 0]
    return lanewise(instruction, kernel, differ, *[np.uint32] * 4)


def _policy(instruction, kernel):
    """createpolicy: advice to the cache, which nothing here follows."""
    return lanewise(replace(instruction, operands=[instruction.operands[0], "0"]), kernel, np.asarray, np.uint64, np.uint64)


def _nothing(instruction, kernel):
    """Memory fences, hints: nothing to do where memory is always coherent."""
    return lambda m, lanes: None


BUILDERS = {
    "add": _either(_float(floats.add, 2, rounds=True), _sum(np.add, _saturating(np.add))),
    "sub": _either(_float(floats.subtract, 2, rounds=True), _sum(np.subtract, _saturating(np.subtract))),
    "mul": _either(_float(floats.multiply, 2, rounds=True), lambda i, k: _product(i, k, extra=False)),
    "mad": _either(_float(floats.fma, 3, rounds=True), lambda i, k: _product(i, k, extra=True)),
    "fma": _float(floats.fma, 3, rounds=True),
    "div": _either(_division, _integer(integers.divide, 2)),
    "rem": _integer(integers.remainder, 2),
    "min": _extreme(floats.minimum, floats.minimum_nan, np.minimum),
    "max": _extreme(floats.maximum, floats.maximum_nan, np.maximum),
    "neg": _either(_float(np.negative, 1, nan=False), _integer(np.negative, 1)),
    "abs": _either(_float(np.abs, 1, nan=False), _integer(np.abs, 1)),
    "copysign": _float(lambda sign, size: np.copysign(size, sign), 2, nan=False),
    "rcp": _root(floats.reciprocal, np.reciprocal), "sqrt": _root(floats.square_root, np.sqrt),
    **{name: _approximated(name) for name in ("rsqrt", "ex2", "lg2", "sin", "cos", "tanh")},
    "sad": _integer(integers.absolute_difference, 3), "dp4a": _dot_product, "dp2a": _dot_product,
    "and": _bitwise(np.bitwise_and, 2), "or": _bitwise(np.bitwise_or, 2), "xor": _bitwise(np.bitwise_xor, 2),
    "not": _bitwise(np.invert, 1), "lop3": _lop3, "prmt": _integer(integers.permute_bytes, 3),
    "shl": _integer(integers.shift_left, 2, counts={1}), "shr": _integer(integers.shift_right, 2, counts={1}), "shf": _funnel,
    "popc": _integer(integers.count_bits, 1, result=np.uint32), "clz": _integer(integers.leading_zeros, 1, result=np.uint32),
    "brev": _integer(integers.reverse_bits, 1), "bfind": _find_bit,
    "bfe": _integer(integers.extract_bits, 3, counts={1, 2}), "bfi": _integer(integers.insert_bits, 4, counts={2, 3}),
    "vabsdiff2": _differences, "vabsdiff4": _differences, "createpolicy": _policy,
    "setp": _setp, "set": _set, "selp": _selp, "mov": _mov,
    **dict.fromkeys(("membar", "fence", "nanosleep", "prefetch"), _nothing),
}
