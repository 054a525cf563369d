"""What a kernel wrapper checks before it launches anything. Every message says what was needed and what came."""

import contextlib
import numbers

import torch
from torch.autograd import forward_ad

from helpers import mode

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_tensors(name: str, **tensors: torch.Tensor) -> None:
    """Refuse what the kernels were not written for.

    Raises TypeError for anything but tensors of one dtype out of float32, float16 and bfloat16; ValueError for tensors
    on different devices, on a device that this mode does not launch on, in a sparse or nested layout, negated lazily,
    without memory (of torch.vmap, or fake), or whose gradient, backward or forward, would be lost.
    """
    first = next(iter(tensors.values()))
    if all(_accepted(x, first) for x in tensors.values()):
        return  # the common case costs a microsecond; the rest finds out what is wrong
    for arg, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name}: {arg} must be a torch.Tensor, got {type(x).__name__}")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name}: {arg} must be float32, float16 or bfloat16, got {_short(x.dtype)}")
    dtypes = {arg: _short(x.dtype) for arg, x in tensors.items()}
    if len(set(dtypes.values())) > 1:
        raise TypeError(f"{name}: all inputs must have one dtype, got {_listed(dtypes)}")
    for arg, x in tensors.items():
        if x.layout != torch.strided or x.is_nested:
            layout = "nested" if x.is_nested else x.layout
            raise ValueError(f"{name}: {arg} must be a dense (strided) tensor, got layout {layout}")
        if x.is_neg():  # as z.conj().imag: its memory holds the numbers with the other sign
            raise ValueError(f"{name}: {arg} is a negated view, got {arg}.is_neg() == True; pass {arg}.resolve_neg()")
    devices = {arg: str(x.device) for arg, x in tensors.items()}
    if len(set(devices.values())) > 1:
        raise ValueError(f"{name}: all inputs must be on one device, got {_listed(devices)}")
    needed = "cuda" if mode.is_live() else "cpu"
    for arg, x in tensors.items():
        if x.device.type != needed:
            raise ValueError(f"{name}: kernels run on {needed} tensors here ({_why()}), but {arg} is on {x.device}")
        if torch.is_grad_enabled() and x.requires_grad:
            raise ValueError(
                f"{name}: {arg} requires grad, and this kernel has no backward pass: its gradient would be lost. "
                f"Pass {arg}.detach() or call under torch.no_grad()."
            )
        if not _has_memory(x):  # a kernel would read and write at address 0
            raise ValueError(f"{name}: {arg} must be a tensor with memory of its own, and this {type(x).__name__} of shape "
                             f"{tuple(x.shape)} has none (as inside torch.vmap and torch.func, or a fake tensor)")
        if _has_tangent(x):
            raise ValueError(f"{name}: {arg} carries a tangent of forward-mode differentiation, and this kernel has no "
                             f"derivative: it would be lost. Pass torch.autograd.forward_ad.unpack_dual({arg}).primal.")


def _has_memory(x: torch.Tensor) -> bool:
    try:
        return x.data_ptr() != 0 or x.numel() == 0
    except RuntimeError:  # wrapped by torch.func
        return False


def _has_tangent(x: torch.Tensor) -> bool:
    return forward_ad.unpack_dual(x).tangent is not None


def _accepted(x, first) -> bool:
    return (isinstance(x, torch.Tensor) and x.dtype in DTYPES and x.dtype == first.dtype and x.layout is torch.strided
            and x.device == first.device and x.is_cuda is mode.is_live() and x.device.type in ("cuda", "cpu")
            and not (x.is_nested or x.is_neg() or x.requires_grad and torch.is_grad_enabled()) and _has_memory(x)
            and not _has_tangent(x))


def check_rank(name: str, arg: str, x: torch.Tensor, rank: int) -> None:
    """Raise ValueError unless `x` has `rank` dimensions."""
    if x.dim() != rank:
        raise ValueError(f"{name}: {arg} must have {rank} dimensions, got shape {tuple(x.shape)}")


def _check_int(name: str, arg: str, value) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name}: {arg} must be an int, got {value!r}")


def check_whole(name: str, least: int, most: int | None, **given: int) -> None:
    """Raise TypeError unless each number is whole (numpy's count), ValueError unless it is from `least` to `most`."""
    for arg, value in given.items():
        _check_int(name, arg, value)
        if value < least or most is not None and value > most:
            wanted = f"{least} or more" if most is None else f"from {least} to {most}"
            raise ValueError(f"{name}: {arg} must be {wanted}, got {value}")


def check_power_of_two(name: str, least: int, most: int, **given: int) -> None:
    """Raise TypeError unless each number is whole, ValueError unless it is a power of two from `least` to `most`."""
    for arg, value in given.items():
        _check_int(name, arg, value)
        if not least <= value <= most or value & (value - 1):
            raise ValueError(f"{name}: {arg} must be a power of two from {least} to {most}, got {value}")


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up. (triton.cdiv is made for kernels too, and takes microseconds on the host.)"""
    return -(-a // b)


def padded(n: int) -> int:
    """The next power of two: a tensor in a kernel has no other length."""
    return 1 << (n - 1).bit_length()


def launch_on(x: torch.Tensor):
    """A context in which launches go to the device of `x` (Triton launches on torch's current device and stream)."""
    elsewhere = x.is_cuda and x.device.index != torch.cuda.current_device()
    return torch.cuda.device(x.device) if elsewhere else contextlib.nullcontext()


def _why() -> str:
    return "a GPU is in use" if mode.is_live() else "no GPU is in use: the Triton interpreter runs them"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{arg}: {value}" for arg, value in values.items())
