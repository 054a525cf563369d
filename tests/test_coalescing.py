"""Lesson 09: sectors counted from the compiled kernel, Nsight Compute's counts beside them, figures."""

import os

import pandas as pd
import pytest
import torch

from figures import coalescing
from helpers import measure, mode, nsight, results
from helpers.cuda import CudaKernel, program
from helpers.cuda.counting import ELEMENTS, ORDERS, count_warp
from helpers.experiments.coalescing import compared_counts, counted_launches
from helpers.lesson import check


@pytest.mark.parametrize("stride", [0, 1, 2, 3, 8, 9, 32])
@pytest.mark.parametrize("offset", [0, 1, 8, 31])
@pytest.mark.parametrize("size", list(ELEMENTS))
def test_count_warp_agrees_with_the_addresses(size, stride, offset):
    order = list(ORDERS)[(stride + offset) % len(ORDERS)]
    counted = count_warp(stride, offset, order, ELEMENTS[size])
    addresses = [size * ((lane ^ ORDERS[order]) * stride + offset) for lane in range(32)]
    assert list(counted.addresses) == addresses
    assert counted.sectors == len({a // 32 for a in addresses})
    assert counted.used_bytes == size * len(set(addresses))


@pytest.mark.parametrize("pattern, sectors, used", [
    ({}, 4, 128), ({"order": "reversed"}, 4, 128), ({"order": "pairs swapped"}, 4, 128), ({"order": "halves swapped"}, 4, 128),
    ({"offset": 1}, 5, 128), ({"offset": 7}, 5, 128), ({"offset": 8}, 4, 128), ({"offset": 24}, 4, 128), ({"stride": 2}, 8, 128),
    ({"stride": 4}, 16, 128), ({"stride": 8}, 32, 128), ({"stride": 16}, 32, 128), ({"stride": 32}, 32, 128),
    ({"stride": 64}, 32, 128), ({"stride": 0}, 1, 4), ({"element": "float2"}, 8, 256), ({"element": "float4"}, 16, 512),
])  # fmt: skip
def test_the_sector_table_of_the_guides(pattern, sectors, used):
    """Best Practices Guide 10.2.1: 32 lanes of 4 bytes, unless it says otherwise."""
    counted = count_warp(**pattern)
    assert (counted.sectors, counted.moved_bytes, counted.used_bytes) == (sectors, 32 * sectors, used)


def test_count_warp_refuses_nonsense():
    for bad in ({"order": "sideways"}, {"element": "double"}, {"stride": -1}):
        with pytest.raises(ValueError, match="order out of"):
            count_warp(**bad)


@pytest.mark.skipif(mode.is_live(), reason="small launches on CPU tensors, for the SIMT machine")
def test_every_counted_launch_is_right_and_small():
    launches = counted_launches()
    assert len(launches) >= 20
    for (name, parameter), (kernel, grid, block, (x, out, *numbers)) in launches.items():
        assert out.numel() <= 2**15, (name, parameter)
        x, out = torch.randn_like(x), torch.full_like(out, float("nan"))
        kernel.launch(grid, block, x, out, *numbers)
        expected = x[::parameter] if name == "strided_copy" else x[parameter:] if name == "offset_copy" else x.t()
        assert torch.equal(out, expected), (name, parameter)


NCU = '''==PROF== Connected
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","7","strided_copy(const float *)","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","sector","1,024"
"0","7","strided_copy(const float *)","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","request","32"
"1","7","strided_copy(const float *)","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","sector","128"
"1","7","strided_copy(const float *)","something else","","9"
'''


def test_the_table_of_ncu_is_read():
    assert nsight.parse(NCU) == [{"load_sectors": 1024, "load_requests": 32}, {"load_sectors": 128}]
    assert nsight.parse("==ERROR== nothing") == []
    for nothing in ("n/a", "nan", "inf", ""):
        with pytest.raises(RuntimeError, match=f"ncu counts no l1tex__t_requests.* on this GPU: it says '{nothing}'"):
            nsight.parse(f'"ID","Metric Name","Metric Value"\n"0","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum","{nothing}"\n')


@pytest.mark.skipif(mode.is_live(), reason="about a machine without a GPU")
def test_without_a_gpu_ncu_and_nvcc_say_why():
    for module in (nsight, program):
        assert "GPU" in module.why_not() or "none is in use" in module.why_not()
    with pytest.raises(RuntimeError, match="cannot be built and run"):
        program.build_and_run("vec_add.cu")
    with pytest.raises(RuntimeError, match="none is in use"):
        nsight.count([])


def test_a_difference_from_ncu_is_noticed():
    right = []
    for (name, parameter), (kernel, grid, block, args) in list(counted_launches().items())[::6]:
        report = kernel.counted(grid, block, *args)
        load, store = report.of("global load"), report.of("global store")
        right.append({"variant": name, "parameter": parameter, "load_requests": load.requests,
                      "load_sectors": load.sectors, "store_requests": store.requests, "store_sectors": store.sectors,
                      "shared_load_conflicts": report.of("shared load").conflicts,
                      "shared_store_conflicts": report.of("shared store").conflicts})
    table = pd.DataFrame(right)
    assert compared_counts(table)["agree"].all()
    table.loc[1, "load_sectors"] += 1
    assert compared_counts(table)["agree"].tolist().count(False) == 1


def test_what_cannot_be_counted_or_built_here_is_recorded_and_says_why(monkeypatch, tmp_path):
    """Tools that are there and fail: an ncu that does not know the GPU, an nvcc without a C++ compiler."""
    for name, said in (("ncu", "==PROF== connected\n==ERROR== Profiling is not supported on this device"), ("nvcc", "nvcc fatal: no cl")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(mode, "is_live", lambda: True)
    monkeypatch.setattr(measure, "measure", lambda name: pd.DataFrame([
        nsight.count(list(counted_launches().values())[:2])[0] if name == "nsight_counts" else {"printed": program.build_and_run("vec_add.cu")}]))
    table, reason = nsight.counts_or_recorded()
    assert reason == "ncu counted 0 launches of 2: Profiling is not supported on this device" and set(table["evidence"]) == {"recorded"}
    table, reason = program.built_or_recorded()
    assert reason == "nvcc ended with 1: nvcc fatal: no cl" and set(table["evidence"]) == {"recorded"}


@pytest.mark.skipif("nsight_counts" not in results.load()["experiments"], reason="not recorded yet")
def test_nsight_compute_counts_what_the_machine_counts():
    compared = compared_counts(results.recorded("nsight_counts"))
    assert len(compared) >= 20
    assert compared["agree"].all(), compared[~compared["agree"]].to_string()


# ------------------------------------------------------------------------------------------------ figures


def test_the_sector_widget_at_its_ends():
    for size, stride, offset, order in ((1, 0, 0, "in order"), (16, 32, 31, "reversed"), (4, 3, 7, "pairs swapped")):
        assert "sector" in coalescing.pattern_view(size, stride, offset, order).alt


def test_figures_say_what_their_data_say():
    strides = pd.DataFrame({"stride": [1, 2, 8, 32], "bandwidth_gb_per_s": [4000.0, 2500.0, 800.0, 600.0]})
    assert "800 at 8" in coalescing.show_stride(strides, {1: 4, 2: 8, 8: 32, 32: 32}).alt
    offsets = pd.DataFrame({"variant": ["one"] * 3 + ["four"] * 3, "offset": [0, 1, 8] * 2,
                            "bandwidth_gb_per_s": [2000.0, 1900.0, 2000.0, 4000.0, 3600.0, 4000.0]})
    alt = coalescing.show_offset(offsets, {0: 4, 1: 5, 8: 4}).alt
    assert "one, 2,000 GB/s at offset 0, keeps 95.0% to 95.0% at offsets that are no multiple of 8" in alt
    assert "four, 4,000 GB/s at offset 0, keeps 90.0%" in alt


# ------------------------------------------------------------------------------------------------ exercises


@pytest.mark.parametrize("id, wrong", [
    ("1", lambda stride, offset: min(32, 4 * max(stride, 1))),  # no offset, and no broadcast
    ("1", lambda stride, offset: len({(4 * lane * stride + offset) // 32 for lane in range(32)})),  # offset in bytes
    ("3", lambda: (1.0, 1 / 3)), ("3", lambda: (0.33, 1)), ("3", lambda: 1 / 3),
])  # fmt: skip
def test_wrong_answers_are_refused(id, wrong):
    with pytest.raises(AssertionError, match="not yet"):
        check(f"09_coalescing.{id}", wrong)


@pytest.mark.parametrize("order", [
    "row = blockIdx.x * 32 + threadIdx.x; col = blockIdx.y * 8 + threadIdx.y;",  # strided
    "row = blockIdx.y * 8 + threadIdx.x % 8; col = blockIdx.x * 32 + threadIdx.y * 4 + threadIdx.x / 8;",
    "row = threadIdx.y; col = blockIdx.x * 32 + threadIdx.x;",  # rows past the first block are missing
])
def test_wrong_index_orders_are_refused(order):
    kernel = CudaKernel('extern "C" __global__ void scale_rows(const float* x, const float* f, float* y, int rows, int cols)'
                        "{ int row = -1, col = -1; " + order + " if (row >= 0 && row < rows && col < cols)"
                        " y[row * cols + col] = f[row] * x[row * cols + col]; }", "scale_rows")
    with pytest.raises(AssertionError, match="not yet"):
        check("09_coalescing.2", kernel)
