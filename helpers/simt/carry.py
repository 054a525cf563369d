"""Sums of numbers wider than a register: add.cc, addc, ... keep the carry in a flag of its own, for the next one."""

import numpy as np

from helpers.simt import integers
from helpers.simt.kernel import TYPES
from helpers.simt.operands import reader, unknown, writer

FLAG = "CC"


def concerns(instruction) -> bool:
    return "cc" in instruction.parts or instruction.name in ("addc", "subc", "madc")


def _builder(subtract: bool, product: bool):
    def build(instruction, kernel):
        """add/sub/mad[c].[lo/hi.][cc.]type d, a, b[, c]"""
        dtype = TYPES.get(instruction.parts[-1])
        if dtype is None or {*instruction.parts[1:-1]} - ({"cc", "lo", "hi"} if product else {"cc"}):
            raise unknown(instruction)
        dtype, unsigned = np.dtype(dtype), np.dtype(f"u{np.dtype(dtype).itemsize}")
        kernel.registers.setdefault(FLAG, 0)
        target, *sources = instruction.operands
        write, keep = writer(instruction, kernel, target, unsigned), writer(instruction, kernel, FLAG, np.bool_)
        get, flag = [reader(instruction, kernel, text, dtype) for text in sources], reader(instruction, kernel, FLAG, np.bool_)
        uses, sets = instruction.name.endswith("c"), "cc" in instruction.parts
        multiply = integers.multiply_high if "hi" in instruction.parts else np.multiply

        def step(m, lanes):
            a, b, *rest = (np.broadcast_to(g(m), m.lanes) for g in get)
            if product:
                a, b = multiply(a, b), rest[0]
            a, b = (np.ascontiguousarray(v).view(unsigned) for v in (a, b))
            more = (flag(m) if uses else np.zeros(m.lanes, bool)).astype(unsigned)
            if subtract:
                out = a - b - more
                over = (a < b) | ((a == b) & (more != 0))
            else:
                out = a + b + more
                over = (out < a) | ((out == a) & (more != 0))
            write(m, out, lanes)
            if sets:
                keep(m, over, lanes)
        return step
    return build


BUILDERS = {"add": _builder(False, False), "addc": _builder(False, False), "sub": _builder(True, False),
            "subc": _builder(True, False), "mad": _builder(False, True), "madc": _builder(False, True)}
