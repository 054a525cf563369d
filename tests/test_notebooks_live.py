"""Every notebook executed on a machine with a GPU: measured there, no error, nothing on stderr, no recording shown.

COURSE_EXECUTED names a folder that keeps the executed notebooks, to be looked at.
"""

import os
from pathlib import Path

import nbformat
import notebook_runs
import pytest

from helpers.lesson.store import NOTEBOOKS, execute

LESSONS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
WITHOUT_MEASUREMENT = {"00_start_here", "A_tpu"}


@pytest.mark.gpu
@pytest.mark.notebook
@pytest.mark.parametrize("lesson", LESSONS)
def test_runs_live(lesson):
    notebook = notebook_runs.read(NOTEBOOKS / f"{lesson}.ipynb")
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    execute(notebook, mode="live")
    if folder := os.environ.get("COURSE_EXECUTED"):
        nbformat.write(notebook, Path(folder) / f"{lesson}.ipynb")
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    said = [o.get("text") or str(o.get("data", {}).get("text/html", "")) for o in outputs]
    if lesson not in WITHOUT_MEASUREMENT:
        assert any("live ·" in text for text in said), "nothing was measured here"
        assert not any(">recorded ·" in text for text in said), "a recording is shown as this machine's"
