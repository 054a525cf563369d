"""Claims: sentences of the notebooks that state a measured or published number, each with what proves it.

`data/claims/<lesson>.toml` holds them. A test evaluates every expression, looks every sentence up in its notebook, and
finds sentences that state such a number without a claim, so that no sentence outlives its data.
"""

import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from helpers import results, specs
from helpers.results import DATA

CLAIMS = DATA / "claims"

# A number with a unit of time, rate or ratio: what only data can support.
MEASURED = re.compile(
    r"\d[\d.,]*\s*(?:%|[µμu]s\b|ms\b|ns\b|GB/s|TB/s|TFLOPS|FLOP/B|×|x (?:faster|slower|more|less|as)\b|times\b"
    r"|cycles?\b|bytes?\b|registers?\b|GB\b|MiB\b|KiB\b)"
)


@dataclass(frozen=True)
class Claim:
    lesson: str
    text: str
    holds: str


def claims_of(lesson: str) -> list[Claim]:
    """The claims of a lesson, e.g. "03_gelu"; an empty list where it has none. Raises ValueError for a bad file."""
    path = CLAIMS / f"{lesson}.toml"
    if not path.exists():
        return []
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name}: {error}") from None
    if set(data) != {"claim"} or not isinstance(data["claim"], list):
        raise ValueError(f"{path.name}: claims stand under [[claim]], got {', '.join(data) or 'nothing'}")
    found = []
    for entry in data["claim"]:
        if set(entry) != {"text", "holds"} or not entry["text"].strip() or not entry["holds"].strip():
            raise ValueError(f"{path.name}: a claim is a text and the expression that holds, got {entry}")
        found.append(Claim(lesson, entry["text"], entry["holds"]))
    return found


def holds(claim: Claim) -> bool:
    """Evaluate a claim. The expression must come out as True or False; anything else raises TypeError."""
    value = eval(claim.holds, {"__builtins__": {}, **namespace()})  # our own data file; the names are listed below
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, bool):
        raise TypeError(f"a claim must be true or false, {claim.holds!r} is {value!r}")
    return value


def namespace() -> dict:
    """The names that a claim's expression may use."""
    from helpers import claim_facts

    plain = (abs, all, any, float, int, len, list, max, min, range, round, set, sorted, sum, zip)
    plain = {f.__name__: f for f in plain}
    return plain | {
        "recorded": one_recorded,
        "rows": results.recorded,
        "published": results.published,
        "gpu": specs.gpu,
        "tpu": specs.tpu,
        "math": math,
        **claim_facts.FACTS,
    }


class Row(dict):
    """One row with its columns as attributes."""

    __getattr__ = dict.__getitem__


def one_recorded(name: str, *, variant: str, **parameters) -> Row:
    """The one recorded row of a variant in a case. Raises ValueError unless there is exactly one."""
    return Row(results.recorded_row(name, variant, **parameters).to_dict())


def words(text: str) -> str:
    """Text as compared: no emphasis marks, one space between words."""
    return re.sub(r"\s+", " ", re.sub(r"[*_`]", "", text)).strip()


def sentences(markdown: str) -> list[str]:
    """The prose sentences of a markdown cell: no code blocks, no tables, no formulas."""
    markdown = re.sub(r"```.*?```", " ", markdown, flags=re.S)
    markdown = re.sub(r"\$\$.*?\$\$", " ", markdown, flags=re.S)
    lines = [line for line in markdown.splitlines() if not line.lstrip().startswith(("|", "#"))]
    return [s for s in re.split(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*\d]+[.)]?\s", "\n".join(lines)) if s.strip()]


def unsupported(markdown: str, claims: list[Claim]) -> list[str]:
    """Sentences that state a measured number which no claim's text covers. `<!-- given -->` in a cell exempts it:
    exercises and arithmetic whose numbers are assumptions, not results."""
    if "<!-- given -->" in markdown:
        return []
    texts = [words(c.text) for c in claims]
    left = []
    for sentence in sentences(markdown):
        plain = words(sentence)
        for text in texts:
            plain = plain.replace(text, " ")
            if plain and plain in text:
                plain = ""
        if MEASURED.search(plain):
            left.append(words(sentence))
    return left


def lessons() -> list[str]:
    return sorted(p.stem for p in Path(CLAIMS).glob("*.toml"))
