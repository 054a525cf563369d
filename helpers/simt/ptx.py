"""Reading PTX: one kernel as a list of instructions with operands, predicates, labels and source lines."""

import re
from dataclasses import dataclass, field

from helpers.simt.faults import SimtError, UnknownInstruction

SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4,
         "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8, "pred": 1}


@dataclass
class Instruction:
    """One PTX instruction. `parts` is its opcode split at dots; `operands` its operands as written."""

    parts: tuple[str, ...]
    operands: list[str]
    predicate: str | None  # register name
    negated: bool
    text: str
    line: int  # in the PTX
    source_line: int | None  # in the kernel's source, where `.loc` gave one
    index: int = 0


@dataclass
class Kernel:
    """A parsed kernel: parameters (name, type, bytes), registers (name -> bytes; 0: predicate), shared arrays."""

    name: str
    params: list[tuple[str, str, int]]
    registers: dict[str, int]
    instructions: list[Instruction]
    labels: dict[str, int]
    shared: dict[str, int] = field(default_factory=dict)  # name -> offset
    shared_bytes: int = 0
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    constants: dict[str, bytes] = field(default_factory=dict)
    dynamic_shared: str | None = None


def parse(ptx: str, name: str | None = None) -> Kernel:
    """The kernel `name` (or the only one) of a PTX file. Raises SimtError if there is none or more than one."""
    text = re.sub(r"//[^\n]*", "", ptx)
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)
    entries = list(re.finditer(r"\.entry\s+([\w$]+)\s*\(", text))
    if name is not None:
        entries = [e for e in entries if e.group(1) == name]
    if len(entries) != 1:
        names = re.findall(r"\.entry\s+([\w$]+)", text)
        raise SimtError(f"need one kernel, the PTX has {', '.join(names) or 'none'}"
                        + (f"; asked for {name!r}" if name else ""))
    entry = entries[0]
    close = text.index(")", entry.end())
    params = _params(text[entry.end():close])
    start = text.index("{", close)
    end = _matching(text, start)
    kernel = Kernel(entry.group(1), params, {}, [], {})
    _module_arrays(text[: entry.start()], kernel)
    _body(text[start + 1:end], text.count("\n", 0, start + 1) + 1, kernel)
    return kernel


def _matching(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise SimtError("unbalanced braces in the PTX")


def _params(text: str) -> list[tuple[str, str, int]]:
    found = []
    for kind, rest in re.findall(r"\.param\s+\.(\w+)([^,]*)", text):
        size = SIZES.get(kind)
        array = re.search(r"\[(\d+)\]", rest)
        pname = re.findall(r"[\w$]+", rest.split("[")[0])[-1]
        if size is None or array:
            raise UnknownInstruction(f"parameter {pname}: structures are not supported (.param .{kind}{rest})")
        found.append((pname, kind, size))
    return found


def _module_arrays(text: str, kernel: Kernel) -> None:
    """Arrays declared outside the kernel: Triton's dynamic shared memory, shared and constant arrays."""
    for match in re.finditer(r"\.extern\s+\.shared\s+(?:\.align\s+\d+\s+)?\.\w+\s+([\w$]+)\s*\[\s*\]", text):
        kernel.dynamic_shared = match.group(1)
    for match in re.finditer(r"^\s*(?:\.visible\s+|\.weak\s+)?\.shared\b([^;]*);", text, flags=re.M):
        _array(match.group(1), kernel.shared, kernel, "shared_bytes")
    initialised = r"\.(?:const|global)\s+(?:\.align\s+\d+\s+)?\.b8\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\}"
    for match in re.finditer(initialised, text):
        kernel.constants[match.group(1)] = bytes(int(v, 0) for v in match.group(2).split(","))


def _array(declaration: str, table: dict, kernel: Kernel, total: str) -> None:
    align = int((re.search(r"\.align\s+(\d+)", declaration) or [0, "1"])[1])
    kind, name, count = re.search(r"\.(\w+)\s+([\w$]+)\s*(?:\[\s*(\d+)\s*\])?\s*$", declaration.strip()).groups()
    align = max(align, SIZES[kind])
    offset = -(-getattr(kernel, total) // align) * align
    table[name] = offset
    setattr(kernel, total, offset + SIZES[kind] * int(count or 1))


def _body(text: str, first_line: int, kernel: Kernel) -> None:
    line, source_line = first_line, None
    # Braces of nested scopes only group declarations here; operand braces have no newline or semicolon inside.
    for raw in re.split(r"(?<=;)|(?<=:)(?=\s)|\n", re.sub(r"\{(?=\s*\n)|^\s*\}", " ", text, flags=re.M)):
        statement = raw.strip().rstrip(";").strip()
        if statement.startswith(".loc"):
            source_line = int(statement.split()[2])
        elif statement.endswith(":"):
            kernel.labels[statement[:-1]] = len(kernel.instructions)
        elif statement.startswith(".reg"):
            _registers(statement, kernel)
        elif statement.startswith(".shared"):
            _array(statement[7:], kernel.shared, kernel, "shared_bytes")
        elif statement.startswith(".local"):
            _array(statement[6:], kernel.local, kernel, "local_bytes")
        elif statement and not statement.startswith((".", "$L__tmp", "//")) and statement not in "{}":
            kernel.instructions.append(_instruction(statement, line, source_line, len(kernel.instructions)))
        elif statement.startswith((".branchtargets", ".callprototype")):
            raise UnknownInstruction(f"PTX line {line}: {statement}")
        line += raw.count("\n") + (0 if raw.endswith((";", ":")) else 1)


def _registers(statement: str, kernel: Kernel) -> None:
    kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", statement).groups()
    for name in names.split(","):
        ranged = re.match(r"\s*(%?[\w$]+)<(\d+)>", name)
        size = 0 if kind == "pred" else SIZES[kind]
        if ranged:
            kernel.registers.update({f"{ranged.group(1)}{i}": size for i in range(int(ranged.group(2)))})
        else:
            kernel.registers[name.strip()] = size


def _instruction(statement: str, line: int, source_line, index: int) -> Instruction:
    match = re.match(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", statement, flags=re.S)
    if not match:
        raise UnknownInstruction(f"PTX line {line}: cannot read {statement!r}")
    negated, predicate, opcode, rest = match.groups()
    operands = [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)]
    return Instruction(tuple(opcode.replace("::", "_").split(".")), operands, predicate, bool(negated), statement, line,
                       source_line, index)
