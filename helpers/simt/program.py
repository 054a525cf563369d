"""A kernel decoded: basic blocks of steps that a machine can run. Nothing in it depends on a launch."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helpers.simt import access, atomics, barriers, cfg, conversions, instructions, printing, ptx, tensor_cores, together
from helpers.simt.contents import contents
from helpers.simt.kernel import Instruction, Kernel
from helpers.simt.operands import reader, unknown

TENSOR_CORES = "this target's own way to its Tensor Cores: compile for sm_80 or sm_120, which use mma.sync"
ELSEWHERE = {"wgmma": TENSOR_CORES, "tcgen05": TENSOR_CORES, "wmma": "Tensor Cores are reached by mma.sync here"}


@dataclass
class Step:
    """One decoded instruction. `run(machine, lanes)` executes it in those lanes (None: all)."""

    instruction: Instruction
    kind: str  # for the counts: "arithmetic", "global load", "branch", ...
    run: Callable | None
    predicate: Callable | None  # machine -> a flag for each lane


@dataclass
class Block:
    """A decoded basic block; see `cfg.BasicBlock`. `leave` is its branch or barrier.

    `run` of a barrier is a `barriers.Barrier`; of a branch through a table, machine -> entry.
    """

    steps: list[Step]
    leave: Step | None
    targets: list[int]
    next: int | None
    joins: int


class Program:
    """Raises UnknownInstruction for what is not implemented."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        kernel.contents = contents(kernel)
        self.blocks = [self._block(block) for block in cfg.basic_blocks(kernel)]

    def _block(self, block: cfg.BasicBlock) -> Block:
        leave = self._leave(block.branch) if block.branch is not None else None
        return Block([self._step(i) for i in block.instructions], leave, block.targets, block.next, block.joins)

    def _leave(self, instruction) -> Step:
        if cfg.is_barrier(instruction):
            return Step(instruction, "barrier", barriers.decode(instruction, self.kernel), None)
        if not set(instruction.parts[1:]) <= {"uni", "idx"}:
            raise unknown(instruction)
        entry = reader(instruction, self.kernel, instruction.operands[0], np.uint32) if instruction.name == "brx" else None
        return Step(instruction, "branch", entry, self._predicate(instruction))

    def _step(self, instruction) -> Step:
        for module in (access, atomics, together, tensor_cores, instructions, conversions, printing):
            found = module.decode(instruction, self.kernel)
            if found is not None:
                return Step(instruction, *found, self._predicate(instruction))
        raise unknown(instruction, ELSEWHERE.get(instruction.name, ""))

    def _predicate(self, instruction):
        if instruction.predicate is None:
            return None
        text = ("!" if instruction.negated else "") + instruction.predicate
        return reader(instruction, self.kernel, text, np.bool_)


@functools.lru_cache(maxsize=64)
def program(text: str, name: str | None) -> Program:
    """The kernel `name` (or the only one) of a PTX file."""
    return Program(ptx.parse(text, name))
