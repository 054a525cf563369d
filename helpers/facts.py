"""Reading the fact sheets in `data/`: every value with its source and how well it is known."""

import functools
import numbers
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

DATA = Path(__file__).parent / "data"
STATUSES = ("verified", "secondary", "derived", "inferred", "unverified")


@dataclass(frozen=True)
class Fact:
    """One value, the key of its source in `sources()`, and how well it is known (one of STATUSES)."""

    value: Any
    source: str
    status: str
    note: str = ""


@functools.cache
def gpu_table() -> dict:
    return tomllib.loads((DATA / "gpus.toml").read_text(encoding="utf-8"))


def capabilities() -> list[str]:
    """Every known compute capability: "7.5", "8.0", ..."""
    return list(gpu_table()["limits"]["max_threads_per_sm"]["value"])


def meanings() -> dict[str, str]:
    """What each limit says, in words, with its unit."""
    return {name: row["meaning"] for name, row in gpu_table()["limits"].items()}


def sources() -> dict[str, dict[str, str]]:
    """Title and place of each source, by the key that facts carry."""
    return gpu_table()["sources"]


def latencies() -> list[dict]:
    """Published latencies of a dependent load, also of GPUs that are not in the table: gpu, *_cycles, *_ns, source."""
    return gpu_table()["latency"]


def l2_bandwidths() -> list[dict]:
    """Published measurements of L2 read bandwidth: gpu, tb_per_s, source, status, note."""
    return gpu_table()["l2_bandwidth"]


def fma_latencies() -> list[dict]:
    """Cycles until a dependent FMA may issue, as far as printed: cc, cycles, source, status."""
    return gpu_table()["fma_latency"]


def parse_cc(target) -> tuple[int, int] | None:
    """(12, 0) from "sm_120", "sm_120a", "sm120", "12.0", 12.0 or (12, 0); None if it is not a compute capability at all."""
    if isinstance(target, tuple | list):
        whole = len(target) == 2 and all(isinstance(n, numbers.Integral) and not isinstance(n, bool) for n in target)
        return (int(target[0]), int(target[1])) if whole else None
    if isinstance(target, numbers.Real) and not isinstance(target, numbers.Integral):
        target = f"{target:g}" if target % 1 else f"{target:.1f}"
    if isinstance(target, str):
        for pattern in (r"(?:sm|compute)_?(\d+)(\d)[af]?", r"(\d+)\.(\d)[af]?"):
            match = re.fullmatch(pattern, target.strip().lower(), re.ASCII)
            if match:
                return int(match[1]), int(match[2])
    return None


def cc_key(cc: tuple[int, int]) -> str:
    return f"{cc[0]}.{cc[1]}"


def plain_name(name: str) -> str:
    """A name without case, spaces, dashes and maker: "NVIDIA GeForce RTX 5090" -> "rtx5090"."""
    return "".join(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in ("nvidia", "geforce"))


@functools.cache
def tpu_table() -> dict:
    return tomllib.loads((DATA / "tpus.toml").read_text(encoding="utf-8"))


def tpu(name: str) -> dict[str, Fact]:
    """The facts of a TPU ("v5p", "v1") by name; `tpu("v5p")["bf16_tflops"].value`. Raises ValueError for another."""
    chips = tpu_table()["tpu"]
    if name not in chips:
        raise ValueError(f"unknown TPU {name!r}; known are {', '.join(chips)}")
    return {key: Fact(**entry) for key, entry in chips[name].items()}


def tpu_sources() -> dict[str, dict[str, str]]:
    """Title and place of each source of the TPU facts, by the key that they carry."""
    return tpu_table()["sources"]


def counterparts() -> list[dict]:
    """Which part of a GPU answers to which part of a TPU, with counts of an H100 and a v5p chip."""
    return tpu_table()["counterpart"]


def memory_wall() -> tuple[pd.DataFrame, dict]:
    """Twenty years of peak compute, memory and link rates (series, year, normalised, absolute, unit, name), and where
    they come from: title, how they were read, the growth printed there, caveats."""
    return pd.read_csv(DATA / "memory_wall.csv"), tomllib.loads((DATA / "memory_wall.toml").read_text(encoding="utf-8"))
