"""Experiments of lesson 11: pinned and pageable copies, both directions at once, overlap of copies and kernels, and
reading a buffer too early. Bytes per second are those of the link between host and GPU."""

import contextlib
import functools

import torch

from helpers.cuda.launch import CudaKernel
from helpers.experiments.experiment import Run, experiment, product
from helpers.timeline import Timeline, copy_engine_count, estimate, schedule

ITERATE = CudaKernel("work.cu", "iterate")
N = 2**26  # floats that are copied and worked on: 256 MiB
ROUNDS = [1024, 2560]  # on an H200, a kernel shorter than the copy and one that is longer


def pinned(n: int) -> torch.Tensor:
    """n floats of page-locked host memory, which the copy engine reads and writes by itself."""
    return torch.empty(n, pin_memory=True)


def pageable(n: int) -> torch.Tensor:
    """n floats of ordinary host memory; the driver copies them through a pinned buffer of its own."""
    return torch.empty(n)


@experiment(lesson="11_streams", title="Pinned and pageable copies", variants={"pinned": pinned, "pageable": pageable},
            cases=product(direction=["to the GPU", "to the host"], n=[2**k for k in range(10, 27, 2)]))
def host_copies(variant, direction, n):
    """n floats. `variant(n)` allocates the host's side."""
    host, device = variant(n), torch.empty(n, device="cuda")
    source, target = (host, device) if direction == "to the GPU" else (device, host)
    source.copy_(torch.randn(n))

    def call():
        return target.copy_(source, non_blocking=True)

    def check(out):
        torch.cuda.synchronize()
        assert torch.equal(out.cpu(), source.cpu()), "the copy differs"

    return Run(call, check, 4 * n, host_works=True)


def one_after_the_other(up, down):
    for target, source in (up, down):
        target.copy_(source, non_blocking=True)


def at_the_same_time(up, down):
    with forked(2) as streams:
        for stream, (target, source) in zip(streams, (up, down), strict=True):
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)


@experiment(lesson="11_streams", title="Both directions", cases=product(n=[N]),
            variants={"one after the other": one_after_the_other, "at the same time": at_the_same_time})
def two_directions(variant, n):
    """n floats to the GPU and n others back, from and to pinned memory."""
    source, target = pinned(n).fill_(3.0), pinned(n)
    held, sent = torch.empty(n, device="cuda"), torch.full((n,), 5.0, device="cuda")

    def call():
        variant((held, source), (target, sent))
        return held, target

    def check(out):
        torch.cuda.synchronize()
        assert (out[0] == 3).all() and (out[1] == 5).all(), "a copy differs"

    return Run(call, check, 2 * 4 * n, values=lambda: {"copy_engines": copy_engine_count()}, host_works=True)


# ------------------------------------------------------------------------------------------------ overlap


@contextlib.contextmanager
def forked(count: int):
    """`count` streams that start after what the current stream has been given, and that it then waits for."""
    current, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(count)]
    for stream in streams:
        stream.wait_stream(current)
    yield streams
    for stream in streams:
        current.wait_stream(stream)


def in_streams(host, x, y, rounds, chunks, mark=None):
    """Each chunk is copied and worked on in a stream of its own."""
    with forked(chunks) as streams:
        _pipeline(host, x, y, rounds, streams, mark)


def in_one_stream(host, x, y, rounds, chunks, mark=None):
    """The same calls, all in one queue."""
    _pipeline(host, x, y, rounds, [torch.cuda.current_stream()] * chunks, mark)


def _pipeline(host, x, y, rounds, streams, mark):
    mark = mark or (lambda engine, chunk: contextlib.nullcontext())
    parts = zip(streams, *(t.chunk(len(streams)) for t in (host, x, y)), strict=True)
    for chunk, (stream, source, x_part, y_part) in enumerate(parts):
        with torch.cuda.stream(stream):
            with mark("copy in", chunk):
                x_part.copy_(source, non_blocking=True)
            with mark("kernel", chunk):
                work(x_part, y_part, rounds)


def work(x, y, rounds):
    """y = x + rounds, in `rounds` steps."""
    ITERATE.launch(-(-x.numel() // 256), 256, x, y, x.numel(), rounds, 1.0, 1.0)


@functools.cache
def _alone(allocate, n: int, rounds: int) -> tuple[float, float]:
    """Microseconds of the whole copy and of the whole kernel, each by itself: the fastest of five."""
    host, x, y = allocate(n).fill_(1.0), torch.empty(n, device="cuda"), torch.empty(n, device="cuda")
    times = []
    for _ in range(6):
        line = Timeline()
        in_one_stream(host, x, y, rounds, 1, line.span)
        times.append([s.end - s.start for s in line.spans()])
    return tuple(min(t) for t in zip(*times[1:], strict=True))


OVERLAP = {
    "pinned, a stream each": functools.partial(in_streams),
    "pinned, one stream": functools.partial(in_one_stream),
    "pageable, a stream each": functools.partial(in_streams),
}


@experiment(lesson="11_streams", title="Copy while computing", variants=OVERLAP,
            cases=product(n=[N], rounds=ROUNDS, chunks=[1, 2, 4, 8, 16]))
def copy_compute_overlap(variant, n, rounds, chunks):
    """Copy n floats to the GPU and iterate on each, in chunks. `variant(host, x, y, rounds, chunks, mark=None)`.

    Values: the copy and the kernel alone, the estimate made from them, and a timeline of [engine, chunk, start, end].
    """
    allocate = pageable if variant is OVERLAP["pageable, a stream each"] else pinned
    host = allocate(n)
    host.copy_(torch.arange(1024.0).repeat(n // 1024))
    x, y = torch.empty(n, device="cuda"), torch.empty(n, device="cuda")

    def call():
        variant(host, x, y, rounds, chunks)
        return y, x  # both: a kernel that does not wait for its copy then finds what x was filled with

    def check(out):
        torch.cuda.synchronize()
        assert torch.equal(out[0].cpu(), host + rounds), "a chunk was worked on before it had arrived"

    def values():
        copy_us, kernel_us = _alone(allocate, n, rounds)
        if variant is OVERLAP["pinned, one stream"]:
            expected = max(s.end for s in schedule(chunks, copy_us, kernel_us, overlap=False))
        else:
            expected = estimate(chunks, copy_us, kernel_us)
        torch.cuda.synchronize()
        line = Timeline()
        variant(host, x, y, rounds, chunks, line.span)
        spans = [[s.engine, s.chunk, round(s.start, 1), round(s.end, 1)] for s in line.spans()]
        return {"copy_us": round(copy_us, 1), "kernel_us": round(kernel_us, 1), "estimate_us": round(expected, 1),
                "timeline": spans}

    return Run(call, check, 4 * n, 2 * n * rounds, values, host_works=True)


@experiment(lesson="11_streams", title="Reading a buffer too early", variants={"pinned": pinned, "pageable": pageable},
            cases=product(n=[2**20], rounds=[2**17]))
def early_read(variant, n, rounds):
    """A long kernel, then a copy to the host that does not block: the last element at once, and after waiting."""

    def values():
        host, x, y = variant(n).fill_(-1.0), torch.zeros(n, device="cuda"), torch.empty(n, device="cuda")
        work(x, y, 1)  # compiled and loaded before it counts
        torch.cuda.synchronize()
        work(x, y, rounds)
        host.copy_(y, non_blocking=True)
        at_once = host[-1].item()
        torch.cuda.synchronize()
        return {"read_at_once": at_once, "read_after_waiting": host[-1].item(), "right": float(rounds)}

    return Run(None, None, values=values)
