"""What an experiment is. `helpers.measure` runs it; nothing here touches a clock.

An experiment is a function `f(variant, **case) -> Run`, registered by `@experiment` with its variants (name ->
callable) and its cases (parameter dicts). It prepares inputs and says how the result is checked and what it costs.
"""

import importlib
import itertools
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Run:
    """One variant in one case, ready to be checked and timed."""

    call: Callable[[], Any] | None  # what is timed; returns its output. None: nothing to time
    check: Callable[[Any], None] | None  # raises AssertionError for a wrong output; None only together with call=None
    traffic_bytes: int = 0  # least device-memory traffic of the operation, 0: not a question of bandwidth
    flops: int = 0
    values: Callable[[], dict] | None = None  # further columns, measured otherwise than by the clock
    host_works: bool = False  # the host does part of what is timed, as in copies from pageable memory: it gets no head start

    def __post_init__(self):
        if self.call is not None and self.check is None:
            raise ValueError("a timed run needs a check: a time of a wrong result means nothing")


@dataclass(frozen=True)
class Experiment:
    name: str
    lesson: str
    title: str
    prepare: Callable[..., Run | None]
    variants: dict[str, Callable]
    cases: Callable[[Any], list[dict]] = field(repr=False)


_registry: dict[str, Experiment] = {}


def product(**choices: list) -> list[dict]:
    """Every combination of the choices, as dicts: product(n=[1, 2], k=[3]) -> [{n: 1, k: 3}, {n: 2, k: 3}]."""
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def experiment(*, lesson: str, title: str, variants: dict[str, Callable], cases: list[dict] | Callable):
    """Register the decorated function under its own name. `cases` is a list, or a function of the GPU's `Gpu` spec."""

    def register(prepare):
        found = _registry.get(prepare.__name__)
        if found is not None and found.prepare.__module__ != prepare.__module__:
            raise ValueError(f"two experiments are called {prepare.__name__!r}")
        def listed(spec):
            return _recordable(prepare.__name__, cases(spec) if callable(cases) else cases)

        _registry[prepare.__name__] = Experiment(prepare.__name__, lesson, title, prepare, dict(variants), listed)
        return prepare

    return register


def _recordable(name: str, cases: list[dict]) -> list[dict]:
    """The cases, if a recording can hold them and a reader can ask for them; else raises TypeError."""
    for key, value in ((key, value) for case in cases for key, value in case.items()):
        if not isinstance(value, int | float | str):
            raise TypeError(f"{name}: {key} = {value!r}, but a parameter must be a number of Python's, a truth value or a word such as "
                            '"64x64x32"')
    return cases


def all_experiments() -> dict[str, Experiment]:
    """Every experiment of the course by name; imports all experiment modules."""
    import helpers.experiments as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(_registry)


def get(name: str) -> Experiment:
    """The experiment of that name. Raises ValueError listing the names there are."""
    if name not in _registry:
        all_experiments()
    if name not in _registry:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(sorted(_registry))}")
    return _registry[name]
