"""The machine's arithmetic against exact fractions: every float32 rounding, every integer instruction's edge cases."""

from fractions import Fraction

import numpy as np
import pytest

from helpers.simt import floats, integers

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow is among the cases
RNG = np.random.default_rng(0)


def awkward_floats(count: int) -> np.ndarray:
    """Normals of all magnitudes, subnormals, ties, and values near the limits; all finite."""
    bits = RNG.integers(0, 2**32, count, np.uint32)
    bits[::4] &= 0x80FFFFFF  # subnormal or tiny
    bits[1::4] = (bits[1::4] & 0x807FF000) | 0x3F800000  # few significant bits: ties
    bits[2::8] = (bits[2::8] & 0x807FFFFF) | 0x7E000000  # large
    values = bits.view(np.float32)
    return np.where(np.isfinite(values), values, np.float32(1.5))


def nearest(exact: Fraction, rounding: str) -> np.float32:
    """A fraction as float32, by comparing it with the neighbours of a guess."""
    largest = Fraction(float(np.finfo(np.float32).max))
    guess = np.float32(min(max(float(exact), -float(largest)), float(largest)))
    around = sorted({float(guess), float(np.nextafter(guess, np.float32(-np.inf))),
                     float(np.nextafter(guess, np.float32(np.inf)))})
    finite = [v for v in around if np.isfinite(v)]
    below = max((v for v in finite if Fraction(v) <= exact), default=-np.inf)
    above = min((v for v in finite if Fraction(v) >= exact), default=np.inf)
    if rounding in ("rm", "rp"):
        return np.float32(below if rounding == "rm" else above)
    if rounding == "rz":
        return np.float32(below if exact > 0 else above)
    step = Fraction(2) ** 104  # between the largest float32 and what would follow it
    gap_below = exact - (Fraction(below) if np.isfinite(below) else -largest - step)
    gap_above = (Fraction(above) if np.isfinite(above) else largest + step) - exact
    if gap_below == gap_above:
        return np.float32(below if not np.float32(below).view(np.uint32) & 1 else above)
    return np.float32(below if gap_below < gap_above else above)


@pytest.mark.parametrize("rounding", floats.ROUNDINGS)
def test_fma_rounds_once(rounding):
    a, b, c = (awkward_floats(3000) for _ in range(3))
    c[::3] = np.where(np.isfinite(-a[::3] * b[::3]), (-a[::3].astype(np.float64) * b[::3]).astype(np.float32), c[::3])
    with np.errstate(all="ignore"):
        got = floats.fma(a, b, c, rounding)
    for x, y, z, result in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if exact:
            assert result == nearest(exact, rounding), (x, y, z, rounding)
        else:
            assert result == 0


def test_fma_differs_from_two_roundings_and_from_double():
    """The cases that a multiplication followed by an addition, or a float64 detour, gets wrong."""
    a, b, c = (np.array([v], np.float32) for v in (1 + 2.0**-12, 1 + 2.0**-12, -1))
    assert floats.fma(a, b, c)[0] == np.float32(2.0**-11 + 2.0**-24) != (a * b + c)[0]
    a, b, c = (np.array([v], np.float32) for v in (1 + 2.0**-23, 2.0**-24, 1))  # tie in float32 but for the last bit
    assert floats.fma(a, b, c)[0] == np.float32(1 + 2.0**-23)
    a, b, c = (np.array([v], np.float32) for v in (2.0**-60, 2.0**-60, 1 + 2.0**-23))
    assert floats.fma(a, b, c, "rp")[0] == np.float32(1 + 2.0**-22)


@pytest.mark.parametrize("rounding", floats.ROUNDINGS)
@pytest.mark.parametrize("function,exactly", [(floats.add, lambda x, y: x + y), (floats.multiply, lambda x, y: x * y),
                                              (floats.subtract, lambda x, y: x - y)])
def test_sums_and_products_round_in_every_direction(function, exactly, rounding):
    a, b = awkward_floats(2000), awkward_floats(2000)
    with np.errstate(all="ignore"):
        got = function(a, b, rounding)
    for x, y, result in zip(a, b, got, strict=True):
        exact = exactly(Fraction(float(x)), Fraction(float(y)))
        if exact:
            assert result == nearest(exact, rounding), (x, y, rounding)


def test_exact_zero_is_negative_only_when_rounding_down():
    one = np.ones(1, np.float32)
    assert not np.signbit(floats.add(one, -one)[0])
    assert np.signbit(floats.add(one, -one, "rm")[0])
    assert not np.signbit(floats.add(0 * one, 0 * one, "rm")[0])


@pytest.mark.parametrize("rounding", floats.ROUNDINGS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers_become_floats(dtype, rounding):
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, 2000, dtype, endpoint=True)
    values[::3] = values[::3] >> dtype(info.bits // 2)
    got = floats.convert(values, np.float32, rounding, False, False)
    for value, result in zip(values, got, strict=True):
        if value:
            assert result == nearest(Fraction(int(value)), rounding), value
    for value, result in zip(map(int, values), floats.convert(values, np.float64, rounding, False, False).tolist(), strict=True):
        way = {"rz": -1 if value > 0 else 1, "rm": -1, "rp": 1}.get(rounding)
        if way is None:
            assert result == float(value)
        else:  # not beyond the exact value, and the next one would be
            assert (int(result) - value) * way >= 0 > (int(np.nextafter(result, -way * np.inf)) - value) * way or int(result) == value


def test_floats_become_integers():
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 3e9, -3e9, 1e20, np.inf, -np.inf, np.nan, 4294967040], np.float32)
    as_int = floats.convert(values, np.int32, "rn", True, False)
    assert as_int.tolist() == [0, 2, 2, 0, -2, 2**31 - 1, -(2**31), 2**31 - 1, 2**31 - 1, -(2**31), 0, 2**31 - 1]
    as_uint = floats.convert(values, np.uint32, "rz", True, False)
    assert as_uint.tolist() == [0, 1, 2, 0, 0, 3000000000, 0, 2**32 - 1, 2**32 - 1, 0, 0, 4294967040]
    as_long = floats.convert(values, np.int64, "rz", True, False)
    assert as_long[[5, 7, 8, 9, 10]].tolist() == [3 * 10**9, 2**63 - 1, 2**63 - 1, -(2**63), -(2**63)]


def test_minimum_and_maximum_of_nan_and_zeros():
    a = np.array([np.nan, 1, 0.0, -0.0, np.nan], np.float32)
    b = np.array([1, np.nan, -0.0, 0.0, np.nan], np.float32)
    low, high = floats.minimum(a, b), floats.maximum(a, b)
    assert low[:2].tolist() == high[:2].tolist() == [1, 1] and np.isnan(low[4]) and np.isnan(high[4])
    assert np.signbit(low[2:4]).all() and not np.signbit(high[2:4]).any()
    assert np.isnan(floats.maximum_nan(a, b)[[0, 1, 4]]).all()


def test_subnormals_are_flushed_with_their_sign():
    values = np.array([1e-40, -1e-40, 2.0**-126, -1], np.float32)
    assert floats.flush(values).tolist() == [0, 0, 2.0**-126, -1] and np.signbit(floats.flush(values)[1])


def test_comparisons_with_nan():
    a, b = np.array([1, np.nan, 2], np.float32), np.array([1, 1, 1], np.float32)
    expected = {"eq": [1, 0, 0], "ne": [0, 0, 1], "lt": [0, 0, 0], "ge": [1, 0, 1], "equ": [1, 1, 0], "neu": [0, 1, 1],
                "ltu": [0, 1, 0], "gtu": [0, 1, 1], "num": [1, 0, 1], "nan": [0, 1, 0]}
    assert {name: floats.compare(name, a, b).astype(int).tolist() for name in expected} == expected


def numbers(dtype, count=500):
    info = np.iinfo(dtype)
    values = RNG.integers(info.min, info.max, count, dtype, endpoint=True)
    values[:6] = [info.min, info.max, 0, 1, info.max // 2, info.min // 2 if info.min else 3]
    return values


def wrap(value: int, dtype) -> int:
    bits = np.iinfo(dtype).bits
    value %= 1 << bits
    return value - (1 << bits) if np.dtype(dtype).kind == "i" and value >> (bits - 1) else value


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.int16, np.uint16])
def test_integer_instructions_against_whole_numbers(dtype):
    a, b = numbers(dtype), RNG.permutation(numbers(dtype))
    bits = np.iinfo(dtype).bits
    start, length = RNG.integers(0, 80, (2, len(a)), np.uint32)
    with np.errstate(all="ignore"):
        results = {
            "high": integers.multiply_high(a, b), "quotient": integers.divide(a, b), "rest": integers.remainder(a, b),
            "left": integers.shift_left(a, start), "right": integers.shift_right(a, start),
            "clz": integers.leading_zeros(a), "brev": integers.reverse_bits(a), "popc": integers.count_bits(a),
            "sad": integers.absolute_difference(a, b, a), "bfe": integers.extract_bits(a, start, length),
            "bfi": integers.insert_bits(a, b, start, length),
        }
    for i, (x, y, s, n) in enumerate(zip(a.tolist(), b.tolist(), start.tolist(), length.tolist(), strict=True)):
        word, other = x % (1 << bits), y % (1 << bits)
        quotient = (abs(x) // abs(y)) * (1 if (x < 0) == (y < 0) else -1) if y else -1
        field = (x >> s) & ((1 << n) - 1)  # Python's shift repeats the sign for ever, as bfe does
        if np.dtype(dtype).kind == "i" and n and x >> min(s + n - 1, bits - 1) & 1:
            field |= -1 << n
        mask = ((1 << n) - 1) << s
        expected = {
            "high": x * y >> bits, "quotient": quotient, "rest": x - quotient * y if y else x,
            "left": word << s, "right": x >> s, "clz": bits - word.bit_length(), "popc": word.bit_count(),
            "brev": int(f"{word:0{bits}b}"[::-1], 2), "sad": abs(x - y) + x,
            "bfe": field, "bfi": (other & ~mask) | (word << s & mask),
        }
        for name, values in results.items():
            kind = np.uint32 if name in ("clz", "popc") else dtype
            assert values[i] == wrap(expected[name], kind), (name, x, y, s, n)


def test_bytes_and_bits():
    a, b = np.array([0x33221100], np.uint32), np.array([0x776655F4], np.uint32)
    assert integers.permute_bytes(a, b, np.array([0x7531], np.uint32))[0] == 0x77553311
    assert integers.permute_bytes(a, b, np.array([0xC480], np.uint32))[0] == 0xFFF40000  # with 8: sign of that byte
    c = np.array([0xAAAAAAAA], np.uint32)
    assert integers.lop3(a, b, c, 0xE8)[0] == (a & b | a & c | b & c)[0]  # majority
    assert integers.funnel(a, b, np.array([8], np.uint32), True, True)[0] == 0x6655F433
    assert integers.funnel(a, b, np.array([40], np.uint32), False, False)[0] == b[0]
    assert integers.find_bit(np.array([-8], np.int32), False)[0] == 2
    assert integers.find_bit(np.array([0], np.uint32), False)[0] == 0xFFFFFFFF


def test_halves():
    values = np.array([1, 65504, 65520, 1e-8, -2.5, np.nan], np.float32)
    assert floats.to_f16(values).tolist() == [0x3C00, 0x7BFF, 0x7C00, 0, 0xC100, 0x7FFF]
    assert floats.to_bf16(np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, np.nan], np.float32)).tolist() == [
        0x3F80, 0x3F80, 0x3F82, 0x7FFF]
    assert floats.from_bf16(np.array([0xC0A0], np.uint16))[0] == -5
