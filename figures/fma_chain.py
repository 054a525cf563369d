"""Figures of lesson 07: the FMA chain over warps (Fig 2-5), predicted and measured, memory's lines, who ended when."""

from figures.style import MARKERS, ROLE, SERIES, Picture, limit_line, new
from helpers.evidence import simulated
from helpers.fma_model import VARIANTS, Machine, fraction_of_peak, machine_of, median_error, plateau, warps_for_bandwidth
from helpers.specs import gpu, products

K_COLOURS = {1: SERIES[0], 8: SERIES[5], 64: SERIES[2], 512: SERIES[1], 2048: "#222222"}
K_MARKERS = dict(zip(K_COLOURS, MARKERS, strict=False))
NAMES = {"plain loads": "one element, plain loads", "one element": "one element, loaded early",
         "one element, shares as needed": "loaded early, shares as needed", "four elements": "four elements, loaded early"}


def named(variant: str) -> str:
    """What a reader should know of a variant without having read its kernel: how many elements, loaded when."""
    return NAMES.get(variant, variant)


def warps_axis(ax, most: int) -> None:
    ax.set(xlabel="warps on every SMSP", xlim=(0.4, most + 0.6))
    ax.set_xticks(range(1, most + 1))


def share_axis(ax, most: int) -> None:
    warps_axis(ax, most)
    ax.set(ylabel="share of the FP32 peak (%)", ylim=(0, 108))


def line_of(table, variant: str, k: int):
    """The rows of one line of Fig 2-5, in order of warps."""
    return table[(table["variant"] == variant) & (table["k"] == k)].sort_values("warps_per_smsp")


def shares(table, machine: Machine, variant: str, k: int) -> dict[int, float]:
    """Share of the FP32 peak by warps per SMSP."""
    rows = line_of(table, variant, k)
    return dict(zip(rows["warps_per_smsp"].astype(int), rows["tflops"] / machine.peak_tflops, strict=True))


def uneven(table) -> list[int]:
    """Warps per SMSP at which some SM was read back to hold more or fewer programs than the others."""
    if "most_programs_on_an_sm" not in table:
        return []
    rows = table[table["most_programs_on_an_sm"].notna()]
    wrong = rows[rows["most_programs_on_an_sm"] != rows["fewest_programs_on_an_sm"]]
    return sorted(set(wrong["warps_per_smsp"].astype(int)))


def placement(table) -> list[dict]:
    """Programs on the SMs as read back: one line for all numbers of warps where every SM held m, one for each other."""
    read = table[table["most_programs_on_an_sm"].notna()].astype({"warps_per_smsp": int})
    rings = set(uneven(read))
    found = []
    for label, part in read.groupby(read["warps_per_smsp"].where(read["warps_per_smsp"].isin(rings), 0)):
        ms = sorted(set(part["warps_per_smsp"]))
        row = {"m": str(label) if label else _listed(ms), "launches": len(part)}
        fewest, most = int(part["fewest_programs_on_an_sm"].min()), int(part["most_programs_on_an_sm"].max())
        found.append(row | {"programs on an SM": f"{fewest} to {most}, uneven" if label else "m on each"})
    return found


def _listed(numbers: list[int]) -> str:
    whole = numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 1
    return f"{numbers[0]} to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


# ------------------------------------------------------------------------------------- the prediction alone
def predictable() -> list[str]:
    """Names of the GPUs for which every number that the model needs was published."""
    def known(product) -> bool:
        try:
            return bool(machine_of(product))
        except ValueError:
            return False

    return [product.name for product in products() if known(product)]


PREDICTION_CONTROLS = {"name": (predictable(), "RTX 5090"), "variant": (list(VARIANTS), "one element")}


def draw_prediction(ax, machine: Machine, most: int, variant="one element", ks=tuple(K_COLOURS), published=()):
    """What the model says for 1 to `most` warps: a dashed line for each k; diamonds are published points."""
    warps = range(1, most + 1)
    for k in ks:
        predicted = [100 * fraction_of_peak(machine, k, m, variant) for m in warps]
        ax.plot(warps, predicted, color=K_COLOURS[k], linestyle="--", marker=K_MARKERS[k], markersize=4)
        name_line(ax, most, predicted[-1], k)
    mark_published(ax, published)
    share_axis(ax, most)
    return ax


def name_line(ax, x: float, y: float, k: int) -> None:
    apart = {1: 5, 8: 10}.get(k, 0)  # both lie near zero: above the axis, and apart
    ax.annotate(f"k = {k}", (x, y), xytext=(9, apart), textcoords="offset points", va="center", fontsize=8.5, color=K_COLOURS[k],
                annotation_clip=False)


def mark_published(ax, published) -> None:
    """Diamonds with their share; `published` is pairs (warps, share) of the RTX 5090."""
    for i, (warps, share) in enumerate(published):
        ax.plot(warps, 100 * share, "D", color=ROLE["published"], markersize=9, markeredgecolor="black", linewidth=0, zorder=4,
                label=None if i else "published, RTX 5090")
        ax.annotate(f"{share:.0%}", (warps, 100 * share), xytext=(11, 4 if share > 0.5 else -4), textcoords="offset points",
                    fontsize=8.5, color="#8a3f6b")
    if published:
        ax.legend(loc="upper left", fontsize=8.5)


def prediction_alt(name: str, machine: Machine, most: int, variant: str, ks=tuple(K_COLOURS)) -> str:
    parts = [f"k = {k}: " + ", ".join(f"{fraction_of_peak(machine, k, m, variant):.0%} at {m}" for m in (1, 4, most)) for k in ks]
    return f"Predicted share of the FP32 peak of the {name} over warps per SMSP, {named(variant)}. {'; '.join(parts)}."


def show_prediction(name: str = "RTX 5090", variant: str = "one element", published=None) -> Picture:
    """The model alone, from published numbers; `published` points are given for the 5090's early loads only."""
    machine, most = machine_of(gpu(name)), gpu(name).limits.max_warps_per_smsp
    fig, ax = new(7.4, 3.9)
    points = published if published is not None and (name, variant) == ("RTX 5090", "one element") else ()
    draw_prediction(ax, machine, most, variant, published=points)
    one, four = (fraction_of_peak(machine, 512, m, variant) for m in (1, 4))
    ax.set_title(f"{name}: {one:.0%} predicted at one warp, {four:.0%} at four (k = 512)")
    detail = f"{variant}, model with FMA {machine.fma_latency} and load {machine.memory_latency:g} cycles"
    return Picture(fig, prediction_alt(name, machine, most, variant), simulated(detail))


# ------------------------------------------------------------------------------------- Fig 2-5
def draw_fma_chain(ax, table, machine: Machine, ks=tuple(K_COLOURS), variant="one element", published=()):
    """Measured shares of the FP32 peak (marks) and the prediction (dashed) over warps; a ring where placement was uneven."""
    for k in ks:
        line = shares(table, machine, variant, k)
        ax.plot(line.keys(), [100 * s for s in line.values()], marker=K_MARKERS[k], color=K_COLOURS[k], linewidth=0,
                markersize=5.5, zorder=3)
        ax.plot(line.keys(), [100 * fraction_of_peak(machine, k, m, variant) for m in line], color=K_COLOURS[k],
                linestyle="--", linewidth=1.3, zorder=2)
        rings = [m for m in uneven(line_of(table, variant, k)) if m in line]
        ax.plot(rings, [100 * line[m] for m in rings], "o", markersize=12, markerfacecolor="none", markeredgewidth=1.8,
                markeredgecolor=ROLE["accent"], zorder=4)
        name_line(ax, max(line), 100 * line[max(line)], k)
    mark_published(ax, published)
    share_axis(ax, int(table["warps_per_smsp"].max()))
    return ax


def placement_in_words(table) -> str:
    rings = uneven(table)
    return (f"Programs were spread unevenly at {', '.join(map(str, rings))} warps (rings)." if rings else
            "Every SM was read back to hold equally many programs.")


def fma_chain_alt(table, machine: Machine, ks=tuple(K_COLOURS), variant="one element") -> str:
    parts = []
    for k in ks:
        line = shares(table, machine, variant, k)
        parts.append(f"k = {k}: " + ", ".join(f"{line[m]:.0%} at {m}" for m in (1, 4, 5, 8, 16) if m in line))
    of_variant = table[table["variant"] == variant]
    return f"Share of the FP32 peak over warps per SMSP, {named(variant)}. {'; '.join(parts)}. {placement_in_words(of_variant)}"


def fma_chain_title(table, machine: Machine, rows=None, ks=tuple(K_COLOURS), variant="one element") -> str:
    best = max(shares(table, machine, variant, k).get(4, 0) for k in ks)
    title = f"{named(variant).removeprefix('one element, ').capitalize()}: {best:.0%} of the peak at four warps"
    if rows is None:
        return title
    return f"{title}; model (dashed) off by {median_error(rows[(rows['variant'] == variant) & rows['k'].isin(list(ks))]):.0%}"


def show_fma_chain(table, machine: Machine, rows=None, ks=tuple(K_COLOURS), variant="one element", published=(),
                   evidence="") -> Picture:
    """`table` of measure("fma_chain_warps"); `rows` of fma_model.predicted, for the error in the title."""
    fig, ax = new(7.6, 4.3)
    draw_fma_chain(ax, table, machine, ks, variant, published)
    ax.set_title(fma_chain_title(table, machine, rows, ks, variant))
    return Picture(fig, fma_chain_alt(table, machine, ks, variant), evidence)


# ------------------------------------------------------------------------------------- several ways of writing one chain
LOOKS = {"plain loads": (ROLE["memory"], "o", "-"), "one element": (ROLE["compute"], "s", "-"),
         "one element, load moved down": (ROLE["compute"], "v", ":"), "one element, shares as needed": (ROLE["published"], "X", "-"),
         "four elements": (ROLE["model"], "D", "-"), "four elements, plain loads": (ROLE["model"], "P", ":"),
         "yours": ("#222222", "*", "-")}


def draw_variants(ax, table, machine: Machine, k: int, variants):
    """Share of the peak over warps for several ways of writing the same chain."""
    drawn = [variant for variant in variants if len(line_of(table, variant, k))]
    for variant in drawn:
        line = shares(table, machine, variant, k)
        colour, marker, style = LOOKS[variant]
        ax.plot(line.keys(), [100 * s for s in line.values()], marker=marker, color=colour, linestyle=style, label=named(variant))
    share_axis(ax, int(table[table["variant"].isin(drawn)]["warps_per_smsp"].max()))
    ax.legend(loc="lower right")
    return ax


def variants_alt(table, machine: Machine, k: int, variants) -> str:
    parts = []
    for variant in variants:
        line = shares(table, machine, variant, k)
        if line:
            parts.append(f"{named(variant)}: " + ", ".join(f"{line[m]:.0%} at {m}" for m in (1, 4, 5, 6, 8) if m in line))
    return f"Share of the FP32 peak over warps per SMSP with k = {k}. {'; '.join(parts)}."


def show_variants(table, machine: Machine, k: int = 512,
                  variants=tuple(v for v in LOOKS if "shares" not in v), evidence="") -> Picture:
    """Loads late and early, one chain a thread and four."""
    fig, ax = new(7.6, 4.0)
    draw_variants(ax, table, machine, k, variants)
    one, four = (shares(table, machine, variant, k)[1] for variant in ("one element", "four elements"))
    ax.set_title(f"One warp on an SMSP: {one:.0%} of the peak with one chain a thread, {four:.0%} with four")
    return Picture(fig, variants_alt(table, machine, k, variants), evidence)


def show_sharing(table, machine: Machine, k: int = 2048, evidence="") -> Picture:
    """Equal shares against shares as needed: what is left of the dip at five warps."""
    variants = ("one element", "one element, shares as needed")
    fig, ax = new(7.6, 3.6)
    draw_variants(ax, table[table["warps_per_smsp"] <= 8], machine, k, variants)
    equal, needed = (shares(table, machine, variant, k)[5] for variant in variants)
    ax.set_title(f"Five warps: {equal:.0%} of the peak with equal shares, {needed:.0%} as needed")
    return Picture(fig, variants_alt(table, machine, k, variants), evidence)


# ------------------------------------------------------------------------------------- the lines that memory limits
def draw_memory_lines(ax, table, machine: Machine, peak_gb_per_s: float | None, k: int = 1):
    """Rate over warps of the shortest chain, with one and four elements a thread; where each plateau begins is said."""
    top = 1.15 * (peak_gb_per_s or table[table["k"] == k]["bandwidth_gb_per_s"].max()) / 1e3
    for variant, colour, marker in (("one element", ROLE["memory"], "o"), ("four elements", ROLE["accent"], "D")):
        rows = line_of(table, variant, k)
        warps, rate = rows["warps_per_smsp"], rows["bandwidth_gb_per_s"] / 1e3
        ax.plot(warps, rate, marker=marker, color=colour, label=f"{variant}, measured")
        begins = plateau(table, variant, k)
        ax.annotate(f"flat from {begins}", (begins, rate[warps == begins].iloc[0]), xytext=(0, -32), textcoords="offset points",
                    ha="center", fontsize=8.5, color=colour, arrowprops={"arrowstyle": "-", "linestyle": ":", "color": colour})
        predicted = [fraction_of_peak(machine, k, int(m), variant) * machine.peak_tflops * 4 / k for m in warps]
        ax.plot(warps, predicted, color=ROLE["model"], linestyle="--", linewidth=1.3,
                label="model" if variant == "one element" else None)
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s / 1e3, f"datasheet: {peak_gb_per_s / 1e3:.1f} TB/s")
    warps_axis(ax, int(table["warps_per_smsp"].max()))
    ax.set(ylabel="read + written (TB/s)", ylim=(0, top))
    ax.legend(loc="lower right", fontsize=8.5)
    return ax


def memory_lines_alt(table, k: int = 1) -> str:
    parts = []
    for variant in ("one element", "four elements"):
        rate = line_of(table, variant, k).set_index("warps_per_smsp")["bandwidth_gb_per_s"] / 1e3
        parts.append(f"{variant}: {rate.iloc[0]:.2f} TB/s at 1 warp, {rate.max():.2f} at most, within 5 % of it from "
                     f"{plateau(table, variant, k)} warps on")
    return f"Rate of a chain of {k} FMA over warps per SMSP. {'; '.join(parts)}."


def show_memory_lines(table, machine: Machine, peak_gb_per_s: float | None, k: int = 1, evidence="") -> Picture:
    fig, ax = new(7.6, 4.0)
    draw_memory_lines(ax, table, machine, peak_gb_per_s, k)
    ax.set_title(f"Memory is near its best from {plateau(table, 'one element', k)} warps on, with four elements from "
                 f"{plateau(table, 'four elements', k)}")
    return Picture(fig, memory_lines_alt(table, k), evidence)


def loads_needed(*machines: tuple[str, Machine]) -> list[dict]:
    """By Little's law: bytes that must be on their way to fill the memory, and the warps that this takes with one load each."""
    return [{"machine": name, "bandwidth (GB/s)": m.bandwidth_gb_per_s, "of it read (GB/s)": m.bandwidth_gb_per_s / 2,
             "latency (ns)": m.memory_latency / m.clock_mhz * 1e3,
             "KiB of reads on their way": m.bandwidth_gb_per_s / 2 * m.memory_latency / m.clock_mhz * 1e3 / 1024,
             "warps an SMSP": warps_for_bandwidth(m), "with four elements": warps_for_bandwidth(m, 4)} for name, m in machines]


# ------------------------------------------------------------------------------------- who ended when
def draw_ends(ax, table, k: int = 2048, variant: str = "one element"):
    """For each number of warps: when a quarter, half and three quarters of the programs had ended, in % of the whole."""
    rows = line_of(table, variant, k)
    columns = (("quarter_ended", "a quarter ended", "o"), ("half_ended", "half", "s"),
               ("three_quarters_ended", "three quarters", "^"))
    for (column, label, marker), colour in zip(columns, (SERIES[5], ROLE["memory"], ROLE["compute"]), strict=True):
        ax.plot(rows["warps_per_smsp"], 100 * rows[column], marker=marker, color=colour, label=label)
    warps_axis(ax, int(rows["warps_per_smsp"].max()))
    ax.set(ylabel="after this share of the time (%)", ylim=(0, 108))
    ax.legend(loc="lower left")
    return ax


def ends_alt(table, k: int = 2048, variant: str = "one element") -> str:
    rows = line_of(table, variant, k).set_index("warps_per_smsp")
    parts = [f"{m} warps: a quarter of the programs had ended after {rows['quarter_ended'][m]:.0%} of the time, three "
             f"quarters after {rows['three_quarters_ended'][m]:.0%}" for m in (4, 5, 8) if m in rows.index]
    return f"When programs of equal work ended, k = {k}. {'; '.join(parts)}."


def show_ends(table, k: int = 2048, variant: str = "one element", evidence="") -> Picture:
    fig, ax = new(7.6, 3.5)
    draw_ends(ax, table, k, variant)
    rows = line_of(table, variant, k).set_index("warps_per_smsp")
    ax.set_title(f"With 5 warps, three quarters of the programs end after {rows['three_quarters_ended'][5]:.0%} of the time")
    return Picture(fig, ends_alt(table, k, variant), evidence)
