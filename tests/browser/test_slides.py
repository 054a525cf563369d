"""Slides and pages in a real browser, without a network: whole on a projector and in print, whole on a phone."""

import re
from pathlib import Path

import nbformat
import pytest

from helpers.lesson import static
from helpers.lesson.map import NOTEBOOKS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

LESSONS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
SEEN = (Path(__file__).parent / "slides_seen.js").read_text()
# Everything that may be too wide, brought into view as far as its boxes scroll; what is then still beyond the window.
OUT_OF_REACH = """() => {
  for (const box of document.querySelectorAll("main *")) if (/auto|scroll/.test(getComputedStyle(box).overflowX)) box.scrollLeft = 1e6;
  const end = element => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return Math.max(...[element, ...element.tagName === "PRE" ? [range] : []].flatMap(e => [...e.getClientRects()]).map(r => r.right));
  };
  return [...document.querySelectorAll("main table, main img, main pre")].filter(e => e.checkVisibility() && end(e) > innerWidth)
    .map(e => `${e.tagName} to ${end(e)}: ${(e.alt || e.innerText).slice(0, 40)}`);
}"""


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a lesson's static copy offline; fails on errors and on anything asked of a network."""
    pages, complaints = [], []

    def open_lesson(lesson, *, slides=True):
        path = tmp_path / f"{lesson}.html"
        path.write_text(static.page(nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4), slides), encoding="utf-8")
        page = browser.new_context(offline=True, viewport={"width": 1280, "height": 720}).new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_lesson
    for page in pages:
        page.context.close()
    assert not complaints, complaints


def number(page):
    """(slide in view, slides) from the line below a slide."""
    return tuple(map(int, re.search(r"(\d+) / (\d+)", page.inner_text("nav")).groups()))


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_slide_shows_whole_on_a_projector(opened, lesson):
    page = opened(lesson)
    seen = page.evaluate(SEEN)
    assert seen["texts"] > 300 and seen["slides"] > 5
    assert not seen["cut"], f"slide, what, from, to: {seen['cut'][:5]}"
    assert not seen["small"], f"letters below 14 pixels or pictures made small: {seen['small'][:5]}"
    assert not seen["hidden"] and not seen["empty"], f"{seen['empty']} empty slides, hidden: {seen['hidden'][:5]}"
    heads = page.evaluate("[...document.querySelectorAll('h2')].map(h => [column(h.getBoundingClientRect()), h.getBoundingClientRect().top])")
    assert len(dict(heads)) == len(heads), "two parts of the lesson share a slide"
    paper = page.pdf(prefer_css_page_size=True)  # where tips stand unfolded
    page.evaluate("document.querySelectorAll('details').forEach(tip => { tip.open = true; })")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) == page.evaluate("count()"), "printed pages are not the slides"


def test_keys_buttons_and_addresses_turn_the_slides(opened):
    page = opened("03_gelu")
    assert page.title() == "03 GELU: a first Triton kernel" and number(page)[0] == 1
    last = number(page)[1]
    for key, at in (("ArrowRight", 2), ("Space", 3), ("PageDown", 4), ("ArrowLeft", 3), ("End", last), ("ArrowRight", last), ("Home", 1)):
        page.keyboard.press(key)
        assert number(page) == (at, last) and page.url.endswith(f"#{at}"), key
    page.click("nav button >> nth=1")
    assert number(page)[0] == 2 and "Two ways of saying the same thing" in page.inner_text("nav")
    page.evaluate("location.hash = '#The-price-of-one-mask'")
    page.wait_for_function("document.querySelector('nav').innerText.includes('The price of one mask')", timeout=5000)
    page.set_viewport_size({"width": 1920, "height": 1080})
    seen = page.evaluate(SEEN)
    assert seen["slides"] == last and not seen["cut"], "another window shows other slides"


def test_pages_fit_any_screen(opened):
    page = opened("07_occupancy", slides=False)
    for width in (1100, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.scrollingElement.scrollWidth") == width, "the page scrolls sideways"
        assert not (out := page.evaluate(OUT_OF_REACH)), out[:5]
