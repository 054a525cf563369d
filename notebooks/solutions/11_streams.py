"""Solutions of lesson 11. Each cell replaces the notebook's cell with the same tag; the tests run them."""

# %% exercise-1
def chunks_needed(t, e, slack):
    # --- your code (about 3 lines)
    n = 1
    while estimate(n, t, e) > (1 + slack) * max(t, e):
        n += 1
    return n
    # --- end

check("11_streams.1", chunks_needed)

# %% exercise-2
def best_chunks(t, e, cost):
    # --- your code (about 2 lines)
    # near sqrt(min(t, e) / cost), where one more chunk saves as much as it costs
    return min(range(1, 65), key=lambda n: max(t, e) + min(t, e) / n + n * cost)
    # --- end

check("11_streams.2", best_chunks)

# %% exercise-3
def time_with_copy_back(n, t, e, back):
    # --- your code (about 3 lines)
    slowest = max(t, e, back)
    others = t + e + back - slowest  # one chunk of each of them is not hidden
    return slowest + others / n
    # --- end

check("11_streams.3", time_with_copy_back)
