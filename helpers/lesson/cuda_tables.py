"""Tables of the CUDA lessons: levels of threads, memory spaces, what an overlap needs, libraries, experiments to try.

Limits come from the fact sheets. Sources: GUIDE sections 1.2 and 2.3.3, BEST_PRACTICES section 10.2; section numbers
drift between versions of both.
"""

from helpers.specs import gpu

# How the CUDA lessons cite NVIDIA's guides. Dates and versions that nobody here could check say so.
GUIDE = "CUDA Programming Guide v13.4.2 (2026-09-10, date as cited by others)"
BEST_PRACTICES = "CUDA C++ Best Practices Guide (as online in 2026; its version number was not checked)"


def thread_levels(target: str = "sm_90") -> list[dict]:
    """Thread, warp, block, cluster, grid: how large, what runs them, how their threads work together."""
    limits = gpu(target).limits
    most = limits.max_threads_per_block
    rows = [
        ("thread", "1", "a lane", "registers of its own"),
        ("warp", str(limits.warp_size), "one SMSP of an SM", "shuffles; one instruction for all lanes"),
        ("block", f"up to {most} threads; x and y up to {most}, z up to 64", "one SM, to its end",
         "shared memory, __syncthreads()"),
    ]
    if limits.cc >= (9, 0):
        rows.append(("cluster", "up to 8 blocks", "SMs close to each other, at the same time",
                     "each other's shared memory"))
    rows.append(("grid", "x up to 2³¹ − 1 blocks, y and z up to 65535", "the GPU, in any order",
                 "device memory, atomics"))
    return [dict(zip(("level", "size", "runs on", "works together through"), row, strict=True)) for row in rows]


def memory_spaces(target: str = "sm_90") -> list[dict]:
    """Registers to texture memory: where, for whom, how long, cached, managed by whom, how much."""
    limits = gpu(target).limits
    rows = [
        ("registers", "SM", "a thread", "the thread", "–", "compiler",
         f"{limits.registers_per_sm:,} an SM, {limits.max_registers_per_thread} a thread"),
        ("local", "device memory", "a thread", "the thread", "L1, L2", "compiler (spills, run-time indices)",
         f"{limits.local_kib_per_thread} KiB a thread"),
        ("shared", "SM", "a block" + ", its cluster" * (limits.cc >= (9, 0)), "the block", "–", "you",
         f"{limits.shared_kib_per_block} KiB a block, {limits.static_shared_kib_per_block} KiB without opting in"),
        ("global", "device memory", "grid and host", "until freed", "L1, L2", "you", "the GPU's memory"),
        ("constant", "device memory", "grid, read-only", "the program", "constant cache", "host writes",
         f"{limits.constant_kib} KiB"),
        ("texture", "device memory", "grid, read-only", "until freed", "L1, L2", "host", "no gain for computing"),
    ]
    names = ("space", "where", "visible to", "lives as long as", "cached in", "managed by", f"limit on {target}")
    return [dict(zip(names, row, strict=True)) for row in rows]


def shared_splits(target: str) -> dict:
    """How the one array of an SM can be divided between L1 and shared memory."""
    limits = gpu(target).limits
    return {"target": target, "array (KiB)": limits.unified_cache_kib,
            "shared memory may take (KiB)": ", ".join(map(str, limits.shared_choices_kib)),
            "a block may use (KiB)": limits.shared_kib_per_block}


OVERLAP_NEEDS = [
    {"condition": "page-locked (pinned) host memory", "in torch": "torch.empty(n, pin_memory=True)",
     "otherwise": "the driver copies through a buffer of its own, and the call waits"},
    {"condition": "an asynchronous copy", "in torch": "target.copy_(source, non_blocking=True)",
     "otherwise": "the host waits before it can enqueue the kernel"},
    {"condition": "different streams, none of them the default", "in torch": "with torch.cuda.stream(stream):",
     "otherwise": "one queue: each entry waits for the one before"},
]

# "known from" names title, number and date; what nobody here ran or read in the original says so.
LIBRARIES = [
    {"layer": "cuBLAS", "you write": "a call", "it decides": "everything",
     "where you meet it": "what torch calls by default for products of matrices",
     "known from": "torch 2.11.0, text of torch.backends.cuda.preferred_blas_library; measured above"},
    {"layer": "cuDNN", "you write": "a graph of operations", "it decides": "kernels and what to fuse",
     "where you meet it": "convolution, attention, normalisation", "known from": "the CUDA text; unverified"},
    {"layer": "torch.compile (TorchInductor)", "you write": "torch code", "it decides": "fusion; it writes Triton",
     "where you meet it": "one decorator", "known from": "torch 2.11.0; its Triton is below"},
    {"layer": "Triton", "you write": "the work of a block on tiles, and the grid",
     "it decides": "layouts, shared memory, barriers, asynchronous copies, Tensor Core instructions",
     "where you meet it": "lessons 03 to 07", "known from": "Triton 3.6.0 and 3.7.1, run here"},
    {"layer": "CUDA Tile: cuTile (Python), CUDA Tile C++", "you write": "operations on tiles",
     "it decides": "the threads inside a tile", "where you meet it": "Python since CUDA 13.1, C++ since 13.3",
     "known from": "CUDA Programming Guide v13.4, section 2.4; cuTile Python 1.0.0 (2025-12-02), release notes; not tried here"},
    {"layer": "CUTLASS, CuTe DSL", "you write": "tilings and pipeline from building blocks", "it decides": "little",
     "where you meet it": "C++; Python since version 4.0",
     "known from": "CUTLASS documentation, Python DSL FAQ; 4.8.0 (2026-09) is the newest named, date unverified; not tried here"},
    {"layer": "CUDA C++", "you write": "the work of a thread", "it decides": "registers and instruction order",
     "where you meet it": "this part", "known from": "NVRTC 13.0, run here"},
]
