"""Published beside yours: one row a published number, with what was recorded, what is live, and a verdict in words."""

import math
import numbers

import pandas as pd

from helpers import mode, results, specs
from helpers.evidence import today
from helpers.lesson.table import Table, table

CLOSE = 0.15  # within this, a value is what the difference between the machines predicts
QUANTITIES = {"fraction_of_fp32_peak": ", share of the FP32 peak", "max_error": ", largest error"}  # times and rates have units


def compare(lesson: str, *tables: pd.DataFrame, computed: dict | None = None, evidence=None) -> Table:
    """The published numbers of a lesson beside recorded and live ones.

    `tables` are what `measure` returned in this session; their live rows fill the live column. `computed` holds values
    of published ids that no clock measures (instruction counts, occupancy, ratios), computed in the lesson, whose
    `evidence` is given with them, or a list where they are of several kinds. Numbers without a counterpart are left
    out, unless none has one. Raises ValueError for a computed id that was not published for this lesson, and for a
    computed value that is no finite number.
    """
    entries = [e for e in results.published_all().values() if e["lesson"] == lesson]
    computed = computed or {}
    unknown = set(computed) - {e["id"] for e in entries}
    if unknown or not entries:
        raise ValueError(f"nothing published in {lesson} under {sorted(unknown) or 'any id'}")
    wrong = {id: v for id, v in computed.items() if v is not None and not (isinstance(v, numbers.Real) and math.isfinite(v))}
    if wrong:
        raise ValueError(f"computed values must be finite numbers, got {wrong}")
    recording = results.load()
    here = recording["machine"]["name"]
    rows, conditions = [], []
    for entry in entries:
        recorded = recorded_value(entry, here)
        live = live_value(entry, tables)
        value = computed.get(entry["id"])
        shown = value if value is not None else live if live is not None else recorded
        if shown is None:
            continue
        machine = None if value is not None else specs.gpu() if live is not None else results.gpu_of(recording)
        expected = expectation(entry, machine)
        row = {"what": describe(entry) + mark(entry, conditions), f"published ({entry['machine']})": printed(entry)}
        if recorded is not None or live is not None:
            row |= {f"recorded ({here})": recorded, "live": live}
        if value is not None:
            row |= {"computed here": value}
        rows.append(row | {"ratio": shown / middle(entry) if middle(entry) else None, "expected": expected,
                           "verdict": verdict(shown, entry, expected)})
    if not rows:
        rows = [{"what": describe(entry), f"published ({entry['machine']})": printed(entry), "verdict": "nothing here compares"}
                for entry in entries]
    order = ["what", *sorted({c for row in rows for c in row if c.startswith(("published", "recorded"))}), "live", "computed here",
             "ratio", "expected", "verdict"]
    data = pd.DataFrame(rows).reindex(columns=order).dropna(axis=1, how="all")
    lines = [f"published · {title_of(entries[0]['source'])}"]
    if any(c.startswith("recorded") for c in data.columns):
        lines.append(f"recorded · {here} · {', '.join(dates(entries))}")
    if "live" in data.columns:
        lines.append(f"live · {specs.gpu().name} · {today()}")
    if evidence is not None:
        lines += dict.fromkeys(e.line() if hasattr(e, "line") else e for e in (evidence if isinstance(evidence, list) else [evidence]))
    lines += [f"[{number}] {condition}" for number, condition in enumerate(conditions, 1)]
    return table(data, caption="Published, recorded and yours", evidence="\n".join(lines))


def case_on(entry: dict, spec) -> dict:
    """The published case as it is on another GPU: rows = "64 * sm_count" follows that GPU's SM count."""
    params = dict(entry.get("params", {}))
    for name, formula in entry.get("elsewhere", {}).items():
        params[name] = eval(formula, {"__builtins__": {}}, {"sm_count": spec.sm_count}) if isinstance(
            formula, str) else formula
    return params


def recorded_value(entry: dict, machine: str) -> float | None:
    """The recorded counterpart of a published number, or None where this course measures nothing comparable."""
    if "experiment" not in entry:
        return None
    spec = results.gpu_of(results.load(machine))
    row = results.recorded_row(entry["experiment"], entry["variant"], machine=machine, **case_on(entry, spec))
    return quantity(entry, row, spec)


def live_value(entry: dict, tables) -> float | None:
    """The live counterpart, from the tables measured in this session; None where none of them holds it."""
    if "experiment" not in entry or not mode.is_live():
        return None
    spec = specs.gpu()
    wanted = {"experiment": entry["experiment"], "variant": entry["variant"], "evidence": "live"} | case_on(entry, spec)
    for measured in tables:
        if set(wanted) <= set(measured.columns):
            rows = measured[(measured[list(wanted)] == pd.Series(wanted)).all(axis=1)]
            if len(rows):
                return quantity(entry, rows.iloc[0], spec)
    return None


def quantity(entry: dict, row, spec) -> float | None:
    """The published quantity of a measured row; fractions are of the datasheet's FP32 peak."""
    if entry["quantity"] == "fraction_of_fp32_peak":
        return row["tflops"] / spec.fp32_tflops if spec.fp32_tflops else None
    return row[entry["quantity"]]


def expectation(entry: dict, spec) -> float | None:
    """The published value scaled to another GPU by what bounds it; None where the machines' data predict nothing."""
    value = middle(entry)
    if spec is None or value is None:
        return value
    there = specs.gpu(entry["machine"])
    if entry["quantity"] == "fraction_of_fp32_peak" or "bound" not in entry:  # an error or a count is no matter of speed
        return value
    factor = {"memory": ("bandwidth_gb_per_s",), "compute": ("fp32_tflops",)}.get(entry.get("bound"))
    if factor is None:
        return None
    ours, theirs = getattr(spec, factor[0]), getattr(there, factor[0])
    if not ours or not theirs:
        return None
    if entry["quantity"] == "time_us":
        return value * size(case_on(entry, spec)) / size(entry.get("params", {})) * theirs / ours
    return value * ours / theirs


def size(params: dict) -> int:
    """Elements of a case: times scale with it where rows follow the SM count."""
    product = 1
    for name in ("rows", "cols", "n"):
        product *= params.get(name, 1)
    return product


def verdict(shown, entry: dict, expected) -> str:
    if "bound" not in entry:  # counted, or an error: the same on every machine
        near = CLOSE if "experiment" in entry else 0.02
        return "as published" if abs(shown - expected) <= near * abs(expected) else f"{shown / expected:.2g} times the published"
    if expected is None:
        return "bound by latency: datasheets predict nothing" if entry["bound"] == "latency" else "no datasheet to predict from"
    factor = shown / expected
    if abs(factor - 1) <= CLOSE:
        return "as the machines' data predict"
    better = (factor < 1) == (entry["quantity"] == "time_us")
    return f"{factor:.2g} times what the machines' data predict: {'better' if better else 'worse'}"


def describe(entry: dict) -> str:
    params = ", ".join(f"{name} {value}" for name, value in entry.get("params", {}).items())
    what = entry["variant"] + QUANTITIES.get(entry["quantity"], "") if "variant" in entry else entry["quantity"]
    return f"{what} ({params})" if params else what


def mark(entry: dict, conditions: list[str]) -> str:
    """The number of the entry's condition in `conditions`, as " [1]"; a new condition is added there."""
    condition = entry.get("condition")
    if condition is None:
        return ""
    if condition not in conditions:
        conditions.append(condition)
    return f" [{conditions.index(condition) + 1}]"


def middle(entry: dict) -> float | None:
    if "value" in entry:
        return entry["value"]
    return (entry["low"] + entry["high"]) / 2 if "low" in entry else None


def printed(entry: dict) -> str:
    unit = {"us": "µs", "fraction": ""}.get(entry.get("unit"), entry.get("unit", ""))
    value = f"{entry['value']:g}" if "value" in entry else f"{entry['low']:g} to {entry['high']:g}"
    return f"{value} {unit}".strip()


def title_of(source: str) -> str:
    return results.published_sources()[source]["title"]


def dates(entries) -> list[str]:
    experiments = results.load()["experiments"]
    return sorted({experiments[e["experiment"]]["date"] for e in entries if e.get("experiment") in experiments})
