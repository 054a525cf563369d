"""Static copies: whole, with pictures inside, and loading nothing; slides begin where the notebook says."""

import re

import nbformat
import pytest

from helpers.lesson import static
from helpers.lesson.map import NOTEBOOKS


def notebook(lesson="03_gelu"):
    return nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4)


@pytest.mark.parametrize("slides", [False, True])
def test_a_page_loads_nothing(slides):
    html = static.page(notebook(), "03_gelu", slides)
    assert not re.search(r"<(?:script|img|iframe)[^>]*\ssrc=\"(?!data:)", html), "loaded from elsewhere"
    assert not re.search(r"<link[^>]*stylesheet|@import|import [^;]*https?:", html)
    assert html.count("<img alt=") >= 3 and "01_memory_hierarchy.html" in html and ".ipynb" not in html


def test_slides_begin_where_the_notebook_says():
    nb = notebook()
    begin = sum(cell.metadata.get("slideshow", {}).get("slide_type") in ("slide", "subslide") for cell in nb.cells)
    html = static.page(nb, "03_gelu", slides=True)
    assert len(re.findall(r'class="[^"]*celltag_begins"', html)) == begin >= 5 and "ArrowRight" in html
    assert "ArrowRight" not in static.page(notebook(), "03_gelu", slides=False)
