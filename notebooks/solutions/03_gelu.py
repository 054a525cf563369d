"""Solutions of lesson 03. Each cell replaces the notebook's cell with the same tag; the tests run them."""

# %% exercise-1
@triton.jit
def quick_gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    # --- your code (about 2 lines)
    y = x / (1 + tl.exp(-1.702 * x))  # e^-v becomes 0 or inf, never inf / inf
    tl.store(y_ptr + offsets, y, mask=mask)
    # --- end

check("03_gelu.1", quick_gelu_kernel)

# %% exercise-2
def grid_of(n, BLOCK, sm_count):
    # --- your code (about 1 line)
    return (triton.cdiv(n, BLOCK),)  # the SM count does not matter; for n = 0 there is nothing to launch
    # --- end

check("03_gelu.2", grid_of)

# %% exercise-3
def loads_per_thread(BLOCK, num_warps):
    # --- your code (about 1 line)
    return max(1, BLOCK // (32 * num_warps))  # with more threads than elements, some load the same element again
    # --- end

check("03_gelu.3", loads_per_thread)
