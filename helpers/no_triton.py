"""A stand-in for Triton where it has no wheel (macOS, Windows without WSL) or was not installed.

Kernels can then be defined, read and compiled from the shipped store, but not run: wrappers fall back to torch, and so
does launching a lesson's own kernel (helpers/kernels/in_torch.py). Launching any other one, also an edited one, says
what to do instead. Nothing here pretends to be the compiler.
"""

import functools
import importlib.machinery
import inspect
import sys
import types

MISSING, ADVICE = (
    ("Triton is not installed", "Install it (torch's CPU wheel does not bring it): pip install -r requirements.txt.")
    if sys.platform.startswith("linux") else
    ("Triton has no package for this system", "Use WSL, a container or Linux.")
)


OPTIONS = ("num_warps", "num_stages")  # of a launch: they change the time, not the values


class NeedsTriton(RuntimeError):
    """A kernel was launched that only Triton can run."""


class Unlaunchable:
    """What `@triton.jit` returns here: it knows its source (`.fn`) and options; torch stands in for a lesson's kernels."""

    best_config = None  # of an autotuned kernel: without a GPU its first setting

    def __init__(self, fn, **options):
        self.fn = fn
        self.kwargs = options
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self.arg_names = list(inspect.signature(fn).parameters)

    def __getitem__(self, grid):
        return functools.partial(self._launch, grid)

    def _launch(self, grid, *args, **kwargs):
        from helpers.kernels.in_torch import torch_function  # the kernels import this stand-in

        compute = torch_function(self)
        if compute is None:
            raise NeedsTriton(f"{MISSING}, so {self.__name__} cannot run here: torch stands in for the lessons' own kernels, "
                              f"unchanged, but not for this one. {ADVICE}")
        chosen = self.best_config.kwargs if self.best_config else {}
        own = chosen | {name: value for name, value in kwargs.items() if name not in OPTIONS}
        arguments = inspect.signature(self.fn).bind(*args, **own).arguments
        grid = grid(arguments) if callable(grid) else grid
        compute(grid if isinstance(grid, tuple) else (grid,), **arguments)

    def __call__(self, *args, **kwargs):
        raise NeedsTriton(f"{MISSING}, so {self.__name__} cannot run here. {ADVICE}")


def jit(fn=None, **options):
    return Unlaunchable(fn, **options) if fn is not None else lambda fn: Unlaunchable(fn, **options)


class Config:
    """A setting of `triton.autotune`."""

    def __init__(self, kwargs, num_warps=4, num_stages=3, **options):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages


def autotune(configs, key=(), **options):
    def tuned(kernel):
        chosen = Unlaunchable(kernel.fn, **kernel.kwargs)
        chosen.best_config = configs[0]
        return chosen

    return tuned


class Name:
    """What `tl.float32` and all other names are here: a kernel can be defined with them, for its defaults and annotations."""

    def __init__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.name = name

    def __call__(self, *args, **kwargs):
        raise NeedsTriton(f"{MISSING}, so tl.{self.name} cannot run here. {ADVICE}")


def install() -> None:
    """Register the stand-in under Triton's names, so that `import triton` works in kernel files and cells."""
    from torch.utils._triton import has_triton_package

    has_triton_package()  # torch remembers the answer: its own parts must not take the stand-in for Triton
    triton = types.ModuleType("triton", __doc__)
    language = types.ModuleType("triton.language")
    language.constexpr = type("constexpr", (), {"__init__": lambda self, value: setattr(self, "value", value)})
    language.__getattr__ = Name
    triton.STAND_IN = True
    triton.__version__ = "none"
    triton.language = language
    triton.jit = jit
    triton.cdiv = lambda a, b: -(-a // b)
    triton.next_power_of_2 = lambda n: 1 << max(0, (n - 1).bit_length())
    triton.Config = Config
    triton.autotune = autotune
    triton.heuristics = lambda *args, **kwargs: lambda fn: fn
    triton.__path__ = []
    triton.__spec__ = importlib.machinery.ModuleSpec("triton", None)  # torch asks for it when CUDA starts
    sys.modules["triton"] = triton
    sys.modules["triton.language"] = language
