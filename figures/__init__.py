"""The course's figures: plain tables and numbers in, pictures out. Nothing here measures or reads files."""

import contextlib
import os
import sys

# Figures need no backend, but matplotlib is not imported under a MPLBACKEND that it does not know (such as Qt4Agg).
if "matplotlib" not in sys.modules and os.environ.get("MPLBACKEND"):
    asked = os.environ.pop("MPLBACKEND")
    import matplotlib

    os.environ["MPLBACKEND"] = asked
    with contextlib.suppress(ValueError):
        matplotlib.rcParams["backend"] = asked  # as matplotlib does, for the reader's own pyplot
