"""The systolic array: values against numpy, cycles and utilisation against the formula, registers by hand."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import facts
from helpers.systolic import WEIGHT_LOADS, SystolicArray, predicted_cycles, predicted_utilisation


def integers(m, k, n, seed=0):
    """Two random integer matrices without zeros, so that no lost product can go unnoticed."""
    rng = np.random.default_rng(seed)
    x, w = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
    return np.where(x == 0, 127, x), np.where(w == 0, -127, w)


# ------------------------------------------------------------------------------------------------ values and counts

size, array_size = st.integers(1, 256), st.integers(1, 128)


@given(m=size, k=size, n=size, rows=array_size, cols=array_size, weight_load=st.sampled_from(WEIGHT_LOADS))
@settings(max_examples=25, deadline=None)
def test_any_size_on_any_array(m, k, n, rows, cols, weight_load):
    x, w = integers(m, k, n)
    values, cycles, utilisation = run = SystolicArray(rows, cols).run(x, w, weight_load=weight_load)
    assert values.dtype == np.int64 and np.array_equal(values, x @ w)
    assert cycles == predicted_cycles(m, k, n, rows, cols, weight_load) == len(run.macs_per_cycle)
    assert run.macs_per_cycle.sum() == m * k * n
    assert run.macs_per_cycle.max() <= rows * cols
    assert utilisation == pytest.approx(predicted_utilisation(m, k, n, rows, cols, weight_load), rel=1e-12)


@given(m=st.integers(1, 9), k=st.integers(1, 9), n=st.integers(1, 9), rows=st.integers(1, 5), cols=st.integers(1, 5),
       weight_load=st.sampled_from(WEIGHT_LOADS))
@settings(max_examples=60, deadline=None)
def test_small_sizes(m, k, n, rows, cols, weight_load):
    """Stretches of tiles that step side by side give what one array gives, tile after tile."""
    x, w = integers(m, k, n)
    array = SystolicArray(rows, cols)
    run = array.run(x, w, weight_load=weight_load)
    states = list(array.steps(x, w, weight_load=weight_load))
    counted = states if weight_load == "exposed" else states[rows:]
    assert np.array_equal(run.values, x @ w) and np.array_equal(states[-1].values, x @ w)
    assert run.cycles == len(counted) == predicted_cycles(m, k, n, rows, cols, weight_load)
    assert run.macs_per_cycle.tolist() == [state.active.sum() for state in counted]


@pytest.mark.parametrize("m, k, n, rows, cols", [
    (256, 256, 256, 128, 128), (256, 256, 256, 16, 128), (1, 1, 1, 1, 1), (256, 1, 1, 1, 1), (1, 1, 1, 128, 128),
    (40, 33, 35, 1, 1), (1, 1, 128, 1, 128), (1, 128, 1, 128, 1), (256, 129, 127, 128, 128),
])
def test_corners(m, k, n, rows, cols):
    x, w = integers(m, k, n)
    run = SystolicArray(rows, cols).run(x, w)
    assert np.array_equal(run.values, x @ w)
    assert run.cycles == predicted_cycles(m, k, n, rows, cols)


# Utilisation of 128 x 128 cells for M rows, as published in tables of this kind, to a tenth of a percent.
@pytest.mark.parametrize("m, cycles, hidden, exposed", [
    (8, 262, 3.1, 2.1), (128, 382, 33.5, 25.1), (512, 766, 66.8, 57.3), (4096, 4350, 94.2, 91.5),
])
def test_utilisation_of_a_tpu_sized_array(m, cycles, hidden, exposed):
    x, w = integers(m, 128, 128)
    run = SystolicArray(128, 128).run(x, w)
    assert np.array_equal(run.values, x @ w)
    assert run.cycles == cycles == m + 254
    assert round(100 * run.utilisation, 1) == hidden
    waited = SystolicArray(128, 128).run(x, w, weight_load="exposed")
    assert waited.cycles == m + 254 + 128
    assert round(100 * waited.utilisation, 1) == exposed


def test_every_cell_works_from_255_rows_on():
    array = SystolicArray(128, 128)
    assert array.run(*integers(255, 128, 128)).macs_per_cycle.max() == 16_384
    assert array.run(*integers(254, 128, 128)).macs_per_cycle.max() < 16_384
    full = array.run(*integers(512, 128, 128)).macs_per_cycle == 16_384
    assert full.sum() == 512 - 254


def test_back_to_back_tiles_fill_and_drain_once():
    x, w = integers(200, 256, 384)  # 2 x 3 tiles
    run = SystolicArray(128, 128).run(x, w)
    assert run.cycles == 6 * 200 + 254
    assert (run.macs_per_cycle[254:-254] == 16_384).all()
    alone = SystolicArray(128, 128).run(x, w, weight_load="exposed")
    assert alone.cycles == 6 * (128 + 200 + 254)


def test_few_rows_cannot_hide_the_load_of_the_next_weights():
    run = SystolicArray(128, 128).run(*integers(8, 128, 256))
    assert run.cycles == 128 + 8 + 254


@pytest.mark.parametrize("n", [1, 64, 127, 128, 129, 192, 256, 257])
def test_off_multiples_of_the_array(n):
    x, w = integers(300, 128, n)
    run = SystolicArray(128, 128).run(x, w)
    assert np.array_equal(run.values, x @ w)
    assert run.utilisation == pytest.approx(predicted_utilisation(300, 128, n, 128, 128), rel=1e-12)


def test_speed():
    x, w = integers(512, 128, 128)
    began = time.perf_counter()
    SystolicArray(128, 128).run(x, w)
    assert time.perf_counter() - began < 2


def test_floats_and_special_values():
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((40, 50)).astype(np.float32), rng.standard_normal((50, 30)).astype(np.float32)
    run = SystolicArray(16, 8).run(x, w)
    np.testing.assert_allclose(run.values, x.astype(float) @ w.astype(float), rtol=1e-12, atol=1e-12)
    x[3, 4], w[7, 7], w[1, 2] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = x.astype(float) @ w.astype(float)
    np.testing.assert_allclose(SystolicArray(16, 8).run(x, w).values, expected, rtol=1e-12, atol=1e-12)


def test_large_integers_stay_exact():
    x, w = np.full((2, 2), 2**30 + 1), np.full((2, 3), 2**30 - 1, dtype=np.uint64)
    assert SystolicArray(2, 2).run(x, w).values.tolist() == [[2 * (2**60 - 1)] * 3] * 2


# ------------------------------------------------------------------------------------------------ registers


def test_registers_cycle_by_cycle():
    """x[i, r] is in cell (r, c) in cycle i + r + c, where the sum over rows 0..r of y[i, c] is formed."""
    m, rows, cols = 5, 4, 3
    x, w = integers(m, rows, cols)
    left = {}
    for state in SystolicArray(rows, cols).steps(x, w):
        for r in range(rows):
            for c in range(cols):
                i = state.cycle - r - c
                assert state.active[r, c] == (0 <= i < m)
                if 0 <= i < m:
                    assert (state.x[r, c], state.x_row[r, c]) == (x[i, r], i)
                    assert state.weights[r, c] == w[r, c]
                    assert state.sums[r, c] == x[i, : r + 1] @ w[: r + 1, c]
        left |= {pair: state.cycle for pair in state.leaving}
    assert left == {(i, c): i + rows - 1 + c for i in range(m) for c in range(cols)}


def test_weights_move_in_from_above():
    x, w = integers(1, 3, 2)
    states = list(SystolicArray(3, 2).steps(x, w, weight_load="exposed"))
    assert [state.cycle for state in states[:3]] == [-3, -2, -1]
    assert states[0].waiting[:, 0].tolist() == [w[2, 0], 0, 0]
    assert states[2].waiting[:, 0].tolist() == w[:, 0].tolist()
    assert states[3].waiting[:, 1].tolist() == w[:, 1].tolist()  # column 1 is a cycle later, as its x is
    assert not any(state.active.any() for state in states[:3])


def test_each_cell_changes_its_weight_with_the_wave():
    """Two tiles back to back: in a cycle between, some cells still work with the first tile's weights."""
    x, w = integers(6, 3, 6)
    mixed = {state.cycle: state.weights for state in SystolicArray(3, 3).steps(x, w)}[6 + 2]
    for r in range(3):
        for c in range(3):
            assert mixed[r, c] == w[r, c + 3 * (r + c <= 2)]


def test_without_the_skew_the_product_is_wrong():
    x, w = integers(6, 4, 4)
    array = SystolicArray(4, 4)
    straight = array.run(x, w, skew=False).values
    assert straight.shape == (6, 4) and not np.array_equal(straight, x @ w)
    # What came out: row i mixes the last four rows of x, one column of each.
    for i in range(6):
        mixed = [x[i - 3 + r, r] if i - 3 + r >= 0 else 0 for r in range(4)]
        assert straight[i].tolist() == (np.array(mixed) @ w).tolist()


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("rows, cols, error, message", [
    (0, 4, ValueError, "rows = 0"), (4, -1, ValueError, "cols = -1"),
    (2.0, 4, TypeError, "rows .* got 2.0"), (4, True, TypeError, "cols .* got True"), (10**9, 4, ValueError, "too large to step through"), ("4", 4, TypeError, "got '4'"),
])
def test_bad_arrays(rows, cols, error, message):
    with pytest.raises(error, match=message):
        SystolicArray(rows, cols)


ones = np.ones


@pytest.mark.parametrize("x, w, error, message", [
    (ones((2, 3)), ones((4, 2)), ValueError, "x has 3 columns but w has 4 rows"),
    (ones(3), ones((3, 2)), ValueError, r"x must be a matrix .* got shape \(3,\)"),
    (ones((2, 3)), ones((3, 2, 1)), ValueError, r"w must be a matrix .* got shape \(3, 2, 1\)"),
    (ones((0, 3)), ones((3, 2)), ValueError, r"at least one row and column, got shape \(0, 3\)"),
    (ones((2, 3), complex), ones((3, 2)), TypeError, "x must hold integers or floats, got complex128"),
    (ones((2, 3), bool), ones((3, 2), int), TypeError, "got bool"),
    (ones((2, 3)), [["1"], ["2"], ["3"]], TypeError, "w must hold integers or floats"),
    (ones((2, 3)), ones((3, 2), int), TypeError, "both integer or both float, got float64 and int64"),
    (np.full((1, 3), 2**32), np.full((3, 1), 2**31), ValueError, "too much for int64"),
    (np.full((1, 1), 2**63, np.uint64), ones((1, 1), int), ValueError, "too much for int64"),
])
def test_bad_matrices(x, w, error, message):
    with pytest.raises(error, match=message):
        SystolicArray(4, 4).run(x, w)
    with pytest.raises(error, match=message):
        next(SystolicArray(4, 4).steps(x, w))


def test_tensors_of_torch():
    x, w = torch.randn(5, 4), torch.randn(4, 3)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8):
        a, b = (10 * x).abs().to(dtype), (10 * w).abs().to(dtype)
        assert (SystolicArray(4, 3).run(a, b).values == a.double().numpy() @ b.double().numpy()).all()
        assert (SystolicArray(4, 3).run(a, b).values > 0).any()
    with pytest.raises(ValueError, match="w requires grad, .* pass w.detach"):
        SystolicArray(4, 3).run(x, w.requires_grad_())


def test_unknown_weight_load():
    with pytest.raises(ValueError, match="weight_load must be one of hidden, exposed, got 'free'"):
        SystolicArray(4, 4).run(ones((2, 4)), ones((4, 4)), weight_load="free")


# ------------------------------------------------------------------------------------------------ against the facts


def test_the_simulated_array_is_the_mxu_of_v5p():
    v5p = {name: fact.value for name, fact in facts.tpu("v5p").items()}
    array = SystolicArray(v5p["mxu_rows"], v5p["mxu_columns"])
    run = array.run(*integers(512, array.rows, array.cols))
    steady = run.macs_per_cycle.max()
    arrays = v5p["cores"] * v5p["mxus_per_core"]
    assert 2 * steady * arrays * v5p["clock_mhz"] * 1e6 == pytest.approx(v5p["bf16_tflops"] * 1e12, rel=0.002)
    rows_per_cycle = 8 / v5p["cycles_for_8_rows"]
    assert run.cycles - 254 == 512 / rows_per_cycle


def test_weight_shift_of_tpu_v1():
    v1 = {name: fact.value for name, fact in facts.tpu("v1").items()}
    x, w = integers(1, 256, 256)
    array = SystolicArray(v1["mxu_rows"], v1["mxu_columns"])
    cost = array.run(x, w, weight_load="exposed").cycles - array.run(x, w).cycles
    assert cost == v1["weight_shift_cycles"]
