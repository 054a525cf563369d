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
# # 10 Shared memory and tiling
#
# > How many times is the same number read?
#
# After this lesson you can
#
# - count how often a matrix product reads each element, and cut it by tiles;
# - place two barriers, and say what happens without each of them;
# - see a bank conflict coming, and remove it with one column of padding.
#
# Needs: lesson [09](09_coalescing.ipynb); [06](06_matmul.ipynb) for the Triton side; no GPU needed. About 50 minutes.

# %% tags=["setup"]
from helpers.lesson import check, explore, show_ptx, side_by_side, start, table
import torch
from figures import tiling as fig
from helpers.cuda import TRANSPOSE, CudaKernel
from helpers.evidence import evidence_of, interpreted_here
from helpers.measure import measure
from helpers.mode import device
from helpers.specs import gpu

counted = interpreted_here("SIMT machine")
torch.manual_seed(0)
start("10_shared_memory")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The naive product
#
# C = A B, one thread an element: it walks along a row of A and down a column of B.
#
# **Predict:** for n = 4, how many reads of A and B do the 16 threads make together? How many *different* numbers are there?

# %% tags=["setup", "kernel"] cuda="matmul.cu:naive_matmul"
naive = CudaKernel(r"""
// A grid has at most 65535 blocks along y; the rest of them lie along z.
__device__ long long block_row() { return (long long)blockIdx.z * gridDim.y + blockIdx.y; }

extern "C" __global__ void naive_matmul(const float* a, const float* b, float* c, long long m, long long n, long long k)
{
    long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    long long row = block_row() * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (long long i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}
""", "naive_matmul")

# %%
def reads(kernel, n, tile):
    a, b, grid = torch.rand(n, n), torch.rand(n, n), -(-n // tile)
    c = torch.full((n, n), float("nan"))
    report = kernel.counted((grid, grid), (tile, tile), a, b, c, n, n, n)
    assert torch.allclose(c, a @ b, atol=1e-4), "wrong result"
    return report.of("global load").lanes

print(f"n = 4: {reads(naive, 4, 4)} reads by lanes, of {2 * 4 * 4} different numbers")

# %% [markdown]
# Every element is read n times, by n different threads: 2 n³ reads of 2 n² numbers. For n = 4096 that is more than 10¹¹. The cure is to fetch
# a number once for many threads, which must share a place to keep it.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A tile for everybody
#
# Shared memory belongs to a block and lies on the SM. The block fetches a tile of A and a tile of B together, one element a thread; then every
# thread reads its row and its column from the tiles; then the next tiles. The widget steps through the phases.

# %% tags=["widget"]
explore(fig.phase_view, **fig.PHASE_CONTROLS)

# %% tags=["setup", "kernel"] cuda="matmul.cu:tiled_matmul"
TILED = r"""
#ifndef TILE
#define TILE 32  // edge of the tiles and of the block: TILE * TILE threads
#endif
__device__ long long block_row() { return (long long)blockIdx.z * gridDim.y + blockIdx.y; }

extern "C" __global__ void tiled_matmul(const float* a, const float* b, float* c, long long m, long long n, long long k)
{
    __shared__ float tile_a[TILE][TILE];  // rows of this block, columns start .. start + TILE of A
    __shared__ float tile_b[TILE][TILE];  // rows start .. start + TILE of B, columns of this block
    long long col = (long long)blockIdx.x * TILE + threadIdx.x;
    long long row = block_row() * TILE + threadIdx.y;
    float sum = 0.0f;
    for (long long start = 0; start < k; start += TILE) {
        // threadIdx.x runs along the row in both loads, so that they are coalesced; zeros stand in for what is outside
        long long a_col = start + threadIdx.x, b_row = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && a_col < k ? a[row * k + a_col] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = b_row < k && col < n ? b[b_row * n + col] : 0.0f;
        __syncthreads();  // no thread may read a tile before all have written it
        for (int i = 0; i < TILE; i++) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        __syncthreads();  // no thread may overwrite a tile while another still reads it
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
"""
tiled = {tile: CudaKernel(TILED, "tiled_matmul", (f"-DTILE={tile}",)) for tile in (2, 4, 8, 16, 32)}

# %% [markdown]
# **Predict:** how many reads of device memory are left for n = 4 with tiles of 2 × 2?

# %%
rows = [{"n": n, "tile": 1, "reads": reads(naive, n, min(n, 32))} for n in (4, 8, 16, 32, 64)]
rows += [{"n": n, "tile": t, "reads": reads(tiled[t], n, t)} for t in (2, 32) for n in (4, 8, 16, 32, 64) if n >= t]
counts = table(rows, caption="Reads of device memory by lanes").data
fig.show_reads(counts, counted)

# %% [markdown]
# Each staged element is read TILE times from its tile, so device memory is read a TILE-th as often: 2 n³ / TILE. The points are counted, the lines are that
# formula, carried on to n = 4096.
#
# A lane's read is not yet a trip to memory. Where all lanes of a warp want one address, one sector serves them all:

# %%
def traffic(kernel, n, tile):
    grid = -(-n // tile)
    load = kernel.counted((grid, grid), (tile, tile), torch.rand(n, n), torch.rand(n, n), torch.empty(n, n), n, n, n).of("global load")
    return {"lane reads": load.lanes, "requests of warps": load.requests, "sectors a request": load.sectors / load.requests,
            "bytes of sectors a lane read": 32 * load.sectors / load.lanes}

four = [{"kernel": name} | traffic(kernel, 128, 32) for name, kernel in (("naive", naive), ("tiled, 32 × 32", tiled[32]))]
table(four, caption="n = 128, blocks of 32 × 32, counted", evidence=counted)

# %%
n, per_lane = 4096, {row["kernel"]: row["bytes of sectors a lane read"] for row in four}
table([{"kernel": name, "lane reads": float(2 * n**3 / t), "as lanes (GB)": 4 * 2 * n**3 / t / 1e9,
        "as sectors (GB)": per_lane[name] * 2 * n**3 / t / 1e9, "the matrices (GB)": 3 * 4 * n**2 / 1e9}
       for name, t in (("naive", 1), ("tiled, 32 × 32", 32))], caption="The same at n = 4096, from the counts", evidence=counted)

# %% [markdown]
# The naive kernel is better than its lane reads look: a warp runs along a row of C, so its load of A is one address for all lanes, and its load
# of B is 4 neighbouring sectors. Both are coalesced already. What is left is repetition.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Two barriers, two mistakes
#
# `__syncthreads()` lets no thread of the block past before all have arrived. Take one away.
#
# **Predict:** will the product be wrong? Each time, or only sometimes? Who would notice?

# %% tags=["raises-exception"]
first, second = "        __syncthreads();  // no thread may read", "        __syncthreads();  // no thread may overwrite"
careless = CudaKernel(TILED.replace(first, "        // no thread may read"), "tiled_matmul")
a, b, c = torch.rand(64, 64), torch.rand(64, 64), torch.empty(64, 64)
careless.counted((2, 2), (32, 32), a, b, c, 64, 64, 64, races=True)

# %% [markdown]
# The SIMT machine watches which threads touch a word of shared memory between two barriers, and stops at the first pair of which one writes. It does not wait for
# a wrong number: on a GPU the warps may happen to come in the right order a thousand times.

# %%
careless = CudaKernel(TILED.replace(second, "        // no thread may overwrite"), "tiled_matmul")
try:
    careless.counted((2, 2), (32, 32), a, b, c, 64, 64, 64, races=True)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
report = tiled[32].counted((2, 2), (32, 32), a, b, c, 64, 64, 64, races=True)
print(f"with both barriers: {len(report.races)} races, right = {torch.allclose(c, a @ b, atol=1e-4)}")

# %% [markdown]
# The first barrier keeps readers from tiles that are not there yet, the second keeps writers from tiles that are still being read. Barriers must be reached by *all* threads
# of the block: that is why the kernel does not return early for threads outside C, as the naive one does, but loads zeros instead. So it is right for
# every size.

# %%
sizes = [(1, 1, 1), (31, 33, 35), (64, 10, 96), (5, 0, 3)]
for m, k, n in sizes:
    a, b = torch.rand(m, k, device=device()), torch.rand(k, n, device=device())
    c = torch.full((m, n), float("nan"), device=device())
    tiled[32][(-(-n // 32), -(-m // 32)), (32, 32)](a, b, c, m, n, k)
    print(f"({m}, {k}) @ ({k}, {n}): right = {torch.allclose(c, a @ b, atol=1e-4)}")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Banks
#
# Shared memory is made of 32 banks, each 4 bytes wide: word w lies in bank w mod 32. In one pass, every bank serves one word. Lanes that want the same word
# share it; lanes that want *different* words of one bank wait for each other.
#
# **Predict:** a tile is 32 words wide. How many passes does reading a row take? A column?

# %% tags=["setup"]
BANKS = r"""
extern "C" __global__ void read_tile(const float* x, float* y, int row_step, int lane_step)
{
    __shared__ float tile[32 * WORDS_A_ROW];
    for (int i = threadIdx.x; i < 32 * WORDS_A_ROW; i += 32) tile[i] = x[i];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x * (row_step * WORDS_A_ROW + lane_step)];
}
"""
STEPS = {"row": (0, 1), "column": (1, 0), "diagonal": (1, 1)}

# %% tags=["widget"]
def banks(words_a_row, access):
    kernel = CudaKernel(BANKS, "read_tile", (f"-DWORDS_A_ROW={words_a_row}",))
    x, y = torch.arange(32.0 * words_a_row), torch.empty(32)
    report = kernel.counted(1, 32, x, y, *STEPS[access])
    return fig.show_banks([int(word) for word in y], report.of("shared load").wavefronts,
                          f"tile[32][{words_a_row}], a {access}", counted)

explore(banks, **fig.BANK_CONTROLS)

# %% [markdown]
# With rows of 32 words, a column lies in one bank. With 33, each row is shifted by one bank, and the same column is spread over all of them: one unused word a row,
# no other change. The product above needs no padding: a warp reads one word of `tile_a`, which is a broadcast, and a row of `tile_b`. The transpose does:

# %%
rows = []
for version, kernel in TRANSPOSE.items():
    report = kernel.counted((2, 2), (32, 8), torch.rand(64, 64), torch.empty(64, 64), 64, 64)
    load = report.of("shared load")
    rows.append({"version": version, "shared memory (bytes)": kernel.compiled().shared_bytes, "shared loads of warps": load.requests,
                 "passes": load.wavefronts, "conflicts": report.bank_conflicts,
                 "sectors a global store": report.of("global store").sectors / report.of("global store").requests})
table(rows, caption="Transposing 64 × 64, counted", evidence=counted)

# %% [markdown]
# What the padding is worth in time stands in lesson [09](09_coalescing.ipynb).

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A 32nd of the reads
#
# **Predict:** the tiled kernel reads device memory a 32nd as often. How much faster is it? How far from cuBLAS?

# %%
ladder = measure("cuda_matmul_ladder")
fig.show_ladder(ladder, gpu(ladder["machine"][0]).fp32_tflops, evidence_of(ladder))

# %%
table(ladder[ladder["n"].isin([1024, 4096])], columns=["variant", "n", "time_us", "time_us_p20", "time_us_p80", "bandwidth_gb_per_s", "tflops"],
      caption="The ladder; GB/s of the least traffic, each matrix once", evidence=evidence_of(ladder))

# %% [markdown]
# Far from 32 times. The naive kernel's repeated reads mostly hit in the caches, so memory was not its only limit; and the tiled kernel has found a new one, next cell.

# %%
code = tiled[32].compiled("sm_90")
table([{"in the inner loop of the tiled kernel": what, "PTX": code.count(ptx), "SASS": code.count_sass(sass)}
       for what, ptx, sass in (("multiply-adds", "fma.rn.f32", "FFMA"), ("loads from shared memory", "ld.shared", "LDS"),
                               ("loads from device memory", "ld.global", "LDG"), ("barriers", "bar.sync", "BAR"))],
      caption="What one thread executes for one pair of tiles", evidence=code.evidence)

# %% [markdown]
# 40 loads from shared memory for 32 multiply-adds (ptxas merged those of `tile_a`, which are neighbours, four to one): the load units are busier than the
# arithmetic. The way out is to let each thread compute several elements of C and keep its inputs in registers. That is what Triton and cuBLAS do.

# %%
edges = measure("tile_edges")
table(edges, columns=["edge", "time_us", "time_us_p20", "time_us_p80", "tflops"], caption="The edge of the tile, n = 4096", evidence=evidence_of(edges))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Published beside yours
#
# The Best Practices Guide multiplies matrices one tile deep on a V100: A is M × 32, B is 32 × N. Its matrix sizes are not printed; here both are 8192.

# %%
from helpers.results import published
thin = measure("thin_product")
at = thin.set_index("variant")["bandwidth_gb_per_s"]
none, a_tile, both = (published(f"v100_ab_{name}")["value"] for name in ("none", "a_tile", "both_tiles"))
table([{"version": "naive", "V100, published (GB/s)": none, f"{thin['machine'][0]} (GB/s)": at["naive"]},
       {"version": "A in shared memory", "V100, published (GB/s)": a_tile, f"{thin['machine'][0]} (GB/s)": None},
       {"version": "A and B in shared memory", "V100, published (GB/s)": both, f"{thin['machine'][0]} (GB/s)": at["tiled"]},
       {"version": "gain, naive to both", "V100, published (GB/s)": both / none, f"{thin['machine'][0]} (GB/s)": at["tiled"] / at["naive"]}],
      caption="Products one tile deep", evidence=f"published · Best Practices Guide, section 10.2.3.2, table 2 | {evidence_of(thin).line()}")

# %% [markdown]
# The gain from two tiles is nearly the same on both machines, years apart. Here the inner dimension is a single tile, and writing C is most of the compulsory traffic.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Where libraries stand
#
# What you have built here by hand is the first of several levels of tiling: block tiles in shared memory. A real product adds warp tiles and tiles of each thread in registers,
# Tensor Core instructions inside, and moves the next tile while computing with this one.

# %%
from helpers.lesson.cuda_tables import LIBRARIES
table(LIBRARIES, caption="Who decides what",
      evidence="published · NVIDIA and PyTorch documentation as of October 2026; what says \"not tried here\" is unverified")

# %% [markdown]
# Everyday training and inference seldom need hand-written CUDA. `torch.compile` writes Triton itself; here is what it made of softmax, lesson 04's operation.

# %%
from helpers.lesson.code import Listing
inductor = measure("inductor_source")
Listing("TorchInductor's softmax of (4096, 4096)", inductor["source"][0], r"tl\.(load|store)|max|exp|sum|def ", evidence_of(inductor), most=30)

# %% [markdown]
# The running maximum and the corrected sum of `online_softmax`, over a row in pieces, then a second pass that reads the row again, with hints to the cache that it will be needed.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Fill each hole, run the cell, read what `check` says. Solutions are in [solutions/10_shared_memory.py](solutions/10_shared_memory.py).

# %% [markdown]
# ### Exercise 1: count the reads
#
# For A (m, k), B (k, n) and tiles of T × T, none of them a multiple of the other: how many reads of device memory do the lanes of the tiled kernel make? About 3 lines.
#
# <details><summary>Tip</summary>Only elements inside the matrices are loaded. How many blocks load a given element of A?</details>

# %% tags=["exercise", "exercise-1"]
def tiled_reads(m, k, n, T):
    # --- your code (about 3 lines)
    return ...
    # --- end

check("10_shared_memory.1", tiled_reads)

# %% [markdown]
# ### Exercise 2: turn a block round
#
# Each block of 256 threads reverses its own 256 elements *through shared memory*: y[256 b + t] = x[256 b + 255 − t]. Loads and stores must be coalesced in order, and there
# must be no race. About 3 lines.

# %% tags=["exercise", "exercise-2"]
reverse = CudaKernel(r"""
extern "C" __global__ void reverse(const float* x, float* y)
{
    __shared__ float tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    // --- your code (about 3 lines)
    // --- end
}
""", "reverse")

check("10_shared_memory.2", reverse)

# %% [markdown]
# ### Exercise 3: foresee the conflict
#
# Lane i of a warp reads the 4-byte word i · s of shared memory. How many passes does it take, for s ≥ 0? About 2 lines.
#
# <details><summary>Tip</summary>s = 0 is one word for all. Otherwise: how many different banks are met before the pattern repeats?</details>

# %% tags=["exercise", "exercise-3"]
def passes(s):
    # --- your code (about 2 lines)
    return ...
    # --- end

check("10_shared_memory.3", passes)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What to remember
#
# - A naive product reads each number n times; tiles of T × T make that n / T: 2 n³ / T reads in all.
# - Two barriers a phase: one before the tiles are read, one before they are overwritten; all threads must reach both.
# - 32 banks of 4 bytes: a column of tile[32][32] takes 32 passes, of tile[32][33] one.
# - A 32nd of the reads is not 32 times the speed: caches had helped before, and shared memory becomes the next limit.
#
# **Ask yourself:** Which of the two barriers could go if there were two sets of tiles? Why do zeros outside not change the sum? How much shared memory would T = 64 need, and
# how many threads? What limits the tiled kernel once memory does not? What would you call before writing any of this?
#
# Next: [11 Streams](11_streams.ipynb), where the same trick hides the way from the host.
