"""GELU: right for every float, any strides, any length; refuses what it was not written for."""

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import assert_matches

from helpers.kernels import gelu as module
from helpers.kernels.gelu import BLOCK, gelu, gelu_kernel, gelu_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
inf, nan = float("inf"), float("nan")


def masked(x):
    y = torch.full_like(x, nan)
    gelu_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 127, 128, 129, 1000, 1023, 1024, 1025, 3 * 1024 + 17])
@pytest.mark.parametrize("version", [gelu, masked])
def test_lengths(version, n, dtype, device):
    x = (torch.randn(n) * 4).to(device, dtype)
    x[0], x[-1] = 7.25, -1.5  # outliers where a wrong index shows
    assert_matches(version(x), gelu_reference(x))


@pytest.mark.parametrize("version", [gelu, masked])
def test_large_values_are_not_nan(version, device):
    x = torch.tensor([10.0, 10.1, 11.0, 50.0, 1e4, 3e38, -10.1, -50.0, -3e38, nan], device=device)
    expected = torch.tensor([10.0, 10.1, 11.0, 50.0, 1e4, 3e38, 0, 0, 0, nan], dtype=torch.float64)
    assert_matches(version(x), expected.float().double())


@given(st.lists(st.floats(width=32, allow_infinity=False), min_size=1, max_size=200))
@settings(max_examples=40, deadline=None)
def test_any_float(values):
    from helpers import mode

    x = torch.tensor(values, dtype=torch.float32, device=mode.device())
    # torch's own float32 formula overflows to NaN only where x^3 does; the float64 reference never does
    assert_matches(gelu(x), gelu_reference(x), scale=4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_half_range(dtype, device):
    """Every finite float16 or bfloat16 number, or a dense sweep of float32."""
    if dtype == torch.float32:
        x = torch.linspace(-30, 30, 40001)
    else:
        x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
        x = x[torch.isfinite(x)]
    x = x.to(device)
    assert_matches(gelu(x), gelu_reference(x), scale=4 if dtype == torch.float32 else 1)


@pytest.mark.parametrize("make", [
    lambda: torch.randn(5, 3).t(),
    lambda: torch.randn(40, 70)[3:30:2, 5:60:3],
    lambda: torch.randn(7, 1).expand(7, 300),
    lambda: torch.randn(6, 5, 4).permute(2, 0, 1),
    lambda: torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
    lambda: torch.tensor(3.0),
    lambda: torch.randn(2, 1, 3, 1),
])
def test_strides_and_shapes(make, device):
    x = make().to(device)
    before = x.clone()
    out = gelu(x)
    assert_matches(out, gelu_reference(x))
    assert torch.equal(x, before), "the input was changed"


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_empty(shape, device):
    out = gelu(torch.empty(shape, device=device))
    assert out.shape == shape and out.dtype == torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [130, 129, 2050])
def test_misaligned_view_after_aligned_call(n, dtype, device):
    buffer = (torch.arange(float(n)) / 16 - 4).to(device, dtype)
    for start in (0, 1, 2, 3, 0, 8):
        assert_matches(gelu(buffer[start:]), gelu_reference(buffer[start:]))


def test_writes_nothing_outside(device):
    """The output in the middle of a larger buffer: its neighbours stay as they were."""
    x = torch.randn(1000, device=device)
    buffer = torch.full((1100,), -7.0, device=device)
    out = buffer[50:1050]
    module.gelu_tail_kernel[(1,)](x, out, 1000, BLOCK=BLOCK)
    assert_matches(out, gelu_reference(x))
    assert (buffer[:50] == -7).all() and (buffer[1050:] == -7).all()


@pytest.mark.parametrize("x", [
    torch.tensor([1, 2, 3]), torch.tensor([1.0], dtype=torch.float64), torch.tensor([True]),
    torch.tensor([1 + 1j]), torch.tensor([1], dtype=torch.int8),
])
def test_other_dtypes(x, device):
    with pytest.raises(TypeError, match="float32, float16 or bfloat16, got"):
        gelu(x.to(device))


@pytest.mark.parametrize("x", [[1.0], 1.0, None, "x"])
def test_not_a_tensor(x):
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor, got"):
        gelu(x)


def test_gradient_is_not_lost_silently(device):
    x = torch.randn(4, device=device, requires_grad=True)
    with pytest.raises(ValueError, match="requires grad"):
        gelu(x)
    with torch.no_grad():
        assert_matches(gelu(x), gelu_reference(x.detach()))


def test_sparse_and_meta_are_refused():
    with pytest.raises(ValueError, match="layout"):
        gelu(torch.eye(3).to_sparse())
    with pytest.raises(ValueError, match="meta"):
        gelu(torch.empty(3, device="meta"))


def test_zeros_and_nan_never_pass():
    """The comparison itself: what a kernel that does nothing returns must fail."""
    x = torch.randn(100)
    for wrong in (torch.zeros(100), torch.full((100,), nan), x, gelu_reference(x).float() * 1.001):
        with pytest.raises(AssertionError):
            assert_matches(wrong, gelu_reference(x))


@pytest.mark.gpu
def test_cpu_tensor_is_refused_on_a_gpu():
    with pytest.raises(ValueError, match="is on cpu"):
        gelu(torch.randn(3))


@pytest.mark.gpu
def test_more_than_2_31_elements():
    x = torch.ones(2**31 + 5, dtype=torch.float16, device="cuda")
    x[-3:] = -1
    out = gelu(x)
    for where in (slice(0, 1000), slice(2**31 - 500, 2**31 + 5)):
        assert_matches(out[where], gelu_reference(x[where]))


@pytest.mark.gpu
def test_runs_on_the_current_stream():
    stream = torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
        out = gelu(x)
    stream.synchronize()
    assert_matches(out, gelu_reference(x))
