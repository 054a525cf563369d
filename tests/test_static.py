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
    html = static.page(notebook(), slides)
    assert not re.search(r"<(?:script|img|iframe)[^>]*\ssrc=\"(?!data:)", html), "loaded from elsewhere"
    assert not re.search(r"<link[^>]*stylesheet|@import|import [^;]*https?:|url\((?!['\"]?data:)", html)
    assert html.count("<img alt=") >= 3 and "<title>03 GELU: a first Triton kernel</title>" in html


def test_slides_begin_where_the_notebook_says():
    nb = notebook()
    begin = sum(static.slide_type(cell) in ("slide", "subslide") for cell in nb.cells)
    nb.cells[3].metadata["slideshow"] = {"slide_type": "notes"}
    html = static.page(nb, slides=True)
    assert len(re.findall(r'class="[^"]*celltag_begins"', html)) == begin >= 5 and "ArrowRight" in html
    assert html.count("Table 2-1") == 0, "notes are not shown"
    plain = static.page(notebook(), slides=False)
    assert "ArrowRight" not in plain and plain.count("Table 2-1") > 0


def test_every_link_between_copies_leads_somewhere(tmp_path):
    static.main("slides", str(tmp_path))
    assert len(list(tmp_path.glob("*.html"))) == len(list(NOTEBOOKS.glob("*.ipynb"))) >= 13
    for path in tmp_path.glob("*.html"):
        html = path.read_text(encoding="utf-8")
        names = set(re.findall(r'\sid="([^"]+)"', html))
        links = set(re.findall(r'<a [^>]*?href="([^"]+)"', html))
        assert any(link.startswith("solutions/") or link.endswith(".html") for link in links), path.name
        for link in links:
            if not re.match(r"https?:", link):
                file, _, name = link.partition("#")
                assert not file or (tmp_path / file).exists(), f"{path.name}: {link}"
                assert file or name in names, f"{path.name}: {link}"
