"""Tests of the exercises of lesson 08."""

import torch

from helpers.cuda import VEC_ADD
from helpers.lesson.exercise import NotStarted, exercise, started
from helpers.mode import device


@exercise("08_cuda_threads.1")
def _(saxpy):
    for n, block in ((1000, 256), (1, 32), (100, 64), (128, 64), (129, 64)):
        x, room = torch.randn(n, device=device()), torch.full((n + 300,), -1.0, device=device())
        y = room[:n]
        y.copy_(torch.randn(n))
        before = y.clone()
        saxpy[-(-n // block), block](1.5, x, y, n)
        if n == 1000 and torch.equal(y, before):
            raise NotStarted
        expected = 1.5 * x.double() + before.double()
        wrong = ((y.double() - expected).abs() > 1e-5).nonzero().flatten().tolist()
        assert not wrong, f"n = {n}, blocks of {block}: wrong at i = {wrong[:5]}"
        assert (room[n:] == -1).all(), f"n = {n}: threads past the end wrote too"


@exercise("08_cuda_threads.2")
def _(idle):
    if idle(1000, 256) in (None, ...):
        raise NotStarted
    for n, block in ((1000, 256), (1, 32), (1024, 256), (33, 32), (100, 1024), (257, 128), (150, 100)):
        blocks, last_warp = -(-n // block), (n - 1) % block // 32
        report = VEC_ADD.counted(blocks, block, torch.ones(n), torch.ones(n), torch.empty(n), n, trace=(blocks - 1, last_warp))
        active = next(int(step.active.sum()) for step in report.trace if step.text.startswith("st.global"))
        real = (blocks, blocks * block - report.of("global store").lanes, active)
        answer = idle(n, block)
        assert isinstance(answer, tuple | list) and tuple(answer) == real, (
            f"n = {n}, blocks of {block}: the compiled kernel has (blocks, idle threads, active lanes of the last "
            f"working warp) = {real}, you say {answer}"
        )


@exercise("08_cuda_threads.3")
def _(twice):
    for n, grid, block in ((1000, 4, 256), (1000, 1, 32), (5, 2, 64), (777, 3, 96)):
        x, room = torch.randn(n, device=device()), torch.full((n + 64,), float("nan"), device=device())
        y = room[:n]
        twice[grid, block](x, y, n)
        started(y)
        missing = y.isnan().nonzero().flatten().tolist()
        launch = f"n = {n}, {grid} blocks of {block}"
        assert not missing, f"{launch}: {len(missing)} elements were not written, from {missing[0]} on"
        assert torch.equal(y, 2 * x), f"{launch}: wrong values"
        assert room[n:].isnan().all(), f"n = {n}: something was written past the end"
        store = twice.counted(grid, block, x.cpu(), torch.empty(n), n).of("global store")
        assert store.lanes == n, f"{launch}: {store.lanes} stores for {n} elements; how far on is the next element of a thread?"
        least = -(-n // 32)
        assert store.requests == least and store.sectors <= 5 * least, (
            f"{launch}: right, but warps store {store.requests} times, {store.sectors} sectors in all, where {least} times would do; "
            "all threads must take part, and neighbours take neighbouring elements"
        )
