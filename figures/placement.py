"""Measured figures of lesson 02: where the hardware puts warps, and which of them share a scheduler."""

from figures.style import MARKERS, ROLE, Picture, box, new


# ------------------------------------------------------------------------------------- measured: who shares a scheduler
def pair_ratios(table) -> dict[tuple[int, int], float]:
    """(first, second) -> cycles of `first` beside `second`, in units of the median of a warp that works alone."""
    alone = table[table["first"] == table["second"]]["cycles"].median()
    return {(int(f), int(s)): c / alone for f, s, c in zip(table["first"], table["second"], table["cycles"], strict=True)}


def sharing(table) -> list[list[int]]:
    """Groups of warps that slow each other down: more than 1.5 times the time of one alone."""
    ratios = pair_ratios(table)
    warps = sorted({f for f, _ in ratios})
    groups = []
    for warp in warps:
        home = next((g for g in groups if ratios[(g[0], warp)] > 1.5), None)
        if home is None:
            groups.append([warp])
        else:
            home.append(warp)
    return groups


def warps_apart(table) -> int | None:
    """How far apart the warps of every group are that share a scheduler; None where they have no common distance."""
    found = {b - a for group in sharing(table) for a, b in zip(group, group[1:], strict=False)}
    return found.pop() if len(found) == 1 else None


def draw_pairs(ax, table):
    """A square for each pair of warps: how much longer the first takes beside the second."""
    ratios = pair_ratios(table)
    warps = sorted({f for f, _ in ratios})
    for (first, second), ratio in ratios.items():
        slow = ratio > 1.5
        box(ax, second, first, 1, 1, f"{ratio:.1f}", role="compute" if slow else "muted", fill=0.75 if slow else 0.12,
            fontsize=8.5, color="white" if slow else "#555555")
    ax.set(xlim=(0, len(warps)), ylim=(len(warps), 0), aspect="equal", ylabel="warp that is timed",
           xlabel="warp beside it (numbers: time, alone = 1)")
    ax.set_xticks([w + 0.5 for w in warps], warps)
    ax.set_yticks([w + 0.5 for w in warps], warps)
    ax.grid(False)
    ax.tick_params(length=0)
    return ax


def pairs_alt(table) -> str:
    groups = ", ".join("{" + ", ".join(map(str, g)) + "}" for g in sharing(table))
    return f"Time of one warp beside another, in units of one alone. Warps that double each other's time: {groups}."


def show_pairs(table, evidence="") -> Picture:
    """`table` is that of measure("scheduler_pairs")."""
    fig, ax = new(6.2, 4.4)
    draw_pairs(ax, table)
    apart = warps_apart(table)
    ax.set_title(f"Warps w and w + {apart} take turns, all others do not" if apart else f"{len(sharing(table))} groups of warps take turns")
    return Picture(fig, pairs_alt(table), evidence)


def draw_block_shapes(ax, table):
    """Time over the number of warps on an SM, as one block or as blocks of one warp; one alone is 1."""
    alone = table[table["warps"] == 1]["time_us"].median()
    for (variant, rows), marker, role in zip(table.groupby("variant", sort=False), MARKERS, ("measured", "accent"),
                                             strict=False):
        rows = rows.sort_values("warps")
        ax.plot(rows["warps"], rows["time_us"] / alone, marker=marker, color=ROLE[role], label=variant,
                markersize=6 if role == "measured" else 4, zorder=3 if role == "accent" else 2)
    most = int(table["warps"].max())
    steps = [-(-w // 4) for w in range(1, most + 1)]
    ax.step(range(1, most + 1), steps, where="mid", color=ROLE["model"], linestyle="--", linewidth=1.3, zorder=1,
            label="w / 4, rounded up")
    ax.set(xlabel="w: busy warps on every SM", ylabel="time (one warp = 1)", ylim=(0, max(steps) * 1.15))
    ax.set_xticks(range(1, most + 1))
    ax.legend(loc="upper left")
    return ax


def block_shapes_alt(table) -> str:
    alone = table[table["warps"] == 1]["time_us"].median()
    parts = []
    for variant, rows in table.groupby("variant", sort=False):
        at = rows.set_index("warps")["time_us"] / alone
        parts.append(f"{variant}: " + ", ".join(f"{at[w]:.2f} at w = {w}" for w in (4, 5, 8) if w in at.index))
    return f"Time of w busy warps on every SM in units of one. {'; '.join(parts)}."


def show_block_shapes(table, evidence="") -> Picture:
    """`table` is that of measure("block_shapes")."""
    fig, ax = new(7.2, 3.5)
    draw_block_shapes(ax, table)
    one = table[table["warps"] == 1]["time_us"].median()
    four = table[table["warps"] == 4]["time_us"].max() / one
    ax.set_title("Four busy warps take as long as one, the fifth waits" if four < 1.1 else
                 f"Four busy warps take {four:.1f} times as long as one")
    return Picture(fig, block_shapes_alt(table), evidence)


# ------------------------------------------------------------------------------------- measured: placement
def first_sm(row, warps_per_block: int) -> list[dict]:
    """The warps on the SM that got block 0: block, warp, slot, slot mod 4; `row` is one of measure("warp_placement")."""
    sm, slot = row["sm"], row["slot"]
    return [{"block": i // warps_per_block, "warp": i % warps_per_block, "SM": sm[i], "warp slot": slot[i],
             "slot mod 4": slot[i] % 4} for i in range(len(sm)) if sm[i] == sm[0]]


def placement_summary(table) -> list[dict]:
    """One line a launch: how evenly blocks spread over the SMs, and whether a block's warps take slots in turn: warp w
    of a block has the slot of its warp 0 plus w, modulo 4."""
    found = []
    for _, row in table.iterrows():
        warps, slot = int(row["warps_per_block"]), row["slot"]
        sms = row["sm"][::warps]
        counts = sorted(sms.count(sm) for sm in set(sms))
        in_turn = sum((slot[i] - slot[i - i % warps]) % 4 == i % warps % 4 for i in range(len(slot))) / len(slot)
        on_sm = {sm: [s % 4 for s, at in zip(slot, row["sm"], strict=True) if at == sm] for sm in set(sms)}
        even = sum(max(map(taken.count, range(4))) - min(map(taken.count, range(4))) == 0 for taken in on_sm.values())
        found.append({"blocks": len(sms), "warps a block": warps, "SMs used": len(on_sm),
                      "blocks on an SM": f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}",
                      "warps in turn (slots mod 4)": f"{in_turn:.0%}" if warps > 1 else "one warp only",
                      "SMs with equal shares of slots 0 to 3 (mod 4)": f"{even / len(on_sm):.0%}"})
    return found
