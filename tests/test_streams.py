"""Lesson 11: the model of copies and kernels, timelines drawn from events, the widget."""

import pandas as pd
import pytest

from figures import streams
from helpers.lesson import sweep
from helpers.timeline import Span, estimate, schedule


@pytest.mark.parametrize("chunks", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("copy, kernel", [(8, 10), (10, 8), (5, 5), (1, 16)])
def test_the_estimate_is_what_the_model_takes(chunks, copy, kernel):
    spans = schedule(chunks, copy, kernel)
    assert max(s.end for s in spans) == pytest.approx(estimate(chunks, copy, kernel))
    assert max(s.end for s in schedule(chunks, copy, kernel, overlap=False)) == pytest.approx(copy + kernel)


@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("overlap", [True, False])
def test_the_model_keeps_its_rules(engines, overlap):
    spans = schedule(5, 8, 10, 6, copy_engines=engines, overlap=overlap)
    assert len(spans) == 15 and sum(s.end - s.start for s in spans) == pytest.approx(24)
    for chunk in range(5):
        steps = sorted((s for s in spans if s.chunk == chunk), key=lambda s: s.start)
        assert [s.engine for s in steps] == ["copy in", "kernel", "copy out"]
        assert all(a.end <= b.start + 1e-9 for a, b in zip(steps, steps[1:], strict=False))
    shared = [["copy in", "copy out"], ["kernel"]] if engines == 1 else [["copy in"], ["copy out"], ["kernel"]]
    for group in shared:
        busy = sorted((s for s in spans if s.engine in group), key=lambda s: s.start)
        assert all(a.end <= b.start + 1e-9 for a, b in zip(busy, busy[1:], strict=False)), f"{group} does two at once"


def test_the_model_refuses_nonsense():
    for bad in ((0, 1, 1), (2, -1, 1)):
        with pytest.raises(ValueError, match="at least one chunk"):
            schedule(*bad)


def overlap_rows():
    rows = []
    for variant, slower in (("pinned, a stream each", 1.0), ("pinned, one stream", 1.5)):
        for chunks in (1, 2, 4):
            spans = schedule(chunks, 5000, 6000)
            rows.append({"variant": variant, "chunks": chunks, "time_us": slower * estimate(chunks, 5000, 6000),
                         "estimate_us": estimate(chunks, 5000, 6000),
                         "timeline": [[s.engine, s.chunk, s.start + 70, s.end + 70] for s in spans]})
    return pd.DataFrame(rows)


def test_measured_timelines_are_drawn_from_their_first_span():
    rows = overlap_rows()
    spans = streams.spans_of(rows.iloc[2])
    assert spans[0] == Span("copy in", 0, 0.0, 1.25) and max(s.end for s in spans) == pytest.approx(7.25)
    assert "7.2 ms" in streams.show_measured_timelines(rows[rows["chunks"] == 4]).alt
    assert "11.0 ms in 1 chunk" in streams.show_overlap(rows).alt


def test_the_widget_over_its_controls():
    controls = streams.SCHEDULE_CONTROLS
    lengths = {name: controls[name] for name in ("copy_ms", "kernel_ms")}  # apart from the rest: fewer corners to draw
    others = {name: control for name, control in controls.items() if name not in lengths}
    assert sweep(streams.schedule_view, others) + sweep(streams.schedule_view, lengths) >= 20
