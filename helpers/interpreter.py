"""The Triton interpreter, prepared for lessons: shuffled program order, and no numpy warnings.

The interpreter runs the programs of a grid one after another, which hides every race between them. Here they run in a
shuffled (reproducible) order, so that a kernel whose result depends on the order of its programs fails. It also copies
its own module's names (`np`, `math`, ...) into the module or notebook of each kernel, where they hide missing imports;
they are taken out again. Triton offers no switch for any of this, so this is the one place that reaches into it;
`tests/test_interpreter.py` watches over it.
Accesses outside of the kernel's tensors are stopped (`interpreter_bounds`), errors name the reader's line
(`interpreter_errors`), and what it lacks is filled in or explained (`interpreter_gaps`).
Its bfloat16 is mended too: it rounds towards zero, loses subnormals, and multiplies raw bits in `tl.dot`.
"""

import contextlib
import dataclasses
import random
import threading
import warnings

import numpy as np
import torch

from helpers import interpreter_bounds, interpreter_errors, interpreter_gaps

_SEED = 20
_one_grid = threading.Lock()  # the builder knows one program at a time, so launches from several threads wait for each other


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
        __tracebackhide__ = True  # IPython leaves such frames out
        given = zip([*self.arg_names[: len(args)], *kwargs], [*args, *kwargs.values()], strict=False)
        try:
            with _one_grid, _without_warnings(), interpreter_bounds.within(given), patched_once():
                return run_grid(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            raise interpreter.InterpreterError(interpreter_errors.explained(error, interpreter.InterpreterError)) from None

    compile_and_exec = interpreter.FunctionRewriter._compile_and_exec

    def compile_without_leak(self, tree):
        names = self.fn.__globals__
        before = set(names)
        try:
            return compile_and_exec(self, tree)
        finally:
            for name in set(names) - before - {"interpreter_semantic"}:  # the one that rewritten code uses
                del names[name]

    patched_once = _patching_once_a_launch(interpreter)
    interpreter.FunctionRewriter._compile_and_exec = compile_without_leak
    builder.set_grid_dim, builder.set_grid_idx = set_grid_dim, set_grid_idx
    interpreter.GridExecutor.__call__ = run
    _mend_bfloat16(interpreter, builder)
    interpreter_bounds.watch(builder)
    interpreter_gaps.fill()


@contextlib.contextmanager
def _without_warnings():
    """The GPU raises none either: exp overflows to inf, NaN stays NaN, a row may hold nothing but NaN."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _patching_once_a_launch(interpreter):
    """Triton looks through all of its language again for every device function called, 40 % of a small program's time.

    Within a launch, what is replaced stays replaced until its end, so once for each set of language modules will do.
    Returns the context in which a launch runs.
    """
    language, patch = (interpreter.tl, interpreter.tl.core), interpreter._patch_lang
    done = set()

    def patch_lang(fn):
        seen = frozenset(id(value) for value in fn.__globals__.values() if any(value is module for module in language))
        if seen in done:
            return interpreter._LangPatchScope()  # nothing to restore
        scope = patch(fn)
        done.add(seen)
        return scope

    @contextlib.contextmanager
    def launch():
        done.clear()
        try:
            yield
        finally:
            done.clear()

    interpreter._patch_lang = patch_lang
    return launch


def _mend_bfloat16(interpreter, builder) -> None:
    """Convert as the GPU does (to nearest, subnormals kept), and give `tl.dot` the values instead of their bits."""
    import triton.language as tl

    cast, dot = builder.cast_impl, builder.create_dot

    def cast_impl(src, dst_type):
        kinds = (src.dtype.scalar, dst_type.scalar)
        if kinds == (tl.float32, tl.bfloat16):
            bits = torch.from_numpy(np.ascontiguousarray(src.data)).bfloat16().view(torch.uint16)
            return interpreter.TensorHandle(bits.numpy().reshape(src.data.shape), tl.bfloat16)
        if kinds == (tl.bfloat16, tl.float32):
            values = (src.data.astype(np.uint32) << 16).view(np.float32)
            return interpreter.TensorHandle(values, tl.float32)
        return cast(src, dst_type)

    def create_dot(a, b, d, *rest):
        a, b = (cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return dot(a, b, d, *rest)

    builder.cast_impl, builder.create_dot = cast_impl, create_dot
    # Like "tf32", computed in float32 here: the interpreter shows values, not the rounding of Tensor Cores.
    known = builder.options.allowed_dot_input_precisions
    builder.options = dataclasses.replace(builder.options, allowed_dot_input_precisions=(*known, "bf16x3", "bf16x6"))
