"""Table 1-1 (GPUs beside each other) and table 1-2 (what an SM holds, by compute capability), each cell with its source."""

from helpers import specs
from helpers.facts import parse_cc
from helpers.lesson.table import Table, table

MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"  # of sources, raised so that they do not look like units

QUANTITIES = {  # attribute of Gpu -> heading
    "sm_count": "SMs", "fp32_cores": "FP32 cores", "boost_mhz": "boost clock (MHz)",
    "fp32_tflops": "FP32 TFLOPS", "tf32_tflops": "TF32 TFLOPS", "bf16_tflops": "BF16 TFLOPS", "fp16_tflops": "FP16 TFLOPS",
    "fp8_tflops": "FP8 TFLOPS", "fp4_tflops": "FP4 TFLOPS", "l2_mib": "L2 (MiB)", "memory_gb": "memory (GB)",
    "memory_type": "memory", "bandwidth_gb_per_s": "bandwidth (GB/s)",
}
FORMATS = {"tf32_tflops": "tf32", "bf16_tflops": "bf16", "fp16_tflops": "fp16", "fp8_tflops": "fp8", "fp4_tflops": "fp4"}
DERIVED = {  # heading -> what it is computed from, as a function of Gpu
    "FP32 from cores × 2 × clock": lambda g: g.fp32_tflops_from_clock,
    "bandwidth from bus × rate": lambda g: g.bandwidth_from_bus_gb_per_s,
    "ridge FP32 (FLOP/B)": lambda g: g.ridge("fp32"),
    "ridge BF16 (FLOP/B)": lambda g: g.ridge("bf16"),
    "registers, all SMs (MiB)": lambda g: g.registers_mib,
    "L1 + shared, all SMs (MiB)": lambda g: g.l1_mib,
}


def table_1_1(*names: str) -> Table:
    """GPUs beside each other, all of the table without names. Letters name the source of a cell, ? marks an unverified one.

    Raises ValueError for an unknown name.
    """
    gpus = [specs.gpu(name) for name in names] if names else specs.products()
    letters, rows = {}, []

    def letter(source: str) -> str:
        return letters.setdefault(source, MARKS[len(letters)])

    for attribute, heading in QUANTITIES.items():
        row = {"": heading}
        for gpu in gpus:
            fact = gpu.fact(attribute)
            if fact is not None:
                doubt = " ?" if fact.status == "unverified" else ""
                row[gpu.name] = f"{_short(fact.value)}{letter(fact.source)}{doubt}"
            else:
                row[gpu.name] = "none" if FORMATS.get(attribute) in gpu.without else None
        rows.append(row)
    rows.append({"": "compute capability"} | {g.name: f"{g.cc[0]}.{g.cc[1]}" for g in gpus})
    for heading, value_of in DERIVED.items():
        rows.append({"": heading} | {g.name: None if value_of(g) is None else f"{value_of(g):.4g}" for g in gpus})
    titles = specs.sources()
    legend = "; ".join(f"{mark} {titles[source]['title']}" for source, mark in letters.items())
    return table(rows, caption="Table 1-1: GPUs beside each other (dense peaks; the last six rows are derived)",
                 evidence=f"published or derived · {legend} · ? unverified")


LIMITS = ["max_threads_per_sm", "max_warps_per_sm", "max_blocks_per_sm", "max_threads_per_block", "registers_per_sm",
          "max_registers_per_thread", "shared_kib_per_sm", "shared_kib_per_block", "unified_cache_kib", "reserved_shared_kib",
          "shared_granularity_bytes", "register_granularity"]


def table_1_2() -> Table:
    """What one SM holds, by compute capability; each row with its source, the last two rows derived."""
    columns = {cc: specs.limits(cc) for cc in specs.capabilities()}
    titles, sources, rows = specs.sources(), {}, []
    for name in LIMITS:
        fact = next(iter(columns.values())).fact(name)
        sources.setdefault(fact.source, titles[fact.source]["title"])
        row = {"limit": specs.meanings()[name]}
        rows.append(row | {cc: _short(getattr(sm, name)) for cc, sm in columns.items()} | {"source": fact.source})
    rows.append({"limit": "warps of an SMSP"} | {cc: str(sm.max_warps_per_smsp) for cc, sm in columns.items()}
                | {"source": "derived"})
    rows.append({"limit": "registers a thread, at full occupancy"}
                | {cc: str(sm.registers_at_full_occupancy) for cc, sm in columns.items()} | {"source": "derived"})
    legend = "; ".join(f"{key}: {title}" for key, title in sources.items())
    return table(rows, caption="Table 1-2: what one SM holds, by compute capability", evidence=f"published · {legend}")


def _short(value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


LEVELS = {"L1": "l1", "L2": "l2", "device memory": "dram"}


def published_latencies(spec: specs.Gpu, *also: str) -> dict[str, dict[str, float]]:
    """Cycles of a load by level ("l1", "l2", "dram") as published: of `spec` itself, else of a GPU of the same compute
    capability, if there is one; then of those in `also`. Raises KeyError where nobody published one of these."""
    printed = {row["gpu"]: row for row in reversed(specs.latencies()) if {"l1_cycles", "dram_cycles"} <= set(row)}
    alike = [name for name, row in printed.items()
             if (parse_cc(row["cc"]) if "cc" in row else specs.gpu(name).cc) == spec.cc]
    own = [name for name in alike if specs.same_product(name, spec.name)]
    names = dict.fromkeys([*(own or alike)[:1], *also])
    return {name: {level: printed[name][f"{level}_cycles"] for level in LEVELS.values()} for name in names}


def latency_table(levels: dict[str, dict[str, float]], spec: specs.Gpu, published: dict[str, dict[str, float]], measured) -> Table:
    """Measured latency of a load from each level in cycles and ns beside published ones, and the ratio to the first.

    `levels` is what `figures.working_sets.latency_plateaus` found on `spec`, `published` comes from `published_latencies`,
    `measured` is the evidence of `levels`.
    """
    rows, titles = [], specs.sources()
    if not levels:
        rows = [{"a load from": f"the levels of the {spec.name} cannot be told apart: table 1-2 does not have it"}]
    for level, at in levels.items():
        row = {"a load from": level, spec.name: at["cycles"], "in ns": at["ns"]}
        row |= {f"{name} (published)": cycles[LEVELS[level]] for name, cycles in published.items()}
        first = next(iter(published))
        rows.append(row | {f"ratio to {first}": at["cycles"] / published[first][LEVELS[level]]})
    used = dict.fromkeys(titles[row["source"]]["title"] for row in specs.latencies() if row["gpu"] in published and "l1_cycles" in row)
    return table(rows, caption="Latency of one dependent load in cycles, the measured one also in ns",
                 evidence=f"{measured.line()} | published · {'; '.join(used)}")


def rate_table(levels: dict[str, float], spec: specs.Gpu, measured) -> Table:
    """Measured read rate of each level, also in bytes for each SM and cycle, beside what others measured or the maker prints.

    `levels` is what `figures.working_sets.plateaus` found on `spec`, `measured` its evidence.
    """
    l2 = ", ".join(f"{row['gpu']} {row['tb_per_s']:g}" for row in specs.l2_bandwidths())
    beside = {"L1": f"RTX PRO 6000: {specs.limits('12.0').l1_bytes_per_cycle} bytes a cycle and SM", "L2": f"TB/s: {l2}",
              "device memory": "its datasheet is not in table 1-1"}
    if spec.bandwidth_gb_per_s:
        beside["device memory"] = f"datasheet of the {spec.name}: {spec.bandwidth_gb_per_s / 1e3:g} TB/s"
    rows = []
    for level, rate in levels.items():
        per_cycle = rate * 1e3 / spec.sm_count / spec.boost_mhz if spec.boost_mhz else None
        rows.append({"read from": level, "measured (TB/s)": rate / 1e3, "bytes a cycle and SM": per_cycle, "published": beside[level]})
    titles = specs.sources()
    used = dict.fromkeys(titles[row["source"]]["title"] for row in specs.l2_bandwidths())
    return table(rows, caption="Plateaus of the read rate (cycles at boost clock)",
                 evidence=f"{measured.line()} | published · {'; '.join(used)}")
