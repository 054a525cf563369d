"""Lessons 08 to 11: the CUDA kernels they teach are the shipped ones, and their tables hold the fact sheets' limits."""

import re

import pytest
from notebook_runs import read

from helpers.cuda import nvrtc
from helpers.lesson.cuda_code import show_cuda
from helpers.lesson.cuda_tables import LIBRARIES, OVERLAP_NEEDS, memory_spaces, shared_splits, thread_levels
from helpers.lesson.store import NOTEBOOKS

LESSONS = [p for p in sorted(NOTEBOOKS.glob("*.ipynb")) if p.stem[:2] in ("08", "09", "10", "11")]

# ------------------------------------------------------------------------------------------------ taught kernels


def bare(source: str) -> str:
    """C++ without comments and layout."""
    return re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", source)).strip()


def function(source: str, name: str) -> str:
    """The text of one kernel, from extern "C" to its closing brace."""
    return re.search(rf'extern "C" __global__ void {name}\(.*?^}}', source, flags=re.S | re.M).group(0)


def differs(cell_source: str, named: str) -> bool:
    file, name = named.split(":")
    return bare(function((nvrtc.FOLDER / file).read_text(), name)) not in bare(cell_source)


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_taught_cuda_kernels_are_the_shipped_ones(path):
    taught = [cell for cell in read(path).cells if "cuda" in cell.metadata]
    assert taught or path.stem == "11_streams"
    for cell in taught:
        assert not differs(cell.source, cell.metadata["cuda"]), f"{path.stem}: differs from {cell.metadata['cuda']}"


def test_a_changed_kernel_is_noticed():
    source = 'add = CudaKernel(r"""' + (nvrtc.FOLDER / "vec_add.cu").read_text()
    assert not differs(source.replace("// the last", "// another"), "vec_add.cu:vec_add")
    assert differs(source.replace("a[i] + b[i]", "a[i] - b[i]"), "vec_add.cu:vec_add")


def test_show_cuda():
    shown = show_cuda("vec_add.cu", "int main()")
    assert shown.lines[0].startswith("int main()") and shown.lines[-1] == "}" and shown.left_out == 0
    with pytest.raises(ValueError, match="no line"):
        show_cuda("vec_add.cu", "int mein()")


# ------------------------------------------------------------------------------------------------ tables


def test_tables_take_their_limits_from_the_fact_sheets():
    assert any(row["level"] == "cluster" for row in thread_levels("sm_90"))
    assert not any(row["level"] == "cluster" for row in thread_levels("sm_80"))
    by_space = {row["space"]: row for row in memory_spaces("sm_90")}
    assert "227 KiB" in by_space["shared"]["limit on sm_90"]
    assert by_space["shared"]["visible to"] == "a block, its cluster" and memory_spaces("sm_80")[2]["visible to"] == "a block"
    assert shared_splits("sm_120")["a block may use (KiB)"] == 99
    assert all(set(row) == set(rows[0]) for rows in (LIBRARIES, OVERLAP_NEEDS) for row in rows)
