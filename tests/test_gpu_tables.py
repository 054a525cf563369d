"""Tables of lessons 01 and 02: every cell has its source, derived rows recompute what is printed, levels stand beside their own."""

import pandas as pd
import pytest

from helpers import specs
from helpers.compare import compare
from helpers.evidence import Evidence
from helpers.lesson import gpu_tables
from helpers.lesson.gpu_tables import MARKS, latency_table, published_latencies, rate_table, table_1_1, table_1_2
from helpers.results import published
from helpers.specs import gpu, products

HERE = Evidence("recorded", "a GPU", "2026-01-01")


def column(shown, name, key=""):
    return dict(zip(shown.data[key], shown.data[name], strict=True))


def test_table_1_1_marks_each_published_cell_with_its_source():
    shown = table_1_1()
    assert list(shown.data.columns)[1:] == [g.name for g in products()]
    legend = dict(part.strip().split(" ", 1) for part in shown.evidence.split(" · ")[1].split(";"))
    assert set(legend) <= set(MARKS) and len(legend) == len(set(legend.values())) >= 8
    for g in products():
        cells = column(shown, g.name)
        for attribute, heading in gpu_tables.QUANTITIES.items():
            fact = g.fact(attribute)
            if fact is None:
                assert cells[heading] == "none" or pd.isna(cells[heading])
                continue
            text = cells[heading].removesuffix(" ?")
            assert (text != cells[heading]) == (fact.status == "unverified")
            assert legend[text[-1]] == specs.sources()[fact.source]["title"], (g.name, heading)
            assert text[:-1] == (f"{fact.value:g}" if isinstance(fact.value, float) else str(fact.value))


def test_table_1_1_recomputes_what_is_printed():
    cells = column(table_1_1("RTX 5090", "H200", "A100", "B200"), "RTX 5090")
    assert cells["FP32 from cores × 2 × clock"] == "104.8" and cells["bandwidth from bus × rate"] == "1792"
    assert cells["ridge FP32 (FLOP/B)"] == "58.48" and cells["registers, all SMs (MiB)"] == "42.5"
    for g in products():
        assert g.fp32_tflops_from_clock == pytest.approx(g.fp32_tflops, rel=0.01), g.name
        if g.bandwidth_from_bus_gb_per_s:
            assert g.bandwidth_from_bus_gb_per_s == pytest.approx(g.bandwidth_gb_per_s, rel=0.01), g.name
    with pytest.raises(ValueError, match="unknown GPU"):
        table_1_1("RTX 5091")


def test_table_1_2_is_the_limits_of_every_compute_capability():
    shown = table_1_2()
    assert list(shown.data.columns) == ["limit", *specs.capabilities(), "source"]
    h200, card, turing = (column(shown, cc, "limit") for cc in ("9.0", "12.0", "7.5"))
    assert [h200[k] for k in ("threads resident on an SM", "warps resident on an SM", "blocks resident on an SM")] == ["2048", "64", "32"]
    assert card["warps of an SMSP"] == "12" and card["registers a thread, at full occupancy"] == "40"
    assert card["blocks resident on an SM"] == "24" and turing["shared memory of an SM, KiB"] == "64"
    assert set(column(shown, "source", "limit").values()) == {"CPG", "OCC", "derived"}


@pytest.mark.parametrize("name, first", [
    ("RTX 5090", "RTX 5090"), ("H200", "GH200"), ("H100", "GH200"), ("L4", "RTX 4090"), ("B200", "B200"),
    ("RTX PRO 6000", "RTX PRO 6000"), ("A100", "A100"), ("T4", "RTX 4090"),
])
def test_latencies_stand_beside_the_same_gpu_or_its_kind(name, first):
    published = published_latencies(gpu(name), "RTX 4090")
    assert next(iter(published)) == first and set(published) == {first, "RTX 4090"}
    assert published["RTX 4090"] == {"l1": 40, "l2": 296, "dram": 636}
    with pytest.raises(KeyError):
        published_latencies(gpu(name), "H200")


def test_latency_table():
    levels = {"L1": {"cycles": 33.0, "ns": 16.5}, "device memory": {"cycles": 759.0, "ns": 380.0}}
    shown = latency_table(levels, gpu("H200"), published_latencies(gpu("H200"), "RTX 5090"), HERE)
    assert list(shown.data["H200 SXM"]) == [33.0, 759.0] and list(shown.data["in ns"]) == [16.5, 380.0]
    assert list(shown.data["GH200 (published)"]) == [40, 690] and list(shown.data["RTX 5090 (published)"]) == [44, 936]
    assert list(shown.data["ratio to GH200"]) == pytest.approx([0.825, 1.1])
    assert "recorded · a GPU" in shown.evidence and "Mark Dewing" in shown.evidence


def test_latency_table_of_a_gpu_outside_the_table():
    shown = latency_table({}, gpu("H200"), published_latencies(gpu("H200")), HERE)
    assert "cannot be told apart" in repr(shown)


def test_rate_table():
    shown = rate_table({"L1": 31_000.0, "device memory": 4_600.0}, gpu("H200"), HERE)
    assert list(shown.data["measured (TB/s)"]) == [31.0, 4.6]
    assert shown.data["bytes a cycle and SM"][0] == pytest.approx(31e12 / 132 / 1.98e9)
    assert list(shown.data["published"]) == ["RTX PRO 6000: 128 bytes a cycle and SM", "datasheet of the H200 SXM: 4.8 TB/s"]
    stranger = specs.from_driver("NVIDIA New One", (13, 0), 200, 48e9, 2**26)
    shown = rate_table({"L1": 31_000.0, "device memory": 4_600.0}, stranger, HERE)
    assert shown.data["bytes a cycle and SM"].isna().all() and "not in table 1-1" in shown.data["published"][1]


def test_the_published_read_rate_is_that_of_340_mib():
    card = gpu("RTX 5090")
    shown = compare("01_memory_hierarchy", computed={"bandwidth_5090": card.bandwidth_from_bus_gb_per_s}, evidence="x")
    rows = shown.data.set_index(shown.data["what"].str.split(" ").str[0])
    assert rows.loc["bandwidth", "verdict"] == "as published" and "predict" in rows.loc["read", "verdict"]
    assert rows.loc["read", "expected"] == pytest.approx(1670 * 4800 / 1792)
    assert published("read_5090")["params"]["bytes_per_sm"] * card.sm_count == 340 * 2**20 > 3 * card.l2_bytes
