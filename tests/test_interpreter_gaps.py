"""What Triton's interpreter lacks: a kernel that uses it works all the same, or is told what to do instead."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

from helpers import mode
from helpers.compile import compile_kernel

pytestmark = pytest.mark.skipif(mode.is_live(), reason="the interpreter is off when kernels run on a GPU")


@triton.jit
def descriptor_kernel(x_ptr, y_ptr, rows, cols, claimed_rows, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[claimed_rows, cols], strides=[cols, 1], block_shape=[BLOCK, BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, shape=[rows, cols], strides=[cols, 1], block_shape=[BLOCK, BLOCK])
    for start in range(0, cols, BLOCK):
        y.store([tl.program_id(0) * BLOCK, start], x.load([tl.program_id(0) * BLOCK, start]) * 2)


def test_descriptors_read_and_write_and_are_watched():
    x, y = torch.arange(480.0).view(20, 24), torch.full((20, 24), -1.0)
    descriptor_kernel[(2,)](x, y, 20, 24, 20, BLOCK=16)
    assert torch.equal(y, 2 * x)
    with pytest.raises(Exception, match="outside of all its tensors"):
        descriptor_kernel[(2,)](x, y, 20, 24, 30, BLOCK=16)


def tuned(**options):
    @triton.autotune(configs=[triton.Config({"BLOCK": block}, num_warps=2) for block in (32, 64, 128)], key=["n"], **options)
    @triton.jit
    def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    return double_kernel


def test_a_tuned_kernel_takes_its_first_setting():
    """There is no time worth comparing; every n is answered, in the order of the configs."""
    kernel = tuned()
    for n in (100, 1000):
        x, y = torch.arange(float(n)), torch.full((n,), -1.0)
        kernel[lambda chosen, n=n: (triton.cdiv(n, chosen["BLOCK"]),)](x, y, n)
        assert torch.equal(y, 2 * x) and kernel.best_config.kwargs == {"BLOCK": 32}
    assert compile_kernel(kernel, x, y, n, BLOCK=64).name == "double_kernel"


def test_the_readers_own_clock_still_decides():
    times = iter([3.0, 1.0, 2.0])
    kernel = tuned(do_bench=lambda call, quantiles: [next(times)] * 3)
    kernel[lambda chosen: (triton.cdiv(100, chosen["BLOCK"]),)](torch.zeros(100), torch.zeros(100), 100)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


@triton.jit
def tanh_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), libdevice.tanh(tl.load(x_ptr + tl.arange(0, BLOCK))))


@triton.jit
def cuda_tanh_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, BLOCK), cuda_libdevice.tanh(tl.load(x_ptr + tl.arange(0, BLOCK))))


@pytest.mark.parametrize("kernel", [tanh_kernel, cuda_tanh_kernel])
def test_a_gpu_function_says_what_it_is(kernel):
    x, y = torch.zeros(32), torch.zeros(32)
    with pytest.raises(Exception, match="libdevice.tanh is NVIDIA's machine code.* tl.exp"):
        kernel[(1,)](x, y, BLOCK=32)
    assert compile_kernel(kernel, x, y, BLOCK=32).count("ex2") == 1
