"""Launches whose memory traffic is counted twice: by Nsight Compute on a GPU, and by the SIMT machine.

On a machine with a GPU and `ncu`: `PYTHONPATH=. python tests/simt_cases.py OUT.json.gz` records Nsight Compute's counts,
with the PTX and the memory instructions of the SASS that ran. tests/test_simt_counts.py holds the machine to them.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

METRICS = {
    name: f"{unit}.sum" for name, unit in {
        "global load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld",
        "global load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld",
        "global store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st",
        "global store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st",
        "global async requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts",
        "global async sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts",
        "global atom requests": "l1tex__t_requests_pipe_lsu_mem_global_op_atom",
        "global red requests": "l1tex__t_requests_pipe_lsu_mem_global_op_red",
        "global red sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_red",
        "local load requests": "l1tex__t_requests_pipe_lsu_mem_local_op_ld",
        "local load sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld",
        "local store requests": "l1tex__t_requests_pipe_lsu_mem_local_op_st",
        "local store sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st",
        "shared load conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld",
        "shared store conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st",
        "shared load wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld",
        "shared store wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st",
        "shared load instructions": "smsp__sass_inst_executed_op_shared_ld",
        "shared store instructions": "smsp__sass_inst_executed_op_shared_st",
        "global load instructions": "smsp__sass_inst_executed_op_global_ld",
        "global store instructions": "smsp__sass_inst_executed_op_global_st",
        "instructions": "smsp__inst_executed",
        "divergent branches": "smsp__sass_branch_targets_threads_divergent",
    }.items()
}

PATTERNS = r"""
#ifndef ELEMENT
#define ELEMENT float
#endif
// y[t] = x[at[t]]: the addresses of a warp's load are whatever the list says
extern "C" __global__ void gather(const ELEMENT* x, const int* at, ELEMENT* y, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) y[t] = x[at[t]];
}
// y[at[t]] = x[t]
extern "C" __global__ void scatter(const ELEMENT* x, const int* at, ELEMENT* y, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) y[at[t]] = x[t];
}
// One store to shared memory at put[t], one load from it at get[t]
extern "C" __global__ void through_shared(const ELEMENT* x, const int* put, const int* get, ELEMENT* y)
{
    __shared__ ELEMENT s[1024];
    s[put[threadIdx.x]] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[get[threadIdx.x]];
}
// The same in those lanes only whose bit of the mask is set
extern "C" __global__ void some_through_shared(const ELEMENT* x, const int* put, const int* get, ELEMENT* y, unsigned mask)
{
    __shared__ ELEMENT s[1024];
    if (mask >> threadIdx.x % 32 & 1) s[put[threadIdx.x]] = x[threadIdx.x];
    __syncthreads();
    if (mask >> threadIdx.x % 32 & 1) y[threadIdx.x] = s[get[threadIdx.x]];
}
// A local array with indices known only at run time lives in local memory
extern "C" __global__ void through_local(const float* x, const int* at, float* y)
{
    float own[16];
    for (int i = 0; i < 16; i++) own[i ^ at[i]] = x[threadIdx.x * 16 + i];
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += own[at[threadIdx.x + i] & 15];
    y[threadIdx.x] = sum;
}
// Lanes part ways three times: an if with else, a loop with different counts, an early end
extern "C" __global__ void part_ways(const int* x, int* y, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    int v = x[t];
    if (v & 1) y[t] = x[v]; else y[t] = x[v + 1] + x[v + 2];
    for (int i = 0; i < (v & 7); i++) y[t] += x[i * 8];
}
// Histogram: atomics on shared memory, then on device memory
extern "C" __global__ void histogram(const int* x, int* bins, int n)
{
    __shared__ int own[32];
    if (threadIdx.x < 32) own[threadIdx.x] = 0;
    __syncthreads();
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) atomicAdd(&own[x[t] & 31], 1);
    __syncthreads();
    if (threadIdx.x < 32) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
"""


@dataclass
class Case:
    """One launch. `args` are numpy arrays and numbers in the order of the compiled kernel's parameters."""

    name: str
    source: str  # a file of helpers/cuda, CUDA C++, or "triton"
    kernel: str
    grid: tuple
    block: tuple
    args: list
    options: tuple = ()
    writes: int = -1  # which argument receives the result

    @property
    def compiled_name(self) -> str:
        return " ".join([self.kernel, *self.options])

    @property
    def defined(self) -> bool:
        """Whether the result depends on nothing but the arguments: no memory is read that nobody wrote."""
        if "through_shared" in self.kernel:
            return {*self.args[2]} <= {*self.args[1]}
        return self.kernel != "through_local"


def values(seed: int, *shape) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def cuda_cases() -> list[Case]:
    out = []

    def add(name, source, kernel, grid, block, *args, options=(), writes=-1):
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        out.append(Case(name, source, kernel, grid, block, list(args), tuple(options), writes))

    for n, block in ((1000, 256), (4099, 96), (64, 32), (33, 48)):
        add(f"vec_add n={n} block={block}", "vec_add.cu", "vec_add", (-(-n // block),), (block,), values(1, n),
            values(2, n), np.zeros(n, np.float32), n, writes=2)
    for stride in (1, 2, 3, 4, 5, 7, 8, 12, 16, 32):
        n = 700
        add(f"strided_copy stride={stride}", "copies.cu", "strided_copy", (3,), (256,), values(3, n * stride),
            np.zeros(n, np.float32), n, stride, writes=1)
    for offset in (0, 1, 4, 7, 8, 13, 31, 32):
        n = 700
        add(f"offset_copy offset={offset}", "copies.cu", "offset_copy", (3,), (256,), values(4, n + offset),
            np.zeros(n, np.float32), n, offset, writes=1)
    for m, k, n in ((64, 64, 64), (50, 70, 33)):
        for kernel in ("naive_matmul", "tiled_matmul"):
            add(f"{kernel} {m}x{k}x{n}", "matmul.cu", kernel, (-(-n // 32), -(-m // 32)), (32, 32), values(5, m, k),
                values(6, k, n), np.zeros((m, n), np.float32), m, n, k, writes=2)
    for rows, cols in ((64, 96), (50, 70)):
        for version in ("naive", "tiled", "padded"):
            add(f"transpose_{version} {rows}x{cols}", "transpose.cu", f"transpose_{version}",
                (-(-cols // 32), -(-rows // 32)), (32, 8), values(7, rows, cols), np.zeros((cols, rows), np.float32),
                rows, cols, writes=1)
    rng = np.random.default_rng(8)
    lane = np.arange(64)
    orders = {  # where each of two warps' lanes goes
        "reversed": lane[::-1], "xor 5": lane ^ 5, "random": rng.permutation(64), "far": rng.permutation(1024)[:64],
        "repeated": rng.integers(0, 64, 64), "same": lane * 0, "pairs": lane // 2, "halves": lane % 16,
        "quarters": lane % 8, "8 far pairs": lane // 8 * 32 + lane % 2 * 8, "two rows": lane % 2 * 32 + lane // 2,
        **{f"stride {s}": lane % 32 * s for s in (1, 2, 3, 4, 6, 8, 9, 16, 17, 31, 32)},
    }
    for element, width in (("char", 1), ("short", 2), ("float", 4), ("float2", 8), ("float4", 16)):
        options = (f"-DELEMENT={element}",)
        x = rng.integers(0, 100, (1024, width), np.uint8)
        y = np.zeros((1024, width), np.uint8)
        for name, order in orders.items():
            at = np.asarray(order, np.int32)
            few = name in ("reversed", "far", "repeated", "same", "stride 2", "stride 32", "pairs")
            if few:
                for kernel in ("gather", "scatter"):
                    if kernel == "gather" or name not in ("repeated", "same", "pairs", "stride 2", "stride 32"):
                        add(f"{kernel} {element} {name}", PATTERNS, kernel, (2,), (32,), x, at, y.copy(), 60,
                            options=options, writes=2)
            if name not in ("repeated", "same", "pairs", "halves", "quarters", "8 far pairs") and not name.startswith("stride"):
                add(f"shared {element} {name}", PATTERNS, "through_shared", (1,), (64,), x, at, at, y.copy(),
                    options=options, writes=3)
            else:  # store side by side, so that the result does not depend on who writes last
                add(f"shared load {element} {name}", PATTERNS, "through_shared", (1,), (64,), x,
                    lane.astype(np.int32), at, y.copy(), options=options, writes=3)
            if name.startswith("stride"):
                add(f"shared store {element} {name}", PATTERNS, "through_shared", (1,), (32,), x, at[:32], at[:32],
                    y.copy(), options=options, writes=3)
    out += paired_cases()
    small = rng.integers(0, 16, 128).astype(np.int32)
    add("through_local", PATTERNS, "through_local", (1,), (64,), values(9, 64 * 16), small, np.zeros(64, np.float32))
    numbers = rng.integers(0, 500, 600).astype(np.int32)
    add("part_ways", PATTERNS, "part_ways", (5,), (96,), numbers, np.zeros(450, np.int32), 450, writes=1)
    add("histogram", PATTERNS, "histogram", (4,), (128,), numbers, np.zeros(32, np.int32), 500, writes=1)
    return out


def paired_cases() -> list[Case]:
    """Lanes that want the same element of shared memory in pairs: which parts of a wide access then go together?"""
    lane = np.arange(32)
    pairs, twos, spread = lane // 2, lane // 4 * 2 + lane % 2, lane * 16  # two apart: 0 1 0 1 2 3 2 3; all in one bank
    orders = {
        "pairs": pairs, "twos": twos, "same": lane * 0, "fours": lane // 8 * 4 + lane % 4, "triples": lane // 3,
        "pairs but one": np.where(lane == 31, 40, pairs), "pairs then alone": np.where(lane < 16, pairs, lane),
        "alone then pairs": np.where(lane < 16, lane, pairs), "pairs then twos": np.where(lane < 16, pairs, twos),
        "quarter of pairs": np.where(lane // 8 == 1, pairs, lane), "far pairs": pairs * 16, "far twos": twos * 16,
        "far pairs then alone": np.where(lane < 16, pairs * 16, spread),
    }
    masks = {"half": 0xFFFF, "quarter": 0xFF, "even": 0x55555555, "one": 0x100, "outer": 0xFF0000FF, "most": 0x7FFFFFFF,
             "three quarters": 0xFFFFFF, "twos": 0x33333333}
    out = []
    for element, width in (("float", 1), ("float2", 2), ("float4", 4)):
        options = (f"-DELEMENT={element}",)
        x, y = np.ones((1024, width), np.float32), np.zeros((1024, width), np.float32)
        for name, order in orders.items():
            at = order.astype(np.int32)
            out.append(Case(f"shared {element} {name}, all ones", PATTERNS, "through_shared", (1, 1, 1), (32, 1, 1),
                            [x, at, at, y.copy()], options, 3))
        for name, mask in masks.items():
            for way, order in (("in a row", lane), ("far", spread), ("pairs", pairs)):
                at = order.astype(np.int32)
                out.append(Case(f"shared {element} {way}, {name} of the lanes", PATTERNS, "some_through_shared", (1, 1, 1),
                                (32, 1, 1), [x, at, at, y.copy(), mask], options, 3))
    return out


def triton_cases() -> list[tuple[Case, dict]]:
    """Triton launches: the case with all of the kernel's arguments, and the constants of the launch."""
    from helpers.kernels import gelu, matmul, row_sum, softmax

    def case(name, module, kernel, grid, warps, *args, writes=1, **constants):
        return (Case(name, "triton", kernel, (*grid, 1, 1)[:3], (32 * warps, 1, 1), list(args), writes=writes),
                {"kernel": getattr(module, kernel), "num_warps": warps, **constants})

    def zeros(*shape):
        return np.zeros(shape, np.float32)

    return [
        case("gelu n=4096", gelu, "gelu_kernel", (4,), 4, values(1, 4096), zeros(4096), 4096, BLOCK=1024),
        case("gelu n=4099", gelu, "gelu_kernel", (5,), 4, values(2, 4099), zeros(4099), 4099, BLOCK=1024),
        case("gelu_tail n=4099", gelu, "gelu_tail_kernel", (5,), 4, values(3, 4099), zeros(4099), 4099, BLOCK=1024),
        case("softmax 3x1000", softmax, "softmax_kernel", (3,), 4, values(4, 3, 1000), zeros(3, 1000), 1000, 1000, 1,
             1000, BLOCK=1024),
        case("softmax 3x500", softmax, "softmax_kernel", (3,), 1, values(5, 3, 500), zeros(3, 500), 500, 500, 1, 500,
             BLOCK=512),
        case("online_softmax 2x3000", softmax, "online_softmax_kernel", (2,), 4, values(6, 2, 3000), zeros(2, 3000),
             3000, 3000, 1, 3000, TILE=1024),
        case("row_sum 5x3001", row_sum, "row_sum_kernel", (5,), 4, values(7, 5, 3001), zeros(5), 3001, 3001, 1,
             TILE=1024),
        case("matmul 70x50x90", matmul, "matmul_relu_kernel", (3, 3), 4, values(8, 70, 50), values(9, 50, 90),
             zeros(70, 90), 70, 90, 50, 50, 1, 90, 1, 90, writes=2, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32,
             PRECISION="ieee"),
    ]


# ------------------------------------------------------------------------------------------------ on a GPU


def launch_all(path: str, compiled: bool) -> None:
    """Run every case once, in order; write the results and, if asked, PTX and SASS. ncu counts what runs here."""
    import torch

    from helpers import mode
    from helpers.cuda.launch import CudaKernel

    def on_device(a):
        return torch.from_numpy(np.ascontiguousarray(a)).to(mode.device()) if isinstance(a, np.ndarray) else a

    done = {}
    for case in cuda_cases():
        kernel = CudaKernel(case.source, case.kernel, case.options)
        args = [on_device(a) for a in case.args]
        kernel.launch(case.grid, case.block, *args)
        done[case.name] = {"key": case.compiled_name, "result": digest(args[case.writes].cpu().numpy())}
        if compiled:
            target = kernel.compiled(torch.cuda.get_device_capability() if mode.is_live() else "sm_90")
            done[case.name] |= {"ptx": target.ptx, "sass": memory_instructions(target.sass)}
    for case, constants in triton_cases() if mode.is_live() else []:
        constants = dict(constants)
        kernel, args = constants.pop("kernel"), [on_device(a) for a in case.args]
        target = kernel[case.grid](*args, **constants)
        done[case.name] = {"key": case.name, "result": None}
        if compiled:
            done[case.name] |= {"ptx": target.asm["ptx"], "sass": memory_instructions(target.asm["sass"]),
                                "shared_bytes": target.metadata.shared}
    with open(path, "w") as file:
        json.dump(done, file)


def digest(result: np.ndarray) -> str:
    return hashlib.sha256(result.tobytes()).hexdigest()[:16]


def memory_instructions(sass: str) -> list[str]:
    """The memory instructions of the SASS in order, with their predicates and operands; not those of constants."""
    found = re.findall(r"^\s*\S+\s+((?:@!?U?P\w+\s+)?(?:LD|ST|ATOM|RED)(?!C\b)[A-Z]*\b[^;\n]*?)\s*;", sass, flags=re.M)
    return [line for line in found if not re.search(r"\bLDC|\bULDC|DEPBAR", line)]


def code_only(ptx: str) -> str:
    """PTX without the names of files and without tables for debuggers."""
    return re.sub(r"\n\s*\.file[^\n]*", "", ptx.split("\t.section")[0])


def number(text: str) -> int | None:
    """A count as ncu prints it, or None for "n/a": it could not collect this metric in this launch."""
    return None if text == "n/a" else int(text.replace(",", ""))


def record(path: str) -> None:
    known = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True).stdout
    metrics = {name: unit for name, unit in METRICS.items() if not known or unit.split(".")[0] in known}
    print("metrics this ncu does not know:", sorted(set(METRICS) - set(metrics)) or "none")
    launches = [*cuda_cases(), *(case for case, _ in triton_cases())]
    names = "|".join(sorted({case.kernel for case in launches}))
    subprocess.run([sys.executable, __file__, "--compile", path + ".compiled"], check=True)
    command = ["ncu", "--clock-control", "none", "--csv", "--metrics", ",".join(metrics.values()), "-k",
               f"regex:^({names})$", sys.executable, __file__, "--launch", path + ".run"]
    output = subprocess.run(command, capture_output=True, text=True)
    lines = output.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit(f"ncu gave no table:\n{output.stdout[-3000:]}\n{output.stderr[-3000:]}")
    counts = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        counts.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"]})[row["Metric Name"]] = row["Metric Value"]
    ordered = [counts[i] for i in sorted(counts)]
    if [c["kernel"].split("(")[0] for c in ordered] != [case.kernel for case in launches]:
        raise SystemExit(f"{len(ordered)} kernels profiled, {len(launches)} launched")
    with open(path + ".compiled") as file:
        ran = json.load(file)
    ptx, cases = {}, {}
    for case, count in zip(launches, ordered, strict=True):
        entry = ran[case.name]
        ptx[entry["key"]] = {"ptx": code_only(entry["ptx"]), "sass": entry["sass"], "shared_bytes": entry.get("shared_bytes", 0)}
        cases[case.name] = {"key": entry["key"], "result": entry["result"] if case.defined else None} | {
            name: number(count[unit]) for name, unit in metrics.items()}
    import torch

    from helpers import evidence
    with gzip.open(path, "wt") as file:
        json.dump({"machine": torch.cuda.get_device_name(), "date": evidence.today(), "metrics": metrics,
                   "compiled": ptx, "cases": cases}, file)
    print(len(cases), "launches counted")
    for name in ("vec_add n=1000 block=256", "strided_copy stride=8", "shared load float2 stride 2",
                 "shared float4 far", "tiled_matmul 64x64x64", "histogram", "part_ways"):
        print(name, {k: v for k, v in cases[name].items() if k not in ("key", "result") and v})


if __name__ == "__main__":
    if sys.argv[1] in ("--launch", "--compile"):
        launch_all(sys.argv[2], compiled=sys.argv[1] == "--compile")
    else:
        record(sys.argv[1])
