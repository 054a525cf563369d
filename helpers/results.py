"""Recorded results (`data/recorded/<gpu>.json`) and published ones (`data/published.toml`), as tidy tables.

A recording keeps raw samples; medians and rates are derived again whenever it is read, so that no stored summary can
disagree with its samples.
"""

import functools
import json
import re
import tomllib
from pathlib import Path

import pandas as pd

from helpers import specs
from helpers.files import write_whole
from helpers.samples import NOT_TIMED, row_of

DATA = Path(__file__).parent / "data"
RECORDED = DATA / "recorded"
DEFAULT_MACHINE = "nvidia_h200"
STAMP = ("evidence", "machine", "date", "versions")


def machine_slug(name: str) -> str:
    """File name of a GPU's recording: "NVIDIA H200" -> "nvidia_h200"."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


@functools.cache
def load(machine: str = DEFAULT_MACHINE) -> dict:
    """The parsed recording of a GPU, found by any of its names ("nvidia_h200", "NVIDIA H200", "H200 SXM").

    Raises ValueError for a GPU without one, listing those there are, and for a damaged file.
    """
    path = _path_of(str(machine))
    if path is None:
        known = ", ".join(sorted(p.stem for p in RECORDED.glob("*.json"))) or "none yet"
        raise ValueError(f"no recording of {machine!r}; there are: {known}")
    return parse(path)


def parse(path: Path) -> dict:
    """The recording in a file. Raises ValueError for one that is damaged or something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"{path.name} is damaged: {error}; make record writes it again") from None
    problem = _problem(data)
    if problem:
        raise ValueError(f"{path.name} is no recording: {problem}; make record writes it again")
    return data


def _problem(data) -> str | None:
    """What keeps parsed JSON from being a recording, of an older course or another program; None if nothing does."""
    lacking = _lacking(data, "experiments", "machine")
    if lacking:
        return f"it has no {lacking}"
    if not isinstance(data["experiments"], dict) or _lacking(data["machine"], "name"):
        return "its machine or its experiments have no names"
    for name, entry in data["experiments"].items():
        lacking = _lacking(entry, "date", "rows", "versions_line")
        if lacking or not isinstance(entry["rows"], list):
            return f"{name} has no {lacking or 'list of rows'}"
        for number, row in enumerate(entry["rows"], 1):
            lacking = _lacking(row, "case", "variant") or row.get("samples_us") and _lacking(row, "flops", "traffic_bytes")
            if not lacking and not row.get("samples_us") and not row.get("values"):
                lacking = "samples and no values"
            if lacking:
                return f"row {number} of {name} has no {lacking}"
    return None


def _lacking(found, *names: str) -> str:
    return ", ".join(name for name in names if not isinstance(found, dict) or name not in found)


def _path_of(machine: str) -> Path | None:
    path = RECORDED / f"{machine_slug(machine)}.json"
    if path.exists():
        return path
    return next((p for p in sorted(RECORDED.glob("*.json")) if specs.same_product(p.stem, machine)), None)


def gpu_of(recording: dict) -> specs.Gpu:
    """The GPU that was measured: as the fact sheet has it, or else as its driver described it, with unknown peaks."""
    machine = recording["machine"]
    if _lacking(machine, "compute_capability", "sm_count", "memory_bytes", "l2_bytes"):
        return specs.gpu(machine["name"])
    major, minor = machine["compute_capability"].split(".")
    return specs.from_driver(machine["name"], (int(major), int(minor)), machine["sm_count"], machine["memory_bytes"],
                             machine["l2_bytes"])


def save(data: dict, path: Path) -> None:
    """Write a recording whole or not at all. Raises ValueError for what could not be read again, as a number that JSON cannot hold."""
    problem = _problem(data)
    if problem:
        raise ValueError(f"this is no recording: {problem}")
    write_whole(path, _dump(data).encode())
    load.cache_clear()


def _dump(data: dict) -> str:
    """One line a row: small, and a difference between two recordings can be read."""
    try:
        experiments = data["experiments"]
        head = {key: value for key, value in data.items() if key != "experiments"}
        lines = [json.dumps(head, allow_nan=False)[:-1] + (", " if head else "") + '"experiments": {']
        for i, (name, entry) in enumerate(sorted(experiments.items())):
            stamp = {key: value for key, value in entry.items() if key != "rows"}
            lines.append(f"{json.dumps(name)}: {json.dumps(stamp, allow_nan=False)[:-1]}, \"rows\": [")
            lines.append(",\n".join(json.dumps(row, allow_nan=False) for row in entry["rows"]))
            lines.append("]}" + ("," if i + 1 < len(experiments) else ""))
        return "\n".join([*lines, "}}", ""])
    except ValueError as error:
        raise ValueError(f"a recording must hold finite numbers only: {error}") from None


def _refuse_constant(text: str):
    raise ValueError(f"{text} in a recording: numbers must be finite")


def recorded(name: str, *, variants=None, machine: str = DEFAULT_MACHINE, **parameters) -> pd.DataFrame:
    """The recorded rows of one experiment, with the columns of `helpers.measure.measure`.

    Raises ValueError if the experiment, a variant or a parameter value was not recorded, saying what was.
    """
    data = load(machine)
    entry = data["experiments"].get(name)
    if entry is None:
        raise ValueError(f"{name!r} is not recorded for {data['machine']['name']}; recorded: "
                         f"{', '.join(sorted(data['experiments']))}")
    spec = gpu_of(data)
    wanted = None if variants is None else [variants] if isinstance(variants, str) else list(variants)
    stored = entry["rows"]
    known = list(dict.fromkeys(row["variant"] for row in stored))
    if wanted is not None and set(wanted) - set(known):
        raise ValueError(f"{name}: variant {sorted(set(wanted) - set(known))} is not recorded; recorded: {known}")
    kept = select_cases(name, [row["case"] for row in stored], parameters)
    rows = []
    for row in stored:
        if row["case"] not in kept or (wanted is not None and row["variant"] not in wanted):
            continue
        out = {"experiment": name, "variant": row["variant"], **row["case"], **NOT_TIMED}
        if row.get("samples_us"):
            out |= row_of(row["samples_us"], row["traffic_bytes"], row["flops"], spec)
            out["flags"] = ", ".join(dict.fromkeys(filter(None, [out["flags"], row.get("flags", "")])))
        out |= row.get("values", {})
        out |= {"evidence": "recorded", "machine": data["machine"]["name"], "date": entry["date"],
                "versions": entry["versions_line"]}
        rows.append(out)
    if not rows:
        raise ValueError(f"{name}: variants {wanted} were not recorded for {parameters}")
    return pd.DataFrame(rows)


def recorded_row(name: str, variant: str, *, machine: str = DEFAULT_MACHINE, **parameters) -> pd.Series:
    """The one recorded row of a variant in a case. Raises ValueError too if the parameters leave several."""
    rows = recorded(name, variants=variant, machine=machine, **parameters)
    if len(rows) != 1:
        raise ValueError(f"{name}, {variant}, {parameters}: {len(rows)} rows, where one was asked for; give more parameters")
    return rows.iloc[0]


def select_cases(name: str, cases: list[dict], parameters: dict) -> list[dict]:
    """The cases whose parameters have the wanted values (a value or a list of values).

    Raises ValueError for an unknown parameter or a value that no case has.
    """
    kept = list({json.dumps(case, sort_keys=True): case for case in cases}.values())
    for key, value in parameters.items():
        value = value.tolist() if hasattr(value, "tolist") else value  # of numpy and pandas
        wanted = list(value) if isinstance(value, list | tuple | set | range) else [value]
        there = list(dict.fromkeys(case[key] for case in cases if key in case))
        if not there:
            known = sorted({k for case in cases for k in case})
            raise ValueError(f"{name} has no parameter {key!r}; it has {', '.join(known) or 'none'}")
        missing = [v for v in wanted if v not in there]
        if missing:
            raise ValueError(f"{name}: no case with {key} = {missing}; there are {there}")
        kept = [case for case in kept if case.get(key) in wanted]
    if not kept:
        raise ValueError(f"{name}: no case has {parameters} together")
    return kept


@functools.cache
def published_all() -> dict[str, dict]:
    """Every published number by id, as written in `data/published.toml`."""
    entries = tomllib.loads((DATA / "published.toml").read_text(encoding="utf-8"))["result"]
    by_id = {entry["id"]: entry for entry in entries}
    if len(by_id) != len(entries):
        raise ValueError("published.toml holds one id twice")
    return by_id


@functools.cache
def published_sources() -> dict[str, dict]:
    """Title and place of every source that published numbers name."""
    return tomllib.loads((DATA / "published.toml").read_text(encoding="utf-8"))["sources"]


def published(id: str) -> dict:
    """One published result. Raises ValueError listing the ids there are."""
    if id not in published_all():
        raise ValueError(f"nothing published under {id!r}; there are {', '.join(published_all())}")
    return published_all()[id]
