"""Experiments of lesson 02: where the hardware puts warps, and which of them share a scheduler."""

import torch

from helpers.experiments.experiment import Run, experiment, product
from helpers.kernels.probes import busy, busy_flops, warp_pair

ROUNDS = 65536


def _sms() -> int:
    return torch.cuda.get_device_properties().multi_processor_count


def _is_eight(out):
    assert bool((out.out == 8).all()), "a warp did not finish its chains"


@experiment(lesson="02_sm_and_warps", title="Where each warp runs", variants={"read back": busy},
            cases=[{"blocks_per_sm": blocks, "warps_per_block": warps}
                   for blocks, warps in [(1, 4), (2, 4), (3, 4), (1, 8), (4, 1), (8, 1)]])
def warp_placement(variant, blocks_per_sm, warps_per_block):
    """SM and warp slot of every warp, read back from the hardware: lists in the order of blocks and their warps."""
    placed = variant(blocks_per_sm * _sms(), warps_per_block, ROUNDS)
    _is_eight(placed)
    return Run(None, None, values=lambda: {"sm": placed.sm.tolist(), "slot": placed.slot.tolist()})


SHAPES = {  # SMs and w -> blocks, warps a block
    "one block of w warps": lambda sms, warps: (sms, warps),
    "w blocks of one warp": lambda sms, warps: (sms * warps, 1),
}


@experiment(lesson="02_sm_and_warps", title="Warps of one block against blocks of one warp", variants=SHAPES,
            cases=product(warps=list(range(1, 17))))
def block_shapes(variant, warps):
    """w warps on every SM, each of which could fill a scheduler alone: in one block, or as w blocks."""
    blocks, warps_per_block = variant(_sms(), warps)
    placed = busy(blocks, warps_per_block, ROUNDS)
    counts = torch.bincount(placed.sm, minlength=_sms())
    return Run(lambda: busy(blocks, warps_per_block, ROUNDS, into=placed), _is_eight,
               flops=busy_flops(blocks, warps_per_block, ROUNDS),
               values=lambda: {"least_warps_on_an_sm": int(counts.min()), "most_warps_on_an_sm": int(counts.max())})


@experiment(lesson="02_sm_and_warps", title="Which warps of a block share a scheduler",
            variants={"two warps": warp_pair}, cases=product(first=list(range(8)), second=list(range(8))))
def scheduler_pairs(variant, first, second):
    """Warps `first` and `second` of a block of 8 work, the others leave. cycles: how long `first` took."""
    cycles = sorted(variant(first, second) for _ in range(3))[1]
    return Run(None, None, values=lambda: {"cycles": cycles})
