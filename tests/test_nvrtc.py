"""CUDA C++ compiled without a driver: code, resources, errors."""

import re
import subprocess
import sys

import numpy as np
import pytest

from helpers import facts, mode, simt
from helpers.compile import CompileError
from helpers.cuda.nvrtc import FOLDER, compile_cuda, nvrtc_version, parameter_types

AXPY = """// two kernels in one source
extern "C" __global__ void axpy(float a, const float* x, float* y, long long n) {
    __shared__ float part[64];
    part[threadIdx.x % 64] = a;
    __syncthreads();
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = part[threadIdx.x % 64] * x[i] + y[i];
}
extern "C" __global__ void spill(float* x) {
    float v[100];
    for (int i = 0; i < 100; ++i) v[i] = x[i * 32 + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 100; ++i) x[i * 32 + threadIdx.x] = v[99 - i] + v[(i + threadIdx.x) % 100];
}
"""


def test_code_and_resources():
    made = compile_cuda(AXPY, "axpy", "sm_120")
    assert (made.name, made.target, made.num_warps, made.threads, made.triton_version) == ("axpy", "sm_120", None, None,
                                                                                           None)
    assert made.count("ld.global") == 2 and made.count("st.global") == 1 and made.count("fma.rn") == 1
    assert made.count("bar.sync") == 1 and made.shared_bytes == 64 * 4 and made.spill_bytes == made.stack_bytes == 0
    assert 8 <= made.registers <= 32 and made.count_sass("LDG") == 2 and made.count_sass("FFMA") == 1
    assert parameter_types(made.ptx) == ["f32", "b64", "b64", "b64"]
    assert made.evidence.line().startswith(f"compiled · for sm_120 by {nvrtc_version()} · ")


def test_an_empty_log_leaves_other_bytes_alone():
    """Written into b" ", which is one object in all of Python, its end turned every later space of bytes into a zero."""
    code = """
from helpers.cuda.nvrtc import cubin_of
cubin_of('extern "C" __global__ void k(int* y) { *y = 7; }', "k", 80)
print([n for n in range(256) if bytes([n])[0] != n])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=FOLDER.parents[1])
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_only_the_kernel_asked_for():
    axpy, spill = (compile_cuda(AXPY, name) for name in ("axpy", "spill"))
    assert "spill" not in axpy.ptx and "axpy" not in re.sub(r"\.b8.*|//.*", "", spill.ptx)
    assert axpy.count("ret") == 1 and spill.stack_bytes >= 400 and "spill" not in axpy.sass


def test_lines_are_the_readers():
    ptx = compile_cuda(AXPY, "axpy").ptx
    assert '.file\t1 "cell.cu"' in ptx
    assert {int(line) for line in re.findall(r"\.loc\s+1 (\d+)", ptx)} <= set(range(2, 9))
    with pytest.raises(CompileError, match=r"cell.cu\(7\): error: identifier \"x\" is undefined"):
        compile_cuda(AXPY.replace("const float* x", "const float* z"), "axpy")
    with pytest.raises(CompileError, match="no kernel 'saxpy'; it has axpy, spill"):
        compile_cuda(AXPY, "saxpy")
    with pytest.raises(CompileError, match='extern "C"'):
        compile_cuda(AXPY.replace('extern "C"', ""), "axpy")


@pytest.mark.parametrize("target", [*facts.capabilities(), "RTX 5090"])
def test_every_target(target):
    made = compile_cuda("vec_add.cu", "vec_add", target)
    assert f".target {made.target}" in made.ptx and made.count("ld.global") == 2 and made.registers > 0


def test_options_change_code_and_key():
    fast, exact = (compile_cuda("extern \"C\" __global__ void f(float* x) { x[0] = x[1] / x[2]; }", "f", options=options)
                   for options in ("--use_fast_math", []))  # one option, or a list
    assert fast.count("div.approx") == 1 and exact.count("div.rn") == 1
    few = compile_cuda(AXPY, "spill", options=["--maxrregcount=24"])
    assert few.registers <= 24


@pytest.mark.parametrize("call, error, message", [
    (lambda: compile_cuda(AXPY, "axpy", "sm_60"), ValueError, "RTX 5090"),
    (lambda: compile_cuda(AXPY, "axpy", options=["--no-such-option"]), ValueError, "unrecognized option"),
    (lambda: compile_cuda("missing.cu", "k"), ValueError, "no CUDA source 'missing.cu'; there are .*vec_add.cu"),
    (lambda: compile_cuda(5, "k"), TypeError, "text or a path, got int"),
])
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_every_shipped_file_compiles():
    kernels = {path.name: re.findall(r'__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)', path.read_text())
               for path in FOLDER.glob("*.cu")}
    assert kernels and all(kernels.values())
    for file, names in kernels.items():
        for name in names:
            made = compile_cuda(file, name)
            assert made.ptx.count(".entry") == 1 and made.spill_bytes == 0, (file, name)


@pytest.mark.skipif(not mode.has_triton(), reason="CUDA's headers come with Triton")
def test_cudas_own_headers_are_found():
    source = """#include <cuda_fp16.h>
extern "C" __global__ void twice(const __half *x, __half *y) { y[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }"""
    compiled = compile_cuda(source, "twice", "sm_90")
    x = np.linspace(-4, 4, 32, dtype=np.float16)
    y = np.full(32, np.nan, np.float16)
    simt.run(compiled, 1, 32, [x, y])
    assert np.array_equal(y, 2 * x)


@pytest.mark.skipif(not mode.has_triton(), reason="CUDA's headers come with Triton")
def test_headers_of_cudas_cpp_library_are_not_there_and_it_says_so():
    source = '#include <cooperative_groups.h>\nextern "C" __global__ void k() { cooperative_groups::this_thread_block().sync(); }'
    with pytest.raises(CompileError, match=r"nv/target(.|\n)*CUDA's C\+\+ library.*options="):
        compile_cuda(source, "k")
