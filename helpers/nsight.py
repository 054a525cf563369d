"""Nsight Compute's counts of a launch, where its command line tool `ncu` is installed and allowed to count.

`count` describes launches of CUDA kernels, runs them in a process of their own under `ncu`, and reads its table.
"""

import csv
import functools
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from helpers import mode
from helpers.cuda.launch import CudaKernel

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")
METRICS = {
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
}
OCCUPANCY = {  # percent of the warp slots of an SM
    "achieved_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "theoretical_percent": "sm__maximum_warps_per_active_cycle_pct",
}


def why_not() -> str | None:
    """None if launches can be counted here, otherwise the reason in one sentence."""
    if not mode.is_live():
        return "Nsight Compute counts what a GPU does, and none is in use here"
    if shutil.which("ncu") is None:
        return "Nsight Compute's command line tool, ncu, is not installed (it comes with the CUDA toolkit)"
    return None


def count(launches, metrics=METRICS) -> list[dict[str, float]]:
    """The metrics (name -> Nsight Compute's) of each launch (kernel, grid, block, args[, shared_bytes]), in order.

    Of tensors among args only shape and dtype are kept. Raises RuntimeError, saying why, where nothing can be counted.
    """
    reason = why_not()
    if reason:
        raise RuntimeError(reason)
    described = [{"source": str(k.source), "name": k.name, "options": k.options, "grid": grid, "block": block,
                  "args": [_described(a) for a in args], "shared_bytes": shared[0] if shared else 0}
                 for k, grid, block, args, *shared in launches]
    return [dict(row) for row in _counted(json.dumps(described), tuple(metrics.items()))]


def counts_or_recorded(name: str = "nsight_counts"):
    """The table of an experiment that counts: counted here where that is possible, otherwise recorded; and the reason
    why it is not counted here, or None."""
    from helpers import measure, results

    reason = why_not()
    if reason is None:
        try:
            return measure.measure(name), None
        except RuntimeError as error:  # above all counters that only an administrator may read
            reason = str(error)
    return results.recorded(name), reason


def _described(arg):
    return {"shape": list(arg.shape), "dtype": str(arg.dtype)} if isinstance(arg, torch.Tensor) else arg


@functools.cache
def _counted(described: str, metrics) -> list[dict[str, float]]:
    names = "|".join(sorted({launch["name"] for launch in json.loads(described)}))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(described)
        file.flush()
        command = ["ncu", "--csv", "--print-units", "base", "--clock-control", "none",
                   "--metrics", ",".join(name for _, name in metrics), "--kernel-name", f"regex:^({names})$",
                   sys.executable, "-m", "helpers.nsight", file.name]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path})
    output = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in output:
        raise RuntimeError("this user may not read the GPU's counters (ERR_NVGPUCTRPERM): ask the administrator to "
                           "allow profiling for all users, see developer.nvidia.com/ERR_NVGPUCTRPERM")
    counted = parse(output, dict(metrics))
    if len(counted) != len(json.loads(described)):
        errors = [line.removeprefix("==ERROR== ") for line in output.splitlines() if line.startswith("==ERROR==")]
        raise RuntimeError(f"ncu counted {len(counted)} launches of {len(json.loads(described))}: "
                           + (" ".join(errors[:2]) or output[-500:]))
    return counted


def parse(output: str, metrics=METRICS) -> list[dict[str, float]]:
    """The metrics of each launch in ncu's CSV output, in order; whole numbers as int. Raises RuntimeError for one that the
    GPU does not have."""
    short = {metric: name for name, metric in metrics.items()}
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    by_launch = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if row.get("Metric Name") in short:
            text = row["Metric Value"].replace(",", "")
            if not NUMBER.fullmatch(text):  # n/a, nan
                raise RuntimeError(f"ncu counts no {row['Metric Name']} on this GPU: it says {row['Metric Value']!r}")
            value = float(text)
            value = int(value) if value.is_integer() else value
            by_launch.setdefault(int(row["ID"]), {})[short[row["Metric Name"]]] = value
    return [by_launch[i] for i in sorted(by_launch)]


def launch_all(described: list[dict]) -> None:
    """What runs under ncu: each launch once, on zeros."""
    for launch in described:
        args = [torch.zeros(a["shape"], dtype=getattr(torch, a["dtype"].removeprefix("torch.")), device="cuda")
                if isinstance(a, dict) else a for a in launch["args"]]
        grid, block = (tuple(s) if isinstance(s, list) else s for s in (launch["grid"], launch["block"]))
        kernel = CudaKernel(launch["source"], launch["name"], launch["options"])
        kernel.launch(grid, block, *args, shared_bytes=launch["shared_bytes"])
    torch.cuda.synchronize()


if __name__ == "__main__":
    launch_all(json.loads(Path(sys.argv[1]).read_text()))
