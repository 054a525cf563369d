"""How a number is known: one of six kinds, always with a machine and a date."""

import datetime
import platform
from dataclasses import dataclass, replace

KINDS = {
    "live": "measured now on this machine's GPU",
    "recorded": "measured earlier on the named GPU and shipped with the course",
    "published": "quoted from the named source",
    "compiled": "read from the real compiler's output for the named target",
    "interpreted": "the kernel really run, on the CPU; values and counts, never times",
    "simulated": "computed by the named model",
}
TRITON_INTERPRETER = "Triton interpreter"


@dataclass(frozen=True)
class Evidence:
    """`kind` out of KINDS, the `machine` it comes from, an ISO `date`, and `detail` (versions, target, model)."""

    kind: str
    machine: str
    date: str
    detail: str = ""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"evidence must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if not self.machine or not self.date:
            raise ValueError("evidence needs a machine and a date")

    def line(self) -> str:
        """The line shown under every figure and table."""
        return " · ".join(part for part in (self.kind, self.detail, self.machine, self.date) if part)


def today() -> str:
    return datetime.date.today().isoformat()


def this_machine() -> str:
    return f"this computer ({platform.machine()} CPU)"


def compiled_here(target: str, compiler: str) -> Evidence:
    """Evidence for compiler output produced on this machine, e.g. compiled_here("sm_120", "Triton 3.7.1")."""
    return Evidence("compiled", this_machine(), today(), f"for {target} by {compiler}")


def compiled_together(results) -> Evidence:
    """Evidence of what several results of compile_kernel or compile_cuda show together: it names all of their targets."""
    results = list(results)
    targets = ", ".join(dict.fromkeys(result.target for result in results))
    one = min(results, key=lambda result: result.shipped)  # not "shipped" where some were compiled here
    return replace(one.evidence, detail=one.evidence.detail.replace(one.target, targets, 1))


def interpreted_here(by: str = TRITON_INTERPRETER) -> Evidence:
    """Evidence for values that `by` computed here; where Triton is missing, torch stands in for its interpreter."""
    from helpers import mode, no_triton  # mode imports torch, which evidence alone does not need

    if by == TRITON_INTERPRETER and not mode.has_triton():
        return simulated(f"torch in place of the kernel ({no_triton.MISSING})")
    return Evidence("interpreted", this_machine(), today(), by)


def ran_here(by: str = TRITON_INTERPRETER) -> Evidence:
    """Evidence for values of a kernel that just ran: live on the GPU in use, otherwise as `interpreted_here(by)`."""
    from helpers import mode

    if not mode.is_live():
        return interpreted_here(by)
    import torch

    return Evidence("live", torch.cuda.get_device_name(), today())


def simulated(model: str) -> Evidence:
    """Evidence for a model's output; `model` names it in a few words."""
    return Evidence("simulated", this_machine(), today(), model)


def evidence_of(table) -> Evidence:
    """The evidence of a table of `helpers.measure` or `helpers.results`, which must be of one kind and machine.

    Raises ValueError for a table without evidence columns or of mixed kinds; of several dates the range is shown, of
    several versions all.
    """
    missing = {"evidence", "machine", "date", "versions"} - set(table.columns)
    if missing or len(table) == 0:
        raise ValueError(f"no evidence in this table: {'it is empty' if not missing else f'columns {missing} missing'}")
    kinds, machines = set(table["evidence"]), set(table["machine"])
    if len(kinds) > 1 or len(machines) > 1:
        raise ValueError(f"mixed evidence: {sorted(kinds)} from {sorted(machines)}; show each on its own")
    dates = sorted(set(table["date"]))
    date = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return Evidence(kinds.pop(), machines.pop(), date, "; ".join(dict.fromkeys(table["versions"])))
