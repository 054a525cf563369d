"""Lesson 08: threads of a launch counted, the complete program, figures over their controls."""

import pandas as pd

from figures import threads
from helpers.lesson import sweep


def test_idle_lanes():
    facts = threads.launch_facts(1000, 256)
    assert facts == {"blocks": 4, "threads": 1024, "idle threads": 24, "lanes without a thread": 0}
    assert threads.launch_facts(66, 33) == {"blocks": 2, "threads": 66, "idle threads": 0, "lanes without a thread": 62}
    assert "24 without an element" in threads.show_grid(1000, 256).alt


def test_the_widget_over_its_controls():
    assert sweep(threads.show_grid, threads.GRID_CONTROLS) >= 20


def test_the_clock_figure_says_what_its_data_say():
    clock = pd.DataFrame({"n": [4096, 2**28], "time_us": [3.0, 800.0], "returned_us": [10.0, 10.0],
                          "finished_us": [20.0, 820.0]})
    assert "returns after 10 µs" in threads.show_launch_clock(clock).alt
