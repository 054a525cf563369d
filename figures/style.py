"""The look shared by all figures, a few drawing primitives, and `Picture`, which a notebook shows.

Colours carry a role, never decoration: one saturated colour for the message, greys for the rest. They are the
colour-blind-safe set of Okabe and Ito (2008); wherever a role matters, a marker, a dash or a label says it too.
"""

import base64
import hashlib
import html
import io
from pathlib import Path

import matplotlib
import matplotlib.colors
import matplotlib.font_manager
import matplotlib.patches
import matplotlib.style
import matplotlib.text
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

# Figures are made without pyplot: no backend is chosen, nothing stays open, and importing is a second faster.
matplotlib.style.use(Path(__file__).parent / "course.mplstyle")

ROLE = {
    "memory": "#0072B2",  # blue: device memory and what it limits
    "compute": "#D55E00",  # vermilion: arithmetic and what it limits
    "measured": "#0072B2",  # live or recorded
    "published": "#CC79A7",  # pink: the article's numbers
    "model": "#009E73",  # green, dashed: a prediction
    "limit": "#555555",  # grey line: what physics or the datasheet allows
    "accent": "#E69F00",  # orange: what to look at
    "muted": "#B0B0B0",  # everything else
}
SERIES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555"]  # several equal variants
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]


def new(width: float = 7.2, height: float = 3.6, nrows: int = 1, ncols: int = 1, **subplot_kw):
    """A figure and its axes in the course's style; sizes in inches at 110 dpi."""
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(nrows, ncols, **subplot_kw)


def limit_line(ax, value: float, text: str, *, axis: str = "y") -> None:
    """A physical limit: a dashed grey line with its name at the end, inside the axes."""
    if axis == "y":
        ax.axhline(value, color=ROLE["limit"], linestyle="--", linewidth=1.1, zorder=1)
        ax.annotate(text, (1, value), xycoords=("axes fraction", "data"), xytext=(-4, 3), textcoords="offset points",
                    ha="right", va="bottom", fontsize=8.5, color=ROLE["limit"])
    else:
        ax.axvline(value, color=ROLE["limit"], linestyle="--", linewidth=1.1, zorder=1)
        ax.annotate(text, (value, 1), xycoords=("data", "axes fraction"), xytext=(4, -3), textcoords="offset points",
                    ha="left", va="top", fontsize=8.5, color=ROLE["limit"])


def label_line(ax, line, text: str, *, dy: float = 0) -> None:
    """Write a curve's name at its last point, in its colour, instead of a legend. `dy` in points."""
    x, y = line.get_xdata()[-1], line.get_ydata()[-1]
    ax.annotate(text, (x, y), xytext=(7, dy), textcoords="offset points", va="center", fontsize=9,
                color=line.get_color(), annotation_clip=False)


def grouped_bars(ax, data, value: str, *, tick: str, label: str, fontsize: float) -> None:
    """Bars of column `value`: a group for each n, in it a bar for each variant; a copy, the measure of others, is grey.

    `tick` and `label` are format strings of n and of a bar's value.
    """
    sizes, variants = sorted(data["n"].unique()), list(dict.fromkeys(data["variant"]))
    width = 0.8 / len(variants)
    for k, variant in enumerate(variants):
        rows = data[data["variant"] == variant].set_index("n")[value]
        at = [i + (k - (len(variants) - 1) / 2) * width for i in range(len(sizes))]
        colour = ROLE["muted"] if variant == "copy" else SERIES[k]
        bars = ax.bar(at, [rows[n] for n in sizes], width * 0.92, color=colour, label=variant)
        ax.bar_label(bars, [label.format(rows[n]) for n in sizes], fontsize=fontsize, padding=2)
    ax.set_xticks(range(len(sizes)), [tick.format(n) for n in sizes])
    ax.grid(visible=False, axis="x")
    ax.legend(loc="upper left", ncols=len(variants), fontsize=8.5)


def box(ax, x, y, w, h, text="", *, role="muted", fill=0.18, fontsize=9, **text_kw):
    """A labelled rectangle with its lower left corner at (x, y), for diagrams."""
    colour = matplotlib.colors.to_rgb(ROLE.get(role, role))
    face = tuple(1 - fill * (1 - c) for c in colour)
    patch = matplotlib.patches.Rectangle((x, y), w, h, facecolor=face, edgecolor=colour, linewidth=1.1)
    ax.add_patch(patch)
    if text:
        ax.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=fontsize, **text_kw)
    return patch


def arrow(ax, start, end, text="", *, role="limit", fontsize=8.5):
    """An arrow from start to end (data coordinates) with a label at its middle, for diagrams."""
    colour = ROLE.get(role, role)
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.3})
    if text:
        ax.annotate(text, ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2), xytext=(0, 4),
                    textcoords="offset points", ha="center", va="bottom", fontsize=fontsize, color=colour)


def diagram(ax, width: float, height: float) -> None:
    """Turn axes into an empty drawing board of the given size in its own units, with equal scales."""
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.axis("off")


class Picture:
    """A finished figure: rendered once, with alt text, evidence line and a fingerprint of what was drawn.

    Notebooks show it as `<img alt=...>` (the only form of alt text that JupyterLab and nbconvert keep). Its plain-text
    form is the alt text and the fingerprint, which nbval compares: a figure with other values fails the comparison.
    """

    def __init__(self, fig, alt: str, evidence=None):
        if not alt.strip():
            raise ValueError("a picture needs alt text that states its finding")
        self.alt = alt
        self.evidence = evidence.line() if hasattr(evidence, "line") else (evidence or "")
        self.fingerprint = drawn_fingerprint(fig)
        if self.evidence:
            fig.supxlabel(self.evidence, x=0.995, ha="right", fontsize=7.5, color="#666666")
        _spell_missing_glyphs(fig)
        self.png = _png(fig)
        self.width = round(fig.get_figwidth() * fig.dpi)

    @property
    def html(self) -> str:
        data = base64.b64encode(self.png).decode()
        digest = hashlib.sha256(self.png).hexdigest()[:16]
        return (f'<img alt="{html.escape(self.alt, quote=True)}" data-png="{digest}" style="max-width:100%" '
                f'width="{self.width}" src="data:image/png;base64,{data}">')

    def __repr__(self):
        return f"{self.alt} [{self.evidence}; drawn data {self.fingerprint}]"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": self.html, "text/plain": repr(self)}


def _png(fig) -> bytes:
    """The figure as a PNG of 256 colours: a third of the bytes, and no eye sees the blends at edges that were left out."""
    drawn, buffer = io.BytesIO(), io.BytesIO()
    fig.savefig(drawn, format="rgba", facecolor="white")
    pixels = Image.frombytes("RGBA", fig.canvas.get_width_height(), drawn.getvalue()).convert("RGB")
    pixels.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(buffer, format="PNG")
    return buffer.getvalue()


def _spell_missing_glyphs(fig) -> None:
    """Write characters that the bundled font lacks as their code (U+4E2D), instead of an empty box and a warning."""
    font = matplotlib.font_manager.get_font(matplotlib.font_manager.findfont("DejaVu Sans"))
    known = font.get_charmap()
    for text in fig.findobj(matplotlib.text.Text):
        content = text.get_text()
        if any(ord(c) not in known and c != "\n" for c in content):
            text.set_text("".join(c if ord(c) in known or c == "\n" else f"U+{ord(c):04X} " for c in content))


def drawn_data(fig) -> list:
    """Every number that was drawn: lines, bars, points, images and texts, axes by axes, in drawing order."""
    found = []
    for ax in fig.axes:
        for line in ax.lines:
            found.append(("line", np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)))
        for patch in ax.patches:
            if isinstance(patch, matplotlib.patches.Rectangle):
                found.append(("box", np.array([patch.get_x(), patch.get_y(), patch.get_width(), patch.get_height()])))
        for collection in ax.collections:
            found.append(("points", np.asarray(collection.get_offsets(), float)))
        for image in ax.images:
            found.append(("image", np.asarray(image.get_array(), float)))
        found += [("text", text.get_text()) for text in ax.texts]
        found.append(("labels", ax.get_title(loc="left"), ax.get_title(), ax.get_xlabel(), ax.get_ylabel()))
    return found


def drawn_fingerprint(fig) -> str:
    """A short hash of `drawn_data`, rounded to 6 digits so that it does not depend on the machine's last bit."""
    digest = hashlib.sha256()
    for item in drawn_data(fig):
        for part in item:
            if isinstance(part, np.ndarray):
                digest.update(" ".join(f"{v:.6g}" for v in part.ravel()).encode())
            else:
                digest.update(str(part).encode())
            digest.update(b"|")
    return digest.hexdigest()[:10]
