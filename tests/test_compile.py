"""Compiled here, for any target, in either mode: counts, specialisation, edits, errors, cache."""

import gzip

import pytest
import torch
import triton
import triton.language as tl

from helpers import compile as module
from helpers.compile import CompileError, compile_kernel, opcodes
from helpers.kernels.gelu import gelu_kernel, gelu_tail_kernel

SCALE = tl.constexpr(3.0)
PLAIN = 5


@triton.jit
def add_one(v):
    return v + 1


@triton.jit
def helper_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, add_one(tl.load(x_ptr + offsets)) * SCALE, mask=offsets < n)


@triton.jit
def plain_global_kernel(x_ptr):
    tl.store(x_ptr, PLAIN)


@triton.jit
def wrong_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, not_defined_anywhere)  # noqa: F821


def empty(n=16, dtype=torch.float32):
    return torch.empty(n, dtype=dtype, device="meta")


@pytest.mark.parametrize("n, loads", [(10_000, 2), (9_999, 8), (9_992, 8), (16, 2)])
def test_gelu_for_the_5090(n, loads):
    """1024 elements over 128 threads: 8 single loads, or 2 vectors of 4 where n is a multiple of 16."""
    compiled = compile_kernel(gelu_kernel, empty(n), empty(n), n, target="sm_120", num_warps=4, BLOCK=1024)
    assert compiled.count("ld.global") == compiled.count("st.global") == loads
    assert compiled.count("ex2.approx") == 8 and compiled.spill_bytes == 0 and compiled.shared_bytes == 0
    assert 16 <= compiled.registers <= 64 and compiled.threads == 128
    assert compiled.count_sass("LDG") == loads
    assert compiled.evidence.line().startswith("compiled · for sm_120 by Triton")


def test_full_blocks_are_vectorised_for_every_length():
    compiled = compile_kernel(gelu_tail_kernel, empty(), empty(), 9_999, target="sm_120", BLOCK=1024)
    assert compiled.count("ld.global.v4") == 2 and compiled.count("ld.global") == 2 + 8


def test_a_shifted_view_loses_the_wide_loads():
    x = torch.empty(10_001)
    aligned = compile_kernel(gelu_kernel, x[4:], x[4:], 9_984, BLOCK=1024)
    shifted = compile_kernel(gelu_kernel, x[1:], x[1:], 9_984, BLOCK=1024)
    assert aligned.count("ld.global.v4") == 2 and shifted.count("ld.global.v4") == 0


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", (10, 0), "RTX 5090", "H100 SXM5", "sm_121"])
def test_targets(target):
    compiled = compile_kernel(gelu_kernel, empty(), empty(), 100, target=target, BLOCK=128)
    assert f".target {compiled.target}" in compiled.ptx and compiled.count("ld.global") == 1


@pytest.mark.parametrize("target", ["sm_60", "sm_999", "RTX 1234", (3, 5), "", None])
def test_unknown_targets(target):
    with pytest.raises((ValueError, TypeError)):
        compile_kernel(gelu_kernel, empty(), empty(), 100, target=target, BLOCK=128)


def test_helpers_and_constants_are_found():
    compiled = compile_kernel(helper_kernel, empty(64), 64, BLOCK=64, num_warps=1)
    assert compiled.count("ld.global") >= 1 and "0f40400000" in compiled.ptx  # 3.0 as PTX writes it


def define(body: str, name: str = "k", **names):
    """A kernel as a notebook cell would define it."""
    import linecache

    source = f"@triton.jit\ndef {name}(x_ptr, n, BLOCK: tl.constexpr):\n" + body
    file = f"<cell {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"triton": triton, "tl": tl, **names}
    exec(compile(source, file, "exec"), space)
    return space[name]


BODY = "    o = tl.arange(0, BLOCK)\n    tl.store(x_ptr + o, h(tl.load(x_ptr + o)), mask=o < n)\n"


def test_an_edited_cell_and_an_edited_helper_are_compiled_as_edited():
    counts = []
    for helper in ("    return v + 1\n", "    return tl.exp(v)\n", "    return tl.exp(v) + tl.exp(v * 2)\n"):
        source = f"@triton.jit\ndef h(v):\n{helper}"
        import linecache

        linecache.cache["<h>"] = (len(source), None, source.splitlines(True), "<h>")
        space = {"triton": triton, "tl": tl}
        exec(compile(source, "<h>", "exec"), space)
        compiled = compile_kernel(define(BODY, h=space["h"]), empty(64), 64, BLOCK=64, num_warps=2)
        counts.append(compiled.count("ex2"))
    assert counts == [0, 1, 2]


def test_a_constexpr_global_is_read_at_each_call():
    body = "    tl.store(x_ptr, G)\n"
    for value in (5.0, 7.0):
        compiled = compile_kernel(define(body, G=tl.constexpr(value)), empty(), 1, BLOCK=1)
        assert str(value).encode() and f"0f{torch.tensor(value).view(torch.int32).item():08X}" in compiled.ptx.replace(
            str(torch.tensor(value).view(torch.int32).item()), f"0f{torch.tensor(value).view(torch.int32).item():08X}"
        )


def test_autotune_and_heuristics_are_looked_through():
    tuned = triton.autotune([triton.Config({}, num_warps=2)], key=["n"], do_bench=lambda *a, **k: [1.0])(gelu_kernel)
    assert compile_kernel(tuned, empty(), empty(), 9, BLOCK=128).count("ld.global") == 1


def test_shared_memory_of_a_reduction():
    kernel = define("    o = tl.arange(0, BLOCK)\n    tl.store(x_ptr, tl.sum(tl.load(x_ptr + o, mask=o < n)))\n")
    one = compile_kernel(kernel, empty(), 9, BLOCK=1024, num_warps=1)
    four = compile_kernel(kernel, empty(), 9, BLOCK=1024, num_warps=4)
    assert one.shared_bytes == 0 and four.shared_bytes > 0
    assert one.count("shfl.sync") == 5 and four.count("bar.sync") >= 1


def test_spills_are_counted():
    compiled = compile_kernel(gelu_kernel, empty(), empty(), 9_999, BLOCK=16384, num_warps=1)
    assert compiled.spill_bytes > 0 and compiled.stack_bytes > 0
    capped = compile_kernel(gelu_kernel, empty(), empty(), 9_999, BLOCK=4096, num_warps=1, maxnreg=32)
    assert capped.registers <= 32 and capped.spill_bytes > 0


@pytest.mark.parametrize("call, error, message", [
    (lambda: compile_kernel(gelu_kernel, empty(), empty(), 5), TypeError, "missing BLOCK"),
    (lambda: compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=128, WIDTH=3), TypeError, "no parameter .*WIDTH"),
    (lambda: compile_kernel(gelu_kernel, empty(), empty(), 5, 128, 7), TypeError, "takes 4 arguments"),
    (lambda: compile_kernel(gelu_kernel, empty(), empty(), 5, 128, BLOCK=128), TypeError, "given twice"),
    (lambda: compile_kernel(gelu_kernel, empty(), object(), 5, BLOCK=128), TypeError, "tensors and numbers"),
    (lambda: compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=128, num_warps=3), ValueError, "power of two"),
    (lambda: compile_kernel(len, 5), TypeError, "@triton.jit"),
    (lambda: compile_kernel(wrong_kernel, empty(), BLOCK=16), CompileError, "not_defined_anywhere is not defined"),
    (lambda: compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=100), CompileError, "power of 2"),
    (lambda: compile_kernel(plain_global_kernel, empty()), CompileError, "global variable PLAIN"),
])
def test_errors(call, error, message, capfd):
    with pytest.raises(error, match=message):
        call()
    assert capfd.readouterr().err == "", "nothing is printed besides"


def test_error_names_the_readers_line():
    first = wrong_kernel.fn.__code__.co_firstlineno
    with pytest.raises(CompileError, match=rf"at {first - first + 1}|at \d+:\d+") as caught:
        compile_kernel(wrong_kernel, empty(), BLOCK=16)
    assert "tl.store(x_ptr + offsets, not_defined_anywhere)" in str(caught.value)


def test_the_worker_survives_its_own_death():
    compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=256)
    module._worker.process.kill()
    module._worker.process.wait()
    assert compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=64, num_warps=2).registers > 0


def test_cache_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "STORE", tmp_path / "none")
    module._compiled.cache_clear()
    first = compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=512)
    (entry,) = (tmp_path / "compiled").iterdir()
    module._compiled.cache_clear()
    monkeypatch.setattr(module._worker, "ask", lambda request: pytest.fail("compiled again"))
    assert compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=512) == first
    monkeypatch.undo()
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "STORE", tmp_path / "none")
    module._compiled.cache_clear()
    entry.write_bytes(gzip.compress(b"{damaged"))
    assert compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=512) == first
    monkeypatch.setenv("COURSE_CACHE", "/proc/nowhere")
    module._compiled.cache_clear()
    assert compile_kernel(gelu_kernel, empty(), empty(), 5, BLOCK=512) == first


def test_opcodes_are_instructions_only():
    ptx = """
    .visible .entry k(.param .u64 p) // ld.global in a comment
    { .reg .b32 %r<3>;
    $L1: @%p1 ld.global.v4.b32 {%r1, %r2}, [%rd1]; /* st.global */
    @!%p2 st.global.L1::evict_last.b32 [%rd1], %r1; ld.globalx.b32 %r1, [%rd2];
    bra $L1; }"""
    assert opcodes(ptx) == ["ld.global.v4.b32", "st.global.L1::evict_last.b32", "ld.globalx.b32", "bra"]


def test_shipped_results_are_what_the_compiler_says_today():
    """A sample of the store, compiled again: the same code, and made by the pinned Triton."""
    entries = sorted(module.STORE.glob("*.json.gz"))
    for entry in entries:
        stored = module._read(entry)
        assert stored is not None and stored.compiler == module._triton_version(), f"{entry.name} is stale"
