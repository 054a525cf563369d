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
# # 08 CUDA threads: adding two vectors
#
# > What happens between c = a + b and the GPU?
#
# After this lesson you can
#
# - write a CUDA C++ kernel, choose its grid and block, and say which threads have nothing to do;
# - tell what a launch returns, and when the work is really done;
# - find the same instructions in the PTX of a CUDA and of a Triton kernel.
#
# Needs: lesson [03](03_gelu.ipynb) helps; no GPU needed. About 45 minutes.

# %% tags=["setup"]
from helpers.lesson import check, explore, show_ptx, show_source, side_by_side, start, table
import torch
from figures import threads as fig
from helpers.compile import compile_kernel
from helpers.cuda import CudaKernel, program, vec_add
from helpers.evidence import evidence_of, interpreted_here
from helpers.measure import measure
from helpers.mode import device
from helpers.results import recorded
from helpers.specs import gpu

start("08_cuda_threads")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Three questions for the whole part
#
# Triton writes down the work of a block. CUDA C++ writes down the work of *one thread*, and leaves the rest to you: which element it
# takes, what its neighbours touch, when they wait for each other. In return you see everything. Three questions run through
# the next lessons:
#
# 1. Of the bytes that each warp moved, how many were used? ([09](09_coalescing.ipynb))
# 2. How often was each number that was fetched used again? ([10](10_shared_memory.ipynb))
# 3. Were there enough warps, or independent instructions, to cover the waiting? ([07](07_occupancy.ipynb), and for whole copies
#    [11](11_streams.ipynb))

# %%
from helpers.lesson.cuda_tables import thread_levels
table(thread_levels("sm_90"), caption="The levels of threads (compute capability 9.0)",
      evidence="published · CUDA Programming Guide v13.4, sections 1.2 and 5.1")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## One thread, one element
#
# The kernel below runs once in *every* thread. What differs is where a thread finds itself: `blockIdx.x` is the number of its block,
# `blockDim.x` the threads of a block, `threadIdx.x` its place in the block. Together they give each thread an index of its own.
# Edit it: everything below runs this cell. Without a GPU, the compiled PTX runs on the course's SIMT machine, warp by warp.
#
# **Predict:** n = 1000 with 256 threads a block. How many blocks? What does thread 5 of block 2 add? How many threads have no element?

# %% tags=["setup", "kernel"] cuda="vec_add.cu:vec_add"
add = CudaKernel(r"""
extern "C" __global__ void vec_add(const float* a, const float* b, float* c, long long n)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;  // 64 bits: i passes 2^31 for large n
    if (i < n) c[i] = a[i] + b[i];  // the last block has more threads than elements are left
}
""", "vec_add")

# %% tags=["setup"]
def my_add(a, b, block=256):
    c = torch.full_like(a, float("nan"))          # NaN: what is never written will show
    n = a.numel()
    blocks = (n + block - 1) // block             # rounded up
    add[blocks, block](a, b, c, n)                # in C++: vec_add<<<blocks, block>>>(a, b, c, n)
    return c

# %%
a = torch.arange(1000.0, device=device())
c = my_add(a, 2 * a)
print(f"c[999] = {c[999].item()}, all right: {torch.equal(c, 3 * a)}")
fig.show_grid(n=1000, block=256, thread=5)

# %% [markdown]
# Drawn is what the arithmetic says. What did the compiled kernel do? The SIMT machine counts, for each instruction, the warps that
# issued it and the lanes that took part.

# %%
report = add.counted(4, 256, a.cpu(), 2 * a.cpu(), torch.empty(1000), 1000)
stores = report.of("global store")
table([{"threads launched": 4 * 256, "lanes that stored": stores.lanes, "idle": 4 * 256 - stores.lanes,
        "warps that stored": stores.executed, "active lanes of the last warp": stores.lanes - 32 * (stores.executed - 1),
        "branches that split a warp": report.divergent_branches}],
      caption="n = 1000 in blocks of 256, counted", evidence=interpreted_here("SIMT machine"))

# %% [markdown]
# All warps but one are either full or absent. In the last one the condition `i < n` holds for some lanes only: the warp splits, those
# lanes work, the others wait for it masked. That is cheap, as it happens once in the whole grid.
#
# A block that is no multiple of 32 has such a warp in *every* block: 33 threads are two warps, and 31 lanes of the second
# have no thread at all. So block sizes are multiples of 32.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Turn the knobs
#
# **Predict:** which block size leaves the fewest threads without an element for n = 1000? Is that the best one?

# %% tags=["widget"]
explore(fig.show_grid, **fig.GRID_CONTROLS)

# %% [markdown]
# With blocks of 100, no thread is idle for n = 1000, but every block ends in a warp with 4 threads. Counting idle threads is
# not enough: what is paid for is warps.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A mistake worth making
#
# The number of blocks is n over the block size. In C, `n / block` is a whole number.
#
# **Predict:** which elements are wrong, and what is in them?

# %% tags=["raises-exception"]
n, block = 1000, 256
c = torch.full_like(a, float("nan"))
add[n // block, block](a, 2 * a, c, n)
wrong = c.isnan().nonzero().flatten()
assert len(wrong) == 0, f"{len(wrong)} elements were never written, from c[{wrong[0].item()}] on"

# %% [markdown]
# The division rounded down, and the last partial block was never launched. Nothing complained: each thread that ran did the right thing.
# Had the output been a fresh buffer, it would have held whatever was there before, quite possibly the right values of an
# earlier run. Round up, and test sizes on both sides of a multiple of the block: 255, 256, 257.
#
# The opposite mistake, to round up and to forget `if (i < n)`, writes past the end. On a GPU that may go unnoticed too; the
# SIMT machine knows where each buffer ends.

# %%
careless = CudaKernel(add.source.replace("if (i < n) ", ""), "vec_add")
try:
    careless.counted(4, 256, a.cpu(), 2 * a.cpu(), torch.empty(1000), 1000)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## When is it done?
#
# Host and GPU work side by side. A launch puts the kernel into a queue, a *stream*, and returns.

# %%
fig.show_trip()

# %% [markdown]
# **Predict:** c = a + b for 2²⁸ elements moves 3.2 GB. A stopwatch that stops when the call returns: what does it show? <!-- given -->

# %%
clock = measure("launch_clock")
fig.show_launch_clock(clock, evidence_of(clock))

# %% [markdown]
# The time until the call returns does not depend on n: it is the time to enqueue. A clock stopped there measures the host. The right ways
# are to synchronise before stopping it, or to record events into the same stream, before and after, and to let the GPU do
# the timing. The course does the second, everywhere.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The complete program
#
# From Python much is hidden: memory, copies, compiling. In C++ it is all there. The whole of `helpers/cuda/vec_add.cu`
# is the kernel above and this host program.

# %%
from helpers.lesson.cuda_code import show_cuda
show_cuda("vec_add.cu", "int main()")

# %%
built = recorded("vec_add_program") if program.why_not() else measure("vec_add_program")
table(built, columns=["variant", "printed"], caption="Built with nvcc and run", evidence=evidence_of(built))

# %% [markdown]
# Three moments to check for errors, and no exception will remind you:
#
# - *every* call returns a status, also `cudaFree`;
# - a launch returns nothing. `cudaGetLastError()` after it says whether it was accepted: too many threads, too much shared memory;
# - what goes wrong while the kernel runs, such as a wild address, comes up at the next call that waits, here `cudaDeviceSynchronize()`,
#   and may be reported by an innocent one later.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A launch that is refused
#
# **Predict:** what should a wrapper do for 2048 threads a block? And the call after it?

# %%
for block in (2048, 0, 256):
    try:
        print(f"block = {block}: {vec_add(a, a, block=block)[:4].tolist()}")
    except ValueError as error:
        print(f"block = {block}: ValueError: {error}")

# %% [markdown]
# A refused launch leaves the output as it was. If nobody looks at the status, old data pass for results. The course's
# wrappers check sizes, dtype, device and layout before the launch, and cuda-core raises what the driver says after it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What it costs
#
# Each addition reads 8 bytes and writes 4: 1/12 FLOP a byte. <!-- given --> No arithmetic can hide that; memory decides.
#
# **Predict:** how far apart are CUDA C++, Triton and torch at the largest n?

# %%
sizes = measure("vec_add_sizes", yours=my_add)
fig.show_bandwidth(sizes, gpu(sizes["machine"][0]).bandwidth_gb_per_s, evidence_of(sizes))

# %%
blocks = measure("vec_add_blocks", yours=my_add)
fig.show_blocks(blocks[blocks["variant"] == "CUDA"], evidence_of(blocks))

# %% [markdown]
# One float a thread keeps too few bytes in flight: Triton and torch, with four or more elements a thread, reach more. Small blocks are worse still: an
# SM holds only so many blocks, so 32 threads a block leave most of its warp slots empty. 33 threads cost as much as 32 do: a second warp a block, for one lane more.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same kernel in Triton
#
# **Predict:** which lines of the PTX will be the same? Which of the two has fewer loads a thread, and why?

# %%
from helpers.kernels.vec_add import vec_add_kernel
x = torch.empty(2**20, device="meta")
triton_add = compile_kernel(vec_add_kernel, x, x, x, 2**20, target="sm_120", num_warps=4, BLOCK=1024)
lines = r"%ctaid|%tid|setp|ld\.global|st\.global|add\.(r[nz]\.)?(ftz\.)?f32"
side_by_side(show_ptx(add.compiled("sm_120"), lines), show_ptx(triton_add, lines, most=14))

# %% [markdown]
# Both read `%ctaid.x` and `%tid.x`, compare with n and guard what follows. In CUDA a thread has one element. In Triton a program of
# 1024 elements gives each of its 128 threads 8 of them, four neighbours to a load where n allows it. Writing `float4` by hand does the same in
# CUDA. The picture above shows what it is worth here: more bytes in flight for each thread.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Stated and counted
#
# The text on CUDA threads that this part follows states these numbers without having run them.

# %%
stated = {"blocks for n = 1000": (4, -(-1000 // 256)), "threads": (1024, 4 * 256), "index of block 2, thread 5": (517, 2 * 256 + 5),
          "idle threads": (24, 4 * 256 - stores.lanes), "active lanes of the last warp": (8, stores.lanes - 32 * 31),
          "c[999]": (2997.0, my_add(a, 2 * a)[999].item())}
table([{"what": what, "stated": s, "counted here": h, "agrees": s == h} for what, (s, h) in stated.items()],
      caption="What the text says, and what ran", evidence=interpreted_here("SIMT machine") if a.device.type == "cpu" else "live")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Fill each hole, run the cell, read what `check` says. Solutions are in [solutions/08_cuda_threads.py](solutions/08_cuda_threads.py).

# %% [markdown]
# ### Exercise 1: your first kernel
#
# y = α x + y, in place: x (n,), y (n,), right for every n and any block size. About 2 lines of C++.
#
# <details><summary>Tip</summary>Index as above; then nothing may happen for threads past the end.</details>

# %% tags=["exercise", "exercise-1"]
saxpy = CudaKernel(r"""
extern "C" __global__ void saxpy(float alpha, const float* x, float* y, int n)
{
    // --- your code (about 2 lines)
    // --- end
}
""", "saxpy")

check("08_cuda_threads.1", saxpy)

# %% [markdown]
# ### Exercise 2: count what is idle
#
# For n elements and `block` threads a block: blocks, threads without an element, and active lanes of the last warp that has any. Return the three.
# n is at least 1. About 3 lines.

# %% tags=["exercise", "exercise-2"]
def idle(n, block):
    # --- your code (about 3 lines)
    return ...
    # --- end

check("08_cuda_threads.2", idle)

# %% [markdown]
# ### Exercise 3: a grid of any size
#
# Write y[i] = 2 x[i] so that it is right for *every* grid, also for one block: each thread takes an element, then the one a whole grid further
# on, until it passes the end. About 2 lines.
#
# <details><summary>Tip</summary>The grid has gridDim.x * blockDim.x threads. A for loop with that step.</details>

# %% tags=["exercise", "exercise-3"]
twice = CudaKernel(r"""
extern "C" __global__ void twice(const float* x, float* y, int n)
{
    // --- your code (about 2 lines)
    // --- end
}
""", "twice")

check("08_cuda_threads.3", twice)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What to remember
#
# - i = blockIdx.x · blockDim.x + threadIdx.x; blocks are n over the block size, *rounded up*, and the kernel checks i < n.
# - Warps have 32 lanes: a block that is no multiple of 32 wastes lanes in every block.
# - A launch returns before the kernel has run: synchronise, or use events, before you stop a clock or trust a status.
# - A vector add moves 12 bytes for one FLOP: bandwidth decides, in every language.
#
# **Ask yourself:** Why is i a 64-bit number here? What does a masked lane cost? Which call reports a wild address? What would
# a launch of 0 blocks do? Why do idle threads not slow down a large vector?
#
# Next: [09 Coalescing](09_coalescing.ipynb), where the same bytes can cost eight times as much.
