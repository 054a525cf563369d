"""The roofline: its arithmetic, the kernels placed on it, and the growth of Fig 1-1."""

import math

import pandas as pd
import pytest

from helpers import facts, results
from helpers.roofline import attainable_tflops, fitted, growth, operations
from helpers.specs import gpu, products


def test_the_ridge_of_the_5090():
    card = gpu("RTX 5090")
    assert int(card.ridge()) == results.published("ridge_5090")["value"] == 58
    assert attainable_tflops(card, card.ridge()) == pytest.approx(104.8)
    assert attainable_tflops(card, 1.0) == pytest.approx(1.792)
    assert attainable_tflops(card, 1000.0) == 104.8


@pytest.mark.parametrize("spec", products(), ids=lambda spec: spec.name)
def test_the_lower_of_two_limits(spec):
    for intensity in (2.0**-5, spec.ridge() * 0.99, spec.ridge() * 1.01, 2.0**11):
        by_memory, by_peak = intensity * spec.bandwidth_gb_per_s / 1e3, spec.fp32_tflops
        assert attainable_tflops(spec, intensity) == min(by_memory, by_peak)
        assert (by_memory < by_peak) == (intensity < spec.ridge())


@pytest.mark.parametrize("intensity", [0, -1, math.nan, math.inf])
def test_impossible_intensities(intensity):
    with pytest.raises(ValueError, match="positive number of FLOP/B"):
        attainable_tflops(gpu("H200"), intensity)


def test_an_unknown_peak_is_refused():
    with pytest.raises(ValueError, match="T4: its bf16 peak or its bandwidth is not known"):
        attainable_tflops(gpu("T4"), 1.0, "bf16")


def test_the_courses_kernels_on_it():
    at = {operation.name: operation.intensity for operation in operations()}
    assert at["vector add"] == pytest.approx(1 / 12)
    assert at["row sum"] == pytest.approx(0.25, rel=1e-3)
    assert at["FMA chain, 64"] == 16 and at["FMA chain, 512"] == 128
    assert at["matmul, 4096"] == pytest.approx(2 * 4096**3 / (3 * 4096**2 * 4), rel=1e-3)
    assert list(at.values()) == sorted(at.values())
    ridge = gpu("RTX 5090").ridge()
    assert {name for name, intensity in at.items() if intensity > ridge} == {"FMA chain, 512", "matmul, 4096"}


def test_growth_is_that_of_the_series():
    years = [2000.0, 2003.0, 2010.0, 2020.0]
    points = pd.DataFrame({"year": years, "normalised": [3 ** ((year - 2000) / 2) for year in years]})
    assert growth(points) == pytest.approx(3) and growth(points, 20) == pytest.approx(59049)
    assert fitted(points, [2000.0, 2002.0]) == pytest.approx([1, 3])
    assert growth(points.assign(normalised=points["normalised"] * 7)) == pytest.approx(3)  # whatever the first machine


def test_growth_of_the_memory_wall():
    points, source = facts.memory_wall()
    for series, printed in source["printed_growth_per_two_years"].items():
        rate = growth(points[points["series"] == series])
        assert round(rate, 1) == printed
        assert rate**10 == pytest.approx(source["printed_growth_in_twenty_years"][series], rel=0.1)
