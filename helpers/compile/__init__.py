"""Ahead-of-time compilation for any target, without a GPU: PTX, SASS, registers, spills, shared memory.

`compile_kernel` describes a kernel and its arguments (`request`), looks whether the result is already known (`store`),
and otherwise asks a process in which Triton runs without its interpreter (`client`, `worker`).
"""

import functools
import json
import re
import threading

from helpers import evidence, no_triton, specs
from helpers.compile import client, store
from helpers.compile.request import Place, describe
from helpers.compile.result import Compiled, CompileError, opcodes, readable_sass, without_folders

__all__ = ["CompileError", "Compiled", "capability_of", "compile_kernel", "opcodes", "warm_up"]


def compile_kernel(kernel, /, *args, target="sm_120", num_warps: int = 4, num_stages: int = 3, **constants) -> Compiled:
    """Compile a Triton kernel for `target` as a launch with these arguments would.

    `args` are example tensors (only dtype and alignment count; `device="meta"` is fine) and numbers, in the order of
    the kernel's parameters; `constants` are further parameters by name, and compiler options such as `maxnreg`.
    `target` is a compute capability ("sm_120", (12, 0)) or a GPU's name.
    Raises TypeError for arguments that do not fit, ValueError for an unknown target or impossible options, CompileError
    with the compiler's message and the reader's lines.
    """
    capability = capability_of(target)
    request, places = describe(kernel, args, constants, capability, num_warps, num_stages)
    try:
        return _compiled(json.dumps(request, sort_keys=True))
    except _Refused as refused:
        kind = refused.reply["error"]
        if kind == "target":
            raise ValueError(f"{client.compiler_version(capability)} cannot compile for {target}; see gpu() for others"
                             ) from None
        message = _message(refused.reply, places)
        raise (TypeError if kind == "argument" else CompileError)(message) from None


def capability_of(target) -> int:
    """12.0 as 120, from "sm_120", (12, 0) or a GPU's name. Raises ValueError for what no compiler here can target."""
    if target is None:
        raise ValueError('compile for which target? Give a compute capability ("sm_120") or a GPU\'s name')
    major, minor = specs.gpu(target).cc
    return 10 * major + minor


def warm_up() -> None:
    """Start the compiler's process in the background, so that the first compilation does not wait for it."""
    if client.triton_version():
        threading.Thread(target=client.worker.start, daemon=True).start()


class _Refused(Exception):
    def __init__(self, reply: dict):
        super().__init__(reply["message"])
        self.reply = reply


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> Compiled:
    request = json.loads(text)
    target = f"sm_{request['capability']}"

    def build() -> dict:
        reply = _ask(request)
        return reply | {"ptx": without_folders(reply["ptx"]), "target": target, "compiler": client.triton_version(),
                        "date": evidence.today()}

    def disassemble() -> str:
        def build() -> dict:
            try:
                return {"sass": readable_sass(_ask(request, sass=True)["sass"])}
            except _Refused as refused:
                raise CompileError(refused.reply["message"]) from None

        return store.kept({"sass": request}, f"{name}-sass", version, build)[0]["sass"]

    name, version = f"{request['functions'][0]['name']}-{target}", client.compiler_version(request["capability"])
    value, shipped = store.kept(request, name, version, build)
    return Compiled(**value, shipped=shipped, disassemble=disassemble)


def _ask(request: dict, sass: bool = False) -> dict:
    if not client.triton_version():
        raise CompileError(f"{no_triton.MISSING}, and {request['functions'][0]['name']} with these arguments and target "
                           f"is not among the results that the course ships. {no_triton.ADVICE}")
    reply = client.worker.ask(request, sass)
    if "error" in reply:
        raise _Refused(reply)
    return reply


def _message(reply: dict, places: list[Place]) -> str:
    """The compiler's message after the lines that led to it, in the reader's own numbering."""
    said = []
    for index, line, column, text in reply["frames"]:
        place = places[index]
        said.append(f"{place.name}, line {place.line + line - 1} of {place.file}:\n{text}\n{' ' * column}^")
    return "\n".join([*said, re.sub(r"^(\w+)\(([\"'])(.*)\2\)$", r"\1: \3", reply["message"], flags=re.S)])
