"""The chain of dependent multiply-adds: exact values, every version, and a chain that nothing folds away."""

import re

import pytest
import torch
from tolerances import assert_matches

from helpers import mode
from helpers.compile import compile_kernel
from helpers.kernels.fma_chain import (
    NUM_WARPS,
    THREADS,
    UNROLL,
    fma_chain,
    fma_chain_flops,
    fma_chain_reference,
    fma_chain_traffic_bytes,
    fma_resident,
    fma_resident_kernel,
    fma_shared,
    unrolled,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def versions():
    yield "one program per block", fma_chain
    yield "shares as needed", lambda x, a, b, n: fma_shared(x, a, b, n, programs=3, steps=2)
    for early in (False, True):
        for elements in (1, 4):
            yield (f"resident, early={early}, elements={elements}",
                   lambda x, a, b, n, early=early, elements=elements: fma_resident(
                       x, a, b, n, programs=3, early=early, elements_per_thread=elements))


every_version = pytest.mark.parametrize("version", [v for _, v in versions()], ids=[name for name, _ in versions()])


@every_version
@pytest.mark.parametrize("n", [0, 1, 16, 1000])
def test_counts_exactly(version, n, device):
    """x = 1 x + 1 from 0: n steps make n."""
    assert version(torch.zeros(5, device=device), 1.0, 1.0, n).tolist() == [float(n)] * 5
    assert version(torch.zeros(5, device=device), 1, 1, n).tolist() == [float(n)] * 5  # ints are not special


@every_version
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 127, 129, 1031])
def test_against_float64(version, size, dtype, device):
    x = (torch.randn(size) * 4).to(device, dtype)
    x[0], x[-1] = 7.25, -1.5
    assert_matches(version(x, -0.75, 0.3, 5), fma_chain_reference(x, -0.75, 0.3, 5), scale=2)


@pytest.mark.parametrize("n", [UNROLL - 1, UNROLL, UNROLL + 1, 2 * UNROLL + 3])
def test_around_the_unrolled_piece(n, device):
    x = torch.tensor([0.0, 3.0, -8.0], device=device)
    assert fma_chain(x, 1.0, 1.0, n).tolist() == [n, n + 3, n - 8]


@pytest.mark.parametrize("make", [
    lambda: torch.randn(5, 3).t(),
    lambda: torch.randn(40, 70)[3:30:2, 5:60:3],
    lambda: torch.randn(7, 1).expand(7, 30),
    lambda: torch.randn(6, 5, 4).permute(2, 0, 1),
    lambda: torch.tensor(3.0),
    lambda: torch.empty(0, 4),
    lambda: torch.randn(130)[1:],
])
def test_strides_and_shapes(make, device):
    x = make().to(device)
    assert_matches(fma_chain(x, 0.5, -2.0, 3), fma_chain_reference(x, 0.5, -2.0, 3))


def test_special_values_follow_ieee(device):
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 3e38], device=device)
    out = fma_chain(x, 2.0, 1.0, 2)
    assert out[0] == out[3] == float("inf") and out[1] == float("-inf") and out[2].isnan()


def test_a_and_b_are_rounded_to_float32_once(device):
    """0.1 is not a float32: over 1000 steps the reference must use the number that the kernel got."""
    x = torch.zeros(3, device=device)
    assert_matches(fma_chain(x, 0.999, 0.1, 1000), fma_chain_reference(x, 0.999, 0.1, 1000), scale=20)


@pytest.mark.parametrize("call, error, message", [
    (lambda x: fma_chain(x.int(), 1.0, 1.0, 1), TypeError, "float32, float16 or bfloat16"),
    (lambda x: fma_chain(x, "1", 1.0, 1), TypeError, "a must be a number, got str"),
    (lambda x: fma_chain(x, 1.0, True, 1), TypeError, "b must be a number, got bool"),
    (lambda x: fma_chain(x, 1.0, 1.0, 2.0), TypeError, "n must be an int, got float"),
    (lambda x: fma_chain(x, 1.0, 1.0, -1), ValueError, "n must not be negative, got -1"),
    (lambda x: fma_chain(x.requires_grad_(), 1.0, 1.0, 1), ValueError, "requires grad"),
    (lambda x: fma_resident(x, 1.0, 1.0, 1, programs=0), ValueError, "programs must be from 1 to 1048576, got 0"),
    (lambda x: fma_resident(x, 1.0, 1.0, 1, programs=1, elements_per_thread=3), ValueError, "a power of two from 1 to 8, got 3"),
    (lambda x: fma_resident(x, 1.0, 1.0, 1, programs=2, where=torch.zeros(2)), ValueError, r"int64 tensor of shape \(2, 3\)"),
])
def test_bad_input(call, error, message, device):
    with pytest.raises(error, match=message):
        call(torch.zeros(4, device=device))


def compiled(n, early, elements=1, target="sm_90", unroll=None, wide=False):
    x = torch.empty(1 << 20)
    return compile_kernel(fma_resident_kernel, x, x, x, x.numel(), 0.9, 0.1, target=target, num_warps=NUM_WARPS,
                          N=n, UNROLL=unroll or unrolled(n, elements), BLOCK=THREADS * elements, EARLY=early, WIDE=wide,
                          WHERE=False)


def ffmas(sass):
    return [line for line in sass.splitlines() if "FFMA" in line]


@pytest.mark.parametrize("target", ["sm_90", "sm_120"])
@pytest.mark.parametrize("early", [False, True])
def test_the_chain_is_really_there(early, target):
    """64 multiply-adds an element in the machine code, each of them needing the one before; the result is stored."""
    sass = compiled(64, early, target=target).sass
    chain = [re.findall(r"\bR\d+", line.partition("FFMA")[2])[:2] for line in ffmas(sass)]
    assert len(chain) == 64
    assert all(before[0] in later[1:] for before, later in zip(chain, chain[1:], strict=False))
    assert "STG" in sass


def test_long_chains_are_a_loop_of_unrolled_pieces():
    assert len(ffmas(compiled(2048, True).sass)) == unrolled(2048) == 1024
    assert unrolled(512) == 256 and unrolled(1) == 32 and unrolled(10**6) == 1024 and unrolled(2048, 4) == 256


def test_four_elements_are_four_chains():
    assert len(ffmas(compiled(64, True, elements=4).sass)) == 4 * 64


def test_early_load_stands_before_the_chain():
    """The compiler may move a load; where it moved this one decides the measurement (lesson 07)."""
    lines = compiled(512, True).sass.splitlines()
    loads = [i for i, line in enumerate(lines) if "LDG" in line]
    chain = [i for i, line in enumerate(lines) if "FFMA" in line]
    assert len(loads) == 2 and loads[-1] < chain[0]
    plain = compiled(512, False).sass.splitlines()
    assert sum("LDG" in line for line in plain) == 1
    # in one piece of 512, and with 64-bit offsets, the compiler moves the load down to shortly before its use
    sunk = compiled(512, True, unroll=512, wide=True).sass.splitlines()
    load = max(i for i, line in enumerate(sunk) if "LDG" in line)
    assert 50 < sum("FFMA" in line for line in sunk[load:]) < 200


def test_counting():
    assert fma_chain_traffic_bytes(1 << 26) == 2**29  # 256 MiB read, 256 MiB written
    assert fma_chain_flops(1 << 26, 512) / fma_chain_traffic_bytes(1 << 26) == 128  # intensity K / 4


@pytest.mark.gpu
def test_twice_the_chain_takes_twice_the_time():
    from helpers.measure import time_us

    x = torch.zeros(1 << 24, device="cuda")
    short, long = (time_us(lambda n=n: fma_chain(x, 1.0, 1.0, n)).median for n in (1000, 2000))
    assert 1.7 < long / short < 2.3
    peak = 2 * torch.cuda.get_device_properties().multi_processor_count * 128 * 2.7e9  # no chip is above 2.7 GHz
    assert fma_chain_flops(x.numel(), 2000) / (long * 1e-6) < peak


@pytest.mark.parametrize("early", [False, True])
def test_wide_offsets_give_the_same(early, device):
    x = torch.randn(1031, device=device)
    narrow, wide = (fma_resident(x, 0.9, 0.1, 7, programs=2, early=early, wide=w) for w in (False, True))
    assert torch.equal(narrow, wide)


@pytest.mark.gpu
def test_more_than_2_31_elements():
    x = torch.zeros(2**31 + 5, dtype=torch.float16, device="cuda")
    for out in (fma_chain(x, 1.0, 1.0, 3), fma_resident(x, 1.0, 1.0, 3, programs=1000)):
        assert bool((out == 3).all())


@pytest.mark.gpu
def test_where_is_read_back():
    sms = torch.cuda.get_device_properties().multi_processor_count
    where = torch.full((2 * sms, 3), -1, dtype=torch.int64, device="cuda")
    x = torch.randn(1 << 20, device="cuda")
    out = fma_resident(x, 0.9, 0.1, 600, programs=2 * sms, where=where)
    assert_matches(out, fma_chain_reference(x, 0.9, 0.1, 600), scale=8)
    sm, began, ended = where.unbind(1)
    assert 0 <= int(sm.min()) and int(sm.max()) < sms and len(sm.unique()) > sms // 2
    assert (ended > began).all() and int(ended.max() - began.min()) < 10**9


def test_without_a_gpu_there_is_no_where():
    if mode.is_live():
        pytest.skip("this machine has SMs to name")
    with pytest.raises(ValueError, match="on the GPU"):
        fma_resident(torch.zeros(4), 1.0, 1.0, 1, programs=2, where=torch.zeros(2, 3, dtype=torch.int64))
