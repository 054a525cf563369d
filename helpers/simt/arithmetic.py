"""The arithmetic of PTX on arrays of lanes, rounded as the hardware rounds. No machine state: values in, values out."""

import numpy as np

from helpers.simt.faults import UnknownInstruction

TYPES = {"u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
         "f16": np.float16, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32, "u64": np.uint64,
         "s64": np.int64, "b64": np.uint64, "f64": np.float64, "pred": np.bool_}
TINY = np.float32(2.0**-126)  # below it, single precision is subnormal


def nan_of(values: np.ndarray) -> np.ndarray:
    """Replace every NaN by the one bit pattern the hardware writes."""
    wrong = np.isnan(values)
    if wrong.any():
        bits = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FF8000000000000}[values.dtype.itemsize]
        values = values.copy()
        values.view(f"u{values.dtype.itemsize}")[wrong] = bits
    return values


def flush(values: np.ndarray) -> np.ndarray:
    """Subnormal float32 numbers become zero of the same sign (`.ftz`)."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values)


def fma(a, b, c):
    """a * b + c rounded once. For float32: exact in float64 but for the sum, which is rounded to odd first."""
    if a.dtype == np.float16:
        return (a.astype(np.float64) * b + c.astype(np.float64)).astype(np.float16)  # 53 bits hold this exactly enough
    if a.dtype == np.float64:
        raise UnknownInstruction("fma.f64 is not implemented")
    p, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)  # exact: s + error = p + c
    bits = s.view(np.int64)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(s)
    if inexact.any():  # round to odd, so that the second rounding sees which side the exact sum lies on
        step = np.where((error > 0) == (s > 0), 1, -1)
        s = np.where(inexact, (bits + step).view(np.float64), s)
    return s.astype(np.float32)


def _float(f):
    return lambda *values: nan_of(f(*values))


def minimum(a, b):
    return nan_of(np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b)).astype(a.dtype))


def maximum(a, b):
    return nan_of(np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b)).astype(a.dtype))


def divide_int(a, b):
    """Towards zero; what the hardware returns for b = 0 is all ones."""
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    if a.dtype.kind == "u":
        q = a // safe
    else:
        q = (np.abs(a.astype(object)) // np.abs(safe.astype(object)) if a.itemsize == 8 else
             np.abs(a.astype(np.int64)) // np.abs(safe.astype(np.int64)))
        q = np.where((a < 0) != (safe < 0), -q, q)
    return np.where(b == 0, np.array(-1).astype(a.dtype), q.astype(a.dtype))


def remainder_int(a, b):
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    return np.where(b == 0, a, (a - divide_int(a, safe) * safe).astype(a.dtype))


def wide(a, b):
    """32 x 32 -> 64 or 16 x 16 -> 32 bits."""
    bigger = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return a.astype(bigger) * b.astype(bigger)


def high(a, b):
    if a.dtype.itemsize == 8:
        exact = a.astype(object) * b.astype(object) // 2**64
        return np.array([int(v) & (2**64 - 1) for v in exact], np.uint64).view(a.dtype)
    return (wide(a, b) >> (8 * a.dtype.itemsize)).astype(a.dtype)


def shift_left(a, count):
    width = 8 * a.dtype.itemsize
    count = np.asarray(count).astype(np.uint64)
    return np.where(count >= width, 0, a << np.minimum(count, width - 1).astype(a.dtype)).astype(a.dtype)


def shift_right(a, count):
    width = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(np.asarray(count).astype(np.uint64), width - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(np.asarray(count) >= width, 0, shifted).astype(a.dtype)


def funnel(a, b, count, direction: str, wrap: bool):
    """`shf`: shift the pair (b, a) and keep the upper word (left) or the lower (right)."""
    count = count & 31 if wrap else np.minimum(count, 32)
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    count = count.astype(np.uint64)
    moved = (pair << count) >> np.uint64(32) if direction == "l" else pair >> count
    return moved.astype(np.uint32)


def lop3(a, b, c, table: int):
    """Bitwise function of three words: bit (4a + 2b + c) of the table is the result."""
    out = np.zeros_like(a)
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out


def permute_bytes(a, b, selector):
    """`prmt`: each byte of the result is one of the 8 bytes of (b, a), or its sign bit repeated."""
    source = np.stack([a.view(np.uint8).reshape(-1, 4), b.view(np.uint8).reshape(-1, 4)], 1).reshape(-1, 8)
    out = np.empty((len(a), 4), np.uint8)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i)) & 15
        byte = np.take_along_axis(source, (nibble & 7).astype(np.int64)[:, None], 1)[:, 0]
        out[:, i] = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
    return out.reshape(-1).view(np.uint32)


def count_bits(a):
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a):
    width = 8 * a.dtype.itemsize
    out = np.full(a.shape, width, np.uint32)
    rest = a.copy()
    for bit in range(width):
        on = (rest >> a.dtype.type(bit)) & a.dtype.type(1) != 0
        out[on] = width - 1 - bit
    return out


def reverse_bits(a):
    out = np.zeros_like(a)
    width = 8 * a.dtype.itemsize
    for bit in range(width):
        out |= ((a >> a.dtype.type(bit)) & a.dtype.type(1)) << a.dtype.type(width - 1 - bit)
    return out


def extract_bits(a, start, length):
    """`bfe`: `length` bits from `start`, zero- or sign-extended."""
    width = 8 * a.dtype.itemsize
    start, length = (start & 0xFF).astype(np.int64), (length & 0xFF).astype(np.int64)
    value = a.view(f"u{a.dtype.itemsize}").astype(object) >> start.astype(object)
    out = [int(v) & ((1 << int(n)) - 1) for v, n in zip(value, length, strict=True)]
    if a.dtype.kind == "i":
        tops = np.minimum(start + length - 1, width - 1)
        signs = [int(v) >> int(t) & 1 for v, t in zip(a.view(f"u{a.dtype.itemsize}"), tops, strict=True)]
        out = [v | (-1 << int(n)) if s and n else v for v, s, n in zip(out, signs, length, strict=True)]
    return np.array([v & ((1 << width) - 1) for v in out], f"u{a.dtype.itemsize}").view(a.dtype)


def approximate(f):
    """A function the hardware approximates, here correctly rounded: within its documented error."""
    def rounded(a):
        return nan_of(f(a.astype(np.float64)).astype(np.float32))
    return rounded


UNARY_FLOAT = {
    "ex2": approximate(np.exp2), "lg2": approximate(np.log2), "rcp": approximate(lambda a: 1 / a),
    "sqrt": approximate(np.sqrt), "rsqrt": approximate(lambda a: 1 / np.sqrt(a)), "sin": approximate(np.sin),
    "cos": approximate(np.cos), "tanh": approximate(np.tanh),
}
COMPARE = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
           "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}


def compare(name: str, a, b):
    """`setp`: ordered comparisons are false for NaN, unordered ones (`.ltu`, ...) true; `ne` is ordered for floats."""
    floating = a.dtype.kind == "f"
    unordered = (np.isnan(a) | np.isnan(b)) if floating else np.zeros(a.shape, bool)
    if name in ("num", "nan"):
        return ~unordered if name == "num" else unordered
    if name == "ne":
        return (a != b) & ~unordered
    if name == "neu":
        return (a != b) | unordered
    if name in COMPARE:
        return COMPARE[name](a, b)
    if name.endswith("u") and name[:-1] in COMPARE:
        return COMPARE[name[:-1]](a, b) | unordered
    raise UnknownInstruction(f"comparison .{name}")
