# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slideshow={"slide_type": "slide"}
# # 09 Memory spaces and coalescing
#
# > How many bytes does one warp's load really move?
#
# After this lesson you can
#
# - count the sectors of a warp's load from its addresses, and have the compiled kernel counted for you;
# - tell what stride and offset cost, and why the second costs so little;
# - find the index order in a kernel that makes it slow, and turn it round.
#
# Needs: lesson [08](08_cuda_threads.ipynb); no GPU needed. About 45 minutes.

# %% tags=["setup"]
from helpers.lesson import check, explore, side_by_side, start, table
import torch
from figures import coalescing as fig
from helpers import nsight
from helpers.cuda import CudaKernel
from helpers.cuda.counting import count_warp
from helpers.evidence import evidence_of, interpreted_here
from helpers.measure import measure
from helpers.specs import gpu

counted = interpreted_here("SIMT machine")
start("09_coalescing")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Where data can live
#
# A CUDA kernel names its memory. Registers and shared memory are on the SM; everything else is device memory, seen through caches.
# *Local* memory is not local at all: it is the part of device memory that a thread alone uses, for spilled registers and for arrays whose
# index is known only at run time.

# %%
from helpers.lesson.cuda_tables import memory_spaces, shared_splits
table(memory_spaces("sm_90"), caption="Memory spaces",
      evidence="published · CUDA Programming Guide v13.4, sections 2.3.3 and 5.1; Best Practices Guide, section 10.2")

# %%
table([shared_splits(t) for t in ("sm_80", "sm_90", "sm_120")], caption="One array, divided between L1 and shared memory",
      evidence="published · CUDA Programming Guide v13.4, section 5.1")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Sectors
#
# A load is executed for a warp: 32 addresses at once. Memory answers in *sectors* of 32 bytes. Whatever the lanes ask for, the sectors that
# their addresses fall into are moved, each of them once and whole.
#
# The kernel below copies one element a lane, from wherever you send it.
#
# **Predict:** how many sectors for 32 neighbouring floats? For every second one? For every eighth? For every 32nd?

# %% tags=["setup", "kernel"] cuda="copies.cu:pattern_copy"
pattern = CudaKernel(r"""
#define ELEMENT float
extern "C" __global__ void pattern_copy(const ELEMENT* x, ELEMENT* y, int stride, int offset, int flip)
{
    int i = threadIdx.x;
    y[i] = x[(i ^ flip) * stride + offset];
}
""", "pattern_copy")

# %%
def sectors_of(stride=1, offset=0, flip=0):
    report = pattern.counted(1, 32, torch.zeros(2048), torch.zeros(32), stride, offset, flip)
    return report.of("global load").sectors

print({f"stride {s}": sectors_of(stride=s) for s in (1, 2, 4, 8, 16, 32)})

# %% [markdown]
# From stride 8 on, every lane is in a sector of its own. It cannot get worse: 32 sectors for 32 lanes, 28 of 32 bytes moved for nothing.
# All of the following is counted in the same way, from the compiled kernel.

# %%
patterns = [("stride 1", {}), ("reversed inside the warp", {"order": "reversed"}), ("pairs swapped", {"order": "pairs swapped"}),
            ("offset 1", {"offset": 1}), ("offset 7", {"offset": 7}), ("offset 8", {"offset": 8}), ("stride 2", {"stride": 2}),
            ("stride 4", {"stride": 4}), ("stride 8", {"stride": 8}), ("stride 32", {"stride": 32}), ("all lanes one address", {"stride": 0}),
            ("8-byte elements", {"element": "float2"}), ("16-byte elements", {"element": "float4"}), ("1-byte elements", {"element": "char"})]
rows = [(name, count_warp(**how)) for name, how in patterns]
table([{"pattern": name, "sectors": c.sectors, "bytes moved": c.moved_bytes, "bytes used": c.used_bytes, "efficiency": f"{c.efficiency:.1%}"}
       for name, c in rows], caption="One warp's load, counted", evidence=counted)

# %% [markdown]
# The order of the lanes does not matter, only which sectors they touch. An offset that is no multiple of 8 floats touches one sector more. Wider elements
# need more sectors, but use all of them.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Turn the knobs
#
# **Predict:** with 1-byte elements, from which stride on has every lane its own sector?

# %% tags=["widget"]
explore(fig.pattern_view, **fig.PATTERN_CONTROLS)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What a stride costs
#
# A large copy reads every s-th element. Two rates describe it: bytes that were *used* a second, and bytes of all sectors that were *moved*.
#
# **Predict:** which of the two stays level? What is left at stride 8, and does it fall further after that?

# %%
strides = measure("copy_stride")
sectors = {s: count_warp(stride=s).sectors for s in strides["stride"]}
fig.show_stride(strides, sectors, gpu(strides["machine"][0]).bandwidth_gb_per_s, evidence_of(strides))

# %% [markdown]
# Bytes used fall with every step of the stride up to 8, where each element is alone in its sector. They go on falling to stride 16: device memory is fetched in
# pieces larger than one sector, so that neighbouring sectors come along unasked. Sectors are what a warp requests; they are not the last word on traffic.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What an offset costs
#
# With offset 1, each warp's load touches 5 sectors for the 4 it needs.
#
# **Predict:** does the copy lose a fifth of its reads' rate?

# %%
offsets = measure("copy_offset")
fig.show_offset(offsets, {o: count_warp(offset=o).sectors for o in offsets["offset"]}, evidence_of(offsets))

# %% [markdown]
# Nowhere near. The fifth sector of a warp is the first one of its neighbour, which asks for it at about the same time: one of the two finds it in the cache. Device memory
# delivers each sector once.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Does the hardware count the same?
#
# Nsight Compute reads the GPU's own counters. The SIMT machine runs the same launches. Both columns should agree, row by row.

# %%
from helpers.experiments.coalescing import compared_counts
by_gpu, reason = nsight.counts_or_recorded()
both = compared_counts(by_gpu)
print(f"{len(both)} launches; loads, stores and bank conflicts agree in {both['agree'].sum()}")
table(both[both["variant"].isin(["strided_copy", "transpose naive", "transpose tiled", "transpose padded"])],
      columns={"variant": "kernel", "parameter": "parameter", "machine": "sectors a load, counted here",
               "nsight": "sectors a load, Nsight Compute", "conflicts_machine": "bank conflicts, counted here",
               "conflicts_nsight": "bank conflicts, Nsight Compute"},
      caption="l1tex__t_sectors over l1tex__t_requests, and shared-memory bank conflicts", evidence=f"{counted.line()} | {evidence_of(by_gpu).line()}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A mistake worth making
#
# Add up the rows of a matrix, a thread for each row. It is the natural way to write it.
#
# **Predict:** neighbouring lanes read neighbouring rows. How many sectors does each load of the loop touch?

# %% tags=["raises-exception"]
row_walk = CudaKernel(r"""
extern "C" __global__ void walk(const float* x, float* sums, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int col = 0; col < cols; col++) sum += x[row * cols + col];
    sums[row] = sum;
}
""", "walk")
load = row_walk.counted(1, 64, torch.zeros(64, 64), torch.zeros(64), 64, 64).of("global load")
efficiency = load.bytes / (32 * load.sectors)
assert efficiency > 0.5, f"{load.sectors / load.requests:g} sectors a request: only {efficiency:.1%} of what is moved is used"

# %% [markdown]
# What matters is not what one thread does one after the other, but what the *lanes of a warp* do at the same moment. The loop runs along a row, so each thread
# reads neighbouring addresses, in time. At any one moment the lanes stand in one column, a whole row apart.
#
# Below, the same amount is added up down the columns, where the lanes stand side by side.

# %%
from helpers.experiments.coalescing import WALK_COLUMNS, WALK_ROWS
per_request = [kernel.counted(1, 64, torch.zeros(64, 64), torch.zeros(64), 64, 64).of("global load")
               for kernel in (WALK_ROWS, WALK_COLUMNS)]
fig.show_walks(*(load.sectors / load.requests for load in per_request), counted)

# %%
walks = measure("matrix_walks")
table(walks, columns=["variant", "lines", "length", "time_us", "time_us_p20", "time_us_p80", "bandwidth_gb_per_s"],
      caption="2^20 threads, each adding 256 elements", evidence=evidence_of(walks))

# %% [markdown]
# The same bytes, the same additions, the same number of threads. Not eight times slower, though: the sectors a thread fetched hold its next seven elements, and some of them are
# still in L1 when it gets there.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Transposing: one side must lose
#
# y[j, i] = x[i, j]: if lanes run along a row of x, they write down a column of y. Turning the tile round in shared memory makes both sides
# run along rows. How, is the next lesson; here is what it is worth.
#
# **Predict:** what share of a plain copy's rate do the three versions reach?

# %%
from helpers.cuda import TRANSPOSE
versions = []
for version, kernel in TRANSPOSE.items():
    report = kernel.counted((2, 2), (32, 8), torch.zeros(64, 64), torch.zeros(64, 64), 64, 64)
    load, store = report.of("global load"), report.of("global store")
    versions.append({"version": version, "sectors a load": load.sectors / load.requests,
                     "sectors a store": store.sectors / store.requests, "bank conflicts": report.bank_conflicts})
table(versions, caption="Transposing 64 × 64, counted", evidence=counted)

# %%
transposes = measure("transpose_versions")
fig.show_transposes(transposes, gpu(transposes["machine"][0]).bandwidth_gb_per_s, evidence_of(transposes))

# %% [markdown]
# The naive version writes 32 sectors a request. The tile mends that, and at first pays in shared memory, with 32 passes for each column; one column of padding takes
# that away too.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Published beside yours
#
# The Best Practices Guide measured the offset copy on a V100: about 790 GB/s aligned, and about nine tenths of that misaligned. <!-- given -->

# %%
at = offsets.set_index("offset")["bandwidth_gb_per_s"]
v100, here = gpu("V100").bandwidth_gb_per_s if False else 898, gpu(offsets["machine"][0]).bandwidth_gb_per_s
table([{"what": "aligned copy, share of the datasheet's rate", "V100, published": 790 / v100, offsets["machine"][0]: at[0] / here},
       {"what": "misaligned over aligned", "V100, published": 0.9, offsets["machine"][0]: at[[o for o in at.index if o % 8]].median() / at[0]}],
      caption="The offset copy on two machines", evidence=f"published · Best Practices Guide, section 10.2.1.3 | {evidence_of(offsets).line()}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Fill each hole, run the cell, read what `check` says. Solutions are in [solutions/09_coalescing.py](solutions/09_coalescing.py).

# %% [markdown]
# ### Exercise 1: count before you run
#
# How many sectors does a warp's load of 4-byte elements touch, for stride ≥ 0 and offset ≥ 0 in elements? About 2 lines.
#
# <details><summary>Tip</summary>Make the 32 byte addresses; divide by the size of a sector; count what is different.</details>

# %% tags=["exercise", "exercise-1"]
def sectors(stride, offset):
    # --- your code (about 2 lines)
    return ...
    # --- end

check("09_coalescing.1", sectors)

# %% [markdown]
# ### Exercise 2: turn it round
#
# A matrix x (rows, cols), row-major, gets each row scaled: y[r, c] = f[r] · x[r, c]. Blocks are 32 × 8 threads, the grid covers the matrix with
# x along the columns. Choose row and col so that loads and stores of x and y are coalesced. About 2 lines.

# %% tags=["exercise", "exercise-2"]
scale_rows = CudaKernel(r"""
extern "C" __global__ void scale_rows(const float* x, const float* f, float* y, int rows, int cols)
{
    int row = -1, col = -1;
    // --- your code (about 2 lines)
    // --- end
    if (row >= 0 && row < rows && col < cols) y[row * cols + col] = f[row] * x[row * cols + col];
}
""", "scale_rows")

check("09_coalescing.2", scale_rows)

# %% [markdown]
# ### Exercise 3: points in space
#
# n points are stored as x, y, z, x, y, z, ... A kernel reads only all x, or, with `planes`, from three arrays stored one after the other. Which share of the moved
# bytes is used in either case, for a large n? Return (interleaved, planes). About 1 line.

# %% tags=["exercise", "exercise-3"]
def used_share():
    # --- your code (about 1 line)
    return ...
    # --- end

check("09_coalescing.3", used_share)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What to remember
#
# - Memory moves sectors of 32 bytes. A warp's load costs the number of sectors its 32 addresses touch: 4 at best for floats, 32 at worst.
# - Order inside the warp is free; a stride of 8 floats is as bad as any.
# - A misaligned copy touches 5 sectors a warp instead of 4, and loses little: neighbouring warps share the fifth.
# - Ask what the lanes of a warp do at one moment, not what a thread does over time: threadIdx.x belongs to the last index.
#
# **Ask yourself:** Why do 16-byte elements need 16 sectors and still lose nothing? When does a broadcast cost one sector? Who rescues the misaligned copy?
# Where did lesson 03's `.v4` loads come from? Which side of a transpose would you rather have strided?
#
# Next: [10 Shared memory](10_shared_memory.ipynb), where each number is fetched once and read many times.
