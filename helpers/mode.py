"""Where kernels run and which evidence a lesson shows, decided once, before Triton is imported.

Triton reads `TRITON_INTERPRET` while it is being imported, so `helpers/__init__.py` calls `decide()` first of all.
`COURSE_EVIDENCE` forces the answer:

    auto      (default) live where a usable GPU is found, recorded elsewhere
    live      measure on this machine's GPU; an error where there is none
    recorded  show recordings and run kernels on the CPU, even on a machine with a GPU
"""

import functools
import importlib.util
import os
import sys
import warnings

import torch

CHOICES = ("auto", "live", "recorded")


def usable_gpu() -> str | None:
    """None if this process can run kernels on a GPU, otherwise the reason why not, in one sentence."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is too old: preflight says so, and what to do
        available = torch.cuda.is_available()
    if not available:
        return "no NVIDIA GPU or driver was found that this torch can use"
    major, minor = torch.cuda.get_device_capability()
    built_for = torch.cuda.get_arch_list()
    # Binary code runs on the same major version from its minor version on, that of sm_120a on 12.0 alone.
    # `is_available()` is True without any.
    code = [(divmod(int(a[3:].rstrip("af")), 10), a.endswith("a")) for a in built_for if a.startswith("sm_")]
    if not any(cc == (major, minor) or cc[0] == major and cc[1] < minor and not exactly for cc, exactly in code):
        return f"this torch build has no code for sm_{major}{minor} (it has {', '.join(built_for)})"
    if not has_triton():
        return "Triton is not installed"
    return None


def has_triton() -> bool:
    """True if the real Triton is installed (not the stand-in of `helpers.no_triton`)."""
    loaded = sys.modules.get("triton")
    if loaded is not None:
        return not getattr(loaded, "STAND_IN", False)
    return importlib.util.find_spec("triton") is not None


@functools.cache
def mode() -> str:
    """`"live"` or `"recorded"`. Raises ValueError for an unknown COURSE_EVIDENCE, RuntimeError for live without GPU."""
    asked = os.environ.get("COURSE_EVIDENCE", "auto").strip().lower() or "auto"
    if asked not in CHOICES:
        raise ValueError(f"COURSE_EVIDENCE must be one of {', '.join(CHOICES)}; it is {asked!r}")
    if asked == "recorded":
        return "recorded"
    reason = usable_gpu()
    if reason is None:
        return "live"
    if asked == "live":
        raise RuntimeError(f"COURSE_EVIDENCE=live needs a GPU, but {reason}. Unset it, or set it to recorded.")
    return "recorded"


def is_live() -> bool:
    return mode() == "live"


def device() -> torch.device:
    """The device that lessons create their tensors on: the current GPU when live, otherwise the CPU."""
    return torch.device("cuda", torch.cuda.current_device()) if is_live() else torch.device("cpu")


def need_assertions() -> None:
    """Raise RuntimeError where Python leaves assertions out: every answer and every result that is checked would be right."""
    if not __debug__:
        raise RuntimeError("this Python leaves assertions out, so everything would pass: start it without -O, and unset PYTHONOPTIMIZE")


def _triton_interprets() -> bool:
    """What Triton was told when it was imported, whatever the flag says by now: its own library shows it."""
    import triton.language as tl

    return type(tl.max).__name__ == "InterpretedFunction"


def decide() -> None:
    """Switch Triton to its interpreter, or to the stand-in where it has no wheel. Called by `helpers/__init__.py`."""
    interpret = "0" if is_live() else "1"
    if "triton" in sys.modules and has_triton() and _triton_interprets() == is_live():
        raise RuntimeError(
            "Triton was imported before helpers, so it can no longer be told how to run kernels here. "
            "Restart the kernel and import helpers first."
        )
    os.environ["TRITON_INTERPRET"] = interpret
    if not has_triton():
        from helpers import no_triton

        no_triton.install()
    elif not is_live():
        from helpers import interpreter

        interpreter.prepare()
