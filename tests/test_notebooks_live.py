"""Every notebook executed on a machine with a GPU: measured there, no error, nothing on stderr, no recording shown.

COURSE_EXECUTED names a folder that keeps the executed notebooks, to be looked at.
"""

import os
from pathlib import Path

import nbformat
import notebook_runs
import pytest

from helpers.compare import compare
from helpers.evidence import evidence_of
from helpers.lesson.store import NOTEBOOKS, execute
from helpers.lesson.table import table
from helpers.results import recorded

LESSONS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
WITHOUT_MEASUREMENT = {"00_start_here", "A_tpu"}
# A table of published numbers names the recording in a column of its own; a count says why it is not from here.
NAMED_AS_SUCH = ("<b>Published, recorded and yours</b>", "(recorded: ", "not here: ")


def shows_a_recording(html: str) -> bool:
    """A recording under an output that does not call it one."""
    return ">recorded ·" in html and not any(words.lower() in html.lower() for words in NAMED_AS_SUCH)


def test_what_counts_as_a_recording_shown_as_this_machines():
    def shown(caption, evidence):
        return table([{"a": 1}], caption=caption, evidence=evidence)._repr_html_()

    assert shows_a_recording(shown("Speeds", evidence_of(recorded("gelu_sizes"))))
    assert not shows_a_recording(shown("Speeds", "live · some GPU"))
    assert not shows_a_recording(shown("Hits (recorded: ncu is not installed)", "recorded · some GPU"))
    assert not shows_a_recording(shown("Counted by a GPU. Not here: ncu is not installed", "recorded · some GPU"))
    assert not shows_a_recording(compare("03_gelu")._repr_html_()) and ">recorded ·" in shown("Speeds", "recorded · some GPU")


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
        assert not any(map(shows_a_recording, said)), "a recording is shown as this machine's"
