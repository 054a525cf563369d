"""Figures of lessons 04 to 06: their models are right, their words and marks come from the data, widgets never fail."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from figures import matmul, row_sum, softmax, style
from figures.style import Picture
from helpers import tile_costs
from helpers.compile import client
from helpers.kernels.softmax import softmax_naive_operations
from helpers.lesson import sweep
from helpers.lesson.widgets import options_of
from helpers.specs import from_driver, gpu


def timed(rows):
    """Dicts with time_us as a table with the columns that figures use."""
    data = pd.DataFrame(rows)
    return data.assign(time_us_p20=data["time_us"] * 0.98, time_us_p80=data["time_us"] * 1.03)


VERSIONS = timed([{"variant": v, "time_us": t} for v, t in (("eager", 200.0), ("softmax", 40.0), ("torch", 60.0))]).assign(traffic_bytes=134_400_000)
SIZES = timed([{"variant": v, "cols": n, "time_us": t * n, "bandwidth_gb_per_s": 3000 / t}
               for v, t in (("softmax", 1.0), ("torch", 1.5)) for n in (256, 4096)])
COMPILED = pd.DataFrame({"num_warps": [1, 4, 8], "registers": [80, 255, 166], "spill_bytes": [12772, 556, 0]})
WARPS = timed([{"num_warps": w, "time_us": t, "machine": "NVIDIA H200"} for w, t in ((1, 526.0), (4, 100.0), (8, 98.0))])
SHAPES = timed([{"rows": r, "cols": c, "num_warps": w, "time_us": t} for r, c, ts in (
    (132, 524288, (468.0, 220.0)), (8448, 8192, (75.0, 74.0))) for w, t in zip((1, 4), ts, strict=True)])
ROWS = timed([{"variant": v, "rows": r, "time_us": 77.0, "bandwidth_gb_per_s": 3600.0}
              for v in ("one program a row", "row_sum", "torch") for r in (1, 132, 8448)])
ACCURACY = pd.DataFrame([{"variant": v, "n": n, "relative_error": e * n} for v, e in (
    ("one running sum", 1e-9), ("1024 partial sums", 1e-11), ("parts of rows", 0.0)) for n in (256, 65536)])
LADDER = pd.DataFrame([{"variant": v, "n": 4096, "tflops": t} for v, t in (
    ("naive", 5.0), ("tile 64x64x32 ieee", 42.0), ("ieee", 46.0), ("cuBLAS", 50.0))])
ERRORS = pd.DataFrame([{"variant": v, "k": k, "rms_error": e * k**0.5, "max_error": 5 * e * k**0.5}
                       for v, e in (("ieee", 1e-7), ("tf32", 5e-4)) for k in (64, 4096)])

PICTURES = {
    "traffic": (lambda: softmax.show_traffic(softmax_naive_operations(4096, 4096), 2 * 4096**2), "536.9 MB"),
    "times": (lambda: softmax.show_times(VERSIONS, 4800.0), "eager 200.0"),
    "sizes": (lambda: softmax.show_sizes(SIZES, 4800), "256 to 4096 columns"),
    "registers": (lambda: softmax.show_num_warps(COMPILED), "1: 80 registers, 12772 bytes spilled"),
    "num_warps": (lambda: softmax.show_num_warps(COMPILED, WARPS, [(1, 705, "RTX 5090")]), "4: 100"),
    "partial sums": (lambda: row_sum.show_partial_sums(6, 4), "6 tiles of 4 columns"),
    "parts": (lambda: row_sum.show_partial_sums(8, 4, 2), "2 parts"),
    "two shapes": (lambda: row_sum.show_num_warps(SHAPES, [(1, 439, 439, "RTX 5090")]), "132 rows 1: 468"),
    "rows": (lambda: row_sum.show_rows(ROWS, 4800), "8,448: 3,600"),
    "accuracy": (lambda: row_sum.show_accuracy(ACCURACY), "one running sum 6.6e-05"),
    "tiles": (lambda: matmul.show_tiles(), "16 steps of 32"),
    "ladder": (lambda: matmul.show_ladder(LADDER, {"FP32 peak": 66.9}), "cuBLAS 50.0"),
    "rungs": (lambda: matmul.show_rungs(LADDER, {"naive": 0.25, "ieee": 21.3}, gpu("H200")), "reaches 46.0 TFLOPS"),
    "errors": (lambda: matmul.show_error(ERRORS), "K = 4096"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_say_what_they_show(name):
    make, words = PICTURES[name]
    picture = make()
    assert isinstance(picture, Picture) and words in picture.alt, picture.alt
    assert picture.png.startswith(b"\x89PNG")


def test_other_data_draw_another_picture():
    first, again, other = (softmax.show_num_warps(COMPILED, WARPS.assign(time_us=WARPS["time_us"] + more)).fingerprint
                           for more in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("callback, controls", [
    (softmax.explore_running, softmax.RUNNING_CONTROLS),
    (row_sum.explore_in_flight, row_sum.IN_FLIGHT_CONTROLS),
    (matmul.explore_cost, matmul.COST_CONTROLS),
    (matmul.explore_order, matmul.ORDER_CONTROLS),
])
def test_widgets_over_their_range(callback, controls, monkeypatch):
    starts = {name: options_of(name, control)[1] for name, control in controls.items()}
    assert callback(**starts).png.startswith(b"\x89PNG")
    # From here on everything is drawn but nothing rendered: that takes half a second a picture.
    monkeypatch.setattr(style, "_png", lambda fig: b"not rendered")
    assert sweep(callback, controls) > 5
    assert not plt.get_fignums()


@pytest.mark.parametrize("pattern", softmax.PATTERNS)
@pytest.mark.parametrize("tile", [1, 7, 16, 200])
def test_the_running_sum_ends_at_the_exact_one(pattern, tile):
    x = softmax.PATTERNS[pattern](128)
    last = softmax.online_steps(x, tile)[-1]
    assert last["max"] == x.max() and math.isclose(last["sum"], np.exp(x - x.max()).sum(), rel_tol=1e-12)


def test_corrections_follow_the_pattern():
    def corrected(pattern):
        return sum(0 < s["correction"] < 1 for s in softmax.online_steps(softmax.PATTERNS[pattern](128), 16))

    assert corrected("rising") == 7 and corrected("falling") == 0


@pytest.mark.parametrize("size, draw", [
    ((7.2, 4.2, 2, 1), lambda axes: softmax.draw_running(axes, softmax.PATTERNS["rising"](128), 4)),
    ((7.2, 4.2, 2, 1), lambda axes: softmax.draw_running(axes, softmax.PATTERNS["masked start"](128), 4)),
    ((8.4, 3.3, 1, 2), lambda axes: row_sum.draw_in_flight(axes, gpu("RTX 5090"), 389.0, 64, 4)),
    ((8.4, 3.3, 1, 2), lambda axes: row_sum.draw_in_flight(axes, gpu("H200"), 345.0, 16, 4)),
], ids=["rising", "masked start", "RTX 5090", "H200"])
def test_labels_of_bars_keep_apart(size, draw):
    fig, axes = style.new(*size)
    draw(axes)
    FigureCanvasAgg(fig).draw()
    for ax in axes:
        boxes = [text.get_window_extent() for text in ax.texts]
        for i, one in enumerate(boxes):
            assert not any(one.overlaps(other) for other in boxes[:i]), ax.texts[i].get_text()


def test_bytes_under_way_on_the_5090():
    """The published case: one warp an SM, four loads of 16 bytes a lane, 936 cycles at 2407 MHz."""
    latency = row_sum.memory_latency_ns("RTX 5090")
    assert math.isclose(latency, 936 / 2.407, rel_tol=1e-3)
    one = row_sum.in_flight(gpu("RTX 5090"), latency, 1, 1, 4)
    assert one["bytes_in_flight"] == 348_160 and 890 < one["gb_per_s"] < 900
    resident = [row_sum.in_flight(gpu("RTX 5090"), latency, 64, w, 4)["warps"] for w in row_sum.NUM_WARPS]
    assert resident == [24, 48, 48, 48, 48, 32]


@pytest.mark.parametrize("rows, cols, group", [(16, 16, 4), (5, 7, 3), (1, 9, 8), (9, 1, 2)])
def test_every_tile_has_one_program(rows, cols, group):
    order = matmul.tile_order(rows, cols, group)
    assert sorted(order.ravel()) == list(range(rows * cols))


def test_strips():
    assert matmul.strips_needed(matmul.tile_order(16, 16, 1), 32) == (2, 16)
    assert matmul.strips_needed(matmul.tile_order(16, 16, 4), 32) == (4, 8)
    assert matmul.strips_needed(matmul.tile_order(16, 16, 16), 32) == (16, 2)


def test_cost_of_the_published_tile():
    cost = matmul.tile_cost("RTX 5090", "64x64x32", 4, 3)
    assert cost["intensity"] == 16 and cost["shared_bytes"] == 32768 and cost["sums"] == 32
    assert (cost["occupancy"].blocks, cost["occupancy"].warps, cost["occupancy"].limiter) == (3, 12, "shared memory")


@pytest.mark.skipif(client.triton_version() not in tile_costs.evidence("T4").detail, reason="shipped by another compiler")
@pytest.mark.parametrize("gpu_name, tile, num_warps, num_stages", [
    ("RTX 5090", "64x64x32", 4, 4), ("H100 SXM5", "64x64x32", 4, 3), ("A100", "32x32x32", 8, 5), ("T4", "64x64x32", 4, 4),
])
def test_the_cost_widget_shows_what_the_compiler_says(gpu_name, tile, num_warps, num_stages):
    compiled = tile_costs.compiled_tile(gpu_name, tile, num_warps, num_stages)
    found = matmul.tile_cost(gpu_name, tile, num_warps, num_stages)
    assert [found[key] for key in ("registers", "spill_bytes", "shared_bytes")] == [
        compiled.registers, compiled.spill_bytes, compiled.shared_bytes]


@pytest.mark.parametrize("num_stages", [1, 0, 2.5, True])
def test_the_cost_of_stages_that_are_not_shipped_is_not_that_of_three(num_stages):
    with pytest.raises(KeyError, match="num_stages must be 2 or more"):
        tile_costs.tile_cost("A100", "64x64x32", 4, num_stages)


def test_a_tile_that_cannot_launch_says_so():
    assert "cannot launch" not in matmul.explore_cost("RTX 5090", "128x128x32", 8, 3).alt
    assert matmul.tile_cost("RTX 5090", "128x128x32", 8, 5)["occupancy"].blocks == 0


def test_gpus_outside_the_fact_sheet_have_figures_without_limits():
    unknown = from_driver("NVIDIA GeForce RTX 1", (8, 9), 46, 12 * 10**9, 2**25)
    assert unknown.bandwidth_gb_per_s is None and unknown.fp32_tflops is None
    for picture in (softmax.show_times(VERSIONS, None), softmax.show_sizes(SIZES, None), row_sum.show_rows(ROWS, None),
                    matmul.show_ladder(LADDER, {"FP32 peak": None}), matmul.show_rungs(LADDER, {"naive": 0.25, "ieee": 21.3}, unknown)):
        assert picture.png
    flight = row_sum.in_flight(unknown, 300.0, 1, 4, 4)
    assert flight["gb_per_s"] == flight["bytes_in_flight"] / 300.0
