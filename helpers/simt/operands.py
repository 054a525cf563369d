"""Operands of PTX as functions of the machine: registers, special registers, literals, names of arrays."""

import re

import numpy as np

from helpers.simt.faults import UnknownInstruction
from helpers.simt.kernel import Instruction, Kernel
from helpers.simt.memory import CONSTANT_SLOT, address_of

SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"} | {
    "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%clock", "%clock_hi", "%clock64", "%globaltimer",
    "%lanemask_eq", "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%dynamic_smem_size",
    "%total_smem_size",
}


DECIMAL = re.compile(r"-?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def unknown(instruction: Instruction, why: str = "") -> UnknownInstruction:
    return UnknownInstruction(f"PTX line {instruction.line}: {instruction.text!r} is not implemented"
                              + (f" ({why})" if why else ""))


def literal(text: str, dtype):
    """A number of `dtype` as written in PTX (12, -3, 0x1F, 1.5, 0f3F800000, 0d...), or None for anything else."""
    dtype = np.dtype(dtype)
    if text == "WARP_SZ":
        return np.array(32).astype(dtype)
    for letter, digits, whole, floating in (("f", 8, np.uint32, np.float32), ("d", 16, np.uint64, np.float64)):
        if re.fullmatch(rf"0{letter}[0-9a-f]{{{digits}}}", text, flags=re.I):
            bits = np.array(int(text[2:], 16), whole)
            return bits.view(floating).astype(dtype) if dtype.kind == "f" else bits.astype(dtype)
    if dtype.kind == "f" and DECIMAL.fullmatch(text):
        return np.array(float(text)).astype(dtype)
    if not re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|0|[1-9]\d*)U?", text):
        return None
    value = int(text.rstrip("U"), 0)
    if dtype.kind in "fb":
        return np.array(value).astype(dtype)
    return np.array(value % (1 << (8 * dtype.itemsize)), f"u{dtype.itemsize}").view(dtype)


def symbol_address(kernel: Kernel, name: str) -> int | None:
    """The address of an array: within its space for shared and local ones, in device memory for module arrays."""
    if name in kernel.dynamic_shared:
        return kernel.dynamic_start
    for table in (kernel.shared, kernel.local):
        if name in table:
            return table[name]
    return constant_address(kernel, name) if name in kernel.constants else None


def constant_address(kernel: Kernel, name: str) -> int:
    return address_of(CONSTANT_SLOT + list(kernel.constants).index(name))


def reader(instruction: Instruction, kernel: Kernel, text: str, dtype):
    """An operand as a function machine -> values of `dtype`, one for each lane or one for all."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_ and text.startswith("!"):
        inner = reader(instruction, kernel, text[1:], dtype)
        return lambda m: ~inner(m)
    if text in kernel.registers:
        size = kernel.registers[text]
        if (size == 0) != (dtype == np.bool_):
            raise unknown(instruction, f"{text} is {'' if size == 0 else 'not '}a predicate")
        if size in (0, dtype.itemsize):
            return lambda m: m.registers[text].view(dtype)
        if size > dtype.itemsize:  # the low part of a wider register
            return lambda m: m.registers[text].astype(f"u{dtype.itemsize}").view(dtype)
        raise unknown(instruction, f"{text} is narrower than its use")
    if text in SPECIAL:
        return lambda m: m.special(text).astype(dtype)
    address = symbol_address(kernel, text)
    value = literal(text, dtype) if address is None else np.array(address, np.uint64).astype(dtype)
    if value is None:
        raise unknown(instruction, f"operand {text}")
    return lambda m: value


def writer(instruction: Instruction, kernel: Kernel, text: str, dtype):
    """A destination as a function (machine, values, lanes): writes values of `dtype` in those lanes (None: all).

    A register wider than the values receives them extended by their sign, or by zeros if they are unsigned.
    """
    if text == "_":
        return lambda m, values, lanes: None
    dtype = np.dtype(dtype)
    if text not in kernel.registers:
        raise unknown(instruction, f"destination {text}")
    size = kernel.registers[text]
    if (size == 0) != (dtype == np.bool_) or 0 < size < dtype.itemsize:
        raise unknown(instruction, f"{text} does not hold the result")
    kept = dtype if size in (0, dtype.itemsize) else np.dtype(f"{'i' if dtype.kind == 'i' else 'u'}{size}")

    def write(m, values, lanes):
        register = m.registers[text].view(kept)
        if values.dtype != kept:
            values = values.astype(kept)
        if lanes is None:
            register[...] = values
        else:
            np.copyto(register, values, where=lanes)
    return write


def names_in(text: str) -> list[str]:
    """The members of a braced list, or the operand itself."""
    return [name.strip() for name in text.strip("{}").split(",")]
