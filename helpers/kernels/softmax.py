"""Softmax of each row of x (M, N): y = exp(x - max) / sum exp(x - max).

`softmax_naive`   five torch operations, one after another      reads 5MN + 2M, writes 3MN + 2M elements
`softmax`         one program a row, the row stays on chip      reads MN, writes MN; N up to MAX_COLS
`online_softmax`  one program a row, in tiles, any N            reads 2MN (the second time often from L2), writes MN

Rows of up to SHORT columns share a program in both: one alone would be too little work for it.

All compute in float32 and round once. A row that holds NaN or +inf, or nothing but -inf, becomes NaN as in torch.
Source of the running maximum: Milakov and Gimelshein, arXiv 1805.02867.
"""

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.kernels.inputs import ceil_div, check_power_of_two, check_rank, check_tensors, launch_on, padded

MAX_COLS = 65536  # as many values as an SM has registers: a longer row has no place on chip
TILE = 16384  # columns at a time in online_softmax
SHORT = 512  # columns, padded, up to which rows share a program
SHORT_ELEMENTS, SHORT_WARPS = 2048, 4  # of such a program, the fastest on an H200


def softmax_reference(x: torch.Tensor) -> torch.Tensor:
    """float64 softmax over the last dimension of x."""
    return torch.softmax(x.double(), dim=-1)


def softmax_traffic_bytes(rows: int, cols: int, itemsize: int = 4) -> int:
    """Least device-memory traffic in bytes: every element read once and written once."""
    return 2 * rows * cols * itemsize


def softmax_naive_operations(rows: int, cols: int) -> list[dict]:
    """The five operations of `softmax_naive` with the elements that each reads and writes: 8MN + 4M in all."""
    whole, column = rows * cols, rows
    return [
        {"operation": "row_max = x.amax(1)", "reads": whole, "writes": column},
        {"operation": "z = x - row_max", "reads": whole + column, "writes": whole},
        {"operation": "e = exp(z)", "reads": whole, "writes": whole},
        {"operation": "row_sum = e.sum(1)", "reads": whole, "writes": column},
        {"operation": "y = e / row_sum", "reads": whole + column, "writes": whole},
    ]


def softmax_naive_traffic_bytes(rows: int, cols: int, itemsize: int = 4) -> int:
    """What the five operations of `softmax_naive` ask of memory, in bytes."""
    return itemsize * sum(op["reads"] + op["writes"] for op in softmax_naive_operations(rows, cols))


def softmax_flops(rows: int, cols: int) -> int:
    """Five operations an element: compare, subtract, exponential, add, divide."""
    return 5 * rows * cols


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, x_row_stride, x_col_stride, y_row_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # 64 bits: row * stride passes 2^31 in large tensors
    cols = tl.arange(0, BLOCK)  # (BLOCK,), BLOCK = n_cols padded to a power of two
    mask = cols < n_cols
    x_ptrs = x_ptr + row * x_row_stride + cols.to(tl.int64) * x_col_stride
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)  # padding adds exp(-inf) = 0 to the sum
    e = tl.exp(x - tl.max(x, axis=0))  # (BLOCK,), in registers
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * y_row_stride + cols, y, mask=mask)


@triton.jit
def softmax_short_rows_kernel(
    x_ptr, y_ptr, n_cols, x_row_stride, x_col_stride, y_row_stride, n_rows, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]  # (ROWS, BLOCK)
    x_ptrs = x_ptr + rows[:, None] * x_row_stride + cols.to(tl.int64)[None, :] * x_col_stride
    x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    y = e / tl.sum(e, axis=1)[:, None]
    tl.store(y_ptr + rows[:, None] * y_row_stride + cols[None, :], y, mask=mask)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, x_row_stride, x_col_stride, y_row_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * y_row_stride
    row_max = -float("inf")  # of the tiles so far
    row_sum = 0.0  # of exp(x - row_max) over the tiles so far
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE).to(tl.int64)
        x = tl.load(x_ptr + cols * x_col_stride, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)  # nothing finite yet: -inf - -inf would be NaN
        row_sum = row_sum * tl.exp(row_max - shift) + tl.sum(tl.exp(x - shift), axis=0)  # corrected, then extended
        row_max = new_max
    for start in range(0, n_cols, TILE):  # again, now that maximum and sum are known
        cols = start + tl.arange(0, TILE).to(tl.int64)
        mask = cols < n_cols
        x = tl.load(x_ptr + cols * x_col_stride, mask=mask, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + cols, tl.exp(x - row_max) / row_sum, mask=mask)


def softmax_warps(block: int) -> int:
    """num_warps for `block` columns on chip: 32 values a thread where that is possible, fastest on an H200."""
    return min(32, max(1, block // 1024)) if block > SHORT else SHORT_WARPS


def softmax(x: torch.Tensor, num_warps: int | None = None) -> torch.Tensor:
    """Softmax of each row of x (M, N), N <= MAX_COLS; any strides, float32, float16 or bfloat16; returns (M, N).

    num_warps: a power of two; None chooses it by the length of a row. Raises TypeError for other dtypes, ValueError
    for other ranks, longer rows, the wrong device or lost gradients.
    """
    _check("softmax", x)
    n_cols = x.shape[1]
    if n_cols > MAX_COLS:
        raise ValueError(
            f"softmax keeps a whole row on chip, at most {MAX_COLS} columns, got shape {tuple(x.shape)}; "
            "online_softmax takes rows of any length"
        )
    block = padded(n_cols)
    if num_warps is None:
        num_warps = softmax_warps(block)
    check_power_of_two("softmax", 1, 32, num_warps=num_warps)
    if block <= SHORT:
        return _launch_short_rows(x, block, int(num_warps))
    return _launch(softmax_kernel, x, len(x), num_warps=int(num_warps), BLOCK=block)


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of x (M, N) for rows of any length, otherwise as `softmax`.

    Raises ValueError too for the few lengths just below 2^31 at which the kernel's 32-bit column count would wrap.
    """
    _check("online_softmax", x)
    if 2**31 - TILE < x.shape[1] < 2**31:
        raise ValueError(f"online_softmax: rows must not have {2**31 - TILE + 1} to {2**31 - 1} columns, got {x.shape[1]}")
    tile = min(TILE, padded(x.shape[1]))
    if tile <= SHORT:
        return _launch_short_rows(x, tile, SHORT_WARPS)
    return _launch(online_softmax_kernel, x, len(x), num_warps=max(1, tile // 512), TILE=tile)


def softmax_naive(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of x (M, N) as five torch operations. Reads and writes of elements stand beside each."""
    _check("softmax_naive", x)
    if x.numel() == 0:
        return torch.empty_like(x)
    row_max = x.float().amax(dim=1, keepdim=True)  # reads MN       writes M
    z = x.float() - row_max  #                       reads MN + M   writes MN
    e = torch.exp(z)  #                              reads MN       writes MN
    row_sum = e.sum(dim=1, keepdim=True)  #          reads MN       writes M
    y = e / row_sum  #                               reads MN + M   writes MN
    return y.to(x.dtype)  # nothing to do in float32, like .float() above


def _check(name: str, x: torch.Tensor) -> None:
    check_tensors(name, x=x)
    check_rank(name, "x", x, 2)


def _launch_short_rows(x: torch.Tensor, block: int, num_warps: int) -> torch.Tensor:
    rows = SHORT_ELEMENTS // block
    return _launch(softmax_short_rows_kernel, x, ceil_div(len(x), rows), n_rows=len(x), ROWS=rows, BLOCK=block, num_warps=num_warps)


def _launch(kernel, x: torch.Tensor, programs: int, **options) -> torch.Tensor:
    y = x.new_empty(x.shape)
    if x.numel() == 0:
        return y
    if not mode.has_triton():
        return softmax_reference(x).to(x.dtype)
    with launch_on(x):
        kernel[(programs,)](x, y, x.shape[1], x.stride(0), x.stride(1), y.stride(0), **options)
    return y
