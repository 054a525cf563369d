"""Exercises: `check(id, answer)` prints "not started", raises when the answer is wrong, prints OK when it is right."""

import functools
import importlib
import inspect

import torch

from helpers.mode import is_live, need_assertions
from helpers.no_triton import NeedsTriton


class NotStarted(Exception):
    """Raised inside an exercise's test when the reader has not written anything yet."""


_tests = {}


def exercise(id: str):
    """Register the decorated test of an answer under `id` ("03_gelu.1"); it raises AssertionError with a hint."""

    def register(test):
        _tests[id] = test
        return test

    return register


def exercises_of(lesson: str) -> dict:
    """All exercises of a lesson by id, e.g. of "03_gelu"; an empty dict where it has none."""
    topic = lesson.partition("_")[2]
    name = f"helpers.lesson.exercises.{topic}"
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
    return {id: test for id, test in _tests.items() if id.startswith(f"{lesson}.")}


def check(id: str, answer) -> None:
    """Check the reader's answer to exercise `id`. Raises ValueError for an unknown id, AssertionError when wrong."""
    need_assertions()
    known = exercises_of(str(id).rpartition(".")[0])
    if id not in known:
        raise ValueError(f"no exercise {id!r}; this lesson has {', '.join(known) or 'none'}")
    returned = []
    try:
        if answer is None or answer is ...:
            raise NotStarted
        gpus = [torch.cuda.current_device()] if is_live() else []
        with torch.random.fork_rng(gpus):  # the same inputs at every check: an answer is not right today and wrong tomorrow
            torch.manual_seed(0)
            known[id](_remembering(answer, returned))
    except NotStarted:
        if _is_filled(answer):
            raise AssertionError(f"Exercise {id}: not yet. All of the output is NaN, as it was before: "
                                 "which pointer does the kernel store to, or does it compute NaN?") from None
        print(f"Exercise {id}: not started")
        return
    except NeedsTriton as error:  # no failure: `Run all` goes on where Triton has no package
        print(f"Exercise {id}: not checked. {error}")
        return
    except AssertionError as error:
        raise AssertionError(f"Exercise {id}: not yet. {error}{_odd(returned)}") from None
    except Exception as error:
        if not _raised_by_a_test(error):
            raise  # the reader's own mistake, shown with the line of the reader's cell
        reason = _odd(returned) or f" ({type(error).__name__}: {error})"
        if not returned:
            reason += f". It got {answer!r}: is it the function or kernel of this cell, with its decorator and not called?"
        raise AssertionError(f"Exercise {id}: not yet. The check cannot use this answer{reason}") from None
    print(f"Exercise {id}: OK")


def _is_filled(answer) -> bool:
    """True for a kernel whose hole holds anything else than the skeleton's `pass`."""
    return hasattr(answer, "fn") and not any(line.strip() == "pass" for line in inspect.getsource(answer.fn).splitlines())


def _remembering(answer, returned: list):
    """A plain function that also puts each result into `returned`; anything else as it is."""
    if not inspect.isfunction(answer):
        return answer

    @functools.wraps(answer)
    def called(*args):
        returned.append(answer(*args))
        return returned[-1]

    return called


def _odd(returned: list) -> str:
    """A hint if a function's last result was None or text, which printed among numbers look right; else nothing."""
    if not returned:
        return ""
    result = returned[-1]
    if result is None:
        return " (the function returned None: is `return` missing?)"
    if isinstance(result, str) or isinstance(result, tuple) and any(isinstance(part, str) for part in result):
        return f" (the function returned text, {result!r}: a number has no quotes)"
    return ""


def _raised_by_a_test(error: Exception) -> bool:
    """True if the test of an exercise raised `error` on handling the answer, False if what the reader wrote did."""
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    return trace.tb_frame.f_globals.get("__name__", "").startswith("helpers.lesson.exercises.")


def poisoned_like(x: torch.Tensor) -> torch.Tensor:
    """An output to launch into, filled with NaN: what a kernel does not write stays visible."""
    return torch.full_like(x, float("nan"))


def started(out: torch.Tensor) -> torch.Tensor:
    """`out` if anything was written to it; raises NotStarted if it still holds nothing but NaN."""
    if out.numel() and torch.isnan(out).all():
        raise NotStarted
    return out
