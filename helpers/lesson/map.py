"""The map of lessons: its part of the course, what it asks, how long it takes. Shown by lesson 00; the README repeats it."""

from pathlib import Path

from helpers.lesson.table import table

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
HARDWARE, TRITON, CUDA, MODELS = "the hardware", "Triton, block by block", "CUDA, thread by thread", "appendix"
_TABLE = [
    (HARDWARE, "01_memory_hierarchy", "Why does a faster GPU not make every operation faster?", 40),
    (HARDWARE, "02_sm_and_warps", "Who runs a kernel's threads, and how is waiting hidden?", 45),
    (TRITON, "03_gelu", "What does the compiler make of ten lines of Triton?", 40),
    (TRITON, "04_softmax", "Where did the other three quarters of the traffic go?", 50),
    (TRITON, "05_row_sum", "How do you sum a row that does not fit?", 50),
    (TRITON, "06_matmul", "How often is each loaded number used?", 60),
    (TRITON, "07_occupancy", "What should num_warps be?", 60),
    (CUDA, "08_cuda_threads", "What happens between c = a + b and the GPU?", 45),
    (CUDA, "09_coalescing", "How many bytes does one warp's load really move?", 45),
    (CUDA, "10_shared_memory", "How many times is the same number read?", 50),
    (CUDA, "11_streams", "What can run at the same time?", 40),
    (MODELS, "A_tpu", "What could a chip drop if it did little else than matrix products?", 45),
]
LESSONS = [dict(zip(("part", "lesson", "question", "minutes"), row, strict=True)) for row in _TABLE]


def part_of(lesson: str) -> str | None:
    """The part of the course that a lesson belongs to, one of the four above; None for lesson 00 and any that is not listed."""
    return next((row["part"] for row in LESSONS if row["lesson"] == lesson), None)


def lesson_map():
    """The lessons that are there, as a table."""
    there = [row for row in LESSONS if (NOTEBOOKS / f"{row['lesson']}.ipynb").exists()]
    rows = [row | {"needs a GPU": "no"} for row in there]
    return table(rows, caption="The map of lessons")
