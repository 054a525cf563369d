"""Experiments of lesson 07: a chain of FMAs over the number of warps (Fig 2-5), what one FMA takes, and occupancy as
the driver calculates and as Nsight Compute counts it."""

import functools
import itertools

import pandas as pd
import torch

from helpers import nsight
from helpers.cuda.driver import resident_blocks
from helpers.cuda.launch import CudaKernel
from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.fma_chain import fma_chain_flops, fma_chain_reference, fma_chain_traffic_bytes, fma_resident, fma_shared
from helpers.kernels.probes import BUSY
from helpers.kernels.probes import fma_latency as measured_fma_latency
from helpers.occupancy import occupancy

ELEMENTS = 2**26  # 256 MiB of float32
KS = [1, 8, 64, 512, 2048]
FEW = (1, 2, 3, 4, 6, 8, 12, 16)  # warps per SMSP of the variants drawn for comparison only
FEWER = ("one element, load moved down", "four elements", "four elements, plain loads")

VARIANTS = {
    "plain loads": functools.partial(fma_resident, early=False),
    "one element": functools.partial(fma_resident, early=True),
    "one element, load moved down": functools.partial(fma_resident, early=True, unroll=512, wide=True),
    "one element, shares as needed": fma_shared,
    "four elements": functools.partial(fma_resident, early=True, elements_per_thread=4),
    "four elements, plain loads": functools.partial(fma_resident, early=False, elements_per_thread=4),
}


def warps_per_smsp(spec) -> list[dict]:
    """Every k with 1 to as many warps as an SMSP holds."""
    return product(k=KS, warps_per_smsp=list(range(1, (spec.limits.max_warps_per_smsp or 12) + 1)))


@experiment(lesson="07_occupancy", title="Dependent FMAs over warps per SMSP", variants=VARIANTS, cases=warps_per_smsp)
def fma_chain_warps(variant, k, warps_per_smsp):
    """SMs x m programs of 4 warps walk over 256 MiB: load, k dependent FMAs, store.

    Values: the fewest and most programs on an SM, read back; when the programs had ended, in shares of the whole time
    (a quarter, half and three quarters of them).
    """
    named = {id(fn): name for name, fn in VARIANTS.items()}.get(id(variant), "yours")
    if named == "one element, load moved down" and k != 512:
        return None  # the compiler moves it only in this one
    if variant is fma_shared and (k < 512 or warps_per_smsp > 8):
        return None
    if named in FEWER and warps_per_smsp not in FEW:
        return None
    sms = torch.cuda.get_device_properties().multi_processor_count
    programs = sms * warps_per_smsp
    x = torch.randn(ELEMENTS, device="cuda")
    call = functools.partial(variant, x, 0.999, 0.001, k, programs=programs)

    def check(out):
        for part in (slice(0, 2**16), slice(ELEMENTS - 2**16, ELEMENTS)):
            torch.testing.assert_close(out[part].double(), fma_chain_reference(x[part], 0.999, 0.001, k),
                                       rtol=1e-4, atol=1e-5)
        assert not torch.isnan(out).any(), "some elements were never written"

    def values():
        where = torch.zeros(programs, 3, dtype=torch.int64, device="cuda")
        call(where=where)
        sm, began, ended = where.unbind(1)
        counts = torch.bincount(sm, minlength=sms)
        share = (ended - began.min()).double() / (ended.max() - began.min())
        quarters = share.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64, device="cuda")).tolist()
        return {"fewest_programs_on_an_sm": int(counts.min()), "most_programs_on_an_sm": int(counts.max()),
                "quarter_ended": quarters[0], "half_ended": quarters[1], "three_quarters_ended": quarters[2]}

    return Run(call, check, fma_chain_traffic_bytes(ELEMENTS), fma_chain_flops(ELEMENTS, k),
               values=values if isinstance(variant, functools.partial) else None)


@experiment(lesson="07_occupancy", title="From one dependent FMA to the next",
            variants={"one warp": measured_fma_latency}, cases=[{}])
def fma_latency(variant):
    cycles = sorted(variant() for _ in range(5))[2]
    return Run(None, None, values=lambda: {"cycles": cycles})


LAUNCHES = product(threads=[32, 64, 128, 256, 512, 1024], shared_bytes=[0, 16_384, 40_000])


def _launch(threads: int, shared_bytes: int):
    """Several waves of blocks that keep every warp busy for some 100 us, as nsight.count takes them."""
    blocks = 8 * torch.cuda.get_device_properties().multi_processor_count * 32
    warps = blocks * -(-threads // 32)
    out = torch.empty(32 * warps, device="meta")
    sm = torch.empty(warps, dtype=torch.int32, device="meta")
    return BUSY, blocks, threads, (4096, 0.25, 0.5, 0.5, out, sm, sm), shared_bytes


@experiment(lesson="07_occupancy", title="Occupancy that Nsight Compute counts", variants={"busy": BUSY},
            cases=LAUNCHES)
def achieved_occupancy(variant, threads, shared_bytes):
    """Percent of an SM's warp slots: as calculated, as Nsight Compute calculates, and as it counts while running."""
    spec = torch.cuda.get_device_properties()
    position = LAUNCHES.index({"threads": threads, "shared_bytes": shared_bytes})

    def values():
        counted = nsight.count([_launch(**case) for case in LAUNCHES], nsight.OCCUPANCY)[position]
        target = (spec.major, spec.minor)
        found = occupancy(target, threads, BUSY.compiled(target).registers, shared_bytes)
        return {"calculated_percent": 100 * found.fraction, "limiter": found.limiter} | counted

    return Run(None, None, values=values)


# Live numbers of a thread and static shared bytes of a block: kernels of 8 to 255 registers.
HELD = [{"values": values, "static_bytes": (0, 0, 4096, 0, 1028)[values % 5]}
        for values in (*range(1, 19), 20, 22, 24, 27, 30, 33, 36, 40, 44, 48, 54, 60, 66, 72, 80, 90)]
ASKED = list(itertools.product((32, 33, 64, 96, 128, 160, 256, 288, 320, 512, 768, 1024),  # threads
                               (0, 1, 1000, 4096, 12_800, 32_768, 46_080, 65_536, 102_400, 150_000, 232_448)))  # dynamic bytes


@experiment(lesson="07_occupancy", title="Occupancy that the driver calculates", variants={"driver": resident_blocks}, cases=HELD)
def driver_occupancy(variant, values, static_bytes):
    """A kernel's registers, and `blocks`: the driver's answer to each of ASKED, in order; see `driver_answers`."""
    kernel = CudaKernel("registers.cu", "hold", (f"-DVALUES={values}", f"-DSHARED={static_bytes}"))
    target = torch.cuda.get_device_capability()
    return Run(None, None, values=lambda: {
        "registers": kernel.compiled(target).registers,
        "blocks": [variant(kernel, threads, dynamic) for threads, dynamic in ASKED]})


def driver_answers(table, target) -> pd.DataFrame:
    """A row for each question of measure("driver_occupancy"): registers, threads, shared_bytes (static and dynamic), the
    `driver` blocks, and the `calculated` ones and their limiter for that target."""
    rows = []
    for kernel in table.to_dict("records"):
        for (threads, dynamic), blocks in zip(ASKED, kernel["blocks"], strict=True):
            shared = int(kernel["static_bytes"]) + dynamic
            found = occupancy(target, threads, int(kernel["registers"]), shared)
            rows.append({"registers": int(kernel["registers"]), "threads": threads, "shared_bytes": shared, "driver": blocks,
                         "calculated": found.blocks, "limiter": found.limiter})
    return pd.DataFrame(rows)
