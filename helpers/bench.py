"""`make bench`: the course's kernels beside their peers: torch, torch.compile, cuBLAS, and Liger's softmax where it is installed.

Measured now on this machine's GPU; without one the recorded numbers are compared.
"""

import importlib.util

from helpers import evidence
from helpers.lesson.table import table
from helpers.measure import measure

PEERS = ("torch", "torch.compile", "cuBLAS", "Liger")
OURS = {  # experiment -> the course's variants, the first that a case has is compared
    "gelu_odd_length": ("gelu",),
    "softmax_versions": ("softmax", "online_softmax"),
    "row_sum_rows": ("row_sum",),
    "matmul_ladder": ("ieee",),
}


def liger_softmax():
    """Liger's softmax, or None where the package is not installed (it is none of the pins)."""
    if importlib.util.find_spec("liger_kernel") is None:
        return None
    return importlib.import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction.apply


def compared(name: str, measured) -> list[dict]:
    """One row a case of an experiment: the course's time, the fastest peer and its time, peer time / our time."""
    parameters = list(measured.columns[2 : measured.columns.get_loc("time_us")])
    rows = []
    for case, group in measured.replace({"variant": {"yours": "Liger"}}).groupby(parameters, sort=False, dropna=False):
        times = group.set_index("variant")["time_us"]
        ours = next((variant for variant in OURS[name] if variant in times), None)
        peers = times[[variant for variant in PEERS if variant in times]]
        if ours is None or peers.empty:
            continue
        best = peers.idxmin()
        rows.append({"experiment": name, "case": ", ".join(f"{p} {v}" for p, v in zip(parameters, case, strict=True)), "ours": ours,
                     "ours (µs)": times[ours], "fastest peer": best, "peer (µs)": peers[best], "peer / ours": peers[best] / times[ours]})
    return rows


def main() -> None:
    rows, sources = [], []
    for name in OURS:
        measured = measure(name, yours=liger_softmax() if name == "softmax_versions" else None)
        sources.append(evidence.evidence_of(measured).line())
        rows += compared(name, measured)
    print(table(rows, caption="The course's kernels and the fastest of their peers", evidence=" | ".join(dict.fromkeys(sources))))


if __name__ == "__main__":
    main()
