"""What a compiler made of a kernel, and counting its instructions."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from helpers import evidence

# An optional label and predicate, then the opcode with its dotted parts.
_PTX_INSTRUCTION = re.compile(
    r"\s*(?:[$\w]+:\s*)?(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+|::[a-z0-9_]+)*)(?=\s|$)"
)
_SASS_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", flags=re.M)


class CompileError(Exception):
    """The compiler refused a kernel, or there is no compiler here; the message says why."""


@dataclass(frozen=True)
class Compiled:
    """A kernel's code and resources. Registers, spills and stack are per thread, shared memory per block."""

    name: str
    target: str
    num_warps: int | None  # None for CUDA C++, whose block size is chosen at the launch
    ptx: str
    registers: int
    spill_bytes: int  # ptxas' spill stores
    stack_bytes: int
    shared_bytes: int  # static and dynamic: all that the block needs
    compiler: str  # "Triton 3.7.1" or "NVRTC 13.5"
    date: str
    shipped: bool = False  # True: read from `helpers/data/compiled`
    disassemble: Callable[[], str] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def sass(self) -> str:
        """Machine code, disassembled (half a second) when first asked for, without the encoded words.

        Raises CompileError where there is no disassembler and the course ships none for this kernel.
        """
        return self.disassemble()

    @property
    def threads(self) -> int | None:
        """Threads of a block."""
        return None if self.num_warps is None else 32 * self.num_warps

    @property
    def triton_version(self) -> str | None:
        """None for CUDA C++."""
        return self.compiler.removeprefix("Triton ") if self.compiler.startswith("Triton ") else None

    @property
    def evidence(self) -> evidence.Evidence:
        if self.shipped:
            how = f"for {self.target} by {self.compiler}"
            return evidence.Evidence("compiled", "shipped with the course", self.date, how)
        return evidence.compiled_here(self.target, self.compiler)

    def count(self, opcode: str) -> int:
        """PTX instructions of this name, whatever modifiers they have besides.

        `count("ld.global")` counts `ld.global.v4.b32`, `ld.global.L1::evict_last.b32` and `ld.volatile.global.f32`:
        the first dotted part must be the instruction's, the others must follow in this order. Predicated instructions
        count; labels, comments and directives do not. Each is counted once, however often a loop runs it.
        """
        return _count(opcodes(self.ptx), opcode)

    def count_sass(self, opcode: str) -> int:
        """SASS instructions, by the same rule: `count_sass("FFMA")`, `count_sass("LDG.E.128")`."""
        return _count(_SASS_INSTRUCTION.findall(self.sass), opcode)


def opcodes(ptx: str) -> list[str]:
    """The opcode of every PTX instruction, in order."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.S)
    statements = (_PTX_INSTRUCTION.match(statement) for statement in re.split(r"[;{}\n]", text))
    return [found.group(1) for found in statements if found]


def without_folders(ptx: str) -> str:
    """PTX whose `.file` lines name files only: the same wherever it was compiled."""
    return re.sub(r'(\.file\s+\d+\s+)(?:"[^"]*"\s+)?"(?:[^"]*/)?([^"/]*)"', r'\1"\2"', ptx)


def readable_sass(text: str) -> str:
    """cuobjdump's listing without what only the hardware reads: encoded words and, in some versions, waits."""
    text = re.sub(r"[ \t]*/\* 0x[0-9a-f]+ \*/", "", text)
    text = re.sub(r"(?:[ \t]+(?:&\w+=(?:\{[^}]*\}|\w+)|\?\w+))+[ \t]*;", " ;", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def _count(names: list[str], opcode: str) -> int:
    wanted = opcode.split(".")
    if not all(wanted):
        raise ValueError(f'an opcode is a dotted name such as "ld.global", got {opcode!r}')
    return sum(_is(name.split("."), wanted) for name in names)


def _is(parts: list[str], wanted: list[str]) -> bool:
    if not _same(parts[0], wanted[0]):
        return False
    rest = iter(parts[1:])
    return all(any(_same(part, want) for part in rest) for want in wanted[1:])


def _same(part: str, want: str) -> bool:
    return part == want or part.startswith(want + "::")
