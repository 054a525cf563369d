"""How notebooks are run by the tests: nbval strict in recorded mode, and cells run with other sources."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat

TESTS = Path(__file__).parent
SANITIZE = TESTS / "nbval_sanitize.cfg"
CELL_TIMEOUT_S = 120


def run_nbval(*paths: Path) -> subprocess.CompletedProcess:
    """Run notebooks under nbval, comparing every stored output strictly, in this Python's environment."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(TESTS),
               "-p", "no:cacheprovider",
               "-p", "no:xdist", "--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT_S}",
               f"--nbval-sanitize-with={SANITIZE}", *map(str, paths)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"COURSE_EVIDENCE": "recorded"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def read(path: Path):
    return nbformat.read(path, as_version=4)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])
