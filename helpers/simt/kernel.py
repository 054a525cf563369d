"""A kernel as PTX describes it: instructions with operands, predicates, labels and source lines; registers and arrays."""

import functools
import re
from dataclasses import dataclass, field

import numpy as np

from helpers.simt.faults import SimtError

# Types of values in registers. A bf16 is held as bits; a predicate takes no bytes.
TYPES = {"u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
         "f16": np.float16, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32, "u64": np.uint64,
         "s64": np.int64, "b64": np.uint64, "f64": np.float64, "pred": np.bool_}
PACKED = {"f16x2": (np.uint32, np.float16), "f32x2": (np.uint64, np.float32)}  # register, and what it holds two of
SIZES = {name: np.dtype(dtype).itemsize for name, dtype in TYPES.items() if name != "pred"} | {
    "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32x2": 8}
NAME = re.compile(r"%?[\w$]+")
WITHOUT_RESULT = {"st", "stmatrix", "red", "bar", "barrier", "bra", "brx", "call", "cp", "prefetch", "ret", "exit", "trap"}


@dataclass
class Instruction:
    """One PTX instruction: opcode split at dots, operands as written, where it stands and where it comes from."""

    parts: tuple[str, ...]
    operands: list[str]
    predicate: str | None  # register name
    negated: bool
    text: str
    line: int  # in the PTX
    source_line: int | None  # in the kernel's own source file, where `.loc` gave one
    index: int

    @property
    def name(self) -> str:
        return self.parts[0]

    def names(self) -> list[str]:
        """All names among the operands, destinations first."""
        return list(dict.fromkeys(re.findall(r"%?[\w$.]+", " ".join(self.operands))))


@dataclass
class Parameter:
    name: str
    kind: str  # PTX type; of a structure "b8"
    pointer: bool  # declared as one
    count: int | None = None  # of a structure: its bytes

    @property
    def size(self) -> int:
        return self.count or SIZES[self.kind]


@dataclass
class Kernel:
    """A parsed kernel. Arrays are offsets into its shared or local memory, constants the bytes of module arrays."""

    name: str
    params: list[Parameter]
    source_file: str | None = None
    target: str | None = None  # "sm_90"
    threads: int | None = None  # that the block must have (.reqntid)
    most_threads: int | None = None  # that it may have (.maxntid, __launch_bounds__)
    from_triton: bool = False
    registers: dict[str, int] = field(default_factory=dict)  # name -> bytes; 0: predicate
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name -> index of the instruction after it
    tables: dict[str, list[str]] = field(default_factory=dict)  # targets of indexed branches
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    dynamic_shared: dict[str, int] = field(default_factory=dict)  # names of the one array whose size the launch says -> alignment
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    constants: dict[str, bytes] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)  # register -> "f32", "int", ..., where known

    @property
    def dynamic_start(self) -> int:
        """Where dynamic shared memory begins: behind the arrays of the kernel's own."""
        align = max([16, *self.dynamic_shared.values()])
        return -(-self.shared_bytes // align) * align

    @functools.cached_property
    def read(self) -> set[str]:
        """The names that some instruction reads, its addresses among them."""
        found = set()
        for i in self.instructions:
            first = 0 if i.name in WITHOUT_RESULT or i.operands and i.operands[0].startswith("[") else 1
            found.update(NAME.findall(" ".join(i.operands[first:])), [i.predicate])
        return found


def array(declaration: str, kernel: Kernel, space: str, unique=str) -> None:
    """Give an array its place in the kernel's "shared" or "local" memory; `unique` makes its name one of its own."""
    align = int((re.search(r"\.align\s+(\d+)", declaration) or [0, "1"])[1])
    kind, name, count = re.search(r"\.(\w+)\s+([\w$]+)\s*(?:\[\s*(\d+)\s*\])?\s*$", declaration.strip()).groups()
    align, total = max(align, SIZES[kind]), f"{space}_bytes"
    offset = -(-getattr(kernel, total) // align) * align
    getattr(kernel, space)[unique(name)] = offset
    setattr(kernel, total, offset + SIZES[kind] * int(count or 1))


def matching(text: str, start: int) -> int:
    """Where the brace that opens at `start` closes."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    line = text.count("\n", 0, start) + 1
    raise SimtError(f"PTX line {line}: the text ends before the brace closes that opens here; is it all there?")
