"""A launch: arguments checked against the kernel's parameters, the grid cut into batches, the counts added up."""

import numbers
from dataclasses import dataclass, field

import numpy as np

from helpers.cuda.launch import checked_block, checked_grid
from helpers.simt import memory
from helpers.simt.arithmetic import TYPES
from helpers.simt.machine import Machine, Program, program
from helpers.simt.operands import names_in
from helpers.simt.races import RaceChecker
from helpers.simt.report import Count, Report

LANES = 16384  # that run together: enough to make Python's share small, few enough to stay in the cache
BATCH_BYTES = 64 << 20  # of shared and local memory
MOST_SHARED = 227 * 1024  # a block's, on the largest GPUs


def run(ptx, grid, block, args=(), *, shared_bytes: int | None = None, kernel: str | None = None, races=True,
        uninitialised: bool = False, trace=None, shuffle: int | None = 0, limit: int = 1_000_000) -> Report:
    """Run a kernel's PTX on the CPU, warp by warp, and count what the memory system of a GPU would do.

    ptx: PTX text, or a result of `compile_kernel` or `compile_cuda`. `kernel` names one if there are several.
    grid, block: numbers or tuples of up to three. args: numpy arrays and torch CPU tensors (written in place) and
    numbers, one for each parameter of the compiled kernel; Triton's own two scratch pointers may be left out.
    shared_bytes: dynamic shared memory per block; what a Triton result asks for by default.
    races: raise Race where threads touch a word of shared memory in no certain order; "report": list them in the report;
    False: do not look, which is faster.
    uninitialised: raise Uninitialised where shared memory is read before it was written.
    trace: a (block, warp) pair whose steps are recorded in `report.trace`, e.g. (0, 0) or ((1, 0, 0), 2).
    shuffle: seed of the order in which blocks run; None: in order of their numbers. Right kernels do not care.
    limit: instructions that a warp may execute before the run is given up as endless.

    Raises TypeError or ValueError for a launch that does not fit the kernel, UnknownInstruction for PTX that is not
    implemented, both before anything runs; and the faults of `helpers.simt.faults` where the kernel goes wrong.
    """
    text = getattr(ptx, "ptx", ptx)
    if not isinstance(text, str):
        raise TypeError(f"run needs PTX text or a compiled kernel, got {type(ptx).__name__}")
    grid, block = checked_grid(grid), checked_block(block)
    code = program(text, kernel)
    launch = Launch(code, grid, block, _dynamic_bytes(code, ptx, shared_bytes), races, uninitialised, trace, limit)
    launch.bind(args)
    counts = [Count(i.text, i.line, i.source_line) for i in code.kernel.instructions]
    order = np.arange(grid[0] * grid[1] * grid[2])
    if shuffle is not None:
        order = np.random.default_rng(shuffle).permutation(order)
    registers: dict = {}
    with np.errstate(all="ignore"):
        for start in range(0, len(order), launch.batch):
            blocks = order[start:start + launch.batch]
            registers = _registers(code, len(blocks) * launch.lanes_per_block, registers)
            machine = Machine(code, launch, blocks, registers, counts)
            machine.run()
    return Report(code.kernel.name, code.kernel.source_file, grid, block, counts, launch.trace,
                  [sentence for _, sentence in launch.found])


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
    if code.kernel.dynamic_shared is None or not code.kernel.from_triton:
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
    device: memory.Global = field(default_factory=memory.Global)
    params: list = field(default_factory=list)  # bytes of each
    trace: list = field(default_factory=list)
    found: list = field(default_factory=list)  # races

    def __post_init__(self):
        kernel = self.code.kernel
        self.threads = self.block[0] * self.block[1] * self.block[2]
        if kernel.threads not in (None, self.threads):
            raise ValueError(f"{kernel.name} was compiled for blocks of {kernel.threads} threads, got {self.block}")
        static = -(-kernel.shared_bytes // 16) * 16 if self.dynamic_bytes else kernel.shared_bytes
        self.shared_bytes = static + self.dynamic_bytes
        self.lanes_per_block = -(-self.threads // 32) * 32
        size = max(1, self.shared_bytes + self.lanes_per_block * kernel.local_bytes)
        self.batch = max(1, min(LANES // self.lanes_per_block, BATCH_BYTES // size))
        for number, (name, data) in enumerate(kernel.constants.items()):
            buffer = memory.Buffer(name, np.frombuffer(bytearray(data), np.uint8))
            self.device.add(memory.CONSTANT_SLOT + number, buffer)
        if self.traced is not None:
            self.traced = _traced(self.traced, self.grid, self.lanes_per_block // 32)

    def bind(self, args) -> None:
        """Put arrays into device memory and numbers into parameters. Raises TypeError for what does not fit."""
        kernel = self.code.kernel
        args, params = list(args), kernel.params
        hidden = len(params) - len(args)
        if kernel.from_triton and 0 < hidden <= 2 and all(p.pointer for p in params[len(args):]):
            args += [0] * hidden  # scratch memory, which these kernels do not use
        if len(args) != len(params):
            listed = ", ".join(f"{p.kind}{' pointer' if p.pointer else ''}" for p in params)
            hint = "; Triton drops arguments that are constexpr or 1" if kernel.from_triton else ""
            raise TypeError(f"{kernel.name} takes {len(params)} arguments ({listed}), got {len(args)}{hint}")
        roles = _roles(kernel)
        for number, (param, role, value) in enumerate(zip(params, roles, args, strict=True)):
            name = f"argument {number}"
            if _is_array(value):
                if param.size != 8 or role == "number":
                    raise TypeError(f"{kernel.name}: {name} ({param.name}) is a number (.{param.kind}), got an array")
                number_of = self.device.add(number, _buffer(name, value))
                self.params.append(np.array([number_of], np.uint64).view(np.uint8))
            elif role == "pointer" and not (kernel.from_triton and number >= len(params) - 2 and value == 0):
                raise TypeError(f"{kernel.name}: {name} ({param.name}) is a pointer and needs an array, got "
                                f"{type(value).__name__} {value!r}")
            else:
                self.params.append(_number(kernel.name, name, param, value))

    def traced_warp(self, machine) -> int | None:
        """The number of the traced warp among a machine's, if it is there."""
        if self.traced is None:
            return None
        block, warp = self.traced
        at = np.flatnonzero(machine.block_ids == block)
        return int(at[0]) * machine.warps_per_block + warp if len(at) else None

    def race_checker(self, blocks: int, lanes: int) -> RaceChecker | None:
        if not self.races or not self.shared_bytes:
            return None
        sizes = [1 if "8" in i.parts[-1][1:2] else 2 if "16" in i.parts[-1] else 4
                 for i in self.code.kernel.instructions if i.name in ("ld", "st") and "shared" in i.parts]
        return RaceChecker(blocks, lanes, self.shared_bytes, min(sizes, default=4), self.races != "report", self.found)


def _traced(trace, grid, warps: int) -> tuple[int, int]:
    try:
        block, warp = trace
        x, y, z = (block, 0, 0) if isinstance(block, numbers.Integral) else (*block, 0, 0)[:3]
    except (TypeError, ValueError):
        raise ValueError(f"trace must be (block, warp), e.g. (0, 0), got {trace!r}") from None
    if not (0 <= x < grid[0] and 0 <= y < grid[1] and 0 <= z < grid[2] and 0 <= warp < warps):
        raise ValueError(f"trace {trace!r}: the grid is {grid}, with {warps} warps a block")
    return int(x + grid[0] * (y + grid[1] * z)), int(warp)


# ------------------------------------------------------------------------------------------------ arguments


def _is_array(value) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "data_ptr")


def _buffer(name: str, value) -> memory.Buffer:
    """The bytes from an array's first to its last element, as they lie in memory."""
    if not isinstance(value, np.ndarray):
        if value.device.type != "cpu":
            raise TypeError(f"{name} is on {value.device}; the SIMT machine runs on CPU tensors")
        flat = value.detach().as_strided((_extent(value.shape, value.stride()),), (1,))
        offset = value.storage_offset() * value.element_size()
        import torch

        raw = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
        claims = None if value.dtype == torch.bfloat16 else np.dtype(str(value.dtype).removeprefix("torch."))
        return memory.Buffer(name, raw, claims, offset % 256)
    if any(stride < 0 or stride % value.itemsize for stride in value.strides):
        raise TypeError(f"{name} has strides {value.strides}; pass a copy")
    if value.dtype.kind not in "biufV" and value.dtype.itemsize not in (1, 2, 4, 8, 16):
        raise TypeError(f"{name} is an array of {value.dtype}")
    extent = _extent(value.shape, [s // value.itemsize for s in value.strides])
    flat = np.lib.stride_tricks.as_strided(value, (extent,), (value.itemsize,), writeable=value.flags.writeable)
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    offset = value.ctypes.data - owner.ctypes.data if extent else 0
    return memory.Buffer(name, flat.view(np.uint8), value.dtype if value.dtype.kind in "biuf" else None, offset % 256)


def _extent(shape, strides) -> int:
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _number(kernel: str, name: str, param, value) -> np.ndarray:
    wanted = f"{kernel}: {name} ({param.name}) is .{param.kind}"
    dtype = np.dtype(TYPES[param.kind])
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{wanted}, got {type(value).__name__} {value!r}")
    if dtype.kind == "f":
        return np.array([value], dtype).view(np.uint8)
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{wanted}, a whole number, got {type(value).__name__} {value!r}")
    bits = 8 * dtype.itemsize
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise TypeError(f"{wanted}, {value} does not fit into {bits} bits")
    return np.array([int(value) % (1 << bits)], f"u{dtype.itemsize}").view(np.uint8)


def _roles(kernel) -> list[str]:
    """For each parameter "pointer", "number" or "unclear", from what the kernel does with it.

    PTX says only .u64 of both. A pointer is turned into an address of device memory (cvta), at once or after an offset
    was added to it; what is used in other ways only is a number.
    """
    loaded: dict[str, set] = {}  # the registers that each parameter is loaded into
    flows, addresses = [], set()
    for instruction in kernel.instructions:
        if instruction.name == "ld" and "param" in instruction.parts:
            parameter = instruction.operands[1].strip("[] ").split("+")[0]
            loaded.setdefault(parameter, set()).update(names_in(instruction.operands[0]))
        elif instruction.name in ("mov", "add", "sub", "selp", "cvta"):
            target, *sources = ({*names_in(text)} for text in instruction.operands)
            flows.append((target, set().union(*sources), instruction.name == "cvta"))
        for text in instruction.operands:
            if text.startswith("["):
                addresses.add(text.strip("[] ").split("+")[0])
    return [_role(param, loaded.get(param.name), flows, addresses) for param in kernel.params]


def _role(param, registers: set | None, flows: list, addresses: set) -> str:
    if param.pointer or (registers and any(cvta and sources & registers for _, sources, cvta in flows)):
        return "pointer"
    if param.size != 8:
        return "number"
    if registers is None:
        return "unclear"
    reached, before = set(registers), 0
    while before != len(reached):
        before = len(reached)
        for target, sources, cvta in flows:
            if sources & reached:
                if cvta:
                    return "unclear"
                reached |= target
    return "unclear" if reached & addresses else "number"
