"""Arguments of a launch, checked against the kernel's parameters as far as PTX tells what those are."""

import numbers
import reprlib

import numpy as np

from helpers.cuda.launch import as_float
from helpers.simt import memory
from helpers.simt.kernel import TYPES
from helpers.simt.operands import names_in


def bind(kernel, args, device: memory.Global) -> list[np.ndarray]:
    """Put arrays into device memory; returns the bytes of every parameter. Raises TypeError for what does not fit."""
    args, params, bound = list(args), kernel.params, []
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
        if param.count:
            bound.append(_structure(kernel.name, name, param, value))
        elif _is_array(value):
            if param.size != 8 or role == "number":
                raise TypeError(f"{kernel.name}: {name} ({param.name}) is a number (.{param.kind}), got an array")
            address = device.add(number, _buffer(name, value))
            bound.append(np.array([address], np.uint64).view(np.uint8))
        elif role == "pointer" and not _is_null(value):
            hint = "; Triton drops arguments that are constexpr or 1" if kernel.from_triton else ""
            raise TypeError(f"{kernel.name}: {name} ({param.name}) is a pointer and needs an array, got "
                            f"{type(value).__name__} {reprlib.repr(value)}{hint}")
        else:
            bound.append(_number(kernel.name, name, param, value))
    return bound


def _is_array(value) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "data_ptr")


def _is_null(value) -> bool:
    """A plain 0: a pointer to nothing, which kernels may be given and must not follow."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value == 0


def _buffer(name: str, value) -> memory.Buffer:
    """The bytes from an array's first to its last element, as they lie in memory."""
    if not isinstance(value, np.ndarray):
        if value.device.type != "cpu":
            raise TypeError(f"{name} is on {value.device}; the SIMT machine runs on CPU tensors")
        if str(value.layout) != "torch.strided" or value.is_conj() or value.is_neg():
            raise TypeError(f"{name} is a tensor whose values do not lie in memory as they are ({value.layout}); pass a copy in which "
                            "they do: .to_dense(), .resolve_conj(), .resolve_neg()")
        flat = value.detach().as_strided((_extent(value.shape, value.stride()),), (1,))
        offset = value.storage_offset() * value.element_size()
        import torch

        raw = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
        kind = str(value.dtype).removeprefix("torch.")
        claims = memory.BFLOAT16 if kind == "bfloat16" else np.dtype(kind) if kind in np.sctypeDict else None
        return memory.Buffer(name, raw, _claims(claims), offset % 256)
    if any(stride < 0 or stride % value.itemsize for stride in value.strides):
        raise TypeError(f"{name} has strides {value.strides}; pass a copy")
    if value.dtype.kind not in "biufcV" or not value.dtype.isnative or value.dtype.hasobject:
        raise TypeError(f"{name} is an array of {value.dtype}, which no kernel can read: pass numbers, or records of them, in the "
                        "byte order of this machine")
    extent = _extent(value.shape, [s // value.itemsize for s in value.strides])
    flat = np.lib.stride_tricks.as_strided(value, (extent,), (value.itemsize,), writeable=value.flags.writeable)
    owner = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    offset = value.ctypes.data - owner.ctypes.data if extent else 0
    return memory.Buffer(name, flat.view(np.uint8), _claims(value.dtype), offset % 256)


def _claims(dtype):
    """What an array is known to hold: numbers of a type; of records, complex numbers and the rest nothing is known."""
    return dtype if dtype is not None and dtype.kind in "biuf" else None


def _extent(shape, strides) -> int:
    return 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _structure(kernel: str, name: str, param, value) -> np.ndarray:
    """A structure passed by value: bytes, or one numpy record or small array that is laid out like it."""
    data = value if isinstance(value, bytes) else value.tobytes() if isinstance(value, np.ndarray | np.generic) else None
    if data is None or len(data) != param.size:
        got = f"{len(data)} bytes" if data is not None else f"{type(value).__name__} {reprlib.repr(value)}"
        raise TypeError(f"{kernel}: {name} ({param.name}) is a structure of {param.size} bytes and needs a numpy record or "
                        f"bytes laid out like it, got {got}")
    return np.frombuffer(data, np.uint8)


def _number(kernel: str, name: str, param, value) -> np.ndarray:
    wanted = f"{kernel}: {name} ({param.name}) is .{param.kind}"
    dtype = np.dtype(TYPES[param.kind])
    if isinstance(value, bool | np.bool_) and param.size == 1:  # C++ has its bool in a byte
        value = int(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{wanted}, got {type(value).__name__} {reprlib.repr(value)}")
    if dtype.kind == "f":
        return np.array([as_float(f"{kernel}: {name} ({param.name})", dtype.type, value)]).view(np.uint8)
    if not isinstance(value, numbers.Integral):
        raise TypeError(f"{wanted}, a whole number, got {type(value).__name__} {reprlib.repr(value)}")
    bits = 8 * dtype.itemsize
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise TypeError(f"{wanted}, {value} does not fit into {bits} bits")
    return np.array([int(value) % (1 << bits)], f"u{dtype.itemsize}").view(np.uint8)


def _roles(kernel) -> list[str]:
    """For each parameter "pointer", "number" or "unclear", from what the kernel does with it.

    PTX says only .u64 of both. A pointer is turned into an address of device memory (cvta), at once or after an offset
    was added to it; what is calculated with in other ways is a number. Both may be moved, kept and compared with 0.
    """
    loaded: dict[str, set] = {}  # the registers that each parameter is loaded into
    flows, addresses, kept, calculated = [], set(), set(), set()
    for instruction in kernel.instructions:
        if instruction.name == "ld" and "param" in instruction.parts:
            parameter = instruction.operands[1].strip("[] ").split("+")[0]
            loaded.setdefault(parameter, set()).update(names_in(instruction.operands[0]))
        elif instruction.name in ("mov", "add", "sub", "selp", "cvta"):
            target, *sources = ({*names_in(text)} for text in instruction.operands)
            flows.append((target, set().union(*sources), instruction.name == "cvta"))
        elif instruction.name == "st":  # passed on to a function, or put aside: it may become an address
            kept.update(*({*names_in(text)} for text in instruction.operands[1:]))
        elif instruction.name not in ("atom", "red") and not {"eq", "ne"} & {*instruction.parts}:
            calculated.update(*({*names_in(text)} for text in instruction.operands[1:]))
        for text in instruction.operands:
            if text.startswith("["):
                addresses.add(text.strip("[] ").split("+")[0])
    return [_role(param, loaded.get(param.name), flows, addresses | kept, calculated) for param in kernel.params]


def _role(param, registers: set | None, flows: list, addresses: set, calculated: set) -> str:
    if param.pointer or (registers and any(cvta and sources & registers for _, sources, cvta in flows)):
        return "pointer"
    if param.count or param.size != 8:
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
    return "number" if reached & calculated and not reached & addresses else "unclear"
