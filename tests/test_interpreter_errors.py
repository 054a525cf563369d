"""What a failing kernel says in the interpreter."""

import pytest
import torch
import triton
import triton.language as tl

from helpers import mode

pytestmark = pytest.mark.skipif(mode.is_live(), reason="the interpreter is off when kernels run on a GPU")


@triton.jit
def unmasked(x_ptr, BLOCK: tl.constexpr):
    return tl.load(x_ptr + tl.arange(0, BLOCK))


@triton.jit
def outside_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    x = unmasked(x_ptr, BLOCK)
    tl.store(y_ptr + tl.arange(0, BLOCK), x)


@triton.jit
def misspelt_kernel(x_ptr):
    tl.store(x_ptr + offset, 0.0)  # noqa: F821


@triton.jit
def half_kernel(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])
    tl.store(x_ptr, tl.sum(tl.dot(x, x, tl.zeros((16, 16), tl.float16))))


@pytest.mark.parametrize("kernel, args, said", [
    (half_kernel, (torch.zeros(16, 16),), r"half_kernel, line \d+ of test_interpreter_errors.py:\n    .*\nAssertionError: assert .*acc"),
    (outside_kernel, (torch.zeros(4), torch.zeros(8), 8),
     r"unmasked, line \d+ of test_interpreter_errors.py:\n    return tl.load\(x_ptr \+ tl.arange\(0, BLOCK\)\)\nIndexError: program .* outside"),
    (misspelt_kernel, (torch.zeros(4),),
     r"misspelt_kernel, line \d+ of test_interpreter_errors.py:\n    tl.store\(x_ptr \+ offset, 0.0\).*\nNameError: name 'offset' is not"),
])
def test_an_error_names_the_readers_line_and_hides_the_interpreters(kernel, args, said):
    with pytest.raises(Exception, match=said) as caught:
        kernel[(1,)](*args)
    assert caught.value.__suppress_context__ and caught.traceback[-1].path.parts[-2:] == ("helpers", "interpreter.py")
