"""Solutions of lesson 07. Each cell replaces the notebook's cell with the same tag; the tests run them."""

# %% exercise-1
def warps_needed(latency, chains):
    # --- your code (about 1 line)
    return -(-latency // chains)  # each chain fills one slot of every `latency`
    # --- end

check("07_occupancy.1", warps_needed)

# %% exercise-2
@triton.jit
def two_chains_kernel(x_ptr, y_ptr, n, a, b, N: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * 2 * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(x_ptr + offsets, mask=offsets < n)
    right = tl.load(x_ptr + offsets + BLOCK, mask=offsets + BLOCK < n)
    # --- your code (about 5 lines)
    for _ in tl.static_range(N):
        left = tl.fma(left, a, b)
        right = tl.fma(right, a, b)  # needs nothing of `left`, so it may be issued while that one is on its way
    tl.store(y_ptr + offsets, left, mask=offsets < n)
    tl.store(y_ptr + offsets + BLOCK, right, mask=offsets + BLOCK < n)
    # --- end

check("07_occupancy.2", two_chains_kernel)

# %% exercise-3
def blocks_by_registers(registers, warps):
    # --- your code (about 3 lines)
    per_warp = -(-32 * registers // 256) * 256  # whole units
    on_sm = 4 * (16384 // per_warp)  # each SMSP serves its own warps
    return on_sm // warps
    # --- end

check("07_occupancy.3", blocks_by_registers)

# %% exercise-4
def warps_for_memory(gb_per_s, latency_ns, smsps):
    # --- your code (about 2 lines)
    on_their_way = gb_per_s / 2 * latency_ns  # GB/s x ns = bytes
    return math.ceil(on_their_way / (128 * smsps))
    # --- end

check("07_occupancy.4", warps_for_memory)
