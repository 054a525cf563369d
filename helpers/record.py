"""`make record`: run every experiment on this machine's GPU and keep the raw samples.

    python -m helpers.record                    everything
    python -m helpers.record gelu_sizes ...     only these; the others stay as they were recorded
    python -m helpers.record --lesson 03_gelu   one lesson's

The file is rewritten after each experiment, so an interruption loses at most one; an experiment that fails keeps its
earlier recording, is reported, and makes the command exit with 1.
"""

import argparse
import math
import os
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

import torch

from helpers import evidence, measure, mode, results, specs
from helpers.experiments import experiment
from helpers.samples import MEASURED


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m helpers.record", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="experiments (default: all)")
    parser.add_argument("--lesson", help="all experiments of one lesson")
    parser.add_argument("--out", type=Path, default=results.RECORDED, help="folder of recordings")
    options = parser.parse_args(arguments)
    if not mode.is_live():
        print(f"make record needs a GPU: {mode.usable_gpu() or 'COURSE_EVIDENCE=recorded is set'}.")
        return 1
    known = experiment.all_experiments()
    unknown = set(options.names) - set(known)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}. There are: {', '.join(sorted(known))}")
        return 2
    lessons = sorted({e.lesson for e in known.values()})
    if options.lesson is not None and options.lesson not in lessons:
        print(f"no experiments of a lesson {options.lesson!r}. There are those of: {', '.join(lessons)}")
        return 2
    names = options.names or [n for n, e in known.items() if options.lesson in (None, e.lesson)]
    path = options.out / f"{results.machine_slug(measure.machine_name())}.json"
    data = earlier(path if path.exists() else results.RECORDED / path.name) | {"machine": machine_facts()}
    failed = []
    for name in names:
        began = time.monotonic()
        try:
            entry = entry_of(name)
            more = data | {"experiments": data["experiments"] | {name: entry}}
            results.save(more, path)
            data = more  # only now: what cannot be saved would take all that follow along
            print(f"{name}: {len(entry['rows'])} rows, {time.monotonic() - began:.0f} s", flush=True)
        except Exception:
            failed.append(name)
            print(f"{name} FAILED, its earlier recording stays\n{traceback.format_exc()}", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def earlier(path: Path) -> dict:
    """The recording to go on with; an empty one where there is none, or none that can be read."""
    if not path.exists():
        return {"experiments": {}}
    try:
        return results.parse(path)
    except ValueError as error:
        kept = path.with_suffix(".damaged")
        path.replace(kept)
        print(f"{error}. It is now {kept.name}, and a new recording begins.", flush=True)
        return {"experiments": {}}


def entry_of(name: str) -> dict:
    """Measure one experiment and shape it for the file: per row the case, raw samples, bytes, FLOPs and values."""
    before = measure.clocks()
    table = measure.run_experiment(name, progress=False)
    measured = {*MEASURED, "experiment", "variant", *results.STAMP}
    parameters = {key for case in experiment.get(name).cases(specs.gpu()) for key in case}
    rows = []
    for record in table.to_dict("records"):
        case = {k: plain(record[k]) for k in sorted(parameters) if _has(record, k)}
        row = {"variant": record["variant"], "case": case}
        if _has(record, "samples"):
            row |= {"samples_us": record["samples"], "traffic_bytes": int(record["traffic_bytes"]),
                    "flops": int(record["flops"])}
            kept = [flag for flag in record["flags"].split(", ") if flag == "shared GPU"]  # the rest is derived anew
            row |= {"flags": kept[0]} if kept else {}
        values = {k: plain(v) for k, v in record.items() if k not in measured | parameters and _has(record, k)}
        rows.append(row | ({"values": values} if values else {}))
    return {"date": evidence.today(), "commit": commit(), "versions": measure.versions(),
            "versions_line": measure.versions_line(), "clocks_before": before, "clocks_after": measure.clocks(),
            "rows": rows}


def _has(record: dict, key: str) -> bool:
    value = record.get(key)
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def plain(value):
    """A value as JSON knows it: numpy and torch scalars become numbers; integral floats of a case become ints."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def machine_facts() -> dict:
    p = torch.cuda.get_device_properties()
    return {"name": p.name, "compute_capability": f"{p.major}.{p.minor}", "sm_count": p.multi_processor_count,
            "memory_bytes": p.total_memory, "l2_bytes": p.L2_cache_size}


def commit() -> str:
    """The commit that measured: from git, or COURSE_COMMIT where the checkout travelled without its history, or "unknown"."""
    given = os.environ.get("COURSE_COMMIT")
    if given:
        return given
    if shutil.which("git") is None:  # as in many containers
        return "unknown"
    done = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True,
                          cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
