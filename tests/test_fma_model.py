"""The prediction of Fig 2-5: limits it must keep, the scheduler it must agree with, and its error on the recording."""

import re

import pytest
import torch

from helpers.compile import compile_kernel
from helpers.fma_model import (
    VARIANTS,
    Machine,
    Variant,
    fraction_of_peak,
    machine_of,
    measured_machine,
    median_error,
    predicted,
)
from helpers.kernels.fma_chain import NUM_WARPS, THREADS, fma_resident_kernel, unrolled
from helpers.results import recorded
from helpers.simt.scheduler import loop, schedule
from helpers.specs import gpu

H200 = machine_of(gpu("H200"), memory_latency=800)


def test_one_warp_gets_a_quarter_and_four_get_all():
    for warps in (1, 2, 3, 4):
        assert fraction_of_peak(H200, 2048, warps) == pytest.approx(warps / 4, rel=0.06)


def test_the_rtx_5090_as_published():
    """25 % at one warp and 92 % at four, from the published 936 cycles of latency and the datasheet alone."""
    machine = machine_of(gpu("RTX 5090"))
    assert fraction_of_peak(machine, 512, 1) == pytest.approx(0.25, abs=0.02)
    assert fraction_of_peak(machine, 512, 4) == pytest.approx(0.92, abs=0.03)


def test_sixteen_lanes_need_two_warps():
    machine = machine_of(gpu("A100 SXM 80GB"), memory_latency=466)
    assert machine.lanes == 16
    assert fraction_of_peak(machine, 2048, 1) == pytest.approx(0.5, abs=0.03)
    assert fraction_of_peak(machine, 2048, 2) > 0.93


@pytest.mark.parametrize("variant", VARIANTS)
def test_never_above_peak_or_bandwidth(variant):
    for k in (1, 8, 64, 512):
        for warps in (1, 4, 5, 16):
            fraction = fraction_of_peak(H200, k, warps, variant)
            assert 0 < fraction <= 1
            assert fraction * H200.peak_tflops * 4 / k <= H200.bandwidth_gb_per_s / 1e3  # k/4 FLOP a byte


def test_little_s_law_holds_while_memory_is_idle():
    """One warp, k = 1: 128 bytes read a latency and warp."""
    fraction = fraction_of_peak(H200, 1, 1, "plain loads")
    cycles = 800 + 4 + VARIANTS["plain loads"].others
    assert fraction == pytest.approx(2 * 32 / cycles / 64, rel=0.02)


def test_early_loads_hide_the_wait_and_plain_ones_add_it():
    plain, early = (fraction_of_peak(H200, 512, 1, v) for v in ("plain loads", "one element"))
    assert plain == pytest.approx(0.25 * 2048 / (2048 + 800 + 10), rel=0.02)
    assert early > 0.24


@pytest.mark.parametrize("warps", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("early", [False, True])
def test_agrees_with_the_scheduler_cycle_by_cycle(warps, early, monkeypatch):
    """The same warps, one instruction at a time, on a machine whose memory is never busy."""
    k, latency, steps = 40, 200, 24
    trace = schedule([loop(steps, k, memory_latency=latency, early=early)] * warps)
    issued = sum(kind == "fma" for kind in trace.kinds) / trace.cycles
    monkeypatch.setitem(VARIANTS, "as scheduled", Variant(1, early, others=2))  # a load and a store
    fraction = fraction_of_peak.__wrapped__(Machine(1, 1000, 1e9, latency), k, warps, "as scheduled")
    assert fraction == pytest.approx(issued, rel=0.1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_instructions_beside_the_fmas_are_counted_from_the_compiled_loop(variant):
    x = torch.empty(1 << 26, device="meta")
    per_thread, early = VARIANTS[variant].elements_per_thread, VARIANTS[variant].early
    sass = compile_kernel(fma_resident_kernel, x, x, x, x.numel(), 0.9, 0.1, target="sm_90", num_warps=NUM_WARPS, N=1,
                          UNROLL=unrolled(1), BLOCK=THREADS * per_thread, EARLY=early, WIDE=False, WHERE=False).sass
    at = {int(m[1], 16): m[2] for m in re.finditer(r"/\*([0-9a-f]{4})\*/\s+(.*?);", sass)}
    end, start = next((a, int(m[1], 16)) for a, text in at.items() if (m := re.search(r"BRA (0x\w+)", text))
                      and int(m[1], 16) < a)
    body = [text for address, text in at.items() if start <= address <= end]
    fmas = sum("FFMA" in text for text in body)
    assert fmas == per_thread
    assert abs(len(body) - fmas - VARIANTS[variant].others) <= 2  # another compiler may need one more


def test_what_the_model_does_not_know():
    with pytest.raises(ValueError, match="nobody published"):
        machine_of(gpu("L4"))
    with pytest.raises(ValueError, match="the model knows plain loads"):
        fraction_of_peak(H200, 1, 1, "yours")


@pytest.mark.xfail(strict=True, reason="not reached yet: on the H200's recording the model's median error is 30 %, the goal is 10 %")
def test_median_error_on_the_recording_is_below_ten_percent():
    """With the latency, the copy rate and the FMA latency that the same machine was measured to have."""
    machine = measured_machine(gpu("H200"), *map(recorded, ("load_latency", "copy_bandwidth", "fma_latency")))
    assert machine.fma_latency == 4 and 500 < machine.memory_latency < 1000 and 4000 < machine.bandwidth_gb_per_s < 4800
    rows = predicted(recorded("fma_chain_warps"), machine)
    assert len(rows) == 240
    assert median_error(rows) < 0.10
    for variant in VARIANTS:
        assert median_error(rows[rows["variant"] == variant]) < 0.12
