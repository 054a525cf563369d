"""Tables of lesson 07, as rows, and the kernels that its calculator compiles."""

from helpers import claim_facts, results
from helpers.occupancy import occupancy, short_formula
from helpers.specs import Gpu, capabilities, gpu

CHAINS = (1, 8, 64, 512, 2048)  # FMAs an element
KERNELS = {  # of the earlier lessons: name -> compiled for (num_warps, target)
    "row sum, 8192 columns": lambda num_warps, target: claim_facts.row_sum_compiled(num_warps, 8192, target),
    "softmax, 4096 columns": lambda num_warps, target: claim_facts.softmax_compiled(num_warps, 4096, target),
    "matmul, 64 × 64 × 32": lambda num_warps, target: claim_facts.matmul_compiled(target=target, num_warps=num_warps),
}
COMPILED_CONTROLS = {
    "kernel": (list(KERNELS), "matmul, 64 × 64 × 32"),
    "num_warps": ([1, 2, 4, 8, 16, 32], 4),
    "target": ([f"sm_{cc.replace('.', '')}" for cc in capabilities()], "sm_120"),
}


def compiled_kernel(kernel: str, num_warps: int, target: str):
    """A kernel of an earlier lesson as the compiler makes it for a target. Raises ValueError for an unknown kernel."""
    if kernel not in KERNELS:
        raise ValueError(f"there are {', '.join(KERNELS)}, not {kernel!r}")
    return KERNELS[kernel](num_warps, target)


def what_limits(*names: str) -> list[dict]:
    """For each chain of Fig 2-5 what limits it on the named GPUs, by their ridge in float32."""
    gpus = [gpu(name) for name in names]
    rows = [{"N": k, "FLOP/B": k / 4} | {g.name: "arithmetic" if k / 4 > g.ridge() else "memory" for g in gpus} for k in CHAINS]
    return [*rows, {"N": "ridge"} | {g.name: f"{g.ridge():.1f} FLOP/B" for g in gpus}]


def matmul_warps(ladder, here: Gpu) -> list[dict]:
    """The 64 x 64 x 32 tile of lesson 06: how few warps it has, how many FMAs they may have under way, and how fast it is.

    `ladder` is measure("matmul_ladder") for that tile; the RTX 5090's share of the peak is the published one.
    """
    measured = float(ladder["tflops"].iloc[0]) / here.fp32_tflops if here.fp32_tflops else None
    rows = []
    for on, share, known in ((gpu("RTX 5090"), results.published("matmul_share")["value"], "published"),
                             (here, measured, ladder["evidence"].iloc[0])):
        compiled = claim_facts.matmul_compiled(target=on.target)
        found = claim_facts.resident(compiled, on.target)
        sums = 64 * 64 // compiled.threads
        rows.append({"GPU": on.name, "occupancy": f"{found.fraction:.0%}", "warps an SMSP": found.warps / 4, "sums a thread": sums,
                     "FMAs under way": int(found.warps / 4 * sums), "share of the FP32 peak": share and f"{share:.0%}", "known": known})
    return rows


def programs_on_an_sm(here: Gpu, **measured) -> list[dict]:
    """Programs x num_warps / 4 for row_sum= and softmax= tables of their num_warps experiments."""
    compilers = {"row_sum": claim_facts.row_sum_compiled, "softmax": claim_facts.softmax_compiled}
    rows = []
    for kernel, table in measured.items():
        for case in table.to_dict("records"):
            compiled = compilers[kernel](case["num_warps"], case["cols"], here.target)
            fit = claim_facts.resident(compiled, here.target)
            programs = min(fit.blocks, case["rows"] / here.sm_count)
            rows.append({"kernel": kernel, "rows": case["rows"], "num_warps": case["num_warps"], "registers": compiled.registers,
                         "programs that fit": fit.blocks, "programs on an SM": programs,
                         "warps on an SMSP": programs * case["num_warps"] / 4, "occupancy if full": f"{fit.fraction:.0%}",
                         "time_us": case["time_us"]})
    return rows


def occupancy_rows(target, *kernels: tuple[int, int, int]) -> list[dict]:
    """What each resource alone would allow, for (threads, registers, shared KiB)."""
    rows = []
    for threads, registers, shared_kib in kernels:
        o = occupancy(target, threads, registers, shared_kib * 1024)
        rows.append({"threads": threads, "registers": registers, "shared (KiB)": shared_kib, "by threads": o.by_threads,
                     "by registers": o.by_registers, "by shared memory": o.by_shared, "by blocks": o.by_blocks,
                     "blocks": o.blocks, "warps": o.warps, "occupancy": f"{100 * o.fraction:.3g} %"})
    return rows


def short_against_exact(*kernels: tuple) -> list[dict]:
    """Short formula and exact calculation for (target, threads, registers, shared KiB), and why."""
    rows = []
    for target, threads, registers, shared_kib in kernels:
        o = occupancy(target, threads, registers, shared_kib * 1024)
        rows.append({"target": target, "threads": threads, "registers": registers, "shared (KiB)": shared_kib,
                     "short formula": short_formula(target, threads, registers, shared_kib * 1024), "exact": o.blocks, "why": o.reason})
    return rows


def agreement(answers, target, formula=short_formula) -> list[dict]:
    """The launches that a driver was asked about (`driver_answers`), by what decides; in how many `occupancy` and `formula`
    say the same as the driver."""
    answers = answers.assign(formula=[formula(target, a.threads, a.registers, a.shared_bytes) for a in answers.itertuples()],
                             decides=answers["limiter"].where(answers["driver"] > 0, "cannot launch"))
    parts = [*answers.groupby("decides"), ("all", answers)]
    return [{"what decides": name, "launches": len(part), "occupancy agrees": int((part["calculated"] == part["driver"]).sum()),
             "short formula agrees": int((part["formula"] == part["driver"]).sum())} for name, part in parts]
