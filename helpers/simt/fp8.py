"""Floats of 8 bits, held as bits, in pairs: e4m3 (largest 448, no infinity) and e5m2 (the upper half of a float16)."""

import numpy as np

CODES = np.arange(256, dtype=np.uint8)
NAN = 0x7F


def _values_of_e4m3() -> np.ndarray:
    exponent, mantissa = (CODES >> 3 & 15).astype(np.int64), (CODES & 7).astype(np.float64)
    size = np.where(exponent > 0, np.ldexp(8 + mantissa, exponent - 10), np.ldexp(mantissa, -9))
    return np.where(CODES & 127 == NAN, np.nan, np.where(CODES & 128, -size, size))


VALUES = {"e4m3": _values_of_e4m3(), "e5m2": (CODES.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float64)}
SIZES = {kind: values[:128][np.isfinite(values[:128])] for kind, values in VALUES.items()}  # of the codes 0, 1, 2, ...


def decoded(kind: str, bits: np.ndarray) -> np.ndarray:
    """The values of codes, exactly, as float64."""
    return VALUES[kind][bits]


def encoded(kind: str, values: np.ndarray) -> np.ndarray:
    """The codes of floats, to nearest even; what is too large becomes the largest (`.satfinite`)."""
    sizes, given = SIZES[kind], values.astype(np.float64)
    halfway = (sizes[1:] + sizes[:-1]) / 2
    code = np.searchsorted(halfway, np.abs(given))
    code += (code % 2 == 1) & (np.abs(given) == np.append(halfway, np.nan)[code])
    return np.where(np.isnan(given), NAN, code | np.where(np.signbit(given), 128, 0)).astype(np.uint8)
