"""When work ran: measured with events and with the host's clock, or predicted by a model of queues and engines.

`Timeline`        marks spans of work on the GPU's streams with events                 live
`served_in_turn`  those spans without the waiting for an engine that still serves another stream
`host_times_us`   what the host's clock says after a call returns, and after the GPU is done
`schedule`        copies and kernels of n chunks on copy engines and SMs               simulated
`estimate`        the same for one copy and one kernel a chunk, in closed form
"""

import contextlib
import dataclasses
import math
import numbers
import statistics
import time

import torch


@dataclasses.dataclass(frozen=True)
class Span:
    """Work of one chunk on one engine ("copy in", "kernel", "copy out"), from `start` to `end`."""

    engine: str
    chunk: int
    start: float
    end: float


class Timeline:
    """Spans between pairs of events, in microseconds since the timeline was made (on the current stream)."""

    def __init__(self):
        self._events = []
        self._zero = torch.cuda.Event(enable_timing=True)
        self._zero.record()

    @contextlib.contextmanager
    def span(self, engine: str, chunk: int):
        """Mark what is enqueued on the current stream inside the `with` block."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        yield
        end.record()
        self._events.append((engine, chunk, start, end))

    def spans(self) -> list[Span]:
        """Wait for the GPU and read the events."""
        torch.cuda.synchronize()
        return [Span(engine, chunk, 1e3 * self._zero.elapsed_time(start), 1e3 * self._zero.elapsed_time(end))
                for engine, chunk, start, end in self._events]


def served_in_turn(spans: list[Span]) -> list[Span]:
    """The spans with each engine's start no earlier than the end of what it served before, in order of their ends.

    An event in front of a copy fires when its *stream* gets there, although the engine may still serve other streams;
    what lies between is waiting. Right for engines that serve one thing at a time.
    """
    free, served = {}, []
    for span in sorted(spans, key=lambda s: s.end):
        served.append(dataclasses.replace(span, start=max(span.start, min(free.get(span.engine, span.start), span.end))))
        free[span.engine] = span.end
    return served


def host_times_us(call, repeats: int = 11) -> dict[str, float]:
    """Median times on the host's clock from before a call until it returned, and until the GPU had finished."""
    call()
    returned, finished = [], []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        out = call()
        returned.append(time.perf_counter() - began)
        torch.cuda.synchronize()
        finished.append(time.perf_counter() - began)
        del out
    return {"returned_us": round(1e6 * statistics.median(returned), 2),
            "finished_us": round(1e6 * statistics.median(finished), 2)}


def copy_engine_count(device: int | None = None) -> int:
    """asyncEngineCount of a GPU: 1, copies in one direction run beside kernels; 2 or more, in both directions."""
    from cuda.core import Device

    return Device(torch.cuda.current_device() if device is None else device).properties.async_engine_count


def schedule(chunks: int, copy_in: float, kernel: float, copy_out: float = 0.0, *, copy_engines: int = 1,
             overlap: bool = True) -> list[Span]:
    """Spans of n chunks whose copies and kernels take these times in total, any unit; each engine does one at a time.

    With `overlap`, every chunk has a stream of its own: copy in, kernel, copy out follow each other within a chunk
    only. Without, all wait for each other, as in one stream. One copy engine serves both directions in turn, all
    chunks' copies in first; with two engines each direction has its own. Raises ValueError for fewer than 1 chunk or
    engine, or negative times.
    """
    _check(chunks, copy_engines, copy_in, kernel, copy_out)
    chunks = int(chunks)
    steps = [(name, total / chunks) for name, total in
             (("copy in", copy_in), ("kernel", kernel), ("copy out", copy_out)) if total]
    if overlap:  # in the order in which the engines meet the work: all copies in, all kernels, all copies out
        order = [(chunk, *step) for step in steps for chunk in range(chunks)]
    else:
        order = [(chunk, *step) for chunk in range(chunks) for step in steps]
    free, done, spans = {}, [0.0] * chunks, []
    for chunk, name, took in order:
        engine = name if overlap and (name == "kernel" or copy_engines > 1) else "copies" if overlap else "stream"
        start = max(free.get(engine, 0.0), done[chunk])
        free[engine] = done[chunk] = start + took
        spans.append(Span(name, chunk, start, start + took))
    return spans


def _check(chunks: int, copy_engines: int, *times: float) -> None:
    whole = all(isinstance(n, numbers.Real) and n >= 1 and n % 1 == 0 for n in (chunks, copy_engines))
    if not whole or not all(isinstance(t, numbers.Real) and 0 <= t < math.inf for t in times):
        raise ValueError("need at least one chunk and one copy engine, whole ones, and times of at least 0, "
                         f"got {chunks} chunks, {copy_engines} engines, {', '.join(map(str, times))}")


def estimate(chunks: int, transfer: float, execution: float) -> float:
    """Time of n chunks, each copied in and then worked on: what is longer, and one chunk of what is shorter. Raises as `schedule`."""
    _check(chunks, 1, transfer, execution)
    return max(transfer, execution) + min(transfer, execution) / chunks
