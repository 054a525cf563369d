"""The last table of lesson 11: what the CUDA text expected of its experiments, and what came out.

Counts come from the SIMT machine, registers from the compiler, times from `measure`: live with a GPU, recorded without.
"""

from helpers import cuda
from helpers.cuda.counting import count_warp
from helpers.cuda.launch import CudaKernel
from helpers.measure import measure
from helpers.occupancy import occupancy

METRICS = [
    {"question": "sectors a request", "Nsight Compute metric": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"},
    {"question": "load requests", "Nsight Compute metric": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"},
    {"question": "hits in L2", "Nsight Compute metric": "lts__t_sector_hit_rate.pct"},
    {"question": "bytes from device memory", "Nsight Compute metric": "dram__bytes_read.sum"},
    {"question": "bank conflicts of loads", "Nsight Compute metric": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"},
    {"question": "occupancy achieved", "Nsight Compute metric": "sm__warps_active.avg.pct_of_peak_sustained_active"},
    {"question": "registers a thread", "Nsight Compute metric": "launch__registers_per_thread"},
]


def try_first(overlap) -> list[dict]:
    """Rows of vary, expected, found, as expected, run it yourself. `overlap`: rows of "copy_compute_overlap"."""
    found = [_stride(), _offset(), _tiles(), _banks(), _registers(), _shared_memory(), _blocks(), _chunks(overlap)]
    names = ("vary", "expected", "found", "as expected", "run it yourself")
    return [dict(zip(names, (*texts, bool(held), call), strict=True)) for *texts, held, call in found]


def _at(table, column: str, key, value="time_us"):
    return table.set_index(column)[value][key]


def _stride():
    sectors = [count_warp(stride=s).sectors for s in (1, 2, 4, 8, 32)]
    return ("stride 1, 2, 4, 8, 32", "4, 8, 16, 32, 32 sectors a request", ", ".join(map(str, sectors)) + " counted",
            sectors == [4, 8, 16, 32, 32], "count_warp(stride=8).sectors")


def _offset():
    sectors = [count_warp(offset=o).sectors for o in (0, 1, 8)]
    times = measure("copy_offset", offset=[0, 1], variants="offset_copy")
    loss = 1 - _at(times, "offset", 0) / _at(times, "offset", 1)
    return ("start 0, 1, 8 elements in", "4, 5, 4 sectors; about 10 % slower (V100)",
            f"{', '.join(map(str, sectors))} counted; {loss:.0%} slower", sectors == [4, 5, 4] and 0 <= loss <= 0.12,
            'measure("copy_offset", offset=[0, 1])')


def _tiles():
    import torch

    n, requests = 64, []
    for kernel in (cuda.NAIVE_MATMUL, cuda.TILED_MATMUL):
        args = (torch.rand(n, n), torch.rand(n, n), torch.empty(n, n), n, n, n)
        requests.append(kernel.counted((2, 2), (32, 32), *args, races=False).of("global load").requests)
    times = measure("cuda_matmul_ladder", n=4096, variants=["naive", "tiled"])
    fewer, faster = requests[0] / requests[1], _at(times, "variant", "naive") / _at(times, "variant", "tiled")
    return ("naive or tiled product", "a 32nd of the load requests; far from a 32nd of the time",
            f"{fewer:g} times fewer counted; {faster:.1f} times as fast", fewer == 32 and 1 < faster < 16,
            'measure("cuda_matmul_ladder", n=4096)')


def _banks():
    import torch

    passes = []
    for version in ("tiled", "padded"):
        load = cuda.TRANSPOSE[version].counted((1, 1), (32, 8), torch.rand(32, 32), torch.empty(32, 32), 32, 32).of("shared load")
        passes.append(load.wavefronts // load.requests)
    times = measure("transpose_versions", n=8192, variants=["tiled", "padded"])
    faster = _at(times, "variant", "tiled") / _at(times, "variant", "padded")
    return ("a column of tile[32][32] or of [32][33]", "32-way conflict, or none",
            f"{passes[0]} passes or {passes[1]} counted; the padded transpose is {faster:.1f} times as fast",
            passes == [32, 1], 'measure("transpose_versions", n=8192)')


def _registers():
    found, spilled = [], []
    for most in (255, 32, 24):
        code = CudaKernel("transpose.cu", "transpose_padded", (f"--maxrregcount={most}",)).compiled("sm_90")
        found.append(occupancy("sm_90", 256, code.registers, code.shared_bytes).fraction)
        spilled.append(code.spill_bytes)
    return ("registers: any, at most 32, at most 24", "occupancy up, then spills",
            f"{', '.join(f'{f:.0%}' for f in found)}; {', '.join(map(str, spilled))} bytes spilled (padded transpose, sm_90)",
            found[1] > found[0] and spilled[1] == 0 < spilled[2],
            'CudaKernel("transpose.cu", "transpose_padded", ("--maxrregcount=24",)).compiled("sm_90").spill_bytes')


def _shared_memory():
    blocks = [occupancy("sm_90", 256, 32, kib * 1024).blocks for kib in (0, 32, 48, 96, 227)]
    return ("0, 32, 48, 96, 227 KiB a block of 256", "occupancy falls in steps", f"{', '.join(map(str, blocks))} blocks an SM (sm_90)",
            blocks == sorted(blocks, reverse=True) and blocks[-1] < blocks[0], 'occupancy("sm_90", 256, 32, 48 * 1024).blocks')


def _blocks():
    times = measure("vec_add_blocks", block=[32, 128, 256, 512, 1024])
    rates = times.set_index("block")["bandwidth_gb_per_s"]
    flat = rates[[128, 256, 512]]
    return ("block size 32 to 1024", "flat from 128 to 512",
            ", ".join(f"{block}: {rate:.0f}" for block, rate in rates.items()) + " GB/s",
            flat.min() > 0.9 * flat.max(), 'measure("vec_add_blocks")')


def _chunks(overlap):
    best = overlap[overlap["variant"] == "pinned, a stream each"]
    off = (best["time_us"] / best["estimate_us"] - 1).abs().max()
    return (f"{', '.join(map(str, sorted(best['chunks'].unique())))} chunks", "the longer plus a chunk of the shorter",
            f"within {off:.0%} of that", off < 0.15, 'measure("copy_compute_overlap")')
