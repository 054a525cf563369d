"""Figures of lesson 09: a warp's addresses on the line of sectors; rates over stride and offset; transposes."""

import numpy as np

from figures.style import ROLE, Picture, box, diagram, grouped_bars, label_line, limit_line, new
from helpers.cuda.counting import ELEMENTS, ORDERS, count_warp

PATTERN_CONTROLS = {
    "element_bytes": ([1, 2, 4, 8, 16], 4),
    "stride": ([0, 1, 2, 3, 4, 8, 16, 32], 1),
    "offset": ([0, 1, 2, 4, 7, 8, 16, 31], 1),
    "order": (list(ORDERS), "in order"),
}


def pattern_view(element_bytes: int = 4, stride: int = 1, offset: int = 0, order: str = "in order") -> Picture:
    """The widget of lesson 09: one warp's load, its sectors counted by running the compiled kernel."""
    counted = count_warp(stride, offset, order, ELEMENTS[element_bytes])
    return show_sectors(counted.addresses, element_bytes, counted.sectors, counted.evidence)


def draw_sectors(ax, addresses, size: int):
    """32 lanes above, memory below in sectors of 32 bytes; each lane tied to its bytes, touched sectors filled."""
    addresses = np.asarray(addresses)
    diagram(ax, 100, 34)
    first = addresses.min() // 32
    touched = np.unique(addresses // 32)
    span = int(touched.max() - first + 1)
    shown = max(8, min(span, 36))
    width = 94 / shown
    left = 3.0
    for lane in range(32):
        x = left + 94 * (lane + 0.5) / 32
        box(ax, x - 1.15, 25, 2.3, 3.4, str(lane), role="accent", fontsize=6.5)
    for s in range(shown):
        hit = first + s in touched
        box(ax, left + s * width, 4.5, width, 5, role="memory" if hit else "muted", fill=0.45 if hit else 0.04)
        if shown <= 12 or s % 4 == 0:
            ax.text(left + s * width, 1.4, f"{(first + s) * 32 - first * 32}", fontsize=7, ha="center", color="#555555")
    for lane, address in enumerate(addresses):
        start = (address - first * 32) / 32
        if start >= shown:
            continue
        x = left + (start + size / 64) * width
        ax.plot([left + 94 * (lane + 0.5) / 32, x], [25, 9.6], color=ROLE["limit"], linewidth=0.7)
    beyond = int((touched >= first + shown).sum())
    ax.text(left, 30.5, "lane", fontsize=8.5)
    note = "bytes from the first sector" + (f"; {beyond} more touched sectors lie to the right" if beyond else "")
    ax.text(97, -1.6, note, fontsize=8, ha="right", color="#555555")
    return ax


def sectors_alt(addresses, size: int, sectors: int) -> str:
    useful = len(np.unique(np.asarray(addresses))) * size
    return (f"32 lanes load {size} bytes each: {sectors} sectors, {32 * sectors} bytes moved, {useful} of them used, "
            f"{useful / (32 * sectors):.1%}.")


def show_sectors(addresses, size: int, sectors: int, evidence="") -> Picture:
    """`addresses` in bytes, one a lane; `sectors` as counted."""
    fig, ax = new(7.2, 2.75)
    draw_sectors(ax, addresses, size)
    useful = len(np.unique(np.asarray(addresses))) * size
    ax.set_title(f"{sectors} sector{'s' * (sectors > 1)}: {32 * sectors} bytes moved, {useful} used "
                 f"({useful / (32 * sectors):.1%})")
    return Picture(fig, sectors_alt(addresses, size, sectors), evidence)


PIECE = 64  # bytes; the next larger unit in which device memory might be fetched


def draw_stride(ax, data, sectors, peak_gb_per_s=None):
    """Rates over stride: bytes used, bytes of the sectors, and of 64-byte pieces. `sectors`: stride -> sectors a load request."""
    rows = data.sort_values("stride")
    stride, useful = rows["stride"].to_numpy(), rows["bandwidth_gb_per_s"].to_numpy()
    moved = useful * (np.array([sectors[s] for s in stride]) + 4) / 8  # 32 lanes, 32 bytes: a sector is a byte an element
    pieces = useful * (np.minimum(4 * stride, PIECE) + 4) / 8
    far = stride >= 8  # below, sectors and pieces hold the same bytes
    (c,) = ax.plot(stride[far], pieces[far], linestyle="--", color=ROLE["model"])
    (a,) = ax.plot(stride, moved, marker="s", color=ROLE["limit"])
    (b,) = ax.plot(stride, useful, marker="o", color=ROLE["measured"])
    label_line(ax, c, f"if moved in\npieces of\n{PIECE} bytes")
    label_line(ax, a, "bytes of\nthe sectors")
    label_line(ax, b, "bytes used")
    top = max(moved.max(), pieces[far].max(), peak_gb_per_s or 0)
    ax.set_ylim(0, 1.15 * top)
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.set_xticks([1, 4, 8, 12, 16, 20, 24, 28, 32])
    ax.set(xlabel="stride (fp32 elements)", ylabel="read + written (GB/s)")
    return ax


def stride_alt(data) -> str:
    at = data.set_index("stride")["bandwidth_gb_per_s"]
    return (f"Useful bandwidth over stride: {at[1]:,.0f} GB/s at stride 1, {at[2]:,.0f} at 2, {at[8]:,.0f} at 8, "
            f"{at[32]:,.0f} at 32.")


def show_stride(data, sectors, peak_gb_per_s=None, evidence="") -> Picture:
    fig, ax = new(7.2, 3.6)
    draw_stride(ax, data, sectors, peak_gb_per_s)
    at = data.set_index("stride")["bandwidth_gb_per_s"]
    ax.set_title(f"Stride 8 leaves {at[8] / at[1]:.0%} of the useful bandwidth, stride 32 {at[32] / at[1]:.0%}")
    return Picture(fig, stride_alt(data), evidence)


COPIES = {"offset_copy": "one float a thread", "four a thread": "four floats a thread"}


def offset_shares(data):
    """Bandwidth at each offset over the same variant's at offset 0; `data` of one variant."""
    at = data.set_index("offset")["bandwidth_gb_per_s"].sort_index()
    return at / at[0]


def misaligned(shares):
    """The shares at offsets that are no multiple of 8 elements."""
    return shares[[o for o in shares.index if o % 8]]


def draw_offset(ax, data, sectors):
    """Each variant's bandwidth over offset as a share of its aligned copy's, with what 4 of 5 sectors would suggest."""
    variants = {name: offset_shares(rows) for name, rows in data.groupby("variant", sort=False)}
    shares = next(iter(variants.values()))
    expected = [sectors[0] / sectors[o] for o in shares.index]
    ax.plot(shares.index, expected, marker="s", markersize=3.5, linestyle="--", color=ROLE["model"])
    lowest = min(range(len(expected)), key=lambda i: expected[i])
    ax.annotate("if every request fetched its own sectors", (shares.index[lowest], expected[lowest]), xytext=(0, -12),
                textcoords="offset points", fontsize=9, color=ROLE["model"], va="top")
    for (name, one), colour, marker in zip(variants.items(), (ROLE["measured"], ROLE["compute"]), "o^", strict=False):
        ax.plot(one.index, one, marker=marker, color=colour, label=_aligned(data, name))
    ax.set_ylim(0, 1.1)
    ax.set_xticks(range(0, 33, 8))
    ax.set(xlabel="offset (fp32 elements)", ylabel="bandwidth / aligned bandwidth")
    ax.legend(loc="lower left")
    return ax


def _aligned(data, variant: str) -> str:
    rate = data[(data["variant"] == variant) & (data["offset"] == 0)]["bandwidth_gb_per_s"].iloc[0]
    return f"{COPIES.get(variant, variant)}, {rate:,.0f} GB/s at offset 0"


def offset_alt(data) -> str:
    parts = []
    for name, rows in data.groupby("variant", sort=False):
        shares = offset_shares(rows)
        off, aligned = misaligned(shares), [shares[o] for o in shares.index if o and o % 8 == 0]
        parts.append(f"{_aligned(data, name)}, keeps {off.min():.1%} to {off.max():.1%} at offsets "
                     "that are no multiple of 8"
                     + (f", {min(aligned):.1%} to {max(aligned):.1%} at multiples of 8" if aligned else ""))
    return "Bandwidth of copies over offset: " + "; ".join(parts) + "."


def show_offset(data, sectors, evidence="") -> Picture:
    fig, ax = new(7.2, 3.4)
    draw_offset(ax, data, sectors)
    worst = min(misaligned(offset_shares(rows)).median() for _, rows in data.groupby("variant"))
    ax.set_title(f"A misaligned copy keeps {worst:.0%} of the bandwidth, not 80%")
    return Picture(fig, offset_alt(data), evidence)


def draw_transposes(ax, data, peak_gb_per_s=None):
    """Bandwidth of each version, grouped by matrix size."""
    grouped_bars(ax, data, "bandwidth_gb_per_s", tick="{0:,} × {0:,}", label="{:,.0f}", fontsize=7)
    ax.set_ylim(0, 1.25 * max(data["bandwidth_gb_per_s"].max(), peak_gb_per_s or 0))
    if peak_gb_per_s:
        limit_line(ax, peak_gb_per_s, f"datasheet: {peak_gb_per_s:,.0f} GB/s")
    ax.set(ylabel="read + written (GB/s)")
    return ax


def transposes_alt(data) -> str:
    rows = data[data["n"] == data["n"].max()]
    rates = ", ".join(f"{r.variant} {r.bandwidth_gb_per_s:,.0f}" for r in rows.itertuples())
    return f"Transposes of {data['n'].max():,} × {data['n'].max():,} in GB/s: {rates}."


def show_transposes(data, peak_gb_per_s=None, evidence="") -> Picture:
    fig, ax = new(7.4, 3.8)
    draw_transposes(ax, data, peak_gb_per_s)
    at = data[data["n"] == data["n"].max()].set_index("variant")["bandwidth_gb_per_s"]
    ax.set_title(f"Through a padded tile: {at['padded'] / at['naive']:.1f} times the naive rate, "
                 f"{at['padded'] / at['copy']:.0%} of a copy's")
    return Picture(fig, transposes_alt(data), evidence)


def draw_walks(ax, rows: int = 8, cols: int = 8):
    """A small row-major matrix twice: which elements neighbouring lanes read in one step of either walk."""
    diagram(ax, 100, 44)
    for left, text in ((6, "along rows: lanes one row apart"), (56, "down columns: lanes side by side")):
        ax.text(left, 40.5, text, fontsize=9.5)
        for r in range(rows):
            for c in range(cols):
                lane = r if left < 50 else c
                on = c == 0 if left < 50 else r == 0
                box(ax, left + 4.6 * c, 33 - 4.2 * r, 4.6, 4.2, f"{lane}" if on else "", fontsize=7.5,
                    role="accent" if on else "muted", fill=0.6 if on else 0.03)
    return ax


def show_walks(along_rows: float, down_columns: float, evidence="") -> Picture:
    """Sectors a request as counted for each walk, above a drawing of one step of it."""
    fig, ax = new(7.2, 3.5)
    draw_walks(ax)
    ax.set_title(f"Sectors a request: {along_rows:g} along rows, {down_columns:g} down columns")
    return Picture(fig, f"Lanes that walk along rows stand one row apart and touch {along_rows:g} sectors a request; "
                        f"lanes that walk down columns stand side by side and touch {down_columns:g}.", evidence)
