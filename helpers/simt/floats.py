"""Floating-point arithmetic of PTX on arrays of lanes, rounded as the hardware rounds. Values in, values out."""

import fractions

import numpy as np

from helpers.simt.integers import parts

ROUNDINGS = ("rn", "rz", "rm", "rp")
NAN_BITS = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FF8000000000000}
TINY = np.float32(2.0**-126)  # below it, single precision is subnormal


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
    s, error = _exact_sum(p, c)
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
        nearest = _fma_double(a, b, c)
        return nearest if rounding == "rn" else directed(lambda y, a, b, c: a * b + c - y, nearest, rounding, a, b, c)
    a64, b64, c64 = _double(a, b, c)
    return _zero_sign(narrow(odd_sum(a64 * b64, c64), rounding, a.dtype.type), a64 * b64, c64, rounding)


def _zero_sign(result, p, c, rounding):
    """Rounding down makes an exact zero negative, unless both terms are +0."""
    if rounding == "rm":
        minus = (result == 0) & (p + c == 0) & (np.signbit(p) | np.signbit(c))
        return np.where(minus, -np.zeros_like(result), result)
    return result


def _fma_double(a, b, c):
    """As Boldo and Melquiond (2008): the product and the sum with their errors, the small terms rounded to odd.

    Where a term is too large or too small for that, exact fractions do it.
    """
    a, b, c = np.broadcast_arrays(*(np.atleast_1d(v) for v in (a, b, c)))
    p = a * b
    ah, al, bh, bl = *_halves(a), *_halves(b)
    error = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    low, lower = _exact_sum(c, error)
    high, middle = _exact_sum(p, low)
    out = high + odd_sum(middle, lower)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    simple = ~finite | (a == 0) | (b == 0)
    out = np.where(simple | ((p == -c) & (error == 0)), p + c, out)
    easy = [(v == 0) | ((np.abs(v) > 2.0**-900) & (np.abs(v) < 2.0**900)) for v in (p, c)]
    for i in np.flatnonzero(~simple & ~(easy[0] & easy[1] & (np.abs(a) < 2.0**900) & (np.abs(b) < 2.0**900) & (p != 0))):
        exact = fractions.Fraction(float(a[i])) * fractions.Fraction(float(b[i])) + fractions.Fraction(float(c[i]))
        try:
            out[i] = float(exact) if exact else p[i] + c[i]
        except OverflowError:
            out[i] = np.inf if exact > 0 else -np.inf
    return out


def _halves(a):
    """Two parts of 26 bits each (Veltkamp)."""
    t = a * 134217729.0
    high = t - (t - a)
    return high, a - high


def _exact_sum(a, b):
    """The rounded sum and its error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def add(a, b, rounding="rn"):
    if rounding == "rn":
        return a + b
    if a.dtype == np.float64:
        return directed(lambda y, a, b: a + b - y, a + b, rounding, a, b)
    a64, b64 = _double(a, b)
    return _zero_sign(narrow(odd_sum(a64, b64), rounding), a64, b64, rounding)


def subtract(a, b, rounding="rn"):
    return add(a, -b, rounding)


def multiply(a, b, rounding="rn"):
    if rounding == "rn":
        return a * b
    if a.dtype == np.float64:
        return directed(lambda y, a, b: a * b - y, a * b, rounding, a, b)
    a64, b64 = _double(a, b)
    return narrow(a64 * b64, rounding)


def divide(a, b, rounding="rn"):
    if rounding == "rn":
        return a / b
    return directed(lambda y, a, b: (a - y * b) * (1 if b > 0 else -1), a / b, rounding, a, b)


def reciprocal(a, rounding="rn"):
    return divide(np.ones_like(a), a, rounding)


def square_root(a, rounding="rn"):
    return np.sqrt(a) if rounding == "rn" else directed(lambda y, a: a - y * y, np.sqrt(a), rounding, a)


def directed(excess, nearest, rounding: str, *values):
    """Results rounded to nearest, moved to the neighbour that another rounding asks for.

    `excess(result, *values)` has the sign of the exact result minus the given one. Exact fractions: slow, for the few
    places that need it.
    """
    out, values = np.array(nearest), np.broadcast_arrays(*values)
    for i in np.flatnonzero(~np.isnan(nearest) & np.all([np.isfinite(v) for v in values], axis=0)):
        y, exactly = out[i], [fractions.Fraction(float(v[i])) for v in values]
        if np.isinf(y):
            if excess is not None and all(v for v in exactly):  # overflow: the exact result is nearer to zero
                sign = -1 if y > 0 else 1
            else:
                continue
        else:
            over = excess(fractions.Fraction(float(y)), *exactly)
            sign = (over > 0) - (over < 0)
        down = rounding == "rm" or rounding == "rz" and y > 0
        if sign < 0 and down:
            out[i] = np.nextafter(y, y.dtype.type(-np.inf))
        elif sign > 0 and (rounding == "rp" or rounding == "rz" and y < 0):
            out[i] = np.nextafter(y, y.dtype.type(np.inf))
    return out


def minimum(a, b):
    """-0 counts as smaller than +0; a NaN loses against a number."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))


def maximum(a, b):
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))


def signs_multiplied(function):
    """`.xorsign.abs`: the function of the magnitudes, with the sign that the product would have."""
    def signed(a, b):
        size = function(np.abs(a), np.abs(b))
        return np.where(np.signbit(a) != np.signbit(b), -size, size)
    return signed


def minimum_nan(a, b):
    return np.where(np.isnan(a) | np.isnan(b), np.nan, minimum(a, b)).astype(a.dtype)


def maximum_nan(a, b):
    return np.where(np.isnan(a) | np.isnan(b), np.nan, maximum(a, b)).astype(a.dtype)


def correctly_rounded(function):
    """A float32 function that the hardware approximates, here rounded correctly: within the documented error."""
    return lambda a: function(a.astype(np.float64)).astype(np.float32)


def rough(function):
    """A float64 function that the hardware computes to some 20 bits: the first ones of the right result."""
    def approximate(a):
        return (function(a).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    return approximate


APPROXIMATED = {"ex2": np.exp2, "lg2": np.log2, "rcp": np.reciprocal, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
                "tanh": np.tanh, "rsqrt": lambda a: 1 / np.sqrt(a)}


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of bfloat16, to nearest even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def to_tf32(values: np.ndarray, ties_away: bool) -> np.ndarray:
    """float32 to the bits of a float32 of which the last 13 are zero, to nearest; halfway to even, or away from zero."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    half = np.uint32(0x1000) if ties_away else np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), np.where(np.isinf(values), bits, rounded)).astype(np.uint32)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def double_to_bf16(values: np.ndarray, rounding: str = "rn") -> np.ndarray:
    """float64 (exact, or rounded to odd) to the bits of bfloat16, rounded once."""
    short = narrow(values, "rz")
    bits = short.view(np.uint32) | (np.isfinite(short) & (short != values))  # anything below the last bit shows in it
    if rounding != "rn":
        away = (bits & np.uint32(0xFFFF) != 0) & (np.signbit(values) if rounding == "rm" else ~np.signbit(values))
        up = (away & (rounding != "rz")).astype(np.uint32)
        return np.where(np.isnan(short), 0x7FFF, (bits >> np.uint32(16)) + up).astype(np.uint16)
    return to_bf16(bits.astype(np.uint32).view(np.float32))


def positive(values: np.ndarray) -> np.ndarray:
    """Negative numbers become 0 (`.relu`)."""
    return np.where(values < 0, values.dtype.type(0), values)


def of_short(function, kind: str, relu: bool = False):
    """A function of floats as one of registers that hold bf16 as bits, or two of f16 or bf16."""
    if kind == "f16x2":
        return pairwise(function, np.uint32, np.float16)
    wide = {fma: lambda a, b, c: odd_sum(a * b, c), add: odd_sum, np.add: odd_sum,
            subtract: lambda a, b: odd_sum(a, -b)}.get(function, function)

    def single(*bits):
        exact = wide(*(from_bf16(np.asarray(b)).astype(np.float64) for b in bits))
        return double_to_bf16(positive(exact) if relu else exact)
    return single if kind == "bf16" else pairwise(single, np.uint32, np.uint16)


def pairwise(function, register, item):
    """A function of packed pairs, from one of their halves."""
    def pairs(*values):
        halves = [parts(v, item) for v in np.broadcast_arrays(*values)]
        return np.ascontiguousarray(function(*halves)).view(register)[..., 0]
    return pairs


def to_f16(values: np.ndarray) -> np.ndarray:
    """float32 to the bits of float16, to nearest even."""
    return one_nan(values.astype(np.float16)).view(np.uint16)


def halves_of_integers(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers of 64 bits as two float64 each, both exact, that add up to them."""
    high, low = values >> values.dtype.type(32), values & values.dtype.type(0xFFFFFFFF)
    return high.astype(np.float64) * 2.0**32, low.astype(np.float64)


def _integer_to_float(values: np.ndarray, dtype, rounding: str) -> np.ndarray:
    if values.dtype.itemsize < 8:
        return narrow(values.astype(np.float64), rounding, dtype)
    high, low = halves_of_integers(values)
    if dtype != np.float64:
        return narrow(odd_sum(high, low), rounding, dtype)
    nearest, error = _exact_sum(high, low)
    towards = {"rn": 0, "rz": -np.sign(nearest), "rm": -1, "rp": 1}[rounding]
    return np.where(error * towards > 0, np.nextafter(nearest, towards * np.inf), nearest)


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
