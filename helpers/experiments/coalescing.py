"""Experiments of lesson 09: copies over stride and offset, two walks over a matrix, transposes, and sectors counted."""

import functools

import torch

from helpers import cuda, nsight
from helpers.cuda.launch import CudaKernel
from helpers.experiments.experiment import Run, experiment, product

N = 2**25  # elements written: 128 MiB, more than the L2 of any GPU in the table
STRIDES = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 28, 32]
LINES, LENGTH = 2**20, 256  # threads, and elements that each adds up

WALK_ROWS = CudaKernel("walks.cu", "walk_rows")
WALK_COLUMNS = CudaKernel("walks.cu", "walk_columns")
OFFSET_COPY_FOUR = CudaKernel("copies.cu", "offset_copy_four")


def _copy(call, x, expected) -> Run:
    def check(out):
        assert torch.equal(out, expected), "the copy differs"

    return Run(lambda: call(x), check, 2 * 4 * expected.numel())


@experiment(lesson="09_coalescing", title="Copy over stride", variants={"strided_copy": cuda.strided_copy},
            cases=product(n=[N], stride=STRIDES))
def copy_stride(variant, n, stride):
    """n elements, read `stride` apart. Traffic counts the 8 useful bytes of each, not the sectors they lie in."""
    x = torch.randn(n * stride, device="cuda")
    return _copy(lambda x: variant(x, stride), x, x[::stride])


def offset_copy_four(x: torch.Tensor, offset: int) -> torch.Tensor:
    """`helpers.cuda.offset_copy` with four elements a thread."""
    out = torch.empty(x.numel() - offset, device=x.device)
    OFFSET_COPY_FOUR.launch(-(-out.numel() // 1024), 256, x, out, out.numel(), offset)
    return out


@experiment(lesson="09_coalescing", title="Copy over offset",
            variants={"offset_copy": cuda.offset_copy, "four a thread": offset_copy_four},
            cases=product(n=[N], offset=list(range(33))))
def copy_offset(variant, n, offset):
    x = torch.randn(n + offset, device="cuda")
    return _copy(lambda x: variant(x, offset), x, x[offset:])


def walk(kernel: CudaKernel, x: torch.Tensor, lines: int) -> torch.Tensor:
    sums = torch.empty(lines, device=x.device)
    kernel.launch(-(-lines // 256), 256, x, sums, *x.shape)
    return sums


WALKS = {"along rows": functools.partial(walk, WALK_ROWS), "down columns": functools.partial(walk, WALK_COLUMNS)}


@experiment(lesson="09_coalescing", title="Two walks over a matrix", variants=WALKS,
            cases=product(lines=[LINES], length=[LENGTH]))
def matrix_walks(variant, lines, length):
    """The same number of threads adds the same number of elements each; only what lies side by side differs."""
    along_rows = variant is WALKS["along rows"]
    x = torch.randn((lines, length) if along_rows else (length, lines), device="cuda")

    def check(out):
        torch.testing.assert_close(out.double(), x.double().sum(1 if along_rows else 0), rtol=1e-4, atol=1e-3)

    return Run(lambda: variant(x, lines), check, 4 * (lines * length + lines), lines * length)


TRANSPOSES = {version: functools.partial(cuda.transpose, version=version) for version in ("naive", "tiled", "padded")}


@experiment(lesson="09_coalescing", title="Versions of the transpose",
            variants=TRANSPOSES | {"torch": lambda x: x.t().contiguous(), "copy": torch.clone},
            cases=product(n=[4096, 8192, 16384]))
def transpose_versions(variant, n):
    x = torch.randn(n, n, device="cuda")
    expected = x if variant is torch.clone else x.t()

    def check(out):
        assert torch.equal(out, expected), "the result differs"

    return Run(lambda: variant(x), check, 2 * 4 * n * n)


# ------------------------------------------------------------------------------------------------ counts


def counted_launches() -> dict[tuple[str, int], tuple]:
    """(kernel, parameter) -> a launch small enough for the SIMT machine: kernel, grid, block, arguments."""
    zeros = torch.zeros
    strided, offset = CudaKernel("copies.cu", "strided_copy"), CudaKernel("copies.cu", "offset_copy")
    found = {("strided_copy", s): (strided, 4, 256, (zeros(1024 * s), zeros(1024), 1024, s)) for s in STRIDES}
    found |= {("offset_copy", o): (offset, 4, 256, (zeros(1024 + o), zeros(1024), 1024, o)) for o in range(33)}
    for version in TRANSPOSES:
        kernel = CudaKernel("transpose.cu", f"transpose_{version}")
        found["transpose " + version, 128] = (kernel, (4, 4), (32, 8), (zeros(128, 128), zeros(128, 128), 128, 128))
    return found


@experiment(lesson="09_coalescing", title="Sectors that Nsight Compute counts",
            variants={name: name for name, _ in counted_launches()},
            cases=product(parameter=sorted({p for _, p in counted_launches()})))
def nsight_counts(variant, parameter):
    """Requests, sectors and bank conflicts of small launches, counted by the GPU. Nothing is timed."""
    launches = counted_launches()
    if (variant, parameter) not in launches:
        return None
    position = list(launches).index((variant, parameter))
    return Run(None, None, values=lambda: nsight.count(list(launches.values()))[position])


def compared_counts(by_gpu):
    """Nsight Compute's counts (rows of "nsight_counts") beside the SIMT machine's, launch by launch: sectors a load and
    a store, bank conflicts, and whether all requests, sectors and conflicts agree."""
    import pandas as pd

    rows = []
    for row in by_gpu.itertuples():
        kernel, grid, block, args = counted_launches()[row.variant, row.parameter]
        report = kernel.counted(grid, block, *args)
        load, store = report.of("global load"), report.of("global store")
        here = {"load_requests": load.requests, "load_sectors": load.sectors, "store_requests": store.requests,
                "store_sectors": store.sectors, "shared_load_conflicts": report.of("shared load").conflicts,
                "shared_store_conflicts": report.of("shared store").conflicts}
        rows.append({"variant": row.variant, "parameter": row.parameter,
                     "load": load.sectors / load.requests, "load_ncu": row.load_sectors / row.load_requests,
                     "store": store.sectors / store.requests, "store_ncu": row.store_sectors / row.store_requests,
                     "conflicts": report.bank_conflicts,
                     "conflicts_ncu": row.shared_load_conflicts + row.shared_store_conflicts,
                     "agree": all(getattr(row, name) == value for name, value in here.items())})
    return pd.DataFrame(rows)
