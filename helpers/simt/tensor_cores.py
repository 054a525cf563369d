"""Tensor Core instructions of a warp: `mma.sync` multiplies a 16 x K by a K x 8 matrix and adds a 16 x 8 one.

The matrices lie spread over the registers of the 32 lanes (PTX ISA, "Matrix Fragments for mma"): with lane = 4 g + i, and p
values side by side in a register, register r of lane holds

    A (16 x K):  rows g + 8 (r % 2),   columns p i + 4 p (r // 2) ...      B (K x 8):  rows p i + 4 p r ..., column g
    C, D (16 x 8):  value v of the lane lies in row g + 8 (v // 2), column 2 i + v % 2

Products and sums are exact here and rounded once; the hardware leaves open in which order it adds, and how it rounds between.
"""

import re

import numpy as np

from helpers.simt import floats, fp8
from helpers.simt.operands import names_in, reader, unknown, writer

LANE = np.arange(32)
GROUP, MEMBER = LANE // 4, LANE % 4  # g and i
TF32_BITS = np.uint32(0xFFFFE000)  # the others of a float32 are not looked at
# Type of A and B -> (values in a register, registers' bits as float64 or int64)
FACTORS = {
    "f16": (2, lambda bits: bits.view(np.float16).astype(np.float64)),
    "bf16": (2, lambda bits: floats.from_bf16(bits.view(np.uint16)).astype(np.float64)),
    "tf32": (1, lambda bits: (bits & TF32_BITS).view(np.float32).astype(np.float64)),
    "s8": (4, lambda bits: bits.view(np.int8).astype(np.int64)),
    "u8": (4, lambda bits: bits.view(np.uint8).astype(np.int64)),
    "e4m3": (4, lambda bits: fp8.decoded("e4m3", bits.view(np.uint8))),
    "e5m2": (4, lambda bits: fp8.decoded("e5m2", bits.view(np.uint8))),
}
OPCODE = re.compile(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col(\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.(\w+)")
SUMS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}


def decode(instruction, kernel):
    """("tensor core", function that executes it) of mma; None for others."""
    return ("tensor core", _mma(instruction, kernel)) if instruction.name == "mma" else None


def _mma(instruction, kernel):
    """mma.sync.aligned.m16n8kK.row.col[.satfinite].dtype.atype.btype.ctype d, a, b, c"""
    match = OPCODE.fullmatch(".".join(instruction.parts))
    if not match or len(instruction.operands) != 4:
        raise unknown(instruction)
    depth, saturate, to, kind_a, kind_b, kind_c = match.groups()
    whole = {kind_a, kind_b} <= {"s8", "u8"}
    mixed = whole or {kind_a, kind_b} <= {*fp8.VALUES}
    if kind_a not in FACTORS or not (mixed or kind_a == kind_b) or to != kind_c or to not in SUMS or (to == "s32") != whole:
        raise unknown(instruction)
    (per, values_a), (_, values_b), sums = FACTORS[kind_a], FACTORS[kind_b], np.dtype(SUMS[to])
    d, a, b, c = ([name.strip() for name in names_in(text)] for text in instruction.operands)
    if (len(a), len(b), len(c), len(d)) != (2 * len(b), int(depth) / (4 * per), sums.itemsize, sums.itemsize):
        raise unknown(instruction, "registers")
    writers = [writer(instruction, kernel, name, np.uint32) for name in d]
    read_a, read_b, read_c = ([reader(instruction, kernel, name, np.uint32) for name in names] for names in (a, b, c))
    place, count = np.arange(per), np.arange(len(a))
    a_row = (GROUP[:, None] + 8 * (count % 2))[:, :, None]
    a_column = per * MEMBER[:, None, None] + 4 * per * (count // 2)[:, None] + place
    b_row, b_column = a_column[:, ::2], GROUP[:, None, None]
    row, column = GROUP[:, None] + 8 * (np.arange(4) // 2), 2 * MEMBER[:, None] + np.arange(4) % 2

    def step(m, lanes):
        here = m.flags(lanes).reshape(-1, 32)
        m.need_together(instruction, np.ones_like(here), here)
        left = np.empty((len(here), 16, int(depth)), np.int64 if whole else np.float64)
        right = np.empty((len(here), int(depth), 8), left.dtype)
        left[:, a_row, a_column] = values_a(_registers(m, read_a)).reshape(-1, 32, len(a), per)
        right[:, b_row, b_column] = values_b(_registers(m, read_b)).reshape(-1, 32, len(b), per)
        added = _registers(m, read_c).view(sums).astype(left.dtype)
        out = (left @ right)[:, row, column] + added
        out = np.clip(out, -2**31, 2**31 - 1) if saturate else out
        out = floats.one_nan(out.astype(sums)) if sums.kind == "f" else out.astype(sums)
        bits = np.ascontiguousarray(out).view(np.uint32).reshape(m.lanes, len(d))
        for i, write in enumerate(writers):
            write(m, bits[:, i], lanes)
    return step


def _registers(m, readers) -> np.ndarray:
    """(warps, 32, registers) bits."""
    return np.stack([np.broadcast_to(get(m), m.lanes) for get in readers], axis=-1).reshape(-1, 32, len(readers))
