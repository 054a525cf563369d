"""Complete CUDA programs: built with nvcc and run, where both the toolkit and a GPU are there."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from helpers import mode
from helpers.cuda.nvrtc import FOLDER


def why_not() -> str | None:
    """None if programs can be built and run here, otherwise the reason in one sentence."""
    if not mode.is_live():
        return "no GPU is in use here"
    if shutil.which("nvcc") is None:
        return "nvcc, the compiler of the CUDA toolkit, is not installed (everything else needs only NVRTC)"
    return None


def built_or_recorded():
    """The table of "vec_add_program": built and run here where that works, otherwise recorded; and why not here, or None."""
    from helpers import measure, results

    reason = why_not()
    if reason is None:
        try:
            return measure.measure("vec_add_program"), None
        except RuntimeError as error:  # above all an nvcc that finds no C++ compiler of the host
            reason = " ".join(str(error).splitlines()[:2])
    return results.recorded("vec_add_program"), reason


def build_and_run(name: str) -> str:
    """What a `.cu` file of this folder prints. Raises RuntimeError with the message of whatever failed."""
    reason = why_not()
    if reason:
        raise RuntimeError(f"{name} cannot be built and run: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / Path(name).stem
        for command in (["nvcc", "-o", program, FOLDER / name], [program]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()
