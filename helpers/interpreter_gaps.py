"""What Triton's interpreter lacks, and a reader may meet: autotuning without a GPU, and NVIDIA's library of functions."""

import functools
import inspect


def fill() -> None:
    """Patch what would end in an error about something else. Called once, when kernels are to be interpreted."""
    from triton.language.extra import libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice
    from triton.runtime.autotuner import Autotuner

    Autotuner.do_bench = property(lambda tuner: tuner._do_bench or _no_time)
    for module in (libdevice, cuda_libdevice):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__:
                setattr(module, name, _refusing(function))


def _no_time(call, quantiles) -> list[float]:
    """Interpreted times compare nothing: all settings are equal, so the first is taken, without trying any."""
    return [0.0] * len(quantiles)


def _refusing(function):
    @functools.wraps(function)
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"libdevice.{function.__name__} is NVIDIA's machine code, which only a GPU runs. Compute it from "
                                  "tl.exp and the like; or look at it with compile_kernel.")

    return refuse
