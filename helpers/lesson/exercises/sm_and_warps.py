"""Tests of the exercises of lesson 02."""

from helpers.lesson.exercise import NotStarted, exercise
from helpers.simt.scheduler import Instruction, schedule


@exercise("02_sm_and_warps.1")
def _(place):
    if all(part is ... for part in place(0, 4)):
        raise NotStarted
    for t, n_warps in ((0, 4), (31, 4), (32, 4), (517, 32), (100, 8), (255, 8), (1023, 32)):
        warp, lane, sharing = place(t, n_warps)
        assert (warp, lane) == (t // 32, t % 32), f"thread {t} is lane {t % 32} of warp {t // 32}, you say {lane} of {warp}"
        assert isinstance(sharing, list | tuple | range | set), (
            f"warp and lane are right; sharing must be a list of warps, got {sharing!r}"
        )
        expected = [w for w in range(n_warps) if w % 4 == warp % 4]
        assert sorted(sharing) in (expected, [w for w in expected if w != warp]), (
            f"with {n_warps} warps, warp {warp} shares its scheduler with {expected}, you say {sorted(sharing)}"
        )


@exercise("02_sm_and_warps.2")
def _(cycles_of):
    if cycles_of(1, 100) is ...:
        raise NotStarted
    for warps in (1, 3, 4, 5, 8, 9, 16):
        expected = max(schedule([[Instruction("fma", 1)] * 100] * len(range(s, warps, 4))).cycles
                       for s in range(min(warps, 4)))
        answer = cycles_of(warps, 100)
        assert answer == expected, f"{warps} warps of 100 cycles each take {expected} cycles on one SM, you say {answer}"


@exercise("02_sm_and_warps.3")
def _(choose):
    if choose([0], [-1]) is ...:
        raise NotStarted
    for ready, last_issue, expected in (
        ([0, 1, 2], [-1, -1, -1], 0), ([1, 2], [9, 3, 5], 1), ([0, 1, 2, 3], [8, 5, 6, 7], 1), ([2, 3], [0, 0, 4, 4], 2),
        ([3], [0, 0, 0, 99], 3), ([1, 2], [0, 5, -1], 2),
    ):
        answer = choose(list(ready), list(last_issue))
        assert answer == expected, (
            f"of the warps {ready}, last issued at {[last_issue[w] for w in ready]}, warp {expected} waited longest; you choose {answer}"
        )
