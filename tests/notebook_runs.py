"""How notebooks are run by the tests: nbval strict in recorded mode, in a process of its own (this file as a program)."""

import os
import subprocess
import sys
from pathlib import Path

# An optional part of jsonschema, which nbformat loads: it takes longer to load than a small notebook to run.
sys.modules.setdefault("rfc3987_syntax", None)

import nbformat  # noqa: E402

TESTS = Path(__file__).parent
SANITIZE = TESTS / "nbval_sanitize.cfg"
CELL_TIMEOUT_S = 120


def run_nbval(*paths: Path) -> subprocess.CompletedProcess:
    """Run notebooks under nbval, comparing every stored output strictly, in this Python's environment."""
    from helpers.lesson.store import readers_environment

    command = [sys.executable, __file__, "-q", "-c", os.devnull, "--rootdir", str(TESTS), "-p", "no:cacheprovider",
               "-p", "nbval.plugin", "--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT_S}",
               f"--nbval-sanitize-with={SANITIZE}", *map(str, paths)]
    environment = {k: v for k, v in readers_environment("recorded").items() if not k.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def read(path: Path):
    return nbformat.read(path, as_version=4)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


if __name__ == "__main__":
    import pytest  # no helpers here: they would set up Triton in the environment that the notebooks' kernels inherit

    sys.exit(pytest.main(sys.argv[1:]))
