"""Lesson 10: figures of tiles and banks."""

from figures import tiling
from helpers.cuda import CudaKernel
from helpers.lesson import sweep


def test_banks_drawn_are_the_words_read():
    assert len({w % 32 for w in tiling.bank_words(32, "column")}) == 1
    assert len({w % 32 for w in tiling.bank_words(33, "column")}) == 32
    assert "1 banks" in tiling.show_banks(tiling.bank_words(32, "column"), 32, "x").alt


def test_a_kernel_that_needs_more_than_a_header_name():
    """T is a template parameter in NVRTC's own headers: a macro of that name breaks them, ours is TILE."""
    assert CudaKernel("matmul.cu", "tiled_matmul", ("-DTILE=2",)).compiled().shared_bytes == 2 * 2 * 2 * 4


def test_the_widget_over_its_controls():
    assert sweep(tiling.phase_view, tiling.PHASE_CONTROLS) >= 30
