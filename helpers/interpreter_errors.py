"""A kernel that fails in the interpreter says where and why, as the compiler would: the reader's line and one sentence.

Triton raises an error of its own from a hundred lines of its inner frames, among which the one line of the kernel is hard to find.
"""

import linecache
import re
import traceback
from pathlib import Path

_INNER = re.compile(r"[/\\](site-packages[/\\](triton|numpy|torch)|helpers[/\\]interpreter\w*\.py)")


def explained(error: Exception, interpreter_error: type[Exception]) -> str:
    """The line that an interpreted kernel stopped at, and the error that was raised there first."""
    place = None
    while True:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not _INNER.search(f.filename)]
        place = frames[-1] if frames else place
        if not isinstance(error, interpreter_error) or error.__cause__ is None:
            break
        error = error.__cause__
    what = f"{type(error).__name__}: {error}"
    if not str(error):  # a bare assert of Triton's own
        what += traceback.extract_tb(error.__traceback__)[-1].line or ""
    if place is None:
        return what
    cell = "ipykernel" in place.filename or place.filename.startswith("<")
    line = linecache.getline(place.filename, place.lineno).strip()
    return f"{place.name}, line {place.lineno} of {'the cell' if cell else Path(place.filename).name}:\n    {line}\n{what}"
