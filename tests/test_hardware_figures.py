"""Figures of lessons 01 and 02: what is drawn is the data, words follow it, no GPU is refused, widgets never fail."""

import dataclasses

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.figure import Figure

from figures import memory, placement, sm, style, working_sets
from figures.style import Picture
from helpers import facts, results, specs
from helpers.lesson import sweep
from helpers.lesson.table import html_of
from helpers.simt.scheduler import ISSUED, READY, WAITING
from helpers.specs import gpu, products

KIB, MIB = 2**10, 2**20
H200, CARD = gpu("H200"), gpu("RTX 5090")
STRANGER = specs.from_driver("NVIDIA New One", (13, 0), 200, 48e9, 64 * MIB)  # newer than the table: no limits, no peaks


def rates(spec, l1=20.0, l2=6.0, memory_gb_per_s=1.7):
    """A measurement in TB/s as an ideal GPU with these levels would give it."""
    array, shared = spec.limits.unified_cache_kib or 128, spec.l2_bytes
    found = []
    for size in working_sets_sizes():
        total = size * spec.sm_count
        below = l2 if total <= shared else memory_gb_per_s
        for variant, rate in (("read", l1 if size <= array * KIB else below), ("read past L1", below)):
            found.append({"variant": variant, "bytes_per_sm": size, "working_set_bytes": total, "bandwidth_gb_per_s": rate * 1e3})
    return pd.DataFrame(found)


def table_with(spec, rates_by_size):
    return pd.DataFrame([{"variant": v, "bytes_per_sm": size, "working_set_bytes": size * spec.sm_count, "bandwidth_gb_per_s": rate}
                         for v in ("read", "read past L1") for size, rate in rates_by_size.items()])


def working_sets_sizes():
    return [2**k for k in range(11, 26)]


def latencies(spec, l1=40.0, l2=300.0, dram=900.0, mhz=2000.0):
    array = (spec.limits.unified_cache_kib or 128) * KIB
    cycles = [(size, l1 if size <= array else l2 if size <= spec.l2_bytes else dram) for size in (2**k for k in range(14, 33))]
    return pd.DataFrame([{"bytes": size, "cycles": c, "ns": c / mhz * 1e3} for size, c in cycles])


def copies(top=1650.0):
    return pd.DataFrame([{"variant": v, "bytes": 2**k, "bandwidth_gb_per_s": min(top, 2**k / 2e4), "flags": ""}
                         for v in ("copy", "torch") for k in range(18, 33)])


def pairs(step=4, warps=8):
    return pd.DataFrame([{"first": f, "second": s, "cycles": 200.0 if f != s and (f - s) % step == 0 else 101.0}
                         for f in range(warps) for s in range(warps)])


SHAPES = pd.DataFrame([{"variant": v, "warps": w, "time_us": 10.0 * -(-w // 4)}
                       for v in ("one block of w warps", "w blocks of one warp") for w in range(1, 17)])
POINTS, SOURCE = facts.memory_wall()
PICTURES = {  # picture, and words that its alt text must have
    "memory wall": (lambda: memory.show_memory_wall(POINTS, "s"), "memory bandwidth 1.6x, link between chips 1.4x. At these rates compute outgrows memory 600-fold"),
    "roofline": (lambda: memory.show_roofline("RTX 5090"), "ridge at 58.5 FLOP/B"),
    "slope": (lambda: memory.show_roofline("H200", "fp32", 1.0), "at most 4.8 TFLOPS: memory is the limit"),
    "roof": (lambda: memory.show_roofline("H200", "bf16", 512.0), "at most 989 TFLOPS: compute is the limit"),
    "hierarchy": (lambda: memory.show_hierarchy("RTX 5090"), "L2: 96 MiB, 360 cycles; device memory: 32 GB, 1.79 TB/s, 936 cycles"),
    "not published": (lambda: memory.show_hierarchy("T4"), "L2: 4 MiB; device memory: 16 GB, 0.32 TB/s."),
    "working sets": (lambda: working_sets.show_working_sets(rates(CARD), CARD), "L1 20 TB/s, L2 6 TB/s, device memory 1.7 TB/s"),
    "latency": (lambda: working_sets.show_latency(latencies(CARD), CARD, {"x": {"l1": 1, "l2": 2, "dram": 3}}),
                "L1 40 cycles (20 ns), L2 300 cycles (150 ns), device memory 900 cycles (450 ns), at 2000 MHz"),
    "copy": (lambda: working_sets.show_copy(copies(), CARD), "4 GiB at 1,650 GB/s, 92% of the datasheet"),
    "SM": (lambda: sm.show_sm("A100"), "16 warp slots, 64 KiB of registers and 16 FP32 lanes; 192 KiB"),
    "levels": (sm.show_levels, "a warp runs on one SMSP, for life"),
    "cycle": (sm.show_cycle, "12 of 48 warps resident: 3 SMSPs issue one warp each; SMSP 2 issues nothing"),
    "scheduler": (lambda: sm.show_scheduler(1), "Issued: A . . . A . . . A"),
    "four warps": (lambda: sm.show_scheduler(4, cycles=8), "Issued: A B C D A B C D (a dot is an empty slot). 100% of the issue slots"),
    "pairs": (lambda: placement.show_pairs(pairs()), "{0, 4}, {1, 5}, {2, 6}, {3, 7}"),
    "block shapes": (lambda: placement.show_block_shapes(SHAPES), "one block of w warps: 1.00 at w = 4, 2.00 at w = 5"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_say_what_they_show(name):
    make, words = PICTURES[name]
    picture = make()
    assert isinstance(picture, Picture) and words in picture.alt, picture.alt
    assert picture.png.startswith(b"\x89PNG") and not plt.get_fignums()


@pytest.fixture
def unrendered(monkeypatch):
    """Everything is drawn but nothing rendered, which takes most of the time."""
    monkeypatch.setattr(style, "_png", lambda fig: b"not rendered")


def drawn(draw, *arguments):
    return draw(Figure().subplots(), *arguments)


def test_the_curves_are_the_measurements():
    table = rates(CARD)
    ax = drawn(working_sets.draw_working_sets, table, CARD)
    for line, variant in zip(ax.lines, ("read", "read past L1"), strict=False):
        assert list(line.get_ydata() * 1e3) == pytest.approx(list(table[table["variant"] == variant]["bandwidth_gb_per_s"]))
    assert ax.get_ylim()[0] == 0
    ax = drawn(working_sets.draw_latency, latencies(CARD), CARD, {"RTX 5090": {"l1": 44, "l2": 360, "dram": 1936}})
    assert list(ax.lines[0].get_ydata()) == list(latencies(CARD)["cycles"])
    assert ax.get_ylim()[1] > 1936, "a published line must not be cut off"
    ax = drawn(placement.draw_block_shapes, SHAPES)
    assert list(ax.lines[0].get_ydata()) == [-(-w // 4) for w in range(1, 17)]


@pytest.mark.parametrize("make", [
    lambda x: memory.show_memory_wall(POINTS.assign(normalised=POINTS["normalised"] * (1 + x * (POINTS.index == 5)))),
    lambda x: working_sets.show_working_sets(rates(CARD, l2=6.0 + x), CARD),
    lambda x: working_sets.show_latency(latencies(CARD, l1=40.0 + x), CARD),
    lambda x: working_sets.show_copy(copies(1650.0 + x), CARD),
    lambda x: placement.show_block_shapes(SHAPES.assign(time_us=SHAPES["time_us"] + x * (SHAPES["warps"] == 6))),
])
def test_other_data_draw_another_picture(make, unrendered):
    same, again, other = make(0).fingerprint, make(0).fingerprint, make(0.5).fingerprint
    assert same == again != other


def test_plateaus_are_where_a_level_is_certain():
    found = working_sets.plateaus(rates(H200, 31.0, 9.0, 4.6), H200)
    assert found == pytest.approx({"L1": 31e3, "L2": 9e3, "device memory": 4.6e3})
    cycles = working_sets.latency_plateaus(latencies(H200), H200)
    assert {level: at["cycles"] for level, at in cycles.items()} == {"L1": 40, "L2": 300, "device memory": 900}
    array = H200.limits.unified_cache_kib * KIB
    edge = table_with(H200, {array // 2: 31e3, array: 25e3, 2 * array: 4e3})
    assert working_sets.plateaus(edge, H200)["L1"] == 31e3, "a set that nearly fills L1 is not certain to lie in it"
    small = dataclasses.replace(CARD, l2_mib=4.0, sm_count=40)  # all L1 together are larger than this L2
    assert "L2" in working_sets.plateaus(rates(small), small)
    table = rates(CARD)
    assert "device memory" not in working_sets.plateaus(table[table["bytes_per_sm"] <= 2 * MIB], CARD)


def test_a_gpu_outside_the_table_is_drawn_without_its_levels(unrendered):
    assert "not told apart" in working_sets.show_latency(latencies(STRANGER), STRANGER, {"RTX 5090": {"l1": 1}}).alt
    found = working_sets.show_working_sets(rates(STRANGER), STRANGER).alt
    assert "200 SMs" in found and "L1" not in found
    assert "of the datasheet" not in working_sets.show_copy(copies(), STRANGER).alt


def test_nothing_above_the_datasheet_is_called_device_memory():
    table = results.recorded("read_bandwidth")
    assert working_sets.plateaus(table, H200)["device memory"] < H200.bandwidth_gb_per_s
    above = table[table["bandwidth_gb_per_s"] > H200.bandwidth_gb_per_s]
    assert len(above) > 5 and above["flags"].str.contains("from cache").all()
    below = table[table["working_set_bytes"] >= 4 * H200.l2_bytes]
    assert (below["bandwidth_gb_per_s"] < H200.bandwidth_gb_per_s).all()
    table = copies().assign(flags=["from cache"] + [""] * 29)
    ax = drawn(working_sets.draw_copy, table, 1792.0)
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [len(line.get_xdata()) for line in hollow] == [1, 0]


def test_recorded_levels_are_apart():
    rate = working_sets.plateaus(results.recorded("read_bandwidth"), H200)
    assert rate["L1"] > 2 * rate["L2"] > 3 * rate["device memory"]
    cycles = {level: at["cycles"] for level, at in working_sets.latency_plateaus(results.recorded("load_latency"), H200).items()}
    assert 25 < cycles["L1"] < 60 < 4 * cycles["L1"] < cycles["L2"] < 0.6 * cycles["device memory"] < 600


def test_fig_1_1_in_numbers():
    rows = {row["series"]: row for row in memory.wall_growth(POINTS, SOURCE)}
    assert sum(row["points"] for row in rows.values()) == len(POINTS) == 59
    assert rows["peak compute"]["2 years: fitted here"] == "3.03x" and rows["peak compute"]["20 years: printed"] == "60,000x"
    lines = drawn(memory.draw_memory_wall, POINTS).lines
    assert [len(line.get_xdata()) for line in lines] == [2, 2, 2] and lines[0].get_ydata()[-1] > 1e6


@pytest.mark.parametrize("spec", products(), ids=lambda spec: spec.name)
def test_fig_1_2_and_1_3_of_every_gpu(spec):
    levels = {level["level"]: level for level in memory.hierarchy(spec.name)}
    assert levels["L2"]["bytes"] == spec.l2_bytes and levels["device memory"]["tb_per_s"] == spec.bandwidth_gb_per_s / 1e3
    assert levels["registers"]["bytes"] == spec.sm_count * 256 * KIB
    sheet = sm.sm_facts(spec.name)
    assert 4 * sheet["lanes"] * spec.sm_count == spec.fp32_cores and 4 * sheet["slots"] == spec.limits.max_warps_per_sm
    assert sheet["tensor_cores_doubtful"] == (spec.name == "T4")


def test_sizes_in_words():
    assert [memory.size_text(n) for n in (512, 2048, 1.5 * MIB, 126.5 * MIB, 4 * 2**30)] == [
        "512 B", "2 KiB", "1.5 MiB", "126.5 MiB", "4 GiB"]
    assert memory.capacity_text(141e9) == "141 GB" and memory.capacity_text(96 * MIB) == "96 MiB"


def test_fig_1_5_is_one_cycle_of_the_model():
    held = sm.one_cycle()
    assert [smsp["names"] for smsp in held] == [[f"B{b} w{s}" for b in range(3)] for s in range(4)]
    for s, smsp in enumerate(held):
        counts = [smsp["states"].count(state) for state in (ISSUED, READY, WAITING)]
        assert counts == ([0, 0, 3] if s == 2 else [1, 1, 1])


def test_slots_of_the_widget_in_numbers():
    rows = {row["work"]: row for row in sm.slots_used()}
    assert [rows["dependent FMAs"][f"{n} warp{'s' * (n > 1)}"] for n in (1, 2, 4, 12)] == ["25%", "50%", "100%", "100%"]
    for n in ("1 warp", "2 warps", "4 warps"):
        assert int(rows["load, then 8 FMAs"][n][:-1]) < int(rows["load ahead, 8 FMAs"][n][:-1])
    with pytest.raises(ValueError, match="dependent FMAs, load, then 8 FMAs"):
        sm.streams(1, work="nothing")


@pytest.mark.parametrize("step, groups, apart", [(4, 4, 4), (2, 2, 2), (8, 8, None)])
def test_who_shares_a_scheduler(step, groups, apart):
    assert len(placement.sharing(pairs(step))) == groups and placement.warps_apart(pairs(step)) == apart
    recorded = results.recorded("scheduler_pairs")
    assert placement.warps_apart(recorded) == 4 and placement.sharing(recorded) == [[w, w + 4] for w in range(4)]


def test_placement_notices_slots_out_of_turn_and_uneven_sms():
    good = {"warps_per_block": 4, "blocks_per_sm": 1, "sm": [0] * 4 + [1] * 4, "slot": [1, 2, 3, 0, 2, 3, 0, 1]}
    bad = good | {"sm": [0] * 8, "slot": [0, 0, 0, 0, 1, 5, 9, 2]}
    first, second = placement.placement_summary(pd.DataFrame([good, bad]))
    assert first["warps in turn (slots mod 4)"] == "100%" and first["SMs used"] == 2 and first["blocks on an SM"] == "1"
    assert second["warps in turn (slots mod 4)"] == "25%" and second["SMs with equal shares of slots 0 to 3 (mod 4)"] == "0%"
    eight = {"warps_per_block": 8, "blocks_per_sm": 1, "sm": [0] * 8, "slot": [2, 3, 0, 1, 6, 7, 4, 5]}
    assert placement.placement_summary(pd.DataFrame([eight]))[0]["warps in turn (slots mod 4)"] == "100%"
    rows = placement.first_sm(pd.Series(good), 4)
    assert [row["slot mod 4"] for row in rows] == [1, 2, 3, 0] and {row["SM"] for row in rows} == {0}


@pytest.mark.parametrize("callback, controls", [
    (memory.show_roofline, memory.ROOFLINE_CONTROLS), (memory.show_hierarchy, memory.HIERARCHY_CONTROLS),
    (sm.show_sm, sm.SM_CONTROLS), (sm.show_scheduler, sm.SCHEDULER_CONTROLS),
])
def test_widgets_over_their_range(callback, controls, unrendered):
    assert sweep(callback, controls) >= 11 and not plt.get_fignums()


def test_a_missing_peak_is_a_sentence():
    assert repr(memory.show_roofline("T4", "tf32")) == "The T4 has no TF32 peak in the table: it has no unit for it."
    assert "nobody published one" in html_of(memory.show_roofline("GB10", "tf32"))


@pytest.mark.parametrize("name", sm.SM_CONTROLS["name"][0])
def test_words_stay_in_their_boxes(name):
    fig, ax = style.new(7.6, 4.7)
    sm.draw_sm(ax, name)
    fig.canvas.draw()
    boxes = [patch.get_window_extent() for patch in ax.patches]
    for text in ax.texts:
        words = text.get_window_extent()
        around = [b for b in boxes if b.x0 < (words.x0 + words.x1) / 2 < b.x1 and b.y0 < (words.y0 + words.y1) / 2 < b.y1]
        inner = min(around, key=lambda b: b.width)
        assert inner.x0 < words.x0 and words.x1 < inner.x1, f"{text.get_text()!r} is wider than its box"


def test_the_hierarchy_names_the_source_of_its_latencies():
    assert "Mark Dewing" in memory.hierarchy_sources("RTX 5090") and "\n" not in memory.hierarchy_sources("RTX 5090")
    a100 = memory.hierarchy_sources("A100")
    assert "latencies: arXiv 2208.11174" in a100 and "arXiv 2402.13499" in a100 and "37.9, 261.5, 466 cycles" in a100
    assert "latencies" not in memory.hierarchy_sources("T4")


def test_a_doubtful_number_is_marked():
    assert "? unverified" in sm.show_sm("T4").evidence and "?" not in sm.show_sm("RTX 5090").evidence
