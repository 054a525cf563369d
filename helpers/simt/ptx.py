"""Reading PTX: one kernel of a file, with the arrays of its module."""

import functools
import math
import re
from pathlib import PurePosixPath

from helpers.simt.body import Body
from helpers.simt.faults import SimtError, UnknownInstruction
from helpers.simt.kernel import SIZES, Kernel, Parameter, array, matching


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
    body = Body(text, kernel)
    body.read(entry.end(), matching(text, entry.end() - 1))
    kernel.source_file = PurePosixPath(files[body.own_file]).name if body.own_file in files else None
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
    for space, rest in _declared(text):
        head, _, values = rest.partition("=")
        if space != "shared":
            kernel.constants.update([_constant(head, values)])
        elif re.search(r"\[\s*\]\s*$", head):
            kernel.dynamic_shared = re.search(r"([\w$]+)\s*\[", head).group(1)
        else:
            array(head, kernel, "shared")


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


@functools.lru_cache(maxsize=4)
def _declared(text: str) -> list[tuple[str, str]]:
    """(space, declaration) of every array of the module."""
    return re.findall(r"^(?:\.(?:extern|visible|weak|common)\s+)*\.(shared|const|global)\b([^;]*);", text, flags=re.M)
