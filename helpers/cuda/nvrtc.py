"""CUDA C++ to PTX, SASS and resources with NVRTC, for any target and without a driver."""

import functools
import hashlib
import json
import re
import subprocess
import tempfile
from pathlib import Path

from helpers import compile as compiler
from helpers import evidence
from helpers.compile import Compiled, CompileError

FOLDER = Path(__file__).parent


def compile_cuda(source, kernel_name: str, target="sm_120", options=()) -> Compiled:
    """Compile CUDA C++ for `target`: a path, the name of a file in this folder ("matmul.cu"), or the source itself.

    The kernel must be declared `extern "C"`. `shared_bytes` is what the kernel declares itself (static); `num_warps`
    is 0: a CUDA kernel's block size is chosen at the launch. Raises ValueError for an unknown target or file,
    CompileError with the compiler's log (the reader's file and line numbers) for wrong code or an unknown kernel.
    """
    name, text = source_text(source)
    return _compiled(name, text, kernel_name, compiler.capability_of(target), tuple(options))


def source_text(source) -> tuple[str, str]:
    """(name for messages, text) of a path, a file of this folder, or source code."""
    if isinstance(source, Path) or (isinstance(source, str) and source.endswith(".cu") and "\n" not in source):
        path = Path(source) if Path(source).is_absolute() else FOLDER / source
        if not path.exists():
            there = ", ".join(sorted(p.name for p in FOLDER.glob("*.cu")))
            raise ValueError(f"no CUDA source {str(source)!r}; there are {there}")
        return path.name, path.read_text()
    if not isinstance(source, str):
        raise TypeError(f"CUDA source must be text or a path, got {type(source).__name__}")
    return "cell.cu", source


@functools.lru_cache(maxsize=256)
def _compiled(name: str, text: str, kernel: str, capability: int, options: tuple[str, ...]) -> Compiled:
    version = nvrtc_version()
    request = json.dumps([name, text, kernel, capability, options, version])
    key = hashlib.sha256(request.encode()).hexdigest()[:24]
    return compiler.cached(key, version, lambda: _compile(name, text, kernel, capability, options, version))


def _compile(name, text, kernel, capability, options, version) -> Compiled:
    nvrtc = _bindings()
    flags = [f"--gpu-architecture=sm_{capability}", "-lineinfo", "--ptxas-options=-v", *options]
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(log.strip() or str(status))
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    known = re.findall(r"\.entry\s+(\w+)", ptx)
    if kernel not in known:
        raise CompileError(f'{name} has no kernel {kernel!r}; it has {", ".join(known) or "none"}. '
                           'Is it declared extern "C" __global__?')
    sass, usage = _disassembled(cubin, kernel)
    spill_bytes, shared_bytes = _from_log(log, kernel, usage)
    return Compiled(
        name=kernel, target=f"sm_{capability}", num_warps=0, ptx=_only(kernel, ptx), sass=sass,
        registers=usage["REG"],
        spill_bytes=spill_bytes, stack_bytes=usage["STACK"], shared_bytes=shared_bytes,
        compiler=version, date=evidence.today(),
    )


def _from_log(log: str, kernel: str, usage: dict[str, int]) -> tuple[int | None, int]:
    """Spill stores and static shared memory of a kernel, in bytes, from ptxas' log.

    NVRTC 13.0 passes no log on. Then spills are known only to be 0 where there is no stack, and shared memory is what
    cuobjdump says, less the 1 KiB that the system reserves from compute capability 8.0 on.
    """
    report = re.search(rf"Function properties for {kernel}\n(.*?Used \d+ registers[^\n]*)", log, flags=re.S)
    if report is None:
        return (0 if usage["STACK"] == 0 else None), max(0, usage["SHARED"] - 1024)
    spills, shared = (re.search(rf"(\d+) bytes {what}", report.group(1)) for what in ("spill stores", "smem"))
    return int(spills.group(1)) if spills else 0, int(shared.group(1)) if shared else 0


def _only(kernel: str, ptx: str) -> str:
    """The PTX of a file without its other kernels."""
    parts = re.split(r"(?=^\s*(?:\.visible\s+)?\.entry\s)", ptx, flags=re.M)
    return "".join(part for part in parts if not (m := re.match(r"\s*(?:\.visible\s+)?\.entry\s+(\w+)", part))
                   or m.group(1) == kernel)


def parameter_types(ptx: str) -> list[str]:
    """PTX types of a kernel's parameters, in order: "b64" for pointers and 64-bit integers, "b32", "f32", ..."""
    header = re.search(r"\.entry\s+\w+\s*\((.*?)\)", ptx, flags=re.S).group(1)
    return [kind.replace("u", "b").replace("s", "b") for kind in re.findall(r"\.param\s+\.(\w+)", header)]


def cubin_of(source, kernel_name: str, capability: int, options=()) -> bytes:
    """Machine code for a launch. Raises as `compile_cuda`."""
    name, text = source_text(source)
    nvrtc = _bindings()
    flags = [f"--gpu-architecture=sm_{capability}", "-lineinfo", *options]
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    _check(nvrtc, status)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(_text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).strip())
        return _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@functools.cache
def nvrtc_version() -> str:
    status, major, minor = _bindings().nvrtcVersion()
    _check(_bindings(), status)
    return f"NVRTC {major}.{minor}"


def _bindings():
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise CompileError(f"NVRTC is not available on this system ({error}); see the preflight of lesson 00") from None
    return nvrtc


def _check(nvrtc, status) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed: {status}")


def _bytes(size_of, read, program) -> bytes:
    _, size = size_of(program)
    content = b" " * size
    read(program, content)
    return content


def _text(size_of, read, program) -> str:
    return _bytes(size_of, read, program).rstrip(b"\0 ").decode()


def _disassembled(cubin: bytes, kernel: str) -> tuple[str, dict[str, int]]:
    """SASS of the cubin, and its REG, STACK and SHARED numbers for the kernel, from the cuobjdump that Triton ships."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
        usage = run([tool, "--dump-resource-usage", file.name]).stdout
        sass = run([tool, "-sass", "-fun", kernel, file.name]).stdout
    line = re.search(rf"Function {kernel}:\s*\n?\s*(.*)", usage).group(1)
    return sass, {name: int(value) for name, value in re.findall(r"(REG|STACK|SHARED):(\d+)", line)}
