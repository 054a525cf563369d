"""ReLU of a matrix product: c = max(a @ b, 0), a (M, K), b (K, N), c (M, N); accumulated in float32, rounded once.

`matmul_relu_kernel`          one program a tile of c on a 2-D grid          the lesson's kernel
`matmul_relu_grouped_kernel`  the same tiles in an order that reuses L2,     what `matmul_relu` launches
                              in halves; small products in parts of K

Each tile of c reads BLOCK_M rows of a and BLOCK_N columns of b: 2 BM BN / (BM + BN) FLOPs an element instead of 2.
`precision` says what float32 inputs become: "ieee" stays in float32; "tf32" keeps 10 bits of mantissa for the
Tensor Cores; "tf32x3" and "bf16x6" add what is lost so in further products. Half-precision products are exact.
Parts of float32's smallest numbers vanish: below 1e-30 the three approach the accuracy of one rounding; and what rounds
to infinity in bfloat16 (above 3.39e38) is infinite in "bf16x6".
"""

import functools

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.kernels.inputs import ceil_div, check_power_of_two, check_rank, check_tensors, check_whole, launch_on
from helpers.kernels.row_sum import sm_count

PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x6")
# (BLOCK_M, BLOCK_N, BLOCK_K), num_warps, num_stages: the fastest of a search on an H200 at 4096^3, then what needs less
# shared memory; a GPU takes the first that it has room for
TILES = {
    "ieee": [((64, 128, 32), 4, 2), ((64, 64, 16), 4, 2)],
    "tf32": [((128, 128, 32), 4, 3), ((64, 64, 32), 4, 3)],
    "tf32x3": [((128, 128, 64), 8, 3), ((128, 128, 32), 8, 3), ((64, 64, 32), 4, 3)],
    "bf16x6": [((128, 128, 64), 8, 3), ((64, 128, 32), 4, 3), ((64, 64, 32), 4, 3)],
    "half": [((128, 128, 64), 4, 3), ((64, 64, 32), 4, 3)],
}
GROUP = 8  # rows of tiles that are walked together
PROGRAMS_PER_SM, PART_K = 8, 256  # below so many programs, K is cut into parts; parts have so much of K at least


def matmul_relu_reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """float64 relu(a @ b)."""
    return torch.relu(a.double() @ b.double())


def matmul_traffic_bytes(m: int, n: int, k: int, itemsize: int = 4) -> int:
    """Least device-memory traffic in bytes: a and b read once, c written once."""
    return (m * k + k * n + m * n) * itemsize


def matmul_flops(m: int, n: int, k: int) -> int:
    """Two operations (multiply, add) for each of m * n * k products; the ReLU is not counted."""
    return 2 * m * n * k


@triton.jit
def matmul_relu_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row_stride, a_col_stride, b_row_stride, b_col_stride, c_row_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)  # of a and c
    cols = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # of b and c
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * a_row_stride + ks[None, :] * a_col_stride  # (BM, BK)
    b_ptrs = b_ptr + ks[:, None] * b_row_stride + cols[None, :] * b_col_stride  # (BK, BN)
    step = tl.cast(BLOCK_K, tl.int64)  # step * stride passes 2^31 too
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += step * a_col_stride
        b_ptrs += step * b_row_stride
    c = tl.where(acc < 0, 0.0, acc)  # ReLU before the store; NaN stays NaN
    c_ptrs = c_ptr + rows[:, None] * c_row_stride + cols[None, :]
    tl.store(c_ptrs, c, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def matmul_relu_grouped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, part_k, a_row_stride, a_col_stride, b_row_stride, b_col_stride, c_row_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
    GROUP: tl.constexpr, WHOLE_K: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    # A 1-D grid may have 2^31 programs (axes 1 and 2 only 65535), and lets us choose who runs beside whom: GROUP rows
    # of tiles, column after column, so that programs at work together share their parts of a and b in L2.
    program = tl.program_id(0)
    tile_rows, tile_cols = (M - 1) // BLOCK_M + 1, (N - 1) // BLOCK_N + 1  # M + BLOCK_M could pass 2^31
    first_row = program // (GROUP * tile_cols) * GROUP
    group_rows = min(tile_rows - first_row, GROUP)  # the last group may be smaller
    tile_row = first_row + program % (GROUP * tile_cols) % group_rows
    tile_col = program % (GROUP * tile_cols) // group_rows
    # Axis 1: each part of K has programs and a c of its own. Usually there is one part, the whole K.
    part = tl.program_id(1).to(tl.int64)
    k_left = min(K - part * part_k, part_k)
    c_ptr += part * M * N
    HALF: tl.constexpr = BLOCK_N // 2
    rows = tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_col.to(tl.int64) * BLOCK_N + tl.arange(0, HALF)  # of the left half; the right half begins at + HALF
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * a_row_stride + (part * part_k + ks)[None, :] * a_col_stride  # (BM, BK)
    b_ptrs = b_ptr + (part * part_k + ks)[:, None] * b_row_stride + cols[None, :] * b_col_stride  # (BK, BN / 2)
    step, half = tl.cast(BLOCK_K, tl.int64), tl.cast(HALF, tl.int64)  # times a stride they pass 2^31 too
    in_rows, in_left, in_right = rows[:, None] < M, cols[None, :] < N, cols[None, :] + HALF < N
    # Two halves that share a: in float32 each thread then keeps 8 x 8 sums instead of 16 x 4, and reads 16 numbers
    # from shared memory for 64 FMAs instead of 20.
    left = tl.zeros((BLOCK_M, HALF), tl.float32)
    right = tl.zeros((BLOCK_M, HALF), tl.float32)
    for k in range(0, k_left, BLOCK_K):
        in_k = ks < (BLOCK_K if WHOLE_K else k_left - k)  # WHOLE_K: K is a multiple of BLOCK_K, this is always true
        a = tl.load(a_ptrs, mask=in_rows & in_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=in_k[:, None] & in_left, other=0.0)
        left = tl.dot(a, b, left, input_precision=PRECISION)
        b = tl.load(b_ptrs + half * b_col_stride, mask=in_k[:, None] & in_right, other=0.0)
        right = tl.dot(a, b, right, input_precision=PRECISION)
        a_ptrs += step * a_col_stride
        b_ptrs += step * b_row_stride
    if RELU:
        left, right = tl.where(left < 0, 0.0, left), tl.where(right < 0, 0.0, right)
    c_ptrs = c_ptr + rows[:, None] * c_row_stride + cols[None, :]
    tl.store(c_ptrs, left, mask=in_rows & in_left)
    tl.store(c_ptrs + HALF, right, mask=in_rows & in_right)


@triton.jit
def sum_parts_kernel(parts_ptr, c_ptr, n, n_parts, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # of the n elements of c
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, n_parts):  # always in this order: equal inputs give equal bits
        total += tl.load(parts_ptr + part * n + offsets, mask=offsets < n, other=0.0)
    tl.store(c_ptr + offsets, tl.where(total < 0, 0.0, total), mask=offsets < n)


def matmul_relu(a: torch.Tensor, b: torch.Tensor, precision: str = "ieee") -> torch.Tensor:
    """relu(a @ b) for a (M, K) and b (K, N), any strides, float32, float16 or bfloat16; returns (M, N), same dtype.

    precision, for float32 inputs: one of PRECISIONS. Raises TypeError for other or mixed dtypes, ValueError for shapes
    that do not fit, an unknown precision, the wrong device or lost gradients.
    """
    _check("matmul_relu", a, b, precision)
    kind = precision if a.dtype == torch.float32 else "half"
    tile, num_warps, num_stages = settings_for(kind, shared_bytes_of(a.device))
    part_k = part_k_for(*a.shape, b.shape[1], tile, sm_count(a.device))
    return _grouped(a, b, precision, tile, num_warps, num_stages, part_k=part_k)


def settings_for(kind: str, shared_bytes: int) -> tuple:
    """The first of TILES[kind] that fits into `shared_bytes` of shared memory: (tile, num_warps, num_stages)."""
    itemsize = 2 if kind == "half" else 4
    for (block_m, block_n, block_k), num_warps, num_stages in TILES[kind]:
        if num_stages * (block_m * block_k + block_k * block_n) * itemsize <= shared_bytes:  # an upper bound
            return (block_m, block_n, block_k), num_warps, num_stages
    raise ValueError(f"matmul_relu: no tile for {kind} fits into {shared_bytes} bytes of shared memory")


def part_k_for(m: int, k: int, n: int, tile: tuple, sms: int) -> int:
    """How much of K one program takes: all of it, unless c has too few tiles to fill the SMs and K is long.

    Parts are multiples of BLOCK_K, PART_K at least. A sum in parts is also more accurate than one long sum.
    """
    block_m, block_n, block_k = tile
    tiles = max(1, ceil_div(m, block_m) * ceil_div(n, block_n))
    parts = max(1, min(PROGRAMS_PER_SM * sms // tiles, k // PART_K))
    return ceil_div(ceil_div(k, parts), block_k) * block_k if parts > 1 else max(k, 1)


@functools.cache
def shared_bytes_of(device: torch.device) -> int:
    """Shared memory that one block may have on a GPU; as on an H100 for the CPU, where it costs nothing."""
    if device.type != "cuda":
        return 232_448
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def matmul_relu_tiled(a, b, tile=(64, 64, 32), precision="ieee", num_warps=4, num_stages=3) -> torch.Tensor:
    """The lesson's kernel with all its knobs: as `matmul_relu`, on a 2-D grid of tiles (BLOCK_M, BLOCK_N, BLOCK_K).

    Raises ValueError too if c has more than 65535 tiles side by side (the limit of a grid's second axis).
    """
    _check("matmul_relu_tiled", a, b, precision)
    tile, num_warps, num_stages, _ = _knobs("matmul_relu_tiled", tile, num_warps, num_stages)
    (m, k), n = a.shape, b.shape[1]
    grid = (ceil_div(m, tile[0]), ceil_div(n, tile[1]))
    if grid[1] > 65535:
        raise ValueError(f"matmul_relu_tiled: c has {grid[1]} tiles side by side, and a grid takes 65535 on axis 1")
    c = _empty_product(a, b)
    if c.numel() and k and mode.has_triton():
        with launch_on(a):
            matmul_relu_kernel[grid](
                a, b, c, m, n, k, *a.stride(), *b.stride(), c.stride(0), BLOCK_M=tile[0], BLOCK_N=tile[1],
                BLOCK_K=tile[2], PRECISION=precision, num_warps=num_warps, num_stages=num_stages,
            )  # fmt: skip
    return c


def matmul_relu_grouped(a, b, tile=(64, 64, 32), precision="ieee", num_warps=4, num_stages=3, group=GROUP):
    """As `matmul_relu_tiled`, in grouped order on a 1-D grid."""
    _check("matmul_relu_grouped", a, b, precision)
    tile, num_warps, num_stages, group = _knobs("matmul_relu_grouped", tile, num_warps, num_stages, group)
    return _grouped(a, b, precision, tile, num_warps, num_stages, group)


def _knobs(name: str, tile, num_warps: int, num_stages: int, group: int = GROUP) -> tuple[tuple, int, int, int]:
    """The knobs as plain ints (numpy's count too); raises TypeError and ValueError for what the kernels do not take."""
    if not isinstance(tile, tuple | list) or len(tile) != 3:
        raise ValueError(f"{name}: tile must be (BLOCK_M, BLOCK_N, BLOCK_K), got {tile!r}")
    sizes = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    check_power_of_two(name, 16, 1024, **sizes)
    check_power_of_two(name, 1, 32, num_warps=num_warps)
    check_whole(name, 1, None, num_stages=num_stages, group=group)
    return tuple(map(int, tile)), int(num_warps), int(num_stages), int(group)


def _check(name: str, a: torch.Tensor, b: torch.Tensor, precision: str) -> None:
    check_tensors(name, a=a, b=b)
    check_rank(name, "a", a, 2)
    check_rank(name, "b", b, 2)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"{name}: a (M, K) needs b (K, N), got shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if precision not in PRECISIONS:
        raise ValueError(f"{name}: precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")


def _empty_product(a, b):
    """The output, not yet computed, unless nothing can be launched: zeros for K = 0, torch's product without Triton."""
    if a.shape[1] == 0:
        return a.new_zeros(a.shape[0], b.shape[1])
    if not mode.has_triton():
        return matmul_relu_reference(a, b).to(a.dtype)
    return a.new_empty(a.shape[0], b.shape[1])


def _grouped(a, b, precision, tile, num_warps, num_stages, group=GROUP, part_k=None):
    (m, k), n = a.shape, b.shape[1]
    c = _empty_product(a, b)
    if not (c.numel() and k and mode.has_triton()):
        return c
    block_m, block_n, block_k = tile
    part_k = part_k or k
    parts = ceil_div(k, part_k)
    tile_rows, tile_cols = ceil_div(m, block_m), ceil_div(n, block_n)
    if group * tile_cols >= 2**31:  # the kernel counts the tiles of a group in 32 bits; more rows than there are change nothing
        group = tile_rows
    with launch_on(a):
        out = c if parts == 1 else torch.empty(parts, m, n, dtype=torch.float32, device=a.device)
        matmul_relu_grouped_kernel[(tile_rows * tile_cols, parts)](
            a, b, out, m, n, k, part_k, *a.stride(), *b.stride(), n, BLOCK_M=block_m, BLOCK_N=block_n,
            BLOCK_K=block_k, PRECISION=precision, GROUP=group, WHOLE_K=k % block_k == 0, RELU=parts == 1,
            num_warps=num_warps, num_stages=num_stages,
        )  # fmt: skip
        if parts > 1:
            sum_parts_kernel[(ceil_div(m * n, 1024),)](out, c, m * n, parts, BLOCK=1024)
    return c
