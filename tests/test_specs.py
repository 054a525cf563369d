"""The fact sheets against the printed tables, typed here a second time, and against their own arithmetic."""

import csv
import re
import tomllib
from dataclasses import fields

import pytest
import torch

from helpers import facts, specs
from helpers.specs import Gpu, gpu, limits

CAPABILITIES = ["7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1"]
PRINTED_LIMITS = {  # CUDA Programming Guide tables 30-33; the last row is arithmetic on them
    "max_threads_per_sm": [1024, 2048, 1536, 1536, 1536, 2048, 2048, 2048, 1536, 1536, 1536],
    "max_warps_per_sm": [32, 64, 48, 48, 48, 64, 64, 64, 48, 48, 48],
    "max_warps_per_smsp": [8, 16, 12, 12, 12, 16, 16, 16, 12, 12, 12],
    "max_blocks_per_sm": [16, 32, 16, 16, 24, 32, 32, 32, 24, 24, 24],
    "shared_kib_per_sm": [64, 164, 100, 164, 100, 228, 228, 228, 228, 100, 100],
    "shared_kib_per_block": [64, 163, 99, 163, 99, 227, 227, 227, 227, 99, 99],
    "unified_cache_kib": [96, 192, 128, 192, 128, 256, 256, 256, 256, 128, 128],
    "reserved_shared_kib": [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    "shared_granularity_bytes": [256, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128],
    "registers_at_full_occupancy": [64, 32, 40, 40, 40, 32, 32, 32, 40, 40, 40],
    "fp32_cores_per_sm": [64, 64, 128, None, 128, 128, 128, None, None, 128, 128],
    "registers_per_sm": [65536] * 11,
    "max_registers_per_thread": [255] * 11,
    "max_threads_per_block": [1024] * 11,
}

#                    cc      SMs  cores  MHz   fp32   tf32   bf16   fp16   fp8     L2    GB   GB/s  ridge fp32, bf16
PRINTED = {
    "A100 SXM 80GB":   ("8.0", 108, 6912, 1410, 19.5, 156, 312, 312, None, 40, 80, 2039, 9.6, 153),
    "H100 SXM5":       ("9.0", 132, 16896, 1980, 66.9, 494.7, 989.4, 989.4, 1978.9, 50, 80, 3352, 20.0, 295),
    "H200 SXM":        ("9.0", 132, 16896, 1980, 66.9, 494.7, 989.4, 989.4, 1978.9, 60, 141, 4800, 13.9, 206),
    "B200":            ("10.0", 148, 18944, 1965, 75, 1100, 2250, 2250, 4500, 126.5, 180, 7672, 9.8, 293),
    "RTX 5090":        ("12.0", 170, 21760, 2407, 104.8, 104.8, 209.5, 209.5, 419, 96, 32, 1792, 58.5, 116.9),
    "RTX 4090":        ("8.9", 128, 16384, 2520, 82.6, 82.6, 165.2, 165.2, 330.3, 72, 24, 1008, 81.9, 163.9),
    "RTX PRO 6000 WS": ("12.0", 188, 24064, 2617, 126.0, 251.9, 503.8, 503.8, 1008, 128, 96, 1792, 70.3, 281),
    "L4":              ("8.9", 58, 7424, 2040, 30.3, 60, 121, 121, 242, 48, 24, 300, 101, 403),
    "T4":              ("7.5", 40, 2560, 1590, 8.1, None, None, 65, None, 4, 16, 320, 25.3, None),
    "RTX 3090":        ("8.6", 82, 10496, 1695, 35.6, 35.6, 71.2, 71.2, None, 6, 24, 936, 38.0, 76),
    "GB10":            ("12.1", 48, 6144, 2520, 31, None, None, None, None, 24, 128, 273, 114, None),
}
CLOCK_PEAKS = {"A100 SXM 80GB": 19.49, "H100 SXM5": 66.91, "B200": 74.45, "RTX 5090": 104.75, "RTX 4090": 82.58,
               "RTX PRO 6000 WS": 125.95, "L4": 30.29, "T4": 8.14, "RTX 3090": 35.58}


@pytest.mark.parametrize("name", PRINTED_LIMITS)
def test_limits_are_the_printed_ones(name):
    assert specs.capabilities() == CAPABILITIES
    assert [getattr(limits(cc), name) for cc in CAPABILITIES] == PRINTED_LIMITS[name]


@pytest.mark.parametrize("name", PRINTED)
def test_products_are_the_printed_ones(name):
    g = gpu(name)
    assert (f"{g.cc[0]}.{g.cc[1]}", g.sm_count, g.fp32_cores, g.boost_mhz, g.fp32_tflops, g.tf32_tflops, g.bf16_tflops,
            g.fp16_tflops, g.fp8_tflops, g.l2_mib, g.memory_gb, g.bandwidth_gb_per_s) == PRINTED[name][:12]
    fp32, bf16 = PRINTED[name][12:]
    assert g.ridge() == pytest.approx(fp32, abs=0.5 if fp32 > 100 else 0.05)
    assert g.ridge("bf16") == (None if bf16 is None else pytest.approx(bf16, abs=0.5))


@pytest.mark.parametrize("g", specs.products(), ids=lambda g: g.name)
def test_products_agree_with_their_own_arithmetic(g):
    assert g.fp32_cores == g.sm_count * g.limits.fp32_cores_per_sm
    assert g.fp32_tflops_from_clock == pytest.approx(g.fp32_tflops, rel=0.01)  # B200: 75 printed, 74.45 from the clock
    if g.name in CLOCK_PEAKS:
        assert round(g.fp32_tflops_from_clock, 2) == CLOCK_PEAKS[g.name]
    if g.bus_bits:
        assert g.bandwidth_from_bus_gb_per_s == pytest.approx(g.bandwidth_gb_per_s, rel=1e-3)
    for missing in g.without:
        assert getattr(g, f"{missing}_tflops") is None


def test_there_is_a_row_for_every_product():
    assert [g.name for g in specs.products()] == list(PRINTED)
    assert all(gpu(name).name == name for name in PRINTED)


def test_5090_sizes_and_rates():
    g = gpu("RTX 5090")
    assert (g.registers_mib, g.l1_mib, g.l2_bytes) == (42.5, 21.25, 100_663_296)
    assert g.shared_mib == pytest.approx(16.6, abs=0.05)
    assert g.l1_tb_per_s == pytest.approx(52.4, abs=0.05)
    assert g.register_read_tb_per_s == pytest.approx(628, abs=1)
    assert g.latency_cycles == {"l1": 44, "l2": 360, "dram": 936}
    assert g.ridge() == pytest.approx(58.46, abs=0.05) and g.l2_tb_per_s is None
    assert g.bandwidth_from_bus_gb_per_s == 1792


@pytest.mark.parametrize(("name", "registers", "l1"), [("A100", 27.0, 20.25), ("H100", 33, 33), ("B200", 37, 37)])
def test_memory_on_the_chip(name, registers, l1):
    assert (gpu(name).registers_mib, gpu(name).l1_mib) == (registers, l1)


def test_tensor_peaks_follow_from_the_structure():
    def peak(g, flops_a_cycle_and_tensor_core, mhz):
        return g.sm_count * g.limits.tensor_cores_per_sm * flops_a_cycle_and_tensor_core * mhz * 1e-6

    h100, a100, rtx5090 = gpu("H100"), gpu("A100"), gpu("RTX 5090")
    assert peak(h100, 1024, h100.tensor_boost_mhz) == pytest.approx(h100.bf16_tflops, abs=0.1)
    assert peak(a100, 512, a100.boost_mhz) == pytest.approx(a100.bf16_tflops, abs=0.2)
    assert peak(rtx5090, 128, rtx5090.boost_mhz) == pytest.approx(rtx5090.bf16_tflops, abs=0.1)


def test_latencies_never_come_from_a_similar_chip():
    assert set(gpu("H200").latency_cycles.values()) == {None}  # GH200 and GH100 were measured, not the H200
    assert gpu("RTX PRO 6000").latency_cycles == {"l1": 44, "l2": 352, "dram": 864}
    assert gpu("A100").latency_cycles["l2"] == 200
    by_gpu = {(row["gpu"], row["source"]): row for row in specs.latencies()}
    assert by_gpu["RTX PRO 6000", "CCGB"]["dram_ns"] == 329
    assert by_gpu["RTX 5080", "AX2507"]["status"] == "unverified"
    assert gpu("H100").l2_tb_per_s is None and gpu("RTX PRO 6000").l2_tb_per_s == 8.7  # the H100 measured was a PCIe


@pytest.mark.parametrize("name", ["NVIDIA H200", "nvidia h200", "H200", "H200 SXM", "h200-sxm"])
def test_names_as_people_and_drivers_write_them(name):
    assert gpu(name).name == "H200 SXM"


@pytest.mark.parametrize(("driver", "name"), [
    ("NVIDIA GeForce RTX 5090", "RTX 5090"), ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB"), ("Tesla T4", "T4"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM5"), ("NVIDIA B200", "B200"), ("NVIDIA GeForce RTX 3090", "RTX 3090"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 WS"), ("NVIDIA GB10", "GB10"),
])
def test_driver_names(driver, name):
    assert gpu(driver).name == name


@pytest.mark.parametrize("target", ["sm_120", "SM_120", "sm_120a", "sm120", "compute_120", "12.0", (12, 0), [12, 0], 12.0])
def test_a_compute_capability_has_limits_and_names_an_example_only(target):
    g = gpu(target)
    assert g.cc == (12, 0) and g.target == "sm_120" and g.limits.max_warps_per_sm == 48
    assert not g.is_product and g.example == "RTX 5090"
    values = {f.name: getattr(g, f.name) for f in fields(Gpu)}
    known = {"name", "limits", "is_product", "example", "without", "facts"}
    assert {name for name, value in values.items() if value is not None} == known  # nothing of the 5090 slips in
    assert g.ridge() is None and g.registers_mib is None and g.latency_cycles["l2"] is None


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 4090 Laptop GPU",
                                  "RTX 5090 D", "sm_70", "sm_999", (9, 9), (9,), (True, 0), "", "12", 12, 9.05, True,
                                  b"x"])
def test_unknown_gpus_are_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=r"unknown GPU.*RTX 5090.*7\.5, 8\.0.*12\.1"):
        gpu(name)


def test_wrong_questions_are_refused():
    with pytest.raises(ValueError, match="fp32, tf32"):
        gpu("L4").ridge("int8")
    with pytest.raises(ValueError, match="no 'watts'"):
        gpu("L4").fact("watts")
    with pytest.raises(ValueError, match="no limit 'watts'"):
        limits("L4").fact("watts")


def test_a_gpu_that_is_not_in_the_table_is_known_by_its_driver():
    g = specs.from_driver("NVIDIA GeForce RTX 1", (8, 9), 46, 12_281 * 2**20, 36 * 2**20)
    assert (g.sm_count, g.fp32_cores, g.l2_mib, g.limits) == (46, 5888, 36, limits("8.9"))
    assert g.fp32_tflops is None and g.bandwidth_gb_per_s is None and g.ridge() is None and g.boost_mhz is None
    assert g.fact("sm_count").source == "driver" and g.registers_mib == 11.5
    assert specs.from_driver("NVIDIA H200", (9, 0), 132, 150e9, 60 * 2**20) == gpu("H200")
    part = specs.from_driver("NVIDIA H200", (9, 0), 16, 18e9, 8 * 2**20)  # a name alone does not make the product
    assert part.bandwidth_gb_per_s is None and part.sm_count == 16
    future = specs.from_driver("NVIDIA X", (13, 0), 100, 64e9, 2**27)
    assert future.sm_count == 100 and future.limits.max_warps_per_sm is None and future.fp32_cores is None
    assert future.registers_mib is None and future.limits.max_warps_per_smsp is None and future.ridge() is None
    assert future.limits.fact("max_warps_per_sm") is None and future.limits.registers_at_full_occupancy is None


def test_this_machine(monkeypatch):
    if torch.cuda.is_available():
        p = torch.cuda.get_device_properties()
        assert gpu().cc == (p.major, p.minor) and gpu().sm_count == p.multi_processor_count
        assert gpu(p.name) == gpu()
        return
    with pytest.raises(RuntimeError, match=r'name one, as in gpu\("RTX 5090"\)'):
        gpu()
    monkeypatch.setattr(specs, "_this_machine",
                        lambda: specs.from_driver("NVIDIA GeForce RTX 1", (8, 9), 46, 12e9, 2**25))
    assert gpu().sm_count == 46 and gpu("RTX 1") == gpu() and gpu("RTX 5090").sm_count == 170


def every_fact():
    for g in specs.products():
        yield from ((f"{g.name} {key}", fact) for key, fact in g.facts.items())
    for name in specs.meanings():
        yield name, limits("12.0").fact(name) or limits("10.0").fact(name)
    for rows in (specs.latencies(), specs.l2_bandwidths(), specs.fma_latencies()):
        yield from ((str(row), facts.Fact(row, row["source"], row["status"])) for row in rows)


def test_every_value_has_a_source_and_a_status():
    for what, fact in every_fact():
        assert fact.source in specs.sources(), what
        assert fact.status in facts.STATUSES, what
        if isinstance(fact.value, int | float):
            assert fact.value > 0, what
    assert gpu("T4").limits.fact("tensor_cores_per_sm").note.endswith("unverified")
    assert gpu("GB10").fact("l2_mib").status == "unverified" and gpu("H200").fact("boost_mhz").status == "unverified"
    for source in (*specs.sources().values(), *facts.tpu_table()["sources"].values()):
        assert len(source["title"]) > 15 and source["where"]


def test_the_table_has_nothing_that_nobody_reads():
    table = facts.gpu_table()
    assert set(table["limits"]) == {f.name for f in fields(specs.Limits)} - {"cc"}
    names = {f.name for f in fields(Gpu)}
    for name, entry in table["gpu"].items():
        assert {key for key, value in entry.items() if isinstance(value, dict)} <= names, name
    everyone = []
    for name, entry in table["gpu"].items():
        everyone += {facts.plain_name(n) for n in (name, *entry["aliases"])}
    assert len(everyone) == len(set(everyone)), "two GPUs share a name"
    used = {fact.source for _, fact in every_fact()} | {"driver"}
    in_notes = {key for key in table["sources"] if re.search(rf"\b{key}\b", str(table["limits"]))}
    assert set(table["sources"]) == used | in_notes


def test_tpus():
    v5p, v1 = ({k: f.value for k, f in facts.tpu(name).items()} for name in ("v5p", "v1"))
    per_cycle = v5p["cores"] * v5p["mxus_per_core"] * v5p["mxu_rows"] * v5p["mxu_columns"] * 2
    assert per_cycle * v5p["clock_mhz"] * 1e-6 == pytest.approx(v5p["bf16_tflops"], rel=1e-3)
    assert v5p["bf16_tflops"] * 1e3 / v5p["bandwidth_gb_per_s"] == pytest.approx(166, abs=0.1)
    assert v5p["vregs_per_core"] * v5p["vpu_sublanes"] * v5p["vpu_lanes"] * 4 == v5p["vreg_kib_per_core"] * 1024
    vpu = v5p["vpu_sublanes"] * v5p["vpu_lanes"] * v5p["vpu_alus_per_lane"]
    assert vpu == 4096 and per_cycle / v5p["cores"] / vpu == 32
    macs = v1["mxu_rows"] * v1["mxu_columns"]
    assert macs == 65536 and macs * 2 * v1["clock_mhz"] * 1e-6 == pytest.approx(v1["int8_tops"], rel=0.01)
    ridge = macs * v1["clock_mhz"] * 1e-3 / v1["bandwidth_gb_per_s"]
    assert ridge == pytest.approx(v1["ridge_macs_per_byte"], rel=0.01)
    for name in ("v5p", "v1"):
        for key, fact in facts.tpu(name).items():
            assert fact.source in facts.tpu_table()["sources"] and fact.status in facts.STATUSES, key
    h100 = gpu("H100")
    rows = {row["gpu"]: row for row in facts.counterparts()}
    assert rows["SM"]["h100"] == str(h100.sm_count) and rows["CUDA core"]["h100"] == f"{h100.fp32_cores:,}"
    assert rows["registers"]["h100"] == f"{h100.registers_mib:.0f} MiB" and rows["Tensor Core"]["h100"] == "528"
    with pytest.raises(ValueError, match="v5p, v1"):
        facts.tpu("v9")


def test_memory_wall_points():
    points, source = facts.memory_wall()
    assert points.groupby("series").size().to_dict() == {"HW FLOPS": 37, "DRAM BW": 12, "Interconnect": 10}
    assert points.isna().sum().sum() == 0 and (points.normalised > 0).all() and points.year.between(1997, 2023).all()
    for _, rows in points.groupby("series"):
        base = (rows.absolute / rows.normalised).median()
        assert (rows.absolute / rows.normalised - base).abs().max() < 0.01 * base
    assert set(source["printed_growth_per_two_years"]) == set(points.series)
    with open(facts.DATA / "memory_wall.csv") as file:
        assert len(list(csv.DictReader(file))) == 59
    assert tomllib.loads((facts.DATA / "memory_wall.toml").read_text())["title"].startswith("Gholami")
