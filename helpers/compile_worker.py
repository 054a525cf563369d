"""The process that compiles: Triton without its interpreter, one JSON request a line in, one JSON answer a line out.

Run as a file, never imported with `helpers` (which may have switched the interpreter on). It needs no GPU and no
driver. Its real stdout is kept for answers: Triton prints whole PTX files when ptxas fails.
"""

import contextlib
import importlib
import io
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

os.environ["TRITON_INTERPRET"] = "0"


class Stand:
    """What a tensor is to the compiler: a dtype and an address, of which only the alignment counts."""

    def __init__(self, dtype, address):
        self.dtype, self.address = dtype, address

    def data_ptr(self):
        return self.address


def build(request):
    """The kernel as a JITFunction in a namespace of its own, with the reader's file names and line numbers."""
    import triton
    import triton.language as tl

    names = {"__name__": "kernel_source", "triton": triton, "tl": tl}
    for name, module in request["modules"].items():
        names[name] = importlib.import_module(module)
    for name, (module, attribute) in request["imported"].items():
        names[name] = getattr(importlib.import_module(module), attribute)
    for name, value in request["constexprs"].items():
        names[name] = tl.constexpr(decode(value, names))
    for name, value in request["plain"].items():
        names[name] = decode(value, names)
    lines = {}
    for part in request["sources"]:
        file = lines.setdefault(part["file"], [])
        text = part["text"].splitlines(True)
        file.extend(["\n"] * (part["line"] - 1 + len(text) - len(file)))
        file[part["line"] - 1: part["line"] - 1 + len(text)] = text
    for file, content in lines.items():
        linecache.cache[file] = (sum(map(len, content)), None, content, file)
    for part in request["sources"]:
        for alias, name in part.get("aliases", []):
            names[alias] = names[name]
        code = compile("\n" * (part["line"] - 1) + part["text"], part["file"], "exec")
        exec(code, names)
        options = {key: value for key, value in part["options"].items() if value is not None}
        wrap = triton.jit if part["kind"] == "jit" else triton.constexpr_function
        names[part["name"]] = wrap(**options)(names[part["def"]]) if options else wrap(names[part["def"]])
    return names[request["sources"][-1]["name"]], names


def decode(value, names=None):
    kind, content = value
    if kind == "tensor":
        import torch

        return Stand(getattr(torch, content[0]), content[1])
    if kind == "dtype":
        import triton.language as tl

        return getattr(tl, content)
    if kind == "function":
        return names[content]
    if kind == "tuple":
        return tuple(decode(item, names) for item in content)
    return float(content) if kind == "float" else content


def answer(request):
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.jit import create_function_from_signature

    if request.get("warm_up"):
        return {"triton": triton.__version__}
    began = time.monotonic()
    knobs.compilation.always_compile = True  # Triton's own cache would skip ptxas, whose log holds the spills
    knobs.nvidia.dump_ptxas_log = True
    kernel, names = build(request)
    target = GPUTarget("cuda", request["capability"], 32)
    backend = make_backend(target)
    args = [decode(value, names) for value in request["args"]]
    keywords = {name: decode(value, names) for name, value in request["keywords"].items()}
    options = dict(request["options"], debug=False)
    bound, specialization, extra = create_function_from_signature(kernel.signature, kernel.params, backend)(
        *args, **keywords, **options
    )
    parsed, signature, constexprs, attributes = kernel._pack_args(backend, options, bound, specialization, extra)
    source = ASTSource(kernel, signature, constexprs, attributes)
    log = io.StringIO()
    with contextlib.redirect_stdout(log), tempfile.TemporaryDirectory() as folder:
        knobs.cache.dir = folder
        compiled = triton.compile(source, target=target, options=parsed.__dict__)
        cubin = os.path.join(folder, "kernel.cubin")
        with open(cubin, "wb") as file:
            file.write(compiled.asm["cubin"])
        dump = subprocess.run([knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin], capture_output=True,
                              text=True, check=True).stdout
        sass = subprocess.run([knobs.nvidia.cuobjdump.path, "-sass", cubin], capture_output=True, text=True,
                              check=True).stdout
    # A kernel may call functions that were not inlined: the report sums what each of them spills.
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill stores", log.getvalue())]
    if not spills:
        raise RuntimeError(f"ptxas said nothing about spills:\n{log.getvalue()}")
    return {
        "ptx": compiled.asm["ptx"],
        "sass": sass,
        "registers": max(int(n) for n in re.findall(r"REG:(\d+)", dump)),
        "stack_bytes": max(int(n) for n in re.findall(r"STACK:(\d+)", dump)),
        "spill_bytes": sum(spills),
        "shared_bytes": compiled.metadata.shared,
        "name": compiled.metadata.name,
        "num_warps": compiled.metadata.num_warps,
        "triton": triton.__version__,
        "seconds": round(time.monotonic() - began, 2),
    }


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except BaseException as error:
            reply = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
