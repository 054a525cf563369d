"""The arithmetic of PTX on arrays of lanes, rounded as the hardware rounds. No machine state: values in, values out."""

import fractions

import numpy as np

TYPES = {"u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
         "f16": np.float16, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32, "u64": np.uint64,
         "s64": np.int64, "b64": np.uint64, "f64": np.float64, "pred": np.bool_}
PACKED = {"f16x2": (np.uint32, np.float16), "f32x2": (np.uint64, np.float32)}  # register, and what it holds two of
ROUNDINGS = ("rn", "rz", "rm", "rp")
NAN_BITS = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FF8000000000000}
TINY = np.float32(2.0**-126)  # below it, single precision is subnormal


# ------------------------------------------------------------------------------------------------ floats


def one_nan(values: np.ndarray) -> np.ndarray:
    """Every NaN as the one bit pattern that the hardware's arithmetic writes."""
    wrong = np.isnan(values)
    if wrong.any():
        pattern = np.array(NAN_BITS[values.dtype.itemsize], f"u{values.dtype.itemsize}").view(values.dtype)
        return np.where(wrong, pattern, values)
    return values


def flush(values: np.ndarray) -> np.ndarray:
    """Subnormal float32 numbers become zero of the same sign (`.ftz`)."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values)


def clamp(values: np.ndarray) -> np.ndarray:
    """To 0 .. 1, NaN to 0 (`.sat`)."""
    return np.where(values > 0, np.minimum(values, values.dtype.type(1)), values.dtype.type(0))


def odd_sum(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c in float64, rounded to odd: a later rounding to fewer bits is then as if it had seen the exact sum."""
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)  # exact: s + error = p + c (Knuth)
    bits = s.view(np.int64)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(s)
    if inexact.any():  # the exact sum lies between s, which is even, and its neighbour on the error's side
        s = np.where(inexact, (bits + np.where((error > 0) == (s > 0), 1, -1)).view(np.float64), s)
    return s


def narrow(s: np.ndarray, rounding: str = "rn", dtype=np.float32) -> np.ndarray:
    """Float64 values (exact, or rounded to odd) in a narrower type, rounded once in the given direction."""
    y = s.astype(dtype)
    if rounding == "rn":
        return y
    back = y.astype(np.float64)
    too_high, too_low = back > s, back < s
    down = too_high & ((s > 0) if rounding == "rz" else (rounding == "rm"))
    up = too_low & ((s < 0) if rounding == "rz" else (rounding == "rp"))
    y = np.where(down, np.nextafter(y, dtype(-np.inf)), y)
    return np.where(up, np.nextafter(y, dtype(np.inf)), y)


def _double(*values):
    return (v.astype(np.float64) for v in values)


def fma(a, b, c, rounding="rn"):
    """a * b + c, rounded once. A product of two float32 numbers is exact in float64; the sum is rounded to odd."""
    if a.dtype == np.float64:
        return _fma_double(a, b, c)
    a64, b64, c64 = _double(a, b, c)
    return _zero_sign(narrow(odd_sum(a64 * b64, c64), rounding, a.dtype.type), a64 * b64, c64, rounding)


def _zero_sign(result, p, c, rounding):
    """Rounding down makes an exact zero negative, unless both terms are +0."""
    if rounding == "rm":
        minus = (result == 0) & (p + c == 0) & (np.signbit(p) | np.signbit(c))
        return np.where(minus, -np.zeros_like(result), result)
    return result


def _fma_double(a, b, c):
    """Through exact fractions: slow, for the few places that need it."""
    product, out = a * b, a * b + c
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    for i in np.flatnonzero(finite & (product != 0) | (finite & (a != 0) & (b != 0))):
        exact = fractions.Fraction(float(a[i])) * fractions.Fraction(float(b[i])) + fractions.Fraction(float(c[i]))
        if exact:
            try:
                out[i] = float(exact)
            except OverflowError:
                out[i] = np.inf if exact > 0 else -np.inf
    return out


def add(a, b, rounding="rn"):
    if rounding == "rn":
        return a + b
    a64, b64 = _double(a, b)
    return _zero_sign(narrow(odd_sum(a64, b64), rounding), a64, b64, rounding)


def subtract(a, b, rounding="rn"):
    return add(a, -b, rounding)


def multiply(a, b, rounding="rn"):
    if rounding == "rn":
        return a * b
    a64, b64 = _double(a, b)
    return narrow(a64 * b64, rounding)


def minimum(a, b):
    """-0 counts as smaller than +0; a NaN loses against a number."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))


def maximum(a, b):
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))


def minimum_nan(a, b):
    return np.where(np.isnan(a) | np.isnan(b), np.nan, minimum(a, b)).astype(a.dtype)


def maximum_nan(a, b):
    return np.where(np.isnan(a) | np.isnan(b), np.nan, maximum(a, b)).astype(a.dtype)


def correctly_rounded(function):
    """A float32 function that the hardware approximates, here rounded correctly: within the documented error."""
    return lambda a: function(a.astype(np.float64)).astype(np.float32)


APPROXIMATED = {"ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
                "tanh": np.tanh, "rsqrt": lambda a: 1 / np.sqrt(a)}


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16, to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_f16(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of float16, to nearest even."""
    return one_nan(values.astype(np.float16)).view(np.uint16)


def _integer_to_float(values: np.ndarray, dtype, rounding: str) -> np.ndarray:
    if values.dtype.itemsize < 8:
        return narrow(values.astype(np.float64), rounding, dtype)
    if dtype == np.float64:
        return values.astype(dtype)
    high = values >> values.dtype.type(32)  # both halves are exact in float64, and so is their sum rounded to odd
    low = (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64)
    return narrow(odd_sum(high.astype(np.float64) * 2.0**32, low), rounding, dtype)


def _float_to_integer(values: np.ndarray, dtype, rounding: str) -> np.ndarray:
    """Out of range clamps; NaN becomes 0 in 32 bits or fewer, and the largest power of two in 64."""
    info = np.iinfo(dtype)
    whole = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}[rounding](values.astype(np.float64))
    low, high = float(info.min), float(info.max)  # the latter rounds up to a power of two in 64 bits
    inside = np.where((whole > low) & (whole < high), whole, 0).astype(dtype)
    clamped = np.where(whole >= high, info.max, np.where(whole <= low, info.min, inside))
    odd = 1 << 63 if info.bits == 64 or values.dtype == np.float64 and info.bits == 64 else 0
    return np.where(np.isnan(values), np.array(odd, np.uint64).astype(dtype), clamped).astype(dtype)


def convert(values: np.ndarray, dtype, rounding: str, to_whole: bool, saturate: bool) -> np.ndarray:
    """`cvt` between any two of TYPES. `to_whole`: round to an integer first (.rni, ...)."""
    floating, to = values.dtype.kind == "f", np.dtype(dtype)
    if to.kind in "iu":
        if floating:
            return _float_to_integer(values, dtype, rounding)
        if saturate:
            low = max(np.iinfo(to).min, np.iinfo(values.dtype).min)
            values = np.clip(values, low, min(np.iinfo(to).max, np.iinfo(values.dtype).max))
        return values.astype(to)
    if not floating:
        out = _integer_to_float(values, to.type, rounding)
    elif to_whole:
        out = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}[rounding](values).astype(to)
    elif to.itemsize < values.dtype.itemsize and (rounding != "rn" or to == np.float16):
        out = narrow(values.astype(np.float64), rounding, to.type)
    else:
        out = values.astype(to)
    out = one_nan(out)
    return clamp(out) if saturate else out


# ------------------------------------------------------------------------------------------------ integers


def _magnitude(a):
    return np.where(a < 0, -a, a).view(f"u{a.dtype.itemsize}")  # the least number wraps to its own magnitude


def divide(a, b):
    """Towards zero. All ones for b = 0, as the hardware does."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = (_magnitude(a) // _magnitude(safe)).view(a.dtype)
        quotient = np.where((a < 0) != (safe < 0), -quotient, quotient)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def remainder(a, b):
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, a - divide(a, safe) * safe)


def multiply_wide(a, b):
    """16 x 16 -> 32 or 32 x 32 -> 64 bits."""
    bigger = np.dtype(f"{a.dtype.kind}{2 * a.dtype.itemsize}")
    return a.astype(bigger) * b.astype(bigger)


def multiply_high(a, b):
    """The upper half of the product."""
    if a.dtype.itemsize < 8:
        return (multiply_wide(a, b) >> a.dtype.type(8 * a.dtype.itemsize)).astype(a.dtype)
    x, y, half, low = a.view(np.uint64), b.view(np.uint64), np.uint64(32), np.uint64(0xFFFFFFFF)
    x1, x0, y1, y0 = x >> half, x & low, y >> half, y & low
    middle = x1 * y0 + (x0 * y0 >> half)
    upper = x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half)
    if a.dtype.kind == "i":
        upper = upper - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return upper.view(a.dtype)


def shift_left(a, count):
    width = 8 * a.dtype.itemsize
    return np.where(count < width, a << np.minimum(count, width - 1).astype(a.dtype), a.dtype.type(0))


def shift_right(a, count):
    """Arithmetic for signed types, where counts past the width leave only the sign."""
    width = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(count, width - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(count < width, shifted, a.dtype.type(0))


def funnel(a, b, count, left: bool, wrap: bool):
    """`shf`: shift the 64-bit pair (b, a) and keep the upper word (left) or the lower (right)."""
    count = (count & np.uint32(31) if wrap else np.minimum(count, np.uint32(32))).astype(np.uint64)
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    return ((pair << count) >> np.uint64(32) if left else pair >> count).astype(np.uint32)


def lop3(a, b, c, table: int):
    """A bitwise function of three words: bit 4a + 2b + c of the table is the result."""
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out


def permute_bytes(a, b, selector):
    """`prmt`: each byte of the result is one of the 8 bytes of (b, a), or that byte's sign eight times."""
    pair = (b.astype(np.uint64) << np.uint64(32)) | a
    out = np.uint32(0)
    for i in range(4):
        nibble = (selector >> np.uint32(4 * i)) & np.uint32(15)
        byte = (pair >> ((nibble & np.uint32(7)) * np.uint32(8)).astype(np.uint64)).astype(np.uint32) & np.uint32(0xFF)
        sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
        out = out | (np.where(nibble & np.uint32(8), sign, byte) << np.uint32(8 * i))
    return out


def count_bits(a):
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a):
    width = 8 * a.dtype.itemsize
    top, rest = np.zeros(a.shape, np.uint32), a.view(f"u{a.dtype.itemsize}")
    step = width // 2
    while step:  # the position of the highest set bit, by halves
        above = rest >> rest.dtype.type(step)
        top, rest = np.where(above != 0, top + np.uint32(step), top), np.where(above != 0, above, rest)
        step //= 2
    return np.where(rest == 0, np.uint32(width), np.uint32(width - 1) - top)


def find_bit(a, as_shift: bool):
    """`bfind`: position of the highest bit that differs from the sign, or how far to shift it to the top."""
    significant = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
    zeros = leading_zeros(significant)
    width = 8 * a.dtype.itemsize
    found = zeros if as_shift else np.uint32(width - 1) - zeros
    return np.where(zeros == width, np.uint32(0xFFFFFFFF), found)


def reverse_bits(a):
    out, width, t = a, 8 * a.dtype.itemsize, a.dtype.type
    step = width // 2
    mask = t((1 << step) - 1)
    while step:  # swap halves, then quarters, ...
        out = ((out >> t(step)) & mask) | ((out & mask) << t(step))
        step //= 2
        if step:
            mask = mask ^ (mask << t(step))
    return out


def _ones(length):
    """uint64 with the lowest `length` bits set."""
    return np.where(length < 64, (np.uint64(1) << np.minimum(length, np.uint64(63))) - np.uint64(1), ~np.uint64(0))


def extract_bits(a, start, length):
    """`bfe`: `length` bits from `start`; beyond the width, zeros or (signed) copies of the sign."""
    width = 8 * a.dtype.itemsize
    start, length = (start & np.uint32(255)).astype(np.uint64), (length & np.uint32(255)).astype(np.uint64)
    field = shift_right(a.astype(f"{a.dtype.kind}8"), start).view(np.uint64) & _ones(length)
    if a.dtype.kind == "i":
        last = np.minimum(np.maximum(start + length, np.uint64(1)) - np.uint64(1), np.uint64(width - 1))
        negative = (a.astype(np.int64).view(np.uint64) >> last) & np.uint64(1) != 0
        field = np.where(negative & (length > 0), field | ~_ones(length), field)
    return field.astype(f"u{a.dtype.itemsize}").view(a.dtype)


def insert_bits(a, b, start, length):
    """`bfi`: the lowest `length` bits of a, put into b at `start`."""
    start, length = (start & np.uint32(255)).astype(np.uint64), (length & np.uint32(255)).astype(np.uint64)
    mask = shift_left(_ones(length), start)
    field = shift_left(a.astype(np.uint64), start)
    return ((b.astype(np.uint64) & ~mask) | (field & mask)).astype(b.dtype)


def absolute_difference(a, b, c):
    """`sad`: |a - b| + c."""
    return np.where(a < b, b - a, a - b) + c


# ------------------------------------------------------------------------------------------------ comparisons


COMPARE = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
           "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal, "ne": np.not_equal}
COMPARISONS = {*COMPARE, *(f"{name}u" for name in ("eq", "ne", "lt", "le", "gt", "ge")), "num", "nan"}


def compare(name: str, a, b):
    """`setp`: ordered comparisons are false for NaN, unordered ones (`.ltu`, ...) true."""
    if a.dtype.kind != "f":
        return COMPARE[name](a, b)
    unordered = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return ~unordered if name == "num" else unordered
    if name in COMPARE:
        return COMPARE[name](a, b) & ~unordered
    return COMPARE[name[:-1]](a, b) | unordered
