"""Experiments of lesson 01: how fast and how soon each level of the memory hierarchy answers, by working set."""

import functools

import torch

from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.probes import LINE_BYTES, READ_TILE, address_chain, copy, pointer_chase, read_again, sums_read

KIB, MIB = 2**10, 2**20
SLICES = sorted([2**k for k in range(11, 26)] + [3 * 2**k for k in range(15, 19)])  # bytes an SM: 2 KiB to 32 MiB
LEAST_READ = 48 * MIB  # bytes that each SM reads at least, so that the first, cold pass does not count
STEPS = 8192

READS = {"read": read_again, "read past L1": functools.partial(read_again, past_l1=True)}


@experiment(lesson="01_memory_hierarchy", title="Read bandwidth over the working set", variants=READS,
            cases=product(bytes_per_sm=SLICES))
def read_bandwidth(variant, bytes_per_sm):
    """One program an SM reads its own slice again and again. Traffic: what the SMs read, from wherever it came."""
    sms = torch.cuda.get_device_properties().multi_processor_count
    x = (torch.arange(bytes_per_sm // 4, device="cuda") % 8).float().repeat(sms, 1)
    total = -(-max(LEAST_READ, 4 * bytes_per_sm) // (4 * READ_TILE)) * 4 * READ_TILE
    expected = sums_read(x, total)

    def check(out):
        torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=0)

    return Run(lambda: variant(x, total), check, total * sms, values=lambda: {"working_set_bytes": bytes_per_sm * sms})


@experiment(lesson="01_memory_hierarchy", title="Copy bandwidth over the size",
            variants={"copy": copy, "torch": torch.clone}, cases=product(bytes=[2**k for k in range(18, 33)]))
def copy_bandwidth(variant, bytes):
    """A copy of a tensor of `bytes` bytes, from a cold L2 as every timing here. Traffic: read once, written once."""
    x = torch.randn(bytes // 4, device="cuda")

    def check(out):
        assert torch.equal(out, x), "the copy differs"

    return Run(lambda: variant(x), check, 2 * bytes)


@experiment(lesson="01_memory_hierarchy", title="Latency of a load over the working set",
            variants={"pointer chase": pointer_chase}, cases=product(bytes=[2**k for k in range(14, 33)]))
def load_latency(variant, bytes):
    """One thread follows addresses through `bytes` bytes; the caches are warm where the set fits. Nothing else runs."""
    chain = address_chain(bytes, "cuda")
    chain.sum()  # brings into L2 what fits there
    lines = bytes // LINE_BYTES
    around = lines if lines <= STEPS else 0  # L1 is empty at each launch: walk a small set once before the clock starts
    runs = [variant(chain, STEPS, warm_steps=min(lines, STEPS))]
    for _ in range(6):  # go on along the chain: what was visited before would be found in a cache
        runs.append(variant(chain, STEPS, warm_steps=around, start=runs[-1].line))
    runs = sorted(runs[1:], key=lambda run: run.cycles)
    following = (chain[:, 0] - chain.data_ptr()) // LINE_BYTES
    line = 0
    for _ in range(64):
        line = int(following[line])
    assert variant(chain, 64).line == line, "the chase went astray"
    middle = runs[2]
    return Run(None, None, values=lambda: {
        "cycles": middle.cycles, "ns": middle.ns, "cycles_least": runs[0].cycles, "cycles_most": runs[-1].cycles})
