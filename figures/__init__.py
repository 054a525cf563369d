"""The course's figures: plain tables and numbers in, pictures out. Nothing here measures or reads files."""

import os

try:
    import matplotlib  # noqa: F401
except ValueError:  # an inherited MPLBACKEND that this matplotlib does not know; figures need none
    os.environ["MPLBACKEND"] = "agg"
