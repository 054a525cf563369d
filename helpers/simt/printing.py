"""printf and failed assertions in a kernel: what each lane says, in the order of their numbers."""

import re

import numpy as np

from helpers.simt import memory
from helpers.simt.faults import Trap
from helpers.simt.operands import unknown

CONVERSION = re.compile(r"%([-+ #0]*)(\d+|\*)?(\.(?:\d+|\*)?)?(hh|h|ll|l|z|j|t)?([diuoxXcfFeEgGsp%])")
LONGEST = 1024  # characters of a string
U64 = np.dtype(np.uint64)


def decode(instruction, kernel):
    """("call", function that executes it) of the two functions that this machine has built in; None for others."""
    if instruction.name != "call":
        return None
    arrays = [kernel.local.get(name) for name in instruction.operands]
    wanted = 2 if instruction.parts[1] == "vprintf" else 5
    if None in arrays or len(arrays) < wanted:
        raise unknown(instruction)
    given = arrays[-wanted:]

    def pointers(m, lanes, at):
        places = np.full(m.lanes, at, np.uint64)
        return m.memory.load(instruction, "local", places, lanes, U64, 1, None, counted=False)[:, 0]

    def show(m, lanes):
        active = m.numbers(lanes)
        for lane, text, values in zip(active, pointers(m, lanes, given[0]), pointers(m, lanes, given[1]), strict=True):
            m.launch.printed.append(formatted(_string(m, text), _Values(m, int(lane), int(values)), m))

    def fail(m, lanes):
        text = _string(m, pointers(m, lanes, given[0])[0])
        raise Trap(m.explain(instruction, m.numbers(lanes))(0, f"found that its assertion `{text}` does not hold"))
    return "call", show if wanted == 2 else fail


def _string(m, address) -> str:
    """The characters at an address of device memory, up to a zero."""
    slot = int(memory.slot_of(np.array([address], np.uint64))[0])
    buffer = m.memory.device.buffers.get(slot)
    if buffer is None:
        return "?"
    start = int(address) - memory.address_of(slot) - buffer.misalignment
    return buffer.bytes[start:start + LONGEST].tobytes().split(b"\0")[0].decode(errors="replace")


class _Values:
    """The arguments of one lane's printf, side by side in its local memory, each aligned to its size."""

    def __init__(self, m, lane: int, address: int):
        local = m.memory.local
        self.bytes = local.bytes[lane * local.row_bytes:(lane + 1) * local.row_bytes]
        self.at = address - memory.address_of(memory.LOCAL_SLOT)

    def next(self, dtype):
        size = np.dtype(dtype).itemsize
        self.at = -(-self.at // size) * size
        self.at += size
        return self.bytes[self.at - size:self.at].view(dtype)[0]


def formatted(text: str, values, m) -> str:
    """A format string with its arguments put in, as C's printf does."""
    def fill(match) -> str:
        flags, width, precision, length, letter = match.groups()
        if letter == "%":
            return "%"
        width, precision = (str(int(values.next(np.int32))).join(part.split("*")) if part and "*" in part else part or ""
                            for part in (width, precision))  # a star takes its number from the arguments
        if letter in "fFeEgG":
            value = float(values.next(np.float64))
        elif letter == "s":
            value = _string(m, values.next(np.uint64))
        elif letter == "p":
            value, letter, flags = int(values.next(np.uint64)), "x", flags + "#"
        else:
            long = length in ("l", "ll", "z", "j", "t")
            value = int(values.next({(True, True): np.int64, (True, False): np.uint64, (False, True): np.int32,
                                     (False, False): np.uint32}[long, letter in "dic"]))
        value, letter = (chr(value & 0xFF), "s") if letter == "c" else (value, "d" if letter in "iu" else letter)
        return f"%{flags}{width}{precision}{letter}" % value
    return CONVERSION.sub(fill, text)
