"""Reading compiled machine code (SASS): the loop in which a kernel spends its time."""

import re

# address, optional predicate, opcode, operands
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")


def main_loop(sass: str, opcode: str) -> list[str]:
    """Opcodes, in program order, of the loop that holds the most instructions beginning with `opcode`, e.g. "FFMA".

    A loop is what lies between a backward branch and its target. Raises ValueError if no loop has such an instruction.
    """
    instructions = _INSTRUCTION.findall(sass)
    place = {int(address, 16): i for i, (address, _, _) in enumerate(instructions)}
    loops = []
    for i, (_, name, operands) in enumerate(instructions):
        target = re.search(r"0x([0-9a-f]+)", operands) if name.startswith("BRA") else None
        start = place.get(int(target.group(1), 16), i) if target else i
        if start < i:
            loops.append([op for _, op, _ in instructions[start : i + 1]])
    best = max(loops, key=lambda loop: count(loop, opcode), default=[])
    if not count(best, opcode):
        raise ValueError(f"no loop with {opcode} in {len(instructions)} instructions")
    return best


def count(opcodes: list[str], opcode: str) -> int:
    """How many of the opcodes are `opcode`, whatever dotted parts follow: "LDS" counts LDS.128 too."""
    return sum(op == opcode or op.startswith(opcode + ".") for op in opcodes)


def before(opcodes: list[str], opcode: str, first: str) -> int:
    """How many `opcode` stand before the first `first`: for example the loads under way before one is waited for."""
    end = next((i for i, op in enumerate(opcodes) if count([op], first)), len(opcodes))
    return count(opcodes[:end], opcode)
