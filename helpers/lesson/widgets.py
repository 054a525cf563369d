"""Widgets: a plain function, and controls for its arguments.

The function is called with one value per control and returns a picture, table or text. Its HTML goes into one HTML
widget, so nothing is printed, no figure stays open, and alt text changes with the picture. Where widgets do not live
(GitHub, slides, print), the same cell shows the picture for the first values: the static twin.
"""

import html
import inspect
import itertools
import math
import numbers

import ipywidgets

from helpers.lesson.table import html_of


def explore(callback, **controls):
    """Show `callback` with a control for each keyword.

    A control is a list of choices, an (lo, hi) or (lo, hi, step) tuple of numbers, or a bool; `(choices, start)` with
    a list first sets the starting choice. Raises ValueError if the controls do not fit the callback's arguments.
    """
    return Explorer(callback, controls)


class Explorer:
    """A callback with its controls; displays as a live widget, and as its first picture where widgets do not live."""

    def __init__(self, callback, controls: dict):
        if not controls:
            raise ValueError("explore needs at least one control")
        accepted = inspect.signature(callback).parameters
        unknown = [name for name in controls if name not in accepted]
        if unknown and not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
            raise ValueError(f"{callback.__name__} has no argument {unknown}; it takes {list(accepted)}")
        self.callback = callback
        self.options = {name: options_of(name, control) for name, control in controls.items()}
        self.first = {name: start for name, (_, start) in self.options.items()}
        self.shown = callback(**self.first)

    def widget(self):
        view = ipywidgets.HTML(html_of(self.shown))
        view.add_class("jp-RenderedHTMLCommon")  # tables look as they do in JupyterLab's outputs, not bare
        inputs = {}
        for name, (values, start) in self.options.items():
            label = name.replace("_", " ")
            if all(isinstance(v, bool) for v in values) and len(set(values)) == 2:
                inputs[name] = ipywidgets.Checkbox(value=start, description=label)
            else:
                choices = {
                    "options": [(str(v), v) for v in values], "index": values.index(start), "description": label,
                    "style": {"description_width": "initial"}, "layout": {"width": "340px", "margin": "2px 24px 2px 2px"},
                }
                # A slider's readout cuts off long words.
                fits = max(len(str(v)) for v in values) <= 16
                inputs[name] = ipywidgets.SelectionSlider(**choices, continuous_update=False) if fits else ipywidgets.Dropdown(**choices)

        def update(_change):
            try:
                view.value = html_of(self.callback(**{name: w.value for name, w in inputs.items()}))
            except Exception as error:  # otherwise invisible inside a callback
                view.value = f"<pre>{html.escape(f'{type(error).__name__}: {error}')}</pre>"

        for control in inputs.values():
            control.observe(update, "value")
        bar = ipywidgets.HBox(list(inputs.values()), layout={"flex_flow": "row wrap"})
        return ipywidgets.VBox([bar, view])

    def __repr__(self):
        settings = ", ".join(f"{name} = {value}" for name, value in self.first.items())
        return f"[widget: {settings}]\n{self.shown!r}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        live = self.widget()._repr_mimebundle_() or {}
        settings = html.escape(", ".join(f"{name.replace('_', ' ')} = {value}" for name, value in self.first.items()))
        static = f"<div>{html_of(self.shown)}<div><i>Shown for {settings}; run the cell to move the controls.</i></div></div>"
        return {**live, "text/html": static, "text/plain": repr(self)}


def options_of(name: str, control) -> tuple[list, object]:
    """A control as (all its values, starting value). Raises ValueError for anything that is not a control."""
    if isinstance(control, bool):
        return [False, True], control
    if isinstance(control, tuple) and len(control) == 2 and isinstance(control[0], list):
        values, start = control
    elif isinstance(control, tuple) and len(control) in (2, 3):
        lo, hi, step = *control, *(1,)[len(control) - 2 :]
        if not all(isinstance(n, numbers.Real) and math.isfinite(n) for n in (lo, hi, step)) or step <= 0 or hi < lo:
            raise ValueError(f"control {name}: ({lo}, {hi}, {step}) is not a range; choices are a list")
        values = [lo + i * step for i in range(int((hi - lo) / step + 1e-9) + 1)]
        values = [float(f"{v:.12g}") if isinstance(v, float) else v for v in values]  # 0.3, not 0.30000000000000004
        start = values[0]
    elif isinstance(control, list | range):
        values = list(control)
        start = values[0] if values else None
    else:
        raise ValueError(f"control {name}: give a list, a (lo, hi, step) tuple or a bool, got {control!r}")
    if not values or start not in values:
        raise ValueError(f"control {name}: {start!r} is not one of {values}")
    return values, start


def sweep(callback, controls: dict) -> int:
    """Call a callback at every value of each control (the others at their start) and at every combination of extremes.

    For tests: any exception or empty HTML surfaces. Returns the number of calls.
    """
    options = {name: options_of(name, control) for name, control in controls.items()}
    first = {name: start for name, (_, start) in options.items()}
    settings = [first | {name: value} for name, (values, _) in options.items() for value in values]
    ends = [(values[0], values[-1]) for values, _ in options.values()]
    settings += [dict(zip(options, corner, strict=True)) for corner in itertools.product(*ends)]
    unique = {repr(sorted(s.items())): s for s in settings}
    for setting in unique.values():
        assert html_of(callback(**setting)).strip(), f"{callback.__name__}({setting}) shows nothing"
    return len(unique)
