"""The interpreter as lessons use it: shuffled programs, no warnings, a clean namespace, decided before Triton."""

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from helpers import mode
from helpers.interpreter import shuffled
from helpers.kernels.softmax import softmax

BESIDE_THE_KERNELS = np.arange(3)  # has no truth value when compared, as a reader's tables have none

pytestmark = pytest.mark.skipif(mode.is_live(), reason="the interpreter is off when kernels run on a GPU")


@triton.jit
def order_kernel(log_ptr, count_ptr):
    at = tl.atomic_add(count_ptr, 1)
    tl.store(log_ptr + at, tl.program_id(0) + 100 * tl.program_id(1))


@triton.jit
def index_kernel(y_ptr):
    tl.store(y_ptr + tl.program_id(0), tl.program_id(0).to(tl.float32))


@triton.jit
def racy_kernel(x_ptr, y_ptr):
    program = tl.program_id(0)
    before = tl.load(y_ptr + program - 1, mask=program > 0, other=0.0)
    tl.store(y_ptr + program, before + tl.load(x_ptr + program))


@triton.jit
def exp_kernel(x_ptr, y_ptr):
    tl.store(y_ptr + tl.program_id(0), tl.exp(tl.load(x_ptr + tl.program_id(0))))


def test_every_program_runs_once_and_not_in_order():
    log, count = torch.full((12,), -1), torch.zeros(1, dtype=torch.int32)
    order_kernel[(4, 3)](log, count)
    assert sorted(log.tolist()) == sorted(x + 100 * y for x in range(4) for y in range(3))
    assert log.tolist() != sorted(log.tolist())


@pytest.mark.parametrize("n", [0, 1, 2, 3, 100, (1 << 20) + 1])
def test_shuffled(n):
    order = shuffled(n)
    assert n < 2 or list(order[:100]) != list(range(min(n, 100)))
    assert n > 1000 or sorted(order) == list(range(n))
    assert list(shuffled(n)[:50]) == list(order[:50]), "not reproducible"


def test_a_kernel_that_depends_on_program_order_fails():
    x = torch.ones(64)
    y = torch.zeros(64)
    racy_kernel[(64,)](x, y)
    assert not torch.equal(y, x.cumsum(0)), "a serial interpreter would hide this race"


def test_launches_from_several_threads_take_turns():
    """Each finds its own grid and program, or else some would write the results of others."""
    def count(n):
        y = torch.zeros(n)
        index_kernel[(n,)](y)
        return torch.equal(y, torch.arange(float(n)))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(count, range(1, 40)))


def test_overflow_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = torch.zeros(3)
        exp_kernel[(3,)](torch.tensor([1000.0, float("nan"), -1000.0]), y)
    assert y.isinf()[0] and y.isnan()[1] and y[2] == 0


@triton.jit
def scaled_kernel(x_ptr, y_ptr, n, stride, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n if MASKED else offsets < 2 * n
    tl.store(y_ptr + stride * offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=mask)


@triton.jit
def tally_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(x_ptr + tl.arange(0, BLOCK), 1.0)


def test_a_forgotten_mask_is_stopped_before_it_writes():
    room = torch.zeros(64)
    x, y = torch.ones(20), room[:20].clone()
    scaled_kernel[(2,)](x, y, 20, 1, MASKED=True, BLOCK=16)
    assert torch.equal(x, y)
    with pytest.raises(Exception, match=r"program \(1, 0, 0\) writes 12 of 16 elements .* the first 4 bytes off y_ptr.*mask missing"):
        scaled_kernel[(2,)](x, y, 20, 1, MASKED=False, BLOCK=16)
    with pytest.raises(Exception, match="stride wrong"):
        scaled_kernel[(2,)](x, y, 20, -1, MASKED=True, BLOCK=16)
    with pytest.raises(Exception, match="updates 12 of 32"):
        tally_kernel[(1,)](x, BLOCK=32)


def test_a_view_may_reach_into_its_base():
    room = torch.zeros(40)
    scaled_kernel[(2,)](torch.ones(20), room[:20], 20, 2, MASKED=True, BLOCK=16)
    assert torch.equal(room, torch.tensor([1.0, 0.0] * 20))


def run_python(code: str, **environment) -> subprocess.CompletedProcess:
    import os

    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment)


def test_interpreting_leaves_the_readers_names_alone():
    code = """
import helpers, torch, triton, triton.language as tl, linecache
source = '''
@triton.jit
def k(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 1)
'''
linecache.cache['<cell>'] = (len(source), None, source.splitlines(True), '<cell>')
exec(compile(source, '<cell>', 'exec'))
before = set(globals())
x = torch.zeros(1); k[(1,)](x)
print(sorted(n for n in set(globals()) - before - {'x', 'before', 'interpreter_semantic'}), x.item())
"""
    done = run_python(code)
    assert done.stdout.strip() == "[] 1.0", done.stdout + done.stderr


@pytest.mark.parametrize("code", [
    "import triton, helpers", "import triton.language, os; os.environ['TRITON_INTERPRET'] = '1'; import helpers",
])
def test_triton_before_helpers_is_explained(code):
    """Also where the flag was set after Triton had read it: kernels would be interpreted, Triton's own library not."""
    done = run_python(code, TRITON_INTERPRET="0")
    assert done.returncode != 0 and "Restart the kernel" in done.stderr.splitlines()[-1]


def test_triton_before_helpers_may_interpret_already():
    assert run_python("import triton, helpers", TRITON_INTERPRET="true").returncode == 0


@pytest.mark.parametrize("value, message", [("yes", "must be one of auto, live, recorded"), ("live", "needs a GPU")])
def test_evidence_that_cannot_be(value, message):
    done = run_python("import helpers", COURSE_EVIDENCE=value)
    assert done.returncode != 0 and message in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("platform, advice", [("darwin", "WSL"), ("win32", "WSL"), ("linux", "pip install")])
def test_without_triton_the_course_still_imports(platform, advice):
    """No Triton package, or none installed. Values come from torch, also a taught kernel's; launching any other says what to do."""
    code = f"import torch, sys; sys.platform, advice = {platform!r}, {advice!r}" + """
import sys, importlib.abc, importlib.util
class NoTriton(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split('.')[0] == 'triton': raise ModuleNotFoundError(name)
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == 'triton' else real(name, *a)
sys.meta_path.insert(0, NoTriton())
import helpers, torch
from helpers.kernels.gelu import gelu, gelu_kernel, gelu_reference, gelu_tail_kernel
x = torch.randn(50)
print(float((gelu(x) - gelu_reference(x)).abs().max()) < 1e-6)
y = torch.full_like(x, float("nan"))
gelu_kernel[(1,)](x, y, 50, BLOCK=64)
print(float((y - gelu_reference(x)).abs().max()) < 1e-6)
try: gelu_tail_kernel[(1,)](x, y, 50, BLOCK=64)
except RuntimeError as error: print(advice in str(error))
"""
    done = run_python(code)
    assert done.stdout.split() == ["True", "True", "True"], done.stdout + done.stderr


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n).to(tl.float32), mask=i < n)


@triton.jit
def dot_kernel(x_ptr, y_ptr, z_ptr, PRECISION: tl.constexpr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    zeros = tl.zeros((16, 16), tl.float32)
    tl.store(z_ptr + at, tl.dot(tl.load(x_ptr + at), tl.load(y_ptr + at), zeros, input_precision=PRECISION))


def test_bfloat16_converts_as_torch_does():
    torch.manual_seed(0)
    x = torch.randn(2000) * 10.0 ** torch.randint(-42, 38, (2000,)).float()
    x = torch.cat([x, torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 3.4e38, 1e-45, 1.00390625])])
    down, up = torch.empty(len(x), dtype=torch.bfloat16), torch.empty(len(x))
    copy_kernel[(1,)](x, down, len(x), BLOCK=2048)
    copy_kernel[(1,)](x.bfloat16(), up, len(x), BLOCK=2048)
    torch.testing.assert_close(down, x.bfloat16(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(up, x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("precision", ["ieee", "tf32", "tf32x3", "bf16x6"])
def test_dot_takes_every_dtype_and_precision(dtype, precision):
    x, y, z = torch.randn(16, 16).to(dtype), torch.randn(16, 16).to(dtype), torch.empty(16, 16)
    dot_kernel[(1,)](x, y, z, PRECISION=precision)
    torch.testing.assert_close(z.double(), x.double() @ y.double(), rtol=1e-5, atol=1e-5)


def test_triton_is_itself_again_after_a_launch():
    """Device functions (`tl.max` is one) find the language replaced once a launch, and it is put back at its end."""
    before = dict(vars(tl))
    for _ in range(2):
        y = softmax(torch.tensor([[0.0, 1.0], [2.0, 2.0]]))
        torch.testing.assert_close(y.sum(-1), torch.ones(2))
        assert dict(vars(tl)) == before
