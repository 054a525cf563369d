"""Tables as lessons show them: a caption, rounded numbers with units in the column names, the evidence line."""

import html
import math

import pandas as pd

LABELS = {
    "time_us": "time (µs)",
    "time_us_p20": "p20 (µs)",
    "time_us_p80": "p80 (µs)",
    "bandwidth_gb_per_s": "bandwidth (GB/s)",
    "tflops": "TFLOPS",
    "traffic_bytes": "traffic (bytes)",
    "elements_per_thread": "elements a thread",
    "masked_elements": "masked elements",
    "masked_fraction": "masked share",
    "waves": "waves over the SMs",
}


class Table:
    """A table to be shown: HTML with caption and evidence, the same as text."""

    def __init__(self, data: pd.DataFrame, caption: str, evidence=None):
        self.data = data
        self.caption = caption
        self.evidence = evidence.line() if hasattr(evidence, "line") else (evidence or "")

    def __repr__(self):
        with pd.option_context("display.width", 200, "display.max_columns", None, "display.max_colwidth", None):
            body = _formatted(self.data).to_string(index=False)
        return "\n".join(part for part in (self.caption, body, self.evidence) if part)

    def _repr_html_(self):
        rows = _html(_formatted(self.data), [pd.api.types.is_numeric_dtype(self.data[c]) for c in self.data])
        lines = html.escape(self.evidence).replace("\n", "<br>")
        note = f'<div style="font-size:85%;opacity:.75">{lines}</div>' if lines else ""
        return f"<div><b>{html.escape(self.caption)}</b>{rows}{note}</div>"


def table(data, *, caption: str, evidence=None, columns=None) -> Table:
    """A `Table` of a DataFrame or a list of dicts.

    `columns` chooses and renames: a list of columns, or a dict column -> heading. An index with a name, as groupby and
    pivot leave it, is a column too. Raises ValueError for an unknown column, or a missing caption.
    """
    if not caption:
        raise ValueError("a table needs a caption")
    data = pd.DataFrame(data)
    if {*data.index.names} - {None, *data.columns}:
        data = data.reset_index()
    if columns is not None:
        wanted = columns if isinstance(columns, dict) else {c: c for c in columns}
        missing = [c for c in wanted if c not in data.columns]
        if missing:
            raise ValueError(f"no column {missing}; there are {list(data.columns)}")
        data = data[list(wanted)].rename(columns=wanted)
    return Table(data.rename(columns=LABELS), caption, evidence)


def _html(text: pd.DataFrame, numeric: list[bool]) -> str:
    """A table whose words stand left and numbers right; JupyterLab would put everything right."""
    style = [f'style="text-align:{"right" if right else "left"}"' for right in numeric]
    head = "".join(f"<th {s}>{html.escape(str(c))}</th>" for s, c in zip(style, text, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td {s}>{html.escape(v)}</td>" for s, v in zip(style, row, strict=True)) + "</tr>"
        for row in text.itertuples(index=False)
    )
    return f'<table class="dataframe"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _formatted(data: pd.DataFrame) -> pd.DataFrame:
    return data.map(_format)


def _format(value) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value)


class _SideBySide:
    def __init__(self, items):
        self.items = items

    def __repr__(self):
        return "\n\n".join(repr(item) for item in self.items)

    def _repr_html_(self):
        # A picture keeps its width, so what does not fit beside it goes below.
        cells = "".join(f'<div style="flex:1 1 {getattr(item, "width", 320)}px;min-width:0">{html_of(item)}</div>' for item in self.items)
        return f'<div style="display:flex;flex-wrap:wrap;gap:16px">{cells}</div>'


def side_by_side(*items) -> _SideBySide:
    """Show several pictures, tables or code views beside each other (below each other on a narrow page)."""
    return _SideBySide(items)


def html_of(item) -> str:
    """The HTML form of anything a notebook shows."""
    if hasattr(item, "_repr_mimebundle_"):
        return item._repr_mimebundle_()["text/html"]
    if hasattr(item, "_repr_html_"):
        return item._repr_html_()
    return f"<pre>{html.escape(str(item))}</pre>"
