"""What a run counted, per instruction and in total, also under Nsight Compute's metric names."""

from dataclasses import dataclass, field

import pandas as pd


@dataclass
class Count:
    """Counts of one PTX instruction over all warps of a run."""

    text: str
    line: int
    source_line: int | None
    kind: str = "other"
    executed: int = 0  # warp instructions
    lanes: int = 0  # active lanes, summed
    requests: int = 0  # warp accesses to global memory
    sectors: int = 0  # 32-byte sectors they touched
    bytes: int = 0  # that lanes asked for
    wavefronts: int = 0  # passes through shared memory
    conflicts: int = 0  # passes beyond the fewest possible
    divergent: int = 0  # branches that split a warp


@dataclass
class Report:
    """The counts of a run. `counts[i]` belongs to instruction i of the PTX."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counts: list[Count] = field(repr=False)
    trace: list | None = field(default=None, repr=False)

    def _sum(self, what: str, *kinds: str) -> int:
        return sum(getattr(c, what) for c in self.counts if not kinds or c.kind in kinds)

    @property
    def instructions(self) -> int:
        """Executed warp instructions."""
        return self._sum("executed")

    @property
    def requests(self) -> int:
        """Warp-wide accesses to global memory, loads and stores."""
        return self._sum("requests")

    @property
    def sectors(self) -> int:
        """32-byte sectors that these requests touched."""
        return self._sum("sectors")

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Passes through shared memory beyond one a request (two for 8-byte, four for 16-byte accesses)."""
        return self._sum("conflicts")

    @property
    def divergent_branches(self) -> int:
        return self._sum("divergent")

    @property
    def efficiency(self) -> float:
        """Bytes that lanes asked for over the bytes of the sectors that were moved for global memory."""
        asked = self._sum("bytes", "global load", "global store", "global atomic")
        return asked / (32 * self.sectors) if self.sectors else 1.0

    def of(self, kind: str) -> Count:
        """All instructions of a kind ("global load", "shared store", ...) added up."""
        total = Count(kind, 0, None, kind)
        for c in self.counts:
            if c.kind == kind:
                for name in list(vars(c))[4:]:  # all that is counted
                    setattr(total, name, getattr(total, name) + getattr(c, name))
        return total

    def table(self) -> pd.DataFrame:
        """One row for each instruction that ran."""
        rows = [vars(c) | {"sectors_per_request": c.sectors / c.requests if c.requests else None}
                for c in self.counts if c.executed]
        return pd.DataFrame(rows)

    def summary(self) -> dict[str, float]:
        """Totals under the names that Nsight Compute gives them."""
        load, store = self.of("global load"), self.of("global store")
        shared_load, shared_store = self.of("shared load"), self.of("shared store")
        return {
            "smsp__inst_executed.sum": self.instructions,
            "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": load.requests,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": load.sectors,
            "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": store.requests,
            "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": store.sectors,
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": shared_load.conflicts,
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": shared_store.conflicts,
        }
