"""What the notebooks call: the opening line, tables, views of code, widgets and the checks of exercises."""

from helpers.lesson.code import show_ptx, show_sass, show_source
from helpers.lesson.exercise import check
from helpers.lesson.start import start
from helpers.lesson.table import Table, side_by_side, table
from helpers.lesson.widgets import explore, sweep

__all__ = [
    "Table", "check", "explore", "show_ptx", "show_sass", "show_source", "side_by_side", "start", "sweep", "table",
]
