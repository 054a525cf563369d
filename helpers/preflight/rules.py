"""What a finding is, and how a rule comes to speak: when the facts that it needs are given."""

from collections.abc import Callable
from dataclasses import dataclass

ALL_EVIDENCE = ("live", "recorded", "interpreted", "compiled")  # what a finding may stop


@dataclass(frozen=True)
class Finding:
    """What is the matter, why it matters, how to mend it.

    `severity` is "problem" or "note" (nothing is broken); `stops` names the kinds of evidence that do not work so.
    """

    what: str
    why: str
    fix: str
    severity: str = "problem"
    stops: tuple[str, ...] = ()

    def __iter__(self):
        return iter((self.what, self.why, self.fix))

    def __str__(self):
        return f"{self.what} {self.why} {self.fix}"


RULES: list[tuple[tuple[str, ...], Callable[[dict], Finding | None]]] = []


def rule(*needs: str):
    """Register a rule that speaks when the facts it needs are given."""

    def register(function):
        RULES.append((needs, function))
        return function

    return register
