"""Slides turn in a real browser, without a network."""

import nbformat
import pytest

from helpers.lesson import static
from helpers.lesson.map import NOTEBOOKS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def test_the_arrow_keys_turn_the_slides(browser, tmp_path):
    notebook = nbformat.read(NOTEBOOKS / "03_gelu.ipynb", as_version=4)
    (tmp_path / "deck.html").write_text(static.page(notebook, "03_gelu", slides=True))
    page = browser.new_context(offline=True).new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "deck.html").as_uri())
    first = page.inner_text("div.shown")
    page.keyboard.press("ArrowRight")
    assert "03 GELU" in first and page.inner_text("div.shown") != first and page.url.endswith("#2") and not errors
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("div.shown") == first
    page.close()


def test_letters_grow_with_the_projector(browser, tmp_path):
    notebook = nbformat.read(NOTEBOOKS / "00_start_here.ipynb", as_version=4)
    (tmp_path / "deck.html").write_text(static.page(notebook, "00_start_here", slides=True))
    heights = []
    for width in (1280, 1920):
        page = browser.new_page(viewport={"width": width, "height": width * 9 // 16})
        page.goto((tmp_path / "deck.html").as_uri())
        heights.append(page.locator("div.shown p").first.bounding_box()["height"])
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), "slides scroll sideways"
        page.close()
    assert abs(heights[1] / heights[0] - 1.5) < 0.1, f"a paragraph is {heights} pixels high on 1280 and 1920"
