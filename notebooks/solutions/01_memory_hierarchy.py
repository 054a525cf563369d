"""Solutions of lesson 01. Each cell replaces the notebook's cell with the same tag; the tests run them."""

# %% exercise-1
def roof(peak_tflops, bandwidth_gb_per_s, intensity):
    # --- your code (about 1 line)
    return min(peak_tflops, bandwidth_gb_per_s * intensity / 1e3)  # GB/s x FLOP/B = GFLOPS
    # --- end

check("01_memory_hierarchy.1", roof)

# %% exercise-2
def bytes_in_flight(bandwidth_gb_per_s, latency_cycles, mhz):
    # --- your code (about 1 line)
    return bandwidth_gb_per_s * 1e9 * latency_cycles / (mhz * 1e6)  # bytes a second x seconds
    # --- end

check("01_memory_hierarchy.2", bytes_in_flight)

# %% exercise-3
@triton.jit
def triad_kernel(x_ptr, y_ptr, out_ptr, s, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    # --- your code (about 3 lines)
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + s * y, mask=mask)  # 2 FLOPs for 12 bytes: memory's side on every GPU
    # --- end

check("01_memory_hierarchy.3", triad_kernel)
