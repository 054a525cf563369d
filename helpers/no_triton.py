"""A stand-in for Triton where it has no wheel (macOS, Windows without WSL) or was not installed.

Kernels can then be defined, read and compiled from the shipped store, but not run: wrappers fall back to torch, and
launching a kernel directly says what to do instead. Nothing here pretends to be the compiler.
"""

import inspect
import sys
import types

MISSING, ADVICE = (
    ("Triton is not installed", "Install it (torch's CPU wheel does not bring it): pip install -r requirements.txt.")
    if sys.platform.startswith("linux") else
    ("Triton has no package for this system", "Use WSL, a container or Linux.")
)


class Unlaunchable:
    """What `@triton.jit` returns here: it knows its source (`.fn`) and options, and refuses to run."""

    def __init__(self, fn, **options):
        self.fn = fn
        self.kwargs = options
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self.arg_names = list(inspect.signature(fn).parameters)

    def __getitem__(self, grid):
        raise RuntimeError(f"{MISSING}, so this kernel cannot run here. {ADVICE}")

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{MISSING}, so this kernel cannot run here. {ADVICE}")


def jit(fn=None, **options):
    return Unlaunchable(fn, **options) if fn is not None else lambda fn: Unlaunchable(fn, **options)


def install() -> None:
    """Register the stand-in under Triton's names, so that `import triton` works in kernel files and cells."""
    triton = types.ModuleType("triton", __doc__)
    language = types.ModuleType("triton.language")
    language.constexpr = type("constexpr", (), {"__init__": lambda self, value: setattr(self, "value", value)})
    triton.STAND_IN = True
    triton.__version__ = "none"
    triton.language = language
    triton.jit = jit
    triton.cdiv = lambda a, b: -(-a // b)
    triton.next_power_of_2 = lambda n: 1 << max(0, (n - 1).bit_length())
    triton.Config = lambda *args, **kwargs: None
    triton.autotune = lambda *args, **kwargs: lambda fn: fn
    triton.__path__ = []
    sys.modules["triton"] = triton
    sys.modules["triton.language"] = language
