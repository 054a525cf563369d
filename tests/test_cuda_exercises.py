"""Exercises of lessons 07 to 11: likely wrong answers are refused with a sentence that helps, other right ones pass."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from helpers.cuda import CudaKernel
from helpers.lesson import check


def twice(body):
    source = 'extern "C" __global__ void twice(const float* x, float* y, int n) { int t = blockIdx.x * blockDim.x + threadIdx.x;'
    return CudaKernel(f"{source} {body} }}", "twice")


def reverse(body):
    source = 'extern "C" __global__ void reverse(const float* x, float* y) { __shared__ float tile[256]; int t = threadIdx.x;'
    return CudaKernel(f"{source} int i = blockIdx.x * 256 + t; {body} }}", "reverse")


def quad(sums):
    """The skeleton of 10.4 with the body of `for (int r = 0; r < 4; r++)`."""
    path = Path(__file__).parents[1] / "notebooks" / "solutions" / "10_shared_memory.py"
    source = path.read_text().partition("# %% exercise-4")[2].partition('r"""')[2].partition('"""')[0]
    hole = re.compile(r"(// --- your code[^\n]*\n).*?(?=\s*// --- end)", re.S)
    return CudaKernel(hole.sub(lambda found: f"{found[1]}for (int r = 0; r < 4; r++) {{ {sums} }}", source), "quad_matmul")


def chunks(t, e, slack):
    return math.ceil(min(t, e) / (slack * max(t, e)))


WRONG = [
    ("07_occupancy.1", lambda latency, chains: latency // chains, "It takes 2 to fill every slot, you say 1; 1 would fill 3 of 4"),
    ("07_occupancy.1", lambda latency, chains: latency * chains, "It takes 2 to fill every slot, you say 8"),
    ("07_occupancy.3", lambda registers, warps: 65536 // (32 * registers * warps), "33 registers a thread"),
    ("07_occupancy.4", lambda rate, ns, smsps: math.ceil(rate * ns / 128 / smsps), "half of the traffic is read"),
    ("08_cuda_threads.2", lambda n, block: (n // block, n // block * block - n, n % 32), "(4, 24, 8), you say (3, -232, 8)"),
    ("08_cuda_threads.3", twice("if (t < n) y[t] = 2 * x[t];"), "968 elements were not written, from 32 on"),
    ("08_cuda_threads.3", twice("for (; t < n; t += blockDim.x) y[t] = 2 * x[t];"), "2464 stores for 1000 elements"),
    ("08_cuda_threads.3", twice("if (t == 0) for (int i = 0; i < n; i++) y[i] = 2 * x[i];"), "all threads must take part"),
    ("08_cuda_threads.3", twice("int k = gridDim.x * blockDim.x, s = (n + k - 1) / k;"
                                "for (int i = t * s; i < (t + 1) * s && i < n; i++) y[i] = 2 * x[i];"), "neighbouring elements"),
    ("09_coalescing.1", lambda stride, offset: min(32, 4 * stride), "stride 1, offset 1: the compiled kernel touches 5, you say 4"),
    ("09_coalescing.3", lambda: (1 / 8, 1), "interleaved: counted 0.333 of the moved bytes, you say 0.125"),
    ("10_shared_memory.2", reverse("y[i] = x[i + 255 - 2 * t];"), "go through shared memory"),
    ("10_shared_memory.2", reverse("tile[t] = x[i + 255 - 2 * t]; __syncthreads(); y[i] = tile[t];"), "lane 1 is -4 bytes on from lane 0"),
    ("10_shared_memory.2", reverse("tile[t] = x[i]; __syncwarp(); y[i] = tile[255 - t];"), "a race"),
    ("10_shared_memory.3", lambda s: s, "s = 3: the access takes 1 pass, you say 3"),
    ("10_shared_memory.3", lambda s: math.gcd(s, 32), "s = 0: the access takes 1 pass, you say 32"),
    ("10_shared_memory.4", quad("sum[r] += tile_a[4 * threadIdx.y + r][i] * tile_b[i][threadIdx.x];"), "which row of tile_a"),
    ("10_shared_memory.4", quad("sum[r] += tile_a[threadIdx.y + 8 * r][i] * b[(start + i) * n + col];"), "come from the tiles"),
    ("10_shared_memory.4", quad("volatile float* one = &tile_b[i][threadIdx.x]; sum[r] += tile_a[threadIdx.y + 8 * r][i] * *one;"),
     "with 2 numbers from shared memory"),
    ("11_streams.1", lambda t, e, slack: min(t, e) / (slack * max(t, e)), "is a whole number"),
    ("11_streams.1", lambda t, e, slack: 1 + chunks(t, e, slack), "fewer than 8 are enough"),
]
RIGHT = [
    ("07_occupancy.1", lambda latency, chains: np.ceil(latency / chains)),
    ("08_cuda_threads.3", twice("while (t < n) { y[t] = 2 * x[t]; t += gridDim.x * blockDim.x; }")),
    ("09_coalescing.3", lambda: (0.333, 1)),
    ("10_shared_memory.2", reverse("tile[255 - t] = x[i]; __syncthreads(); y[i] = tile[t];")),
    ("10_shared_memory.4", quad("sum[r] += tile_a[threadIdx.y + 8 * r][i] * tile_b[i][threadIdx.x];")),
    ("11_streams.1", chunks),
    ("11_streams.1", lambda *args: np.int64(chunks(*args))),
    ("11_streams.1", lambda *args: float(chunks(*args))),
]


@pytest.mark.parametrize("id, answer, hint", WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_answers_get_a_hint(id, answer, hint):
    with pytest.raises(AssertionError, match="not yet") as caught:
        check(id, answer)
    assert hint in str(caught.value)


@pytest.mark.parametrize("id, answer", RIGHT, ids=lambda value: value if isinstance(value, str) else "")
def test_other_right_answers_pass(id, answer, capsys):
    check(id, answer)
    assert "OK" in capsys.readouterr().out
