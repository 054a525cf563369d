"""What a run counted, per instruction and in total, also under Nsight Compute's metric names."""

from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd

MEASURES = ("executed", "lanes", "requests", "sectors", "bytes", "wavefronts", "conflicts", "divergent")


@dataclass
class Count:
    """Counts of one PTX instruction over all warps of a run."""

    text: str
    line: int
    source_line: int | None
    kind: str = "arithmetic"  # or "global load", "shared store", "branch", "warp", "barrier", ...
    executed: int = 0  # by a warp
    lanes: int = 0  # active lanes, summed
    requests: int = 0  # executions that touched memory
    sectors: int = 0  # 32-byte sectors they touched, for global and local memory
    bytes: int = 0  # that lanes asked for
    wavefronts: int = 0  # passes through shared memory
    conflicts: int = 0  # passes beyond the fewest that a full warp needs
    divergent: int = 0  # executions of a branch that split a warp

    @property
    def sectors_per_request(self) -> float | None:
        return self.sectors / self.requests if self.requests and self.sectors else None


@dataclass
class Access:
    """What the lanes of a warp touched in one step."""

    space: str  # "global", "shared" or "local"
    where: str  # "argument 0", "shared memory", ...
    offsets: np.ndarray  # (32,) bytes from its start; of lanes that are not active, anything
    size: int  # bytes a lane
    cost: int  # sectors, or passes through shared memory


@dataclass
class TraceStep:
    """One instruction of the traced warp. Values are those after it ran."""

    text: str
    line: int
    source_line: int | None
    active: np.ndarray  # (32,) which lanes ran it
    registers: dict[str, np.ndarray]  # (32,) each
    access: Access | None = None


@dataclass
class Report:
    """The counts of a run. `counts[i]` belongs to instruction i of the PTX."""

    kernel: str
    source_file: str | None
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counts: list[Count] = field(repr=False)
    trace: list[TraceStep] = field(default_factory=list, repr=False)
    races: list[str] = field(default_factory=list)
    printed: str = field(default="", repr=False)

    def _sum(self, measure: str) -> int:
        return sum(getattr(c, measure) for c in self.counts)

    @property
    def instructions(self) -> int:
        """PTX instructions that warps executed. The GPU's own count is of machine instructions, which differ."""
        return self._sum("executed")

    @property
    def requests(self) -> int:
        """Accesses of warps to global memory: loads, stores, atomics, asynchronous copies."""
        return sum(c.requests for c in self.counts if c.kind.startswith("global"))

    @property
    def sectors(self) -> int:
        """32-byte sectors that these requests touched, each counted once a request."""
        return sum(c.sectors for c in self.counts if c.kind.startswith("global"))

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Passes through shared memory that exist only because lanes wanted different words of one bank."""
        return self._sum("conflicts")

    @property
    def divergent_branches(self) -> int:
        """Executions of a branch by a warp whose lanes then went different ways."""
        return self._sum("divergent")

    @property
    def efficiency(self) -> float:
        """Bytes that lanes asked for in global memory, over the bytes of the sectors they touched."""
        asked = sum(c.bytes for c in self.counts if c.kind.startswith("global"))
        return asked / (32 * self.sectors) if self.sectors else 1.0

    def of(self, kind: str) -> Count:
        """All instructions of a kind ("global load", "shared store", "local load", ...) added up."""
        total = Count(kind, 0, None, kind)
        for c in self.counts:
            if c.kind == kind:
                for measure in MEASURES:
                    setattr(total, measure, getattr(total, measure) + getattr(c, measure))
        return total

    def table(self) -> pd.DataFrame:
        """One row for each instruction that ran, in the order of the PTX."""
        rows = [vars(c) | {"sectors_per_request": c.sectors_per_request} for c in self.counts if c.executed]
        names = [f.name for f in fields(Count)]
        table = pd.DataFrame(rows, columns=[*names, "sectors_per_request"])
        return table.astype({"source_line": "Int64"})

    def by_kind(self) -> pd.DataFrame:
        """One row for each kind of instruction."""
        kinds = dict.fromkeys(c.kind for c in self.counts if c.executed)
        return pd.DataFrame([{"kind": kind} | {m: getattr(self.of(kind), m) for m in MEASURES} for kind in kinds])

    def summary(self) -> pd.Series:
        """Totals under the names that Nsight Compute gives them (`ncu --metrics`), counted as it does on an H200.

        There, asynchronous copies are among the loads, and reductions have no sectors (tests/test_simt_counts.py).
        """
        out = {}
        for name, *kinds in (("global_op_ld", "global load", "global async copy"), ("global_op_st", "global store"),
                             ("global_op_atom", "global atomic"), ("global_op_red", "global reduction"),
                             ("local_op_ld", "local load"), ("local_op_st", "local store")):
            counts = [self.of(kind) for kind in kinds]
            out[f"l1tex__t_requests_pipe_lsu_mem_{name}.sum"] = sum(c.requests for c in counts)
            if name != "global_op_red":
                out[f"l1tex__t_sectors_pipe_lsu_mem_{name}.sum"] = sum(c.sectors for c in counts)
        for kind, name in (("shared load", "ld"), ("shared store", "st")):
            count = self.of(kind)
            out[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{name}.sum"] = count.conflicts
            out[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{name}.sum"] = count.wavefronts
        return pd.Series(out, name=self.kernel)
