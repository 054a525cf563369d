"""Measuring on this machine's GPU, and the one call that lessons use: `measure(name)`.

The clock is `triton.testing.do_bench`: events around the call, the L2 cache flushed before it, every sample kept.
Around it stand the rules that make a number worth showing: the result is checked first (on memory filled with NaN),
the host has a head start, variants are interleaved, one process at a time measures on a GPU, and what looks wrong is
flagged or refused.
"""

import contextlib
import dataclasses
import itertools
import platform
import tempfile
from pathlib import Path

import filelock
import pandas as pd
import torch
import triton
from tqdm.auto import tqdm

from helpers import evidence, mode, results, specs
from helpers.experiments import experiment
from helpers.kernels.inputs import check_whole
from helpers.samples import NOT_TIMED, Timing, bandwidth_gb_per_s, row_of, summarise, tflops

__all__ = ["Timing", "bandwidth_gb_per_s", "measure", "summarise", "tflops", "time_us"]

ROUNDS = 3  # variants take turns this often
SAMPLES_A_ROUND = 12
ROUND_MS = 100  # a call so long that its samples would take more is sampled less often, though at least FEWEST times
FEWEST = 4
HEAD_START_US = 250  # of the host before each sample: more than a slow host takes to enqueue a call


def time_us(fn, *, samples: int = ROUNDS * SAMPLES_A_ROUND) -> Timing:
    """Time `fn()` on this machine's GPU, in microseconds, from a cold L2 cache.

    Raises RuntimeError without a usable GPU: an interpreted kernel has no time worth showing. TypeError for what cannot
    be called, ValueError for less than one sample.
    """
    _need_callable(fn)
    check_whole("time_us", 1, None, samples=samples)
    _need_gpu("time_us")
    with gpu_lock():
        timing = summarise(_sample(fn, samples, _estimate_ms(fn), [_HeadStart()]))
        return dataclasses.replace(timing, flags=(*timing.flags, *_other_processes()))


def _estimate_ms(fn) -> float:
    """A first idea of what `fn` takes; compiles and warms up."""
    return max(triton.testing.do_bench(fn, warmup=1, rep=1, return_mode="median"), 1e-3)


def samples_a_round(estimate_ms: float) -> int:
    """How often a call of that length is timed before the next variant has its turn."""
    return max(FEWEST, min(SAMPLES_A_ROUND, int(ROUND_MS / estimate_ms)))


class _HeadStart:
    """For do_bench, which sets `grad` to None before each sample: here that makes the GPU wait a little.

    Meanwhile the host enqueues the call. Otherwise a host that is slow, or busy, would be timed along with short kernels.
    """

    grad = property(fset=lambda self, _: torch.cuda._sleep(2000 * HEAD_START_US))  # cycles of about half a nanosecond


def _sample(fn, samples: int, estimate_ms: float, before_each: list) -> list[float]:
    """About `samples` times of `fn` in microseconds."""
    bench = triton.testing.do_bench
    # do_bench takes milliseconds and derives the number of repeats from an estimate of its own
    times_ms = bench(fn, warmup=max(1, min(25, 5 * estimate_ms)), rep=max(1, samples * estimate_ms), grad_to_none=before_each,
                     return_mode="all")
    step = max(1, len(times_ms) // samples)
    return [round(t * 1e3, 3) for t in times_ms[::step][:samples]]


def _need_callable(fn) -> None:
    if not callable(fn):
        raise TypeError(f"only a function can be measured, got {type(fn).__name__}")


def _need_gpu(what: str) -> None:
    if not mode.is_live():
        reason = mode.usable_gpu() or "COURSE_EVIDENCE=recorded forces recordings"
        raise RuntimeError(f"{what} needs a GPU, and {reason}. measure(...) shows recordings instead.")


@contextlib.contextmanager
def gpu_lock():
    """Held while measuring, so that two notebooks on one GPU take turns."""
    index = torch.cuda.current_device()
    path = Path(tempfile.gettempdir()) / f"gpu-course-{torch.cuda.get_device_properties(index).uuid}.lock"
    with filelock.FileLock(path, mode=0o666):  # of whoever measures first, and all others on this machine must open it
        yield


def measure(name: str, *, yours=None, variants=None, progress: bool = True, **parameters) -> pd.DataFrame:
    """The results of one experiment as a tidy table, measured now with a GPU, from the recording without.

    `parameters` keep the cases with these values (`n=1024`, or a list); `variants` keeps the named ones. `yours` is
    the reader's own callable, measured beside the shipped variants as variant "yours" (live only: nobody recorded it).
    Columns: experiment, variant, the parameters, time_us (median), time_us_p20, time_us_p80, samples, traffic_bytes,
    flops, bandwidth_gb_per_s, tflops, flags, evidence, machine, date, versions; and an experiment's own values.
    Raises ValueError for unknown names, TypeError if `yours` cannot be called, AssertionError for a wrong result.
    """
    if yours is not None:
        _need_callable(yours)
    if not mode.is_live():
        return results.recorded(name, variants=variants, **parameters)
    return run_experiment(name, yours=yours, variants=variants, progress=progress, **parameters)


def run_experiment(name, *, yours=None, variants=None, progress=True, **parameters) -> pd.DataFrame:
    """Measure one experiment on this machine's GPU; see `measure`."""
    mode.need_assertions()
    _need_gpu("measuring")
    found = experiment.get(name)
    spec = specs.gpu()
    chosen = dict(found.variants)
    if variants is not None:
        wanted = [variants] if isinstance(variants, str) else list(variants)
        unknown = set(wanted) - set(chosen)
        if unknown:
            raise ValueError(f"{name} has no variant {sorted(unknown)}; it has {sorted(chosen)}")
        chosen = {v: chosen[v] for v in wanted}
    if yours is not None:
        chosen["yours"] = yours
    cases = results.select_cases(name, found.cases(spec), parameters)
    rows = []
    with gpu_lock():
        shared = _other_processes()
        for case in tqdm(cases, desc=name, disable=not progress, leave=False):
            rows += _measure_case(found, chosen, case, spec, shared)
            torch.cuda.empty_cache()
    if not rows:
        raise ValueError(f"{name}: no variant applies to {cases}")
    return pd.DataFrame(rows)


def _measure_case(found, variants, case, spec, shared) -> list[dict]:
    runs = {}
    torch.compiler.reset()  # code compiled for earlier shapes would be compared with this one at every call
    for variant, fn in variants.items():
        torch.manual_seed(0)
        run = found.prepare(fn, **case)
        if run is not None:
            if run.call is not None:
                check_on_poisoned(run, f"{found.name}: {variant} {case}")
            runs[variant] = run
    samples = {variant: [] for variant in runs}
    estimates = {variant: _estimate_ms(run.call) for variant, run in runs.items() if run.call is not None}
    for _, (variant, ms) in itertools.product(range(ROUNDS), estimates.items()):
        run = runs[variant]
        samples[variant] += _sample(run.call, samples_a_round(ms), ms, [] if run.host_works else [_HeadStart()])
    stamp = {"evidence": "live", "machine": machine_name(), "date": evidence.today(), "versions": versions_line()}
    rows = []
    for variant, run in runs.items():
        row = {"experiment": found.name, "variant": variant, **case, **NOT_TIMED}
        if run.call is not None:
            row |= row_of(samples[variant], run.traffic_bytes, run.flops, spec, shared)
        if run.values is not None:
            row |= run.values()
        rows.append(row | stamp)
    return rows


def check_on_poisoned(run, what: str) -> None:
    """Run once, fill the output with NaN, free it, run again into that memory and check what is there.

    An element that the kernel does not write keeps the NaN, instead of a lucky value from an earlier run.
    """
    out = run.call()
    with torch.inference_mode():  # also what is closed to changes outside: results of that mode, and parameters
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                tensor.fill_(float("nan"))
    del out
    again = run.call()
    try:
        run.check(again)
    except Exception as error:  # a check may also stumble over what is no tensor, or has another shape
        said = error if isinstance(error, AssertionError) else f"{type(again).__name__}: {error}"
        raise AssertionError(f"{what}: wrong result, so it is not timed. {said}") from None


def machine_name() -> str:
    return torch.cuda.get_device_name()


def versions() -> dict[str, str]:
    found = {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    return found | {"cuda": torch.version.cuda or "none", "driver": _nvml("driver") or "unknown"}


def versions_line() -> str:
    v = versions()
    return f"torch {v['torch']}, Triton {v['triton']}, driver {v['driver']}"


def clocks() -> dict:
    """SM and memory clock in MHz, temperature in degrees C, power in W and throttle reasons, as the driver says."""
    return _nvml("clocks") or {}


def _other_processes() -> list[str]:
    others = _nvml("processes")
    return ["shared GPU"] if others and others > 1 else []


def _nvml(what: str):
    """One question to the driver's management library; None where it cannot answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no driver library here: every kind of failure means the same
        return None
    try:
        if what == "driver":
            return pynvml.nvmlSystemGetDriverVersion()
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties().uuid}")
        if what == "processes":
            return len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        return {
            "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
            "throttle_reasons": hex(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        }
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
