"""Lesson 11: the model of copies and kernels, timelines drawn from events, the widget."""

import sys

import pandas as pd
import pytest
from notebook_runs import read

from figures import streams
from figures.style import new
from helpers import results
from helpers.experiments import experiment
from helpers.lesson import sweep
from helpers.lesson.store import NOTEBOOKS
from helpers.lesson.try_first import try_first
from helpers.timeline import Span, estimate, schedule, served_in_turn


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
    for bad in ((0, 1, 1), (2, -1, 1), (2.5, 1, 1), (2, float("nan"), 1), (2, 1, float("inf")), ("2", 1, 1), (2, None, 1)):
        for model in (schedule, estimate):
            with pytest.raises(ValueError, match="at least one chunk"):
                model(*bad)
    assert schedule(2.0, 1, 1) == schedule(2, 1, 1) and estimate(2.0, 1, 1) == 1.5


# ------------------------------------------------------------------------------------------------ measured timelines


def events(spans, chunks_at_once=True):
    """What events would say of these spans: a stream's first event fires as soon as the stream is reached."""
    return [[s.engine, s.chunk, 70.0 if chunks_at_once and s.engine == "copy in" else s.start + 70, s.end + 70] for s in spans]


def overlap_rows():
    rows = []
    for rounds, kernel in ((1, 4000), (2, 6000)):
        for chunks in (1, 2, 4):
            for variant, copy in ((streams.STREAMS, 5000), (streams.ONE_STREAM, 5000), (streams.PAGEABLE, 30000)):
                spans = schedule(chunks, copy, kernel, overlap=variant != streams.ONE_STREAM)
                took = max(s.end for s in spans)
                rows.append({"variant": variant, "rounds": rounds, "chunks": chunks, "time_us": 1.05 * took, "copy_us": copy,
                             "kernel_us": kernel, "estimate_us": took, "timeline": events(spans, variant != streams.ONE_STREAM)})
    return pd.DataFrame(rows)


def four_chunks():
    rows = overlap_rows()
    return rows[(rows["rounds"] == 2) & (rows["chunks"] == 4)]


def test_waiting_for_an_engine_is_no_work():
    for copy, kernel in ((5000, 6000), (6000, 5000)):
        true = schedule(4, copy, kernel)
        seen = [Span(engine, chunk, start, end) for engine, chunk, start, end in events(true)]
        assert max(s.end - s.start for s in seen) > 1.5 * copy / 4
        served = served_in_turn(seen)
        assert sorted((s.engine, s.chunk) for s in served) == sorted((s.engine, s.chunk) for s in true)
        for s in served:
            assert s.end - s.start == pytest.approx((copy if s.engine == "copy in" else kernel) / 4)


def test_spans_that_follow_each_other_stay_as_they_are():
    spans = schedule(3, 8, 10, overlap=False)
    assert served_in_turn(spans) == sorted(spans, key=lambda s: s.end)


def test_measured_timelines_are_drawn_from_their_first_span():
    rows = four_chunks()
    spans = streams.spans_of(rows.iloc[0])
    assert spans[0] == Span("copy in", 0, 0.0, 1.25) and max(s.end for s in spans) == pytest.approx(7.25)
    picture = streams.show_measured_timelines(rows)
    assert "pinned, a stream each: 7.2 ms, pinned, one stream: 11.0 ms, pageable" in picture.alt


def test_a_timeline_draws_every_span_as_long_as_it_took():
    fig, ax = new()
    spans = schedule(4, 8, 10, 4)
    streams.draw_timeline(ax, spans)
    bars = sorted((round(p.get_x(), 6), round(p.get_width(), 6)) for p in ax.patches)
    assert bars == sorted((round(s.start, 6), round(s.end - s.start, 6)) for s in spans)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["copy out", "kernel", "copy in"]


def test_the_overlap_figure_draws_times_and_estimates():
    rows = overlap_rows()
    picture = streams.show_overlap(rows)
    assert "copy 5.0 and kernel 6.0 ms: 11.6 ms in 1 chunk, 7.6 ms in 4, estimated 7.2" in picture.alt
    fig, ax = new()
    streams.draw_overlap(ax, rows[rows["rounds"] == 2])
    lines = {line.get_label(): list(line.get_ydata()) for line in ax.lines}
    assert lines[streams.STREAMS] == pytest.approx([11.55, 8.925, 7.6125])
    assert lines["estimate for streams"] == pytest.approx([11.0, 8.5, 7.25])
    assert any("33 to 38 ms" in t.get_text() for t in ax.texts), "pageable times are off the scale and written down"
    yours = rows[rows["variant"] == streams.STREAMS].assign(variant="yours")
    fig, ax = new()
    streams.draw_overlap(ax, pd.concat([rows, yours]))
    assert "yours" in {line.get_label() for line in ax.lines}


def test_copies_say_what_they_draw():
    rows = [{"variant": v, "direction": d, "n": n, "bandwidth_gb_per_s": r * n / 2**26}
            for v, r in (("pinned", 55.0), ("pageable", 8.0)) for d in ("to the GPU", "to the host") for n in (2**20, 2**26)]
    assert streams.show_copies(pd.DataFrame(rows)).alt == ("Copy rates of 256 MiB in GB/s, to the GPU: pinned 55.0, pageable 8.0; "
                                                           "to the host: pinned 55.0, pageable 8.0.")


# ------------------------------------------------------------------------------------------------ as recorded


def test_recorded_overlap_is_what_was_estimated():
    rows = results.recorded("copy_compute_overlap", variants=streams.STREAMS)
    assert sorted(rows["chunks"].unique()) == [1, 2, 4, 8, 16]
    assert ((rows["time_us"] / rows["estimate_us"] - 1).abs() < 0.15).all()


def test_recorded_timelines_show_one_copy_at_a_time():
    for _, row in results.recorded("copy_compute_overlap").iterrows():
        spans = streams.spans_of(row)
        assert len(spans) == 2 * row["chunks"]
        copies = [s.end - s.start for s in spans if s.engine == "copy in"]
        assert 0.9 * row["copy_us"] < 1e3 * sum(copies) < 1.3 * row["copy_us"], "the copies together take one copy's time"


def test_recorded_early_read_was_too_early():
    rows = results.recorded("early_read").set_index("variant")
    assert rows["read_at_once"]["pinned"] == -1 and (rows["read_after_waiting"] == rows["right"]).all()


def test_what_was_expected_beside_what_was_found():
    table = try_first(results.recorded("copy_compute_overlap"))
    assert len(table) == 8 and all(isinstance(row["as expected"], bool) for row in table)
    assert [row["vary"] for row in table if not row["as expected"]] == ["block size 32 to 1024"]
    assert table[0]["found"] == "4, 8, 16, 32, 32 counted"
    slower = results.recorded("copy_compute_overlap").assign(time_us=lambda rows: 1.3 * rows["time_us"])
    assert not try_first(slower)[-1]["as expected"]


def test_a_reader_can_run_the_last_column():
    cells = [cell.source for cell in read(NOTEBOOKS / "11_streams.ipynb").cells if cell.cell_type == "code"]
    names = {}
    for source in (cells[0], next(source for source in cells if "any line of the last column" in source)):
        exec("\n".join(line for line in source.splitlines() if "import" in line), names)
    for row in try_first(results.recorded("copy_compute_overlap")):
        assert eval(row["run it yourself"], names) is not None, row


def test_what_was_found_where_variants_are_measured_that_nobody_recorded(monkeypatch):
    def live(name, variants=None, **parameters):
        rows = results.recorded(name, variants=variants, **parameters)
        new = [] if variants else sorted(set(experiment.get(name).variants) - set(rows["variant"]))
        first = rows[rows["variant"] == rows["variant"].iloc[0]]
        return pd.concat([rows, *(first.assign(variant=variant) for variant in new)])

    monkeypatch.setattr(sys.modules["helpers.lesson.try_first"], "measure", live)
    assert all(isinstance(row["as expected"], bool) for row in try_first(results.recorded("copy_compute_overlap")))


# ------------------------------------------------------------------------------------------------ widgets


def test_the_widgets_over_their_controls():
    controls = streams.SCHEDULE_CONTROLS
    lengths = {name: controls[name] for name in ("copy_ms", "kernel_ms")}  # apart from the rest: fewer corners to draw
    others = {name: control for name, control in controls.items() if name not in lengths}
    assert sweep(streams.schedule_view, others) + sweep(streams.schedule_view, lengths) >= 20


def test_every_timeline_of_the_widget_is_recorded():
    rows = results.recorded("copy_compute_overlap")
    choices, _ = streams.TIMELINE_CONTROLS["chunks"]
    for chunks in choices:
        for rounds in rows["rounds"].unique():
            some = rows[(rows["chunks"] == chunks) & (rows["rounds"] == rounds)]
            assert list(some["variant"]) == [streams.STREAMS, streams.ONE_STREAM, streams.PAGEABLE]
    assert f"timelines of {chunks} chunk" in streams.show_measured_timelines(some).alt
