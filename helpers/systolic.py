"""A weight-stationary systolic array, register by register: the matrix unit of a TPU.

    y = x @ w        x (M, K)   w (K, N)   y (M, N)   on an array of rows x cols cells

Cell (r, c) keeps weight w[r, c]. In each cycle it takes x from its left neighbour and a partial sum from above, adds
x * weight to the sum, and holds both in registers, from which the right and the lower neighbour take them a cycle
later. Row r of the array gets its x r cycles late (the skew), so that x[i, r] meets the partial sum of y[i, c] in cycle
i + r + c, and y[i, c] leaves column c below the last row. A matrix larger than the array is cut into tiles of weights;
accumulators below the array add the tiles that share columns of y, as in the first TPU.

Each cell has a second weight register, filled from above while the first one works. It takes over when the first x of
the next tile arrives. A tile's weights move in during the `rows` cycles before its first x: `weight_load="hidden"`
sends tiles back to back, so that the loads happen behind the tile before; `"exposed"` lets the array drain first.

What is simplified: one array, x and w always ready at its edge, sums in int64 or float64 (a TPU multiplies bf16 and
adds in fp32). Sources: Kung 1982, Why Systolic Architectures?; Jouppi et al. 2017 (TPU v1, two weight registers).
"""

import math
from collections import namedtuple
from dataclasses import dataclass

import numpy as np

WEIGHT_LOADS = ("hidden", "exposed")
MOST_CELLS = 1 << 24  # 4096 x 4096, some GB of registers
CELLS_AT_ONCE = 16_384  # small arrays with many tiles: so many cells are stepped together (see _Schedule.copies)


class Run(namedtuple("Run", "values cycles utilisation")):
    """values (M, N), cycles, utilisation (multiply-adds / (cells * cycles)); also `macs_per_cycle`, one per cycle."""

    macs_per_cycle: np.ndarray


@dataclass(frozen=True)
class State:
    """The array at the end of a cycle; each register field is (rows, cols). Weights load in cycles below 0."""

    cycle: int
    x: np.ndarray
    x_row: np.ndarray  # which row i of x the cell works on; -1 in a cell without one
    sums: np.ndarray
    weights: np.ndarray
    waiting: np.ndarray  # the second weight registers
    active: np.ndarray  # cells that did a multiply-add of the product: an x and a weight that are not padding
    values: np.ndarray  # (M, N), what has left the array so far
    leaving: list  # (i, n) of the values to which a sum was added in this cycle


class SystolicArray:
    """An array of rows x cols cells. Raises TypeError or ValueError unless both are whole numbers of at least 1, and for more
    cells than MOST_CELLS."""

    def __init__(self, rows: int, cols: int):
        for name, size in (("rows", rows), ("cols", cols)):
            if isinstance(size, bool) or not isinstance(size, int | np.integer):
                raise TypeError(f"{name} of the array must be a whole number, got {size!r}")
            if size < 1:
                raise ValueError(f"an array needs at least one row and one column, got {name} = {size}")
        self.rows, self.cols = int(rows), int(cols)
        if self.rows * self.cols > MOST_CELLS:
            raise ValueError(f"an array of {rows} x {cols} cells is too large to step through: up to {MOST_CELLS} cells (4096 x 4096)")

    def __repr__(self):
        return f"SystolicArray({self.rows}, {self.cols})"

    def run(self, x, w, *, weight_load: str = "hidden", skew: bool = True) -> Run:
        """x @ w, with what it costs: `values, cycles, utilisation = array.run(x, w)`.

        x (M, K) and w (K, N) of any size from 1 on, arrays or CPU tensors: both integer (summed exactly in int64) or both float
        (bfloat16 too; float64).
        If w fits the array, M rows take M + rows + cols - 2 cycles, and `rows` more if the load is exposed; smaller
        matrices are padded with zeros, which cost cycles but do not count as work. `skew=False` feeds each row of x
        in one cycle: the wrong way, kept to see what goes wrong. Raises TypeError for other dtypes, ValueError for
        shapes that do not fit, an unknown weight_load, and integers whose sums could leave int64.
        """
        plan = _Schedule(self, *_checked(x, w), weight_load, skew)
        piece = [plan.cells.active.sum(axis=(1, 2)) for cycle in plan.cycles() if cycle >= plan.first_counted]
        pieces = np.array(piece, dtype=np.int32).reshape(len(piece), plan.copies)
        cycles = (plan.copies - 1) * plan.tiles_per_copy * plan.period + plan.last_out + 1 - plan.first_counted
        macs_per_cycle = np.zeros(cycles, np.int32)
        for copy in range(plan.copies):  # each copy's tiles follow those of the one before, overlapping like any two
            start = copy * plan.tiles_per_copy * plan.period
            part = macs_per_cycle[start : start + len(pieces)]
            part += pieces[: len(part), copy]
        run = Run(plan.values, cycles, float(macs_per_cycle.sum() / (cycles * self.rows * self.cols)))
        run.macs_per_cycle = macs_per_cycle
        return run

    def steps(self, x, w, *, weight_load: str = "hidden", skew: bool = True):
        """The same run, cycle by cycle: yields a `State` for each, those of the first tile's load included."""
        plan = _Schedule(self, *_checked(x, w), weight_load, skew, copies=1)
        for cycle in plan.cycles():
            cells = plan.cells
            yield State(cycle, *(register[0].copy() for register in (
                cells.x, cells.x_row, cells.sums, cells.w, cells.next_w, cells.active,
            )), plan.values.copy(), plan.leaving())


class _Cells:
    """The registers of `copies` equal arrays that step together; each is (copies, rows, cols)."""

    def __init__(self, copies: int, rows: int, cols: int, dtype):
        def register(kind):
            return np.zeros((copies, rows, cols), kind)

        self.x, self.x_row = register(dtype), register(np.int32) - 1  # -1: no x in this cell
        self.sums = register(dtype)
        self.w, self.next_w = register(dtype), register(dtype)
        self.real, self.next_real = register(bool), register(bool)  # is this weight part of w, or padding?

    def step(self, x, x_row, w, real, loading) -> None:
        """One cycle. Entering from the left, (copies, rows): x and its row number or -1. Entering from above, (copies,
        cols): a weight and whether it is real; `loading`, (rows, cols) or None: cells that take what is above them."""
        for register, new in ((self.x, x), (self.x_row, x_row)):
            register[:, :, 1:] = register[:, :, :-1]
            register[:, :, 0] = new
        first = self.x_row == 0
        if first.any():
            np.copyto(self.w, self.next_w, where=first)
            np.copyto(self.real, self.next_real, where=first)
        self.sums[:, 1:] = self.sums[:, :-1]
        self.sums[:, 0] = 0
        self.sums += self.w * self.x
        if loading is not None:
            for register, new in ((self.next_w, w), (self.next_real, real)):
                np.copyto(register[:, 1:], register[:, :-1].copy(), where=loading[1:])
                np.copyto(register[:, 0], new, where=loading[0])

    @property
    def active(self):
        return (self.x_row >= 0) & self.real


class _Schedule:
    """What enters the array in each cycle, and where that which leaves it belongs.

    Tile t's first x enters in cycle t * period. Tiles are independent once they are `period` apart, so a long sequence
    is cut into `copies` equal stretches that step together, each on its own copy of the array: the same cycles, but
    many cells in one numpy operation.
    """

    def __init__(self, array: SystolicArray, x, w, weight_load: str, skew: bool, copies: int | None = None):
        if weight_load not in WEIGHT_LOADS:
            raise ValueError(f"weight_load must be one of {', '.join(WEIGHT_LOADS)}, got {weight_load!r}")
        rows, cols = array.rows, array.cols
        (self.m, k), n = x.shape, w.shape[1]
        self.k_tiles, n_tiles = math.ceil(k / rows), math.ceil(n / cols)
        self.tiles = self.k_tiles * n_tiles
        exposed = weight_load == "exposed"
        self.period = rows + self.m + rows + cols - 2 if exposed else max(self.m, rows)
        self.first_counted = -rows if exposed else 0
        copies = copies or max(1, min(self.tiles, CELLS_AT_ONCE // (rows * cols)))
        self.tiles_per_copy = math.ceil(self.tiles / copies)
        self.copies = math.ceil(self.tiles / self.tiles_per_copy)
        self.x = _padded(x, self.m, self.k_tiles * rows).reshape(self.m, self.k_tiles, rows)
        self.w = _tiled(w, self.k_tiles, rows, n_tiles, cols)
        self.real = _tiled(np.ones(w.shape, bool), self.k_tiles, rows, n_tiles, cols)
        self.row, self.col = np.arange(rows), np.arange(cols)
        self.delay = self.row if skew else np.zeros_like(self.row)
        self.cells = _Cells(self.copies, rows, cols, x.dtype)
        self.sums_out = np.zeros((self.m, n_tiles * cols), x.dtype)  # the accumulators below the array
        self.values = self.sums_out[:, :n]
        self.taken = np.zeros((self.copies, cols), int)  # sums that have left each column
        self.out = ((), ())  # (i, n) of the sums that left in this cycle

    def cycles(self):
        """Step until the last sum has left; yields the number of each cycle once it is done."""
        copy = np.arange(self.copies)[:, None]
        left, cycle = self.tiles * self.m * len(self.col), -len(self.row)
        with np.errstate(invalid="ignore", over="ignore"):  # inf and NaN flow through as in any product
            while left:
                self.cells.step(*self._entering_left(copy, cycle), *self._entering_above(copy, cycle))
                left -= self._collect(cycle)
                yield cycle
                cycle += 1

    def _entering_left(self, copy, cycle):
        tile, i = divmod(cycle - self.delay, self.period)
        here = (tile >= 0) & (tile < self.tiles_per_copy) & (i < self.m)
        tile = tile + copy * self.tiles_per_copy
        here = here & (tile < self.tiles)
        x = self.x[np.minimum(i, self.m - 1), tile % self.k_tiles, self.row]
        return np.where(here, x, 0), np.where(here, i, -1)

    def _entering_above(self, copy, cycle):
        """Weights come bottom row first, in column c c cycles late, as its x does. A cell takes part once the first of
        them has come down to it: until then it keeps the weight that its x of the tile before may still need."""
        rows = len(self.row)
        tile, step = divmod(cycle - self.col + rows, self.period)
        loading = (tile >= 0) & (tile < self.tiles_per_copy) & (step < rows)
        if not loading.any():
            return None, None, None
        tile = np.clip(tile + copy * self.tiles_per_copy, 0, self.tiles - 1)  # also where nothing loads
        w_row = np.maximum(rows - 1 - step, 0)
        loading = loading & (self.row[:, None] <= step)
        return self.w[tile, w_row, self.col], self.real[tile, w_row, self.col], loading

    def _collect(self, cycle) -> int:
        """Add the sums that leave the last row to the accumulators; returns how many there were."""
        copy, c = np.nonzero(self.cells.x_row[:, -1] >= 0)
        tile, i = divmod(self.taken[copy, c], self.m)
        n = (tile + copy * self.tiles_per_copy) // self.k_tiles * len(self.col) + c
        np.add.at(self.sums_out, (i, n), self.cells.sums[copy, -1, c])
        self.taken[copy, c] += 1
        self.out = i, n
        if len(copy) and copy[-1] == self.copies - 1:
            self.last_out = cycle
        return len(copy)

    def leaving(self) -> list[tuple[int, int]]:
        return [(int(i), int(n)) for i, n in zip(*self.out, strict=True) if n < self.values.shape[1]]


def predicted_cycles(m: int, k: int, n: int, rows: int, cols: int, weight_load: str = "hidden") -> int:
    """The formula beside the simulation: cycles for (m, k) @ (k, n) on rows x cols cells."""
    tiles = math.ceil(k / rows) * math.ceil(n / cols)
    wave = m + rows + cols - 2
    return tiles * (rows + wave) if weight_load == "exposed" else (tiles - 1) * max(m, rows) + wave


def predicted_utilisation(m: int, k: int, n: int, rows: int, cols: int, weight_load: str = "hidden") -> float:
    """Multiply-adds of the product over those that all cells could do in `predicted_cycles`."""
    return m * k * n / (predicted_cycles(m, k, n, rows, cols, weight_load) * rows * cols)


def _padded(a, rows: int, cols: int):
    return np.pad(a, ((0, rows - a.shape[0]), (0, cols - a.shape[1])))


def _tiled(w, k_tiles: int, rows: int, n_tiles: int, cols: int):
    """(tiles, rows, cols), those that share columns of y one after another."""
    parts = _padded(w, k_tiles * rows, n_tiles * cols).reshape(k_tiles, rows, n_tiles, cols)
    return parts.transpose(2, 0, 1, 3).reshape(-1, rows, cols)


def _as_array(name: str, a):
    """A numpy array of it; numpy itself knows neither a tensor's gradient nor bfloat16."""
    if getattr(a, "requires_grad", False):
        raise ValueError(f"{name} requires grad, which this simulation would lose; pass {name}.detach()")
    return np.asarray(a.double() if hasattr(a, "is_floating_point") and a.is_floating_point() else a)


def _checked(x, w):
    """x and w as int64 or float64 matrices that can be multiplied."""
    x, w = (_as_array(name, a) for name, a in (("x", x), ("w", w)))
    for name, a in (("x", x), ("w", w)):
        if a.dtype.kind not in "iuf":
            raise TypeError(f"{name} must hold integers or floats, got {a.dtype}")
        if a.ndim != 2 or 0 in a.shape:
            raise ValueError(f"{name} must be a matrix with at least one row and column, got shape {a.shape}")
    if (x.dtype.kind == "f") != (w.dtype.kind == "f"):
        raise TypeError(f"x and w must be both integer or both float, got {x.dtype} and {w.dtype}")
    if x.shape[1] != w.shape[0]:
        raise ValueError(f"x has {x.shape[1]} columns but w has {w.shape[0]} rows; x (M, K) @ w (K, N) needs equal K")
    if x.dtype.kind == "f":
        return x.astype(np.float64), w.astype(np.float64)
    largest = max(x.shape[1] * math.prod(max(abs(int(a.min())), abs(int(a.max()))) for a in (x, w)), *(int(a.max()) for a in (x, w)))
    if largest >= 2**63:
        raise ValueError(f"sums of these integers can reach {largest}, too much for int64: use smaller ones or floats")
    return x.astype(np.int64), w.astype(np.int64)
