"""Occupancy against printed examples, NVIDIA's own header compiled here, and what a driver answered."""

import itertools
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
from hypothesis import given
from hypothesis import strategies as st

from helpers import mode
from helpers.experiments.occupancy import driver_answers
from helpers.kernels.fma_chain import fma_chain_reference
from helpers.lesson import check
from helpers.limits import limits_of
from helpers.occupancy import RESOURCES, occupancy
from helpers.results import recorded
from helpers.specs import capabilities, limits

HEADER = Path(triton.__file__).parent / "backends/nvidia/include/cuda_occupancy.h"


@pytest.mark.parametrize(("registers", "shared", "by", "blocks", "warps", "fraction"), [
    (32, 0, (8, 8, None, 32), 8, 64, 1.0),
    (64, 0, (8, 4, None, 32), 4, 32, 0.5),
    (32, 48 * 1024, (8, 8, 4, 32), 4, 32, 0.5),
    (80, 0, (8, 3, None, 32), 3, 24, 0.375),
])
def test_h100_rows_with_256_threads(registers, shared, by, blocks, warps, fraction):
    o = occupancy("H100", 256, registers, shared)
    assert (o.by_threads, o.by_registers, o.by_shared, o.by_blocks) == by
    assert (o.blocks, o.warps, o.fraction) == (blocks, warps, fraction)


@pytest.mark.parametrize(("target", "threads", "registers", "shared", "blocks", "limiter"), [
    ("sm_90", 256, 32, 0, 8, "threads"),
    ("sm_90", 256, 33, 0, 6, "registers"),  # unrounded registers would give 7
    ("sm_90", 256, 40, 0, 6, "registers"),
    ("sm_90", 256, 41, 0, 5, "registers"),
    ("sm_90", 320, 37, 0, 4, "registers"),  # Best Practices Guide 11.1.1: 63 %
    ("sm_90", 128, 37, 0, 12, "registers"),  # the same: 75 %
    ("sm_90", 256, 32, 45 * 1024, 4, "shared memory"),  # without the reserve 5
    ("sm_90", 33, 16, 0, 32, "threads"),
    ("sm_100", 768, 32, 0, 2, "threads"),  # Programming Guide 2.3.7, three rows
    ("sm_100", 32, 32, 0, 32, "blocks"),
    ("sm_100", 256, 32, 100 * 1024, 2, "shared memory"),
    ("sm_120", 128, 96, 32 * 1024, 3, "shared memory"),  # the article's matmul, and elsewhere
    ("A100", 128, 96, 32 * 1024, 4, "shared memory"),
    ("H100", 128, 96, 32 * 1024, 5, "registers"),
    ("RTX 3090", 128, 96, 32 * 1024, 3, "shared memory"),
    ("L4", 128, 96, 32 * 1024, 3, "shared memory"),
    ("T4", 128, 118, 16 * 1024, 4, "registers"),
    ("RTX 5090", 256, 164, 0, 1, "registers"),  # softmax of 32768 columns, num_warps 8, 16, 32
    ("RTX 5090", 512, 96, 0, 1, "registers"),
    ("RTX 5090", 1024, 51, 0, 1, "threads"),
    ("RTX 5090", 32, 40, 0, 24, "blocks"),  # row sum, num_warps 1
])
def test_printed_examples(target, threads, registers, shared, blocks, limiter):
    o = occupancy(target, threads, registers, shared)
    assert (o.blocks, o.limiter) == (blocks, limiter)
    assert o.warps == blocks * -(-threads // 32) and o.fraction == o.warps / o.max_warps
    assert limiter in o.reason and f"{blocks} block" in o.reason


def test_fractions():
    assert [occupancy("sm_90", 256, r).fraction for r in (32, 33, 40, 41)] == [1, 0.75, 0.75, 0.625]
    assert [occupancy("RTX 5090", t, r).fraction for t, r in ((256, 164), (512, 96), (1024, 51))] == [1/6, 1/3, 2/3]
    assert occupancy("T4", 128, 118, 16384).fraction == 0.5 and occupancy("sm_90", 320, 37).fraction == 0.625


def test_every_capability_has_its_own_block_limit():
    found = {cc: occupancy(cc, 32, 16) for cc in capabilities()}
    assert {cc: (o.blocks, o.warps, o.max_warps) for cc, o in found.items()} == {
        "7.5": (16, 16, 32), "8.0": (32, 32, 64), "8.6": (16, 16, 48), "8.7": (16, 16, 48), "8.9": (24, 24, 48),
        "9.0": (32, 32, 64), "10.0": (32, 32, 64), "10.3": (32, 32, 64), "11.0": (24, 24, 48), "12.0": (24, 24, 48),
        "12.1": (24, 24, 48)}
    assert {o.limiter for o in found.values()} == {"blocks"}


@pytest.mark.parametrize("args", [("sm_90", 288, 200), ("sm_90", 1024, 65), ("sm_120", 1024, 65), ("sm_75", 992, 72)])
def test_too_many_registers_cannot_launch(args):
    o = occupancy(*args)
    assert (o.blocks, o.warps, o.fraction, o.limiter) == (0, 0, 0.0, "registers")
    assert "cannot launch" in o.reason and "65536" in o.reason


@pytest.mark.parametrize(("target", "most_kib"), [("sm_75", 64), ("sm_80", 163), ("sm_86", 99), ("sm_90", 227),
                                                   ("sm_110", 227), ("sm_121", 99)])
def test_too_much_shared_memory_cannot_launch(target, most_kib):
    assert occupancy(target, 128, 32, most_kib * 1024).blocks == 1
    o = occupancy(target, 128, 32, most_kib * 1024 + 1)
    assert (o.blocks, o.limiter) == (0, "shared memory")
    assert "cannot launch" in o.reason and str(most_kib * 1024) in o.reason
    both = occupancy(target, 1024, 255, most_kib * 1024 + 1)
    assert both.limiters == ("registers", "shared memory") and "registers" in both.reason and "shared" in both.reason


@pytest.mark.parametrize(("args", "message"), [
    (("sm_90", 0, 32), r"threads a block must be a whole number, 1 to 1024; got 0"),
    (("sm_90", 1025, 32), r"got 1025"), (("sm_90", -32, 32), r"got -32"), (("sm_90", 32.0, 32), r"got 32\.0"),
    (("sm_90", True, 32), r"got True"), (("sm_90", "32", 32), r"got '32'"), (("sm_90", None, 32), r"got None"),
    (("sm_90", 32, 256), r"registers a thread must be a whole number, 0 to 255; got 256"),
    (("sm_90", 32, -1), r"got -1"), (("sm_90", 32, 40.5), r"got 40\.5"), (("sm_90", 32, False), r"got False"),
    (("sm_90", 32, 32, -1), r"shared memory must be a whole number, 0 or more; got -1"),
    (("sm_90", 32, 32, 1.5), r"got 1\.5"), (("sm_90", 32, 32, True), r"got True"),
    (("sm_90", float("nan"), 32), r"got nan"),
    (("sm_70", 32, 32), r"unknown.*sm_70.*7\.5"), (("RTX 9090", 32, 32), r"unknown.*RTX 5090"),
    ((None, 32, 32), r"which GPU"),
    # numbers that are none, or several
    (("sm_90", np.float64(256), 32), r"got np\.float64\(256\.0\)|got 256\.0"), (("sm_90", float("inf"), 32), r"got inf"),
    (("sm_90", torch.tensor(256.0), 32), r"got tensor\(256\.\)"), (("sm_90", np.array([32, 64]), 32), r"got array"),
    (("sm_90", torch.tensor([32, 64]), 32), r"got tensor"), (("sm_90", (16, 16), 32), r"got \(16, 16\)"),
    (("sm_90", torch.tensor(True), 32), r"got tensor\(True\)"), (("sm_90", np.True_, 32), r"got (np\.)?True"),
    (("sm_90", 10**30, 32), r"1 to 1024; got 1000"), (("sm_90", 256, None), r"registers.*got None"),
    (("sm_90", 256, 32, "48"), r"shared memory.*got '48'"), (("sm_90", 256, 32, None), r"shared memory.*got None"),
    # targets that are none, or that only look like one we know
    (("", 32, 32), r"unknown.*''"), ((b"sm_90", 32, 32), r"unknown"), (("sm_", 32, 32), r"unknown.*sm_"), ((90, 32, 32), r"unknown.*90"),
    (("sm_９０", 32, 32), r"unknown"), ((float("nan"), 32, 32), r"unknown.*nan"), ((True, 32, 32), r"unknown.*True"),
    (((9,), 32, 32), r"unknown"), (((9, 1), 32, 32), r"unknown.*\(9, 1\)"), ((13.0, 32, 32), r"unknown.*13"),
    (("RTX 5090 Laptop GPU", 32, 32), r"unknown.*Laptop"), (("H100 PCIe", 32, 32), r"unknown.*PCIe"),
])
def test_illegal_values_are_refused(args, message):
    with pytest.raises(ValueError, match=message):
        occupancy(*args)


def test_whole_numbers_of_every_kind_count():
    assert occupancy("sm_90", np.int64(256), torch.tensor(32), np.uint8(0)) == occupancy("sm_90", 256, 32)
    assert occupancy((np.int64(9), np.int64(0)), np.array(256), torch.tensor([32])) == occupancy("sm_90", 256, 32)
    assert occupancy("sm_90", 256, 0).by_registers is None  # an empty kernel


@pytest.mark.parametrize("name, target", [
    ("sm_120a", "sm_120"), ("sm_100f", "sm_100"), ("compute_90", "sm_90"), (" SM_90 ", "sm_90"), ("9.0", "sm_90"), (9.0, "sm_90"),
    ([9, 0], "sm_90"), (10.3, "sm_103"), (12.1, "sm_121"), (np.float64(12.0), "sm_120"), (np.float32(8.6), "sm_86"), ("SM89", "sm_89"), ("NVIDIA GeForce RTX 5090", "sm_120"),
    ("rtx5090", "sm_120"), ("NVIDIA H100 80GB HBM3", "sm_90"), ("NVIDIA A100-SXM4-80GB", "sm_80"), ("Tesla T4", "sm_75"),
    ("NVIDIA GB10", "sm_121"), ("NVIDIA B200", "sm_100"),
])
def test_ways_to_name_a_target(name, target):
    assert occupancy(name, 256, 32) == occupancy(target, 256, 32)


def test_a_gpu_newer_than_the_tables_has_no_occupancy(monkeypatch):
    monkeypatch.setattr("helpers.occupancy.limits", lambda target: limits_of((14, 0)))
    with pytest.raises(ValueError, match="limits of sm_140 are not known"):
        occupancy("NVIDIA X900", 256, 32)


def test_more_than_a_block_may_have_is_no_occupancy_but_a_reason():
    """Above the opt-in limit, and above what the whole SM has: legal to ask, impossible to launch."""
    for shared in (227 * 1024 + 1, 228 * 1024, 10**12):
        o = occupancy("sm_90", 256, 32, shared)
        assert (o.blocks, o.fraction, o.limiter) == (0, 0.0, "shared memory")
        assert f"{shared} bytes of shared memory are asked for, and a block may have 232448" in o.reason


TARGETS = st.sampled_from(capabilities())
THREADS = st.integers(1, 1024)
REGISTERS = st.integers(0, 255)
SHARED = st.integers(0, 240 * 1024)


@given(TARGETS, THREADS, REGISTERS, SHARED)
def test_what_is_resident_fits(target, threads, registers, shared):
    o, sm = occupancy(target, threads, registers, shared), limits(target)
    assert 0 <= o.blocks <= sm.max_blocks_per_sm and o.warps <= sm.max_warps_per_sm and 0 <= o.fraction <= 1
    assert o.warps * 32 * registers <= sm.registers_per_sm
    assert o.blocks * (shared + 1024 * sm.reserved_shared_kib) <= sm.shared_kib_per_sm * 1024
    assert o.limiter in RESOURCES and o.limiter == o.limiters[0] and o.limiter in o.reason
    assert ("cannot launch" in o.reason) == (o.blocks == 0)


@given(TARGETS, THREADS, REGISTERS, SHARED, st.integers(0, 64), st.integers(0, 32 * 1024))
def test_more_of_a_resource_never_fits_more_often(target, threads, registers, shared, more_registers, more_shared):
    o = occupancy(target, threads, registers, shared)
    assert occupancy(target, threads, min(255, registers + more_registers), shared).blocks <= o.blocks
    assert occupancy(target, threads, registers, shared + more_shared).blocks <= o.blocks
    assert occupancy(target, min(1024, threads + 32), registers, shared).blocks <= o.blocks
    assert occupancy(target, -(-threads // 32) * 32, registers, shared).blocks == o.blocks  # whole warps


ORACLE = r"""
#include <stdio.h>
#include "cuda_occupancy.h"
int main(void) {
    int major, minor, sm_threads, sm_shared, block_shared, reserved, threads, registers, shared;
    while (scanf("%d %d %d %d %d %d %d %d %d", &major, &minor, &sm_threads, &sm_shared, &block_shared, &reserved,
                 &threads, &registers, &shared) == 9) {
        cudaOccDeviceProp p = {0};
        cudaOccFuncAttributes a = {0};
        cudaOccDeviceState s = {0};
        cudaOccResult r;
        p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024; p.warpSize = 32; p.numSms = 1;
        p.maxThreadsPerMultiprocessor = sm_threads; p.regsPerBlock = p.regsPerMultiprocessor = 65536;
        p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = sm_shared;
        p.sharedMemPerBlockOptin = block_shared; p.reservedSharedMemPerBlock = reserved;
        a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        a.maxDynamicSharedSizeBytes = block_shared;
        s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared) != CUDA_OCC_SUCCESS)
            r.activeBlocksPerMultiprocessor = -1; // a GPU that this header is too old for
        printf("%d\n", r.activeBlocksPerMultiprocessor);
    }
    return 0;
}
"""


@pytest.mark.skipif(not HEADER.exists(), reason="this Triton ships no cuda_occupancy.h")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_nvidias_header_says_the_same(tmp_path):
    (tmp_path / "oracle.c").write_text(ORACLE)
    subprocess.run(["cc", "-w", "-O1", f"-I{HEADER.parent}", "oracle.c", "-o", "oracle"], cwd=tmp_path, check=True)
    cases = list(itertools.product(capabilities(), (1, 32, 33, 96, 160, 256, 288, 320, 992, 1024),
                                   (0, 1, 8, 16, 24, 32, 33, 40, 41, 64, 65, 72, 96, 128, 168, 200, 255),
                                   (0, 1, 1024, 12_800, 16_384, 33_000, 49_152, 50_000, 101_376, 166_912, 232_448)))
    lines = []
    for cc, threads, registers, shared in cases:
        sm = limits(cc)
        lines.append(f"{cc.replace('.', ' ')} {sm.max_threads_per_sm} {sm.shared_kib_per_sm * 1024} "
                     f"{sm.shared_kib_per_block * 1024} {sm.reserved_shared_kib * 1024} {threads} {registers} {shared}")
    done = subprocess.run([tmp_path / "oracle"], input="\n".join(lines), capture_output=True, text=True, check=True)
    expected = dict(zip(cases, map(int, done.stdout.split()), strict=True))
    too_new = {cc for cc in capabilities() if {want for case, want in expected.items() if case[0] == cc} == {-1}}
    expected = {case: want for case, want in expected.items() if case[0] not in too_new}
    assert len(expected) > 10_000 and {0, 1, 24, 32} <= set(expected.values()) and -1 not in expected.values()
    wrong = [(case, want) for case, want in expected.items() if occupancy(*case).blocks != want]
    assert not wrong, f"{len(wrong)} differ, first {wrong[0]}"


def test_the_driver_says_the_same():
    """What the driver of an H200 answered about 34 kernels, each in 132 launches."""
    answers = driver_answers(recorded("driver_occupancy"), "sm_90")
    assert len(answers) >= 4000 and answers["registers"].nunique() >= 25 and answers["registers"].max() >= 250
    assert {0, 1, 32} <= set(answers["driver"]) and set(answers["limiter"]) == set(RESOURCES)
    wrong = answers[answers["driver"] != answers["calculated"]]
    assert wrong.empty, wrong.head()


def test_a_driver_that_says_otherwise_is_noticed():
    table = recorded("driver_occupancy")
    table.at[3, "blocks"] = [blocks + 1 for blocks in table["blocks"][3]]
    answers = driver_answers(table, "sm_90")
    assert (answers["driver"] != answers["calculated"]).sum() == 132


def test_nsight_compute_calculates_the_same():
    counted = recorded("achieved_occupancy")
    assert len(counted) == 18
    assert (counted["theoretical_percent"] - counted["calculated_percent"]).abs().max() < 0.01
    assert (counted["achieved_percent"] < counted["calculated_percent"]).all() and counted["achieved_percent"].min() > 5


@pytest.mark.gpu
def test_this_machines_driver_says_the_same():
    from helpers.cuda.driver import resident_blocks
    from helpers.kernels.probes import BUSY

    target = torch.cuda.get_device_capability()
    registers = BUSY.compiled(target).registers
    for threads, shared in itertools.product((32, 96, 320, 1024), (0, 5000, 60_000)):
        assert resident_blocks(BUSY, threads, shared) == occupancy(target, threads, registers, shared).blocks


@pytest.mark.skipif(mode.is_live(), reason="this machine has a driver to ask")
def test_without_a_gpu_the_driver_and_the_counters_say_why():
    from helpers import nsight
    from helpers.cuda.driver import resident_blocks
    from helpers.kernels.probes import BUSY

    with pytest.raises(RuntimeError, match="no GPU is in use"):
        resident_blocks(BUSY, 256)
    counted, reason = nsight.counts_or_recorded("achieved_occupancy")
    assert len(counted) == 18 and "Nsight Compute" in reason


def forgets_half(kernel):
    """A wrong solution of exercise 2: only the first half is stored."""

    class Launcher:
        def __getitem__(self, grid):
            def launch(x, out, n, a, b, N, BLOCK):
                kernel(x, out, n, a, b, N, BLOCK, grid)
            return launch
    return Launcher()


def one_half(x, out, n, a, b, N, BLOCK, grid):
    for program in range(grid[0]):
        part = slice(2 * BLOCK * program, 2 * BLOCK * program + BLOCK)
        out[part] = fma_chain_reference(x[part], a, b, N).float()


@pytest.mark.parametrize(("number", "answer", "message"), [
    (1, lambda latency, chains: latency, "latency 4, independent chains a warp: 2. It takes 2 to fill every slot, you say 4"),
    (2, forgets_half(one_half), "nothing was written at .*both halves"),
    (3, lambda registers, warps: 65536 // (32 * warps * registers), "you say .*whole units of 256"),
    (4, lambda rate, ns, smsps: math.ceil(rate * ns / (128 * smsps)), "RTX 5090.*need 5 warps each, you say 9; half of the traffic is read"),
])
def test_wrong_answers_get_a_hint(number, answer, message):
    with pytest.raises(AssertionError, match=f"Exercise 07_occupancy.{number}: not yet.*{message}"):
        check(f"07_occupancy.{number}", answer)
