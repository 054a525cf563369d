"""Reading PTX: one kernel as a list of instructions with operands, predicates, labels and source lines."""

import functools
import math
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

from helpers.simt.faults import SimtError, UnknownInstruction

# Types of values in registers. A bf16 is held as bits; a predicate takes no bytes.
TYPES = {"u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
         "f16": np.float16, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32, "u64": np.uint64,
         "s64": np.int64, "b64": np.uint64, "f64": np.float64, "pred": np.bool_}
PACKED = {"f16x2": (np.uint32, np.float16), "f32x2": (np.uint64, np.float32)}  # register, and what it holds two of
SIZES = {name: np.dtype(dtype).itemsize for name, dtype in TYPES.items() if name != "pred"} | {
    "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32x2": 8}

# What a kernel's body consists of. Operands may be braced lists; other braces only group declarations.
STATEMENT = re.compile(r"""
    (?P<loc>\.loc\b[^\n]*) | (?P<brace>[{}]) | (?P<label>[\w$]+):(?!:) |
    (?P<text>[^\s;{}][^;{}]*(?:\{[^{}]*\}[^;{}]*)*);
""", re.VERBOSE)
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


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
    kind: str  # PTX type
    pointer: bool  # declared as one

    @property
    def size(self) -> int:
        return SIZES[self.kind]


@dataclass
class Kernel:
    """A parsed kernel. Arrays are offsets into its shared or local memory, constants the bytes of module arrays."""

    name: str
    params: list[Parameter]
    source_file: str | None = None
    threads: int | None = None  # that the block must have (.reqntid)
    from_triton: bool = False
    registers: dict[str, int] = field(default_factory=dict)  # name -> bytes; 0: predicate
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # name -> index of the instruction after it
    tables: dict[str, list[str]] = field(default_factory=dict)  # targets of indexed branches
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    dynamic_shared: str | None = None
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    constants: dict[str, bytes] = field(default_factory=dict)


def parse(ptx: str, name: str | None = None) -> Kernel:
    """The kernel `name` (or the only one) of a PTX file. Raises SimtError if there is none or more than one."""
    text, entries, files = _without_comments(ptx)
    names = [e.group(1) for e in entries]
    found = [e for e in entries if name in (None, e.group(1))]
    if len(found) != 1:
        asked = f"no kernel {name!r} in" if name else "which kernel? Pass kernel=... for"
        raise SimtError(f"{asked} this PTX: it has {', '.join(names) or 'no kernel'}")
    entry = found[0]
    kernel = Kernel(entry.group(1), _params(entry.group(2) or ""), from_triton="LLVM NVPTX Back-End" in ptx)
    required = re.search(r"\.reqntid\s+([\d,\s]+)", entry.group(3))
    if required:
        kernel.threads = math.prod(int(size) for size in required.group(1).split(","))
    _module_arrays(text, kernel)
    own_file = _body(text, entry.end(), _matching(text, entry.end() - 1), kernel)
    kernel.source_file = PurePosixPath(files[own_file]).name if own_file in files else None
    return kernel


@functools.lru_cache(maxsize=4)
def _without_comments(ptx: str) -> tuple[str, list[re.Match], dict[str, str]]:
    """The text with its lines kept, the heads of its kernels, and its source files by number."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), ptx, flags=re.S)
    # Triton names the line that called library code only in a comment: it becomes part of the directive.
    text = re.sub(r"(\.loc\b[^\n/]*)//[^\n]*@\[[^\]\n]*?:(\d+):\d+\s*\]", r"\1, called_at \2", text)
    text = re.sub(r"//[^\n]*", "", text)
    entries = list(re.finditer(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{]*)\{", text))
    return text, entries, dict(re.findall(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]+)"', text))


def _matching(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise SimtError("unbalanced braces in the PTX")


def _params(text: str) -> list[Parameter]:
    found = []
    for kind, rest in re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)([^,]*)", text):
        name = re.findall(r"[\w$]+", rest.split("[")[0])[-1]
        if kind not in SIZES or "[" in rest:
            raise UnknownInstruction(f"parameter {name}: structures are not supported (.param .{kind}{rest.rstrip()})")
        found.append(Parameter(name, kind, ".ptr" in rest))
    return found


def _module_arrays(text: str, kernel: Kernel) -> None:
    """Arrays declared outside the kernel: dynamic shared memory, shared arrays, constants and device variables."""
    for space, rest in re.findall(r"^(?:\.(?:extern|visible|weak|common)\s+)*\.(shared|const|global)\b([^;]*);", text,
                                  flags=re.M):
        head, _, values = rest.partition("=")
        if space != "shared":
            kernel.constants.update([_constant(head, values)])
        elif re.search(r"\[\s*\]\s*$", head):
            kernel.dynamic_shared = re.search(r"([\w$]+)\s*\[", head).group(1)
        else:
            _array(head, kernel.shared, kernel, "shared_bytes")


def _constant(head: str, values: str) -> tuple[str, bytes]:
    kind, name, count = re.search(r"\.(\w+)\s+([\w$]+)\s*(?:\[\s*(\d+)\s*\])?\s*$", head).groups()
    size = SIZES.get(kind)
    if size is None:
        raise UnknownInstruction(f"array {name} of .{kind}")
    numbers = re.findall(r"-?0[xfFdD][0-9a-fA-F]+|-?\d+", values)
    data = b"".join(_literal(n, size).to_bytes(size, "little") for n in numbers)
    return name, data.ljust(size * int(count or 1), b"\0")


def _literal(text: str, size: int) -> int:
    value = int(text[2:], 16) if text[:2].lower() in ("0f", "0d") else int(text, 0)
    return value % (1 << (8 * size))


def _array(declaration: str, table: dict, kernel: Kernel, total: str) -> None:
    align = int((re.search(r"\.align\s+(\d+)", declaration) or [0, "1"])[1])
    kind, name, count = re.search(r"\.(\w+)\s+([\w$]+)\s*(?:\[\s*(\d+)\s*\])?\s*$", declaration.strip()).groups()
    align = max(align, SIZES[kind])
    offset = -(-getattr(kernel, total) // align) * align
    table[name] = offset
    setattr(kernel, total, offset + SIZES[kind] * int(count or 1))


def _body(text: str, start: int, end: int, kernel: Kernel) -> str | None:
    """Fill in registers, arrays, labels and instructions; returns the number of the kernel's source file."""
    own_file, source_line, label = None, None, None
    line, at = text.count("\n", 0, start) + 1, start
    for match in STATEMENT.finditer(text, start, end):
        line, at = line + text.count("\n", at, match.start()), match.start()
        if match["loc"]:
            own_file, source_line = _location(match["loc"], own_file, source_line)
        elif match["label"]:
            label = match["label"]
            kernel.labels[label] = len(kernel.instructions)
        elif match["text"]:
            statement = " ".join(match["text"].split())
            directive, _, rest = statement.partition(" ")
            if directive == ".reg":
                _registers(rest, kernel)
            elif directive in (".shared", ".local"):
                _array(rest, getattr(kernel, directive[1:]), kernel, f"{directive[1:]}_bytes")
            elif directive == ".branchtargets":
                kernel.tables[label] = [target.strip() for target in rest.split(",")]
            elif directive == ".pragma":
                continue
            else:
                kernel.instructions.append(_instruction(statement, line, source_line, len(kernel.instructions)))
    return own_file


def _location(loc: str, own_file: str | None, before: int | None) -> tuple[str, int | None]:
    """The kernel's file (the first one named) and the innermost line in it of a chain of inlined calls."""
    places = re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", loc)
    own_file = own_file or places[0][0]
    called = re.search(r"called_at (\d+)", loc)
    lines = [int(number) for file, number in places if file == own_file]
    if called and places[0][0] != own_file:
        lines.append(int(called.group(1)))
    return own_file, next((number for number in lines if number), before)  # line 0: the compiler's own, no line


def _registers(declaration: str, kernel: Kernel) -> None:
    kind, names = re.match(r"\.(\w+)\s+(.*)", declaration).groups()
    if kind != "pred" and kind not in SIZES:
        raise UnknownInstruction(f"registers of type .{kind}")
    size = 0 if kind == "pred" else SIZES[kind]
    for name in names.split(","):
        ranged = re.match(r"\s*(%?[\w$]+)<(\d+)>", name)
        found = [f"{ranged.group(1)}{i}" for i in range(int(ranged.group(2)))] if ranged else [name.strip()]
        kernel.registers.update(dict.fromkeys(found, size))


def _instruction(statement: str, line: int, source_line, index: int) -> Instruction:
    match = re.match(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", statement)
    if not match:
        raise UnknownInstruction(f"PTX line {line}: cannot read {statement!r}")
    negated, predicate, opcode, rest = match.groups()
    return Instruction(tuple(opcode.split(".")), [part.strip() for part in OPERAND.findall(rest)], predicate,
                       bool(negated), statement, line, source_line, index)
