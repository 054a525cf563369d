"""Lesson 10: figures of tiles, reads, banks and the ladder; kernels without a barrier; what was recorded of them."""

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.colors import to_hex

from figures import tiling
from figures.style import ROLE, drawn_data, new
from helpers import results
from helpers.cuda import CudaKernel
from helpers.experiments.shared_memory import BARRIERS, COUNTED_CASES, a_tiled, tiled_without
from helpers.lesson import sweep
from helpers.mode import device
from helpers.simt import Race


@pytest.mark.parametrize("n, tile, block, phase", [(4, 2, 0, 0), (4, 2, 3, 1), (8, 4, 1, 1), (6, 4, 3, 1)])
def test_a_phase_draws_the_tiles_it_stages(n, tile, block, phase):
    fig, ax = new(7.2, 3.2)
    tiling.draw_phase(ax, n, tile, block, phase)
    edges = [to_hex(patch.get_edgecolor()).upper() for patch in ax.patches[:3 * n * n]]
    staged = edges.count(ROLE["accent"])
    down, along = (min(tile, n - start * tile) for start in (block // -(-n // tile), block % -(-n // tile)))
    deep = min(tile, n - phase * tile)
    assert staged == down * deep + deep * along
    assert edges.count(ROLE["compute"]) == down * along
    assert edges.count(ROLE["memory"]) == phase * tile * (down + along)


def test_the_widget_over_its_controls():
    assert sweep(tiling.phase_view, tiling.PHASE_CONTROLS) >= 30


def test_reads_are_drawn_where_they_were_counted():
    counted = pd.DataFrame([{"n": n, "tile": t, "reads": 2 * n**3 // t} for t in (1, 2) for n in (4, 8)])
    fig, ax = new()
    tiling.draw_reads(ax, counted)
    points = [(kind, list(y)) for kind, *xy in drawn_data(fig) if kind == "line" for x, y in [xy] if len(x) == 2]
    assert points == [("line", [128.0, 1024.0]), ("line", [64.0, 512.0])]
    assert any(item[0] == "text" and item[1] == f"{2 * 4096**3:.3g}" for item in drawn_data(fig))
    counted.loc[1, "reads"] += 1
    assert "n = 8, naive: 1,025; " in tiling.show_reads(counted).alt and "not all" in tiling.show_reads(counted).alt


def test_banks_drawn_are_the_words_read():
    assert len({w % 32 for w in tiling.bank_words(32, "column")}) == 1
    assert len({w % 32 for w in tiling.bank_words(33, "column")}) == 32
    assert "into 1 bank, counted 32 passes" in tiling.show_banks(tiling.bank_words(32, "column"), 32, "x").alt
    assert "into 32 banks, counted 1 pass." in tiling.show_banks(tiling.bank_words(33, "column"), 1, "x").alt


def test_the_ladder_says_what_it_draws():
    rows = [{"variant": v, "n": n, "tflops": r * n / 1024} for v, r in (("naive", 2.0), ("tiled", 5.0)) for n in (1024, 4096)]
    fig, ax = new()
    tiling.draw_ladder(ax, pd.DataFrame(rows), 66.9)
    heights = sorted(round(p.get_height(), 1) for p in ax.patches)
    assert heights == [2.0, 5.0, 8.0, 20.0]
    assert "n = 4,096: naive 8.0, tiled 20.0 TFLOPS" in tiling.show_ladder(pd.DataFrame(rows)).alt


# ------------------------------------------------------------------------------------------------ kernels


def test_a_kernel_that_needs_more_than_a_header_name():
    """T is a template parameter in NVRTC's own headers: a macro of that name breaks them, ours is TILE."""
    assert CudaKernel("matmul.cu", "tiled_matmul", ("-DTILE=2",)).compiled().shared_bytes == 2 * 2 * 2 * 4


@pytest.mark.parametrize("name", BARRIERS)
def test_a_missing_barrier_is_found_by_the_machine_and_by_it_alone(name):
    kernel = tiled_without(BARRIERS[name])
    assert kernel.compiled().ptx.count("bar.sync") == 2 - (name != "both barriers")
    a, b, c = torch.rand(64, 64), torch.rand(64, 64), torch.full((64, 64), float("nan"))
    args = (2, 2), (32, 32), a, b, c, 64, 64, 64
    kernel.counted(*args, races=False)
    torch.testing.assert_close(c, a @ b)  # a test of values notices nothing here
    if name == "both barriers":
        assert not kernel.counted(*args, races=True).races
    else:
        with pytest.raises(Race, match="line .* of cell.cu"):
            kernel.counted(*args, races=True)


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (33, 40, 35), (64, 32, 10), (5, 0, 3)])
def test_a_alone_in_shared_memory_is_right(m, k, n):
    a, b = torch.rand(m, k, device=device()), torch.rand(k, n, device=device())
    torch.testing.assert_close(a_tiled(a, b), a @ b)


# ------------------------------------------------------------------------------------------------ recordings


def recorded(name):
    return pytest.mark.skipif(name not in results.load()["experiments"], reason="not recorded yet")


@recorded("matmul_counts")
@pytest.mark.parametrize("variant, sectors", [("naive", 2.5), ("tiled", 4.0)])
def test_a_gpu_counts_the_machines_sectors(variant, sectors):
    rows = results.recorded("matmul_counts", variants=variant).set_index("n")
    n = np.array([case["n"] for case in COUNTED_CASES], dtype=float)
    lanes = 2 * n**3 / (1 if variant == "naive" else 32)
    assert (rows["load_requests"][n.astype(int)].to_numpy() == lanes / 32).all()
    assert (rows["load_sectors"][n.astype(int)].to_numpy() == sectors * lanes / 32).all()
