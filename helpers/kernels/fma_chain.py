"""A chain of dependent multiply-adds: x = a x + b, n times, elementwise. It measures latency: no step can start early.

`fma_chain_kernel`     one program per BLOCK elements                                    what `fma_chain` launches
`fma_resident_kernel`  a fixed number of programs that stay and walk over all elements    what `fma_resident` launches
                       `plain`  load, chain, store: the wait for memory adds to the chain
                       `early`  the next element is loaded before the chain of this one
                       BLOCK = 32 x num_warps: one element per thread per step, so a warp has one chain and nothing else
                       BLOCK = 4 x 32 x num_warps: four elements, so a warp has four independent chains
`fma_shared_kernel`    as many programs, but each takes its next share when it has done one    what `fma_shared` launches

Every version reads x once and writes y once. a and b are arguments, so the compiler cannot foresee the result; n is a
constant, so the chain is unrolled and spends its issue slots on multiply-adds. The arithmetic is float32, rounded once.
"""

import numbers

import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.kernels.inputs import check_power_of_two, check_tensors, check_whole, launch_on

BLOCK = 512
MAX_PROGRAMS = 2**20
NUM_WARPS = 4
UNROLL = 256  # of `fma_chain`: straight-line code up to here, a loop of it beyond
THREADS = 32 * NUM_WARPS


def fma_chain_reference(x: torch.Tensor, a: float, b: float, n: int) -> torch.Tensor:
    """float64 result for x of any shape; a and b are rounded to float32 first, as the kernels receive them."""
    a, b = (float(torch.tensor(value, dtype=torch.float32)) for value in (a, b))
    x = x.double()
    for _ in range(n):
        x = a * x + b
    return x


def fma_chain_traffic_bytes(elements: int, itemsize: int = 4) -> int:
    """Least device-memory traffic in bytes: every element read once and written once."""
    return 2 * elements * itemsize


def fma_chain_flops(elements: int, n: int) -> int:
    """Floating-point operations: two for each multiply-add."""
    return 2 * elements * n


@triton.jit
def fma_steps(x, a, b, N: tl.constexpr, UNROLL: tl.constexpr):
    """N dependent multiply-adds on x in registers; straight-line code up to UNROLL, a loop of it beyond."""
    for _ in range(N // UNROLL):
        for _ in tl.static_range(UNROLL):
            x = tl.fma(x, a, b)
    for _ in tl.static_range(N % UNROLL):
        x = tl.fma(x, a, b)
    return x


@triton.jit
def fma_chain_kernel(x_ptr, y_ptr, elements, a, b, N: tl.constexpr, UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    mask = offsets < elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, fma_steps(x, a, b, N, UNROLL), mask=mask)


@triton.jit
def fma_resident_kernel(x_ptr, y_ptr, where_ptr, elements, a, b, N: tl.constexpr, UNROLL: tl.constexpr,
                        BLOCK: tl.constexpr, EARLY: tl.constexpr, WIDE: tl.constexpr, WHERE: tl.constexpr):
    program = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)  # 64 bits cost instructions in every step
    stride = tl.num_programs(0) * BLOCK  # from one step of this program to its next
    lanes = tl.arange(0, BLOCK)
    if WHERE:  # read back which SM runs this program, and from when to when
        tl.store(where_ptr + 3 * program, tl.extra.cuda.smid().to(tl.int64))
        tl.store(where_ptr + 3 * program + 1, tl.extra.cuda.globaltimer())
    if EARLY:
        ahead = tl.load(x_ptr + program * BLOCK + lanes, mask=program * BLOCK + lanes < elements)
        for start in range(program * BLOCK, elements, stride):
            offsets = start + lanes  # (BLOCK,)
            x = ahead.to(tl.float32)
            ahead = tl.load(x_ptr + offsets + stride, mask=offsets + stride < elements)  # travels during the chain
            tl.store(y_ptr + offsets, fma_steps(x, a, b, N, UNROLL), mask=offsets < elements)
    else:
        for start in range(program * BLOCK, elements, stride):
            offsets = start + lanes
            x = tl.load(x_ptr + offsets, mask=offsets < elements).to(tl.float32)
            tl.store(y_ptr + offsets, fma_steps(x, a, b, N, UNROLL), mask=offsets < elements)
    if WHERE:
        tl.store(where_ptr + 3 * program + 2, tl.extra.cuda.globaltimer())


@triton.jit
def fma_shared_kernel(x_ptr, y_ptr, counter_ptr, elements, a, b, N: tl.constexpr, UNROLL: tl.constexpr,
                      BLOCK: tl.constexpr, STEPS: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    first = tl.atomic_add(counter_ptr, 1).to(tl.int64) * STEPS * BLOCK  # the next share that nobody has taken
    while first < elements:
        ahead = tl.load(x_ptr + first + lanes, mask=first + lanes < elements)
        for start in range(first, first + STEPS * BLOCK, BLOCK):
            offsets = start + lanes  # (BLOCK,)
            x = ahead.to(tl.float32)
            ahead = tl.load(x_ptr + offsets + BLOCK, mask=offsets + BLOCK < elements)
            tl.store(y_ptr + offsets, fma_steps(x, a, b, N, UNROLL), mask=offsets < elements)
        first = tl.atomic_add(counter_ptr, 1).to(tl.int64) * STEPS * BLOCK


def fma_chain(x: torch.Tensor, a: float, b: float, n: int) -> torch.Tensor:
    """x = a x + b, n times; x of any shape and strides in float32, float16 or bfloat16; returns x's shape and dtype.

    Raises TypeError for another dtype, an a or b that is not a number, or an n that is not an int; ValueError for a
    negative n, the wrong device, or a tensor that requires grad.
    """
    a, b, n = _checked("fma_chain", x, a, b, n)
    dense, y, done = _prepared(x, a, b, n)
    if done:
        return y
    grid = (triton.cdiv(dense.numel(), BLOCK),)
    with launch_on(x):
        fma_chain_kernel[grid](dense, y, dense.numel(), a, b, N=n, UNROLL=UNROLL, BLOCK=BLOCK, num_warps=NUM_WARPS)
    return y


def fma_resident(x, a, b, n, *, programs: int, early: bool = True, elements_per_thread: int = 1,
                 unroll: int | None = None, wide: bool = False, where: torch.Tensor | None = None) -> torch.Tensor:
    """The same values, by exactly `programs` programs of 4 warps that share all elements among them.

    With programs = SMs x m, spread evenly, each SMSP runs m warps. `elements_per_thread` (1, 2, 4 or 8) is the number
    of independent chains of a thread. `where`, an int64 tensor (programs, 3) on the GPU, receives for each program its
    SM and the nanoseconds at which it began and ended. `wide` computes offsets in 64 bits, as many elements need.
    Raises as `fma_chain` does, and ValueError for other numbers of programs or elements_per_thread.
    """
    a, b, n = _checked("fma_resident", x, a, b, n)
    check_whole("fma_resident", 1, MAX_PROGRAMS, programs=programs)
    check_power_of_two("fma_resident", 1, 8, elements_per_thread=elements_per_thread)
    unroll = unrolled(n, elements_per_thread) if unroll is None else unroll
    check_whole("fma_resident", 1, None, unroll=unroll)
    programs, elements_per_thread, unroll = int(programs), int(elements_per_thread), int(unroll)
    if where is not None and not _takes_places(where, x, programs):
        raise ValueError(f"fma_resident: where must be an int64 tensor of shape ({programs}, 3) on the GPU")
    block = THREADS * elements_per_thread
    wide = wide or x.numel() + 2 * programs * block >= 2**31
    dense, y, done = _prepared(x, a, b, n)
    if done:
        return y
    with launch_on(x):
        fma_resident_kernel[(programs,)](
            dense, y, y if where is None else where, dense.numel(), a, b, N=n, UNROLL=unroll, BLOCK=block,
            EARLY=early, WIDE=wide, WHERE=where is not None, num_warps=NUM_WARPS)
    return y


def fma_shared(x, a, b, n, *, programs: int, steps: int = 16) -> torch.Tensor:
    """The same values, by `programs` programs that take the next `steps` x 128 elements from a counter when they are free.

    A program that is served late then does less, instead of keeping everybody waiting. Raises as `fma_resident` does.
    """
    a, b, n = _checked("fma_shared", x, a, b, n)
    check_whole("fma_shared", 1, MAX_PROGRAMS, programs=programs)
    check_whole("fma_shared", 1, 2**20, steps=steps)  # of 0 steps nothing would ever be done
    dense, y, done = _prepared(x, a, b, n)
    if done:
        return y
    counter = torch.zeros(1, dtype=torch.int32, device=x.device)
    with launch_on(x):
        fma_shared_kernel[(int(programs),)](dense, y, counter, dense.numel(), a, b, N=n, UNROLL=unrolled(n), BLOCK=THREADS,
                                            STEPS=int(steps), num_warps=NUM_WARPS)
    return y


def _takes_places(where, x, programs: int) -> bool:
    return (isinstance(where, torch.Tensor) and where.dtype == torch.int64 and tuple(where.shape) == (programs, 3)
            and where.is_contiguous() and x.is_cuda and where.device == x.device)


def unrolled(n: int, elements_per_thread: int = 1) -> int:
    """How much of a chain stands as straight-line code: half of it, so that a loop remains, but not too much.

    ptxas moves a load down to shortly before its use, less than the memory's latency away, but never into a loop; and
    code of 4096 FMAs, 64 KiB, no longer fits the instruction cache of an H200 (a third of the rate), 1024 do.
    """
    return min(max(n // 2, 32), 1024 // elements_per_thread)


def _prepared(x, a, b, n) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """(x without gaps, output, whether it is complete): an empty one is, and torch fills it where Triton is missing."""
    dense = x.contiguous()
    if dense.numel() and not mode.has_triton():
        return dense, fma_chain_reference(dense, a, b, n).to(x.dtype), True
    return dense, torch.empty_like(dense), dense.numel() == 0


def _checked(name, x, a, b, n) -> tuple[float, float, int]:
    """a and b as floats (Triton would make a constant of the int 1), n as int; raises for what the kernels do not take."""
    check_tensors(name, x=x)
    for arg, value in (("a", a), ("b", b)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name}: {arg} must be a number, got {type(value).__name__}")
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        raise TypeError(f"{name}: n must be an int, got {type(n).__name__}")
    if n < 0:
        raise ValueError(f"{name}: n must not be negative, got {n}")
    return float(a), float(b), int(n)
