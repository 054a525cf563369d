"""GELU in its tanh form: y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), elementwise, any shape.

`gelu_kernel`         one program per BLOCK elements, every load and store masked      reads x once, writes y once
`gelu_tail_kernel`    the same, but only the last program pays for the mask            what `gelu` launches

Both compute in float32 and round once. Sources: Hendrycks and Gimpel, arXiv 1606.08415; torch's approximate="tanh".
"""

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.kernels.inputs import ceil_div, check_tensors, launch_on

BLOCK = 1024
NUM_WARPS = 4


def gelu_reference(x: torch.Tensor) -> torch.Tensor:
    """float64 result of the tanh form for x of any shape."""
    return torch.nn.functional.gelu(x.double(), approximate="tanh")


def gelu_traffic_bytes(n: int, itemsize: int = 4) -> int:
    """Least device-memory traffic in bytes: n elements read and n written."""
    return 2 * n * itemsize


def gelu_flops(n: int) -> int:
    """Floating-point operations as written, exponential and division counted as one each: 9 an element."""
    return 9 * n


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)  # 64 bits: program * BLOCK passes 2^31 for large n
    offsets = program * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = offsets < n  # False past the end, in the last program only
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)  # sqrt(2/pi) = 0.797...
    # (1 + tanh u) / 2 = 1 / (1 + e^-2u): goes to 0 and 1 where (e^2u - 1) / (e^2u + 1) would be inf / inf
    tl.store(y_ptr + offsets, x / (1 + tl.exp(-2 * u)), mask=mask)


@triton.jit
def gelu_value(x):
    """GELU of float32 x, in registers."""
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)  # sqrt(2/pi) = 0.797...
    return x / (1 + tl.exp(-2 * u))


@triton.jit
def gelu_tail_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    offsets = program * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    if (program + 1) * BLOCK <= n:  # a full block needs no mask, so it is vectorised whatever n is
        x = tl.load(x_ptr + offsets).to(tl.float32)
        tl.store(y_ptr + offsets, gelu_value(x))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        tl.store(y_ptr + offsets, gelu_value(x), mask=mask)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """GELU (tanh form) of x, any shape and strides, float32, float16 or bfloat16; returns x's shape and dtype.

    Raises TypeError for other dtypes, ValueError for the wrong device or a tensor that requires grad.
    """
    check_tensors("gelu", x=x)
    # The kernel walks memory, so it needs each element once and no gaps; anything else is copied first.
    dense = x if x.is_contiguous() or _is_dense(x) else x.contiguous()
    y = torch.empty_like(dense)  # keeps the strides of a dense tensor
    n = dense.numel()
    if n == 0:
        return y
    if not mode.has_triton():
        return gelu_reference(dense).to(x.dtype)
    with launch_on(x):
        gelu_tail_kernel[(ceil_div(n, BLOCK),)](dense, y, n, BLOCK=BLOCK, num_warps=NUM_WARPS)
    return y


def _is_dense(x: torch.Tensor) -> bool:
    """True if the elements of x fill one stretch of memory, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((st, sz) for st, sz in zip(x.stride(), x.shape, strict=True) if sz != 1):
        if stride != expected:
            return False
        expected *= size
    return True
