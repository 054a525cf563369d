"""Describing a compilation as JSON: the kernel's source, all that it uses, and its arguments as a launch sees them.

The same description gives the same code, wherever the kernel stands: typed in a cell, shipped, or on another system.
"""

import __future__

import ast
import inspect
import numbers
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import torch
import triton.language as tl

from helpers.compile.result import CompileError

# What a launch accepts besides the kernel's own parameters.
OPTIONS = ("maxnreg", "num_ctas", "enable_fp_fusion", "ptx_options")


@dataclass(frozen=True)
class Place:
    """Where a function stands in the reader's file: for messages, not part of the description."""

    name: str
    file: str
    line: int  # of `def`


def describe(kernel, args, constants, capability, num_warps, num_stages) -> tuple[dict, list[Place]]:
    """The request for the worker, and the place of each of its functions."""
    fn = unwrap(kernel)
    parameters = inspect.signature(fn).parameters
    constants = dict(constants)
    num_warps, num_stages = _whole(num_warps), _whole(num_stages)
    constants.update({name: _whole(value) for name, value in constants.items() if name in OPTIONS and name not in parameters})
    options = {"num_warps": num_warps, "num_stages": num_stages}
    constants.update({name: value for name, value in options.items() if name in parameters})
    _refuse_misfits(fn.__name__, parameters, args, constants, num_warps, num_stages)
    values = dict(zip(parameters, args, strict=False))
    values.update({name: value for name, value in constants.items() if name in parameters})
    for name, rule in _heuristics(kernel):
        values[name] = rule(dict(values))
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in values]
    if missing:
        raise TypeError(f"{fn.__name__}: missing {', '.join(missing)}; it takes {', '.join(parameters)}")

    functions = _Functions()
    functions.add(kernel)
    request = {
        "capability": capability,
        "values": {name: _specialised(functions, fn.__name__, name, value, parameters[name])
                   for name, value in values.items()},
        "options": options | {name: value for name, value in constants.items() if name not in parameters},
        "functions": functions.entries,
    }
    return request, functions.places


def unwrap(kernel):
    """The Python function under jit, autotune and heuristics. Raises TypeError if there is none."""
    fn = kernel
    while hasattr(fn, "fn"):
        fn = fn.fn
    if not inspect.isfunction(fn) or fn.__name__ == "<lambda>":
        got = "a lambda" if inspect.isfunction(fn) else type(kernel).__name__
        raise TypeError(f"compile_kernel needs a @triton.jit function, got {got}")
    return fn


def _refuse_misfits(kernel: str, parameters, args, constants, num_warps, num_stages) -> None:
    takes = f"it takes {', '.join(parameters)}"
    if len(args) > len(parameters):
        raise TypeError(f"{kernel} takes {len(parameters)} arguments, got {len(args)}; {takes}")
    unknown = [name for name in constants if name not in parameters and name not in OPTIONS]
    if unknown:
        raise TypeError(f"{kernel} has no parameter {', '.join(unknown)}; {takes}")
    twice = [name for name in list(parameters)[: len(args)] if name in constants]
    if twice:
        raise TypeError(f"{kernel}: {', '.join(twice)} given twice; {takes}")
    if type(num_warps) is not int or num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps must be a power of two from 1 to 32, got {num_warps!r}")
    if type(num_stages) is not int or num_stages < 1:
        raise ValueError(f"num_stages must be a whole number from 1, got {num_stages!r}")
    most = {"maxnreg": 255, "num_ctas": 16}  # what a thread and a cluster can have at all
    for name, high in most.items():
        value = constants.get(name)
        if name not in parameters and value is not None and (type(value) is not int or not 1 <= value <= high):
            raise ValueError(f"{name} must be a whole number from 1 to {high}, got {value!r}")
    given = {name: constants[name] for name in OPTIONS if name in constants and name not in parameters}
    if type(given.get("num_ctas")) is int and given["num_ctas"] & (given["num_ctas"] - 1):
        raise ValueError(f"num_ctas must be a power of two from 1 to 16, got {given['num_ctas']}")
    if not isinstance(given.get("enable_fp_fusion", True), bool):
        raise ValueError(f"enable_fp_fusion must be True or False, got {given['enable_fp_fusion']!r}")
    if not isinstance(given.get("ptx_options"), str | None):
        raise ValueError(f"ptx_options must be a string of ptxas' options, got {given['ptx_options']!r}")


def _whole(value):
    """numpy's whole numbers as Python's; anything else as it is."""
    return int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else value


def _heuristics(kernel):
    """(parameter, rule) of each `@triton.heuristics` around a kernel, outermost first."""
    while hasattr(kernel, "fn"):
        if type(kernel).__name__ == "Heuristics":
            yield from kernel.values.items()
        kernel = kernel.fn


# ------------------------------------------------------------------------------------------------ arguments


def _specialised(functions, kernel: str, name: str, value, parameter):
    """An argument as far as the code depends on it: the exact value of a constexpr, the class of a number."""
    annotation = getattr(parameter.annotation, "__name__", parameter.annotation)
    constant = "constexpr" in str(annotation)
    if (isinstance(value, str) and not constant) or (isinstance(value, torch.Tensor) and value.dtype.is_complex):
        what = f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else "a str: only a constexpr parameter can"
        raise TypeError(f"{kernel}: argument {name} cannot be {what}")
    try:
        return functions.encode(value, exact=constant)
    except _NoArgument:
        raise TypeError(f"{kernel}: argument {name} must be a tensor, a number or a constant, "
                        f"got {type(value).__name__}") from None
    except OverflowError:
        raise TypeError(f"{kernel}: argument {name} does not fit 64 bits: {value}") from None


class _NoArgument(Exception):
    pass


def representative(value: int) -> int:
    """One integer for all that a launch does not tell apart: equal to 1, divisible by 16, 32 or 64 bits, signed."""
    if value == 1:
        return 1
    for start, least, most in ((0, -(2**31), 2**31 - 1), (2**31, -(2**63), 2**63 - 1), (2**63, 0, 2**64 - 1)):
        if least <= value <= most:
            return start + (16 if value % 16 == 0 else 17)
    raise OverflowError


def address(tensor: torch.Tensor) -> int:
    """Alignment of a tensor's first element: an allocation is aligned, a view as far as its offset is."""
    start = tensor.data_ptr() if tensor.is_cuda else tensor.storage_offset() * tensor.element_size()
    return start % 16


# ------------------------------------------------------------------------------------------------ functions and globals


class _Functions:
    """The kernel (first) and the functions it calls, each once, with the globals that each of them uses."""

    def __init__(self):
        self.entries, self.places, self.indices = [], [], {}

    def add(self, kernel) -> int:
        fn = unwrap(kernel)
        if fn not in self.indices:
            self.indices[fn] = len(self.entries)
            entry, place, tree = _source(kernel, fn)
            self.entries.append(entry)
            self.places.append(place)
            entry["globals"] = self.globals_of(fn, tree)
        return self.indices[fn]

    def globals_of(self, fn, tree) -> dict:
        names = fn.__globals__ | _closure(fn)
        found = {}
        for path in sorted(_global_paths(fn, tree)):
            if path[0] in names:
                self._enter(found, path, names[path[0]])
        return found

    def _enter(self, found: dict, path: tuple[str, ...], value) -> None:
        """Note a global; of a module that is not Triton's, only the attribute that is used."""
        if not inspect.ismodule(value):
            try:
                found[path[0]] = self.encode_global(value)
            except _NoArgument:
                raise TypeError(f"{path[0]} = tl.constexpr of {type(value.value).__name__}: a constant must be a number of Python's, "
                                "a string, a dtype, None or a tuple of these") from None
        elif _is_tritons(value.__name__):
            found[path[0]] = ["import", value.__name__]
        else:
            _, inside = found.setdefault(path[0], ["module", {}])
            if len(path) > 1 and hasattr(value, path[1]):
                self._enter(inside, path[1:], getattr(value, path[1]))

    def encode_global(self, value) -> list:
        if isinstance(value, tl.constexpr):
            return ["constexpr", self.encode(value.value)]
        name, home = getattr(value, "__name__", None), getattr(value, "__module__", None)
        if name and home and _is_tritons(home) and getattr(sys.modules.get(home), name, None) is value:
            return ["from", home, name]
        try:
            return self.encode(value)
        except _NoArgument:  # the compiler says what it thinks of such a global
            return ["other", type(value).__name__]

    def encode(self, value, exact: bool = True) -> list:
        """A value as [kind, content]; integers that are not `exact` are replaced by their representative."""
        if isinstance(value, torch.Tensor):
            return ["tensor", [str(value.dtype).removeprefix("torch."), address(value)]]
        if isinstance(value, tl.constexpr):
            return ["constexpr", self.encode(value.value)]
        if hasattr(value, "fn"):
            return ["function", self.add(value)]
        if value is None or isinstance(value, str):
            return ["plain", value]
        if isinstance(value, bool):
            return ["plain", value if exact else True]
        if isinstance(value, int):
            return ["plain", value if exact else representative(value)]
        if isinstance(value, float):
            return ["float", repr(float(value) if exact else 1.5)]
        if isinstance(value, tuple):
            return ["tuple", [self.encode(item, exact) for item in value]]
        if type(value) is getattr(tl, "dtype", None):
            return ["dtype", value.name]
        raise _NoArgument


def _is_tritons(module: str) -> bool:
    return module.split(".")[0] == "triton"


def _closure(fn) -> dict:
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet: the compiler reports the name as undefined
            continue
    return found


def _global_paths(fn, tree: ast.FunctionDef) -> set[tuple[str, ...]]:
    """Dotted names that a function reads and that are not its own variables: ("tl", "load"), ("SCALE",)."""
    own = {*fn.__code__.co_varnames, *fn.__code__.co_cellvars}
    inside = {path for statement in tree.body for path in _paths(statement) if path[0] not in own}
    return inside | set(_paths(tree.args))  # defaults and annotations are read outside


def _paths(tree) -> list[tuple[str, ...]]:
    found = []
    for node in ast.walk(tree):
        attributes = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            found.append((node.id, *reversed(attributes)))
    return found


def _source(kernel, fn) -> tuple[dict, Place, ast.FunctionDef]:
    """A function's source without decorators, its place, and its syntax tree."""
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise CompileError(f"{fn.__name__}: its source is not available; define kernels in a file or a cell") from None
    text = textwrap.dedent("".join(lines))
    file = Path(fn.__code__.co_filename)
    try:
        tree = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        tree = None
    if not isinstance(tree, ast.FunctionDef) or tree.name != fn.__name__:
        raise CompileError(f"{fn.__name__}: its source is not where it was in {file.name}. If the file has changed since it was "
                           "imported, restart the kernel")
    offset = tree.lineno - 1
    # A cell's file has a name that changes from session to session.
    place = Place(fn.__name__, file.name if file.exists() else "the cell", max(first, 1) + offset)
    entry = {"name": fn.__name__, "source": "".join(text.splitlines(True)[offset:]).rstrip() + "\n",
             "line": 1 + offset, "wrapper": "jit", "options": {}}
    if fn.__code__.co_flags & __future__.annotations.compiler_flag:
        entry["future_annotations"] = True  # "constexpr" is then recognised by its spelling
    jitted = _innermost(kernel)
    if type(jitted).__name__ == "ConstexprFunction":
        entry["wrapper"] = "constexpr_function"
    else:
        given = getattr(jitted, "kwargs", None) or vars(jitted)  # the interpreter keeps the decorator's options so
        entry["options"] = {key: given[key] for key in ("do_not_specialize", "do_not_specialize_on_alignment",
                                                        "noinline", "debug") if given.get(key)}
    return entry, place, tree


def _innermost(kernel):
    """The wrapper next to the function, or the function itself if it is plain."""
    while hasattr(kernel, "fn") and not inspect.isfunction(kernel.fn):
        kernel = kernel.fn
    return kernel
