"""Tests of the exercises of lesson A."""

import numpy as np

from helpers.lesson.exercise import NotStarted, exercise
from helpers.systolic import SystolicArray, predicted_utilisation


@exercise("A_tpu.1")
def _(skewed):
    for m, rows in ((2, 3), (1, 1), (5, 1), (1, 4), (6, 4)):
        x = np.arange(1, m * rows + 1).reshape(m, rows)
        feed = skewed(x.copy())
        if feed is ... or feed is None:
            raise NotStarted
        assert np.shape(feed) == (m + rows - 1, rows), (
            f"{m} rows of x into {rows} rows of the array take {m + rows - 1} cycles: the feed needs shape "
            f"{(m + rows - 1, rows)}, yours has {np.shape(feed)}"
        )
        for cycle in range(m + rows - 1):
            for r in range(rows):
                i = cycle - r
                right = x[i, r] if 0 <= i < m else 0
                assert feed[cycle][r] == right, (
                    f"x of shape {(m, rows)}: in cycle {cycle}, row {r} of the array must get "
                    f"{f'x[{i}, {r}] = {right}' if 0 <= i < m else 'nothing (0)'}, yours gets {feed[cycle][r]}"
                )


@exercise("A_tpu.2")
def _(utilisation):
    if utilisation(128, 128, 128) is ...:
        raise NotStarted
    array = SystolicArray(128, 128)
    for m, k, n in ((128, 128, 128), (512, 100, 128), (300, 129, 128), (200, 256, 130), (8, 128, 256)):
        real = array.run(np.ones((m, k), int), np.ones((k, n), int)).utilisation
        answer = utilisation(m, k, n)
        assert abs(answer - real) < 1e-9, (
            f"x ({m}, {k}) @ w ({k}, {n}) uses {real:.4f} of the array when it is simulated, you say {answer:.4f}"
        )


@exercise("A_tpu.3")
def _(least_rows):
    if least_rows(0.5) is ...:
        raise NotStarted
    for share in (0.03, 0.25, 0.5, 0.75, 0.85, 0.94, 0.97):  # none that a rounded quotient could miss by one
        m = least_rows(share)
        assert m == int(m) and m >= 1, f"a number of rows is a whole number from 1 on, not {m!r}"
        reached = predicted_utilisation(int(m), 128, 128, 128, 128)
        assert reached >= share, f"{m} rows use {reached:.4f} of the array, less than {share}"
        fewer = predicted_utilisation(int(m) - 1, 128, 128, 128, 128) if m > 1 else 0
        assert fewer < share, f"{int(m) - 1} rows are enough for {share}: they use {fewer:.4f}"
