"""The process that compiles: Triton without its interpreter, one JSON request a line in, one JSON reply a line out.

Run as a file, never imported with `helpers` (which may have switched the interpreter on). It needs no GPU, no driver.
All that reaches into Triton's private interface is here; it is the same in Triton 3.6 and 3.7.
"""

import __future__

import importlib
import json
import linecache
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import types

os.environ["TRITON_INTERPRET"] = "0"


class Stand:
    """What a tensor is to the compiler: a dtype and an address, of which only the alignment counts."""

    def __init__(self, dtype, address):
        self.dtype, self.address = dtype, address

    def data_ptr(self):
        return self.address


class Refused(Exception):
    """An error for the reader: `kind` is "argument", "target" or "code"; `frames` the calls in the kernel that led here."""

    def __init__(self, kind, message, frames=()):
        super().__init__(message)
        self.kind, self.frames = kind, list(frames)


# ------------------------------------------------------------------------------------------------ the kernel


def build(entries):
    """The request's functions, jitted, each in a namespace of its own; the kernel is the first."""
    import triton

    namespaces = [{"__name__": "kernel"} for _ in entries]
    functions = []
    for i, (entry, names) in enumerate(zip(entries, namespaces, strict=True)):
        fill(names, entry["globals"], None)  # functions may call one another: filled in below, when all exist
        text = "\n" * (entry["line"] - 1) + entry["source"]
        file = f"{entry['name']}.py" if i == 0 else f"{entry['name']}-{i}.py"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        flags = __future__.annotations.compiler_flag if entry.get("future_annotations") else 0
        exec(compile(text, file, "exec", flags, dont_inherit=True), names)
        wrap = triton.jit if entry["wrapper"] == "jit" else triton.constexpr_function
        functions.append(wrap(names[entry["name"]], **entry["options"]))
    for entry, names in zip(entries, namespaces, strict=True):
        fill(names, entry["globals"], functions)
    return functions


def fill(names, values, functions):
    names.update({name: decode(value, functions) for name, value in values.items()})


def decode(value, functions):
    kind, content = value[0], value[1]
    if kind in ("plain", "float"):
        return float(content) if kind == "float" else content
    if kind == "tuple":
        return tuple(decode(item, functions) for item in content)
    if kind == "function":
        return functions[content] if functions else None
    if kind == "import":
        return importlib.import_module(content)
    if kind == "from":
        return getattr(importlib.import_module(content), value[2])
    if kind == "module":
        module = types.ModuleType("module")
        fill(vars(module), content, functions)
        return module
    if kind == "other":
        return type(content, (), {"__getattr__": attribute_of_other})()
    if kind == "tensor":
        import torch

        return Stand(getattr(torch, content[0]), content[1])
    import triton.language as tl

    return tl.dtype(content) if kind == "dtype" else tl.constexpr(decode(content, functions))


def attribute_of_other(value, name):
    """Whatever it is, the compiler will say that the kernel must not use it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return value


# ------------------------------------------------------------------------------------------------ compiling


def answer(request, sass=False):
    """Code and resources of a request's kernel, or its disassembly."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import CompilationError

    functions = build(request["functions"])
    target = GPUTarget("cuda", request["capability"], 32)
    source, options = specialise(functions, request, target)
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+") as log:
        knobs.cache.dir = folder  # Triton's own cache would skip ptxas, whose log holds the spills
        knobs.nvidia.dump_ptxas_log = True
        stdout, sys.stdout = sys.stdout, log
        try:
            compiled = triton.compile(source, target=target, options=options)
        except CompilationError as error:
            raise Refused("code", *explained(error, functions)) from None
        except Exception as error:
            kind = "target" if "is not defined for option 'gpu-name'" in str(error) else "code"
            raise Refused(kind, without_repro(f"{type(error).__name__}: {error}")) from None
        finally:
            sys.stdout = stdout
        log.seek(0)
        # A function that was not inlined has its own line; together they are what the kernel spills.
        spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", log.read())]
        if not spills:
            raise RuntimeError("ptxas said nothing about spills")
        cubin = os.path.join(folder, "kernel.cubin")
        with open(cubin, "wb") as file:
            file.write(compiled.asm["cubin"])
        if sass:
            return {"sass": run(knobs.nvidia.cuobjdump.path, "-sass", cubin)}
        usage = run(knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin)
    return {
        "name": compiled.metadata.name,
        "num_warps": compiled.metadata.num_warps,
        "ptx": compiled.asm["ptx"],
        "registers": max(int(n) for n in re.findall(r"REG:(\d+)", usage)),
        "stack_bytes": max(int(n) for n in re.findall(r"STACK:(\d+)", usage)),
        "spill_bytes": sum(spills),
        "shared_bytes": compiled.metadata.shared,
    }


def specialise(functions, request, target):
    """The kernel as a launch with these arguments would have it compiled, by Triton's own rules."""
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    kernel, backend = functions[0], make_backend(target)
    values = {name: decode(value, functions) for name, value in request["values"].items()}
    given = {"debug": bool(kernel.debug), **request["options"], **values}
    try:
        bound, specialization, extra = create_function_from_signature(kernel.signature, kernel.params, backend)(**given)
    except (TypeError, OverflowError) as error:
        raise Refused("argument", str(error)) from None
    except KeyError as error:  # Triton's table of dtypes
        raise Refused("argument", f"no argument can be a tensor of {error.args[0]}") from None
    given = {name: value for name, value in given.items() if name in request["options"] or name == "debug"}
    parsed, signature, constants, attributes = kernel._pack_args(backend, given, bound, specialization, extra)
    return ASTSource(kernel, signature, constants, attributes), parsed.__dict__


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"it ended with {done.returncode}"
        raise RuntimeError(f"{os.path.basename(command[0])}: {said}")
    return done.stdout


def explained(error, functions):
    """Message and frames of a CompilationError: where in which function, from the kernel inwards."""
    from triton.compiler import CompilationError

    frames, message = [], ""
    while isinstance(error, CompilationError):
        index = next((i for i, f in enumerate(functions) if f.src == error.src), None)
        lines = error.src.splitlines() if error.src else []
        if index is not None and 1 <= getattr(error.node, "lineno", 0) <= len(lines):  # some name a line of the caller
            line = lines[error.node.lineno - 1]
            frames.append([index, error.node.lineno, error.node.col_offset, line])
        message = error.error_message or message
        if not error.error_message and not isinstance(error.__cause__, CompilationError):
            message = f"{type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ else str(error)
        error = error.__cause__
    return message, frames


def without_repro(message):
    """A message without ptxas' command line, which names files that are gone."""
    return re.sub(r"^Repro command:.*$\n?", "", message, flags=re.M).strip()


# ------------------------------------------------------------------------------------------------ the conversation

WARM_UP = {
    "capability": 80, "values": {"x": ["tensor", ["float32", 0]]}, "options": {"num_warps": 1, "num_stages": 3},
    "functions": [{"name": "warm_up", "source": "def warm_up(x):\n    tl.store(x, 1.0)\n", "line": 1, "wrapper": "jit",
                   "options": {}, "globals": {"tl": ["import", "triton.language"]}}],
}


def end_with_the_client():
    """While it compiles, which may take hours, this process does not read its input: another one waits for that to close.

    It then ends the compiler, and the ptxas that it may be waiting for, unless they end by themselves within a second.
    """
    compiler = os.getpid()
    if not hasattr(os, "fork") or os.fork():
        return
    for output in (1, 2):
        os.close(output)  # the client reads the answers until nobody can write them any more
    closed = select.poll()
    closed.register(0, 0)
    while os.getppid() == compiler:
        if closed.poll(1000):
            time.sleep(1)
            if os.getppid() == compiler:
                os.killpg(compiler, signal.SIGKILL)
    os._exit(0)


def main():
    end_with_the_client()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stderr is a file of the client; what Triton, LLVM and ptxas print goes there
    answer(WARM_UP)
    for line in sys.stdin:
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)
        try:
            reply = answer(**json.loads(line))
        except Refused as error:
            reply = {"error": error.kind, "message": f"{error}\n{printed()}".strip(), "frames": error.frames}
        except Exception as error:
            message = f"{type(error).__name__}: {error}\n{printed()}".strip()
            reply = {"error": "code", "message": message, "frames": []}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    os._exit(0)  # nothing is left to do, and taking Triton and LLVM apart takes a while


def printed():
    """Errors that were printed, not raised; without the whole programs that MLIR and Triton print around them."""
    sys.stdout.flush()
    lines = os.pread(2, 1_000_000, 0).decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if "error:" in line)[-2000:]


if __name__ == "__main__":
    main()
