"""The SIMT machine: what it counts, how warps diverge and meet, what it says about wrong kernels and wrong launches."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import simt
from helpers.cuda.nvrtc import compile_cuda, source_text
from helpers.simt import cfg, ptx
from helpers.simt.races import RaceChecker

KERNEL = 'extern "C" __global__ void k(%s) { int t = threadIdx.x; %s }'
SHARED = KERNEL % ("float* x, int n", "__shared__ float s[128]; %s")
MATMUL = re.search(r".*?void tiled_matmul\(.*?\n}\n", source_text("matmul.cu")[1], flags=re.DOTALL).group()
VEC_ADD = source_text("vec_add.cu")[1]


def run(source, args, grid=1, block=32, name="k", target="sm_90", options=(), **kw):
    return simt.run(compile_cuda(source, name, target, options), grid, block, args, **kw)


def ones(n=128):
    return np.ones(n, np.float32)


# ------------------------------------------------------------------------------------------------ sectors


def load_of(order, element="float", base=0) -> simt.report.Count:
    """The load of a warp whose lane i reads element order[i]."""
    size = {"char": 1, "short": 2, "float": 4, "float2": 8, "float4": 16}[element]
    x = torch.zeros(4096 * size + base, dtype=torch.uint8)[base:]
    report = run(KERNEL % ("const E* x, const int* at, E* y", "y[t] = x[at[t]];"),
                 [x, np.asarray(order, np.int32), np.zeros(32 * size, np.uint8)], options=(f"-DE={element}",))
    loads = [c for c in report.counts if c.kind == "global load" and c.bytes == 32 * size]
    return loads[-1]


LANE = np.arange(32)


@pytest.mark.parametrize("order,sectors", [
    (LANE, 4), (LANE ^ 5, 4), (LANE[::-1], 4), (LANE + 1, 5), (LANE + 7, 5), (LANE + 8, 4), (LANE * 2, 8), (LANE * 4, 16),
    (LANE * 8, 32), (LANE * 16, 32), (LANE * 64, 32), (LANE * 0, 1), (LANE // 2, 2),
])
def test_sectors_of_a_warp(order, sectors):
    """CUDA C++ Best Practices Guide, coalesced access: 32-byte sectors."""
    count = load_of(order)
    assert (count.requests, count.sectors) == (1, sectors)


@pytest.mark.parametrize("element,sectors", [("char", 1), ("short", 2), ("float", 4), ("float2", 8), ("float4", 16)])
def test_wider_elements_take_more_sectors(element, sectors):
    assert load_of(LANE, element).sectors == sectors
    assert load_of(LANE * 32, element).sectors == 32


def test_a_view_is_as_misaligned_as_its_offset():
    assert load_of(LANE, "float", base=4).sectors == 5
    assert load_of(LANE, "float", base=32).sectors == 4
    x = np.zeros(100, np.float32)
    report = simt.run(compile_cuda("vec_add.cu", "vec_add"), 1, 32, [x[1:33], x[40:72], np.zeros(32, np.float32), 32])
    assert [c.sectors for c in report.counts if c.kind == "global load"].count(5) == 1


def test_only_active_lanes_are_counted():
    report = run(KERNEL % ("float* x, int n", "if (t < n) x[t * 8] = 1;"), [np.zeros(256, np.float32), 5])
    store = report.of("global store")
    assert (store.executed, store.lanes, store.requests, store.sectors, store.bytes) == (1, 5, 1, 5, 20)
    report = run(KERNEL % ("float* x, int n", "if (t < n) x[t * 8] = 1;"), [np.zeros(256, np.float32), 0], block=64)
    assert report.of("global store").requests == 0 and report.requests == 0


# ------------------------------------------------------------------------------------------------ banks


def shared_load(order, element="float"):
    size = {"float": 4, "float2": 8, "float4": 16}[element]
    report = run(KERNEL % ("const int* at, E* y", "extern __shared__ E s[]; for (int i = t; i < 1100; i += 32) s[i] = y[0];"
                           "__syncthreads(); y[t] = s[at[t]];"),
                 [np.asarray(order, np.int32), np.zeros(32 * size, np.uint8)], options=(f"-DE={element}",),
                 shared_bytes=1100 * size)
    return report.of("shared load")


@pytest.mark.parametrize("order,passes", [
    (LANE, 1), (LANE * 0, 1), (LANE // 4, 1), (LANE ^ 21, 1), (LANE * 2, 2), (LANE * 3, 1), (LANE * 4, 4), (LANE * 8, 8),
    (LANE * 16, 16), (LANE * 32, 32), (LANE * 33, 1), (LANE % 2 * 32, 2), (LANE * 31, 1),
])
def test_passes_of_shared_memory(order, passes):
    count = shared_load(order)
    assert (count.requests, count.wavefronts, count.conflicts) == (1, passes, passes - 1)


def test_a_column_of_a_tile_conflicts_unless_padded():
    conflicts = {}
    for version in ("tiled", "padded"):
        x, y = np.zeros((32, 32), np.float32), np.zeros((32, 32), np.float32)
        report = simt.run(compile_cuda("transpose.cu", f"transpose_{version}"), 1, (32, 8), [x, y, 32, 32])
        conflicts[version] = report.bank_conflicts
        assert report.of("shared load").requests == 32
    assert conflicts == {"tiled": 32 * 31, "padded": 0}


# ------------------------------------------------------------------------------------------------ other counts


def test_the_report_adds_up():
    n = 1000
    report = simt.run(compile_cuda("vec_add.cu", "vec_add", "sm_90"), 4, 256, [ones(n), ones(n), ones(n), n])
    assert (report.requests, report.sectors, report.sectors_per_request) == (96, 375, 375 / 96)
    assert report.divergent_branches == 1  # the last warp, of which 8 lanes have an element
    assert report.efficiency == 1 and report.bank_conflicts == 0
    table = report.table()
    assert isinstance(table, pd.DataFrame) and table["executed"].sum() == report.instructions
    assert set(table.loc[table["kind"] == "global load", "source_line"]) == {6}
    assert report.by_kind().set_index("kind")["requests"]["global load"] == 64
    summary = report.summary()
    assert summary["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 64
    assert summary["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 125
    assert report.source_file == "vec_add.cu"


def test_local_memory_is_counted():
    """An array with indices known only at run time. Word k of all lanes lies side by side: 4 sectors a request."""
    x, at = np.arange(32 * 16, dtype=np.float32), np.zeros(64, np.int32)
    report = run(KERNEL % ("float* x, int* at", "float a[16]; for (int i = 0; i < 16; i++) a[i ^ at[i]] = x[t * 16 + i];"
                           "x[t] = a[at[t] + 3];"), [x, at])
    assert (x[:32] == np.arange(32) * 16 + 3).all()
    store, load = report.of("local store"), report.of("local load")
    assert (store.requests, store.sectors, load.requests, load.sectors) == (16, 64, 1, 4)


def test_atomics_add_up_whatever_the_contention():
    x, bins = np.arange(1000, dtype=np.int32) % 7, np.zeros(7, np.int32)
    report = run(KERNEL % ("int* x, int* bins, int n", "int i = blockIdx.x * blockDim.x + t; if (i < n) atomicAdd(bins + x[i], "
                           "i);"), [x, bins, 1000], grid=4, block=256)
    assert (bins == [np.arange(1000)[x == k].sum() for k in range(7)]).all()
    assert report.of("global reduction").requests + report.of("global atomic").requests == 32
    old = np.zeros(64, np.int32)
    run(KERNEL % ("int* y, int* c", "y[t] = atomicAdd(c, 1); atomicCAS(c + 1, 0, t + 1); atomicMax(c + 2, t * 37 % 64);"),
        [old, count := np.zeros(3, np.int32)], block=64)
    assert sorted(old) == list(range(64)) and count.tolist() == [64, 1, 63]


# ------------------------------------------------------------------------------------------------ divergence


def test_diverged_lanes_meet_again():
    """Both sides of a branch run, with their own lanes, and what follows is executed once for the whole warp."""
    x = ones(32)
    report = run(KERNEL % ("float* x, float* y", "if (t < 10) x[t] += y[t]; else x[t] *= y[t + 32]; y[t + 64] = x[t];"),
                 [x, y := np.arange(96, dtype=np.float32)])
    assert (y[64:] == np.where(LANE < 10, 1 + LANE, 32 + LANE)).all()
    assert report.divergent_branches == 1
    stores = [c for c in report.counts if c.kind == "global store"]
    assert stores[-1].requests == 1 and stores[-1].lanes == 32


def test_loops_of_different_length_meet_at_their_end():
    y = np.zeros(64, np.int32)
    report = run(KERNEL % ("int* y, int n", "int v = 0; for (int i = 0; i < t; i++) { if (v > 50) { v += 1000; break; } "
                           "if (i & 1) continue; v += i; } y[t] = v;"), [y, 0], block=64)

    def expected(t):
        v = 0
        for i in range(t):
            if v > 50:
                return v + 1000
            v += 0 if i & 1 else i
        return v
    assert y.tolist() == [expected(t) for t in range(64)]
    assert report.of("global store").requests == 2 and report.of("global store").lanes == 64


def test_switch_goes_through_a_table():
    cases = " ".join(f"case {i}: v = v * {i + 3} + {i}; {'break;' if i % 3 else ''}" for i in range(12))
    source = KERNEL % ("int* y", f"int v = t; switch (t % 13) {{ {cases} default: v = -1; }} y[t] = v;")
    y = np.zeros(32, np.int32)
    run(source, [y])

    def expected(t):
        v, i = t, t % 13
        while i < 12:
            v = v * (i + 3) + i
            if i % 3:
                return v
            i += 1
        return -1
    assert y.tolist() == [expected(t) for t in range(32)]


def test_where_paths_join():
    """Post-dominators of a hand-written kernel: a branch over a block, inside a loop, and an early return."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {
 .reg .pred %p<4>;
 .reg .b32 %r<4>;
 mov.u32 %r1, %tid.x;
 setp.eq.u32 %p1, %r1, 3;
 @%p1 bra DONE;
LOOP:
 and.b32 %r2, %r1, 1;
 setp.eq.u32 %p2, %r2, 0;
 @%p2 bra JOIN;
 add.u32 %r1, %r1, 1;
JOIN:
 sub.u32 %r1, %r1, 2;
 setp.gt.s32 %p3, %r1, 0;
 @%p3 bra LOOP;
DONE:
 ret;
}"""
    blocks = cfg.basic_blocks(ptx.parse(text))
    assert [b.joins for b in blocks] == [4, 3, 3, 4, 5]
    assert [b.successors for b in blocks] == [[4, 1], [3, 2], [3], [1, 4], [5]]


def test_shuffles_and_votes_of_a_partial_warp():
    y = np.zeros((3, 40), np.uint32)
    run(KERNEL % ("unsigned* y", "unsigned m = __activemask(); y[t] = __shfl_xor_sync(m, t, 1); y[40 + t] = m;"
                  "y[80 + t] = __ballot_sync(m, t % 3 == 0);"), [y], block=40)
    assert (y[0] == (np.arange(40) ^ 1)).all()
    assert (y[1] == [2**32 - 1] * 32 + [255] * 8).all()
    bits = [sum(1 << i for i in range(32) if i % 3 == 0), sum(1 << i for i in range(8) if (32 + i) % 3 == 0)]
    assert (y[2] == [bits[0]] * 32 + [bits[1]] * 8).all()


def test_three_dimensions_and_many_blocks():
    y = np.zeros((2, 3, 5, 4, 3, 2), np.int32)  # grid z y x, block z y x
    source = """extern "C" __global__ void k(int* y) {
        int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        y[block * 24 + t] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * (threadIdx.x + 10 * threadIdx.y
            + 100 * threadIdx.z) + 1000000 * warpSize; }"""
    run(source, [y], grid=(5, 3, 2), block=(2, 3, 4))
    z, yy, x, tz, ty, tx = np.indices(y.shape)
    assert (y == x + 10 * yy + 100 * z + 1000 * (tx + 10 * ty + 100 * tz) + 32_000_000).all()


# ------------------------------------------------------------------------------------------------ wrong kernels


def test_an_index_off_by_one():
    args = [ones(1000), ones(1000), ones(1000), 1000]
    with pytest.raises(simt.OutOfBounds, match=r"Thread \(232, 0, 0\) of block \(3, 0, 0\) read float32 element 1000 of "
                                               r"argument 1, which has elements 0 to 999. \(line 6 of cell.cu.*ld.global"):
        run(VEC_ADD.replace("i < n", "i <= n"), args, 4, 256, "vec_add")
    with pytest.raises(simt.OutOfBounds, match=r"read float32 element -1 of argument 1, which has elements 0 to 999"):
        run(VEC_ADD.replace("b[i]", "b[i - 1]"), args, 4, 256, "vec_add")
    with pytest.raises(simt.OutOfBounds, match=r"wrote byte 512 of the block's shared memory, which has 512 bytes"):
        run(SHARED % "s[t + n] = x[t]; __syncthreads(); x[t] = s[t];", [ones(), 1], block=128)


def test_nothing_outside_a_view_is_touched():
    whole = np.ones(100, np.float32)
    with pytest.raises(simt.OutOfBounds, match="element 10 of argument 2, which has elements 0 to 9"):
        simt.run(compile_cuda("vec_add.cu", "vec_add"), 1, 32, [ones(11), ones(11), whole[20:30], 11])
    assert (whole[30:] == 1).all()


@pytest.mark.parametrize("which", ["index", "rindex"])
def test_a_removed_barrier_is_a_race(which):
    at = getattr(MATMUL, which)("__syncthreads")
    args = [np.ones((40, 40), np.float32), np.ones((40, 40), np.float32), np.ones((40, 40), np.float32), 40, 40, 40]
    broken = MATMUL[:at] + "//" + MATMUL[at:]
    with pytest.raises(simt.Race, match=r"Thread .* and no barrier lies between them.*__syncthreads\(\) is missing"):
        run(broken, args, (2, 2), (32, 32), "tiled_matmul")
    report = run(broken, args, (2, 2), (32, 32), "tiled_matmul", races="report")
    assert 1 <= len(report.races) <= 4 and all("cell.cu" in sentence for sentence in report.races)
    assert run(broken, args, (2, 2), (32, 32), "tiled_matmul", races=False).races == []
    assert run(MATMUL, args, (2, 2), (32, 32), "tiled_matmul").races == []


def test_races_inside_a_warp_need_a_warp_barrier():
    swap = "s[t] = x[t]; %s x[t] = s[t ^ 1];"
    with pytest.raises(simt.Race):
        run(SHARED % swap % "", [ones(), 0])
    run(SHARED % swap % "__syncwarp();", [x := np.arange(32, dtype=np.float32), 0])
    assert (x == (LANE ^ 1)).all()
    with pytest.raises(simt.Race):  # of two warps
        run(SHARED % "s[t] = x[t]; __syncwarp(); x[t] = s[t ^ 32];", [ones(), 0], block=64)
    with pytest.raises(simt.Race, match="different values"):
        run(SHARED % "s[n] = t; __syncthreads(); x[t] = s[n];", [ones(), 5])
    run(SHARED % "s[n] = 7; __syncthreads(); x[t] = s[n];", [x := ones(), 5], block=128)  # all write the same
    assert (x == 7).all()


def test_a_warps_tree_of_sums_is_no_race():
    """A lane reads its own word after another lane did, and a warp barrier later writes it."""
    run(SHARED % """s[t] = x[t]; s[t + 32] = 0; __syncwarp();
        for (int o = 16; o; o >>= 1) { float v = s[t + o]; __syncwarp(); s[t] += v; __syncwarp(); } x[t] = s[0];""", [x := ones(32), 0])
    assert (x == 32).all()
    with pytest.raises(simt.Race, match=r"Thread \(0, 0, 0\).* wrote it .*thread \(4, 0, 0\) read it"):  # the barrier is for others
        run(SHARED % "s[t] = 1; __syncwarp(); if (t < 8) { x[t] = s[t ^ 4]; if (t == 4 || t == 5) __syncwarp(0x30); if (t < 2) s[t] = 2; }",
            [ones(), 0])


@pytest.mark.parametrize("options", [(), ("-G",)])
def test_neighbouring_bytes_of_different_threads_are_no_race(options):
    """Not either where the compiler does not say that an address is one of shared memory."""
    body = """struct Q { char a[3]; char b; }; __shared__ Q s[64]; char* p = (char*)s; for (int i = 0; i < 4; i++) p[(t * 33 + 64 * i) % 256] = t;
        __syncthreads(); y[t] = p[(t * 33) % 256];"""
    run(KERNEL % ("int* y", body), [y := np.zeros(64, np.int32)], 1, 64, options=options)
    t = np.arange(64)
    written = {int(at): int(thread) for i in range(4) for thread, at in zip(t, (t * 33 + 64 * i) % 256, strict=True)}
    assert len(written) == 256 and (y == [written[int(at)] for at in t * 33 % 256]).all()


def test_races_are_those_of_the_definition():
    """Random accesses and barriers: the first race that the checker sees is the first unordered pair."""
    found = [_first_race(seed) for seed in range(300)]
    assert all(checker == pairs for checker, pairs in found) and sum(pairs < 40 for _, pairs in found) > 100


def _first_race(seed, lanes=64, steps=40):
    """The step of the first race: as the checker says, and from all pairs of accesses with a clock for each lane."""
    rng, known, log = np.random.default_rng(seed), np.zeros((lanes, lanes), int), []
    threads = SimpleNamespace(blocks=[0], name=str, index=int)
    machine = SimpleNamespace(lanes=lanes, threads=threads, place=str,
                              kernel=SimpleNamespace(instructions=[SimpleNamespace(index=i) for i in range(steps)]))
    checker = RaceChecker(machine, 48, 4, True, {})
    for step in range(steps):
        kind, warp = rng.choice(["read", "write", "meet", "all meet"], p=[0.3, 0.1, 0.5, 0.1]), rng.integers(2)
        here = 32 * warp + np.sort(rng.choice(32, rng.choice([1, 2, 20, 32] if kind == "meet" else [1, 2, 3]), replace=False))
        if kind == "all meet":
            checker.barrier([0])
            known[:] = known.max(axis=0) + 1
        elif kind == "meet":
            members = np.zeros(lanes, bool)
            members[here] = True
            checker.warps(members.reshape(-1, 32))
            latest = known[here].max(axis=0)
            latest[here] += 1
            known[here] = latest
        else:
            here = here[:1] if kind == "write" else here
            words = rng.integers(0, 12, len(here))
            unordered = any(word == other_word and lane != other and "write" in (kind, other_kind) and time >= known[lane, other]
                            for lane, word in zip(here, words, strict=True) for other, time, other_word, other_kind in log)
            log += [(lane, known[lane, lane], word, kind) for lane, word in zip(here, words, strict=True)]
            try:
                extra = (False,) if kind == "write" else ()
                getattr(checker, kind)(machine.kernel.instructions[step], here, words * 4, 4, False, *extra)
            except simt.Race:
                return step, step if unordered else None
            if unordered:
                return None, step
    return steps, steps


@pytest.mark.parametrize("body,reason", [
    ("s[t] = x[t]; if (t < 16) __syncthreads(); x[t] = s[t];", r"thread \(16, 0, 0\).*took another path"),
    ("s[t] = x[t]; if (t < 32) __syncthreads(); x[t] = s[t];", r"thread \(32, 0, 0\).*has ended"),
    ("if (t >= 100) return; s[t] = x[t]; __syncthreads(); x[t] = s[t];", r"thread \(100, 0, 0\)"),
    ("if (t < 32) { s[t] = x[t]; __syncthreads(); x[t] = s[t]; } else { x[t] = 1; __syncthreads(); x[t] += x[t - 32]; }",
     r"waits at another one"),
])
def test_a_barrier_that_not_all_reach(body, reason):
    with pytest.raises(simt.UnreachedBarrier, match=reason) as found:
        run(SHARED % body, [ones(), 0], block=128)
    assert "Every thread of a block must come to the same __syncthreads()" in str(found.value)


def test_a_shuffle_that_not_all_reach():
    with pytest.raises(simt.Deadlock, match=r"Thread \(1, 0, 0\).*names lane 0, which took another path"):
        run(SHARED % "if (t & 1) x[t] = __shfl_xor_sync(0xffffffff, x[t], 2);", [ones(), 0])


def test_other_faults():
    with pytest.raises(simt.TooLong, match="endless loop"):
        run(SHARED % "while (x[t] < 2) if (n > 5) n--;", [ones(), 9], limit=20_000)
    for body in ("while (true) __threadfence();", "while (((volatile float*)x)[0] > 0);", "for (int i = t; i < 128;) x[i] = 2;",
                 "while (atomicAdd(x, 0.f) > 0); __syncthreads();", "if (t == 40) while (((volatile float*)x)[0] > 0); __syncthreads();"):
        with pytest.raises(simt.TooLong, match=r"is in an endless loop: after 20\d\d instructions nothing changes any more"):
            run(SHARED % body, [ones(), 9], block=64)
    steps = run(SHARED % "for (int i = 0; i < n; i++) { float v = atomicAdd(x, 0.f); while (v > 1) v = x[1]; }", [ones(), 3000], block=1).instructions
    assert steps > 9000
    with pytest.raises(simt.Misaligned, match="read 16 bytes at an address that is not a multiple of 16"):
        run(KERNEL % ("float4* x", "float4 v = x[t]; v.x += 1; x[t] = v;"), [torch.zeros(129)[1:]])
    with pytest.raises(simt.Trap, match=r"Thread \(7, 0, 0\)"):
        run(SHARED % "if (t == 7) __trap();", [ones(), 0])
    half_written = SHARED % "if (t < 64) s[t] = 1; __syncthreads(); x[t] = s[127 - t];"
    with pytest.raises(simt.Uninitialised, match="byte 508 of shared memory"):
        run(half_written, [ones(), 0], block=128, uninitialised=True)
    run(half_written, [x := ones(), 0], block=128)
    assert np.isnan(x[:64]).all() and (x[64:] == 1).all()  # never a plausible zero


def test_wrong_types():
    add, x = compile_cuda("vec_add.cu", "vec_add"), ones(64)
    for args, sentence in [
        ([x, x, x], "takes 4 arguments .* got 3"), ([x, x, x, x], "argument 3 .* is a number .* got an array"),
        ([1, x, x, 64], "argument 0 .* is a pointer and needs an array, got int 1"),
        ([x, x, x, 64.0], "argument 3 .* whole number, got float 64.0"), ([x, x, x, True], "got bool True"),
        ([x, x, x, 2**64], "does not fit into 64 bits"), ([x, x, x, "64"], "got str"), ([x, x, x[::-1], 64], "strides"),
        ([torch.empty(64, device="meta"), x, x, 64], "is on meta"), ([x.astype(">f4"), x, x, 64], "argument 0 is an array of >f4.*byte order"),
        ([x.astype(object), x, x, 64], "array of object"), ([np.array(["a"] * 64), x, x, 64], "array of <U1"),
        ([torch.ones(64).to_sparse(), x, x, 64], "argument 0 is a tensor .*sparse_coo.*to_dense"),
        ([torch.ones(64, dtype=torch.complex64).conj().imag, x, x, 64], "resolve_neg"), ([[1.0] * 10**6, x, x, 64], r"got list \[1.0, .{9,40}\]$"),
        (x, "args must be a list of arrays and numbers, got ndarray"), (None, "args must be a list .* got NoneType"),
    ]:
        with pytest.raises(TypeError, match=sentence):
            simt.run(add, 2, 32, args)
    with pytest.raises(simt.WrongType, match="argument 0 as float32, but it is an array of float64"):
        run(VEC_ADD, [np.ones(64), x, x, 64], 2, 32, "vec_add")
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        with pytest.raises(simt.WrongType, match=f"argument 0 as float32, but it is an array of {name}"):
            run(VEC_ADD, [torch.ones(128, dtype=dtype), x, x, 64], 2, 32, "vec_add")
    run(VEC_ADD, [torch.ones(32, dtype=torch.complex64), x, x.view(np.complex64), 64], 2, 32, "vec_add")  # pairs of floats
    with pytest.raises(simt.WrongType, match="argument 1 as float32, but it is an array of int32"):
        run(VEC_ADD, [x, np.ones(64, np.int32), x, 64], 2, 32, "vec_add")


def test_wrong_launches():
    add, args = compile_cuda("vec_add.cu", "vec_add"), [ones(64), ones(64), ones(64), 64]
    for grid, block, kw, sentence in [(1, 1025, {}, "1024"), (-1, 32, {}, "grid"), (2**30, 32, {}, "hours"),
                                      (1, 32, {"shared_bytes": 2**20}, "shared_bytes"), (1, 32, {"trace": 7}, "trace"),
                                      (1, 32, {"trace": (1, 0)}, "trace"), (1, 32, {"races": "raport"}, "races must be"),
                                      (1, 32, {"limit": 0}, "limit"), (1, 32, {"limit": None}, "limit"),
                                      (1, 32, {"shared_bytes": 99 * 1024 + 1}, "sm_120 grants at most 101376")]:
        with pytest.raises(ValueError, match=sentence):
            simt.run(add, grid, block, args, **kw)
    simt.run(compile_cuda("vec_add.cu", "vec_add", "sm_90"), 1, 32, args, shared_bytes=227 * 1024)
    declares = compile_cuda(KERNEL % ("float* x", "__shared__ float s[9999]; s[t] = x[t]; __syncthreads(); x[t] = s[t ^ 1];"), "k")
    with pytest.raises(ValueError, match="declared: 40000, shared_bytes: 65536"):
        simt.run(declares, 1, 32, args[:1], shared_bytes=2**16)
    bounded = compile_cuda('extern "C" __global__ void __launch_bounds__(64) k(float* x) { x[threadIdx.x] = 2; }', "k")
    with pytest.raises(ValueError, match=r"at most 64 threads \(__launch_bounds__\), got \(16, 5, 1\): a GPU refuses"):
        simt.run(bounded, 1, (16, 5), args[:1])
    simt.run(bounded, 1, 64, args[:1])
    assert (args[0] == 2).all()
    with pytest.raises(TypeError, match="PTX text or a compiled kernel"):
        simt.run(7, 1, 32, args)
    with pytest.raises(simt.SimtError, match="no kernel 'other'"):
        simt.run(add, 1, 32, args, kernel="other")
    for text, sentence in (("", "this text has no kernel"), (VEC_ADD, "this text has no kernel"),
                           (add.ptx[:900], r"PTX line 21: the text ends before the brace closes that opens here")):
        with pytest.raises(simt.SimtError, match=sentence):
            simt.run(text, 1, 32, args)


WRITTEN_BY_HAND = """
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .f32 table[4] = {1.0, 0f40000000, -3.5, 4e1};
.const .align 4 .u32 counts[2] = {0x10, 7U};
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred p; .reg .f32 f<4>, g; .reg .u32 r, i; .reg .u64 a, b, o;
  ld.param.u64 a, [x]; ld.param.u64 b, [y]; ld.param.u32 r,[n];
  mov.u32 i, %tid.x; setp.ge.u32 p, i, r; @p bra $done;
  mul.wide.u32 o, i, 4; add.u64 a, a, o; add.u64 b, b, o;
  ld.global.f32 f0, [a]; add.f32 f1, f0, 1.5; mul.f32 f1, f1, -2.0; fma.rn.f32 f1, f1, 1.0, .5;
  { .reg .f32 f1; mov.f32 f1, 0f00000000; }
  mov.u64 o, table; ld.global.f32 g, [o+8]; add.f32 f1, f1, g; ld.const.u32 i, [counts+4]; cvt.rn.f32.u32 g, i; add.f32 f1, f1, g;
  st.global.f32 [b], f1;
$done: ret;
}"""


def test_ptx_written_by_hand():
    """Several statements on a line, names without %, numbers with a decimal point; and a file with the line ends of Windows."""
    for text in (WRITTEN_BY_HAND, WRITTEN_BY_HAND.replace("\n", "\r\n")):
        x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
        simt.run(text, 1, 32, [x, y, 30])
        assert (y[:30] == (x[:30] + 1.5) * -2 + 0.5 - 3.5 + 7).all() and (y[30:] == 0).all()
    for old, new in (("1.5", "1.5.2"), ("mov.u32 i, %tid.x", "mov.u32 i, 1.5"), ("-3.5", "x"), ("7U", "07U")):
        with pytest.raises(simt.UnknownInstruction):
            simt.run(WRITTEN_BY_HAND.replace(old, new), 1, 32, [x, y, 30])


def test_unknown_instructions_stop_the_run_before_it_starts():
    text = compile_cuda("vec_add.cu", "vec_add", "sm_90").ptx
    x = ones(32)
    for old, new in (("add.f32", "frob.f32"), ("add.f32", "add.rq.f32"), ("ld.global.f32", "ld.global.newhint.f32"),
                     ("setp.ge.s64", "setp.hx.s64"), ("bra ", "bra.multi ")):
        with pytest.raises(simt.UnknownInstruction, match="PTX line"):
            simt.run(text.replace(old, new), 1, 32, [x, x, out := np.zeros(32, np.float32), 32])
    assert (out == 0).all()


# ------------------------------------------------------------------------------------------------ runs


def test_blocks_run_in_a_shuffled_order():
    """A kernel in which block b + 1 needs what block b wrote."""
    chain = KERNEL % ("volatile int* y", "if (t == 0) y[blockIdx.x + 1] = y[blockIdx.x] + 1;")
    results = set()
    for seed in (0, 1, 2):
        y = np.zeros(2001, np.int32)
        run(chain, [y], 2000, 1024, shuffle=seed)
        results.add(tuple(y))
    assert len(results) > 1


def test_arrays_are_written_in_place_whatever_they_are():
    add = compile_cuda("vec_add.cu", "vec_add")
    tensor, strided = torch.zeros(40), torch.zeros(2, 80)[:, ::2]
    simt.run(add, 2, 32, [torch.ones(40), ones(40), tensor, 40])
    assert (tensor == 2).all()
    simt.run(add, 3, 32, [ones(79), ones(79), strided[1], 79])  # bytes from first to last element, gaps included
    assert (strided[1] == 2).all() and (strided[0] == 0).all()
    simt.run(add, 1, 32, [tensor, tensor, tensor, 32])
    assert (tensor[:32] == 4).all() and (tensor[32:] == 2).all()
    simt.run(add, 1, 32, [ones(0), ones(0), ones(0), 0])
    assert simt.run(add, 0, 32, [tensor, tensor, tensor, 32]).requests == 0
    readonly = np.broadcast_to(np.float32(1), 40)
    with pytest.raises(simt.OutOfBounds):
        simt.run(add, 2, 32, [ones(40), ones(40), readonly, 40])


def test_constants_and_device_variables():
    source = """__constant__ float table[4] = {1.5f, -2.0f, 0.25f, 8.0f};
    __device__ int total = 5;
    extern "C" __global__ void k(float* y, int* n) { y[threadIdx.x] = table[threadIdx.x & 3]; atomicAdd(&total, 2);
        __syncthreads(); if (threadIdx.x == 0) *n = total; }"""
    run(source, [y := np.zeros(32, np.float32), n := np.zeros(1, np.int32)])
    assert (y == np.tile([1.5, -2, 0.25, 8], 8)).all() and n[0] == 5 + 64


def test_double_precision_and_library_functions():
    x = np.linspace(0.1, 3, 32).astype(np.float32)
    y, z = np.zeros(32), np.zeros((5, 32), np.float32)
    run(KERNEL % ("const float* x, double* y, float* z", "y[t] = fma((double)x[t], 1.1, -0.3) / 7.0 + sqrt((double)t);"
                  "z[t] = sinf(x[t] * 1e6f); z[32 + t] = expf(x[t]); z[64 + t] = logf(x[t]); z[96 + t] = powf(x[t], 1.5f);"
                  "z[128 + t] = tanhf(x[t]);"), [x, y, z])
    wide = x.astype(np.float64)
    assert np.abs(y - ((wide * 1.1 - 0.3) / 7 + np.sqrt(LANE))).max() < 1e-15 * 8
    expected = [np.sin((x * np.float32(1e6)).astype(np.float64)), np.exp(wide), np.log(wide), wide**1.5, np.tanh(wide)]
    assert np.abs(z - expected).max() < 5e-6


def test_trace_of_a_warp():
    n = 1000
    report = simt.run(compile_cuda("vec_add.cu", "vec_add", "sm_90"), 4, 256, [ones(n), ones(n), ones(n), n], trace=(3, 7))
    assert len(report.trace) == 24 and all(s.source_line in (3, 5, 6, 7) for s in report.trace)
    load = next(s for s in report.trace if s.access)
    assert load.active.sum() == 8 and load.access.where == "argument 1" and load.access.cost == 1
    assert (load.access.offsets[:8] == 4 * np.arange(992, 1000)).all() and load.access.size == 4
    total = next(s for s in report.trace if s.text.startswith("add.f32"))
    assert (total.registers["%f3"][:8] == 2).all()
    assert report.trace[-1].text == "ret" and report.trace[-1].active.all()
    assert simt.run(compile_cuda("vec_add.cu", "vec_add"), 4, 256, [ones(n), ones(n), ones(n), n]).trace == []


def test_stepping_view():
    from figures.simt import show_step, step_alt, step_control

    report = simt.run(compile_cuda("vec_add.cu", "vec_add", "sm_90"), 4, 256, [ones(1000)] * 3 + [1000], trace=(3, 7))
    alts = {step_alt(report.trace, step) for step in range(step_control(report)[1] + 1)}
    assert len(alts) == len(report.trace)
    first, last = (show_step(report, step, lanes=(0, 7, 8), source=VEC_ADD) for step in (0, 23))
    assert first.fingerprint != last.fingerprint and {first.alt, last.alt} <= alts
    assert any("8 of 32 lanes" in alt and "bytes 3,968 to 3,999: 1 sector" in alt for alt in alts)
    with pytest.raises(ValueError, match="step must be 0 to 23"):
        show_step(report, 24)
    with pytest.raises(ValueError, match="no trace"):
        show_step(simt.run(compile_cuda("vec_add.cu", "vec_add"), 1, 32, [ones(1000)] * 3 + [9]))
