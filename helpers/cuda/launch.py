"""Launching CUDA C++ kernels: on the GPU through cuda-core, or, without one, on the SIMT machine."""

import functools
import numbers

import numpy as np
import torch

from helpers import mode
from helpers.cuda import nvrtc

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED = 48 * 1024  # bytes of a block, declared and asked for at the launch, that every GPU grants without opting in
NUMBERS = {"b8": np.int8, "b16": np.int16, "b32": np.int32, "b64": np.int64, "f32": np.float32, "f64": np.float64}


class CudaKernel:
    """A kernel of a `.cu` file, or of source typed in a cell, compiled for the device it is launched on.

    `source` is a path, the name of a file in helpers/cuda, or CUDA C++; the kernel is declared `extern "C"`.
    After a run on the SIMT machine, `report` holds its counts.
    """

    def __init__(self, source, name: str, options=()):
        self.source, self.name, self.options = source, name, nvrtc.as_options(options)
        self.report = None

    def compiled(self, target="sm_120"):
        """PTX, SASS, registers, ... for a target, without a GPU; see `helpers.cuda.nvrtc.compile_cuda`."""
        return nvrtc.compile_cuda(self.source, self.name, target, self.options)

    @functools.cached_property
    def parameters(self) -> list[str]:
        """PTX types of the kernel's parameters: "b64" for pointers and 64-bit integers, "b32", "f32", ..."""
        return nvrtc.parameter_types(self.compiled().ptx)

    def __getitem__(self, grid_and_block):
        """`kernel[grid, block](*args)`: `launch` as CUDA C++ writes it, `kernel<<<grid, block>>>(args)`."""
        if not isinstance(grid_and_block, tuple) or len(grid_and_block) != 2:
            raise ValueError(f"{self.name}[grid, block](...): needs a grid and a block, got {grid_and_block!r}")
        return functools.partial(self.launch, *grid_and_block)

    def __call__(self, *args):
        raise TypeError(f"{self.name} needs a grid and a block: write {self.name}[blocks, threads](...)")

    def launch(self, grid, block, *args, shared_bytes: int = 0) -> None:
        """Run the kernel on `grid` blocks of `block` threads (numbers or tuples of up to 3).

        `args` are tensors (all on one device) and numbers, in the kernel's order. On CUDA tensors it is enqueued on
        torch's current stream of their device; on CPU tensors it runs on the SIMT machine. An empty grid launches
        nothing. Before the launch, raises ValueError for a grid, block or shared memory that no GPU accepts, naming the
        limit, and TypeError for arguments that do not fit the parameters.
        """
        grid, block = checked_grid(grid), checked_block(block)
        self._check_shared(shared_bytes)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        devices = {str(t.device) for t in tensors}
        if len(devices) > 1:
            raise ValueError(f"{self.name}: all tensors must be on one device, got {', '.join(sorted(devices))}")
        if tensors and tensors[0].device.type != ("cuda" if mode.is_live() else "cpu"):
            raise ValueError(f"{self.name}: tensors are on {tensors[0].device}, but kernels run on "
                             f"{'the GPU' if mode.is_live() else 'the CPU (SIMT machine)'} here")
        values = as_parameters(self, args)
        if 0 in grid:
            return
        if mode.is_live():
            device = tensors[0].device.index if tensors else torch.cuda.current_device()
            _launch_on_gpu(self, device, grid, block, values, shared_bytes)
        else:
            self.counted(grid, block, *args, shared_bytes=shared_bytes)

    def _check_shared(self, dynamic) -> None:
        if isinstance(dynamic, bool) or not isinstance(dynamic, numbers.Integral) or dynamic < 0:
            raise ValueError(f"{self.name}: shared_bytes must be a whole number of bytes, at least 0, got {dynamic!r}")
        if dynamic and (declared := self.compiled().shared_bytes) + dynamic > MAX_SHARED:
            raise ValueError(f"{self.name}: a block holds at most {MAX_SHARED} bytes of shared memory, and the kernel declares "
                             f"{declared}; shared_bytes asks for {dynamic} more")

    def counted(self, grid, block, *args, shared_bytes: int = 0, target="sm_120", **options):
        """Run on the SIMT machine, with a GPU or without, on CPU tensors; returns (and keeps) the report of its counts.

        `options` go to `helpers.simt.run`. Raises as `launch`, and what the machine finds wrong with the kernel.
        """
        from helpers import simt

        as_parameters(self, args)
        self.report = simt.run(self.compiled(target).ptx, checked_grid(grid), checked_block(block), args,
                               shared_bytes=shared_bytes, **options)
        return self.report


def checked_block(block) -> tuple[int, int, int]:
    """A block as three sizes. Raises ValueError naming the limit it breaks."""
    block = _three(block, "block", 1)
    for axis, size, limit in zip("xyz", block, MAX_BLOCK, strict=True):
        if size > limit:
            raise ValueError(f"block of {block}: at most {limit} threads along {axis}")
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS:
        raise ValueError(f"block of {block} has {threads} threads; a block holds at most {MAX_THREADS}")
    return block


def checked_grid(grid) -> tuple[int, int, int]:
    """A grid as three sizes, possibly 0. Raises ValueError naming the limit it breaks."""
    grid = _three(grid, "grid", 0)
    for axis, size, limit in zip("xyz", grid, MAX_GRID, strict=True):
        if size > limit:
            raise ValueError(f"grid of {grid}: at most {limit} blocks along {axis}")
    return grid


def _three(sizes, what: str, least: int) -> tuple[int, int, int]:
    given = sizes if isinstance(sizes, tuple | list) else (sizes,)
    if not 1 <= len(given) <= 3 or any(isinstance(s, bool) or not isinstance(s, numbers.Integral) for s in given):
        raise ValueError(f"{what} must be one to three whole numbers, got {sizes!r}")
    if any(s < least for s in given):
        raise ValueError(f"{what} sizes must be at least {least}, got {sizes!r}"
                         + (f" (and a block holds at most {MAX_THREADS} threads)" if what == "block" else ""))
    return (*map(int, given), 1, 1)[:3]


class _TorchStream:
    """torch's current stream, in the form that cuda-core accepts."""

    def __init__(self, handle: int):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


@functools.cache
def _loaded(source, name, options, device: int):
    """The kernel loaded on a device, from machine code for exactly that device."""
    from cuda.core import ObjectCode

    major, minor = torch.cuda.get_device_capability(device)
    cubin = nvrtc.cubin_of(source, name, 10 * major + minor, options)
    return ObjectCode.from_cubin(cubin).get_kernel(name)


def _launch_on_gpu(kernel: CudaKernel, device: int, grid, block, values, shared_bytes: int) -> None:
    from cuda.core import Device, LaunchConfig, launch

    with torch.cuda.device(device):
        core = Device(device)
        core.set_current()
        loaded = _loaded(kernel.source, kernel.name, kernel.options, device)
        stream = core.create_stream(_TorchStream(torch.cuda.current_stream(device).cuda_stream))
        config = LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes)
        launch(stream, config, loaded, *values)  # raises if the driver rejects the launch


def as_parameters(kernel: CudaKernel, args) -> list:
    """Arguments in the kernel's own parameter types. Raises TypeError for what does not fit, before the launch."""
    types = kernel.parameters
    if len(types) != len(args):
        raise TypeError(f"{kernel.name} takes {len(types)} arguments, got {len(args)}")
    return [_parameter(f"{kernel.name}: parameter {i}", kind, value) for i, (kind, value) in enumerate(zip(types, args, strict=True))]


def _parameter(which: str, kind: str, value):
    """One argument as the type that the driver needs."""
    if kind not in NUMBERS:
        raise TypeError(f"{which} is a structure, which cannot be passed to this launch: pass its members, or a tensor that holds it")
    if isinstance(value, torch.Tensor):
        if kind != "b64":
            raise TypeError(f"{which} is a number ({kind}), got a tensor")
        return value.data_ptr()
    if kind == "b8" and isinstance(value, bool | np.bool_):  # C++ has its bool in a byte
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer if kind[0] == "b" else float | np.floating):
        got = f"{type(value).__name__} {value!r}" if isinstance(value, numbers.Number) else type(value).__name__
        needed = "a tensor or a whole number" if kind == "b64" else "a whole number" if kind[0] == "b" else "a float, such as 1.0"
        raise TypeError(f"{which} is {kind}, got {got}; it takes {needed}")
    if kind[0] == "f":
        return as_float(which, NUMBERS[kind], value)
    bits = int(kind[1:])
    if not -(2 ** (bits - 1)) <= value < 2**bits:
        raise TypeError(f"{which} is a {bits}-bit integer, {value} does not fit")
    return NUMBERS[kind](int(value) if value < 2 ** (bits - 1) else int(value) - 2**bits)


def as_float(which: str, dtype, value):
    """A number as a float of that type. Raises TypeError for a finite one that would become infinite."""
    with np.errstate(over="ignore"):
        number = dtype(value)
    if np.isinf(number) and abs(value) != np.inf:
        raise TypeError(f"{which} is {np.dtype(dtype)}, {value} does not fit")
    return number
