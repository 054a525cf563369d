"""The prediction of Fig 2-5: limits it must keep, the scheduler it must agree with, and its error on the recording."""

import dataclasses
import re

import pandas as pd
import pytest
import torch

from helpers.compile import compile_kernel
from helpers.fma_model import (
    VARIANTS,
    Machine,
    Variant,
    errors_by_line,
    fraction_of_peak,
    machine_of,
    measured_machine,
    median_error,
    plateau,
    predicted,
    warps_for_bandwidth,
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
    for k, warps in ((0, 1), (1, 0), (1.5, 1), (1, 2.5), (float("nan"), 1), ("1", 1)):
        with pytest.raises(ValueError, match="whole numbers of at least 1"):
            fraction_of_peak(H200, k, warps)


def test_median_error_on_the_recording_is_below_ten_percent():
    """With the latency, the copy rate and the FMA latency that the same machine was measured to have."""
    machine = measured_machine(gpu("H200"), *map(recorded, ("load_latency", "copy_bandwidth", "fma_latency")))
    assert machine.fma_latency == 4 and 500 < machine.memory_latency < 1000 and 4000 < machine.bandwidth_gb_per_s < 4800
    rows = predicted(recorded("fma_chain_warps"), machine)
    assert len(rows) == 240
    assert median_error(rows) < 0.10
    for variant in VARIANTS:
        assert median_error(rows[rows["variant"] == variant]) < 0.12
    # what the lesson says of it: worst where arithmetic and memory are balanced, best where the chain is long
    by_k = {k: median_error(line) for k, line in rows.groupby("k")}
    assert max(by_k, key=by_k.get) == 64 and min(by_k, key=by_k.get) == 2048
    assert len(errors_by_line(rows)) == 4 and errors_by_line(rows)[0]["all"].endswith("%")


def test_a_gpu_outside_the_fact_sheet_has_the_clock_it_ran_at():
    tables = [recorded(name) for name in ("load_latency", "copy_bandwidth", "fma_latency")]
    unknown = dataclasses.replace(gpu("H200"), name="NVIDIA X", boost_mhz=None, bandwidth_gb_per_s=None)
    assert measured_machine(unknown, *tables).clock_mhz == pytest.approx(measured_machine(gpu("H200"), *tables).clock_mhz, rel=0.01)
    with pytest.raises(ValueError, match="the model needs SM count"):
        measured_machine(dataclasses.replace(unknown, sm_count=None), *tables)


# Shares of the FP32 peak that a quick first measurement of the same chain found on an H200, k = 512 unless it says 2048.
FIRST_LOOK = {
    ("plain loads", 512): {1: 18.2, 2: 36.2, 3: 53.6, 4: 70.7, 5: 70.3, 6: 67.7, 8: 72.5, 10: 78.8, 12: 78.8, 16: 83.1},
    ("one element, load moved down", 512): {1: 20.7, 2: 40.9, 3: 60.9, 4: 79.1, 6: 66.8, 8: 80.1, 12: 81.8, 16: 84.4},
    ("four elements, plain loads", 512): {1: 64.6, 2: 89.5, 3: 91.5, 4: 93.2, 6: 95.0, 8: 95.7},
}


@pytest.mark.parametrize("line", FIRST_LOOK, ids=str)
def test_the_first_look_is_reproduced(line):
    """Within 3 points, once the compiler is known to have moved the load down in it; 4 for few warps of four elements."""
    variant, k = line
    table = recorded("fma_chain_warps", variants=variant, k=k).set_index("warps_per_smsp")["tflops"]
    for warps, percent in FIRST_LOOK[line].items():
        share = 100 * table[warps] / gpu("H200").fp32_tflops
        assert abs(share - percent) < (4 if variant == "four elements, plain loads" and warps <= 2 else 3), (warps, share, percent)


def test_early_loads_beat_the_first_look_where_the_load_stays_in_place():
    """k = 2048, first look: 23.8 % at one warp, 92.7 % at four. Now the load leads by the whole chain."""
    table = recorded("fma_chain_warps", variants="one element", k=2048).set_index("warps_per_smsp")["tflops"] / gpu("H200").fp32_tflops
    assert 0.24 < table[1] < 0.25 and 0.92 < table[4] < 1


def test_what_littles_law_asks_for():
    """The RTX 5090: 896 GB/s of reads x 389 ns = 348 kB, 680 SMSPs, 128 bytes a load: 4 warps."""
    assert warps_for_bandwidth(machine_of(gpu("RTX 5090"))) == pytest.approx(896 * 936 / 2.407 / (680 * 128), rel=1e-6)
    assert warps_for_bandwidth(H200, 4) == pytest.approx(warps_for_bandwidth(H200) / 4)


def test_plateau():
    table = pd.DataFrame({"variant": "v", "k": 1, "warps_per_smsp": [1, 2, 3, 4, 5, 6], "bandwidth_gb_per_s": [10, 50, 96, 90, 97, 100.0]})
    assert plateau(table, "v") == 5  # 3 is within 5 % too, but 4 is not
    falls = table[table["warps_per_smsp"] <= 4]
    assert plateau(falls, "v") == 3, "a line that falls at its end has no end to start from"
    assert plateau(table.iloc[::-1], "v") == 5 and plateau(table.assign(bandwidth_gb_per_s=7.0), "v") == 1
