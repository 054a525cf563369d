"""Figures and tables of lesson 07: marks, words and rings come from the data, the widgets never fail."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from figures import fma_chain, occupancy, style
from figures.style import ROLE, Picture, drawn_fingerprint
from helpers.experiments.occupancy import driver_answers
from helpers.fma_model import fraction_of_peak, machine_of, measured_machine, predicted
from helpers.lesson import occupancy_tables, sweep
from helpers.lesson.widgets import options_of
from helpers.occupancy import occupancy as resident
from helpers.results import recorded
from helpers.specs import gpu

MACHINE = machine_of(gpu("H200"), memory_latency=690, bandwidth_gb_per_s=4286)


def line(variant, k, shares, **more):
    """Rows of a line of Fig 2-5 from percent of the H200's peak by warps."""
    rows = [{"variant": variant, "k": k, "warps_per_smsp": m, "tflops": percent / 100 * MACHINE.peak_tflops,
             "bandwidth_gb_per_s": percent / 100 * MACHINE.peak_tflops * 4e3 / k, "fewest_programs_on_an_sm": m,
             "most_programs_on_an_sm": m, "quarter_ended": 0.5, "half_ended": 0.51, "three_quarters_ended": 0.52} for m, percent in shares.items()]
    return pd.DataFrame(rows).assign(**more)


TABLE = pd.concat([
    line("one element", 512, {1: 24, 2: 48, 4: 89, 5: 62, 8: 90}), line("one element", 2048, {1: 25, 4: 97, 5: 62, 8: 96}),
    line("plain loads", 512, {1: 18, 4: 69, 5: 70}), line("four elements", 512, {1: 93, 4: 97}), line("one element", 1, {1: 0.12, 2: 0.9, 4: 1.0, 5: 1.01}),
    line("four elements", 1, {1: 0.4, 4: 1.5}), line("one element, shares as needed", 2048, {4: 88, 5: 95}),
], ignore_index=True)
POINTS = [(1, 0.25), (4, 0.92)]
KS = (512, 2048)


def drawn(draw, *args, **options):
    ax = Figure().subplots()
    draw(ax, *args, **options)
    return ax


def points_of(line):
    return dict(zip(np.asarray(line.get_xdata(), int), np.round(np.asarray(line.get_ydata(), float), 6), strict=True))


PICTURES = {
    "chain": (lambda: fma_chain.show_fma_chain(TABLE, MACHINE, ks=KS, published=POINTS), "k = 512: 24% at 1, 89% at 4, 62% at 5, 90% at 8"),
    "placement": (lambda: fma_chain.show_fma_chain(TABLE, MACHINE, ks=KS), "Every SM was read back to hold equally many programs"),
    "variants": (lambda: fma_chain.show_variants(TABLE, MACHINE), "four elements, loaded early: 93% at 1, 97% at 4"),
    "sharing": (lambda: fma_chain.show_sharing(TABLE, MACHINE), "as needed: 88% at 4, 95% at 5"),
    "memory": (lambda: fma_chain.show_memory_lines(TABLE, MACHINE, 4800), "within 5 % of it from 4 warps on"),
    "memory of a GPU outside the fact sheet": (lambda: fma_chain.show_memory_lines(TABLE, MACHINE, None), "four elements: "),
    "ends": (lambda: fma_chain.show_ends(TABLE, k=2048), "5 warps: a quarter of the programs had ended after 50% of the time, three quarters after 52%"),
    "prediction": (lambda: fma_chain.show_prediction("RTX 5090", "one element", POINTS), "k = 512: 24% at 1, 91% at 4"),
    "occupancy": (lambda: occupancy.show_occupancy("sm_120", 128, 96, 32), "3 blocks, 12 of 48 warps"),
    "impossible": (lambda: occupancy.show_occupancy("sm_90", 1024, 65), "cannot launch"),
    "arithmetic": (lambda: occupancy.show_latency_arithmetic(6, 16), "33% of the time and 3 warps"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_say_what_they_show(name):
    make, words = PICTURES[name]
    picture = make()
    assert isinstance(picture, Picture) and words in picture.alt, picture.alt
    assert picture.png.startswith(b"\x89PNG")


def test_marks_are_the_measured_shares_and_dashes_the_model():
    ax = drawn(fma_chain.draw_fma_chain, TABLE, MACHINE, KS, published=POINTS)
    marks = [points_of(artist) for artist in ax.lines if artist.get_linewidth() == 0]
    assert {1: 24, 2: 48, 4: 89, 5: 62, 8: 90} in marks and {1: 25, 4: 97, 5: 62, 8: 96} in marks
    dashes = [points_of(artist) for artist in ax.lines if artist.get_linestyle() == "--"]
    assert dashes[0] == pytest.approx({m: 100 * fraction_of_peak(MACHINE, 512, m) for m in (1, 2, 4, 5, 8)}, abs=1e-4)
    diamonds = [points_of(artist) for artist in ax.lines if artist.get_color() == ROLE["published"]]
    assert diamonds == [{1: 25}, {4: 92}]
    assert {t.get_text() for t in ax.texts} >= {"k = 512", "k = 2048", "25%", "92%"}


def test_uneven_placement_is_ringed_and_said():
    uneven = TABLE.assign(most_programs_on_an_sm=TABLE["most_programs_on_an_sm"] + TABLE["warps_per_smsp"].isin([5, 8]))
    rings = [points_of(a) for a in drawn(fma_chain.draw_fma_chain, uneven, MACHINE, KS).lines if a.get_markerfacecolor() == "none"]
    assert rings == [{5: 62, 8: 90}, {5: 62, 8: 96}]
    even = [points_of(a) for a in drawn(fma_chain.draw_fma_chain, TABLE, MACHINE, KS).lines if a.get_markerfacecolor() == "none"]
    assert even == [{}, {}]
    assert "unevenly at 5, 8 warps" in fma_chain.fma_chain_alt(uneven, MACHINE, KS)
    assert fma_chain.placement(uneven)[0]["programs on an SM"] == "m on each" and fma_chain.placement(uneven)[0]["m"] == "1, 2, 4"
    assert fma_chain.placement(uneven)[1] == {"m": "5", "launches": 5, "programs on an SM": "5 to 6, uneven"}
    assert fma_chain.placement(TABLE[TABLE["warps_per_smsp"] < 3]) == [{"m": "1 to 2", "launches": 8, "programs on an SM": "m on each"}]


def test_the_recording_is_even_everywhere():
    table = recorded("fma_chain_warps")
    assert fma_chain.uneven(table) == [] and [row["m"] for row in fma_chain.placement(table)] == ["1 to 16"]
    assert fma_chain.placement(table)[0]["launches"] >= 240


def test_other_data_draw_another_picture():
    other = TABLE.assign(tflops=TABLE["tflops"] * 1.01)
    for draw, args in ((fma_chain.draw_fma_chain, (MACHINE, KS)), (fma_chain.draw_variants, (MACHINE, 512, ["plain loads", "one element"])),):
        first, again, changed = (drawn_fingerprint(drawn(draw, table, *args).figure) for table in (TABLE, TABLE, other))
        assert first == again != changed


def test_predictable_gpus_are_those_with_published_latencies():
    assert "RTX 5090" in fma_chain.predictable() and "A100 SXM 80GB" in fma_chain.predictable() and "L4" not in fma_chain.predictable()
    published = fma_chain.show_prediction("RTX 5090", "plain loads", POINTS)
    assert "92%" not in published.alt and published.fingerprint == fma_chain.show_prediction("RTX 5090", "plain loads").fingerprint


@pytest.mark.parametrize("callback, controls", [
    (fma_chain.show_prediction, fma_chain.PREDICTION_CONTROLS), (occupancy.show_occupancy, occupancy.OCCUPANCY_CONTROLS),
])
def test_widgets_over_their_range(callback, controls, monkeypatch):
    starts = {name: options_of(name, control)[1] for name, control in controls.items()}
    assert callback(**starts).png.startswith(b"\x89PNG")
    monkeypatch.setattr(fma_chain, "fraction_of_peak", lambda *case: 0.5)  # the model has tests of its own, and takes its time
    monkeypatch.setattr(style, "_png", lambda fig: b"not rendered")
    assert sweep(callback, controls) > 5


def test_bars_are_what_each_resource_allows():
    found = resident("sm_90", 256, 33, 45 * 1024)
    ax = drawn(occupancy.draw_occupancy, found)
    assert [bar.get_width() for bar in ax.patches] == [8, 6, 4, 32]
    assert "4, decides" in {t.get_text() for t in ax.texts} and "32" in {t.get_text() for t in ax.texts}


def test_tables_of_the_lesson():
    rows = occupancy_tables.what_limits("RTX 5090", "H200")
    assert [row["RTX 5090"] for row in rows[:5]] == ["memory"] * 3 + ["arithmetic"] * 2 and rows[2]["H200 SXM"] == "arithmetic"
    five, here = occupancy_tables.matmul_warps(recorded("matmul_ladder", variants="tile 64x64x32 ieee", n=4096), gpu("H200"))
    assert (five["warps an SMSP"], five["occupancy"], five["sums a thread"], five["FMAs under way"]) == (3, "25%", 32, 96)
    assert here["known"] == "recorded" and here["share of the FP32 peak"] == "63%"
    unknown = dataclasses.replace(gpu("H200"), fp32_tflops=None)
    ladder = recorded("matmul_ladder", variants="tile 64x64x32 ieee", n=4096)
    assert occupancy_tables.matmul_warps(ladder, unknown)[1]["share of the FP32 peak"] is None
    few = occupancy_tables.programs_on_an_sm(gpu("H200"), row_sum=recorded("row_sum_num_warps", rows=132, num_warps=[1, 32]))
    assert [(row["programs on an SM"], row["warps on an SMSP"]) for row in few] == [(1, 0.25), (1, 8)]
    wrong = occupancy_tables.short_against_exact(("sm_90", 256, 33, 0), ("sm_90", 320, 37, 0), ("sm_90", 256, 32, 45), ("sm_90", 288, 200, 0))
    assert [(row["short formula"], row["exact"]) for row in wrong] == [(7, 6), (5, 4), (5, 4), (1, 0)]


def test_the_calculator_of_compiled_kernels():
    matmul = occupancy_tables.compiled_kernel("matmul, 64 × 64 × 32", 4, "sm_120")
    assert (matmul.threads, matmul.registers, matmul.shared_bytes) == (128, 96, 32768)
    for kernel in occupancy_tables.KERNELS:
        compiled = occupancy_tables.compiled_kernel(kernel, 8, "sm_90")
        assert compiled.threads == 256 and 16 <= compiled.registers <= 255 and compiled.target == "sm_90"
    assert len(occupancy_tables.COMPILED_CONTROLS["target"][0]) == 11
    with pytest.raises(ValueError, match="there are row sum.*not 'gelu'"):
        occupancy_tables.compiled_kernel("gelu", 4, "sm_90")


def test_agreement_counts_every_launch_once():
    answers = driver_answers(recorded("driver_occupancy"), "sm_90")
    rows = occupancy_tables.agreement(answers, "sm_90")
    assert sum(row["launches"] for row in rows[:-1]) == rows[-1]["launches"] == len(answers) == rows[-1]["occupancy agrees"]
    assert 0.8 < rows[-1]["short formula agrees"] / len(answers) < 0.9
    never = occupancy_tables.agreement(answers, "sm_90", lambda *launch: -1)
    assert all(row["short formula agrees"] == 0 for row in never)


def test_the_title_states_the_error_of_the_model():
    machine = measured_machine(gpu("H200"), *map(recorded, ("load_latency", "copy_bandwidth", "fma_latency")))
    table = recorded("fma_chain_warps", variants=["one element", "plain loads"])
    rows = predicted(table, machine)
    for variant in ("one element", "plain loads"):
        error = rows[rows["variant"] == variant]["error"].abs().median()
        assert error < 0.1 and fma_chain.fma_chain_title(table, machine, rows, variant=variant).endswith(f"off by {error:.0%}")
    assert "model" not in fma_chain.fma_chain_title(table, machine)
