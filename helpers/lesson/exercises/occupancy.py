"""Tests of the exercises of lesson 07."""

import itertools
import math

import torch
import triton

from helpers.fma_model import machine_of, warps_for_bandwidth
from helpers.kernels.fma_chain import fma_chain_reference
from helpers.lesson.exercise import NotStarted, exercise, poisoned_like, started
from helpers.mode import device
from helpers.occupancy import occupancy
from helpers.specs import gpu


@exercise("07_occupancy.1")
def _(warps_needed):
    if warps_needed(4, 1) is ...:
        raise NotStarted
    for latency, chains in itertools.product((4, 5, 6, 20, 1), (1, 2, 3, 4, 8)):
        expected, answer = max(1, -(-latency // chains)), warps_needed(latency, chains)
        assert answer == expected, (
            f"latency {latency}, independent chains a warp: {chains}. It takes {expected} to fill every slot, you say {answer}; "
            f"{expected - 1} would fill {(expected - 1) * chains} of {latency}"
        )


@exercise("07_occupancy.2")
def _(kernel):
    for n, steps, block in ((256, 3, 128), (100, 5, 64), (1, 1, 32), (515, 7, 128)):
        x = torch.randn(n, device=device())
        x[0], x[-1] = 2.5, -1.25
        out = poisoned_like(x)
        kernel[(triton.cdiv(n, 2 * block),)](x, out, n, 0.75, 0.5, N=steps, BLOCK=block)
        started(out)
        missing = out.isnan().nonzero().flatten().tolist()
        assert not missing, f"n = {n}, BLOCK = {block}: nothing was written at {missing[:4]}; are both halves stored?"
        expected = fma_chain_reference(x, 0.75, 0.5, steps)
        worst = (out.double() - expected).abs().argmax()
        assert torch.allclose(out.double(), expected, rtol=1e-5, atol=1e-6), (
            f"n = {n}, {steps} steps: element {int(worst)} is {out[worst]:.6g}, expected {expected[worst]:.6g}"
        )


@exercise("07_occupancy.3")
def _(blocks_by_registers):
    if blocks_by_registers(32, 8) is ...:
        raise NotStarted
    for registers, warps in itertools.product((16, 32, 33, 37, 40, 41, 80, 128, 200, 255), (1, 2, 3, 5, 8, 9, 10, 32)):
        expected, answer = occupancy("sm_90", 32 * warps, registers).by_registers, blocks_by_registers(registers, warps)
        assert answer == expected, (
            f"{registers} registers a thread, {warps} warps a block: {expected} blocks fit, you say {answer}. A warp takes whole "
            f"units of 256, out of the 16384 of its SMSP"
        )


@exercise("07_occupancy.4")
def _(warps_for_memory):
    if warps_for_memory(1000.0, 500.0, 100) is ...:
        raise NotStarted
    for name in ("RTX 5090", "A100 SXM 80GB", "B200"):
        machine = machine_of(gpu(name))
        ns, smsps = machine.memory_latency / machine.clock_mhz * 1e3, machine.sm_count * machine.smsps_per_sm
        expected, answer = math.ceil(warps_for_bandwidth(machine)), warps_for_memory(machine.bandwidth_gb_per_s, ns, smsps)
        assert answer == expected, (
            f"{name}: {machine.bandwidth_gb_per_s:g} GB/s, {ns:.0f} ns, {smsps} SMSPs need {expected} warps each, you say {answer}; "
            f"half of the traffic is read, and a warp's load brings 128 bytes"
        )
