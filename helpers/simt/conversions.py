"""Conversions between numbers of different types (cvt), which round once; bf16 and tf32 are held as bits."""

import numpy as np

from helpers.simt import floats, fp8, integers
from helpers.simt.instructions import ROUND, allow, lanewise, without_last
from helpers.simt.kernel import TYPES
from helpers.simt.operands import unknown


def decode(instruction, kernel):
    """("arithmetic", function that executes it) of cvt; None for others."""
    return ("arithmetic", _cvt(instruction, kernel)) if instruction.name == "cvt" else None


def _cvt(instruction, kernel):
    """cvt[.round][.ftz][.sat].to.from; also two floats into one register of two halves."""
    *_, to, source = instruction.parts
    if "x2" in to + source and {to[:-2], source[:-2]} & {*fp8.VALUES}:
        return _pair_of_bytes(instruction, kernel)
    parts = allow(without_last(instruction), ROUND, {"rni", "rzi", "rmi", "rpi", "ftz", "sat"}, {"rna"} if to == "tf32" else ())
    whole = next((p[:2] for p in parts if p in ("rni", "rzi", "rmi", "rpi")), None)
    rounding = whole or next(iter(parts & ROUND), "rn")
    flush = floats.flush if "ftz" in parts and source == "f32" else np.asarray
    half = {"bf16": floats.to_bf16, "f16": floats.to_f16}
    if to == "tf32" and source == "f32" and instruction.parts[1:-2] in (("rna",), ("rn",)):
        return lanewise(instruction, kernel, lambda v: floats.to_tf32(v, instruction.parts[1] == "rna"), np.uint32, np.float32)
    if to in ("bf16x2", "f16x2") and source == "f32" and parts == {"rn"}:
        low_half = half[to[:-2]]
        return lanewise(instruction, kernel, lambda high, low: low_half(high).astype(np.uint32) << np.uint32(16)
                        | low_half(low), np.uint32, np.float32, np.float32)
    if to == source == "bf16" and whole is not None and len(parts) == 1:
        return lanewise(instruction, kernel,
                        lambda v: floats.to_bf16(floats.convert(floats.from_bf16(v), np.float32, whole, True, False)), np.uint16, np.uint16)
    if source == "bf16" and to in TYPES and to != "pred":  # exactly a float32
        b = np.dtype(TYPES[to])
        return lanewise(instruction, kernel, lambda v: floats.convert(floats.from_bf16(v), b, rounding, whole is not None, "sat" in parts),
                        b, np.uint16)
    if to == "bf16" and source == "f32" and parts == {"rn"}:
        return lanewise(instruction, kernel, floats.to_bf16, np.uint16, np.float32)
    if to == "bf16" and source in TYPES and source != "pred" and not parts - ROUND:
        wide = np.dtype(TYPES[source])
        return lanewise(instruction, kernel, lambda v: floats.double_to_bf16(_as_double(flush(v)), rounding), np.uint16, wide)
    if to not in TYPES or source not in TYPES or "pred" in (to, source):
        raise unknown(instruction)
    a, b = np.dtype(TYPES[to]), np.dtype(TYPES[source])
    flush_result = floats.flush if "ftz" in parts and to == "f32" else np.asarray
    return lanewise(instruction, kernel,
                    lambda v: flush_result(floats.convert(flush(v), a, rounding, whole is not None, "sat" in parts)), a, b)


def _pair_of_bytes(instruction, kernel):
    """cvt.rn.satfinite[.relu].{e4m3x2,e5m2x2}.f32 d, high, low and .f16x2 d, a; cvt.rn[.relu].f16x2.{e4m3x2,e5m2x2} d, a"""
    *_, to, source = instruction.parts
    parts = allow(without_last(instruction), {"rn", "satfinite", "relu"})
    limited = floats.positive if "relu" in parts else np.asarray
    if to == "f16x2" and "satfinite" not in parts:
        def decode_pair(pair):
            halves = fp8.decoded(source[:-2], integers.parts(pair, np.uint8)).astype(np.float16)
            return floats.one_nan(limited(halves)).view(np.uint32)[..., 0]
        return lanewise(instruction, kernel, decode_pair, np.uint32, np.uint16)

    def encode(values):
        return fp8.encoded(to[:-2], limited(values)).view(np.uint16)[..., 0]
    if to[:-2] in fp8.VALUES and {"rn", "satfinite"} <= parts and source in ("f32", "f16x2"):
        if source == "f16x2":
            return lanewise(instruction, kernel, lambda pair: encode(integers.parts(pair, np.float16)), np.uint16, np.uint32)
        return lanewise(instruction, kernel, lambda high, low: encode(np.stack(np.broadcast_arrays(low, high), axis=-1)),
                        np.uint16, np.float32, np.float32)
    raise unknown(instruction)


def _as_double(v):
    """As float64; what does not fit, whole numbers of 64 bits, rounded to odd."""
    if v.dtype.kind == "f" or v.dtype.itemsize < 8:
        return v.astype(np.float64)
    return floats.odd_sum(*floats.halves_of_integers(v))
