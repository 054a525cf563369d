"""The Triton interpreter, prepared for lessons: shuffled program order, and no numpy warnings.

The interpreter runs the programs of a grid one after another, which hides every race between them. Here they run in a
shuffled (reproducible) order, so that a kernel whose result depends on the order of its programs fails. Triton offers
no switch for this, so this is the one place that reaches into it; `tests/test_interpreter.py` watches over it.
"""

import random

import numpy as np

_SEED = 20


def shuffled(n: int):
    """The numbers 0..n-1 in an order that is never the natural one (n > 1), the same at every call."""
    natural = range(n)
    if n > 1 << 20:
        return natural[::-1]  # a shuffled list of millions would cost more than the kernel
    order = random.Random(_SEED).sample(natural, n)
    return order if order != list(natural) else natural[::-1]


def prepare() -> None:
    """Patch the interpreter. Called once by `helpers.mode.decide`, after TRITON_INTERPRET is set."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    if getattr(builder, "course_shuffle", None) is not None:
        return
    set_dim, set_idx, run_grid = builder.set_grid_dim, builder.set_grid_idx, interpreter.GridExecutor.__call__
    builder.course_shuffle = [range(1)] * 3

    def set_grid_dim(*grid):
        builder.course_shuffle = [shuffled(n) for n in grid]
        set_dim(*grid)

    def set_grid_idx(x, y, z):
        set_idx(*(order[i] for order, i in zip(builder.course_shuffle, (x, y, z), strict=True)))

    def run(self, *args, **kwargs):
        # The GPU raises no floating-point warnings either: exp overflows to inf, NaN stays NaN, both by design.
        with np.errstate(all="ignore"):
            return run_grid(self, *args, **kwargs)

    builder.set_grid_dim, builder.set_grid_idx = set_grid_dim, set_grid_idx
    interpreter.GridExecutor.__call__ = run
