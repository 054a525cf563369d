"""The SIMT machine: runs the PTX that NVRTC and Triton produce without a GPU, and counts what the hardware would do."""

from helpers.simt.faults import (
    Deadlock,
    Misaligned,
    OutOfBounds,
    Race,
    SimtError,
    TooLong,
    Trap,
    Uninitialised,
    UnknownInstruction,
    UnreachedBarrier,
    WrongType,
)
from helpers.simt.launch import run
from helpers.simt.report import Report

__all__ = ["Deadlock", "Misaligned", "OutOfBounds", "Race", "Report", "SimtError", "TooLong", "Trap", "Uninitialised",
           "UnknownInstruction", "UnreachedBarrier", "WrongType", "run"]
