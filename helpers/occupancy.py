"""How many blocks of a kernel one SM holds at a time, and which resource says so: `occupancy("H100", 256, 32)`.

The arithmetic is that of NVIDIA's cuda_occupancy.h; a test compiles that header and compares. Four resources are
given out, each in units of its own, and the scarcest one decides:

    threads     whole warps, from the SM's warp slots
    registers   to whole warps, in units of 256, from the quarter of the register file that a warp's SMSP has
    shared      to a block, with what the system reserves, in units of 128 bytes (256 on 7.5)
    blocks      the SM keeps track of so many and no more

The driver may also split L1 and shared memory in favour of L1; here, as in the driver's own answer, it does not.
"""

import operator
from dataclasses import dataclass

from helpers.limits import Limits
from helpers.specs import limits

RESOURCES = ("threads", "registers", "shared memory", "blocks")


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps resident on one SM. `by_*` is what each resource alone would allow, None if it is not used.

    `fraction` is warps / the most warps an SM holds; `limiter` is the scarcest resource (the first, in the order of
    RESOURCES, of `limiters`). `blocks == 0`: the kernel cannot be launched, and `reason` says why.
    """

    target: str
    threads: int
    registers: int
    shared_bytes: int
    by_threads: int
    by_registers: int | None
    by_shared: int | None
    by_blocks: int
    warps_per_block: int
    max_warps: int

    @property
    def _by_resource(self) -> dict[str, int]:
        counts = zip(RESOURCES, (self.by_threads, self.by_registers, self.by_shared, self.by_blocks), strict=True)
        return {name: count for name, count in counts if count is not None}

    @property
    def blocks(self) -> int:
        return min(self._by_resource.values())

    @property
    def warps(self) -> int:
        return self.blocks * self.warps_per_block

    @property
    def fraction(self) -> float:
        return self.warps / self.max_warps

    @property
    def limiters(self) -> tuple[str, ...]:
        return tuple(name for name, count in self._by_resource.items() if count == self.blocks)

    @property
    def limiter(self) -> str:
        return self.limiters[0]

    @property
    def reason(self) -> str:
        """One sentence: what the SM holds and which resource is the limit, or why the kernel cannot launch."""
        return _explain(self, limits(self.target))


def occupancy(target, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Occupancy of blocks of `threads` threads, each with `registers` registers, and `shared_bytes` a block.

    `target` is a compute capability ("sm_120", (12, 0), "12.0") or a GPU's name; `shared_bytes` is static and dynamic
    shared memory together. A legal kernel that no SM can hold has `.blocks == 0`. Raises ValueError for what no
    kernel can be: threads outside 1..1024, registers outside 0..255, negative or fractional numbers, an unknown target.
    """
    sm = limits(target)
    if sm.max_warps_per_sm is None:
        raise ValueError(f"the limits of {sm.target} are not known, so its occupancy is not either")
    threads = _whole("threads a block", threads, 1, sm.max_threads_per_block)
    registers = _whole("registers a thread", registers, 0, sm.max_registers_per_thread)
    shared_bytes = _whole("bytes of shared memory", shared_bytes, 0, None)

    warps = -(-threads // sm.warp_size)
    return Occupancy(
        target=sm.target, threads=threads, registers=registers, shared_bytes=shared_bytes,
        by_threads=sm.max_warps_per_sm // warps,
        by_registers=_by_registers(sm, warps, registers),
        by_shared=_by_shared(sm, shared_bytes),
        by_blocks=sm.max_blocks_per_sm,
        warps_per_block=warps, max_warps=sm.max_warps_per_sm,
    )


def short_formula(target, threads, registers, shared_bytes=0):
    """Blocks on an SM as short formulas have it: totals divided, without units, SMSPs and the reserve. Wrong in places."""
    sm = limits(target)
    by_shared = sm.shared_kib_per_sm * 1024 // shared_bytes if shared_bytes else sm.max_blocks_per_sm
    by_registers = sm.registers_per_sm // (registers * threads)
    return min(sm.max_threads_per_sm // threads, by_registers, by_shared, sm.max_blocks_per_sm)


def _by_registers(sm: Limits, warps: int, registers: int) -> int | None:
    if registers == 0:
        return None
    per_smsp = sm.registers_per_sm // sm.smsps_per_sm // registers_per_warp(sm, registers)
    return per_smsp * sm.smsps_per_sm // warps


def _by_shared(sm: Limits, shared_bytes: int) -> int | None:
    if shared_bytes == 0:
        return None  # the reserve alone fits more often than the SM has room for blocks
    return sm.shared_kib_per_sm * 1024 // shared_bytes_allocated(sm, shared_bytes)


def registers_per_warp(sm: Limits, registers: int) -> int:
    """What a warp really takes whose threads need `registers` each: whole units."""
    return round_up(registers * sm.warp_size, sm.register_granularity)


def shared_bytes_allocated(sm: Limits, shared_bytes: int) -> int:
    """What a block with `shared_bytes` bytes of its own really takes: with the system's reserve, in whole units."""
    return round_up(shared_bytes + sm.reserved_shared_kib * 1024, sm.shared_granularity_bytes)


def _explain(found: Occupancy, sm: Limits) -> str:
    warps, per_warp = found.warps_per_block, registers_per_warp(sm, found.registers)
    if found.blocks == 0:
        reasons = []
        if found.by_registers == 0:
            most = -(-warps // sm.smsps_per_sm)
            reasons.append(f"an SMSP would get {_count(most, 'warp')} of {per_warp} registers, and it has "
                           f"{sm.registers_per_sm // sm.smsps_per_sm} of the SM's {sm.registers_per_sm}")
        if found.by_shared == 0:
            reasons.append(f"{found.shared_bytes} bytes of shared memory are asked for, "
                           f"and a block may have {sm.shared_kib_per_block * 1024}")
        return f"The kernel cannot launch: {'; '.join(reasons)}."
    per_smsp = sm.registers_per_sm // sm.smsps_per_sm
    why = {
        "threads": f"{sm.max_warps_per_sm} warps at {warps} a block",
        "registers": f"{per_warp} a warp, so {per_smsp // max(per_warp, 1)} warps in each SMSP",
        "shared memory": f"{shared_bytes_allocated(sm, found.shared_bytes)} bytes a block, "
                         f"of {sm.shared_kib_per_sm * 1024}",
        "blocks": f"{sm.max_blocks_per_sm} at most",
    }
    limit = " and ".join(f"{name} ({why[name]})" for name in found.limiters)
    return (f"An SM holds {_count(found.blocks, 'block')}, {found.warps} of its {found.max_warps} warps; "
            f"the limit is {limit}.")


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _whole(what: str, value, low: int, high: int | None) -> int:
    wanted = f"{low} to {high}" if high is not None else f"{low} or more"
    try:
        number = value.item() if hasattr(value, "item") else value  # of numpy and torch: a truth value stays one
        number = None if isinstance(number, bool) else operator.index(number)
    except (TypeError, ValueError, RuntimeError):  # no whole number, or several numbers
        number = None
    if number is None or number < low or (high is not None and number > high):
        raise ValueError(f"{what} must be a whole number, {wanted}; got {value!r}")
    return number
