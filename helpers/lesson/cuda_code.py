"""Views of CUDA C++: a part of a shipped `.cu` file."""

from helpers.cuda.nvrtc import FOLDER
from helpers.lesson.code import Listing


def show_cuda(name: str, begins: str, ends: str = "\n}") -> Listing:
    """The part of a file of helpers/cuda from the line with `begins` to the first `ends` after it.

    Raises ValueError where the file has no such line.
    """
    text = (FOLDER / name).read_text(encoding="utf-8")
    if begins not in text:
        raise ValueError(f"{name} has no line with {begins!r}")
    first = text.rfind("\n", 0, text.index(begins)) + 1
    last = text.index(ends, text.index(begins)) + len(ends)
    return Listing(f"{name}, from line {text.count(chr(10), 0, first) + 1}", text[first:last], most=80)
