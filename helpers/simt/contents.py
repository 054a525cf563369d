"""What registers hold, told by the instructions that use them: PTX loads floats and integers alike as .b32.

So a kernel of floats that is given an array of something else is noticed, whichever way its loads are written.
"""

from helpers.simt.kernel import NAME, TYPES, Kernel

MOVES = {"mov", "selp"}
ADDRESSED = {"ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "mma", "call", "shfl", "vote", "match", "redux", "bar",
             "barrier", "bra", "brx"}


def contents(kernel: Kernel) -> dict[str, str]:
    """Register -> "f16", "f32", "f64" or "int"; only those of which all uses say the same."""
    same, said = _Groups(), {}
    for instruction in kernel.instructions:
        kind = instruction.parts[-1]
        if instruction.name in ADDRESSED:
            if instruction.name in ("ld", "st") and kind in ("f32", "f64"):
                text = instruction.operands[instruction.name == "st"]
                said.update({name: said.get(name, set()) | {kind} for name in NAME.findall(text)})
            continue
        operands = [NAME.findall(text) for text in instruction.operands]
        if instruction.name in MOVES and kind != "pred":
            if all(len(names) == 1 for names in operands):
                for names in operands[1:3]:
                    same.join(operands[0][0], names[0])
                continue
            kinds = ["packed"] * len(operands)
        elif instruction.name == "cvt":
            kinds = [_kind(instruction.parts[-2]), _kind(kind), _kind(kind)]
        else:
            kinds = [_kind(kind)] * len(operands)
        for names, what in zip(operands, kinds, strict=False):
            for name in names:
                said.setdefault(name, set()).add(what)
    groups: dict[str, set] = {}
    for name, kinds in said.items():
        groups.setdefault(same.of(name), set()).update(kinds)
    found = {name: groups.get(same.of(name), set()) for name in kernel.registers}
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1 and kinds != {"packed"}}


def _kind(name: str) -> str:
    if name in ("f16", "f32", "f64"):
        return name
    return "int" if name in TYPES else "packed"


class _Groups:
    """Names that hold the same (union of sets)."""

    def __init__(self):
        self.parent: dict[str, str] = {}

    def of(self, name: str) -> str:
        while (up := self.parent.get(name, name)) != name:
            name = up
        return name

    def join(self, a: str, b: str) -> None:
        self.parent[self.of(a)] = self.of(b)
