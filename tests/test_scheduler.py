"""The model of the warp scheduler: the sequences one draws by hand, and the arithmetic behind them."""

import pytest

from helpers.simt.scheduler import (
    DONE,
    ISSUED,
    POLICIES,
    READY,
    WAITING,
    Instruction,
    chain,
    loop,
    schedule,
    smsps,
)


def test_one_warp_waits_for_itself():
    trace = schedule([chain(3)])
    assert trace.text() == "A . . . A . . . A"
    assert trace.utilisation == pytest.approx(3 / 9)


def test_four_warps_fill_the_waits():
    assert schedule([chain(2)] * 4).text() == "A B C D A B C D"
    assert schedule([chain(2)] * 3).text() == "A B C . A B C"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("latency", [1, 2, 4, 6])
@pytest.mark.parametrize("warps", [1, 2, 3, 4, 5, 8, 16])
def test_utilisation_is_warps_over_latency(warps, latency, policy):
    """While all have work, min(1, warps / latency), as in the arithmetic of lesson 07, whichever warp goes first."""
    trace = schedule([chain(500, latency)] * warps, cycles=400, policy=policy)
    assert trace.utilisation == pytest.approx(min(1, warps / latency), abs=0.01)


def test_sixteen_lanes_take_two_cycles_an_fma():
    """An SMSP of the A100: one warp fills half of its FMA pipe, two fill it."""
    assert schedule([chain(3, 4, lanes=16)]).text() == "A . . . A . . . A"
    assert schedule([chain(3, 4, lanes=16)] * 2).text() == "A . B . A . B . A . B"
    assert schedule([chain(200, 4, lanes=16)] * 4, cycles=400).utilisation == pytest.approx(0.5)


def test_more_warps_than_latency_take_turns():
    trace = schedule([chain(10)] * 6, cycles=24, policy="in turn")
    assert trace.text() == "A B C D E F " * 3 + "A B C D E F"


def test_in_fixed_order_the_fifth_warp_waits_until_the_end():
    """Five equal warps take as long as two rounds of four: 5 / 8 of the issue slots (the dip of Fig 2-5)."""
    fixed, fair = (schedule([chain(100)] * 5, policy=policy) for policy in POLICIES)
    assert fixed.text().startswith("A B C D A B C D") and "E" not in fixed.text()[:700]
    assert fixed.utilisation == pytest.approx(5 / 8, abs=0.01)
    assert fair.utilisation == pytest.approx(1, abs=0.01)
    for warps in (4, 6, 7, 8):
        assert schedule([chain(100)] * warps).utilisation == pytest.approx(warps / 4 / -(-warps // 4), abs=0.01)


def test_a_load_is_covered_by_other_warps_work():
    stream = [Instruction("load", 20, needs=0), Instruction("fma", 4)]
    assert schedule([stream]).text() == "A" + " ." * 19 + " A"
    # the second warp has 19 independent instructions: nothing is lost
    busy = [Instruction("fma", 4, needs=0)] * 19
    trace = schedule([stream, busy])
    assert trace.cycles == 21 and trace.utilisation == 1


def test_states_say_why_a_warp_did_not_issue():
    trace = schedule([chain(2), chain(1)])
    assert trace.text() == "A B . . A"
    assert trace.states[0] == (ISSUED, WAITING, WAITING, WAITING, ISSUED)
    assert trace.states[1] == (READY, ISSUED, DONE, DONE, DONE)
    assert trace.kinds == ("fma", "fma", None, None, "fma")


@pytest.mark.parametrize("fmas", [1, 2, 7])
def test_every_first_fma_needs_the_load_of_its_own_element(fmas):
    early = loop(4, fmas, early=True)
    loads = [i for i, instruction in enumerate(early) if instruction.kind == "load"]
    firsts = [i for i, instruction in enumerate(early) if instruction.kind == "fma" and instruction.needs > 1]
    assert [i - early[i].needs for i in firsts] == loads[:-1]  # element by element; the last load looks past the end
    plain = loop(4, fmas)
    assert [i.kind for i in plain[:fmas + 2]] == ["load", *["fma"] * fmas, "store"]
    assert sum(i.kind == "fma" for i in plain) == sum(i.kind == "fma" for i in early) == 4 * fmas


def test_plain_loads_add_their_latency_and_early_ones_hide_it():
    steps, fmas, latency = 20, 100, 300
    plain = schedule([loop(steps, fmas, memory_latency=latency)])
    early = schedule([loop(steps, fmas, memory_latency=latency, early=True)])
    assert plain.cycles / steps == pytest.approx(latency + 4 * fmas + 1, rel=0.02)
    assert early.cycles / steps == pytest.approx(4 * fmas + 2, rel=0.05)


def test_three_blocks_of_four_warps():
    """SMSP s holds warp s of each block: 12 warps, 3 on each, and one SMSP idle while its three wait for memory."""
    held = smsps(3, 4)
    assert held[2] == [(0, 2), (1, 2), (2, 2)]
    assert all(len(warps) == 3 for warps in held) and sum(map(len, held)) == 12
    waiting = [Instruction("load", 400, needs=0), Instruction("fma", 4)]
    idle = schedule([waiting] * 3, cycles=20)
    assert idle.issued[3:] == (None,) * 17
    assert all(state[10] == WAITING for state in idle.states)


@pytest.mark.parametrize("warps, message", [
    ([], "1 to 16 warps"), ([chain(1)] * 17, "1 to 16 warps"),
    ([[Instruction("fma", 4, needs=3)]], "before the start"), ([[Instruction("fma", 0)]], "before the start"),
])
def test_impossible_streams(warps, message):
    with pytest.raises(ValueError, match=message):
        schedule(warps)
    with pytest.raises(ValueError, match="fixed order, in turn"):
        schedule([chain(1)], policy="oldest")
