"""Control flow: a kernel's instructions as basic blocks, and where lanes that part ways meet again."""

from dataclasses import dataclass, field

from helpers.simt.faults import UnknownInstruction
from helpers.simt.kernel import Instruction, Kernel

BRANCHES = {"bra", "brx"}
LEAVING = {"ret", "exit", "trap"}


@dataclass
class BasicBlock:
    """Instructions without a branch between them, and the numbers of the blocks that may follow.

    `branch` is what ends it, if it is a branch, return, trap or barrier. Lanes that do not take it go to `next`.
    `joins` is the first block that every path from here passes (its immediate post-dominator): diverged lanes of a
    warp wait for each other there. The number of blocks stands for the end of the kernel.
    """

    instructions: list[Instruction]
    branch: Instruction | None = None
    targets: list[int] = field(default_factory=list)
    next: int | None = None
    joins: int = -1

    @property
    def successors(self) -> list[int]:
        return self.targets + ([] if self.next is None else [self.next])


def is_barrier(instruction: Instruction) -> bool:
    return instruction.name in ("bar", "barrier") and "warp" not in instruction.parts


def basic_blocks(kernel: Kernel) -> list[BasicBlock]:
    """The blocks in the order of the PTX."""
    code = kernel.instructions
    starts = {0, *kernel.labels.values()}
    starts |= {i.index + 1 for i in code if i.name in BRANCHES | LEAVING or is_barrier(i)}
    starts = sorted(start for start in starts if start < len(code))
    number = {start: n for n, start in enumerate(starts)}
    end, blocks = len(starts), []
    for n, (start, stop) in enumerate(zip(starts, [*starts[1:], len(code)], strict=True)):
        block = BasicBlock(code[start:stop], next=n + 1)
        last = block.instructions[-1]
        if last.name in BRANCHES | LEAVING or is_barrier(last):
            block.branch = block.instructions.pop()
        if last.name in LEAVING:
            block.targets = [end]
        elif last.name in BRANCHES:
            block.targets = [number.get(kernel.labels[name], end) for name in _target_names(last, kernel)]
        if block.targets and last.predicate is None:
            block.next = None
        blocks.append(block)
    for block, joins in zip(blocks, _post_dominators(blocks), strict=True):
        block.joins = joins
    return blocks


def _target_names(branch: Instruction, kernel: Kernel) -> list[str]:
    names = kernel.tables.get(branch.operands[-1]) if branch.name == "brx" else [branch.operands[-1]]
    if not names or any(name not in kernel.labels for name in names):
        raise UnknownInstruction(f"PTX line {branch.line}: {branch.text!r} leads nowhere")
    return names


def _post_dominators(blocks: list[BasicBlock]) -> list[int]:
    """The immediate post-dominator of each block; sets of blocks are the bits of an integer."""
    end = len(blocks)
    everything = (1 << (end + 1)) - 1
    after = [everything] * end + [1 << end]  # which blocks (and the end) every path from a block passes
    changed = True
    while changed:
        changed = False
        for n in range(end - 1, -1, -1):
            common = everything
            for successor in blocks[n].successors:
                common &= after[successor]
            common |= 1 << n
            changed |= common != after[n]
            after[n] = common
    whose = {passed: n for n, passed in enumerate(after)}
    # What comes strictly after a block is what the closest of those blocks passes. An endless loop passes nothing.
    return [whose.get(after[n] ^ (1 << n), end) for n in range(end)]
