"""What every kernel wrapper refuses, and layouts that every wrapper must read rightly."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from helpers.kernels.fma_chain import fma_chain, fma_resident, fma_shared
from helpers.kernels.gelu import gelu
from helpers.kernels.inputs import ceil_div, check_power_of_two
from helpers.kernels.matmul import matmul_relu, matmul_relu_grouped, matmul_relu_tiled
from helpers.kernels.row_sum import row_sum, row_sum_one_program, row_sum_split
from helpers.kernels.softmax import online_softmax, softmax, softmax_naive
from helpers.kernels.vec_add import vec_add
from helpers.mode import is_live

CALLS = {
    "gelu": gelu, "softmax": softmax, "online_softmax": online_softmax, "softmax_naive": softmax_naive,
    "row_sum": row_sum, "row_sum_split": row_sum_split, "row_sum_one_program": row_sum_one_program,
    "matmul_relu": lambda x: matmul_relu(x, x.t()), "matmul_relu_tiled": lambda x: matmul_relu_tiled(x, x.t()),
    "vec_add": lambda x: vec_add(x, x), "fma_chain": lambda x: fma_chain(x, 2.0, 1.0, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_lazily_negated_views_are_refused(name, device):
    """The memory of conj().imag holds the other sign; a kernel that reads memory would not notice."""
    x = torch.complex(torch.randn(3, 4, device=device), torch.randn(3, 4, device=device)).conj().imag
    assert x.is_neg()
    with pytest.raises(ValueError, match=rf"{name}: .* is a negated view"):
        CALLS[name](x)
    same = CALLS[name](x.resolve_neg())
    assert torch.equal(same, CALLS[name](x.clone()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    with pytest.raises(ValueError, match="got layout nested"):
        gelu(torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]))


@pytest.mark.parametrize("num_warps, error, message", [
    (0, ValueError, "power of two from 1 to 32, got 0"), (3, ValueError, "got 3"), (64, ValueError, "got 64"),
    (-1, ValueError, "got -1"), (2.0, TypeError, "an int, got 2.0"), (True, TypeError, "got True"),
])
def test_numbers_of_warps(num_warps, error, message, device):
    x = torch.randn(20, 20, device=device)
    calls = (lambda: softmax(x, num_warps=num_warps), lambda: row_sum_one_program(x, num_warps=num_warps),
             lambda: matmul_relu_tiled(x, x, num_warps=num_warps), lambda: matmul_relu_grouped(x, x, num_warps=num_warps))
    for call in calls:
        with pytest.raises(error, match=f"num_warps must be .*{message}"):
            call()


@pytest.mark.parametrize("tile, message", [
    ((64, 64), "tile must be"), ((48, 64, 32), "BLOCK_M must be .* got 48"), ((64, 0, 32), "BLOCK_N must be .* got 0"),
    ((64, 64, 8), "BLOCK_K must be a power of two from 16 to 1024, got 8"),
])
def test_tiles(tile, message, device):
    a = torch.eye(4, device=device)
    for version in (matmul_relu_tiled, matmul_relu_grouped):
        with pytest.raises(ValueError, match=f"{version.__name__}: {message}"):
            version(a, a, tile=tile)
    with pytest.raises(ValueError, match="tile must be a power of two from 1 to 1048576, got 100"):
        row_sum_one_program(a, tile=100)


def test_stages_groups_and_parts(device):
    a = torch.eye(4, device=device)
    for version, option in ((matmul_relu_tiled, "num_stages"), (matmul_relu_grouped, "group")):
        with pytest.raises(ValueError, match=f"{option} must be 1 or more, got 0"):
            version(a, a, **{option: 0})
        with pytest.raises(TypeError, match=f"{option} must be an int, got 1.5"):
            version(a, a, **{option: 1.5})
    with pytest.raises(TypeError, match="parts must be an int, got 2.5"):
        row_sum_split(a, parts=2.5)


def test_numpys_whole_numbers_count(device):
    """As they come out of an array or a table; a kernel's constants become plain ints."""
    x, four, two = torch.randn(40, 40, device=device), np.int64(4), np.int32(2)
    assert torch.equal(softmax(x, num_warps=four), softmax(x, num_warps=4))
    assert torch.equal(row_sum_split(x, parts=two), row_sum_split(x, parts=2))
    assert torch.equal(row_sum_one_program(x, num_warps=four, tile=np.int64(64)), row_sum_one_program(x, num_warps=4, tile=64))
    for version in (matmul_relu_tiled, matmul_relu_grouped):
        tile = np.array([16, 32, 16])
        assert torch.equal(version(x, x, tile=tuple(tile), num_warps=four, num_stages=two), version(x, x, tile=(16, 32, 16)))
    assert torch.equal(fma_resident(x, 2.0, 1.0, two, programs=four, elements_per_thread=two, unroll=two), fma_chain(x, 2.0, 1.0, 2))
    assert torch.equal(fma_shared(x, 2.0, 1.0, two, programs=four, steps=two), fma_chain(x, 2.0, 1.0, two))


@pytest.mark.parametrize("call, error, message", [
    (lambda x: fma_resident(x, 1.0, 1.0, 5, programs=2.0), TypeError, "programs must be an int, got 2.0"),
    (lambda x: fma_resident(x, 1.0, 1.0, 5, programs=2, unroll=-1), ValueError, "unroll must be 1 or more, got -1"),
    (lambda x: fma_resident(x, 1.0, 1.0, 5, programs=2, unroll=0), ValueError, "unroll must be 1 or more, got 0"),
    (lambda x: fma_resident(x, 1.0, 1.0, 5, programs=2, where=[1]), ValueError, "where must be an int64 tensor"),
    (lambda x: fma_shared(x, 1.0, 1.0, 5, programs=2, steps=0), ValueError, "steps must be from 1 to 1048576, got 0"),
    (lambda x: fma_shared(x, 1.0, 1.0, 5, programs="2"), TypeError, "programs must be an int, got '2'"),
])  # fmt: skip
def test_what_would_never_end_or_come_out_wrong(call, error, message, device):
    with pytest.raises(error, match=message):
        call(torch.zeros(700, device=device))


def _fake():
    with FakeTensorMode():
        return torch.ones(3, 3)


@pytest.mark.skipif(is_live(), reason="made on the CPU")
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("make", [_fake, lambda: torch._efficientzerotensor(3, 3)])
@pytest.mark.parametrize("name", CALLS)
def test_tensors_without_memory_are_refused(name, make):
    with pytest.raises(ValueError, match=f"{name}: . must be a tensor with memory of its own"):
        CALLS[name](make())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", CALLS)
def test_no_derivative_is_lost_silently(name, device):
    x = torch.randn(3, 3, device=device)
    with forward_ad.dual_level():
        assert CALLS[name](x).shape[0] == 3  # nothing to lose
        with pytest.raises(ValueError, match=f"{name}: . carries a tangent"):
            CALLS[name](forward_ad.make_dual(x, torch.ones_like(x)))
    for transformed in (lambda: torch.func.jvp(CALLS[name], (x,), (x,)), lambda: torch.vmap(CALLS[name])(torch.stack([x, x]))):
        with pytest.raises(ValueError, match=f"{name}: . must be a tensor with memory|{name}: . carries a tangent"):
            transformed()
    with torch.inference_mode():
        assert CALLS[name](torch.ones(3, 3, device=device)).shape[0] == 3


def test_columns_just_below_2_31_are_refused():
    from helpers import mode

    row = torch.zeros(1, 1, device=mode.device()).expand(1, 2**31 - 5)
    with pytest.raises(ValueError, match="2147467265 to 2147483647 columns, got 2147483643"):
        online_softmax(row)


def test_powers_of_two():
    check_power_of_two("f", 1, 8, a=1, b=2, c=8)
    for wrong in (0, 3, 6, 16, -2):
        with pytest.raises(ValueError, match=f"f: a must be a power of two from 1 to 8, got {wrong}"):
            check_power_of_two("f", 1, 8, a=wrong)
    assert [ceil_div(n, 4) for n in (0, 1, 4, 5, 2**31 + 1)] == [0, 1, 1, 2, 2**29 + 1]
