"""Facts that claims may use beyond recordings and specs, computed from the same sources as the lessons.

A lesson that claims something about compiled code or about occupancy adds its function here.
"""

from helpers.compile import compile_kernel
from helpers.cuda.counting import count_warp
from helpers.cuda.nvrtc import compile_cuda
from helpers.kernels.gelu import gelu_traffic_bytes
from helpers.kernels.softmax import softmax_naive_traffic_bytes, softmax_traffic_bytes
from helpers.kernels.vec_add import vec_add_traffic_bytes
from helpers.occupancy import occupancy
from helpers.systolic import SystolicArray


def gelu_counts(n: int, target: str = "sm_120", block: int = 1024, num_warps: int = 4) -> dict[str, int]:
    """Global loads and stores of a thread of the masked GELU kernel, compiled for n elements."""
    import torch

    from helpers.kernels.gelu import gelu_kernel

    x = torch.empty(n, device="meta")
    compiled = compile_kernel(gelu_kernel, x, x, n, target=target, num_warps=num_warps, BLOCK=block)
    return {"loads": compiled.count("ld.global"), "stores": compiled.count("st.global")}


def systolic(m: int, k: int = 128, n: int = 128, **options):
    """The run of x (m, k) @ w (k, n) on a systolic array of 128 x 128 cells."""
    import numpy as np

    return SystolicArray(128, 128).run(np.ones((m, k), int), np.ones((k, n), int), **options)


def softmax_compiled(num_warps: int, n_cols: int = 32768, target: str = "sm_120"):
    """The softmax kernel compiled for a row of n_cols numbers: .registers, .spill_bytes, ..."""
    import torch

    from helpers.kernels.softmax import softmax_kernel

    x = torch.empty(1024, n_cols, device="meta")
    return compile_kernel(softmax_kernel, x, x, n_cols, n_cols, 1, n_cols, target=target, num_warps=num_warps,
                          BLOCK=n_cols)


def row_sum_compiled(num_warps: int, n_cols: int = 8192, target: str = "sm_120"):
    """The row-sum kernel with one program a row and four numbers a thread and step."""
    import torch

    from helpers.kernels.row_sum import row_sum_kernel

    x, out = torch.empty(64, n_cols, device="meta"), torch.empty(64, device="meta")
    return compile_kernel(row_sum_kernel, x, out, n_cols, n_cols, 1, target=target, num_warps=num_warps,
                          TILE=128 * num_warps)


def row_sum_loads_under_way(num_warps: int, target: str) -> int:
    """Loads of 16 bytes that a thread issues before its first addition waits, for a row of 524288 numbers."""
    from helpers.sass import before, main_loop

    return before(main_loop(row_sum_compiled(num_warps, 524288, target).sass, "LDG"), "LDG", "FADD")


def matmul_compiled(tile=(64, 64, 32), target: str = "sm_120", num_warps: int = 4, num_stages: int = 3, halves=False):
    """The matmul kernel in ieee precision at 4096; with `halves` the shipped one, in grouped order."""
    import torch

    from helpers.kernels.matmul import matmul_relu_grouped_kernel, matmul_relu_kernel

    kernel = matmul_relu_grouped_kernel if halves else matmul_relu_kernel
    more = {"GROUP": 8, "WHOLE_K": True, "RELU": True, "part_k": 4096} if halves else {}
    x, n = torch.empty(4096, 4096, device="meta"), 4096
    sizes = dict(M=n, N=n, K=n, a_row_stride=n, a_col_stride=1, b_row_stride=n, b_col_stride=1, c_row_stride=n)
    return compile_kernel(kernel, x, x, x, target=target, num_warps=num_warps, num_stages=num_stages,
                          BLOCK_M=tile[0], BLOCK_N=tile[1], BLOCK_K=tile[2], PRECISION="ieee", **sizes, **more)


def vec_add_compiled(target: str = "sm_120"):
    """The Triton vector add of lesson 08 at BLOCK = 1024 and 4 warps, for n divisible by 16."""
    import torch

    from helpers.kernels.vec_add import vec_add_kernel

    x = torch.empty(2**20, device="meta")
    return compile_kernel(vec_add_kernel, x, x, x, 2**20, target=target, num_warps=4, BLOCK=1024)


def cuda_warps(file: str, kernel: str, target: str, block: int) -> int:
    """Resident warps an SM of a CUDA kernel with `block` threads a block."""
    return occupancy(target, block, compile_cuda(file, kernel, target).registers).warps


def cuda_code(file: str, kernel: str, target: str, *options: str):
    """A kernel of helpers/cuda compiled for a target: .registers, .count("ld.global"), .count_sass("LDS"), ..."""
    from helpers.cuda.launch import CudaKernel

    return CudaKernel(file, kernel, options).compiled(target)


def matmul_reads(n: int, tile: int):
    """The global loads of an n x n product, counted by the SIMT machine: .lanes, .sectors; tile = 1 is the naive kernel."""
    import torch

    from helpers.cuda.launch import CudaKernel

    kernel = CudaKernel("matmul.cu", "tiled_matmul", (f"-DTILE={tile}",)) if tile > 1 else CudaKernel("matmul.cu", "naive_matmul")
    edge = tile if tile > 1 else min(n, 32)
    args = torch.rand(n, n), torch.rand(n, n), torch.empty(n, n), n, n, n
    return kernel.counted((-(-n // edge),) * 2, (edge, edge), *args, races=False).of("global load")


def shared_passes(step: int) -> int:
    """Passes that a warp takes whose lanes read words of shared memory `step` apart, counted by the SIMT machine."""
    import torch

    from helpers.cuda.launch import CudaKernel
    from helpers.lesson.exercises.shared_memory import PASSES

    report = CudaKernel(PASSES, "strided").counted(1, 32, torch.empty(32), step, shared_bytes=4 * 32 * 65)
    return report.of("shared load").wavefronts


def overlap_over_estimate(rounds: int, variant: str = "pinned, a stream each") -> list[float]:
    """Measured over estimated time of `copy_compute_overlap`, for 1 to 16 chunks."""
    from helpers import results

    rows = results.recorded("copy_compute_overlap", variants=variant, rounds=rounds).sort_values("chunks")
    return [float(ratio) for ratio in rows["time_us"] / rows["estimate_us"]]


def loop_counts(compiled, opcode: str, other: str) -> tuple[int, int]:
    """Instructions `opcode` and `other` in the loop that holds the most of `opcode`."""
    from helpers.sass import count, main_loop

    loop = main_loop(compiled.sass, opcode)
    return count(loop, opcode), count(loop, other)


def resident(compiled, target: str):
    """Occupancy of a compiled kernel on a target: .blocks, .warps, .fraction, .limiter."""
    return occupancy(target, compiled.threads, compiled.registers, compiled.shared_bytes)


def fma_share(variant: str, k: int, warps: int) -> float:
    """Recorded share of the H200's FP32 peak in Fig 2-5."""
    from helpers import results, specs

    row = results.recorded("fma_chain_warps", variants=variant, k=k, warps_per_smsp=warps).iloc[0]
    return float(row["tflops"] / specs.gpu("H200").fp32_tflops_from_clock)


def fma_machine():
    """The H200 as the model of Fig 2-5 knows it: from its recorded latencies and rate."""
    from helpers import fma_model, results, specs

    return fma_model.measured_machine(specs.gpu("H200"), *map(results.recorded, ("load_latency", "copy_bandwidth", "fma_latency")))


def fma_error(*variants: str, k: int | None = None) -> float:
    """Median error of the model of Fig 2-5 over the recorded lines of some variants."""
    from helpers import fma_model, results

    table = results.recorded("fma_chain_warps", variants=variants, **({} if k is None else {"k": k}))
    return fma_model.median_error(fma_model.predicted(table, fma_machine()))


def fma_plateau(variant: str, k: int = 1) -> int:
    """Warps per SMSP from which on a recorded line of Fig 2-5 is flat."""
    from helpers import fma_model, results

    return fma_model.plateau(results.recorded("fma_chain_warps", variants=variant), variant, k)


def kib_on_their_way(machine) -> float:
    """Bytes of reads, in KiB, that fill a machine's memory by Little's law, half of the traffic being read."""
    return machine.bandwidth_gb_per_s / 2 * machine.memory_latency / machine.clock_mhz * 1e3 / 1024


def published_machine(name: str):
    """A GPU as the model of Fig 2-5 knows it from published numbers."""
    from helpers import fma_model, specs

    return fma_model.machine_of(specs.gpu(name))


def driver_agreement() -> dict[str, int]:
    """Of the launches that a driver was asked about: how many, in how many `occupancy` and the short formula agree, and in
    how many of those that warps or block numbers limit the short formula does."""
    from helpers import results
    from helpers.experiments.occupancy import driver_answers
    from helpers.occupancy import short_formula

    answers = driver_answers(results.recorded("driver_occupancy"), "sm_90")
    short = [short_formula("sm_90", a.threads, a.registers, a.shared_bytes) for a in answers.itertuples()]
    right, simple = answers["driver"] == short, answers["limiter"].isin(["threads", "blocks"])
    return {"launches": len(answers), "agree": int((answers["driver"] == answers["calculated"]).sum()),
            "short agrees": int(right.sum()), "simple": int(simple.sum()), "short agrees in simple": int(right[simple].sum())}


def memory_wall_growth(series: str) -> float:
    """Growth in two years of one series of Fig 1-1, fitted to its points."""
    from helpers import facts, roofline

    points, _ = facts.memory_wall()
    return roofline.growth(points[points["series"] == series])


FACTS = {
    "cuda_code": cuda_code,
    "matmul_reads": matmul_reads,
    "shared_passes": shared_passes,
    "overlap_over_estimate": overlap_over_estimate,
    "fma_share": fma_share,
    "fma_machine": fma_machine,
    "fma_error": fma_error,
    "fma_plateau": fma_plateau,
    "kib_on_their_way": kib_on_their_way,
    "published_machine": published_machine,
    "driver_agreement": driver_agreement,
    "memory_wall_growth": memory_wall_growth,
    "compile_kernel": compile_kernel,
    "compile_cuda": compile_cuda,
    "count_warp": count_warp,
    "cuda_warps": cuda_warps,
    "vec_add_compiled": vec_add_compiled,
    "vec_add_traffic_bytes": vec_add_traffic_bytes,
    "softmax_compiled": softmax_compiled,
    "softmax_naive_traffic_bytes": softmax_naive_traffic_bytes,
    "softmax_traffic_bytes": softmax_traffic_bytes,
    "row_sum_compiled": row_sum_compiled,
    "row_sum_loads_under_way": row_sum_loads_under_way,
    "matmul_compiled": matmul_compiled,
    "loop_counts": loop_counts,
    "resident": resident,
    "gelu_counts": gelu_counts,
    "gelu_traffic_bytes": gelu_traffic_bytes,
    "systolic": systolic,
}
