"""A launch: the grid cut into batches of blocks that run together, the counts added up."""

import math
import numbers
from dataclasses import dataclass, field

import numpy as np

from helpers import facts, specs
from helpers.cuda.launch import checked_block, checked_grid
from helpers.simt import memory
from helpers.simt.access import space_of
from helpers.simt.arguments import bind
from helpers.simt.kernel import SIZES
from helpers.simt.machine import Machine
from helpers.simt.program import Program, program
from helpers.simt.races import RaceChecker
from helpers.simt.report import Count, Report

LANES = 16384  # that run together: enough to make Python's share small, few enough to stay in the cache
BATCH_BYTES = 64 << 20  # of shared and local memory
MOST_SHARED = 227 * 1024  # bytes of a block, on the GPUs that grant most
MOST_BLOCKS = 1 << 22


def run(ptx, grid, block, args=(), *, shared_bytes: int | None = None, kernel: str | None = None, races=True,
        uninitialised: bool = False, trace=None, shuffle: int | None = 0, limit: int = 1_000_000,
        early_exit: bool = False) -> Report:
    """Run a kernel's PTX on the CPU, warp by warp, and count what the memory system of a GPU would do.

    ptx: PTX text, or a result of `compile_kernel` or `compile_cuda`. `kernel` names one if there are several.
    grid, block: numbers or tuples of up to three. args: numpy arrays and torch CPU tensors (written in place) and
    numbers, one for each parameter of the compiled kernel (0: a pointer to nothing); Triton's own two scratch pointers may be
    left out.
    shared_bytes: dynamic shared memory per block; what a Triton result asks for by default.
    races: raise Race where threads touch a word of shared memory in no certain order; "report": list them in the report;
    False: do not look, which is faster.
    uninitialised: raise Uninitialised where shared memory is read before it was written.
    trace: the (block, warp) whose steps are recorded in `report.trace`, e.g. ((1, 0, 0), 2); True: the first warp.
    shuffle: seed of the order in which blocks run; None: in order of their numbers. Right kernels do not care.
    early_exit: barriers, shuffles and votes go on without threads that have ended, as on GPUs since Volta; CUDA leaves that
    open for barriers. Otherwise UnreachedBarrier or Deadlock is raised.
    limit: instructions that a warp may execute before the run is given up as endless; loops that change nothing are noticed
    long before.

    What the kernel prints appears when all blocks have run, and stands in `report.printed`.

    Raises TypeError or ValueError for a launch that does not fit the kernel, UnknownInstruction for PTX that is not
    implemented, both before anything runs; and the faults of `helpers.simt.faults` where the kernel goes wrong.
    """
    text = getattr(ptx, "ptx", ptx)
    if not isinstance(text, str):
        raise TypeError(f"run needs PTX text or a compiled kernel, got {type(ptx).__name__}")
    grid, block = checked_grid(grid), checked_block(block)
    if not isinstance(args, list | tuple):
        raise TypeError(f"args must be a list of arrays and numbers, got {type(args).__name__}")
    if races not in (True, False, "report") or isinstance(limit, bool) or not isinstance(limit, numbers.Integral) or limit < 1:
        raise ValueError(f'races must be True, False or "report" and limit a whole number of at least 1, got {races!r} and {limit!r}')
    code = program(text, kernel)
    launch = Launch(code, grid, block, _dynamic_bytes(code, ptx, shared_bytes), races, uninitialised, trace, limit,
                    early_exit)
    launch.take(args)
    counts = [Count(i.text, i.line, i.source_line) for i in code.kernel.instructions]
    if math.prod(grid) > MOST_BLOCKS:
        raise ValueError(f"a grid of {grid} would take this machine hours; it runs up to {MOST_BLOCKS} blocks")
    order = np.arange(math.prod(grid))
    if shuffle is not None:
        order = np.random.default_rng(shuffle).permutation(order)
    registers: dict = {}
    with np.errstate(all="ignore"):
        for start in range(0, len(order), launch.batch):
            blocks = order[start:start + launch.batch]
            registers = _registers(code, len(blocks) * launch.lanes_per_block, registers)
            machine = Machine(code, launch, blocks, registers, counts)
            machine.run()
    if launch.printed:
        print("".join(launch.printed), end="")
    return Report(code.kernel.name, code.kernel.source_file, grid, block, counts, launch.trace,
                  list(launch.found.values()), "".join(launch.printed))


def _registers(code: Program, lanes: int, before: dict) -> dict:
    """An array for every register: those of the batch before, if it had as many lanes."""
    if before and len(next(iter(before.values()))) == lanes:
        return before
    return {name: np.zeros(lanes, f"u{size}" if size else bool) for name, size in code.kernel.registers.items()}


def _dynamic_bytes(code: Program, compiled, given: int | None) -> int:
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, numbers.Integral) or not 0 <= given <= MOST_SHARED:
            raise ValueError(f"shared_bytes must be 0 to {MOST_SHARED}, got {given!r}")
        return int(given)
    if not code.kernel.dynamic_shared or not code.kernel.from_triton:
        return 0
    return getattr(compiled, "shared_bytes", MOST_SHARED)  # what Triton would ask for; from text alone nobody knows


@dataclass
class Launch:
    """What all blocks of a launch share."""

    code: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_bytes: int
    races: object
    uninitialised: bool
    traced: object
    limit: int
    early_exit: bool
    device: memory.Global = field(default_factory=memory.Global)
    params: list = field(default_factory=list)  # bytes of each
    trace: list = field(default_factory=list)
    found: dict = field(default_factory=dict)  # races
    printed: list = field(default_factory=list)  # by the kernel

    def __post_init__(self):
        kernel = self.code.kernel
        self.threads = math.prod(self.block)
        if kernel.threads not in (None, self.threads):
            raise ValueError(f"{kernel.name} was compiled for blocks of {kernel.threads} threads, got {self.block}")
        if kernel.most_threads is not None and self.threads > kernel.most_threads:
            raise ValueError(f"{kernel.name} was compiled for blocks of at most {kernel.most_threads} threads (__launch_bounds__), "
                             f"got {self.block}: a GPU refuses this launch")
        static = kernel.dynamic_start if self.dynamic_bytes else kernel.shared_bytes
        self.shared_bytes = static + self.dynamic_bytes
        most = _most_shared(kernel.target)
        if self.shared_bytes > most:
            raise ValueError(f"a block of {kernel.name} would have {self.shared_bytes} bytes of shared memory (declared: {static}, "
                             f"shared_bytes: {self.dynamic_bytes}); {kernel.target} grants at most {most}")
        self.lanes_per_block = -(-self.threads // 32) * 32
        size = max(1, self.shared_bytes + self.lanes_per_block * kernel.local_bytes)
        self.batch = max(1, min(LANES // self.lanes_per_block, BATCH_BYTES // size))
        for number, (name, data) in enumerate(kernel.constants.items()):
            buffer = memory.Buffer(name, np.frombuffer(bytearray(data), np.uint8))
            self.device.add(memory.CONSTANT_SLOT + number, buffer)
        if self.traced is not None:
            self.traced = _traced(self.traced, self.grid, self.lanes_per_block // 32)

    def take(self, args) -> None:
        """Bind the arguments. Raises TypeError for what does not fit."""
        kernel = self.code.kernel
        self.params = bind(kernel, args, self.device)
        values = dict(zip((param.name for param in kernel.params), self.params, strict=True))
        for number, name in enumerate(kernel.constants):
            if name in values:
                self.device.buffers[memory.CONSTANT_SLOT + number].bytes[:] = values[name]

    def traced_warp(self, threads) -> int | None:
        """The number of the traced warp among a machine's threads, if it is there."""
        if self.traced is None:
            return None
        block, warp = self.traced
        at = np.flatnonzero(threads.blocks == block)
        return int(at[0]) * threads.warps_per_block + warp if len(at) else None

    def race_checker(self, machine) -> RaceChecker | None:
        if not self.races or not self.shared_bytes:
            return None
        sizes = [min(SIZES.get(i.parts[-1], 4), 4) for i in self.code.kernel.instructions
                 if i.name in ("ld", "st", "atom") and space_of(i) in ("shared", "generic")]
        return RaceChecker(machine, self.shared_bytes, min(sizes, default=4), self.races != "report", self.found)


def _most_shared(target: str | None) -> int:
    known = target is not None and facts.cc_key(facts.parse_cc(target)) in facts.capabilities()
    return specs.limits(target).shared_kib_per_block * 1024 if known else MOST_SHARED


def _traced(trace, grid, warps: int) -> tuple[int, int]:
    try:
        block, warp = (0, 0) if trace is True else trace
        x, y, z = (block, 0, 0) if isinstance(block, numbers.Integral) else (*block, 0, 0)[:3]
    except (TypeError, ValueError):
        raise ValueError(f"trace must be (block, warp), e.g. (0, 0), got {trace!r}") from None
    if not (0 <= x < grid[0] and 0 <= y < grid[1] and 0 <= z < grid[2] and 0 <= warp < warps):
        raise ValueError(f"trace {trace!r}: the grid is {grid}, with {warps} warps a block")
    return int(x + grid[0] * (y + grid[1] * z)), int(warp)
