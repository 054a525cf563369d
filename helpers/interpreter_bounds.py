"""A kernel that leaves its tensors is stopped, with a sentence, before it reads or writes a byte there.

Triton's interpreter hands addresses to the CPU as they are: one forgotten mask, and a store changes the memory of Python
itself, which ends the whole process some time later, without a word. Here every access must lie within the memory of a
tensor that the kernel was given (of its whole storage: a view may reach into the rest of its base, as on a GPU).
"""

import contextlib

import numpy as np
import torch

_given = []  # (start, end, name) of each tensor of the running kernel; empty: nothing is known, nothing is checked


def extents(arguments) -> list[tuple[int, int, str]]:
    """First and end address of the storage behind each tensor of (name, value) pairs; wrappers and tuples are opened."""
    found = []
    for name, value in arguments:
        if isinstance(value, tuple):
            found += extents((name, part) for part in value)
            continue
        value = getattr(value, "base", value)  # a tensor descriptor, or a tensor reinterpreted as another type
        if isinstance(value, torch.Tensor):
            if value.dtype in (torch.int64, torch.uint64):
                return []  # may hold addresses of further tensors
            storage = value.untyped_storage()
            found.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name))
    return found


def check(pointers, mask, program, verb: str) -> None:
    """Raise IndexError if any address of a load, store or atomic whose lane is on lies in none of the given tensors."""
    if not _given:
        return
    at = pointers.data if mask is None else pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    if not at.size:
        return
    low, high = int(at.min()), int(at.max()) + size
    if any(start <= low and high <= end for start, end, _ in _given):
        return
    inside = np.zeros(at.shape, bool)
    for start, end, _ in _given:
        inside |= (at >= start) & (at + size <= end)
    if inside.all():
        return
    first = int(at[~inside].flat[0])
    away, name = min((start - first if first < start else first + size - end, name) for start, end, name in _given)
    raise IndexError(
        f"program {program} {verb} {int((~inside).sum())} of {at.size} elements outside of all its tensors, "
        f"the first {away} bytes off {name}. Is a mask missing, or a stride wrong? (On a GPU this can pass unnoticed.)"
    )


@contextlib.contextmanager
def within(arguments):
    """Check the accesses of a launch against the tensors among its (name, value) pairs."""
    _given[:] = extents(arguments)
    try:
        yield
    finally:
        _given.clear()


def watch(builder) -> None:
    """Patch Triton's interpreter: check every access."""
    load, store, rmw, cas = (builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw,
                             builder.create_atomic_cas)

    def checked(verb, access, mask_at=None):
        def call(*args, **options):
            pointers = args[1] if access == rmw else args[0]
            check(pointers, None if mask_at is None else args[mask_at], tuple(map(int, builder.grid_idx)), verb)
            return access(*args, **options)

        return call

    builder.create_masked_load = checked("reads", load, mask_at=1)
    builder.create_masked_store = checked("writes", store, mask_at=2)
    builder.create_atomic_rmw = checked("updates", rmw, mask_at=3)
    builder.create_atomic_cas = checked("updates", cas)
