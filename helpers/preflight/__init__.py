"""What works on a machine, and what to do about what does not: `preflight()` for this one.

`preflight(torch="2.11.0", triton="3.5.1")` asks about other facts instead, so that every situation can be tried
anywhere: only rules whose facts are given speak. `facts()` collects those of this machine, `paragraph(findings)`
says in words which kinds of evidence work.
"""

import numbers
import re

from packaging.version import InvalidVersion, Version

from helpers.facts import parse_cc
from helpers.preflight import hardware, software  # noqa: F401  they register their rules
from helpers.preflight.machine import KNOWN_FACTS, facts
from helpers.preflight.rules import RULES, Finding

VERSIONS = {"python", "glibc", "torch", "torch_cuda", "triton", "numpy", "ipywidgets", "jupyterlab_widgets", "driver", "driver_cuda",
            "ptx", "ptxas", "nvrtc"}

__all__ = ["KNOWN_FACTS", "Finding", "facts", "paragraph", "preflight"]


def preflight(**given) -> list[Finding]:
    """Findings about the given facts, or about this machine if none are given; an empty list if all is well.

    Facts (`helpers.preflight.machine.KNOWN_FACTS`): versions as strings, cc as (12, 0) or "sm_120", None for what
    is not installed. Raises TypeError for an unknown fact, ValueError for a version that is none and other nonsense.
    """
    unknown = sorted(set(given) - set(KNOWN_FACTS))
    if unknown:
        raise TypeError(f"unknown facts {', '.join(unknown)}; known are {', '.join(KNOWN_FACTS)}")
    known = dict(given) if given else facts()
    for name in VERSIONS & set(known):
        _refuse_no_version(name, known[name])
    if known.get("cc") is not None:
        known["cc"] = _cc(known["cc"])
    if isinstance(known.get("arch_list"), str):
        known["arch_list"] = re.findall(r"[^\s,;]+", known["arch_list"])
    _refuse_nonsense(known)
    if known.get("platform") is not None:
        names = {"macos": "darwin", "windows": "win32"}
        known["platform"] = names.get(known["platform"].lower(), known["platform"].lower())
    found = [function(known) for needs, function in RULES if set(needs) <= set(known)]
    return [finding for finding in found if finding is not None]


def paragraph(findings: list[Finding]) -> str:
    """In plain words: which kinds of evidence work here, and what is worth mending."""
    stopped = {kind: finding for finding in reversed(findings) for kind in finding.stops}
    if "recorded" in stopped:
        text = f"The course does not run here yet. {stopped['recorded'].what} {stopped['recorded'].why}"
    elif "live" in stopped:
        text = f"Measurements here are recorded ones, from the GPU named beside them. {stopped['live'].what}"
        words = {"interpreted": "run, interpreted on the CPU", "compiled": "compiled for any target"}
        works = [word for kind, word in words.items() if kind not in stopped]
        if works:
            text += f" Kernels are still really {', and '.join(works)}."
    else:
        text = "Measurements here are live: kernels run on this machine's GPU, beside recorded and published numbers."
    mend = [finding.fix for finding in findings if finding.severity == "problem"]
    return f"{text} To mend: {' '.join(mend)}" if mend else text


def _refuse_no_version(name: str, value) -> None:
    try:
        if value is not None:
            Version(value)
    except (TypeError, InvalidVersion):
        raise ValueError(f'{name} must be a version as a string, such as "12.4"; got {value!r}') from None


def _refuse_nonsense(known: dict) -> None:
    memory, archs = known.get("free_memory_gb"), known.get("arch_list")
    if memory is not None and not (isinstance(memory, numbers.Real) and memory >= 0):
        raise ValueError(f"free_memory_gb must be a number of GB, got {memory!r}")
    if archs is not None and not (isinstance(archs, list | tuple | set) and all(isinstance(arch, str) for arch in archs)):
        raise ValueError(f'arch_list must be a list such as ["sm_80", "sm_90"], got {archs!r}')
    for name in ("evidence", "platform"):
        if not isinstance(known.get(name), str | None):
            raise ValueError(f"{name} must be a string, got {known[name]!r}")


def _cc(value) -> tuple[int, int]:
    cc = parse_cc(value)
    if cc is None:
        raise ValueError(f'cc must be a compute capability such as (12, 0) or "sm_120"; got {value!r}')
    return cc
