"""The probes: right values everywhere, and on a GPU times and places that can be true."""

import pytest
import torch

from helpers import mode
from helpers.kernels import probes
from helpers.kernels.probes import (
    BUSY,
    CHASE,
    FMA_LATENCY,
    LINE_BYTES,
    WARP_PAIR,
    address_chain,
    copy,
    pointer_chase,
    read_again,
    sums_read,
)


@pytest.mark.parametrize("past_l1", [False, True])
@pytest.mark.parametrize("size", [64, 4096, 3 * 4096, 16384])  # smaller than a tile, one tile, three, four
def test_read_again_reads_everything_as_often_as_it_says(size, past_l1, device):
    x = (torch.arange(3 * size) % 8).float().reshape(3, size).to(device)
    x[1, -1] = 100
    total = 8 * 16384  # bytes for each program: 8 tiles
    expected = torch.stack([x.repeat(1, 8 * 4096 // size + 1)[:, :8 * 4096].double().sum(1)])[0]
    assert read_again(x, total, past_l1=past_l1).tolist() == expected.tolist() == sums_read(x, total).tolist()


@pytest.mark.parametrize("x, total, message", [
    (torch.zeros(2, 100), 16384, "multiple of 64"),
    (torch.zeros(2, 64).half(), 16384, "float32"),
    (torch.zeros(64, 2).t(), 16384, "contiguous"),
    (torch.zeros(2, 64), 1000, "multiple of 16384"),
    (torch.zeros(64), 16384, "2 dimensions"),
])
def test_read_again_refuses(x, total, message, device):
    with pytest.raises(ValueError, match=message):
        read_again(x.to(device), total)


@pytest.mark.parametrize("shape", [(1,), (4095,), (4097,), (3, 5000), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copy(shape, dtype, device):
    x = torch.randn(shape).to(device, dtype)
    out = copy(x)
    assert torch.equal(out, x) and out.data_ptr() != x.data_ptr() or x.numel() == 0
    with pytest.raises(ValueError, match="contiguous"):
        copy(torch.zeros(3, 4, device=device).t())


def test_a_chase_visits_every_line_once_and_comes_back(device):
    lines = 37
    chain = address_chain(lines * LINE_BYTES)
    visited = {pointer_chase(chain, steps).line for steps in range(1, lines + 1)}
    assert visited == set(range(lines))
    assert pointer_chase(chain, lines).line == 0  # one whole round
    assert pointer_chase(chain, 3, warm_steps=lines - 3).line == 0
    middle = pointer_chase(chain, 5).line
    assert pointer_chase(chain, lines - 5, start=middle).line == 0
    assert chain.device.type == device.type


def test_chase_refuses():
    with pytest.raises(ValueError, match="multiple of 128"):
        address_chain(100)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        pointer_chase(address_chain(256), 0)
    with pytest.raises(ValueError, match="line from 0 to 1, got 2"):
        pointer_chase(address_chain(256), 1, start=2)


@pytest.mark.parametrize("call", [
    probes.fma_latency, lambda: probes.busy(1, 4), lambda: probes.warp_pair(0, 1),
])
def test_no_clock_without_a_gpu(call):
    if mode.is_live():
        pytest.skip("this machine has a clock")
    assert pointer_chase(address_chain(256), 5).cycles is None
    with pytest.raises(RuntimeError, match="no GPU is in use"):
        call()


def test_probes_compile_to_what_they_are_for():
    """512 multiply-adds in a row in `busy` and `warp_pair`, one chain of 512 in `fma_latency`, a clock, loads."""
    fmas = {kernel.name: kernel.compiled("sm_90").sass.count("FFMA") for kernel in (BUSY, WARP_PAIR, FMA_LATENCY)}
    assert fmas == {"busy": 512, "warp_pair": 512, "fma_latency": 512}
    assert "CS2R" in FMA_LATENCY.compiled("sm_90").sass  # the clock
    assert CHASE.compiled("sm_90").sass.count("LDG.E.64") > 16


@pytest.mark.gpu
def test_latencies_rise_with_the_working_set():
    times = []
    for size in (1 << 15, 1 << 23, 1 << 30):
        chain = address_chain(size)
        chain.sum()
        times.append(pointer_chase(chain, 4096, warm_steps=min(4096, size // LINE_BYTES)).cycles)
    l1, l2, memory = times
    assert 20 < l1 < 60 and 3 * l1 < l2 and 1.5 * l2 < memory < 3000


@pytest.mark.gpu
def test_fma_latency_is_about_four_cycles():
    assert 3.9 < probes.fma_latency() < 6.1


@pytest.mark.gpu
def test_every_warp_is_placed_and_a_block_stays_on_one_sm():
    out, sm, slot = probes.busy(8, 4)
    assert (out == 8).all()
    assert all(len(set(warps)) == 1 for warps in sm.reshape(8, 4).tolist())
    assert int(slot.min()) >= 0


@pytest.mark.gpu
def test_two_warps_of_one_scheduler_take_twice_as_long():
    alone = probes.warp_pair(0, 0)
    times = {j: probes.warp_pair(0, j) / alone for j in range(1, 8)}
    assert times[4] > 1.8 and all(times[j] < 1.2 for j in (1, 2, 3))
