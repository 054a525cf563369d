"""c = a + b, elementwise, any shape: the Triton twin of `helpers/cuda/vec_add.cu`.

`vec_add_kernel`   one program per BLOCK elements   reads a and b once, writes c once: 12 bytes for one addition
"""

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.kernels.inputs import check_tensors, launch_on

BLOCK = 1024


def vec_add_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """float64 a + b."""
    return a.double() + b.double()


def vec_add_traffic_bytes(n: int, itemsize: int = 4) -> int:
    """Least device-memory traffic in bytes: two reads and one write for each of n elements."""
    return 3 * n * itemsize


def vec_add_flops(n: int) -> int:
    return n


@triton.jit
def vec_add_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(c_ptr + offsets, a + b, mask=mask)


def vec_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b for two tensors of one shape and any strides, float32, float16 or bfloat16; returns that shape and dtype.

    Raises TypeError for other or mixed dtypes, ValueError for different shapes, the wrong device or a lost gradient.
    """
    check_tensors("vec_add", a=a, b=b)
    if a.shape != b.shape:
        raise ValueError(f"vec_add: a and b must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    if not mode.has_triton():
        return vec_add_reference(a, b).to(a.dtype)
    a, b = a.contiguous(), b.contiguous()
    c = torch.empty_like(a)
    n = a.numel()
    if n:
        with launch_on(a):
            vec_add_kernel[(triton.cdiv(n, BLOCK),)](a, b, c, n, BLOCK=BLOCK)
    return c
