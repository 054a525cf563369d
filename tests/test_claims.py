"""No sentence outlives its data: every claim holds and stands in its notebook, every measured number has a claim."""

import nbformat
import pytest

from helpers import claims
from helpers.claims import Claim, claims_of, unsupported
from helpers.lesson.store import NOTEBOOKS

ALL = [claim for lesson in claims.lessons() for claim in claims_of(lesson)]
LESSONS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def markdown_of(lesson: str) -> list[str]:
    notebook = nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


@pytest.mark.parametrize("claim", ALL, ids=lambda c: f"{c.lesson}: {c.text[:60]}")
def test_claim_holds(claim):
    assert claims.holds(claim), f"{claim.lesson}: {claim.text!r} no longer holds: {claim.holds}"


@pytest.mark.parametrize("claim", ALL, ids=lambda c: f"{c.lesson}: {c.text[:60]}")
def test_claim_stands_in_its_notebook(claim):
    text = claims.words("\n\n".join(markdown_of(claim.lesson)))
    assert claims.words(claim.text) in text, f"{claim.text!r} is no longer in {claim.lesson}"


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_measured_number_has_a_claim(lesson):
    left = [s for text in markdown_of(lesson) for s in unsupported(text, claims_of(lesson))]
    assert not left, f"{lesson}: these sentences state numbers that nothing checks: {left}"


def test_an_unsupported_number_is_found():
    text = "A copy takes 508 us here.\n\nThe kernel reaches **93 %** of the peak, and does so on any machine."
    assert unsupported(text, []) == [
        "A copy takes 508 us here.", "The kernel reaches 93 % of the peak, and does so on any machine.",
    ]
    claim = Claim("x", "The kernel reaches 93 % of the peak", "True")
    assert unsupported(text, [claim]) == ["A copy takes 508 us here."]
    assert unsupported("Program 3 handles 1024 elements of row 2.", []) == []


def test_a_false_claim_fails():
    assert not claims.holds(Claim("x", "t", "gpu('RTX 5090').bandwidth_gb_per_s > 1e6"))
    with pytest.raises(TypeError, match="true or false"):
        claims.holds(Claim("x", "t", "gpu('RTX 5090').bandwidth_gb_per_s"))
    with pytest.raises(NameError):
        claims.holds(Claim("x", "t", "open('x')"))
