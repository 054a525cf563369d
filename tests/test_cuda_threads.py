"""Lesson 08: threads of a launch counted, figures over their controls, exercises that refuse wrong answers."""

import pandas as pd
import pytest
import torch

from figures import simt, threads
from helpers.cuda import VEC_ADD, CudaKernel
from helpers.lesson import check, sweep
from helpers.simt import SimtError


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


def test_block_sizes_are_drawn_beside_the_readers_own():
    rows = pd.DataFrame({"variant": ["CUDA"] * 3 + ["yours"] * 3, "block": [32, 33, 256] * 2, "n": 2**20,
                         "time_us": [20.0, 19.4, 5.0, 30.0, 29.0, 6.0], "traffic_bytes": 12 * 2**20})
    rows["bandwidth_gb_per_s"] = rows["traffic_bytes"] / rows["time_us"] / 1e3
    assert "1,092 blocks a µs" in threads.show_blocks(rows).alt  # of the slowest row: 2^20 / 32 / 30
    assert "629 GB/s at 32 threads, 1,638 blocks a µs" in threads.show_blocks(rows[:3]).alt


def test_steps_of_the_last_warp_are_shown():
    a = torch.arange(1000.0)
    report = VEC_ADD.counted(4, 256, a, 2 * a, torch.empty(1000), 1000, trace=(3, 7))
    add = next(step for step in report.trace if step.text.startswith("add.f32"))
    assert add.active.sum() == 8 and next(iter(add.registers.values()))[7] == 2997
    steps = [0, report.trace.index(add), len(report.trace) - 1]
    assert sweep(lambda step: simt.show_step(report, step, lanes=(0, 7, 31)), {"step": steps}) == 3


# ------------------------------------------------------------------------------------------------ exercises


def kernel(name: str, parameters: str, body: str) -> CudaKernel:
    source = f'extern "C" __global__ void {name}({parameters}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}'
    return CudaKernel(source, name)


@pytest.mark.parametrize("body", [
    "y[i] = alpha * x[i] + y[i];", "if (i < n) y[i] = alpha * x[i];", "if (i < n - 1) y[i] = alpha * x[i] + y[i];",
    "if (i <= n) y[i] = alpha * x[i] + y[i];", "i = threadIdx.x; if (i < n) y[i] = alpha * x[i] + y[i];",
])
def test_wrong_saxpys_are_refused(body):
    with pytest.raises((AssertionError, SimtError)):
        check("08_cuda_threads.1", kernel("saxpy", "float alpha, const float* x, float* y, int n", body))


@pytest.mark.parametrize("wrong", [
    lambda n, block: (n // block, 0, 32), lambda n, block: (-(-n // block), -n % block, n % 32 or 32), lambda n, block: 4,
])
def test_wrong_counts_of_idle_threads_are_refused(wrong):
    with pytest.raises(AssertionError, match="08_cuda_threads.2: not yet"):
        check("08_cuda_threads.2", wrong)


@pytest.mark.parametrize("body", [
    "if (i < n) y[i] = 2 * x[i];", "for (; i < n; i += blockDim.x) y[i] = 2 * x[i];", "for (; i <= n; i += 96) y[i] = 2 * x[i];",
])
def test_wrong_loops_over_a_grid_are_refused(body):
    with pytest.raises((AssertionError, SimtError)):
        check("08_cuda_threads.3", kernel("twice", "const float* x, float* y, int n", body))


def test_what_is_not_written_is_not_started(capsys):
    check("08_cuda_threads.2", lambda n, block: None)
    check("08_cuda_threads.3", kernel("twice", "const float* x, float* y, int n", ""))
    assert capsys.readouterr().out.count("not started") == 2
