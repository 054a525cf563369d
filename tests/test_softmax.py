"""Softmax, three versions: right for every row, any strides and lengths; refuses what it was not written for."""

import subprocess
import sys
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import assert_matches

from helpers import mode
from helpers.kernels import softmax as module
from helpers.kernels.softmax import MAX_COLS, TILE, online_softmax, softmax, softmax_naive, softmax_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]

def alone(version):
    """A program for each row, however short: the way of longer rows, tried with little data."""
    def call(x):
        with mock.patch.object(module, "SHORT", 0):
            return version(x)

    call.__name__ = f"{version.__name__}_alone"
    return call


VERSIONS = [softmax, online_softmax, alone(softmax), alone(online_softmax), softmax_naive]
inf, nan = float("inf"), float("nan")


def assert_softmax(version, x, scale=4.0):
    """Equal to float64 and rows sum to 1. scale: exp turns the rounding of x - max (up to 40) into relative error."""
    before = x.clone()
    out = version(x)
    assert_matches(out, softmax_reference(x), dtype=x.dtype, scale=scale if x.dtype == torch.float32 else 1)
    if out.numel():
        assert (out.double().sum(-1) - 1).abs().max() < (1e-5 if x.dtype == torch.float32 else 2e-2)
    assert torch.equal(x, before), "the input was changed"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 127), (3, 128), (3, 129), (2, 781), (5, 1000), (2, 8193)])
@pytest.mark.parametrize("version", VERSIONS)
def test_shapes(version, shape, dtype, device):
    x = (torch.randn(shape) * 4).to(device, dtype)
    x[0, -1], x[-1, 0] = 9.5, -11.0  # outliers where a wrong index shows
    assert_softmax(version, x)


@pytest.mark.parametrize("version", VERSIONS)
def test_special_rows_follow_torch(version, device):
    x = torch.tensor([[-inf] * 4, [0, inf, 1, 2], [0, nan, 1, 2], [-inf, 0, -inf, -inf], [3e38, -3e38, 0, 0],
                      [nan] * 4, [inf] * 4, [-inf, -inf, 7, 7]], device=device)
    expected = torch.tensor([[nan] * 4] * 3 + [[0, 1, 0, 0], [1, 0, 0, 0]] + [[nan] * 4] * 2 + [[0, 0, 0.5, 0.5]],
                            dtype=torch.float64)
    assert_matches(version(x), expected)


@pytest.mark.parametrize("version", [online_softmax, softmax])
def test_values_arrive_in_any_tile(version, device):
    """The online version meets its maximum early or late, after tiles of -inf, or not at all."""
    n = 2 * TILE + 5
    x = torch.full((7, n), -inf)
    x[0, 0], x[1, -1], x[2, TILE], x[3, 5] = 3.0, 3.0, -1e30, nan
    x[4] = torch.linspace(-90, 90, n)
    x[5] = torch.linspace(90, -90, n)
    x = x.to(device)
    assert_matches(version(x), torch.softmax(x.double(), -1), scale=8)


@pytest.mark.parametrize("values", [[5.0, -7.0, 1e30]])
@pytest.mark.parametrize("version", VERSIONS)
def test_one_column(version, values, device):
    assert torch.equal(version(torch.tensor(values, device=device)[:, None]).cpu(), torch.ones(3, 1))


@given(rows=st.lists(st.lists(st.floats(-80, 80, width=32), min_size=5, max_size=5), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_any_finite_row(rows):
    x = torch.tensor(rows, dtype=torch.float32, device=mode.device())
    for version in VERSIONS:
        assert_softmax(version, x, scale=20)  # spread of 160: exp(x - max) loses 160 / 2 bits' worth of rounding
        assert_matches(version(x + 16), softmax_reference(x + 16), scale=20)


STRIDED = {
    "transposed": lambda: torch.randn(5, 3).t(),
    "sliced": lambda: torch.randn(40, 70)[3:30:2, 5:60:3],
    "expanded rows": lambda: torch.randn(1, 300).expand(4, 300),
    "expanded cols": lambda: torch.randn(4, 1).expand(4, 300),
    "offset": lambda: torch.randn(1000)[3:903].view(9, 100),
    "overlapping": lambda: torch.randn(200).as_strided((20, 50), (3, 2)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
@pytest.mark.parametrize("version", VERSIONS)
def test_strides(version, make, dtype, device):
    assert_softmax(version, make().to(dtype).to(device))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
@pytest.mark.parametrize("version", VERSIONS)
def test_empty(version, shape, device):
    out = version(torch.empty(shape, device=device, dtype=torch.float16))
    assert out.shape == shape and out.dtype == torch.float16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_misaligned_view_after_aligned_call(version, dtype, device):
    buffer = (torch.arange(400.0) / 40 - 4).to(device, dtype)
    for start in (0, 1, 2, 3, 0, 8):
        assert_softmax(version, buffer[start:start + 384].view(3, 128))


def test_longer_than_the_largest_tile(device):
    x = torch.zeros(1, 2**20 + 1, device=device)
    out = online_softmax(x)
    assert_matches(out, torch.full(x.shape, 1 / (2**20 + 1), dtype=torch.float64), scale=4)
    with pytest.raises(ValueError, match=f"at most {MAX_COLS} columns, got shape .1, 1048577.; online_softmax takes"):
        softmax(x)


@pytest.mark.parametrize("version", [softmax, online_softmax, softmax_naive])
@pytest.mark.parametrize("x, error, message", [
    (torch.tensor(3.0), ValueError, r"x must have 2 dimensions, got shape \(\)"),
    (torch.zeros(3), ValueError, r"got shape \(3,\)"),
    (torch.zeros(2, 3, 4), ValueError, r"got shape \(2, 3, 4\)"),
    (torch.zeros(2, 3, dtype=torch.int64), TypeError, "float32, float16 or bfloat16, got int64"),
    (torch.zeros(2, 3, dtype=torch.float64), TypeError, "got float64"),
    ([[1.0]], TypeError, "must be a torch.Tensor, got list"),
])
def test_refusals(version, x, error, message, device):
    with pytest.raises(error, match=f"{version.__name__}: .*{message}"):
        version(x.to(device) if isinstance(x, torch.Tensor) else x)


@pytest.mark.parametrize("version", VERSIONS)
def test_gradient_is_not_lost_silently(version, device):
    x = torch.randn(2, 3, device=device, requires_grad=True)
    with pytest.raises(ValueError, match="requires grad"):
        version(x)
    with torch.no_grad():
        assert_matches(version(x), softmax_reference(x.detach()), scale=4)


def test_writes_nothing_outside(device):
    x = torch.randn(3, 100, device=device)
    for kernel, constants in ((module.softmax_kernel, {"BLOCK": 128}), (module.online_softmax_kernel, {"TILE": 64})):
        buffer = torch.full((9, 140), -7.0, device=device)
        kernel[(3,)](x, buffer[3:, 20:], 100, 100, 1, 140, **constants)
        assert_matches(buffer[3:6, 20:120].contiguous(), softmax_reference(x), scale=4)
        buffer[3:6, 20:120] = -7
        assert (buffer == -7).all()


def test_each_version_takes_its_own_path(monkeypatch, device):
    """Without its kernel, a version fails; so none of them quietly calls another. Short rows have one kernel."""
    kernels = [(softmax, "softmax_kernel"), (online_softmax, "online_softmax_kernel")]
    for version, name in kernels:
        for missing, cols in ((name, module.SHORT + 1), ("softmax_short_rows_kernel", module.SHORT)):
            x = torch.randn(2, cols, device=device)
            monkeypatch.setattr(module, missing, None)
            with pytest.raises(TypeError):
                version(x)
            softmax_naive(x)
            monkeypatch.undo()


def test_traffic_is_a_quarter():
    m = n = 4096
    assert module.softmax_naive_traffic_bytes(m, n) == 4 * 134_234_112
    assert module.softmax_traffic_bytes(m, n) == 4 * 2 * m * n


HUGE_STRIDE = """
import helpers, torch
from helpers.kernels.{op} import {names}
base = torch.empty(2**31 + 16, dtype=torch.float16)
for strides in ((2**30, 1), (1, 2**31 // 7 + 1)):  # the last row, then the last column, begins beyond 2^31
    x = base.as_strided((3, 8), strides)
    for i in range(3): x[i] = torch.arange(8.0) * (i + 1)
    for version in ({names},):
        out = {call}
        assert torch.allclose(out.float(), {expected}, rtol=2e-3, atol=1e-7), out
print("right")
"""


def run_huge_stride(op, names, expected, call="version(x)"):
    """Row and column offsets of 2^31 elements, in a process of its own: a 32-bit offset would kill it. Few pages are real."""
    code = HUGE_STRIDE.format(op=op, names=names, expected=expected, call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "right", done.stdout + done.stderr


@pytest.mark.skipif(mode.is_live(), reason="the GPU version of this test uses real rows")
def test_offsets_beyond_2_31():
    run_huge_stride("softmax", "softmax, online_softmax", "x.float().softmax(-1)")


@pytest.mark.gpu
def test_more_than_2_31_elements():
    x = torch.zeros(70_000, 32_768, dtype=torch.float16, device="cuda")
    x[-1, -1] = 12
    for version in (softmax, online_softmax):
        out = version(x)
        for row in (0, 65_535, 65_536, 69_999):
            assert_matches(out[row:row + 1], softmax_reference(x[row:row + 1]))
        del out


@pytest.mark.gpu
@pytest.mark.parametrize("n", [4096, 32768, 50257, MAX_COLS, 131_072])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_rows_on_a_gpu(n, dtype):
    x = torch.randn(50, n, device="cuda").mul(4).to(dtype)
    for version in (softmax, online_softmax)[n > MAX_COLS:]:
        assert_softmax(version, x, scale=8)


@pytest.mark.parametrize("shape", [(70_000, 4), (66_000, 1), (1025, 2), (3, 511), (3, 513), (1, 600)])
@pytest.mark.parametrize("version", [softmax, online_softmax])
def test_short_rows_share_programs(version, shape, device):
    """More rows than a grid's second axis has programs, the last program full or not; seconds in the interpreter, too."""
    x = torch.randn(shape, device=device)
    assert_softmax(version, x)
    assert_softmax(version, x.t().contiguous().t())


@pytest.mark.gpu
def test_cpu_tensor_is_refused_on_a_gpu():
    with pytest.raises(ValueError, match="is on cpu"):
        softmax(torch.randn(3, 4))
