"""The figures' common ground, and those of lesson 03: what is drawn is the data, and no picture can hide a change."""

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from figures import gelu, style
from figures.style import Picture, drawn_fingerprint, new
from helpers import results
from helpers.lesson import sweep


def picture(values=(1.0, 2.0, 3.0), alt="Three values that rise from one to three", **kw):
    fig, ax = new()
    ax.plot(range(len(values)), values)
    ax.set(title=kw.get("title", "t"), xlabel="n (elements)", ylabel="GB/s")
    return Picture(fig, alt, "recorded · NVIDIA H200 · 2026-11-30")


def test_alt_text_and_picture_are_in_the_bundle():
    shown = picture(alt='It says "more" & <less> of five words')._repr_mimebundle_()
    assert 'alt="It says &quot;more&quot; &amp; &lt;less&gt; of five words"' in shown["text/html"]
    assert shown["text/plain"].startswith('It says "more"') and "recorded · NVIDIA H200" in shown["text/plain"]


def test_a_picture_without_alt_text_is_refused():
    with pytest.raises(ValueError, match="alt text"):
        picture(alt="  ")


def test_the_mark_changes_with_the_data_and_only_then():
    same = picture((1.0, 2.0, 3.0)), picture((1.0, 2.0, 3.0 + 1e-12))
    assert same[0].fingerprint == same[1].fingerprint
    assert picture((1.0, 2.0, 3.1)).fingerprint != same[0].fingerprint
    fig, ax = new()
    ax.bar([1, 2], [3, 4])
    other, bx = new()
    bx.bar([1, 2], [3, 5])
    assert drawn_fingerprint(fig) != drawn_fingerprint(other)


def test_nothing_stays_open_and_missing_glyphs_are_spelled():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(30):
            shown = picture(title="中文")
    assert len(shown.png) > 5000
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


def test_the_page_behind_does_not_show_through():
    """Opaque white corners, so that axes and text are readable on a dark page."""
    import matplotlib.image

    pixels = matplotlib.image.imread(io.BytesIO(picture().png))
    assert pixels.shape[2] == 3 or (pixels[..., 3] == 1).all()
    assert (pixels[0, 0, :3] == 1).all()


def test_pictures_are_small_and_look_the_same():
    """Few colours: at most half of the bytes, and no pixel visibly off (sixteen steps of 256, at blended edges)."""
    data, pair = results.recorded("gelu_sizes"), (new(), new())
    for _, ax in pair:
        gelu.draw_bandwidth(ax, data, 4800)
    full, (fig, _) = io.BytesIO(), pair[0]
    fig.savefig(full, format="png", facecolor="white")
    shown = Picture(pair[1][0], "GELU's bandwidth over n").png
    assert len(shown) < len(full.getvalue()) / 2
    before, after = (np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int) for png in (full.getvalue(), shown))
    assert np.abs(before - after).max() <= 16


@pytest.mark.parametrize("backend", ["module://no_such_backend_here", "Qt4Agg"])
def test_an_inherited_backend_does_no_harm(backend):
    """One whose module is missing, and one that matplotlib does not know (any more)."""
    environment = os.environ | {"MPLBACKEND": backend}
    done = subprocess.run([sys.executable, "-c", "import figures.gelu as g; g.show_programs(10, 4)"], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_programs_figure_says_what_it_draws():
    fig = Figure()
    ax = gelu.draw_programs(fig.subplots(), 10_000, 1024)
    texts = " ".join(t.get_text() for t in ax.texts)
    assert "grid of 10 programs" in texts and "masked: 240" in texts
    assert gelu.programs_alt(10_000, 1024) == (
        "10,000 elements cut into 10 programs of 1,024; the last program has 240 masked elements.")
    assert "masked" not in " ".join(t.get_text() for t in gelu.draw_programs(Figure().subplots(), 4096, 1024).texts)


def test_bandwidth_figure_draws_the_table():
    data = results.recorded("gelu_sizes")
    ax = gelu.draw_bandwidth(Figure().subplots(), data, 4800)
    for line in ax.lines:
        if line.get_label() in set(data["variant"]):
            rows = data[data["variant"] == line.get_label()].sort_values("n")
            assert list(line.get_xdata()) == list(rows["n"])
            np.testing.assert_allclose(line.get_ydata(), rows["bandwidth_gb_per_s"].astype(float))
    assert {line.get_label() for line in ax.lines} >= set(data["variant"]) and ax.get_ylim()[0] == 0


def test_launch_facts():
    facts = gelu.launch_facts(10_000, 1024, 4, 170)
    assert facts["programs"] == 10 and facts["elements_per_thread"] == 8 and facts["masked_elements"] == 240
    assert gelu.launch_facts(1024, 1024, 8, 170)["masked_elements"] == 0


def test_launch_widget_over_its_range():
    calls = sweep(lambda n, block, num_warps: pd.DataFrame([gelu.launch_facts(n, block, num_warps, 170)]),
                  gelu.LAUNCH_CONTROLS)
    assert calls >= 20
    for n in gelu.LAUNCH_CONTROLS["n"][0]:
        assert gelu.show_programs(n, 128).png


def test_roles_can_be_told_apart():
    assert len(set(style.ROLE.values())) >= 7 and all(c.startswith("#") and len(c) == 7 for c in style.ROLE.values())
