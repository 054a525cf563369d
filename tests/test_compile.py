"""Compiled here, for any target, in either mode: counts, specialisation, edits, errors, the worker, results kept."""

import gzip
import itertools
import json
import linecache
import math
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from helpers import compile as compiler
from helpers import facts, mode, no_triton
from helpers.compile import CompileError, client, compile_kernel, opcodes, request, result, store
from helpers.cuda import nvrtc
from helpers.kernels.gelu import gelu_kernel, gelu_tail_kernel

ROOT = Path(__file__).parents[1]


def meta(n=16, dtype=torch.float32):
    return torch.empty(n, dtype=dtype, device="meta")


def cell(source: str, **names):
    """What a cell with this source leaves behind: its last kernel, with `names` among the notebook's globals."""
    source = textwrap.dedent(source)
    file = f"<cell {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"triton": triton, "tl": tl, "__name__": "__main__", **names}
    exec(compile(source, file, "exec"), space)
    return space[re.findall(r"^def (\w+)", source, flags=re.M)[-1]]


def bits(value: float) -> str:
    """A float32 as PTX stores it."""
    return str(torch.tensor(value).view(torch.int32).item())


def fp32(value: float) -> str:
    """A float32 as PTX calculates with it."""
    return f"0f{int(bits(value)):08X}"


def ptx_of(kernel, *args, **constants) -> str:
    return compile_kernel(kernel, *args, **constants).ptx


# ------------------------------------------------------------------------------------------------ what comes out


@pytest.mark.parametrize("n, accesses", [(10_000, 2), (9_999, 8), (9_992, 8), (16, 2)])
def test_gelu_for_the_5090(n, accesses):
    """1024 elements over 128 threads: 8 single loads, or 2 vectors of 4 where n is a multiple of 16."""
    compiled = compile_kernel(gelu_kernel, meta(n), meta(n), n, target="sm_120", num_warps=4, BLOCK=1024)
    assert compiled.count("ld.global") == compiled.count("st.global") == accesses
    assert compiled.count("ld.global.v4") == (2 if accesses == 2 else 0)
    assert compiled.count("ex2.approx") == 8 and compiled.spill_bytes == compiled.stack_bytes == 0
    assert compiled.shared_bytes == 0 and 16 <= compiled.registers <= 64 and compiled.threads == 128
    assert (compiled.name, compiled.target, compiled.num_warps) == ("gelu_kernel", "sm_120", 4)
    assert compiled.triton_version == triton.__version__
    assert compiled.evidence.line().startswith(f"compiled · for sm_120 by Triton {triton.__version__} · ")


def test_sass_agrees_with_ptx():
    compiled = compile_kernel(gelu_kernel, meta(), meta(), 9_999, BLOCK=1024)
    assert compiled.count_sass("LDG") == compiled.count_sass("STG.E") == 8 and compiled.count_sass("EXIT") >= 1
    assert not re.search(r"/\* 0x|&\w+=|\?\w+", compiled.sass), "words that only the hardware reads"


def test_full_blocks_are_vectorised_for_every_length():
    compiled = compile_kernel(gelu_tail_kernel, meta(), meta(), 9_999, BLOCK=1024)
    assert compiled.count("ld.global.v4") == 2 and compiled.count("ld.global") == 2 + 8


@pytest.mark.parametrize("target", [*facts.capabilities(), "RTX 5090", (9, 0), "sm_121a"])
def test_every_target(target):
    if target == "11.0" and triton.__version__ < "3.7":
        with pytest.raises(ValueError, match="Triton 3.6.*cannot compile for 11.0"):
            compile_kernel(gelu_kernel, meta(), meta(), 100, target=target, BLOCK=128)
        return
    compiled = compile_kernel(gelu_kernel, meta(), meta(), 100, target=target, BLOCK=128)
    assert re.search(rf"^\.target {compiled.target}a?$", compiled.ptx, flags=re.M) and compiled.registers > 0
    assert compiled.count("ld.global") == 1


@pytest.mark.parametrize("target", ["sm_60", "sm_999", "RTX 1234", (3, 5), "", None, 120, True])
def test_unknown_targets(target):
    with pytest.raises(ValueError, match="RTX 5090|which target"):
        compile_kernel(gelu_kernel, meta(), meta(), 100, target=target, BLOCK=128)


def test_shared_memory_and_shuffles_of_a_reduction():
    kernel = cell("""
        @triton.jit
        def total(x_ptr, n, BLOCK: tl.constexpr):
            o = tl.arange(0, BLOCK)
            tl.store(x_ptr, tl.sum(tl.load(x_ptr + o, mask=o < n)))
        """)
    one, four = (compile_kernel(kernel, meta(), 9, BLOCK=1024, num_warps=warps) for warps in (1, 4))
    assert one.shared_bytes == 0 and one.count("shfl.sync") == 5 and one.count("bar.sync") == 0
    assert four.shared_bytes == 4 * 4 and four.count("bar.sync") >= 1
    assert not re.search(r'\.file.*/', four.ptx), "folders of this machine"


def test_spills_are_ptxas_own(tmp_path):
    spilling = compile_kernel(gelu_kernel, meta(), meta(), 9_999, BLOCK=4096, num_warps=1, maxnreg=32)
    assert spilling.registers <= 32 and spilling.spill_bytes > 0 and spilling.stack_bytes > 0
    (tmp_path / "k.ptx").write_text(spilling.ptx)
    flags = ["-lineinfo", "-v", *(["--regAllocOptLevel=2"] if triton.__version__ >= "3.7" else [])]
    command = [client.tool("ptxas-blackwell"), *flags, "--gpu-name=sm_120a", tmp_path / "k.ptx", "-o", tmp_path / "k"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said).groups() == (
        str(spilling.stack_bytes), str(spilling.spill_bytes))


def test_stages_cost_shared_memory():
    kernel = cell("""
        @triton.jit
        def product(a, b, c, K, B: tl.constexpr):
            o = tl.arange(0, B)
            total = tl.zeros((B, B), tl.float32)
            for k in range(0, K, B):
                left = tl.load(a + o[:, None] * K + k + o[None, :])
                right = tl.load(b + (k + o[:, None]) * B + o[None, :])
                total = tl.dot(left, right, total)
            tl.store(c + o[:, None] * B + o[None, :], total)
        """)
    half = meta(dtype=torch.float16)
    shared = [compile_kernel(kernel, half, half, meta(), 1024, B=64, target="sm_80", num_stages=stages).shared_bytes
              for stages in (2, 3, 4)]
    assert shared[0] < shared[1] < shared[2]
    compiled = compile_kernel(kernel, half, half, meta(), 1024, B=64, target="sm_80")
    assert compiled.count("mma.sync") > 0 and compiled.count("cp.async") > 0


# ------------------------------------------------------------------------------------------------ counting


def test_opcodes_are_instructions_only():
    ptx = """
    .visible .entry k(.param .u64 p) // ld.global in a comment
    { .reg .b32 %r<3>;
    $L1: @%p1 ld.global.v4.b32 {%r1, %r2}, [%rd1]; /* st.global */
    @!%p2 st.global.L1::evict_last.b32 [%rd1], %r1; ld.globalx.b32 %r1, [%rd2];
    ld.volatile.global.f32 %f1, [%rd1]; ld.shared::cta.b32 %r1, [%r2];
    bra $L1; }"""
    names = opcodes(ptx)
    assert names == ["ld.global.v4.b32", "st.global.L1::evict_last.b32", "ld.globalx.b32", "ld.volatile.global.f32",
                     "ld.shared::cta.b32", "bra"]
    made = result.Compiled("k", "sm_120", 4, ptx, 1, 0, 0, 0, "Triton 0", "2026-01-01")
    expected = {"ld.global": 2, "ld": 4, "st.global": 1, "ld.global.v4": 1, "ld.f32": 1, "ld.shared": 1, "l": 0,
                "global": 0, "ld.b32.v4": 0, "bra": 1, "st.global.L1": 1}
    assert {opcode: made.count(opcode) for opcode in expected} == expected
    for wrong in ("", "ld.", ".global"):
        with pytest.raises(ValueError, match="dotted name"):
            made.count(wrong)


def test_sass_of_older_disassemblers_reads_the_same():
    raw = "        /*0000*/                   LDC R1, c[0x0][0x37c]            &req={0,1} &wr=0x0        ?trans1;   \n"
    assert result.readable_sass(raw) == "        /*0000*/                   LDC R1, c[0x0][0x37c] ;\n"


# ------------------------------------------------------------------------------------------------ as a launch would


def test_a_shifted_view_loses_the_wide_loads():
    x = torch.empty(10_001)
    wide = [compile_kernel(gelu_kernel, view, view, 9_984, BLOCK=1024).count("ld.global.v4")
            for view in (x, x[4:], x[1:], meta()[4:], meta()[2:])]
    assert wide == [2, 2, 0, 2, 0]


INTS = [0, 1, 2, 15, 16, 17, -1, -16, 2**31 - 1, 2**31 - 16, 2**31, 2**31 + 1, -(2**31), -(2**31) - 1, 2**32, 2**63 - 1,
        2**63, 2**63 + 1, 2**64 - 1, 2**64 - 16, -(2**63)]


def test_numbers_fall_into_tritons_own_classes():
    """Two integers are described alike exactly when Triton's own launch code tells them apart no more."""
    specialize = pytest.importorskip("triton.runtime.jit").native_specialize_impl
    from triton.backends.nvidia.compiler import CUDABackend

    def tritons(value):
        return specialize(CUDABackend, value, False, True, True)

    assert [tritons(request.representative(n)) for n in INTS] == [tritons(n) for n in INTS]
    for a, b in itertools.combinations(INTS, 2):
        assert (tritons(a) == tritons(b)) == (request.representative(a) == request.representative(b)), (a, b)
    assert len({request.representative(n) for n in INTS}) == 7


def test_kinds_of_arguments():
    kernel = cell("""
        @triton.jit
        def k(x_ptr, n, s, flag, nothing, C: tl.constexpr, D: tl.constexpr = 2):
            if flag:
                tl.store(x_ptr + n, s * C * D)
        """)
    base = ptx_of(kernel, meta(), 5, 2.0, True, None, C=3)
    assert "ld.param.b32" in base and ".param .u32" in base
    assert ".param .u64 k_param_1" in ptx_of(kernel, meta(), 2**31, 2.0, True, None, C=3)
    assert base == ptx_of(kernel, meta(), 6, 7.5, False, None, 3) == ptx_of(kernel, meta(), 5, 2.0, True, None, 3, D=2)
    assert base != ptx_of(kernel, meta(), 1, 2.0, True, None, 3) != ptx_of(kernel, meta(), 5, 2.0, True, None, 4)
    assert base != ptx_of(kernel, meta(), tl.constexpr(5), 2.0, True, None, C=3), "a constexpr is one in any place"
    assert ptx_of(kernel, meta(dtype=torch.bfloat16), 5, 2.0, True, None, C=3).count("cvt.rn.bf16") > 0
    assert "st.global.b64" in ptx_of(kernel, meta(dtype=torch.float64), 5, 2.0, True, None, C=3)


def test_num_warps_may_be_a_parameter_too():
    kernel = cell("""
        @triton.jit
        def k(x_ptr, num_warps: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, 32 * num_warps), 1.0)
        """)
    compiled = compile_kernel(kernel, meta(), num_warps=8)
    assert ".reqntid 256" in compiled.ptx and compiled.count("st.global") == 1


def test_numpys_whole_numbers_as_options():
    def made(number):
        return compile_kernel(gelu_kernel, meta(), meta(), 16, BLOCK=128, num_warps=number(2), num_stages=number(1), maxnreg=number(32))

    assert made(np.int64) == made(int)


def test_annotations_of_the_future_are_read_as_a_launch_reads_them():
    """With them a constexpr is known by its spelling only; taken for one all the same, BLOCK was 16 whatever was given."""
    source = """
        from __future__ import annotations
        @triton.jit
        def k(x_ptr, BLOCK: {}):
            tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)
        """
    assert compile_kernel(cell(source.format("tl.constexpr")), meta(), BLOCK=1024).count("st.global") == 2  # 8 values a thread
    with pytest.raises(CompileError, match="arange's arguments must be of type tl.constexpr"):
        compile_kernel(cell(source.format("constant"), constant=tl.constexpr), meta(), BLOCK=64)


def test_the_debug_option_is_kept():
    """With it, a launch checks a kernel's assertions."""
    source = "    @triton.jit{}\n    def checked(x_ptr, n):\n        tl.device_assert(n > 3)\n        tl.store(x_ptr, 1.0)\n"
    plain, debug = (compile_kernel(cell(source.format(option)), meta(), 5).ptx.count("__assertfail") for option in ("", "(debug=True)"))
    assert plain == 0 < debug


def test_do_not_specialize_is_kept():
    source = """
        @triton.jit{}
        def k(x_ptr, n):
            tl.store(x_ptr, n)
        """
    assert ".param .u32 k_param_1" not in ptx_of(cell(source.format("")), meta(), 1)
    kept = cell(source.format('(do_not_specialize=["n"])'))
    assert ".param .u32 k_param_1" in ptx_of(kept, meta(), 1)


@pytest.mark.gpu
@pytest.mark.parametrize("n, offset, dtype", [(10_000, 0, torch.float32), (9_999, 0, torch.float32),
                                              (10_000, 1, torch.float32), (10_000, 8, torch.bfloat16), (1, 0, torch.half)])
def test_a_launch_on_this_gpu_has_the_same_code(n, offset, dtype):
    x = torch.randn(n + offset, device="cuda").to(dtype)[offset:]
    launched = gelu_kernel[(triton.cdiv(n, 1024),)](x, x, n, BLOCK=1024, num_warps=8)
    made = compile_kernel(gelu_kernel, x, x, n, target=torch.cuda.get_device_capability(), num_warps=8, BLOCK=1024)
    assert opcodes(launched.asm["ptx"]) == opcodes(made.ptx)
    assert (launched.n_regs, launched.metadata.shared) == (made.registers, made.shared_bytes)


# ------------------------------------------------------------------------------------------------ which kernels


def test_every_kind_of_wrapper_gives_the_same_code():
    fn = gelu_kernel.fn
    rules = triton.heuristics({"BLOCK": lambda given: 128 if given["n"] < 1000 else 256})
    tuned = triton.autotune([triton.Config({}, num_warps=2)], key=["n"], do_bench=lambda *a, **k: [1.0])
    kernels = [gelu_kernel, fn, no_triton.Unlaunchable(fn), triton.runtime.jit.JITFunction(fn), tuned(gelu_kernel)]
    code = {ptx_of(kernel, meta(), meta(), 9, BLOCK=128) for kernel in kernels}
    code |= {ptx_of(kernel, meta(), meta(), 9) for kernel in (rules(gelu_kernel), tuned(rules(gelu_kernel)))}
    assert len(code) == 1 and code != {ptx_of(rules(gelu_kernel), meta(), meta(), 9999)}


CALLS_HELPER = """
    @triton.jit
    def h(v):
        return {}

    @triton.jit
    def k(x_ptr, n, BLOCK: tl.constexpr):
        o = tl.arange(0, BLOCK)
        tl.store(x_ptr + o, h(tl.load(x_ptr + o)), mask=o < n)
    """


def test_an_edited_helper_is_compiled_as_edited():
    bodies = ["v + 1", "tl.exp(v)", "tl.exp(v) + tl.exp(v * 2)", "v + 1"]
    counts = [compile_kernel(cell(CALLS_HELPER.format(body)), meta(), 64, BLOCK=64, num_warps=2).count("ex2")
              for body in bodies]
    assert counts == [0, 1, 2, 0]


def test_a_global_is_read_at_each_call():
    kernel = cell("""
        @triton.jit
        def k(x_ptr):
            tl.store(x_ptr, G)
        """, G=tl.constexpr(5.0))
    seen = []
    for value in (5.0, 7.0, 5.0):
        kernel.fn.__globals__["G"] = tl.constexpr(value)
        seen += [[stored in ptx_of(kernel, meta()) for stored in (bits(5.0), bits(7.0))]]
    assert seen == [[True, False], [False, True], [True, False]]


def test_globals_of_each_function_stay_its_own():
    """Two modules may use one name for different things; an attribute of a module counts as a global, a variable not."""
    twice = cell("""
        @triton.jit
        def scale(v):
            return v * S
        """, S=tl.constexpr(2.0))
    module = type(sys)("notes")
    module.scale, module.unused = twice, object()
    kernel = cell("""
        @triton.jit
        def k(x_ptr, n, WIDTH: tl.constexpr = WIDTH):
            v = tl.load(x_ptr + n) * S
            tl.store(x_ptr + n + tl.arange(0, WIDTH), notes.scale(v) + math.pi)
        """, S=tl.constexpr(3.0), WIDTH=64, notes=module, math=math, n=object(), v=object())
    ptx = ptx_of(kernel, meta(), 5)
    assert all(fp32(value) in ptx for value in (2.0, 3.0, math.pi))
    kernel.fn.__globals__.update(v=17, n=[1])
    assert ptx_of(kernel, meta(), 5) == ptx


def test_closures_and_functions_as_constants():
    def make(shift):
        @triton.jit
        def add(v):
            return v + 1.5

        @triton.jit
        def k(x_ptr, f: tl.constexpr):
            tl.store(x_ptr, f(tl.load(x_ptr)) * shift)

        return k, add

    for value in (3.0, 5.0):
        kernel, add = make(tl.constexpr(value))
        ptx = ptx_of(kernel, meta(), f=add)
        assert fp32(value) in ptx and fp32(1.5) in ptx


def test_constexpr_functions_and_library_functions():
    kernel = cell("""
        from triton.language.extra import libdevice

        @triton.constexpr_function
        def double(n):
            return 2 * n

        @triton.jit
        def k(x_ptr, B: tl.constexpr):
            o = tl.arange(0, double(B))
            tl.store(x_ptr + o, libdevice.rsqrt(tl.load(x_ptr + o)))
        """)
    compiled = compile_kernel(kernel, meta(), B=64, num_warps=4)
    assert compiled.count("rsqrt") == 1


# ------------------------------------------------------------------------------------------------ errors


@triton.jit
def undefined_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)

    tl.store(x_ptr + offsets, not_defined_anywhere)  # noqa: F821


PLAIN = 5


@triton.jit
def plain_global_kernel(x_ptr):
    tl.store(x_ptr, PLAIN)


class Constants:
    SCALE = tl.constexpr(3)


@triton.jit
def class_attribute_kernel(x_ptr):
    tl.store(x_ptr, Constants.SCALE)


@triton.jit(noinline=True)
def apart(v): return v + 1  # fmt: skip


@triton.jit
def tensor_to_noinline_kernel(x_ptr):
    offsets = tl.arange(0, 16)
    tl.store(x_ptr + offsets, apart(tl.load(x_ptr + offsets)))


def call(kernel=gelu_kernel, *args, **options):
    return lambda: compile_kernel(kernel, *(args or (meta(), meta(), 5)), **options)


OF_NUMPY = tl.constexpr(np.int64(64))


@triton.jit
def numpys_constant_kernel(x_ptr):
    tl.store(x_ptr + tl.arange(0, OF_NUMPY), 1.0)


@pytest.mark.parametrize("wrong, error, message", [
    (call(numpys_constant_kernel, meta()), TypeError, "OF_NUMPY = tl.constexpr of int64: a constant must be a number of Python's"),
    (call(), TypeError, "missing BLOCK; it takes x_ptr, y_ptr, n, BLOCK"),
    (call(BLOCK=128, WIDTH=3), TypeError, "no parameter WIDTH; it takes x_ptr"),
    (call(gelu_kernel, meta(), meta(), 5, 128, 7), TypeError, "takes 4 arguments, got 5"),
    (call(gelu_kernel, meta(), meta(), 5, 128, BLOCK=128), TypeError, "BLOCK given twice"),
    (call(gelu_kernel, meta(), object(), 5, BLOCK=128), TypeError, "argument y_ptr must be a tensor.*got object"),
    (call(gelu_kernel, meta(), meta(), 2**64, BLOCK=128), TypeError, "argument n does not fit 64 bits"),
    (call(gelu_kernel, meta(), meta(), "many", BLOCK=128), TypeError, "argument n cannot be a str"),
    (call(gelu_kernel, meta(dtype=torch.complex64), meta(), 5, BLOCK=128), TypeError, "x_ptr cannot be a tensor of torch.complex64"),
    (call(BLOCK=128, maxnreg=300), ValueError, "maxnreg must be a whole number from 1 to 255, got 300"),
    (call(BLOCK=128, num_ctas=0), ValueError, "num_ctas must be"),
    (call(BLOCK=128, num_ctas=3), ValueError, "num_ctas must be a power of two from 1 to 16, got 3"),
    (call(BLOCK=128, enable_fp_fusion="no"), ValueError, "enable_fp_fusion must be True or False, got 'no'"),
    (call(BLOCK=128, ptx_options=3), ValueError, "ptx_options must be a string"),
    (call(gelu_kernel, meta(dtype=torch.float8_e8m0fnu), meta(), 5, BLOCK=128), TypeError, "can be a tensor of float8_e8m0fnu"),
    (call(lambda x_ptr: tl.store(x_ptr, 1.0), meta()), TypeError, "got a lambda"),
    (call(BLOCK=128, num_warps=3), ValueError, "power of two from 1 to 32, got 3"),
    (call(BLOCK=128, num_warps=64), ValueError, "got 64"),
    (call(BLOCK=128, num_warps=True), ValueError, "got True"),
    (call(BLOCK=128, num_stages=0), ValueError, "num_stages"),
    (call(len, 5), TypeError, "@triton.jit function, got builtin"),
    (call("gelu", 5), TypeError, "@triton.jit function, got str"),
    (call(BLOCK=100), CompileError, r"of gelu.py:\n.*arange.*\n +\^\narange's range must be a power of 2"),
    (call(undefined_kernel, meta(), BLOCK=16), CompileError, "NameError: not_defined_anywhere is not defined"),
    (call(plain_global_kernel, meta()), CompileError, "Cannot access global variable PLAIN"),
    (call(class_attribute_kernel, meta()), CompileError, "Cannot access global variable Constants"),
    (call(tensor_to_noinline_kernel, meta()), CompileError, "apart is marked noinline, but was called with non-scalar"),
])
def test_errors(wrong, error, message, capfd):
    with pytest.raises(error, match=message) as caught:
        wrong()
    assert capfd.readouterr() == ("", ""), "nothing is printed besides"
    assert caught.type is error and "worker" not in str(caught.value)


@pytest.mark.skipif(mode.is_live(), reason="without the interpreter triton.jit itself refuses a lambda")
def test_error_of_a_lambda_as_a_kernel():
    with pytest.raises(TypeError, match="got a lambda"):
        compile_kernel(triton.jit(lambda x_ptr: tl.store(x_ptr, 1.0)), meta())


def test_errors_name_the_readers_lines():
    line = undefined_kernel.fn.__code__.co_firstlineno + 4
    with pytest.raises(CompileError) as caught:
        compile_kernel(undefined_kernel, meta(), BLOCK=16)
    assert str(caught.value).startswith(
        f"undefined_kernel, line {line} of test_compile.py:\n    tl.store(x_ptr + offsets, not_defined_anywhere)")
    with pytest.raises(CompileError) as caught:
        compile_kernel(cell(CALLS_HELPER.format("v + oops")), meta(), 64, BLOCK=64)
    frames = re.findall(r"^(\w+), line (\d+) of the cell:$", str(caught.value), flags=re.M)
    assert frames == [("k", "9"), ("h", "4")] and "NameError: oops is not defined" in str(caught.value)


def test_errors_of_the_assembler(capfd):
    kernel = cell("""
        @triton.jit
        def k(x_ptr):
            v = tl.inline_asm_elementwise("bogus.f32 $0, $1;", "=r,r", [tl.load(x_ptr)], tl.float32, True, 1)
            tl.store(x_ptr, v)
        """)
    with pytest.raises(CompileError, match="bogus") as caught:
        compile_kernel(kernel, meta())
    assert "Repro" not in str(caught.value) and capfd.readouterr() == ("", "")


def test_a_kernel_without_source():
    space = {"triton": triton, "tl": tl}
    exec("def k(x_ptr):\n    tl.store(x_ptr, 1.0)\n", space)
    with pytest.raises(CompileError, match="its source is not available"):
        compile_kernel(space["k"], meta())


@pytest.mark.parametrize("lines", [1, 2, 5])
def test_a_file_that_changed_after_its_import(tmp_path, lines):
    file = tmp_path / "mine.py"
    one, two = (f"@triton.jit\ndef {name}(x_ptr):\n    tl.store(x_ptr, 1.0)\n\n\n" for name in ("one", "two"))
    file.write_text(one + two)
    space = {"triton": triton, "tl": tl, "__name__": "mine"}
    exec(compile(file.read_text(), str(file), "exec"), space)
    kernel = space["two"]
    file.write_text("# new\n" * lines + one + two)
    linecache.checkcache(str(file))
    with pytest.raises(CompileError, match="^two: its source is not where it was in mine.py.*restart the kernel"):
        compile_kernel(kernel, meta())


# ------------------------------------------------------------------------------------------------ the worker


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Nothing known yet: no cache, nothing shipped."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "shipped")
    compiler._compiled.cache_clear()
    nvrtc._compiled.cache_clear()
    yield tmp_path
    compiler._compiled.cache_clear()
    nvrtc._compiled.cache_clear()


def gelu_16(**options):
    return compile_kernel(gelu_kernel, meta(), meta(), 16, **{"BLOCK": 128, **options})


def test_the_worker_stands_apart_and_ends_with_the_notebook(fresh):
    gelu_16()
    process = client.worker.process
    assert os.getsid(process.pid) != os.getsid(0), "an interrupt of the notebook would reach it"
    process.stdin.close()  # as the system does when the notebook's process ends
    assert process.wait(timeout=30) in (0, -signal.SIGKILL)  # by itself, or made to where the cores are busy
    assert gelu_16(BLOCK=256).registers > 0 and client.worker.process.pid != process.pid, "one that died is replaced"


@pytest.mark.parametrize("half", ["", """print('{"ptx": "// cut o', end="", flush=True);"""], ids=["before", "within the answer"])
def test_dying_over_a_request_is_an_error_with_its_last_words(monkeypatch, tmp_path, half):
    broken = tmp_path / "broken.py"
    broken.write_text(f"import sys; {half} sys.exit('no compiler today')")
    monkeypatch.setattr(client, "WORKER", broken)
    worker = client.Worker()
    for _ in range(2):
        with pytest.raises(CompileError, match="ended without an answer.*no compiler today"):
            worker.ask({})
    assert worker.process is None


SLOW = """
    @triton.jit
    def slow(x_ptr, B: tl.constexpr):
        o = tl.arange(0, B)
        tl.store(x_ptr + o, tl.softmax(tl.load(x_ptr + o)))
    """


def test_an_interrupted_compilation_leaves_a_usable_client(fresh):
    gelu_16()
    group = client.worker.process.pid
    threading.Timer(1, os.kill, [os.getpid(), signal.SIGINT]).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compile_kernel(cell(SLOW), meta(), B=16384, num_warps=1)
        time.sleep(60)
    assert time.monotonic() - began < 30, "it went on compiling"  # which takes minutes
    deadline = time.monotonic() + 5
    with pytest.raises(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)  # neither the worker nor its ptxas is left
    assert gelu_16(BLOCK=512).count("st.global.v4") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a second process that waits")
def test_a_compilation_ends_with_the_notebook(fresh):
    """It may take hours, and a notebook that is killed takes nobody along."""
    gelu_16()
    process, said = client.worker.process, []

    def compile_slowly():
        with pytest.raises(CompileError, match="ended without an answer"):
            compile_kernel(cell(SLOW), meta(), B=16384, num_warps=1)
        said.append("ended")

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    time.sleep(1)
    assert process.poll() is None and thread.is_alive()
    process.stdin.close()  # as the system does when the notebook's process ends
    assert process.wait(timeout=30) == -signal.SIGKILL
    thread.join(timeout=5)
    assert said == ["ended"]


def test_input_that_arrives_during_a_compilation_does_not_end_it():
    """Only that the input closes does: what is written wakes whoever waits for it, sometimes after it was read."""
    worker = client.Worker()
    asked, _ = request.describe(gelu_tail_kernel, (meta(), meta(), 9), {"BLOCK": 2048}, 120, 1, 3)
    try:
        worker.ask({})  # it is awake now
        for _ in range(2):
            worker.process.stdin.write(json.dumps({"request": asked, "sass": False}) + "\n")
            worker.process.stdin.flush()
            time.sleep(0.1)
        assert all("ptx" in json.loads(worker.process.stdout.readline()) for _ in range(2))
    finally:
        worker.stop()


def test_many_threads_ask_at_once(fresh):
    found, blocks = {}, [64, 128, 256, 512]
    threads = [threading.Thread(target=lambda b=b: found.update({b: gelu_16(BLOCK=b, num_warps=1)})) for b in blocks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[b].count("ld.global") for b in blocks] == [1, 1, 2, 4]


def test_settings_of_the_reader_do_not_reach_the_compiler(monkeypatch):
    for name in ("TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION", "DISABLE_PTXAS_OPT", "MLIR_ENABLE_DUMP"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/opt/ptxas")
    seen = client._environment()
    assert not {"TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION", "DISABLE_PTXAS_OPT", "MLIR_ENABLE_DUMP"} & set(seen)
    assert seen["TRITON_PTXAS_PATH"] == "/opt/ptxas" and "PATH" in seen


@pytest.mark.parametrize("path", ["/nowhere/ptxas", "/bin/true", "/"])
def test_an_assembler_that_is_none(monkeypatch, path):
    monkeypatch.setenv("TRITON_PTXAS_PATH", path)
    with pytest.raises(CompileError, match=f"(?s)^{path} is no ptxas that runs here .* TRITON_PTXAS_PATH may name another"):
        client.compiler_version.__wrapped__(90)


# ------------------------------------------------------------------------------------------------ kept results


def forbid(monkeypatch):
    monkeypatch.setattr(client.worker, "ask", lambda *a, **k: pytest.fail("compiled again"))
    compiler._compiled.cache_clear()


def test_kept_on_disk(fresh, monkeypatch):
    first = gelu_16()
    sass = first.sass
    forbid(monkeypatch)
    again = gelu_16()
    assert again == first and again.sass == sass and not again.shipped
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        gelu_16(BLOCK=64)
    with monkeypatch.context() as other:
        other.setattr(client, "compiler_version", lambda capability: "Triton 9.9")
        compiler._compiled.cache_clear()
        with pytest.raises(pytest.fail.Exception, match="compiled again"):
            gelu_16()


@pytest.mark.parametrize("damage", [b"", b"junk", gzip.compress(b"{damaged"), gzip.compress(b'{"format": 0}'),
                                    gzip.compress(b'{"format": 1, "request": {}, "result": {}}'), gzip.compress(b"[1]"),
                                    gzip.compress(b"{}", mtime=0)[:10] + b"\xff" * 20],
                         ids=["empty", "junk", "cut off", "old", "another's", "a list", "overwritten"])  # gzip's bytes hold the time: no names
def test_damaged_entries_are_made_again(fresh, damage):
    first = gelu_16()
    (entry,) = (fresh / "compiled").iterdir()
    entry.write_bytes(damage)
    compiler._compiled.cache_clear()
    assert gelu_16() == first
    assert json.loads(gzip.decompress(entry.read_bytes()))["result"]["ptx"] == first.ptx


def test_an_unwritable_cache_only_costs_time(fresh, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "file"))
    assert gelu_16().registers > 0


def test_a_full_disc_leaves_no_rubbish(fresh, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert gelu_16().registers > 0 and list((fresh / "compiled").iterdir()) == []


def test_a_disassembler_that_fails_says_why(fresh, monkeypatch):
    compiled = gelu_16()
    monkeypatch.setattr(client.worker, "ask", lambda *a: {"error": "code", "message": "cuobjdump: no space", "frames": []})
    with pytest.raises(CompileError, match="^cuobjdump: no space$"):
        compiled.sass  # noqa: B018


def test_what_a_lesson_compiles_is_shipped_and_nothing_else(fresh, monkeypatch):
    gelu_16(BLOCK=64)
    for block in (128, 256):
        compiler._compiled.cache_clear()
        nvrtc._compiled.cache_clear()
        with store.collecting("03_test"):
            made = gelu_16(BLOCK=block)
            assert made.shipped and made.sass
            vec_add = nvrtc.compile_cuda("vec_add.cu", "vec_add")
        with pytest.raises(RuntimeError), store.collecting("03_test"):
            raise RuntimeError("a lesson that fails changes nothing")
    assert sorted(len(path.name.split("-")) for path in (fresh / "shipped/03_test").iterdir()) == [4, 4, 5]
    forbid(monkeypatch)
    assert gelu_16(BLOCK=256) == made and "shipped with the course" in made.evidence.line()
    # Where there is no compiler, its results of any version are found, and say which it was.
    monkeypatch.setattr(client, "triton_version", lambda: None)
    monkeypatch.setattr(client, "compiler_version", lambda capability: None)
    monkeypatch.setattr(nvrtc, "_nvrtc", lambda: None)
    compiler._compiled.cache_clear()
    nvrtc._compiled.cache_clear()
    found = gelu_16(BLOCK=256)
    assert found == made and found.sass == made.sass and found.triton_version == triton.__version__
    assert nvrtc.compile_cuda("vec_add.cu", "vec_add") == vec_add
    with pytest.raises(CompileError, match=f"{no_triton.MISSING}, and gelu_kernel"):
        gelu_16(BLOCK=64)
    with pytest.raises(CompileError, match="NVRTC.*no package"):
        nvrtc.compile_cuda("vec_add.cu", "vec_add", target="sm_90")


def test_a_system_without_triton_describes_kernels_alike():
    code = textwrap.dedent("""
        import runpy
        runpy.run_path("helpers/no_triton.py")["install"]()  # before `import helpers` looks for Triton
        import json, torch
        from helpers.compile.request import describe
        from helpers.kernels.gelu import gelu_tail_kernel
        x = torch.empty(9, device="meta")
        print(json.dumps(describe(gelu_tail_kernel, (x, x, 9), {"BLOCK": 128}, 120, 4, 3)[0]))
        """)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    here, _ = request.describe(gelu_tail_kernel, (meta(), meta(), 9), {"BLOCK": 128}, 120, 4, 3)
    assert json.loads(done.stdout) == here


# ------------------------------------------------------------------------------------------------ what is shipped

PINNED = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==([\d.]+)", (ROOT / "requirements.txt").read_text(), flags=re.M))
with_pins = pytest.mark.skipif(triton.__version__ != PINNED["triton"],
                               reason=f"the course ships results of Triton {PINNED['triton']}")


def bare(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def sources_today() -> str:
    """All code that a lesson may compile: cells, shipped kernels, CUDA files."""
    texts = [path.read_text() for folder in ("helpers", "figures") for pattern in ("*.py", "*.cu")
             for path in (ROOT / folder).rglob(pattern)]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        texts += [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    return "\n\n".join(bare(text) for text in texts)


@with_pins
def test_shipped_results_belong_to_todays_lessons():
    today, size = sources_today(), 0
    for path, asked, made in store.entries():
        advice = f"{path.relative_to(ROOT)} is stale: make notebooks"
        asked = asked.get("sass", asked)
        cuda = "source" in asked
        version = nvrtc.nvrtc_version() if cuda else client.compiler_version(asked["capability"])
        assert path.name.endswith(store._file_name("", version)), advice
        # Lessons also compile CUDA C++ with a line taken out, the deliberate mistake: there each line must be today's.
        for text in bare(asked["source"]).splitlines() if cuda else [bare(f["source"]) for f in asked["functions"]]:
            assert text in today, advice
        assert made.get("sass") or made["ptx"].count(".entry") == 1
        assert (ROOT / "notebooks" / f"{path.parent.name}.ipynb").exists(), advice
        size += path.stat().st_size
    assert size < 3_000_000, f"{size} bytes"


@with_pins
def test_shipped_results_are_what_the_compiler_says():
    """A cheap sample, compiled again."""
    kernels = [(asked, made) for _, asked, made in store.entries() if "functions" in asked]
    cheap = sorted(kernels, key=lambda pair: len(pair[1]["ptx"]))[: len(kernels) // 2 + 1]
    for asked, made in cheap[:: max(1, len(cheap) // 5)]:
        said = client.worker.ask(asked)
        assert {**said, "ptx": result.without_folders(said["ptx"])} == {key: made[key] for key in said}


def test_a_table_over_several_targets_names_them_all():
    from types import SimpleNamespace as Result

    from helpers.evidence import Evidence, compiled_together

    shipped, here = (Result(target=f"sm_{n}", shipped=ships, evidence=Evidence("compiled", where, "2026-01-02", f"for sm_{n} by Triton"))
                     for n, ships, where in ((80, True, "shipped with the course"), (90, False, "this computer")))
    assert compiled_together([shipped, here]).line() == "compiled · for sm_80, sm_90 by Triton · this computer · 2026-01-02"
    assert compiled_together([shipped, shipped]) == shipped.evidence
