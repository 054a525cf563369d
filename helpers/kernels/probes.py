"""Probes of the machine: kernels whose result matters less than how long they take or where they ran.

    read_again      Triton   each SM reads its own slice again and again             rate of L1, L2, device memory
    copy            Triton   y = x, once                                             rate of device memory
    pointer_chase   CUDA     one thread follows a chain of addresses                 latency of one load
    fma_latency     CUDA     one warp, one chain of multiply-adds                    cycles from FMA to FMA
    busy            CUDA     every warp fills an issue slot and says where it runs   SM and warp slot
    warp_pair       CUDA     two warps of a block work at the same time              do they share a scheduler?

Only a GPU has a clock, SMs and warp slots, so the last four need one; the CUDA kernels stand in helpers/cuda/probes.cu.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.cuda.launch import CudaKernel
from helpers.kernels.inputs import check_rank, check_tensors, launch_on

LINE_BYTES = 128  # a chase visits one address in every cache line
READ_WARPS = 32
READ_TILE = 4096  # float32 elements a step: 16 bytes for each of 1024 threads
COPY_BLOCK = 1024

CHASE, FMA_LATENCY, BUSY, WARP_PAIR = (
    CudaKernel("probes.cu", name) for name in ("pointer_chase", "fma_latency", "busy", "warp_pair"))


@triton.jit
def read_kernel(x_ptr, sums_ptr, steps, SLICE: tl.constexpr, TILE: tl.constexpr, PAST_L1: tl.constexpr):
    x_ptr += tl.program_id(0).to(tl.int64) * SLICE
    total = tl.zeros((TILE,), tl.float32)
    for step in range(steps):
        offsets = (step * TILE + tl.arange(0, TILE)) % SLICE  # (TILE,), wraps around inside the slice
        if PAST_L1:
            total += tl.load(x_ptr + offsets, cache_modifier=".cg")  # cached in L2 only
        else:
            total += tl.load(x_ptr + offsets)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(total))


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def read_again(x: torch.Tensor, bytes_per_program: int, *, past_l1: bool = False) -> torch.Tensor:
    """Program i reads row i of the float32 x (programs, slice) until it has read `bytes_per_program`; returns its sums.

    The slice must be a multiple of 64 elements, `bytes_per_program` a multiple of 16 KiB. With one program per SM,
    x.shape[0] is the number of SMs and a row is an SM's working set. `past_l1` caches in L2 only. Raises ValueError
    otherwise.
    """
    check_tensors("read_again", x=x)
    check_rank("read_again", "x", x, 2)
    programs, size = x.shape
    if x.dtype != torch.float32 or not x.is_contiguous() or size < 1 or size % 64:
        raise ValueError(f"read_again: x must be contiguous float32 with a multiple of 64 columns, got {x.dtype} "
                         f"{tuple(x.shape)}")
    steps, rest = divmod(bytes_per_program, 4 * READ_TILE)
    if rest or steps < 1:
        raise ValueError(f"read_again: bytes_per_program must be a multiple of {4 * READ_TILE}, "
                         f"got {bytes_per_program}")
    sums = torch.empty(programs, device=x.device)
    if not mode.has_triton():
        return sums.copy_(sums_read(x, bytes_per_program))
    with launch_on(x):
        read_kernel[(programs,)](x, sums, steps, SLICE=size, TILE=READ_TILE, PAST_L1=past_l1, num_warps=READ_WARPS)
    return sums


def sums_read(x: torch.Tensor, bytes_per_program: int) -> torch.Tensor:
    """What `read_again` must return, in float64."""
    rounds, rest = divmod(bytes_per_program // 4, x.shape[1])
    return rounds * x.double().sum(1) + x[:, :rest].double().sum(1)


def copy(x: torch.Tensor) -> torch.Tensor:
    """A copy of x, each element read once and written once; x contiguous, of any shape."""
    check_tensors("copy", x=x)
    if not x.is_contiguous():
        raise ValueError(f"copy: x must be contiguous, got strides {x.stride()}")
    y = torch.empty_like(x)
    if x.numel() == 0:
        return y
    if not mode.has_triton():
        return y.copy_(x)
    with launch_on(x):
        copy_kernel[(triton.cdiv(x.numel(), COPY_BLOCK),)](x, y, x.numel(), BLOCK=COPY_BLOCK, num_warps=4)
    return y


def address_chain(size_bytes: int, device=None, *, seed: int = 0) -> torch.Tensor:
    """int64 (lines, 16): the first number of each 128-byte line is the address of the line to visit next.

    The order is random and passes every line once before it returns to the first, so that no prefetcher can guess it.
    Raises ValueError for a size that is not a multiple of 128 bytes.
    """
    lines, rest = divmod(size_bytes, LINE_BYTES)
    if rest or lines < 1:
        raise ValueError(f"address_chain: size_bytes must be a multiple of {LINE_BYTES}, got {size_bytes}")
    device = device or mode.device()
    generator = torch.Generator(device).manual_seed(seed)
    chain = torch.zeros((lines, LINE_BYTES // 8), dtype=torch.int64, device=device)
    order = torch.randperm(lines, generator=generator, device=device)
    chain[order, 0] = chain.data_ptr() + LINE_BYTES * order.roll(-1)
    return chain


class Chase(NamedTuple):
    """Where a chase ended (a line's number), and how long one load took; the times are None without a GPU."""

    line: int
    cycles: float | None
    ns: float | None


def pointer_chase(chain: torch.Tensor, steps: int, *, warm_steps: int = 0, start: int = 0) -> Chase:
    """Follow an `address_chain` from line `start`: `warm_steps` loads to fill the caches, then `steps` timed ones.

    Each load needs the address that the one before it fetched, so the time of a load is its latency. A second chase over
    the same lines finds them in a cache: continue from where the first one ended.
    """
    if steps < 1 or warm_steps < 0:
        raise ValueError(f"pointer_chase: steps must be at least 1 and warm_steps 0, got {steps} and {warm_steps}")
    if not 0 <= start < len(chain):
        raise ValueError(f"pointer_chase: start must be a line from 0 to {len(chain) - 1}, got {start}")
    if not mode.is_live():  # the same walk without a clock
        line, following = start, ((chain[:, 0] - chain.data_ptr()) // LINE_BYTES).tolist()
        for _ in range(warm_steps + steps):
            line = following[line]
        return Chase(line, None, None)
    result = torch.zeros(3, dtype=torch.int64, device=chain.device)
    CHASE.launch(1, 1, chain.data_ptr() + LINE_BYTES * start, warm_steps, steps, result)
    address, cycles, ns = result.tolist()
    return Chase((address - chain.data_ptr()) // LINE_BYTES, cycles / steps, ns / steps)


def fma_latency(rounds: int = 1 << 16) -> float:
    """Cycles from one dependent multiply-add of a warp to the next. Raises RuntimeError without a GPU."""
    _need_gpu("fma_latency")
    out = torch.ones(32, device="cuda")
    cycles = torch.zeros(2, dtype=torch.int64, device="cuda")
    for _ in range(2):  # the second run finds its code in the instruction cache
        FMA_LATENCY.launch(1, 32, rounds, 0.5, 0.5, out, cycles)
    whole, half = cycles.tolist()
    return (whole - half) / (rounds - rounds // 2)


class Busy(NamedTuple):
    """`out`: one float32 a thread, 8.0 everywhere; `sm` and `slot`: where the hardware put each warp."""

    out: torch.Tensor
    sm: torch.Tensor
    slot: torch.Tensor


def busy(blocks: int, warps_per_block: int, rounds: int = 4096, *, into: Busy | None = None) -> Busy:
    """Run `blocks` blocks whose warps all issue as fast as they can: 8 chains of `rounds` multiply-adds each.

    The chains approach 1 and are added up, so that every thread ends with 8. `into` is the result of an earlier call
    of this size to write into. Raises RuntimeError without a GPU.
    """
    _need_gpu("busy")
    warps = blocks * warps_per_block
    if into is None:
        out = torch.full((32 * warps,), float("nan"), device="cuda")
        into = Busy(out, *(torch.full((warps,), -1, dtype=torch.int32, device="cuda") for _ in range(2)))
    BUSY.launch(blocks, 32 * warps_per_block, rounds, 0.25, 0.5, 0.5, *into)
    return into


def busy_flops(blocks: int, warps_per_block: int, rounds: int = 4096) -> int:
    """Floating-point operations of `busy`, two for each multiply-add."""
    return 2 * 8 * rounds * 32 * warps_per_block * blocks


def warp_pair(first: int, second: int, warps: int = 8, rounds: int = 4096) -> float:
    """Cycles that warp `first` of a block needs while warp `second` works too and all others have left. Needs a GPU.

    With first == second it works alone. Twice that time means that the two share one scheduler.
    """
    _need_gpu("warp_pair")
    if not (0 <= first < warps and 0 <= second < warps):
        raise ValueError(f"warp_pair: warps must be 0 to {warps - 1}, got {first} and {second}")
    out = torch.ones(32 * warps, device="cuda")
    cycles = torch.zeros(warps, dtype=torch.int64, device="cuda")
    slot = torch.zeros(warps, dtype=torch.int32, device="cuda")
    for _ in range(2):
        WARP_PAIR.launch(1, 32 * warps, first, second, rounds, 0.5, 0.5, out, cycles, slot)
    return float(cycles[first])


def _need_gpu(name: str) -> None:
    if not mode.is_live():
        raise RuntimeError(f"{name} reads the registers of a GPU's SMs, and no GPU is in use here; "
                           "measure(...) shows what was recorded")
