"""Sum of each row of x (M, N) -> (M,), accumulated in float32 and rounded once.

`row_sum_kernel`             one program a row, TILE partial sums      few rows leave SMs idle
`row_sum_part_kernel`        several programs a row, one part each     a second launch sums the parts
`row_sum_short_rows_kernel`  several rows a program, each on chip      one short row would be too little work

All read x once. `row_sum` takes parts when rows are long and few, `row_sum_split` always. The parts are added in a fixed
order (no atomics), so equal inputs give equal bits.
"""

import functools

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.kernels.inputs import ceil_div, check_power_of_two, check_rank, check_tensors, check_whole, launch_on, padded

TILE = 1024
NUM_WARPS = 4
PART_TILE, PART_WARPS = 2048, 8  # of the programs that sum parts
SHORT, SHORT_ELEMENTS = 512, 2048  # columns, padded, up to which rows share a program; elements of such a program
PART = 8192  # columns a part has at least: shorter ones do not pay for the second launch
ALIGN = 16  # parts begin at multiples of it, so that their loads can be wide
PROGRAMS_PER_SM = 64  # about four times what is resident, so that the last wave weighs little
INTERPRETED_SMS = 4  # on a CPU there is nothing to fill


def row_sum_reference(x: torch.Tensor) -> torch.Tensor:
    """float64 sum over the last dimension of x."""
    return x.double().sum(dim=-1)


def row_sum_traffic_bytes(rows: int, cols: int, itemsize: int = 4) -> int:
    """Least device-memory traffic in bytes: every element read once, one sum a row written."""
    return (rows * cols + rows) * itemsize


def row_sum_flops(rows: int, cols: int) -> int:
    """One addition an element."""
    return rows * cols


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, n_cols, row_stride, col_stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # 64 bits: row * stride passes 2^31 in large tensors
    x_ptr += row * row_stride
    partial = tl.zeros((TILE,), tl.float32)  # TILE running sums: no thread waits for another in the loop
    for start in range(tl.cast(0, tl.int64), n_cols, TILE):  # 64 bits here too, where n_cols + TILE passes 2^31
        cols = start + tl.arange(0, TILE).to(tl.int64)
        partial += tl.load(x_ptr + cols * col_stride, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(partial, axis=0))  # threads talk to each other once a row


@triton.jit
def row_sum_short_rows_kernel(x_ptr, out_ptr, n_cols, row_stride, col_stride, n_rows, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]  # (ROWS, BLOCK)
    x_ptrs = x_ptr + rows[:, None] * row_stride + cols.to(tl.int64)[None, :] * col_stride
    x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + rows, tl.sum(x, axis=1), mask=rows < n_rows)


@triton.jit
def row_sum_part_kernel(x_ptr, parts_ptr, n_cols, n_parts, part_cols, row_stride, col_stride, TILE: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)  # parts of a row are neighbours in the grid
    row, part = program // n_parts, program % n_parts
    first = part * part_cols
    x_ptr += row * row_stride + first * col_stride
    left = min(n_cols - first, part_cols)  # columns of this part: the last one may be shorter
    partial = tl.zeros((TILE,), tl.float32)
    for start in range(tl.cast(0, tl.int64), part_cols, TILE):
        cols = start + tl.arange(0, TILE).to(tl.int64)
        partial += tl.load(x_ptr + cols * col_stride, mask=cols < left, other=0.0).to(tl.float32)
    tl.store(parts_ptr + program, tl.sum(partial, axis=0))


def parts_for(n_rows: int, n_cols: int, sm_count: int) -> tuple[int, int]:
    """(parts a row, columns a part) so that the GPU has about PROGRAMS_PER_SM programs an SM; (1, n_cols) = no split.

    Parts have PART columns at least and together cover the row.
    """
    wanted = PROGRAMS_PER_SM * sm_count // max(n_rows, 1)
    parts = max(1, min(wanted, n_cols // PART))
    return (1, n_cols) if parts == 1 else _even_parts(n_cols, parts)


def _even_parts(n_cols: int, parts: int) -> tuple[int, int]:
    """At most `parts` parts of equal length, a multiple of ALIGN: (parts, columns a part)."""
    part_cols = max(ALIGN, ceil_div(ceil_div(n_cols, parts), ALIGN) * ALIGN)
    return max(1, ceil_div(n_cols, part_cols)), part_cols


def row_sum(x: torch.Tensor) -> torch.Tensor:
    """Sum of each row of x (M, N), any strides, float32, float16 or bfloat16; returns (M,) of the same dtype.

    Few long rows are split over several programs each, as `row_sum_split` does; short rows share a program. Raises
    TypeError for other dtypes, ValueError for other ranks, the wrong device or lost gradients.
    """
    _check("row_sum", x)
    n_rows, n_cols = x.shape
    if (block := padded(n_cols)) <= SHORT:
        return _launch(x, block=block)
    parts, part_cols = parts_for(n_rows, n_cols, sm_count(x.device))
    return _launch(x) if parts == 1 else _launch(x, parts=parts, part_cols=part_cols)


def row_sum_split(x: torch.Tensor, parts: int | None = None) -> torch.Tensor:
    """As `row_sum`, but always as sums of about `parts` parts a row, which a second launch adds.

    None chooses parts for this GPU. Raises ValueError too if parts is below 1, TypeError if it is no int.
    """
    _check("row_sum_split", x)
    if parts is None:
        parts, _ = parts_for(*x.shape, sm_count(x.device))
    check_whole("row_sum_split", 1, None, parts=parts)
    parts, part_cols = _even_parts(x.shape[1], int(parts))
    return _launch(x, parts=parts, part_cols=part_cols)


def row_sum_one_program(x: torch.Tensor, num_warps: int = NUM_WARPS, tile: int = TILE) -> torch.Tensor:
    """As `row_sum`, but always one program a row: the lesson's first kernel, with its two knobs, powers of two."""
    _check("row_sum_one_program", x)
    check_power_of_two("row_sum_one_program", 1, 32, num_warps=num_warps)
    check_power_of_two("row_sum_one_program", 1, 2**20, tile=tile)
    return _launch(x, num_warps=int(num_warps), tile=int(tile))


@functools.cache
def sm_count(device: torch.device) -> int:
    """SMs of the GPU that `device` names; a small number for the CPU, where programs run one after another."""
    if device.type != "cuda":
        return INTERPRETED_SMS
    return torch.cuda.get_device_properties(device).multi_processor_count


def _check(name: str, x: torch.Tensor) -> None:
    check_tensors(name, x=x)
    check_rank(name, "x", x, 2)


def _launch(x, num_warps=NUM_WARPS, tile=TILE, parts=None, part_cols=None, block=None) -> torch.Tensor:
    """One program a row; with `parts` one a part, then one a row over the sums of its parts; with `block` one for several rows."""
    n_rows, n_cols = x.shape
    out = x.new_empty(n_rows)
    if x.numel() == 0:
        return out.zero_()  # the empty sum
    if not mode.has_triton():
        return row_sum_reference(x).to(x.dtype)
    row_stride, col_stride = x.stride()
    with launch_on(x):
        if block is not None:
            rows = SHORT_ELEMENTS // block
            row_sum_short_rows_kernel[(ceil_div(n_rows, rows),)](
                x, out, n_cols, row_stride, col_stride, n_rows, ROWS=rows, BLOCK=block, num_warps=num_warps
            )
            return out
        if parts is not None:
            sums = torch.empty(n_rows, parts, dtype=torch.float32, device=x.device)
            row_sum_part_kernel[(n_rows * parts,)](
                x, sums, n_cols, parts, part_cols, row_stride, col_stride, TILE=PART_TILE, num_warps=PART_WARPS
            )
            x, n_cols, row_stride, col_stride = sums, parts, parts, 1
        row_sum_kernel[(n_rows,)](x, out, n_cols, row_stride, col_stride, TILE=tile, num_warps=num_warps)
    return out
