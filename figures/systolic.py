"""Pictures of the systolic array at work: one cycle, an animation, multiply-adds over time."""

import hashlib
import io

import numpy as np
from PIL import Image

from figures.style import ROLE, Picture, box, diagram, drawn_fingerprint, limit_line, new
from helpers.evidence import simulated
from helpers.systolic import SystolicArray

STEP_CONTROLS = {
    "array": ([2, 3, 4, 8, 32, 128], 4),
    "rows_of_x": ([1, 2, 4, 6, 8, 128, 512], 6),
    "cycle": ([*range(13), 16, 21, 32, 64, 127, 254, 381, 511, 765], 4),
    "skew": True,
}
LABELLED = 8  # arrays up to this size show the numbers in their cells, larger ones only which cells work
QUEUE, OUT = 4, 2  # how many cycles of x on its way, and of sums that have left, are drawn outside the array
SUM = "#A84300"  # the compute role, darker: readable on a blue ground


def example(rows_of_x: int, array: int):
    """Small integers to watch: x (rows_of_x, array) and w (array, array), the same at every call."""
    i, r, c = np.arange(rows_of_x)[:, None], np.arange(array), np.arange(array)[:, None]
    return (3 * i + 2 * r) % 5 + 1, (2 * c + r) % 4 + 1


def step_view(array: int, rows_of_x: int, cycle: int, skew: bool = True) -> Picture:
    """The widget of lesson A: an array x array machine after one of its cycles."""
    x, w = example(rows_of_x, array)
    return show_step(SystolicArray(array, array).steps(x, w, skew=skew), x, cycle, skew,
                     simulated(f"systolic array, {array} x {array} cells"))


def until(steps, cycle: int) -> tuple[object, list]:
    """The state after `cycle` (or the last one), and (i, n, cycle) of all sums that have left by then."""
    left = []
    for state in steps:
        left += [(i, n, state.cycle) for i, n in state.leaving]
        if state.cycle == cycle:
            break
    return state, left


def draw_step(ax, state, left, x, cycle: int, skew: bool = True):
    """Registers after a cycle: x waiting at the left, cells with x, weight and sum, sums that have left below, y."""
    rows, cols = state.x.shape
    if max(rows, cols) > LABELLED:
        return _draw_large(ax, state, cycle)
    shown = min(len(x), LABELLED)
    width, height = QUEUE + 2 * cols + 1.5, max(rows + OUT + 1.2, shown + 1.7)
    diagram(ax, width, height)
    top, size = height - 0.9, 4.5 + 8.5 * min(9 / width, 5 / height, 0.76)  # in a figure of 9 x 5 a cell is so many inches wide

    def number(column, row, value, i, colour):
        """A number in a place of the grid of cells, on an orange ground if it belongs to row 0 of x."""
        ground = {"facecolor": "#FBE3B5", "edgecolor": "none", "pad": 2} if i == 0 else None
        ax.text(QUEUE + column + 0.5, top - row - 0.5, value, ha="center", va="center", fontsize=size, color=colour,
                bbox=ground)

    for (r, c), i in np.ndenumerate(np.where(cycle <= state.cycle, state.x_row, -1)):
        role = "muted" if i < 0 else "accent" if i == 0 else "memory"
        box(ax, QUEUE + c + 0.05, top - r - 0.95, 0.9, 0.9, role=role, fill=0.1 if i < 0 else 0.3)
        weight = state.weights[r, c] or state.waiting[r, c]  # the waiting one takes over with the first x
        if i >= 0:
            number(c, r - 0.18, f"{state.x[r, c]} × {weight}", -1, "#1a1a1a")
            number(c, r + 0.2, f"Σ {state.sums[r, c]}", -1, SUM)
        elif weight:
            number(c, r - 0.18, f"× {weight}", -1, "#666666")
    for (i, r), value in np.ndenumerate(x):
        c = cycle - i - (r if skew else 0)  # negative: so many cycles before it enters
        if -QUEUE <= c < 0:
            number(c, r, value, i, ROLE["memory"])
    for i, n, at in left:
        if cycle - at < OUT:
            number(n, rows + 0.2 + 0.8 * (cycle - at), state.values[i, n], i, SUM)
        if i < shown:
            number(cols + 1 + n, i, state.values[i, n], i, "#1a1a1a")
    for column, text in ((-QUEUE, "x on its way"), (0, "the array"), (cols + 1, "y so far")):
        ax.text(QUEUE + column + 0.1, top + 0.2, text, fontsize=9.5, color="#333333")
    ax.text(QUEUE - 0.2, top - rows - 0.7, "sums that left", ha="right", va="center", fontsize=9.5, color="#333333")
    ax.text(QUEUE + cols + 1.1, top - shown - 0.4, "orange: row 0 of x", va="center", fontsize=9.5, color="#8A6100")
    box(ax, QUEUE + cols + 1, top - shown, cols, shown, role="limit", fill=0)
    return ax


def _draw_large(ax, state, cycle):
    picture = np.where(state.active if cycle <= state.cycle else False, 0.35 + 0.3 * (state.x_row % 8 == 0), 0.0)
    ax.imshow(picture, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.set(xlabel="column of the array (dark: rows 0, 8, 16 ... of x)", ylabel="row of the array")
    ax.grid(False)
    return ax


def step_alt(state, left, cycle: int) -> str:
    rows, cols = state.x.shape
    if cycle > state.cycle:
        return f"Systolic array of {rows} x {cols} cells: all sums had left by the end of cycle {state.cycle}."
    last = f"; the newest finished sums are y{sorted({(i, n) for i, n, at in left if at == cycle})}" if max(
        rows, cols) <= LABELLED and any(at == cycle for _, _, at in left) else ""
    return (f"Systolic array of {rows} x {cols} cells after cycle {cycle}: {state.active.sum():,} of {rows * cols:,} "
            f"cells work, {len(left):,} of {state.values.size:,} sums have left{last}.")


def step_figure(steps, x, cycle: int, skew: bool = True):
    """(figure, alt text) of the array after a cycle; `steps` comes from `SystolicArray.steps`."""
    state, left = until(steps, cycle)
    rows, cols = state.x.shape
    fig, ax = new(9, 5)
    draw_step(ax, state, left, x, cycle, skew)
    if cycle > state.cycle:
        ax.set_title(f"All sums had left by the end of cycle {state.cycle}")
    elif cycle < 0:
        ax.set_title(f"{-cycle} cycle{'s' * (cycle < -1)} before the first x: weights move in")
    else:
        ax.set_title(f"Cycle {cycle}: {state.active.sum():,} of {rows * cols:,} cells work")
    return fig, step_alt(state, left, cycle)


def show_step(steps, x, cycle: int, skew: bool = True, evidence="") -> Picture:
    return Picture(*step_figure(steps, x, cycle, skew), evidence)


class Animation(Picture):
    """Figures shown one after another, over and over: an animated PNG, which plays wherever pictures show, and needs
    no kernel. Folding it away stops it. Print, and programs that do not know animated PNGs, show the `still` instead.
    """

    def __init__(self, still, figures, alt: str, evidence="", milliseconds: int = 900):
        self.alt = alt
        self.evidence = evidence.line() if hasattr(evidence, "line") else evidence
        marks, frames = hashlib.sha256(), []
        for fig in (still, *figures):
            marks.update(drawn_fingerprint(fig).encode())
            fig.supxlabel(self.evidence, x=0.995, ha="right", fontsize=7.5, color="#666666")
            frames.append(_pixels(fig))
        frames = _few_colours(frames)
        self.fingerprint = marks.hexdigest()[:10]
        self.width = frames[0].width
        self.frames = len(frames) - 1
        buffer = io.BytesIO()
        frames[0].save(buffer, format="PNG", save_all=True, default_image=True, append_images=frames[1:], loop=0,
                       duration=[milliseconds] * (self.frames - 1) + [3 * milliseconds])
        self.png = buffer.getvalue()

    @property
    def html(self) -> str:
        return f"<details open><summary>Animation (fold it to stop it)</summary>{super().html}</details>"


def _pixels(fig, dpi: int = 80):
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", facecolor="white", dpi=dpi)
    return Image.open(buffer).convert("RGB")


def _few_colours(images: list, colours: int = 48) -> list:
    """The same images (of one size) with one palette for all: a tenth of the bytes."""
    together = Image.fromarray(np.concatenate([np.asarray(image) for image in images]))
    together = together.quantize(colours, dither=Image.Dither.NONE)
    width, height = images[0].size
    return [together.crop((0, k * height, width, (k + 1) * height)) for k in range(len(images))]


def show_animation(array: int = 4, rows_of_x: int = 6, most_frames: int = 24) -> Animation:
    """The cycles of an array, from the first weight that moves in to the last sum that leaves; of a long run, some."""
    x, w = example(rows_of_x, array)
    machine = SystolicArray(array, array)
    cycles = range(-array, machine.run(x, w).cycles)
    shown = np.unique(np.linspace(cycles[0], cycles[-1], min(len(cycles), most_frames)).round().astype(int)).tolist()
    still, *figures = (step_figure(machine.steps(x, w), x, cycle)[0] for cycle in (min(array, cycles[-1]), *shown))
    alt = (f"Animation of a systolic array of {array} x {array} cells, cycle by cycle: weights move in from above for "
           f"{array} cycles, then {rows_of_x} rows of x cross it as slanted waves from the upper left to the lower "
           f"right, and after {cycles[-1] + 1} cycles the last sum has left.")
    return Animation(still, figures, alt, simulated(f"systolic array, {array} x {array} cells"))


def draw_work(ax, macs_per_cycle, cells: int):
    """Multiply-adds in each cycle as an area under the line of what all cells could do."""
    cycle = np.arange(len(macs_per_cycle))
    ax.fill_between(cycle, macs_per_cycle, step="mid", color=ROLE["compute"], alpha=0.35, linewidth=0)
    ax.plot(cycle, macs_per_cycle, color=ROLE["compute"], drawstyle="steps-mid")
    limit_line(ax, cells, f"all {cells:,} cells")
    ax.set(ylim=(0, 1.35 * cells), yticks=[0, cells / 2, cells], ylabel="multiply-adds\nper cycle")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    return ax


def work_alt(runs: dict, cells: int) -> str:
    parts = (f"{name}: {len(macs):,} cycles, {np.sum(macs) / (len(macs) * cells):.1%} of the cells' time is used, "
             f"all cells work in {np.sum(macs == cells):,} cycles" for name, macs in runs.items())
    return "Multiply-adds per cycle. " + "; ".join(parts) + "."


def show_work(runs: dict, cells: int, title: str, evidence="") -> Picture:
    """One strip for each run, name -> multiply-adds per cycle, over the same cycles."""
    fig, axes = new(7.2, 1.1 + 1.35 * len(runs), nrows=len(runs), sharex=True, squeeze=False)
    for ax, (name, macs) in zip(axes[:, 0], runs.items(), strict=True):
        draw_work(ax, macs, cells)
        ax.text(0.01, 0.97, f"{name}: {np.sum(macs) / (len(macs) * cells):.1%} used", transform=ax.transAxes, va="top",
                fontsize=9)
    axes[-1, 0].set_xlabel("cycle")
    axes[0, 0].set_title(title)
    return Picture(fig, work_alt(runs, cells), evidence)
