"""Everything the lessons call. Importing it decides how kernels run on this machine (see `helpers.mode`)."""

import importlib.util as _util
import sys as _sys

if _util.find_spec("torch") is None:  # most often a notebook whose kernel is another Python than the course's
    raise ModuleNotFoundError(f"torch is not installed for the Python that runs here, {_sys.executable}. Start with `make lab`, which "
                              "brings a Python of its own, or install into this one: pip install -r requirements.txt", name="torch")

from helpers.mode import decide as _decide  # noqa: E402

_decide()
