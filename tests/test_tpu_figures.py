"""Figures of lesson A: derived numbers recomputed, what is drawn equals what is simulated, the animation plays."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageSequence

from figures import systolic, tpu
from figures.style import drawn_data, new
from helpers import facts, specs
from helpers.lesson import sweep
from helpers.systolic import WEIGHT_LOADS, SystolicArray, predicted_utilisation

V5P, V1 = ({name: fact.value for name, fact in facts.tpu(chip).items()} for chip in ("v5p", "v1"))


def texts(fig) -> str:
    return " ".join(item[1] for item in drawn_data(fig) if item[0] == "text")


# ------------------------------------------------------------------------------------------------ derived numbers


def test_numbers_derived_from_the_facts_of_v5p():
    derived = tpu.core_facts(V5P)
    assert derived["cells_per_core"] == 4 * 128 * 128 == 65_536
    assert derived["vpu_alus"] == 4096
    assert derived["chip_tflops"] == pytest.approx(V5P["bf16_tflops"], rel=0.001)
    assert derived["mxu_tflops_per_core"] / derived["vpu_tflops_per_core"] == 32
    assert derived["vreg_kib"] == V5P["vreg_kib_per_core"]
    assert derived["ridge_flop_per_byte"] == pytest.approx(166, abs=0.5)


def test_numbers_derived_from_the_facts_of_v1():
    macs_per_second = V1["mxu_rows"] * V1["mxu_columns"] * V1["clock_mhz"] * 1e6
    assert 2 * macs_per_second / 1e12 == pytest.approx(V1["int8_tops"], rel=0.005)
    assert macs_per_second / (V1["bandwidth_gb_per_s"] * 1e9) == pytest.approx(V1["ridge_macs_per_byte"], rel=0.005)
    assert V1["mxu_rows"] * V1["mxu_columns"] / 1024 == V1["weight_tile_kib"]
    assert 4096 * V1["mxu_columns"] * 4 / 2**20 == V1["accumulator_mib"]


def test_register_accesses():
    counts = tpu.accesses_per_multiply_add(128, 128)
    assert counts == {"FMA of one lane": 4, "systolic array": 1 / 64}
    run = SystolicArray(128, 128).run(np.ones((512, 128), int), np.ones((128, 128), int))
    full = run.macs_per_cycle.max()
    assert (128 + 128) / full == counts["systolic array"]


# ------------------------------------------------------------------------------------------------ pictures


def test_tensor_core_shows_the_facts():
    fig, ax = new()
    shown = texts(tpu.draw_tensor_core(ax, V5P).figure)
    for part in ("95 GB", "2,765", "64 MiB", "256 KiB", "4,096 ALUs", "1 MiB SMEM", "2 XLUs", "8 × 128"):
        assert part in shown, part
    assert shown.count("MXU") == 4
    assert "32 ×" in str(drawn_data_of(tpu.show_tensor_core, V5P))
    assert "4 MXUs of 128 x 128" in tpu.tensor_core_alt(V5P)


def drawn_data_of(show, *arguments):
    """The data that a show_x function hands to Picture."""
    found = []
    original = tpu.Picture
    tpu.Picture = lambda fig, alt, evidence: found.extend(drawn_data(fig))
    try:
        show(*arguments)
    finally:
        tpu.Picture = original
    return found


def test_register_traffic():
    picture = tpu.show_register_traffic(128, 128)
    assert "reads three registers and writes one" in picture.alt and "64 multiply-adds" in picture.alt
    assert picture.fingerprint != tpu.show_register_traffic(256, 256).fingerprint


def utilisation_table(over, sizes, simulated):
    rows = []
    for load in WEIGHT_LOADS:
        for size in sizes:
            m, n = (size, 128) if over == "m" else (512, size)
            run = SystolicArray(128, 128).run(np.ones((m, 128)), np.ones((128, n)), weight_load=load)
            rows.append({over: size, "weight_load": load, "simulated": run.utilisation if size in simulated else None,
                         "formula": predicted_utilisation(m, 128, n, 128, 128, load)})
    return pd.DataFrame(rows)


def test_utilisation_curves_go_through_the_simulated_points():
    data = utilisation_table("m", (8, 128, 256), (8, 128))
    fig, ax = new()
    tpu.draw_utilisation(ax, data, "m")
    lines = {line.get_linestyle(): dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in ax.lines}
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert len(dots) == 2 and lines["-"][128] == dots[0].get_ydata()[1] == pytest.approx(128 / 382)
    picture = tpu.show_utilisation_rows(data)
    assert "load hidden: 3.1% at 8, 33.5% at 128" in picture.alt and "load exposed: 2.1% at 8" in picture.alt
    columns = utilisation_table("n", (128, 129), (128, 129))
    columns = columns[columns["weight_load"] == "hidden"]
    assert "66.8% at 128, 40.4% at 129" in tpu.show_utilisation_columns(columns, 128).alt


def test_rooflines():
    h100 = specs.gpu("H100 SXM5")
    chips = [{"name": "TPU v5p", "kind": "TPU", "tflops": V5P["bf16_tflops"],
              "bandwidth_gb_per_s": V5P["bandwidth_gb_per_s"]},
             {"name": h100.name, "kind": "GPU", "tflops": h100.bf16_tflops,
              "bandwidth_gb_per_s": h100.bandwidth_gb_per_s}]
    fig, ax = new()
    tpu.draw_rooflines(ax, chips)
    for chip, line in zip(chips, (line for line in ax.lines if len(line.get_xdata()) > 1), strict=True):
        assert line.get_ydata()[0] == pytest.approx(8 * chip["bandwidth_gb_per_s"] / 1e3)
        assert line.get_ydata()[-1] == chip["tflops"]
    alt = tpu.rooflines_alt(chips)
    assert "ridge at 166 FLOP per byte" in alt and f"ridge at {h100.ridge('bf16'):.0f} FLOP per byte" in alt


def test_work_strips():
    run = SystolicArray(4, 4).run(*systolic.example(10, 4))
    picture = systolic.show_work({"one tile": run.macs_per_cycle}, 16, "title")
    assert "one tile: 16 cycles, 62.5% of the cells' time is used, all cells work in 4 cycles" in picture.alt


# ------------------------------------------------------------------------------------------------ stepping


def test_widget_over_its_range():
    assert sweep(systolic.step_view, systolic.STEP_CONTROLS) > 40


@pytest.mark.parametrize("cycle", [-3, -1, 0, 3, 5, 9, 11, 12])
def test_step_draws_the_registers(cycle):
    x, w = systolic.example(6, 4)
    fig, ax = new()
    state, left = systolic.until(SystolicArray(4, 4).steps(x, w), cycle)
    systolic.draw_step(ax, state, left, x, cycle)
    drawn = [text.get_text() for text in ax.texts]
    sums = [(x[i, : r + 1] @ w[: r + 1, c]) for r in range(4) for c in range(4) if 0 <= (i := cycle - r - c) < 6]
    assert sorted(t for t in drawn if t.startswith("Σ")) == sorted(f"Σ {s}" for s in sums)
    products = [f"{x[i, r]} × {w[r, c]}" for r in range(4) for c in range(4) if 0 <= (i := cycle - r - c) < 6]
    assert sorted(t for t in drawn if "×" in t and t[0] != "×") == sorted(products)
    y = [str((x @ w)[i, c]) for i in range(6) for c in range(4) if i + 3 + c <= cycle]
    assert all(drawn.count(value) >= y.count(value) for value in y)


@pytest.mark.parametrize("array, rows_of_x", [(2, 1), (2, 8), (3, 8), (4, 6), (8, 1), (8, 8)])
def test_numbers_keep_to_their_cells(array, rows_of_x):
    x, w = systolic.example(rows_of_x, array)
    fig, _ = systolic.step_figure(SystolicArray(array, array).steps(x, w), x, array)
    fig.savefig(io.BytesIO(), format="rgba")  # settles the layout
    cell = fig.axes[0].patches[0].get_window_extent().width
    widths = [text.get_window_extent().width for text in fig.axes[0].texts if text.get_text()[0] in "0123456789×Σ"]
    assert len(widths) > array and max(widths) < 0.85 * cell


def test_examples_have_no_zeros_and_tell_rows_apart():
    for rows, array in ((6, 4), (512, 128), (1, 2)):
        x, w = systolic.example(rows, array)
        assert x.shape == (rows, array) and w.shape == (array, array) and x.min() > 0 and w.min() > 0
    assert len({tuple(row) for row in systolic.example(5, 4)[0]}) == 5


def test_without_the_skew_the_picture_says_what_came_out():
    straight, skewed = (systolic.step_view(4, 6, 4, skew) for skew in (False, True))
    assert straight.fingerprint != skewed.fingerprint and "16 of 16 cells work" in straight.alt
    assert "13 of 16 cells work" in skewed.alt


def test_past_the_end():
    assert "all sums had left by the end of cycle 2" in systolic.step_view(2, 1, 20).alt


# ------------------------------------------------------------------------------------------------ animation


@pytest.fixture(scope="module")
def animation():
    return systolic.show_animation()


def test_animation_plays_anywhere(animation):
    image = Image.open(io.BytesIO(animation.png))
    frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
    assert image.format == "PNG" and image.info["default_image"] and image.info["loop"] == 0
    assert len(frames) - 1 == animation.frames == 4 + 12  # weights, then cycles 0 to 11
    assert len({frame.tobytes() for frame in frames[1:]}) == animation.frames, "two frames are the same"
    assert frames[0].tobytes() == frames[1 + 4 + 4].tobytes(), "print shows cycle 4"
    assert len(animation.html) < 300_000
    assert "<script" not in animation.html and "http" not in animation.html


@pytest.mark.parametrize("array, rows_of_x, frames", [(1, 1, 2), (2, 3, 7), (32, 40, 8)])
def test_animation_of_any_size(array, rows_of_x, frames):
    animation = systolic.show_animation(array, rows_of_x, most_frames=8)
    assert animation.frames == frames and len(animation.html) < 300_000
    assert f"after {rows_of_x + 2 * array - 2} cycles the last sum has left" in animation.alt


def test_animation_has_alt_text_and_a_mark_of_its_data(animation):
    bundle = animation._repr_mimebundle_()
    assert 'alt="Animation of a systolic array of 4 x 4 cells' in bundle["text/html"]
    assert animation.fingerprint in bundle["text/plain"] and "simulated" in bundle["text/plain"]
    assert systolic.show_animation(3, 2).fingerprint != animation.fingerprint
