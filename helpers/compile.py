"""Ahead-of-time compilation for any target, without a GPU: PTX, SASS, registers, spills, shared memory.

`compile_kernel` describes a kernel (its source, the functions and constants it uses, its arguments as a launch would
specialise them) and asks a worker process, in which Triton runs without the interpreter. Results are kept by
description and Triton version: in memory, in `.cache/` (or $COURSE_CACHE), and, for what the lessons compile, in
`data/compiled/`, which also serves systems without Triton.
"""

import ast
import atexit
import functools
import gzip
import hashlib
import importlib.metadata
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
import triton.language as tl

from helpers import evidence, mode, specs

STORE = Path(__file__).parent / "data" / "compiled"
WORKER = Path(__file__).with_name("compile_worker.py")


# An optional label and predicate, then the opcode with its dotted parts.
_INSTRUCTION = re.compile(
    r"\s*(?:[$\w]+:\s*)?(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_]+|::[a-z0-9_]+)*)(?=\s|$)"
)


class CompileError(Exception):
    """The compiler refused a kernel; the message is the compiler's own."""


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a kernel. Bytes are per thread (spills, stack) or per block (shared memory)."""

    name: str
    target: str
    num_warps: int
    ptx: str
    sass: str
    registers: int  # per thread
    spill_bytes: int  # ptxas' spill stores
    stack_bytes: int
    shared_bytes: int  # static and dynamic: all that the block needs
    compiler: str  # e.g. "Triton 3.7.1"
    date: str
    here: bool = True  # False: from the shipped store of a system without this compiler

    @property
    def threads(self) -> int:
        return 32 * self.num_warps

    @property
    def evidence(self) -> evidence.Evidence:
        machine = evidence.this_machine() if self.here else "shipped with the course"
        return evidence.Evidence("compiled", machine, evidence.today() if self.here else self.date,
                                 f"for {self.target} by {self.compiler}")

    def count(self, opcode: str) -> int:
        """PTX instructions whose opcode starts with these dotted parts: "ld.global" counts `ld.global.v4.b32` too."""
        return sum(_has_parts(name, opcode) for name in opcodes(self.ptx))

    def count_sass(self, opcode: str) -> int:
        """SASS instructions whose opcode starts with these dotted parts, e.g. "FFMA", "LDG.E.128"."""
        found = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", self.sass, flags=re.M)
        return sum(_has_parts(name, opcode) for name in found)


def opcodes(ptx: str) -> list[str]:
    """The opcode of every PTX instruction: predicates are looked through; labels, comments and directives are not."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.S)
    found = []
    for statement in re.split(r"[;{}\n]", text):
        match = _INSTRUCTION.match(statement)
        if match:
            found.append(match.group(1))
    return found


def _has_parts(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith((prefix + ".", prefix + "::"))


def compile_kernel(kernel, *args, target="sm_120", num_warps: int = 4, num_stages: int = 3, **constants) -> Compiled:
    """Compile a Triton kernel for `target` as a launch with these arguments would.

    `args` are example tensors (only dtype and alignment count; `device="meta"` is fine) and numbers, in the order of
    the kernel's parameters; `constants` its constexpr parameters (or any by name), and compiler options such as
    `maxnreg`. `target` is a compute capability ("sm_120", (12, 0)) or a GPU's name.
    Raises TypeError for arguments that do not fit, ValueError for an unknown target, CompileError with the
    compiler's message.
    """
    request = describe(kernel, args, constants, capability_of(target), num_warps, num_stages)
    return _compiled(json.dumps(request, sort_keys=True))


@functools.lru_cache(maxsize=512)
def _compiled(text: str) -> Compiled:
    key = hashlib.sha256(text.encode()).hexdigest()[:24]
    request = json.loads(text)
    target = f"sm_{request['capability']}"

    def build() -> Compiled:
        if not mode.has_triton():
            raise CompileError(f"Triton has no package for this system, and {request['sources'][-1]['name']} for "
                               f"{target} is not among the shipped results.")
        reply = _worker.ask(request)
        if "error" in reply:
            raise CompileError(_readable(reply))
        return Compiled(target=target, compiler=f"Triton {reply.pop('triton')}", date=evidence.today(),
                        **{k: v for k, v in reply.items() if k != "seconds"})

    return cached(key, _triton_version(), build)


def cached(key: str, version: str, build) -> Compiled:
    """The result kept under `key` for this compiler version, or else what `build()` returns, kept from now on."""
    found = _from_disk(key, version)
    if found is None:
        found = build()
        _to_disk(found, _cache_folder() / _file_name(key, found.compiler))
    collect = os.environ.get("COURSE_COLLECT_COMPILED")
    if collect:
        _to_disk(found, Path(collect) / _file_name(key, found.compiler))
    return found


# ------------------------------------------------------------------------------------------------ describing


def capability_of(target) -> int:
    """12.0 as 120, from "sm_120", (12, 0) or a GPU's name. Raises ValueError for what no compiler here can target."""
    if target is None:
        raise ValueError('compile for which target? Give a compute capability ("sm_120") or a GPU\'s name')
    major, minor = specs.gpu(target).cc
    return 10 * major + minor


def describe(kernel, args, constants, capability, num_warps, num_stages) -> dict:
    """Everything that determines the compiled code, as JSON."""
    fn = unwrap(kernel)
    parameters = list(inspect.signature(fn).parameters)
    if len(args) > len(parameters):
        raise TypeError(f"{fn.__name__} takes {len(parameters)} arguments ({', '.join(parameters)}), got {len(args)}")
    keywords = {name: value for name, value in constants.items() if name in parameters}
    options = {name: value for name, value in constants.items() if name not in parameters}
    unknown = set(options) - {"maxnreg", "num_ctas", "enable_fp_fusion", "ptx_options"}
    if unknown:
        raise TypeError(f"{fn.__name__} has no parameter {sorted(unknown)}; it takes {', '.join(parameters)}")
    twice = [name for name in parameters[: len(args)] if name in keywords]
    if twice:
        raise TypeError(f"{fn.__name__}: {twice} given twice")
    given = set(parameters[: len(args)]) | set(keywords)
    missing = [name for name, p in inspect.signature(fn).parameters.items()
               if p.default is p.empty and name not in given]
    if missing:
        raise TypeError(f"{fn.__name__}: missing {', '.join(missing)}")
    if isinstance(num_warps, bool) or num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps must be a power of two from 1 to 32, got {num_warps!r}")
    request = {"modules": {}, "imported": {}, "constexprs": {}, "plain": {}, "sources": []}
    _collect(kernel, request, set())
    return request | {
        "capability": capability,
        "args": [encode(value, name) for name, value in zip(parameters, args, strict=False)],
        "keywords": {name: encode(value, name) for name, value in keywords.items()},
        "options": {"num_warps": num_warps, "num_stages": num_stages, **options},
    }


def unwrap(kernel):
    """The Python function under jit, autotune and heuristics. Raises TypeError if there is none."""
    fn = kernel
    while hasattr(fn, "fn"):
        fn = fn.fn
    if not inspect.isfunction(fn):
        raise TypeError(f"compile_kernel needs a @triton.jit function, got {type(kernel).__name__}")
    return fn


def encode(value, name: str) -> list:
    """An argument as [kind, content], e.g. a tensor as its dtype and the alignment of its first element."""
    if isinstance(value, torch.Tensor):
        # Allocations are aligned; a view is as aligned as its offset. This is what a launch on a GPU would see.
        offset = value.storage_offset() * value.element_size()
        return ["tensor", [str(value.dtype).removeprefix("torch."), offset % 16]]
    if isinstance(value, tl.constexpr):
        value = value.value
    if hasattr(value, "fn"):
        return ["function", unwrap(value).__name__]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return ["literal", value]
    if isinstance(value, int):
        return ["int", value]
    if isinstance(value, float):
        return ["float", repr(value)]
    if isinstance(value, tuple | list):
        return ["tuple", [encode(item, name) for item in value]]
    if hasattr(tl, "dtype") and isinstance(value, tl.dtype):
        return ["dtype", next(n for n in dir(tl) if isinstance(getattr(tl, n), tl.dtype) and getattr(tl, n) == value)]
    raise TypeError(f"argument {name}: a kernel takes tensors and numbers, got {type(value).__name__}")


def _collect(kernel, request: dict, seen: set) -> None:
    """Add the sources of a kernel's helper functions, its globals, and then its own source to the request."""
    fn = unwrap(kernel)
    if fn in seen:
        return
    seen.add(fn)
    names = dict(fn.__globals__)
    names |= {n: c.cell_contents for n, c in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)}
    part = _source_of(kernel, fn)
    # Attribute names are among co_names too; only those that are globals matter.
    for name in sorted(_all_names(fn.__code__)):
        if name not in names or name in ("triton", "tl"):
            continue
        value = names[name]
        jitted = hasattr(value, "fn") and inspect.isfunction(getattr(value.fn, "fn", value.fn))
        module = getattr(unwrap(value) if jitted else value, "__module__", None) or ""
        if inspect.ismodule(value):
            request["modules"][name] = value.__name__
        elif module.startswith("triton.") and not isinstance(value, tl.constexpr | tl.dtype):
            request["imported"][name] = [module, getattr(value, "__name__", name)]
        elif isinstance(value, tl.constexpr):
            request["constexprs"][name] = encode(value.value, name)
        elif jitted:
            _collect(value, request, seen)
            if unwrap(value).__name__ != name:
                part["aliases"] = part.get("aliases", []) + [[name, unwrap(value).__name__]]
        elif isinstance(value, bool | int | float | str | tl.dtype):
            request["plain"][name] = encode(value, name)  # Triton itself will say that globals must be constexpr
    request["sources"].append(part)


def _all_names(code) -> set[str]:
    nested = (c for c in code.co_consts if inspect.iscode(c))
    return {*code.co_names, *code.co_freevars}.union(*(_all_names(c) for c in nested))


def _source_of(kernel, fn) -> dict:
    """A function's source without its decorators, and where it stands in the reader's file."""
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise CompileError(f"{fn.__name__}: its source is not available; define kernels in a file or a cell") from None
    text = textwrap.dedent("".join(lines))
    node = ast.parse(text).body[0]
    body = "".join(text.splitlines(True)[node.lineno - 1:])
    jitted = kernel
    while hasattr(jitted, "fn") and hasattr(jitted.fn, "fn"):
        jitted = jitted.fn
    given = getattr(jitted, "kwargs", None) or vars(jitted)
    options = {key: given.get(key) or None
               for key in ("do_not_specialize", "do_not_specialize_on_alignment", "noinline")}
    kind = "constexpr_function" if type(jitted).__name__ == "ConstexprFunction" else "jit"
    # A cell's file name changes from session to session and must not change the key.
    file = Path(fn.__code__.co_filename)
    label = file.name if file.suffix == ".py" and "ipykernel" not in str(file) else "<cell>"
    return {"file": f"{label}:{fn.__name__}", "line": max(first, 1) + node.lineno - 1, "text": body, "kind": kind,
            "options": options if kind == "jit" else {}, "name": fn.__name__, "def": fn.__name__}


def _readable(reply: dict) -> str:
    """The compiler's message without the worker's own stack."""
    return re.sub(r"^(\w+\.)*CompilationError: ", "", reply["error"]).strip()


# ------------------------------------------------------------------------------------------------ the worker


class _Worker:
    """One process, started when first needed, restarted when it died, one request at a time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.process = None

    def start(self) -> None:
        with self.lock:
            self._running()

    def ask(self, request: dict) -> dict:
        with self.lock:
            process = self._running()
            try:
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
            except BaseException:  # interrupted: the answer would be read as the next one's
                self.stop()
                raise
            if not line:
                self.stop()
                raise CompileError("the compiler's process ended without an answer; the next call starts a new one")
            return json.loads(line)

    def _running(self) -> subprocess.Popen:
        if self.process is None or self.process.poll() is not None:
            # A session of its own: an interrupt of the notebook must not kill it. Its messages go to a file.
            self.process = subprocess.Popen(
                # -P: this folder's names (cuda, ...) must not hide the packages of the same name
                [sys.executable, "-P", str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.DEVNULL, start_new_session=True,
                env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
            )
        return self.process

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


_worker = _Worker()
atexit.register(_worker.stop)


def warm_up() -> None:
    """Start the worker in the background, so that the first compilation does not wait for it."""
    if mode.has_triton():
        threading.Thread(target=lambda: _worker.ask({"warm_up": True}), daemon=True).start()


# ------------------------------------------------------------------------------------------------ keeping results


def _cache_folder() -> Path:
    return Path(os.environ.get("COURSE_CACHE") or Path(__file__).parents[1] / ".cache") / "compiled"


@functools.cache
def _triton_version() -> str:
    return f"Triton {importlib.metadata.version('triton')}" if mode.has_triton() else ""


def _file_name(key: str, compiler: str) -> str:
    return f"{key}-{compiler.replace(' ', '_')}.json.gz"


def _from_disk(key: str, version: str) -> Compiled | None:
    if not version:  # this compiler does not exist here: any version's stored result is real, and says which it is
        found = sorted(STORE.glob(f"{key}-*.json.gz"))
        stored = _read(found[-1]) if found else None
        return stored and Compiled(**{**asdict(stored), "here": False})
    name = _file_name(key, version)
    return _read(_cache_folder() / name) or _read(STORE / name)


def _read(path: Path) -> Compiled | None:
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        return Compiled(**{field.name: data[field.name] for field in fields(Compiled)})
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError):  # a damaged entry is compiled again
        return None


def _to_disk(compiled: Compiled, path: Path) -> None:
    """Write an entry whole or not at all; a folder that cannot be written only costs the next session time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(gzip.compress(json.dumps(asdict(compiled)).encode(), mtime=0))
        os.replace(file.name, path)
    except OSError:
        pass
