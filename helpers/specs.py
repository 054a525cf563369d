"""What is known about GPUs and compute capabilities: `gpu("RTX 5090")`, `gpu("sm_120")`, `gpu((12, 0))`, `gpu()`.

The numbers stand in `data/gpus.toml`, each with its source and how well it is known; `Gpu.fact("l2_mib")` gives both.
A number that is not known is None, never that of a similar chip. Units: GB, GB/s and TFLOPS are decimal and dense,
KiB and MiB binary.
"""

import functools
import math
from dataclasses import dataclass, field, fields

import torch

from helpers.facts import (
    Fact,
    capabilities,
    cc_key,
    counterparts,
    fma_latencies,
    gpu_table,
    l2_bandwidths,
    latencies,
    meanings,
    parse_cc,
    plain_name,
    sources,
    tpu,
    tpu_sources,
)
from helpers.limits import Limits, limits_of

__all__ = ["Fact", "Gpu", "Limits", "capabilities", "counterparts", "fma_latencies", "from_driver", "gpu",
           "l2_bandwidths", "latencies", "limits", "meanings", "products", "sources", "tpu", "tpu_sources"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp16_acc16", "fp8", "fp8_acc16", "fp4")


@dataclass(frozen=True)
class Gpu:
    """A product, or (`is_product` False) all products of a compute capability, of which `example` names one.

    `limits` is what an SM holds. Everything else is None where unknown, and always where `is_product` is False:
    a compute capability has no SM count, clock or bandwidth of its own; ask for `gpu(gpu("sm_120").example)` instead.
    """

    name: str
    limits: Limits = field(repr=False)
    is_product: bool = True
    example: str | None = None
    sm_count: int | None = None
    fp32_cores: int | None = None
    boost_mhz: float | None = None
    tensor_boost_mhz: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    fp16_tflops: float | None = None
    fp16_acc16_tflops: float | None = None
    fp8_tflops: float | None = None
    fp8_acc16_tflops: float | None = None
    fp4_tflops: float | None = None
    l2_mib: float | None = None
    memory_gb: float | None = None
    memory_type: str | None = None
    bandwidth_gb_per_s: float | None = None
    bus_bits: int | None = None
    memory_gbit_per_s_per_pin: float | None = None
    without: tuple[str, ...] = ()
    facts: dict[str, Fact] = field(default_factory=dict, repr=False, compare=False)

    @property
    def cc(self) -> tuple[int, int]:
        return self.limits.cc

    @property
    def target(self) -> str:
        return self.limits.target

    def fact(self, name: str) -> Fact | None:
        """A value with its source and status, or None where it is not known. Raises ValueError for an unknown name."""
        if name not in {f.name for f in fields(self)}:
            raise ValueError(f"a Gpu has no {name!r}")
        return self.facts.get(name)

    def ridge(self, precision: str = "fp32") -> float | None:
        """FLOP per byte from which on the arithmetic is the limit: peak / bandwidth; None where one is unknown."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
        peak = getattr(self, f"{precision}_tflops")
        return None if peak is None or self.bandwidth_gb_per_s is None else peak * 1e3 / self.bandwidth_gb_per_s

    @property
    def fp32_tflops_from_clock(self) -> float | None:
        """cores x 2 FLOPs a cycle x boost clock: what the printed FP32 peak should be."""
        return _product(self.fp32_cores, 2, self.boost_mhz, 1e-6)

    @property
    def bandwidth_from_bus_gb_per_s(self) -> float | None:
        """bus width x data rate: what the printed bandwidth should be."""
        return _product(self.bus_bits, self.memory_gbit_per_s_per_pin, 1 / 8)

    @property
    def l2_bytes(self) -> int | None:
        return None if self.l2_mib is None else round(self.l2_mib * 2**20)

    @property
    def registers_mib(self) -> float | None:
        """All register files together."""
        return _product(self.sm_count, self.limits.registers_kib_per_sm, 1 / 1024)

    @property
    def l1_mib(self) -> float | None:
        """L1 and shared memory of all SMs together."""
        return _product(self.sm_count, self.limits.unified_cache_kib, 1 / 1024)

    @property
    def shared_mib(self) -> float | None:
        """The most shared memory of all SMs together."""
        return _product(self.sm_count, self.limits.shared_kib_per_sm, 1 / 1024)

    @property
    def l1_tb_per_s(self) -> float | None:
        """SMs x bytes a cycle x boost clock. Derived; only where the bytes a cycle were measured."""
        return _product(self.sm_count, self.limits.l1_bytes_per_cycle, self.boost_mhz, 1e-6)

    @property
    def register_read_tb_per_s(self) -> float | None:
        """Three 4-byte reads for each FMA of each core: a ceiling derived from the FMA rate."""
        return _product(self.fp32_cores, 12, self.boost_mhz, 1e-6)

    @property
    def l2_tb_per_s(self) -> float | None:
        """Measured read bandwidth of L2, where somebody published one for this card."""
        rows = [row for row in l2_bandwidths() if same_product(self.name, row["gpu"])]
        return rows[0]["tb_per_s"] if rows else None

    @property
    def latency_cycles(self) -> dict[str, float | None]:
        """Cycles of one dependent load by level ("l1", "l2", "dram"), None where nobody published it for this card."""
        rows = [row for row in latencies() if same_product(self.name, row["gpu"]) and "l2_cycles" in row]
        return {level: rows[0].get(f"{level}_cycles") if rows else None for level in ("l1", "l2", "dram")}


def gpu(name: str | tuple[int, int] | None = None) -> Gpu:
    """A GPU by its name ("RTX 5090", or as the driver says it), a compute capability, or nothing: this machine's.

    A compute capability ("sm_120", "12.0", (12, 0)) gives the limits that all its products share, see `Gpu`.
    Raises ValueError for an unknown one, listing what is known; RuntimeError for `gpu()` on a machine without a GPU.
    """
    if name is None:
        found = _this_machine()
        if found is None:
            raise RuntimeError('this machine has no NVIDIA GPU that torch can use: name one, as in gpu("RTX 5090"); '
                               f"known are {', '.join(gpu_table()['gpu'])}")
        return found
    if isinstance(name, str):
        product = _product_named(name)
        if product is not None:
            return product
    cc = parse_cc(name)
    if cc is not None and cc_key(cc) in capabilities():
        example = gpu_table()["examples"].get(cc_key(cc))
        return Gpu(name=f"sm_{cc[0]}{cc[1]}", limits=limits_of(cc), is_product=False, example=example)
    here = _this_machine() if isinstance(name, str) else None
    if here is not None and plain_name(here.name) == plain_name(name):
        return here
    raise ValueError(f"unknown GPU or compute capability {name!r}; known are {', '.join(gpu_table()['gpu'])} and "
                     f"compute capabilities {', '.join(capabilities())}")


def limits(target: str | tuple[int, int] | float) -> Limits:
    """What an SM of a compute capability or of a named GPU holds. Raises ValueError for an unknown one."""
    if target is None:
        raise ValueError("the limits of which GPU? Give its name or a compute capability")
    return gpu(target).limits


def products() -> list[Gpu]:
    """Every GPU of the table."""
    return [gpu(name) for name in gpu_table()["gpu"]]


def from_driver(name: str, cc: tuple[int, int], sm_count: int, memory_bytes: int, l2_bytes: int) -> Gpu:
    """A GPU as its driver describes it: the product of that name if it agrees, otherwise with unknown peaks.

    A compute capability that is not in the table has unknown limits.
    """
    product = _product_named(name)
    if product is not None and product.cc == cc and product.sm_count == sm_count:
        return product
    shared = limits_of(cc)
    cores = _product(sm_count, shared.fp32_cores_per_sm)
    known = {"sm_count": sm_count, "fp32_cores": cores, "memory_gb": memory_bytes / 1e9, "l2_mib": l2_bytes / 2**20}
    facts = {key: Fact(value, "driver", "verified") for key, value in known.items() if value is not None}
    return Gpu(name=name, limits=shared, facts=facts, **{key: fact.value for key, fact in facts.items()})


def _this_machine() -> Gpu | None:
    if not torch.cuda.is_available():
        return None
    p = torch.cuda.get_device_properties(torch.cuda.current_device())
    return from_driver(p.name, (p.major, p.minor), p.multi_processor_count, p.total_memory, p.L2_cache_size)


@functools.cache
def _product_named(name: str) -> Gpu | None:
    for key, entry in gpu_table()["gpu"].items():
        if plain_name(name) in {plain_name(n) for n in (key, *entry["aliases"])}:
            facts = {k: Fact(**v) for k, v in entry.items() if isinstance(v, dict)}
            cc = tuple(int(part) for part in entry["cc"].split("."))
            return Gpu(name=key, limits=limits_of(cc), without=tuple(entry.get("without", ())), facts=facts,
                       **{k: fact.value for k, fact in facts.items()})
    return None


def same_product(name: str, other: str) -> bool:
    """True if both are names of one product of the table."""
    first, second = _product_named(name), _product_named(other)
    return first is not None and second is not None and first.name == second.name


def _product(*factors):
    """The product, or None if a factor is not known."""
    return None if any(factor is None for factor in factors) else math.prod(factors)
