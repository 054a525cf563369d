"""A compiled kernel executed step by step: which lanes run, what their registers hold, which bytes they touch."""

import numpy as np

from figures.style import ROLE, Picture, box, diagram, new
from helpers.simt.memory import place_of

BEFORE, AFTER = 3, 4  # steps shown around the current one
MOST_REGISTERS = 4


def draw_step(ax, trace, step: int, lanes=(0, 1, 31), source: str | None = None):
    """Step `step` of a traced warp: the instructions around it, the lanes that run it, values of chosen lanes.

    `trace` is a list of `helpers.simt.report.TraceStep`; `source` the kernel's source text, whose line is then shown.
    """
    diagram(ax, 100, 47)
    current = trace[step]
    _draw_listing(ax, trace, step)
    if source and current.source_line:
        line = source.splitlines()[current.source_line - 1].strip()
        ax.text(0.5, 45, f"line {current.source_line}:", fontsize=8.5, color=ROLE["limit"], va="center")
        ax.text(8.5, 45, _short(line, 95), fontsize=8, family="monospace", va="center")
    _draw_lanes(ax, current)
    _draw_registers(ax, current, lanes)
    return ax


def _draw_listing(ax, trace, step: int) -> None:
    for row, at in enumerate(range(step - BEFORE, step + AFTER + 1)):
        if not 0 <= at < len(trace):
            continue
        y = 38 - 3.2 * row
        if at == step:
            box(ax, 0.5, y - 1.6, 59, 3.2, role="accent", fill=0.3)
        shade = "black" if at == step else "#555555"
        number = str(trace[at].source_line or "")
        ax.text(3.4, y, number, fontsize=7.5, ha="right", va="center", color=ROLE["limit"])
        ax.text(4.8, y, _short(trace[at].text, 48), fontsize=8, family="monospace", va="center", color=shade)
        ax.text(58.7, y, f"{int(trace[at].active.sum())}", fontsize=7.5, ha="right", va="center", color=shade)
    ax.text(58.7, 41.2, "lanes", fontsize=7.5, ha="right", va="center", color=ROLE["limit"])


def _draw_lanes(ax, current) -> None:
    for lane in range(32):
        on = current.active[lane]
        box(ax, 0.5 + lane * 3.09, 7.2, 3.09, 4.2, str(lane), role="compute" if on else "muted", fill=0.4 if on else 0.04,
            fontsize=7, color="black" if on else ROLE["muted"])
    ax.text(0.5, 4.6, _sentence(current), fontsize=8.5, va="center")
    if current.access is not None:
        ax.text(0.5, 1.2, _touched(current), fontsize=8.5, va="center")


def _draw_registers(ax, current, lanes) -> None:
    columns = [64 + 36 * (i + 0.5) / len(lanes) for i in range(len(lanes))]
    for x, lane in zip(columns, lanes, strict=True):
        ax.text(x, 41.2, f"lane {lane}", fontsize=8, ha="center", va="center", color=ROLE["limit"])
    for row, name in enumerate(list(current.registers)[:MOST_REGISTERS]):
        y = 38 - 6.4 * row
        ax.text(62, y, name, fontsize=8, family="monospace", va="center", weight="bold" if row == 0 else "normal")
        for x, lane in zip(columns, lanes, strict=True):
            shown = _value(current.registers[name][lane]) if current.active[lane] else "–"
            ax.text(x, y - 2.9, shown, fontsize=7.5, ha="center", va="center", family="monospace")


def _value(value) -> str:
    """A register's content: an untyped word that only makes sense as a float is shown as one, an address by its array."""
    if isinstance(value, np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.floating):
        return f"{value:.5g}"
    if value.itemsize == 4 and abs(int(value)) >= 10**7 and 1e-6 < abs(as_float := value.view(np.float32)) < 1e9:
        return f"{as_float:.5g}"
    if (place := place_of(int(value))) is not None:
        return f"arg{place[0]}+{place[1]:,}"
    return f"{int(value):,}" if abs(int(value)) < 10**7 else f"{int(value):#x}"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _sentence(current) -> str:
    count = int(current.active.sum())
    return "all 32 lanes run this instruction" if count == 32 else f"{count} of 32 lanes run this instruction, the others wait"


def _touched(current) -> str:
    access, offsets = current.access, current.access.offsets[current.active]
    unit = "sector" if access.space != "shared" else "pass"
    many = f"{access.cost} {unit}{'' if access.cost == 1 else 'es' if unit == 'pass' else 's'}"
    return (f"{access.size} bytes each of {access.where}, bytes {offsets.min():,} to {offsets.max() + access.size - 1:,}: {many}")


def step_alt(trace, step: int) -> str:
    current = trace[step]
    line = f", line {current.source_line}" if current.source_line else ""
    touched = f"; {_touched(current)}" if current.access is not None else ""
    return f"Step {step + 1} of {len(trace)}{line}: {current.text}; {_sentence(current)}{touched}."


def show_step(report, step: int = 0, lanes=(0, 1, 31), source: str | None = None, evidence="") -> Picture:
    """One step of the warp that `helpers.simt.run(..., trace=(block, warp))` recorded; steps count from 0.

    For a widget: `explore(functools.partial(show_step, report), step=step_control(report))`.
    """
    if not report.trace:
        raise ValueError("the report has no trace: run with trace=(block, warp)")
    if not 0 <= step < len(report.trace):
        raise ValueError(f"step must be 0 to {len(report.trace) - 1}, got {step}")
    if not 1 <= len(lanes) <= 3 or not all(0 <= lane < 32 for lane in lanes):
        raise ValueError(f"one to three lanes out of 0 to 31, got {lanes!r}")
    fig, ax = new(7.2, 4.1)
    draw_step(ax, report.trace, step, lanes, source)
    count = int(report.trace[step].active.sum())
    ax.set_title(f"Step {step + 1} of {len(report.trace)}: {count} of 32 lanes active")
    return Picture(fig, step_alt(report.trace, step), evidence)


def step_control(report) -> tuple[int, int, int]:
    """The slider of a widget over a trace: first step, last step, 1."""
    return 0, len(report.trace) - 1, 1
