"""CUDA C++ kernels as functions of tensors: contiguous float32, any size.

On CUDA tensors they are launched on torch's current stream; on CPU tensors their compiled PTX runs on the SIMT machine
where no GPU is in use, and ValueError is raised where one is. `out` takes a buffer to write into. All raise TypeError
for other dtypes and ValueError for shape, device, layout or a gradient that would be lost, before anything runs; `out`
must not share memory with an input.
"""

import numbers

import torch

from helpers import mode
from helpers.cuda.launch import MAX_GRID, CudaKernel, checked_block

__all__ = ["CudaKernel", "naive_matmul", "offset_copy", "strided_copy", "tiled_matmul", "transpose", "vec_add"]

TILE = 32

VEC_ADD = CudaKernel("vec_add.cu", "vec_add")
STRIDED_COPY = CudaKernel("copies.cu", "strided_copy")
OFFSET_COPY = CudaKernel("copies.cu", "offset_copy")
NAIVE_MATMUL = CudaKernel("matmul.cu", "naive_matmul")
TILED_MATMUL = CudaKernel("matmul.cu", "tiled_matmul")
TRANSPOSE = {version: CudaKernel("transpose.cu", f"transpose_{version}") for version in ("naive", "tiled", "padded")}


def vec_add(a: torch.Tensor, b: torch.Tensor, block: int = 256, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a + b for tensors of one shape, `block` threads a block (1 to 1024)."""
    _check("vec_add", a=a, b=b)
    if a.shape != b.shape:
        raise ValueError(f"vec_add: a and b must have one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    if isinstance(block, tuple | list):
        raise ValueError(f"vec_add: block must be one number of threads, 1 to 1024, got {block!r}")
    checked_block(block)
    out = _output("vec_add", out, a.shape, a, b)
    n = a.numel()
    VEC_ADD.launch(-(-n // block), block, a, b, out, n)
    return out


def strided_copy(x: torch.Tensor, stride: int, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """y[i] = x[i * stride] for all i that lie in x (n,): ceil(n / stride) elements. `stride` is at least 1."""
    _check("strided_copy", x=x)
    _one_dimension("strided_copy", x)
    _whole("strided_copy", "stride", stride, 1)
    stride = min(int(stride), max(x.numel(), 1))  # a longer one reaches no second element either
    return _copy(STRIDED_COPY, x, -(-x.numel() // stride), stride, out)


def offset_copy(x: torch.Tensor, offset: int, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """y[i] = x[i + offset] for all i that lie in x (n,): n - offset elements. 0 <= `offset` <= n."""
    _check("offset_copy", x=x)
    _one_dimension("offset_copy", x)
    _whole("offset_copy", "offset", offset, 0)
    if offset > x.numel():
        raise ValueError(f"offset_copy: offset must be at most n = {x.numel()}, got {offset}")
    return _copy(OFFSET_COPY, x, x.numel() - int(offset), int(offset), out)


def _copy(kernel, x, n, parameter, out):
    out = _output(kernel.name, out, (n,), x)
    kernel.launch(-(-n // 256), 256, x, out, n, parameter)
    return out


def naive_matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a (m, k) times b (k, n), one thread an element of the result, everything read from device memory."""
    return _matmul(NAIVE_MATMUL, a, b, out)


def tiled_matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a (m, k) times b (k, n) through 32 x 32 tiles in shared memory; m, n, k need not be multiples of 32."""
    return _matmul(TILED_MATMUL, a, b, out)


def _matmul(kernel, a, b, out):
    _check(kernel.name, a=a, b=b)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"{kernel.name}: shapes must be (m, k) and (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    (m, k), n = a.shape, b.shape[1]
    out = _output(kernel.name, out, (m, n), a, b)
    kernel.launch(_tiles(m, n), (TILE, TILE), a, b, out, m, n, k)
    return out


def transpose(x: torch.Tensor, version: str = "padded", *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x (rows, cols) transposed, as a contiguous (cols, rows). `version`: "naive", "tiled" or "padded"."""
    if version not in TRANSPOSE:
        raise ValueError(f"transpose: version must be one of {', '.join(TRANSPOSE)}, got {version!r}")
    _check("transpose", x=x)
    if x.dim() != 2:
        raise ValueError(f"transpose: x must be (rows, cols), got shape {tuple(x.shape)}")
    rows, cols = x.shape
    out = _output("transpose", out, (cols, rows), x)
    TRANSPOSE[version].launch(_tiles(rows, cols), (TILE, 8), x, out, rows, cols)
    return out


def _tiles(rows: int, cols: int) -> tuple[int, int, int]:
    """A grid of 32 x 32 tiles: columns along x, rows along y and, past the 65535 that fit there, along z too."""
    down = -(-rows // TILE)
    return -(-cols // TILE), min(down, MAX_GRID[1]), -(-down // MAX_GRID[1])


def _check(name: str, **tensors) -> None:
    for arg, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name}: {arg} must be a torch.Tensor, got {type(x).__name__}")
        if x.dtype != torch.float32:
            raise TypeError(f"{name}: {arg} must be float32, got {str(x.dtype).removeprefix('torch.')}")
    needed = "cuda" if mode.is_live() else "cpu"
    for arg, x in tensors.items():
        if x.device.type != needed:
            raise ValueError(f"{name}: tensors must be on {needed} here, but {arg} is on {x.device}")
        if x.layout != torch.strided or not x.is_contiguous():
            layout = f"strides {x.stride()}" if x.layout == torch.strided else x.layout
            raise ValueError(f"{name}: {arg} must be contiguous, got {layout} for shape {tuple(x.shape)}; "
                             "call .contiguous() first")
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(f"{name}: {arg} requires grad, which this kernel would lose; pass {arg}.detach()")
    devices = {str(x.device) for x in tensors.values()}
    if len(devices) > 1:
        raise ValueError(f"{name}: all tensors must be on one device, got {', '.join(sorted(devices))}")


def _output(name: str, out, shape, *inputs: torch.Tensor) -> torch.Tensor:
    """The tensor to write: a new one, or the caller's `out` once it is known to fit."""
    if out is None:
        return torch.empty(tuple(shape), dtype=torch.float32, device=inputs[0].device)
    _check(name, out=out)
    if tuple(out.shape) != tuple(shape) or out.device != inputs[0].device:
        raise ValueError(f"{name}: out must be {tuple(shape)} on {inputs[0].device}, "
                         f"got {tuple(out.shape)} on {out.device}")
    for x in inputs:
        if out.data_ptr() < x.data_ptr() + 4 * x.numel() and x.data_ptr() < out.data_ptr() + 4 * out.numel():
            raise ValueError(f"{name}: out shares memory with an input, which other threads may still have to read")
    return out


def _one_dimension(name: str, x: torch.Tensor) -> None:
    if x.dim() != 1:
        raise ValueError(f"{name}: x must have 1 dimension, got shape {tuple(x.shape)}")


def _whole(name: str, what: str, value, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name}: {what} must be a whole number of at least {least}, got {value!r}")
