"""Reading PTX: one kernel of a file, with the arrays of its module."""

import functools
import math
import re
from pathlib import PurePosixPath

from helpers.simt.body import Body
from helpers.simt.faults import SimtError, UnknownInstruction
from helpers.simt.kernel import SIZES, TYPES, Kernel, Parameter, array, matching
from helpers.simt.operands import constant_address, literal

ADDRESS = re.compile(r"(?:generic\(\s*([\w$]+)\s*\)|([a-zA-Z_$][\w$]*))(?:\s*\+\s*(\d+))?")  # generic(name)+8


def parse(ptx: str, name: str | None = None) -> Kernel:
    """The kernel `name` (or the only one) of a PTX file. Raises SimtError if there is none or more than one."""
    text, entries, files = _without_comments(ptx)
    names = [e.group(1) for e in entries]
    found = [e for e in entries if name in (None, e.group(1))]
    if len(found) != 1:
        if not names:
            raise SimtError("this text has no kernel: PTX as a compiler writes it has a line with `.entry` for each")
        asked = f"no kernel {name!r} in" if name else "which kernel? Pass kernel=... for"
        raise SimtError(f"{asked} this PTX: it has {', '.join(names)}")
    entry = found[0]
    kernel = Kernel(entry.group(1), _params(entry.group(2) or ""), from_triton="LLVM NVPTX Back-End" in ptx)
    kernel.threads, kernel.most_threads = (_product(rf"\.{bound}\s+([\d,\s]+)", entry.group(3)) for bound in ("reqntid", "maxntid"))
    kernel.target = (re.search(r"^\s*\.target\s+(sm_\d+)", text, re.M) or [None, None])[1]
    _module_arrays(text, kernel)
    body = Body(text, kernel)
    body.read(entry.end(), matching(text, entry.end() - 1))
    for param in kernel.params:  # __grid_constant__: one whose address is taken lies where addresses lead, too
        if any(i.name == "mov" and param.name in i.operands for i in kernel.instructions):
            kernel.constants[param.name] = bytes(param.size)
    kernel.source_file = PurePosixPath(files[body.own_file]).name if body.own_file in files else None
    return kernel


def _product(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return math.prod(int(size) for size in found.group(1).split(",")) if found else None


@functools.lru_cache(maxsize=4)
def _without_comments(ptx: str) -> tuple[str, list[re.Match], dict[str, str]]:
    """The text with its lines kept, the heads of its kernels, and its source files by number."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), ptx, flags=re.S)
    # Triton names the line that called library code only in a comment: it becomes part of the directive.
    text = re.sub(r"(\.loc\b[^\n/]*)//[^\n]*@\[[^\]\n]*?:(\d+):\d+\s*\]", r"\1, called_at \2", text)
    text = re.sub(r"//[^\n]*", "", text)
    entries = list(re.finditer(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?([^{]*)\{", text))
    return text, entries, dict(re.findall(r'\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]+)"', text))


def _params(text: str) -> list[Parameter]:
    found = []
    for kind, rest in re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)([^,]*)", text):
        name = re.findall(r"[\w$]+", rest.split("[")[0])[-1]
        if kind not in SIZES:
            raise UnknownInstruction(f"parameter {name} of type .{kind}")
        count = re.search(r"\[\s*(\d+)\s*\]", rest)
        found.append(Parameter(name, kind, ".ptr" in rest, int(count.group(1)) if count else None))
    return found


def _module_arrays(text: str, kernel: Kernel) -> None:
    """Arrays declared outside the kernel: dynamic shared memory, shared arrays, constants and device variables."""
    given = {}
    for space, rest in _declared(text):
        head, _, values = rest.partition("=")
        if space != "shared":
            name, kernel.constants[name], given[name] = _constant(head, values)
        elif re.search(r"\[\s*\]\s*$", head):
            align = re.search(r"\.align\s+(\d+)", head)
            kernel.dynamic_shared[re.search(r"([\w$]+)\s*\[", head).group(1)] = int(align[1]) if align else 1
        else:
            array(head, kernel, "shared")
    for name, addresses in given.items():  # of other arrays, all of which have their places now
        data = bytearray(kernel.constants[name])
        for at, symbol, offset in addresses:
            if symbol in kernel.constants:  # otherwise a function's: calls through pointers are refused anyway
                data[at:at + 8] = (constant_address(kernel, symbol) + offset).to_bytes(8, "little")
        kernel.constants[name] = bytes(data)


def _constant(head: str, values: str) -> tuple[str, bytes, list[tuple[int, str, int]]]:
    """An array's name, its bytes, and the addresses in it: (at which byte, of which array, how far into it)."""
    kind, name, count = re.search(r"\.(\w+)\s+([\w$]+)\s*(?:\[\s*(\d+)\s*\])?\s*$", head).groups()
    size = SIZES.get(kind)
    if size is None:
        raise UnknownInstruction(f"array {name} of .{kind}")
    data, addresses = b"", []
    for value in filter(None, (v.strip() for v in values.strip(" {}\n\t").split(","))):
        number, symbol = literal(value, TYPES.get(kind, f"u{size}")), ADDRESS.fullmatch(value)
        if number is None and not (symbol and size == 8):
            raise UnknownInstruction(f"array {name} is filled with {value!r}")
        if number is None:
            addresses.append((len(data), symbol[1] or symbol[2], int(symbol[3] or "0")))
        data += bytes(size) if number is None else number.tobytes()
    return name, data.ljust(size * int(count or 1), b"\0"), addresses


@functools.lru_cache(maxsize=4)
def _declared(text: str) -> list[tuple[str, str]]:
    """(space, declaration) of every array of the module."""
    return re.findall(r"^(?:\.(?:extern|visible|weak|common)\s+)*\.(shared|const|global)\b([^;]*);", text, flags=re.M)
