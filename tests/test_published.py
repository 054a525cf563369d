"""Published numbers: complete, sourced, and consistent with the arithmetic on them."""

import pytest

from helpers import results
from helpers.occupancy import occupancy
from helpers.specs import gpu

NEEDED = {"id", "lesson", "machine", "quantity", "unit", "source", "status"}
OPTIONAL = {"experiment", "variant", "params", "elsewhere", "inferred", "value", "low", "high", "bound", "condition"}
ALL = results.published_all()


@pytest.mark.parametrize("entry", ALL.values(), ids=lambda entry: entry["id"])
def test_every_entry_is_complete(entry):
    assert NEEDED <= set(entry) <= NEEDED | OPTIONAL
    assert ("value" in entry) != ("low" in entry) and ("low" in entry) == ("high" in entry)
    assert entry.get("value", entry.get("low")) > 0 and entry.get("low", 0) <= entry.get("high", 0)
    assert entry["source"] in results.tomllib.loads((results.DATA / "published.toml").read_text())["sources"]
    assert entry["status"] in ("published", "derived") and entry.get("bound") in (None, "memory", "compute", "latency")
    assert set(entry.get("inferred", ())) <= set(entry.get("params", ()))
    assert set(entry.get("elsewhere", ())) <= set(entry.get("params", ()))
    if "experiment" in entry:
        assert {"variant", "params"} <= set(entry) and ("bound" in entry) == (entry["quantity"] != "max_error")
        assert entry["quantity"] in ("time_us", "tflops", "bandwidth_gb_per_s", "fraction_of_fp32_peak", "max_error")
    for name, rule in entry.get("elsewhere", {}).items():  # the rule gives the published case on the published machine
        assert rule in ("sm_count", "64 * sm_count")
        assert (64 if "64" in rule else 1) * gpu(entry["machine"]).sm_count == entry["params"][name]


def value(id):
    return results.published(id)["value"]


def test_softmax_numbers_agree():
    g = gpu("RTX 5090")
    fused, eager = 2 * 4096**2 * 4, (8 * 4096**2 + 4 * 4096) * 4
    assert value("softmax_eager") / value("softmax_fused") == pytest.approx(value("softmax_speedup"), abs=0.05)
    assert fused / value("softmax_fused") / 1e3 == pytest.approx(0.936 * g.bandwidth_gb_per_s, rel=1e-3)
    floor_us = eager / g.bandwidth_gb_per_s / 1e3
    assert floor_us == pytest.approx(299.6, abs=0.05) and value("softmax_eager") < floor_us
    assert eager / fused == pytest.approx(value("softmax_traffic"), rel=1e-3) and 32768 / 32 == value("softmax_values")
    assert value("softmax_long_1_warp") / value("softmax_long_8_warps") == pytest.approx(3.85, abs=0.01)


def test_row_sum_numbers_agree():
    traffic = 170 * 524288 * 4
    assert traffic == 10880 * 8192 * 4 == 340 * 2**20
    assert traffic / value("row_sum_few_4_warps") / 1e3 == pytest.approx(value("row_sum_few_bandwidth"), rel=3e-3)
    assert traffic / value("row_sum_few_1_warp") / 1e3 == pytest.approx(812, abs=0.5)
    many = [entry for id, entry in ALL.items() if id.startswith("row_sum_many")]
    assert [entry["params"]["num_warps"] for entry in many] == [1, 2, 4, 8, 16, 32]
    assert {(entry["low"], entry["high"]) for entry in many} == {(211, 217)}


def test_matmul_and_chain_numbers_agree():
    g = gpu("RTX 5090")
    assert value("matmul_tflops") / g.fp32_tflops == pytest.approx(value("matmul_share"), abs=0.005)
    o = occupancy("RTX 5090", 128, 96, 32 * 1024)
    assert (o.blocks, o.fraction) == (value("matmul_blocks"), value("matmul_occupancy"))
    assert o.warps / 4 == value("matmul_warps") and 2 * (64 + 64) * 32 * 4 == value("matmul_shared") * 1024
    assert round(g.ridge()) == value("ridge_5090")
    assert value("fma_chain_1_warp") == 1 / value("fma_latency") and value("fma_chain_4_warps") == 0.92


def test_v100_numbers():
    assert value("v100_ab_a_tile") / value("v100_ab_none") == pytest.approx(1.20, abs=0.005)
    assert value("v100_ab_both_tiles") / value("v100_ab_none") == pytest.approx(1.63, abs=0.005)
    assert {entry["machine"] for entry in ALL.values() if "experiment" in entry} == {"RTX 5090"}
    assert all(entry["value"] <= value("v100_peak") for id, entry in ALL.items() if id.startswith("v100"))


def test_an_unknown_id_is_refused():
    with pytest.raises(ValueError, match="softmax_eager"):
        results.published("nothing")
