"""Where Triton is missing: what torch computes in a kernel's place, what it refuses, and a notebook from top to bottom."""

import inspect
import linecache
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
import torch
import triton

import helpers.kernels.in_torch as in_torch
from helpers import evidence, mode, no_triton
from helpers.kernels import fma_chain, gelu, matmul, probes, row_sum, softmax
from helpers.lesson import exercise
from helpers.lesson.store import execute
from helpers.mode import device

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
with_triton = pytest.mark.skipif(not mode.has_triton(), reason="compares with Triton")


def stand_in(module, *names, change=("", "")):
    """The kernels of a module as a notebook cell without Triton would define them, one text changed; the last of them."""
    text = "\n\n".join(textwrap.dedent(inspect.getsource(getattr(module, name).fn)) for name in names)
    assert change[0] in text
    text = text.replace(*change)
    file = f"<cell {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    fake = type("triton", (), {"jit": staticmethod(no_triton.jit)})
    scope = {**vars(module), "triton": fake}
    exec(compile(text, file, "exec"), scope)
    return scope[names[-1]]


def random(*shape):
    return torch.randn(shape, device=device(), generator=torch.Generator(device()).manual_seed(7))


def launches():
    """(module, kernels, grid, arguments before the output, output, arguments behind it, constants)."""
    x, wide, a, b = random(1000), random(5, 300), random(70, 40), random(40, 50)
    for grid in (4, 2):  # enough programs; too few, so that elements stay unwritten
        yield gelu, ["gelu_kernel"], (grid,), [x], (1000,), [1000], {"BLOCK": 256}
    for programs, cols, block in ((5, 300, 512), (3, 300, 512), (5, 300, 256)):
        rows = wide.T.contiguous().T  # columns first in memory
        yield softmax, ["softmax_kernel"], (programs,), [rows], (5, 300), [cols, *rows.stride(), 300], {"BLOCK": block}
    for programs in (5, 2):
        yield row_sum, ["row_sum_kernel"], (programs,), [wide], (5,), [300, 300, 1], {"TILE": 128}
    for grid in ((3, 2), (2, 1)):
        yield (matmul, ["matmul_relu_kernel"], grid, [a, b], (70, 50), [70, 50, 40, *a.stride(), *b.stride(), 50],
               {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16, "PRECISION": "ieee"})
    yield probes, ["read_kernel"], (4,), [random(5, 192)], (5,), [3], {"SLICE": 192, "TILE": 128, "PAST_L1": False}
    for early in (False, True):
        yield (fma_chain, ["fma_steps", "fma_resident_kernel"], (3,), [x], (1000,), [x, 900, 0.75, 0.5],
               {"N": 9, "UNROLL": 4, "BLOCK": 128, "EARLY": early, "WIDE": False, "WHERE": False})


@with_triton
@pytest.mark.parametrize("module, names, grid, before, shape, behind, constants", list(launches()),
                         ids=[f"{names[-1]} {i}" for i, (_, names, *_) in enumerate(launches())])
def test_torch_writes_what_the_kernel_would(module, names, grid, before, shape, behind, constants):
    by_kernel, by_torch = (torch.full(shape, float("nan"), device=device()) for _ in range(2))
    getattr(module, names[-1])[grid](*before, by_kernel, *behind, **constants)
    stand_in(module, *names)[grid](*before, by_torch, *behind, **constants, num_warps=4, num_stages=3)
    assert not by_kernel.isnan().all()
    torch.testing.assert_close(by_torch, by_kernel, equal_nan=True, rtol=1e-5, atol=1e-5)


def test_every_kernel_is_tried():
    assert {kernel.fn.__name__ for kernel, _ in in_torch.SHIPPED} == {names[-1] for _, names, *_ in launches()}


@with_triton
@pytest.mark.parametrize("module, names, change", [
    (gelu, ["gelu_kernel"], ("0.044715", "0.044716")),
    (gelu, ["gelu_kernel"], ("offsets < n ", "offsets <= n ")),
    (softmax, ["softmax_kernel"], ('-float("inf")', "0.0")),
    (fma_chain, ["fma_steps", "fma_resident_kernel"], ("N % UNROLL", "0")),  # in the kernel that it calls
    (gelu, ["gelu_tail_kernel"], ("", "")),  # shipped, but no lesson launches it itself
])
def test_another_kernel_is_not_run(module, names, change):
    kernel, out = stand_in(module, *names, change=change), torch.zeros(9)
    with pytest.raises(no_triton.NeedsTriton, match=f"{no_triton.MISSING}, so {names[-1]} cannot run here"):
        kernel[(1,)](torch.ones(9), out, 9, BLOCK=16)
    assert not out.any()


@with_triton
def test_comments_and_places_do_not_matter():
    kernel = stand_in(gelu, "gelu_kernel", change=("# False past the end", "# mine\n    # and more"))
    assert in_torch.torch_function(kernel) is in_torch.torch_function(gelu.gelu_kernel) is not None


@with_triton
def test_what_triton_refuses_is_refused():
    x = torch.ones(9)
    kernel = stand_in(gelu, "gelu_kernel")
    with pytest.raises(ValueError, match="BLOCK must be a power of two"):
        kernel[(1,)](x, x, 9, BLOCK=100)
    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        kernel[(1,)](x, x, BLOCK=128)
    out = torch.zeros(9)
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, 9, BLOCK=8)
    assert out.all()
    tuned = no_triton.autotune([no_triton.Config({"BLOCK": block}, num_warps=2) for block in (8, 16)], key=["n"])(kernel)
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out.zero_(), 9)
    assert out.all() and tuned.best_config.kwargs == {"BLOCK": 8} and kernel.best_config is None


def test_every_decorator_of_a_kernel_is_there(monkeypatch):
    for name in ("triton", "triton.language"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])  # put back afterwards
    no_triton.install()
    import triton as stand_in
    import triton.language as names
    from triton.language import math

    assert stand_in.STAND_IN and not hasattr(names, "__file__")

    @stand_in.autotune([stand_in.Config({"BLOCK": 64}, num_warps=2)], ["n"])
    @stand_in.heuristics({"TILE": lambda arguments: 64})
    @stand_in.jit(do_not_specialize=["n"])
    def kernel(x_ptr: names.tensor, n, BLOCK: names.constexpr, TILE, DTYPE: names.constexpr = names.float32):
        names.store(x_ptr, math.exp(1.0))

    with pytest.raises(no_triton.NeedsTriton, match="so tl.cdiv cannot run here"):
        names.cdiv(5, 4)

    with pytest.raises(no_triton.NeedsTriton, match="so kernel cannot run here"):
        kernel[(1,)](torch.zeros(1), 1)


def test_evidence_names_torch(monkeypatch):
    monkeypatch.setattr(mode, "has_triton", lambda: False)
    monkeypatch.setattr(mode, "is_live", lambda: False)
    for line in (evidence.ran_here().line(), evidence.interpreted_here().line()):
        assert "torch in place of the kernel" in line and "nterprete" not in line
    assert evidence.ran_here("SIMT machine").line().startswith("interpreted · SIMT machine")


def test_an_exercise_that_needs_triton_stops_nothing(capsys, monkeypatch):
    def launch(kernel):
        kernel[(1,)](torch.ones(9), torch.ones(9), 9, BLOCK=16)

    monkeypatch.setitem(exercise._tests, "03_gelu.99", launch)

    def cube_kernel(x_ptr, y_ptr, n, BLOCK):
        pass

    exercise.check("03_gelu.99", no_triton.jit(cube_kernel))
    assert f"Exercise 03_gelu.99: not checked. {no_triton.MISSING}, so cube_kernel" in capsys.readouterr().out


def test_every_kernel_that_a_lesson_launches_has_one():
    """Those in set-up cells, which later cells launch."""
    names = {cell.metadata["kernel"].split(":")[1].split(",")[-1] for path in NOTEBOOKS.glob("*.ipynb")
             for cell in nbformat.read(path, as_version=4).cells
             if cell.metadata.get("kernel") and "setup" in cell.metadata.get("tags", [])}
    assert names == {kernel.fn.__name__ for kernel, _ in in_torch.SHIPPED}


HIDE = """
import importlib.metadata
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, *more: None if name.split(".")[0] in ("triton", "cuda", "nvidia") else find(name, *more))
version = importlib.metadata.version

def of_what_is_there(name):
    if name.lower().startswith(("triton", "cuda-", "nvidia-")):
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)

importlib.metadata.version = of_what_is_there
"""


BESIDE_TORCH = """
import helpers, torch
torch.cuda._register_triton_kernels()  # what torch does first of all when CUDA starts
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
torch.optim.SGD([weight], lr=0.5).step()
print(weight.tolist())
"""


def test_torch_does_not_take_the_stand_in_for_triton(tmp_path, monkeypatch):
    """Reading `triton.__spec__` stopped CUDA from starting, `triton.language.dtype` every optimiser."""
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("COURSE_EVIDENCE", "recorded")
    done = subprocess.run([sys.executable, "-c", BESIDE_TORCH], cwd=NOTEBOOKS.parent, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[0.5, 0.5]\n", 0), done.stderr


@pytest.mark.notebook
@pytest.mark.parametrize("lesson", ["03_gelu"])
def test_run_all_without_triton(lesson, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    notebook = nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    execute(notebook)  # raises at the first cell that fails and is not tagged raises-exception
    shown = "\n".join(str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
                      for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    assert "torch in place of the kernel" in shown and "nterpreter" not in shown and "interpreted" not in shown
    assert "03_gelu.1: not checked" in shown and "03_gelu.2: not started" in shown
    errors = [output.ename for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
              if output.output_type == "error"]
    assert errors == ["NeedsTriton"]  # the deliberate mistake
