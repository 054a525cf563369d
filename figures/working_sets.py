"""Measured figures of lesson 01: read rate and latency over the working set, copy rate over the size."""

from figures.memory import GIB, KIB, MIB, size_text, sizes_on
from figures.style import MARKERS, ROLE, Picture, limit_line, new


# ------------------------------------------------------------------------------------- measured: rates by working set
def _capacities(spec) -> tuple[int | None, int | None]:
    """Bytes of an SM's L1 and of the L2; None where the GPU is not in the table."""
    l1 = spec.limits.unified_cache_kib
    return None if l1 is None else l1 * KIB, spec.l2_bytes


def plateaus(table, spec) -> dict[str, float]:
    """The rate of each level in GB/s, without levels of which no working set is certain: the median over those that are.

    L1 and L2 count sets that fill at most half of them; L2 is read past L1, from 16 KiB an SM on, where all its parts
    take part; device memory counts sets of at least four times the L2.
    """
    l1, l2 = _capacities(spec)
    kinds = {name: rows for name, rows in table.groupby("variant")}
    read, past = kinds["read"], kinds["read past L1"]
    chosen = {}
    if l1:
        chosen["L1"] = read[read["bytes_per_sm"] <= l1 / 2]
    if l2:
        chosen["L2"] = past[(past["working_set_bytes"] <= l2 / 2) & (past["bytes_per_sm"] >= 16 * KIB)]
        chosen["device memory"] = read[read["working_set_bytes"] >= 4 * l2]
    return {level: float(rows["bandwidth_gb_per_s"].median()) for level, rows in chosen.items() if len(rows)}


def draw_working_sets(ax, table, spec):
    """Read rate over the working set of an SM, with and without L1; capacities and the datasheet's rate as lines."""
    names = {"read past L1": "read, not through L1"}
    for (variant, rows), marker, role in zip(table.groupby("variant", sort=False), MARKERS, ("measured", "accent", "compute"),
                                             strict=False):
        rows = rows.sort_values("bytes_per_sm")
        ax.plot(rows["bytes_per_sm"], rows["bandwidth_gb_per_s"] / 1e3, marker=marker, color=ROLE[role],
                label=names.get(variant, variant))
    sms = spec.sm_count
    top = table["bandwidth_gb_per_s"].max() / 1e3 * 1.18
    ax.set(xscale="log", ylim=(0, top), ylabel="read (TB/s)", xlabel="working set of one SM")
    low, high = table["bytes_per_sm"].min(), table["bytes_per_sm"].max()
    sizes_on(ax.xaxis, [2.0**k for k in range(11, 26, 2) if low <= 2**k <= high])
    ax.minorticks_off()
    l1, l2 = _capacities(spec)
    for capacity, text, left in ((l1, f"L1: {size_text(l1 or 0)}", True),
                                 (l2 and l2 / sms, f"L2: {size_text(l2 or 0)} / {sms}", False)):
        if capacity:
            ax.axvline(capacity, color=ROLE["limit"], linestyle=":", linewidth=1)
            ax.annotate(text, (capacity, top), xytext=(-4 if left else 4, -3), textcoords="offset points",
                        ha="right" if left else "left", va="top", fontsize=8.5, color=ROLE["limit"])
    if spec.bandwidth_gb_per_s:
        limit_line(ax, spec.bandwidth_gb_per_s / 1e3, f"device memory, datasheet: {spec.bandwidth_gb_per_s / 1e3:.2f} TB/s")
    whole = ax.secondary_xaxis("top", functions=(lambda b: b * sms, lambda b: b / sms))
    whole.set_xlabel(f"working set of all {sms} SMs")
    sizes_on(whole.xaxis, [MIB, 16 * MIB, 256 * MIB, 4 * GIB])
    whole.minorticks_off()
    ax.legend(loc="center right", bbox_to_anchor=(1, 0.62))
    return ax


def working_sets_alt(table, spec) -> str:
    levels = ", ".join(f"{level} {rate / 1e3:.3g} TB/s" for level, rate in plateaus(table, spec).items())
    return (f"Read rate over the working set of an SM, {size_text(table['bytes_per_sm'].min())} to "
            f"{size_text(table['bytes_per_sm'].max())} on each of {spec.sm_count} SMs. Plateaus: {levels or 'not told apart'}.")


def show_working_sets(table, spec, evidence="") -> Picture:
    """`table` is that of measure("read_bandwidth"), `spec` the Gpu that measured."""
    fig, ax = new(7.6, 4.2)
    draw_working_sets(ax, table, spec)
    levels = plateaus(table, spec)
    if {"L1", "device memory"} <= set(levels):
        ax.set_title(f"What fits in L1 is read {levels['L1'] / levels['device memory']:.1f} times as fast as what does not "
                     "fit in L2", pad=14)
    else:
        ax.set_title("Read rate over the working set", pad=14)
    return Picture(fig, working_sets_alt(table, spec), evidence)


# ------------------------------------------------------------------------------------- measured: latency
def latency_plateaus(table, spec) -> dict[str, dict[str, float]]:
    """"cycles" and "ns" of a load from each level, without levels of which no working set is certain: medians over sets
    of at most half of L1, between twice L1 and a quarter of L2, and of at least eight times L2."""
    l1, l2 = _capacities(spec)
    if not (l1 and l2):
        return {}
    size = table["bytes"]
    chosen = {"L1": size <= l1 / 2, "L2": (size >= 2 * l1) & (size <= l2 / 4), "device memory": size >= 8 * l2}
    return {level: {unit: float(table[unit][rows].median()) for unit in ("cycles", "ns")}
            for level, rows in chosen.items() if rows.any()}


def draw_latency(ax, table, spec, published: dict[str, dict] | None = None):
    """Cycles of one dependent load over the working set; published plateaus of named GPUs as short lines."""
    rows = table.sort_values("bytes")
    ax.plot(rows["bytes"], rows["cycles"], marker="o", color=ROLE["measured"], label="measured", zorder=3)
    low, high = rows["bytes"].min(), rows["bytes"].max()
    l1, l2 = _capacities(spec)
    most = rows["cycles"].max()
    if l1 and l2:
        spans = {"l1": (low, l1 / 2), "l2": (2 * l1, l2 / 2), "dram": (4 * l2, high)}
        looks = ((ROLE["published"], "--"), (ROLE["limit"], ":"), (ROLE["model"], "-."))
        for (name, levels), (colour, style) in zip((published or {}).items(), looks, strict=False):
            for level, span in spans.items():
                if levels.get(level):
                    most = max(most, levels[level])
                    ax.plot(span, [levels[level]] * 2, color=colour, linestyle=style, linewidth=1.6,
                            label=f"{name}, published" if level == "dram" else None)
        for capacity, text in ((l1, "L1"), (l2, "L2")):
            ax.axvline(capacity, color=ROLE["limit"], linestyle=":", linewidth=1)
            ax.annotate(f"{text}: {size_text(capacity)}", (capacity, 1), xycoords=("data", "axes fraction"), xytext=(-4, -3),
                        textcoords="offset points", ha="right", va="top", fontsize=8.5, color=ROLE["limit"])
    ax.set(xscale="log", ylim=(0, most * 1.15), xlabel="working set", ylabel="latency of a load (cycles)")
    sizes_on(ax.xaxis, [2.0**k for k in range(14, 33, 3) if low <= 2**k <= high])
    ax.minorticks_off()
    ax.legend(loc="upper left", bbox_to_anchor=(0.26, 0.93), facecolor="white", frameon=True, edgecolor="none")
    return ax


def latency_alt(table, spec) -> str:
    levels = latency_plateaus(table, spec)
    cycles = ", ".join(f"{level} {at['cycles']:.0f} cycles ({at['ns']:.0f} ns)" for level, at in levels.items())
    mhz = float((table["cycles"] / table["ns"]).median()) * 1e3
    return f"Latency of one dependent load over the working set: {cycles or 'levels not told apart'}, at {mhz:.0f} MHz."


def show_latency(table, spec, published: dict[str, dict] | None = None, evidence="") -> Picture:
    """`table` is that of measure("load_latency"), `spec` the Gpu that measured, `published` name -> cycles by level."""
    fig, ax = new(7.6, 3.9)
    draw_latency(ax, table, spec, published)
    levels = latency_plateaus(table, spec)
    if {"L1", "device memory"} <= set(levels):
        ax.set_title(f"Device memory answers after {levels['device memory']['cycles']:.0f} cycles, "
                     f"L1 after {levels['L1']['cycles']:.0f}")
    else:
        ax.set_title("Latency of a load over the working set")
    return Picture(fig, latency_alt(table, spec), evidence)


# ------------------------------------------------------------------------------------- measured: copies
def draw_copy(ax, table, peak_gb_per_s: float | None):
    """Rate of a copy over its size; rates above the datasheet's, from cache, are drawn hollow."""
    for (variant, rows), marker, role in zip(table.groupby("variant", sort=False), MARKERS, ("measured", "muted", "compute"),
                                             strict=False):
        rows = rows.sort_values("bytes")
        ax.plot(rows["bytes"], rows["bandwidth_gb_per_s"], marker=marker, color=ROLE[role],
                label="Triton" if variant == "copy" else variant)
        cached = rows[rows["flags"].str.contains("from cache")]
        ax.plot(cached["bytes"], cached["bandwidth_gb_per_s"], marker, color="white", markeredgecolor=ROLE[role])
    ax.set(xscale="log", xlabel="size of the tensor", ylabel="read + written (GB/s)")
    sizes_on(ax.xaxis, [2.0**k for k in range(18, 33, 2)])
    ax.minorticks_off()
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.set_ylim(0, 1.15 * max(peak_gb_per_s or 0, table["bandwidth_gb_per_s"].max()))
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.88))
    return ax


def _largest_copy(table):
    best = table[(table["bytes"] == table["bytes"].max())]
    return best.loc[best["bandwidth_gb_per_s"].idxmax()]


def copy_alt(table, peak_gb_per_s: float | None) -> str:
    top = _largest_copy(table)
    share = f", {top.bandwidth_gb_per_s / peak_gb_per_s:.0%} of the datasheet" if peak_gb_per_s else ""
    small = table[table["bytes"] == table["bytes"].min()]["bandwidth_gb_per_s"].max()
    return (f"Copy rate over the size: {size_text(top.bytes)} at {top.bandwidth_gb_per_s:,.0f} GB/s{share}; "
            f"{size_text(table['bytes'].min())} at {small:,.0f} GB/s, where the launch takes the time.")


def show_copy(table, spec, evidence="") -> Picture:
    """`table` is that of measure("copy_bandwidth"), `spec` the Gpu that measured."""
    fig, ax = new(7.2, 3.4)
    draw_copy(ax, table, spec.bandwidth_gb_per_s)
    top = _largest_copy(table)
    share = f", {top.bandwidth_gb_per_s / spec.bandwidth_gb_per_s:.0%} of the datasheet" if spec.bandwidth_gb_per_s else ""
    ax.set_title(f"A large copy runs at {top.bandwidth_gb_per_s / 1e3:.2f} TB/s{share}")
    return Picture(fig, copy_alt(table, spec.bandwidth_gb_per_s), evidence)
