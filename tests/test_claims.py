"""No sentence outlives its data: every claim holds and stands in its notebook, every measured number has a claim."""

import nbformat
import pytest

from helpers import claims, compare
from helpers.claims import Claim, claims_of, unsupported
from helpers.lesson.store import NOTEBOOKS
from helpers.results import published

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
    assert unsupported("508 μs or 508 µs or 508 us", []), "a Greek letter, as Jupyter completes it, or the micro sign"
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


@pytest.mark.parametrize("content, message", [
    ("[[claims]]\ntext = 'a'\nholds = 'True'", r"stand under \[\[claim\]\], got claims"), ("[claim]\ntext = 'a'", "stand under"),
    ("", "got nothing"), ("[[claim]]\ntext = a", "Invalid value.*line 2"), ("[[claim]]\ntext = 'a'", "the expression that holds"),
    ("[[claim]]\ntext = 'µ'\nholds = ' '", "the expression that holds, got .*µ"),
])
def test_a_file_of_claims_that_cannot_be_read_is_named(content, message, tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "CLAIMS", tmp_path)
    (tmp_path / "99_toy.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"99_toy.toml: .*{message}"):
        claims_of("99_toy")


def test_a_published_number_is_compared_with_one_row():
    """Not with the first of several, where a parameter was forgotten."""
    entry = published("row_sum_few_4_warps")
    assert compare.recorded_value(entry, "NVIDIA H200") == claims.one_recorded(
        "row_sum_num_warps", variant="row_sum", rows=132, cols=524288, num_warps=4).time_us
    forgotten = entry | {"params": {name: value for name, value in entry["params"].items() if name != "num_warps"}}
    with pytest.raises(ValueError, match="row_sum_num_warps, row_sum, {'rows': 132, .*: 6 rows, where one was asked for"):
        compare.recorded_value(forgotten, "NVIDIA H200")
