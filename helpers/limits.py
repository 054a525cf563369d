"""What one SM of a compute capability can hold at a time. The numbers stand in `data/gpus.toml`."""

import functools
from dataclasses import dataclass

from helpers.facts import Fact, capabilities, cc_key, gpu_table


@dataclass(frozen=True)
class Limits:
    """What one SM of a compute capability can hold. Sources: CUDA Programming Guide tables 30-33, cuda_occupancy.h."""

    cc: tuple[int, int]
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    shared_kib_per_sm: int
    shared_kib_per_block: int
    unified_cache_kib: int
    reserved_shared_kib: int
    shared_granularity_bytes: int
    shared_choices_kib: tuple[int, ...]
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_granularity: int
    smsps_per_sm: int
    max_threads_per_block: int
    warp_size: int
    shared_banks: int
    static_shared_kib_per_block: int
    constant_kib: int
    local_kib_per_thread: int
    fp32_cores_per_sm: int | None
    tensor_cores_per_sm: int | None
    sfus_per_smsp: int | None
    load_store_units_per_smsp: int | None
    tensor_memory_kib_per_sm: int | None
    l1_bytes_per_cycle: int | None

    @property
    def target(self) -> str:
        """The compiler's name: "sm_120"."""
        return f"sm_{self.cc[0]}{self.cc[1]}"

    @property
    def max_warps_per_smsp(self) -> int | None:
        return None if self.max_warps_per_sm is None else self.max_warps_per_sm // self.smsps_per_sm

    @property
    def registers_kib_per_sm(self) -> int | None:
        """Size of the register file of an SM in KiB (4 bytes a register)."""
        return None if self.registers_per_sm is None else self.registers_per_sm * 4 // 1024

    @property
    def fp32_lanes_per_smsp(self) -> int | None:
        return None if self.fp32_cores_per_sm is None else self.fp32_cores_per_sm // self.smsps_per_sm

    @property
    def registers_at_full_occupancy(self) -> int | None:
        """The most registers a thread may use while every warp slot of the SM is taken."""
        if self.max_warps_per_sm is None:
            return None
        per_warp = self.registers_per_sm // self.max_warps_per_sm
        return per_warp // self.register_granularity * self.register_granularity // self.warp_size

    def fact(self, name: str) -> Fact | None:
        """A limit with its source, None where it is not known. Raises ValueError for an unknown name."""
        row = gpu_table()["limits"].get(name)
        if row is None:
            raise ValueError(f"no limit {name!r}; there are {', '.join(gpu_table()['limits'])}")
        value = getattr(self, name)
        return None if value is None else Fact(value, row["source"], row["status"], row.get("note", ""))


@functools.cache
def limits_of(cc: tuple[int, int]) -> Limits:
    """The limits of a compute capability; all of them None if it is not in the table, as of a GPU newer than it."""
    values = {}
    for name, row in gpu_table()["limits"].items():
        value = row["value"]
        if isinstance(value, dict):
            value = value.get(cc_key(cc))
        elif cc_key(cc) not in capabilities():
            value = None
        values[name] = tuple(value) if isinstance(value, list) else value
    return Limits(cc=cc, **values)
