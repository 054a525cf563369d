"""Row sum, in one program a row or in several: right for any length and strides, reproducible to the bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_softmax import STRIDED, run_huge_stride
from tolerances import assert_matches

from helpers import mode
from helpers.kernels import row_sum as module
from helpers.kernels.row_sum import (
    ALIGN,
    PART,
    PROGRAMS_PER_SM,
    parts_for,
    row_sum,
    row_sum_one_program,
    row_sum_reference,
    row_sum_split,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
inf, nan = float("inf"), float("nan")


def three_parts(x):
    return row_sum_split(x, parts=3)


VERSIONS = [row_sum, row_sum_split, three_parts, row_sum_one_program]


def assert_row_sum(version, x):
    """Equal to float64 within the error of adding: eps * sum |x| (a few steps), then one rounding to x's dtype."""
    expected = row_sum_reference(x)
    magnitude = x.double().abs().sum(-1).clamp(min=1e-30)
    out = version(x)
    assert out.shape == x.shape[:1] and out.dtype == x.dtype
    rounding = {torch.float32: 6e-8, torch.float16: 5e-4, torch.bfloat16: 4e-3}[x.dtype]
    error = (out.double() - expected).abs()
    assert (error <= 2e-6 * magnitude + 1.01 * rounding * expected.abs() + 1e-7).all(), (out, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 127, 128, 129, 1023, 1024, 1025, 3 * 1024 + 17, 2 * PART + 3])
@pytest.mark.parametrize("version", VERSIONS)
def test_lengths(version, n, dtype, device):
    x = torch.randn(3, n)
    x[0, -1], x[1, 0] = 64.0, -37.0  # outliers where a wrong index shows
    assert_row_sum(version, x.to(device, dtype))


@pytest.mark.parametrize("version", VERSIONS)
def test_half_precision_is_summed_in_float32(version, device):
    def half(rows):
        return torch.tensor(rows, dtype=torch.float16, device=device)

    assert version(half([[32000, 32000, -32000, -32000]])).item() == 0
    assert version(torch.ones(1, 4096, dtype=torch.float16, device=device)).item() == 4096
    assert version(torch.ones(1, 4096, dtype=torch.bfloat16, device=device)).item() == 4096
    assert version(half([[30000] * 4])).item() == inf  # 120000 rounds to inf in float16, as in torch
    assert version(half([[30000] * 4 + [-30000] * 3])).item() == 30000


@pytest.mark.parametrize("version", VERSIONS)
def test_special_values(version, device):
    x = torch.tensor([[1, inf, 2], [inf, -inf, 1], [nan, 1, 2], [-inf, 0, 0], [3e38, 3e38, 0]], device=device)
    assert_matches(version(x), torch.tensor([inf, nan, nan, -inf, inf], dtype=torch.float64))


@pytest.mark.parametrize("version", VERSIONS)
def test_one_column(version, device):
    x = torch.tensor([[5.0], [-7.0], [1e30]], device=device)
    assert torch.equal(version(x), x[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", STRIDED.values(), ids=STRIDED)
@pytest.mark.parametrize("version", VERSIONS)
def test_strides(version, make, dtype, device):
    assert_row_sum(version, make().to(dtype).to(device))


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0, 0)])
@pytest.mark.parametrize("version", VERSIONS)
def test_empty_sum_is_zero(version, shape, device):
    assert torch.equal(version(torch.empty(shape, device=device)).cpu(), torch.zeros(shape[0]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_misaligned_view_after_aligned_call(version, dtype, device):
    buffer = (torch.arange(400.0) / 40 - 4).to(device, dtype)
    for start in (0, 1, 2, 3, 0, 8):
        assert_row_sum(version, buffer[start:start + 384].view(3, 128))


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=7, max_size=7), min_size=1, max_size=4))
@settings(max_examples=30, deadline=None)
def test_any_rows(rows):
    x = torch.tensor(rows, dtype=torch.float32, device=mode.device())
    for version in VERSIONS:
        assert_row_sum(version, x)


@pytest.mark.parametrize("version", [row_sum, row_sum_split])
def test_longer_than_the_largest_tile(version, device):
    assert version(torch.ones(1, 2**20 + 1, device=device)).item() == 1_048_577.0


@pytest.mark.parametrize("n_rows", [1, 2, 16, 100, 132, 1000, 8448, 10**6])
@pytest.mark.parametrize("n_cols", [1, PART, 2 * PART - 1, 2 * PART, 524_288, 69_206_016, 2**31 + 5])
@pytest.mark.parametrize("sms", [1, 4, 132, 170])
def test_parts_cover_the_row(n_rows, n_cols, sms):
    parts, part_cols = parts_for(n_rows, n_cols, sms)
    assert (parts - 1) * part_cols < n_cols <= parts * part_cols, "a column is left out, or a part is empty"
    assert parts == 1 or (part_cols % ALIGN == 0 and part_cols >= PART)
    assert parts == 1 or n_rows * parts <= PROGRAMS_PER_SM * sms


def test_few_rows_take_the_shape_of_many():
    """132 rows of 524288 on 132 SMs become 64 programs an SM, as 8448 rows of 8192 are."""
    assert parts_for(132, 524_288, 132) == (64, 8192)
    assert parts_for(16, 4_325_376, 132) == (528, 8192)
    assert parts_for(100, 692_060, 132) == (84, 8240)
    assert parts_for(8448, 8192, 132) == (1, 8192)


def test_each_version_takes_its_own_path(monkeypatch, device):
    long, short = torch.randn(1, 2 * PART, device=device), torch.randn(2, 5, device=device)
    monkeypatch.setattr(module, "row_sum_part_kernel", None)
    row_sum_one_program(long), row_sum(short)
    for call in (lambda: row_sum(long), lambda: row_sum_split(short)):
        with pytest.raises(TypeError):
            call()
    monkeypatch.undo()
    for missing, x in (("row_sum_kernel", torch.randn(2, module.SHORT + 1, device=device)), ("row_sum_short_rows_kernel", short)):
        monkeypatch.setattr(module, missing, None)
        with pytest.raises(TypeError):
            row_sum(x)
        monkeypatch.undo()


def test_equal_inputs_give_equal_bits(device):
    x = torch.randn(3, 5 * PART + 11, device=device)
    first = row_sum(x)
    assert all(torch.equal(row_sum(x), first) for _ in range(5))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("x, error, message", [
    (torch.zeros(3), ValueError, r"x must have 2 dimensions, got shape \(3,\)"),
    (torch.zeros(2, 3, 4), ValueError, r"got shape \(2, 3, 4\)"),
    (torch.tensor([[100] * 4], dtype=torch.int8), TypeError, "got int8"),
    (torch.tensor([[2**30] * 4], dtype=torch.int32), TypeError, "got int32"),
    (torch.zeros(2, 3, dtype=torch.float64), TypeError, "got float64"),
])
def test_refusals(version, x, error, message, device):
    with pytest.raises(error, match=message):
        version(x.to(device))


def test_parts_must_be_positive(device):
    with pytest.raises(ValueError, match="parts must be 1 or more, got 0"):
        row_sum_split(torch.zeros(1, 5, device=device), parts=0)


def test_gradient_is_not_lost_silently(device):
    x = torch.randn(2, 3, device=device, requires_grad=True)
    for version in VERSIONS:
        with pytest.raises(ValueError, match="requires grad"):
            version(x)


@pytest.mark.skipif(mode.is_live(), reason="the GPU version of this test uses real rows")
def test_offsets_beyond_2_31():
    run_huge_stride("row_sum", "row_sum, row_sum_split, row_sum_one_program", "x.float().sum(-1)")


@pytest.mark.gpu
def test_more_than_2_31_elements():
    x = torch.zeros(3, 2**30 + 7, dtype=torch.float16, device="cuda")
    x[:, -1], x[2, 0] = 5, 2
    for version in (row_sum, row_sum_split, row_sum_one_program):
        assert version(x).tolist() == [5, 5, 7]
    x = torch.zeros(1, 2**31 - 1, dtype=torch.float16, device="cuda")
    x[0, -1] = 3
    assert row_sum(x).item() == 3


@pytest.mark.parametrize("shape", [(70_000, 4), (66_000, 1), (1025, 2), (3, 511), (3, 513), (1, 600)])
def test_short_rows_share_programs(shape, device):
    """More rows than a grid's second axis has programs, the last program full or not; seconds in the interpreter, too."""
    x = torch.randn(shape, device=device)
    assert_row_sum(row_sum, x)
    assert_row_sum(row_sum, x.t().contiguous().t())
