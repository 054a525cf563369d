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
# # 11 Streams: copy while computing
#
# > What can run at the same time?
#
# After this lesson you can
#
# - say what must hold for a copy and a kernel to overlap, and estimate what it brings;
# - read a timeline, measured from events, and tell which condition was broken;
# - read a buffer back without reading it too early.
#
# Needs: lesson [08](08_cuda_threads.ipynb); no GPU needed. About 40 minutes.

# %% tags=["setup"]
from helpers.lesson import check, explore, show_ptx, side_by_side, start, table
import torch, triton, triton.language as tl
from figures import streams as fig
from helpers.compile import compile_kernel
from helpers.evidence import evidence_of, simulated
from helpers.lesson.cuda_tables import OVERLAP_NEEDS
from helpers.measure import measure
from helpers.timeline import Span, estimate, schedule

start("11_streams")

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Queues and engines
#
# A *stream* is a queue: what is put into one runs in that order. Different streams promise nothing about each other, so their work may
# run at the same time, if there is something free to run it. The SMs run kernels. Copies between host and device are made by *copy engines*,
# which need no SM.
#
# Suppose data take 8 ms to arrive and a kernel works on them for 10 ms. Cut both into 4 chunks, and let each chunk have a
# stream of its own. <!-- given -->
#
# **Predict:** how long does it all take?

# %%
fig.schedule_view(chunks=4, copy_ms=8, kernel_ms=10)

# %% [markdown]
# Only the first chunk's copy is not hidden. While one chunk is worked on, the next arrives: what is longer, here the kernel, decides, and one chunk
# of what is shorter is added. With times t of the copy and e of the kernel in n chunks
#
# $$ T = \max(t, e) + \min(t, e) / n $$
#
# instead of t + e. It is an estimate: chunks cost something too, and two kernels may share the SMs.

# %%
table([{"chunks": n, "estimate (ms)": estimate(n, 8, 10), "model of queues and engines (ms)": max(s.end for s in schedule(n, 8, 10))}
       for n in (1, 2, 4, 8, 16)], caption="8 ms of copy, 10 ms of kernel", evidence=simulated("queues and engines"))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Turn the knobs
#
# **Predict:** when results must be copied back too, what does a second copy engine bring?

# %% tags=["widget"]
explore(fig.schedule_view, **fig.SCHEDULE_CONTROLS)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What an overlap needs
#
# Three conditions, all of them:

# %%
table(OVERLAP_NEEDS, caption="For a copy to run beside a kernel",
      evidence="published · CUDA C++ Best Practices Guide, section 10.1.2")

# %% [markdown]
# Pinned memory cannot be moved or swapped out by the operating system, so the copy engine can read it by itself. Ordinary, *pageable*
# memory can move at any moment; the driver first copies it into a pinned buffer of its own, piece by piece, with the CPU.
#
# **Predict:** how much slower is a pageable copy of 256 MiB? And of 4 KiB?

# %%
copies = measure("host_copies")
fig.show_copies(copies, evidence_of(copies))

# %% [markdown]
# Large pageable copies reach a fraction of the pinned rate: the CPU's copy into the driver's buffer is what limits them. Small ones are all latency; to the GPU, a few KiB of
# pageable memory even win, as the driver sends them along with the command.

# %%
both = measure("two_directions")
table(both, columns=["variant", "time_us", "bandwidth_gb_per_s", "copy_engines"],
      caption="256 MiB to the GPU and 256 MiB back, pinned", evidence=evidence_of(both))

# %% [markdown]
# `copy_engines` is the driver's asyncEngineCount. With at least two, both directions of the link carry data at once. Nearly twice the bytes in the same time.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Copy while computing, measured
#
# The pipeline below is what you would write in torch: a stream for each chunk, a copy that does not block, and the kernel right behind it in the same
# stream. Edit it; with a GPU it is measured beside the shipped versions.
#
# **Predict:** which curve stays flat: pinned in one stream, or pageable in many?

# %% tags=["setup"]
from helpers.experiments.streams import work            # work(x, y, rounds): a kernel as long as you like

def my_pipeline(host, x, y, rounds, chunks, mark=None):
    current, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(chunks)]
    parts = zip(streams, host.chunk(chunks), x.chunk(chunks), y.chunk(chunks))
    for stream, source, x_part, y_part in parts:
        stream.wait_stream(current)                       # not before what came before
        with torch.cuda.stream(stream):
            x_part.copy_(source, non_blocking=True)       # returns at once, if `host` is pinned
            work(x_part, y_part, rounds)                  # same stream: waits for its own chunk only
    for stream in streams:
        current.wait_stream(stream)                       # and nothing after before all is done

# %%
overlap = measure("copy_compute_overlap", yours=my_pipeline)
longest = overlap[overlap["rounds"] == overlap["rounds"].max()]
fig.show_overlap(longest[longest["variant"] != "yours"], evidence_of(overlap))

# %%
fig.show_measured_timelines(longest[(longest["chunks"] == 4) & (longest["variant"] != "yours")], evidence_of(overlap))

# %% [markdown]
# One stream stays level whatever the number of chunks. Pageable memory stays far above: its copies are slow, and the host is busy making them, so the kernel hides behind
# almost nothing. Only all three conditions together bring the curve down to the estimate.

# %%
best = overlap[overlap["variant"] == "pinned, a stream each"]
best = best.assign(measured_over_estimate=best["time_us"] / best["estimate_us"])
table(best, columns={"rounds": "rounds of the kernel", "chunks": "chunks", "copy_us": "copy alone (µs)", "kernel_us": "kernel alone (µs)",
                     "estimate_us": "estimate (µs)", "time_us": "measured (µs)", "measured_over_estimate": "measured / estimate"},
      caption="The estimate against the measurement", evidence=evidence_of(best))

# %% [markdown]
# Where the kernel is longer, the estimate fits closely. Where the copy is longer, it is a little too low with many chunks: each copy of a smaller piece pays its own start, and the
# copy is what decides there.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## A mistake worth making
#
# `non_blocking=True` works in the other direction too: results go to pinned memory while the host goes on. It is read below right after
# the call, behind a long kernel; the buffer held −1 before.
#
# **Predict:** what does the host read? And what if the memory is pageable?

# %% tags=["raises-exception"]
early = measure("early_read")
print(early[["variant", "read_at_once", "read_after_waiting", "right"]].to_string(index=False))
pinned = early[early["variant"] == "pinned"].iloc[0]
assert pinned["read_at_once"] == pinned["right"], (
    f"read {pinned['read_at_once']:g} before it had arrived; it becomes {pinned['read_after_waiting']:g}")

# %% [markdown]
# No error, no warning: the old number. The copy was still in the queue behind the kernel. With pageable memory the call itself waits, so
# the same code happens to be right, until somebody makes it faster by pinning the buffer.
#
# The cure is to wait for the copy, and for nothing else: record an event behind it and `event.synchronize()` before the first read, or
# `stream.synchronize()`, or, for the lazy, `torch.cuda.synchronize()`.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## The same idea inside a kernel
#
# What streams do for host and device, asynchronous copies do between device and shared memory: load the next tile while computing with this
# one. Triton's `num_stages` asks for it. Ampere (8.0) brought `cp.async`, Hopper (9.0) the Tensor Memory Accelerator, which moves
# a whole tile with one instruction.
#
# **Predict:** what changes in the PTX of the matmul between sm_75 and sm_90? And with descriptors?

# %%
from helpers.kernels.matmul import matmul_relu_kernel
m = torch.empty(512, 512, device="meta")
def matmul_for(target, num_stages=3):
    return compile_kernel(matmul_relu_kernel, m, m, m, 512, 512, 512, 512, 1, 512, 1, 512, target=target, num_warps=4,
                          num_stages=num_stages, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, PRECISION="ieee")

table([{"target": t, "num_stages": s, "ld.global": c.count("ld.global"), "cp.async": c.count("cp.async.cg") + c.count("cp.async.ca"),
        "cp.async.wait_group": c.count("cp.async.wait_group"), "shared memory (bytes)": c.shared_bytes}
       for t, s in (("sm_75", 3), ("sm_80", 1), ("sm_80", 3), ("sm_80", 4), ("sm_90", 3)) for c in [matmul_for(t, s)]],
      caption="Loads of the matmul kernel", evidence=matmul_for("sm_90").evidence)

# %%
@triton.jit
def copy_tile(x_ptr, y_ptr, ROWS: tl.constexpr, COLS: tl.constexpr, TILE: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [ROWS, COLS], [COLS, 1], [TILE, TILE])
    y = tl.make_tensor_descriptor(y_ptr, [ROWS, COLS], [COLS, 1], [TILE, TILE])
    at = tl.program_id(0) * TILE
    y.store([at, 0], x.load([at, 0]))

tma = {t: compile_kernel(copy_tile, m, m, target=t, ROWS=512, COLS=512, TILE=32) for t in ("sm_80", "sm_90")}
side_by_side(*(show_ptx(c, r"(ld|st)\.global|cp\.async\.bulk\.tensor", most=8) for c in tma.values()))

# %% [markdown]
# Without hardware for it, the descriptor becomes ordinary loads, spread over the threads. On sm_90 a single thread issues one `cp.async.bulk.tensor` for the whole tile, and a barrier
# in shared memory says when it has arrived: a queue and an event, in small.

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Try first
#
# The text on CUDA lists experiments with what its author expected, without having run them. Here they are with what came out.

# %%
from helpers.lesson.try_first import try_first
table(try_first(), caption="Expected, and measured", evidence=evidence_of(overlap))

# %% [markdown] slideshow={"slide_type": "slide"}
# ## Exercises
#
# Fill each hole, run the cell, read what `check` says. Solutions are in [solutions/11_streams.py](solutions/11_streams.py).

# %% [markdown]
# ### Exercise 1: how many chunks?
#
# Copy t and kernel e in ms, any of them longer. Return the least number of chunks for which the estimate is within `slack` (0.1 = 10 %) of
# the best that any number of chunks could reach. About 3 lines.
#
# <details><summary>Tip</summary>With very many chunks, T goes to the longer of the two.</details>

# %% tags=["exercise", "exercise-1"]
def chunks_needed(t, e, slack):
    # --- your code (about 3 lines)
    return ...
    # --- end

check("11_streams.1", chunks_needed)

# %% [markdown]
# ### Exercise 2: with a price for each chunk
#
# Every chunk adds `cost` ms to whatever is longer: T(n) = max(t, e) + min(t, e) / n + n · cost. Return the n from 1 to 64 with the least T. About 2 lines.

# %% tags=["exercise", "exercise-2"]
def best_chunks(t, e, cost):
    # --- your code (about 2 lines)
    return ...
    # --- end

check("11_streams.2", best_chunks)

# %% [markdown]
# ### Exercise 3: and back again
#
# Now results are copied back, taking `back` ms in all, with *two* copy engines and n chunks, each chunk in its own stream. Return the time.
# About 3 lines; the model of queues and engines checks it.
#
# <details><summary>Tip</summary>A chain of three machines: the slowest is busy all the time, once its first chunk has come through the ones
# before it, and its last chunk still has to pass the ones behind.</details>

# %% tags=["exercise", "exercise-3"]
def time_with_copy_back(n, t, e, back):
    # --- your code (about 3 lines)
    return ...
    # --- end

check("11_streams.3", time_with_copy_back)

# %% [markdown] slideshow={"slide_type": "slide"}
# ## What to remember
#
# - A stream is a queue. Overlap needs pinned memory, a copy that does not block, and different streams: all three.
# - max(t, e) + min(t, e) / n: the longer one decides; more chunks hide the shorter one.
# - Pinned copies run at the link's rate, pageable ones at the speed of a CPU copy; with several copy engines both directions run at once.
# - A non-blocking copy to the host must be waited for before its result is read.
#
# **Ask yourself:** Which of the three conditions does a DataLoader's `pin_memory=True` meet? Why is a pageable copy to the GPU not safe to
# overlap? What would 64 chunks cost? Which engine is idle in each timeline? What does `num_stages` have in common with chunks?
#
# Next: [A TPU](A_tpu.ipynb), a chip whose compiler plans all moves ahead.
