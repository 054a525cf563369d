"""Tests of the exercises of lesson 11."""

import math
import numbers

from helpers.lesson.exercise import NotStarted, exercise
from helpers.timeline import estimate, schedule


@exercise("11_streams.1")
def _(chunks_needed):
    if chunks_needed(8, 10, 0.1) is ...:
        raise NotStarted
    for t, e, slack in ((8, 10, 0.13), (10, 8, 0.13), (8, 8, 0.3), (1, 100, 0.5), (3, 10, 0.07), (10, 9, 0.021)):
        best, n = max(t, e), chunks_needed(t, e, slack)
        assert isinstance(n, numbers.Real) and n == int(n) >= 1, f"a number of chunks is a whole number of at least 1, not {n!r}"
        assert estimate(n, t, e) <= (1 + slack) * best, (
            f"copy {t}, kernel {e}: {n} chunks take {estimate(n, t, e):.3g} ms, more than {slack:.0%} above {best} ms"
        )
        assert n == 1 or estimate(n - 1, t, e) > (1 + slack) * best, f"copy {t}, kernel {e}: fewer than {n} are enough"


@exercise("11_streams.2")
def _(best_chunks):
    if best_chunks(8, 10, 0.1) is ...:
        raise NotStarted
    for t, e, cost in ((8, 10, 0.1), (10, 8, 0.5), (1, 10, 2), (16, 16, 0.001), (5, 9, 0.03)):
        times = {n: estimate(n, t, e) + n * cost for n in range(1, 65)}
        n = best_chunks(t, e, cost)
        assert n in times, f"n from 1 to 64, not {n!r}"
        assert times[n] <= min(times.values()) + 1e-9, (
            f"copy {t}, kernel {e}, {cost} a chunk: {n} chunks take {times[n]:.4g} ms, "
            f"{min(times, key=times.get)} only {min(times.values()):.4g} ms"
        )


@exercise("11_streams.3")
def _(time_with_copy_back):
    if time_with_copy_back(4, 8, 10, 8) is ...:
        raise NotStarted
    for n, t, e, back in ((1, 8, 10, 4), (4, 8, 10, 8), (4, 10, 2, 3), (8, 2, 3, 12), (16, 5, 5, 5)):
        real = max(s.end for s in schedule(n, t, e, back, copy_engines=2))
        answer = time_with_copy_back(n, t, e, back)
        assert math.isclose(answer, real, rel_tol=1e-9), (
            f"n = {n}, {t} ms in, {e} ms kernel, {back} ms back: the model takes {real:.4g} ms, you say {answer:.4g}"
        )
