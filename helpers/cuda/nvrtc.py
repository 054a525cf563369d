"""CUDA C++ to PTX, SASS and resources with NVRTC, for any target and without a driver."""

import functools
import re
import subprocess
import tempfile
from pathlib import Path

from helpers import evidence, mode
from helpers.compile import CompileError, capability_of, client, store
from helpers.compile.result import Compiled, readable_sass, without_folders

FOLDER = Path(__file__).parent


def compile_cuda(source, kernel_name: str, target="sm_120", options=()) -> Compiled:
    """Compile CUDA C++ for `target`: a path, the name of a file in this folder ("matmul.cu"), or the source itself.

    The kernel must be declared `extern "C"`. `options` are NVRTC's, in a list (a string is one of them). `shared_bytes` is
    what the kernel declares itself (static); `num_warps` is None: a CUDA kernel's block size is chosen at the launch. Raises
    ValueError for an unknown target, file or option, CompileError with the compiler's log (the reader's file and line
    numbers) for wrong code or an unknown kernel.
    """
    name, text = source_text(source)
    return _compiled(name, text, kernel_name, capability_of(target), as_options(options))


def as_options(options) -> tuple[str, ...]:
    return (options,) if isinstance(options, str) else tuple(options)


def source_text(source) -> tuple[str, str]:
    """(name for messages, text) of a path, a file of this folder, or source code."""
    if isinstance(source, Path) or (isinstance(source, str) and source.endswith(".cu") and "\n" not in source):
        path = Path(source) if Path(source).is_absolute() else FOLDER / source
        if not path.exists():
            there = ", ".join(sorted(p.name for p in FOLDER.glob("*.cu")))
            raise ValueError(f"no CUDA source {str(source)!r}; there are {there}")
        return path.name, path.read_text(encoding="utf-8")
    if not isinstance(source, str):
        raise TypeError(f"CUDA source must be text or a path, got {type(source).__name__}")
    return "cell.cu", source


@functools.lru_cache(maxsize=256)
def _compiled(name: str, text: str, kernel: str, capability: int, options: tuple[str, ...]) -> Compiled:
    request = {"file": name, "source": text, "kernel": kernel, "capability": capability, "options": list(options)}
    stem, version = f"{kernel}-sm_{capability}", nvrtc_version()

    def build() -> dict:
        return _built(name, text, kernel, capability, options)

    def disassemble() -> str:
        def build() -> dict:
            return {"sass": _disassembled(cubin_of(text, kernel, capability, options), kernel)}

        return store.kept({"sass": request}, f"{stem}-sass", version, build)[0]["sass"]

    value, shipped = store.kept(request, stem, version, build)
    return Compiled(**value, shipped=shipped, disassemble=disassemble)


def _built(name: str, text: str, kernel: str, capability: int, options) -> dict:
    ptx, cubin, log = _run(name, text, capability, ["--ptxas-options=-v", *options])
    known = re.findall(r"\.entry\s+(\w+)", ptx)
    if kernel not in known:
        raise CompileError(f'{name} has no kernel {kernel!r}; it has {", ".join(known) or "none"}. '
                           'Is it declared extern "C" __global__?')
    return {
        "name": kernel, "target": f"sm_{capability}", "num_warps": None, "ptx": without_folders(_only(kernel, ptx)),
        **_resources(log, kernel, cubin, capability), "compiler": nvrtc_version(), "date": evidence.today(),
    }


def _resources(log: str, kernel: str, cubin: bytes, capability: int) -> dict[str, int | None]:
    """Registers and stack of a thread, its spill stores and the block's static shared memory, from ptxas' log.

    NVRTC 13.0 passes no log on. Then cuobjdump says them, but for spills, which are known only to be 0 where there is
    no stack; from compute capability 9.0 on it counts the 1 KiB of shared memory that the system reserves, too.
    """
    report = re.search(rf"Function properties for {kernel}\n(.*?Used \d+ registers[^\n]*)", log, flags=re.S)
    if report is None:
        usage = _cuobjdump(cubin, "--dump-resource-usage")
        line = re.search(rf"Function {kernel}:\s*\n?\s*(.*)", usage).group(1)
        found = {name: int(value) for name, value in re.findall(r"(REG|STACK|SHARED):(\d+)", line)}
        reserved = 1024 if capability >= 90 else 0
        return {"registers": found["REG"], "spill_bytes": None if found["STACK"] else 0,
                "stack_bytes": found["STACK"], "shared_bytes": max(0, found["SHARED"] - reserved)}

    def said(pattern: str) -> int:
        number = re.search(pattern, report.group(1))
        return int(number.group(1)) if number else 0

    return {"registers": said(r"Used (\d+) registers"), "spill_bytes": said(r"(\d+) bytes spill stores"),
            "stack_bytes": said(r"(\d+) bytes stack frame"), "shared_bytes": said(r"(\d+) bytes smem")}


def cubin_of(source, kernel_name: str, capability: int, options=()) -> bytes:
    """Machine code for a launch. Raises as `compile_cuda`."""
    name, text = source_text(source)
    return _run(name, text, capability, options)[1]


def parameter_types(ptx: str) -> list[str]:
    """PTX types of a kernel's parameters, in order: "b64" for pointers and 64-bit integers, "b32", "f32", ...; "align" for
    structures by value, whose declaration begins with their alignment."""
    header = re.search(r"\.entry\s+\w+\s*\((.*?)\)", ptx, flags=re.S).group(1)
    return [kind.replace("u", "b").replace("s", "b") for kind in re.findall(r"\.param\s+\.(\w+)", header)]


def _only(kernel: str, ptx: str) -> str:
    """The PTX of a file without its other kernels."""
    ptx = re.sub(rf"^\s*// \.globl\s+(?!{kernel}\s).*\n", "", ptx, flags=re.M)
    entry = r"(?:\.visible\s+|\.weak\s+)?\.entry\s+(\w+)[^{]*^\{.*?^\}\n"
    return re.sub(entry, lambda m: m.group(0) if m.group(1) == kernel else "", ptx, flags=re.M | re.S)


# ------------------------------------------------------------------------------------------------ the compiler


def nvrtc_version() -> str | None:
    """E.g. "NVRTC 13.5"; None on systems without it."""
    nvrtc = _nvrtc()
    if nvrtc is None:
        return None
    status, major, minor = nvrtc.nvrtcVersion()
    _check(nvrtc, status)
    return f"NVRTC {major}.{minor}"


@functools.cache
def _nvrtc():
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # the package loads its library now, and raises RuntimeError where there is none
    except (ImportError, RuntimeError):
        return None
    return nvrtc


def _run(name: str, text: str, capability: int, options) -> tuple[str, bytes, str]:
    """(PTX, cubin, log) of a source, all from one compilation; every instruction knows its source line."""
    nvrtc = _nvrtc()
    if nvrtc is None:
        raise CompileError("NVRTC, the compiler of CUDA C++, has no package for this system, and this kernel is not "
                           "among the results that the course ships.")
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    _check(nvrtc, status)
    flags = [f"--gpu-architecture=sm_{capability}", "-lineinfo", *_headers(), *options]
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _content(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode().rstrip("\0 \n")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            if re.search(r'cannot open source file "(nv|cuda)/', log):
                log += ("\n\nThis header belongs to CUDA's C++ library, which cooperative_groups.h needs, too. Neither NVRTC nor "
                        'Triton brings it: options=("-I...",) says where it is, in the include/cccl folder of a CUDA 13 toolkit.')
            wrong_option = status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION  # or a target it does not know
            raise (ValueError if wrong_option else CompileError)(log or str(status))
        ptx = _content(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).decode().rstrip("\0")
        return ptx, _content(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _headers() -> list[str]:
    """Where cuda_fp16.h, cuda_pipeline.h and their like are: Triton ships them. NVRTC alone knows none."""
    return [f"--include-path={client.tool('').parent / 'include'}"] if mode.has_triton() else []


def _check(nvrtc, status) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC failed: {status}")


def _content(size_of, read, program) -> bytes:
    _, size = size_of(program)
    content = bytes(max(size, 2))  # NVRTC writes into it, and Python has only one object for all bytes of length 1
    read(program, content)
    return content[:size]


def _disassembled(cubin: bytes, kernel: str) -> str:
    """SASS by the disassembler that comes with Triton."""
    if not mode.has_triton():
        raise CompileError("this system has no disassembler (it comes with Triton), and the SASS of this kernel is not "
                           "among the results that the course ships")
    return readable_sass(_cuobjdump(cubin, "-sass", "-fun", kernel))


def _cuobjdump(cubin: bytes, *options: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [client.tool("cuobjdump"), *options, file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
