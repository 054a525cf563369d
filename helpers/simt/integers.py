"""Integer arithmetic of PTX on arrays of lanes. Values in, values out."""

import numpy as np


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
    return np.bitwise_count(a.view(f"u{a.dtype.itemsize}")).astype(np.uint32)


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


def parts(values, kind) -> np.ndarray:
    """The numbers of type `kind` that lie side by side in each value, along a last axis."""
    return np.ascontiguousarray(values)[..., None].view(kind)


def dot_product(a, b, c, left: str, right: str, high: bool | None = None):
    """`dp4a`: c + the sum of four products of bytes; `dp2a`, with `high`: of the halves of a and two bytes of b."""
    halves = high is not None
    x = parts(a, f"{left}{2 if halves else 1}").astype(np.int64)
    y = parts(b, f"{right}1").astype(np.int64)
    y = y[..., 2:] if high else y[..., :2] if halves else y
    return ((x * y).sum(axis=-1) + c.astype(np.int64)).astype(c.dtype)


def absolute_difference(a, b, c):
    """`sad`: |a - b| + c."""
    return np.where(a < b, b - a, a - b) + c
