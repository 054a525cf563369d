"""The first call of every notebook: says which evidence its outputs carry, and starts the compiler's worker."""

import torch
import triton

from helpers import compile as compiler
from helpers import mode, no_triton, results
from helpers.lesson.map import CUDA, MODELS, part_of


def start(lesson: str) -> None:
    """Print the evidence line of a lesson, e.g. start("03_gelu"), and warm up the compiler in the background."""
    compiler.warm_up()
    print(f"Lesson {lesson}. {evidence_paragraph(lesson)}")


def evidence_paragraph(lesson: str) -> str:
    """One or two sentences: where a lesson's measurements, values and compiler output come from in this session."""
    part = part_of(lesson)
    if part == MODELS:
        return "Evidence: simulated. A stated model of the chip computes the values here; facts of chips are published, with sources."
    if mode.is_live():
        name = torch.cuda.get_device_name()
        return f"Evidence: live. Kernels run and are measured on this machine's {name} (Triton {triton.__version__})."
    if part == CUDA:
        values = "the course's SIMT machine, which executes their compiled PTX"
    else:
        values = "the Triton interpreter" if mode.has_triton() else f"torch, since {no_triton.MISSING}"
    machine = _recorded_machine()
    return (
        f"Evidence: {machine}. Kernels compute their values on this CPU by {values}; "
        "compiled code comes from the real compiler for the named target."
    )


def _recorded_machine() -> str:
    data = results.load()
    dates = sorted(entry["date"] for entry in data["experiments"].values())
    when = f"on {dates[0]}" if dates[0] == dates[-1] else f"from {dates[0]} to {dates[-1]}"
    return f"recorded. Measurements were made on an {data['machine']['name']} {when}"
