"""Samples to rows, recordings, and what measuring refuses: all without a GPU."""

import json
import math
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import measure, mode, record, results, samples, specs
from helpers.experiments import experiment
from helpers.experiments.experiment import Run, product

H200 = specs.gpu("H200 SXM")


def test_median_and_spread():
    timing = samples.summarise([3.0, 1.0, 2.0, 4.0, 5.0])
    assert (timing.median, timing.p20, timing.p80) == (3.0, 1.8, 4.2)
    assert timing.samples == (3.0, 1.0, 2.0, 4.0, 5.0)


def test_two_clock_speeds_are_unstable():
    timing = samples.summarise([1.00] * 50 + [1.25] * 50)
    assert timing.flags == ("unstable",) and 1.0 <= timing.median <= 1.25 and timing.p20 == 1.0 and timing.p80 == 1.25
    assert samples.summarise([1.00] * 50 + [1.01] * 50).flags == ()


def test_one_sample_has_no_nan_spread():
    timing = samples.summarise([1.0])
    assert timing.p20 == timing.p80 == timing.median == 1.0


@pytest.mark.parametrize("wrong", [[], [float("nan")], [1.0, float("inf")], [-1.0]])
def test_samples_that_are_none(wrong):
    with pytest.raises(ValueError):
        samples.summarise(wrong)


def test_rates_and_their_units():
    assert samples.bandwidth_gb_per_s(1e9, 1e6) == 1.0  # 1e9 bytes in a second
    assert samples.tflops(2e12, 1e6) == 2.0
    assert samples.bandwidth_gb_per_s(2**30, 1e6) == pytest.approx(1.073741824)  # GB are 1e9 bytes, not GiB


@pytest.mark.parametrize("time", [0.0, 0.1, 0.49, float("nan"), float("inf"), None])
def test_below_resolution_is_none_not_infinite(time):
    assert samples.bandwidth_gb_per_s(4096, time) is None and samples.tflops(4096, time) is None


@pytest.mark.parametrize("amount, time", [(-1, 5.0), (float("nan"), 5.0), (float("inf"), 5.0), (4096, -1.0)])
def test_impossible_amounts_and_times(amount, time):
    with pytest.raises(ValueError, match="negative"):
        samples.bandwidth_gb_per_s(amount, time)


@given(st.floats(0, allow_infinity=False), st.floats(0, 1e9))
def test_rates_are_always_finite(amount, time):
    rate = samples.bandwidth_gb_per_s(amount, time)
    assert rate is None or math.isfinite(rate)


def test_faster_than_memory_is_labelled():
    fast = samples.row_of([10.0] * 9, traffic_bytes=int(4801e9 * 10e-6), flops=0, spec=H200)
    slow = samples.row_of([10.0] * 9, traffic_bytes=int(4700e9 * 10e-6), flops=0, spec=H200)
    assert "from cache" in fast["flags"] and slow["flags"] == ""


def test_faster_than_arithmetic_is_refused():
    with pytest.raises(AssertionError, match="above the chip's peak"):
        samples.row_of([1.0] * 9, traffic_bytes=0, flops=int(1e12), spec=specs.gpu("RTX 5090"))


def test_below_resolution_row_has_no_rate():
    row = samples.row_of([0.0] * 3, traffic_bytes=100, flops=100, spec=H200)
    assert row["bandwidth_gb_per_s"] is None and row["tflops"] is None and row["flags"] == "below resolution"


# ------------------------------------------------------------------------------------------------ recordings


def small_recording():
    entry = {"date": "2026-11-30", "commit": "abc", "versions_line": "torch 2.11.0", "versions": {}, "rows": [
        {"variant": "a", "case": {"n": 8}, "samples_us": [2.0, 2.0, 2.2], "traffic_bytes": 64, "flops": 8},
        {"variant": "b", "case": {"n": 8}, "samples_us": [4.0], "traffic_bytes": 64, "flops": 8, "flags": "shared GPU"},
        {"variant": "a", "case": {"n": 16}, "values": {"max_error": 0.5}},
    ]}
    return {"machine": {"name": "NVIDIA H200"}, "experiments": {"toy": entry}}


@pytest.fixture
def recording(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RECORDED", tmp_path)
    results.save(small_recording(), tmp_path / "nvidia_h200.json")
    yield tmp_path / "nvidia_h200.json"
    results.load.cache_clear()


def test_recording_round_trip(recording):
    assert json.loads(recording.read_text()) == small_recording()
    table = results.recorded("toy")
    assert list(table["variant"]) == ["a", "b", "a"] and list(table["time_us"])[:2] == [2.0, 4.0]
    assert set(table["evidence"]) == {"recorded"} and set(table["machine"]) == {"NVIDIA H200"}
    assert table["flags"][1] == "shared GPU" and table["max_error"][2] == 0.5
    assert set(samples.MEASURED) <= set(results.recorded("toy", n=16).columns), "not timed, and the same columns"
    assert results.recorded("toy", variants="a", n=8)["bandwidth_gb_per_s"].item() == pytest.approx(0.032)


@pytest.mark.parametrize("call, message", [
    (lambda: results.recorded("other"), "not recorded .* recorded: toy"),
    (lambda: results.recorded("toy", variants="c"), "variant .*'c'.* recorded: .*'a', 'b'"),
    (lambda: results.recorded("toy", n=9), r"no case with n = \[9\]; there are \[8, 16\]"),
    (lambda: results.recorded("toy", m=9), "no parameter 'm'; it has n"),
    (lambda: results.recorded("toy", variants="b", n=16), "not recorded for"),
    (lambda: results.load("NVIDIA L40"), "no recording .* nvidia_h200"),
    (lambda: results.load(None), "no recording of None"),
    (lambda: results.load("../gpus"), "no recording"),
])
def test_what_was_not_recorded(recording, call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_numbers_never_reach_a_file(recording, wrong):
    data = small_recording()
    data["experiments"]["toy"]["rows"][2]["values"]["max_error"] = wrong
    before = recording.read_text()
    with pytest.raises(ValueError, match="finite"):
        results.save(data, recording)
    assert recording.read_text() == before and list(recording.parent.iterdir()) == [recording]
    with pytest.raises(ValueError, match="finite"):
        record.plain(wrong)


def test_a_damaged_recording_is_refused(recording):
    recording.write_text(recording.read_text().replace("2.2", "NaN"))
    results.load.cache_clear()
    with pytest.raises(ValueError, match="NaN"):
        results.recorded("toy")


@pytest.mark.parametrize("name", ["nvidia_h200", "NVIDIA H200", "H200", "H200 SXM", "h200-sxm"])
def test_a_recording_is_found_by_any_name_of_its_gpu(recording, name):
    assert len(results.recorded("toy", machine=name)) == 3


@pytest.mark.parametrize("content, message", [("", "damaged"), ('{"machine": {}, "experi', "damaged"), ("[]", "no experiments, machine"),
                                              ('{"machine": {}}', "no recording: it has no experiments"),
                                              ('{"machine": "H200", "experiments": {}}', "have no names"),
                                              ('{"machine": {"name": "H200"}, "experiments": []}', "have no names")])
def test_what_is_no_recording(recording, content, message):
    recording.write_text(content)
    results.load.cache_clear()
    with pytest.raises(ValueError, match=f"nvidia_h200.json .*{message}"):
        results.recorded("toy")


@pytest.mark.parametrize("path, message", [
    (["toy", "rows"], "toy has no rows"), (["toy", "date"], "toy has no date"), (["toy", "versions_line"], "toy has no versions_line"),
    (["toy", "rows", 0, "case"], "row 1 of toy has no case"), (["toy", "rows", 1, "variant"], "row 2 of toy has no variant"),
    (["toy", "rows", 1, "traffic_bytes"], "row 2 of toy has no traffic_bytes"),
    (["toy", "rows", 0, "samples_us"], "row 1 of toy has no samples and no values"),
])
def test_a_recording_that_lacks_something_says_what(recording, path, message):
    data = small_recording()
    inside = data["experiments"]
    for step in path[:-1]:
        inside = inside[step]
    del inside[path[-1]]
    recording.write_text(json.dumps(data))
    results.load.cache_clear()
    with pytest.raises(ValueError, match=f"nvidia_h200.json is no recording: {message}; make record"):
        results.recorded("toy")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"machine": {"name": "x"}, "experiments": {"toy": {}}}'])
def test_recording_again_mends_a_damaged_file(recording, monkeypatch, capsys, content):
    recording.write_text(content)
    for module, name, value in ((record.mode, "is_live", True), (record.measure, "machine_name", "NVIDIA H200"),
                                (record, "machine_facts", small_recording()["machine"])):
        monkeypatch.setattr(module, name, lambda value=value: value)
    monkeypatch.setattr(record, "entry_of", lambda name: small_recording()["experiments"]["toy"])
    assert record.main(["gelu_sizes", "--out", str(recording.parent)]) == 0
    assert "nvidia_h200.json is " in capsys.readouterr().out
    assert len(results.recorded("gelu_sizes")) == 3 and recording.with_suffix(".damaged").read_text() == content


def test_recording_an_unknown_lesson_or_experiment_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(record.mode, "is_live", lambda: True)
    assert record.main(["--lesson", "03_gleu"]) == 2 and "03_gelu, 04_softmax" in capsys.readouterr().out
    assert record.main(["gelu_size"]) == 2 and "unknown: gelu_size. There are: " in capsys.readouterr().out


def test_parameters_may_come_out_of_a_table(recording):
    table = results.recorded("toy")
    for wanted in (table["n"], table["n"].to_numpy(), table["n"].iloc[0]):
        assert len(results.recorded("toy", n=wanted)) == (3 if hasattr(wanted, "__len__") else 2)


def test_a_recorded_gpu_that_is_not_in_the_fact_sheet(recording):
    """Its driver's facts stand in the recording; peaks are unknown, so nothing is judged by another chip's."""
    data = small_recording()
    data["machine"] = {"name": "NVIDIA GeForce RTX 1", "compute_capability": "8.9", "sm_count": 46,
                       "memory_bytes": 12_281 * 2**20, "l2_bytes": 36 * 2**20}
    results.save(data, recording.parent / "nvidia_geforce_rtx_1.json")
    table = results.recorded("toy", machine="NVIDIA GeForce RTX 1", variants="a", n=8)
    assert table["machine"].item() == "NVIDIA GeForce RTX 1" and table["bandwidth_gb_per_s"].item() == pytest.approx(0.032)
    spec = results.gpu_of(results.load("nvidia_geforce_rtx_1"))
    assert (spec.sm_count, spec.cc, spec.bandwidth_gb_per_s) == (46, (8, 9), None)
    assert results.gpu_of(small_recording()) == H200


@pytest.mark.parametrize("path", sorted(results.RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_every_recorded_row_is_sound(path):
    """The shipped recordings: raw samples, a known experiment, this course's variants and cases, nothing impossible."""
    data = results.load(path.stem)
    spec = results.gpu_of(data)
    for name, entry in data["experiments"].items():
        found = experiment.get(name)
        assert {"date", "commit", "versions", "versions_line", "clocks_before"} <= set(entry), name
        assert "dirty" not in entry["commit"], f"{name} was recorded from uncommitted code"
        cases = found.cases(spec)
        for row in entry["rows"]:
            assert row["variant"] in found.variants, f"{name}: {row['variant']} no longer exists, record it again"
            assert row["case"] in cases, f"{name}: {row['case']} is no longer measured, record it again"
            assert row.get("samples_us") or row.get("values"), f"{name}: an empty row"
        table = results.recorded(name, machine=path.stem)
        assert len(table) == len(entry["rows"])
        assert {"experiment", "variant", *samples.MEASURED, *results.STAMP, *cases[0]} <= set(table.columns), name


def test_every_experiment_is_recorded():
    recorded = set(results.load()["experiments"])
    missing = set(experiment.all_experiments()) - recorded
    assert not missing, f"not recorded on {results.DEFAULT_MACHINE}: {sorted(missing)}; run make record there"


# ------------------------------------------------------------------------------------------------ experiments


def test_product():
    assert product(a=[1, 2], b=["x"]) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]


def test_a_timed_run_needs_a_check():
    with pytest.raises(ValueError, match="needs a check"):
        Run(call=lambda: None, check=None)


@pytest.mark.parametrize("value", [(64, 64, 32), None, torch.float16])
def test_parameters_are_what_a_recording_can_hold(value, monkeypatch):
    """Found out before anything is measured, not when a row of the recording is asked for."""
    monkeypatch.setattr(experiment, "_registry", {})
    for cases in (product(tile=["64x64x32", value]), lambda spec: product(tile=["64x64x32", value])):
        @experiment.experiment(lesson="99_toy", title="t", variants={"a": len}, cases=cases)
        def toy(variant, tile):
            return None

        with pytest.raises(TypeError, match="toy: tile = .*, but a parameter must be a number"):
            experiment.get("toy").cases(H200)


def test_unknown_experiment():
    with pytest.raises(ValueError, match="no experiment 'gelu'; there are .*gelu_sizes"):
        experiment.get("gelu")


@pytest.mark.skipif(mode.is_live(), reason="what happens without a GPU")
def test_timing_without_a_gpu_says_so():
    with pytest.raises(RuntimeError, match="needs a GPU"):
        measure.time_us(lambda: None)
    with pytest.raises(RuntimeError, match="needs a GPU"):
        measure.run_experiment("gelu_sizes")


def test_a_wrong_result_is_not_timed():
    def check(out):
        assert out == 3, f"got {out}"

    measure.check_on_poisoned(Run(lambda: 3, check), "toy")
    with pytest.raises(AssertionError, match="toy: wrong result, so it is not timed. got 4"):
        measure.check_on_poisoned(Run(lambda: 4, check), "toy")


@pytest.mark.parametrize("answer", [None, [1, 2], "text"])
def test_a_result_of_another_kind_is_a_wrong_result(answer):
    import torch

    run = Run(lambda: answer, lambda out: torch.testing.assert_close(out.double(), torch.zeros(1).double()))
    with pytest.raises(AssertionError, match="toy: wrong result, so it is not timed. .*(NoneType|list|str)"):
        measure.check_on_poisoned(run, "toy")


@pytest.mark.parametrize("variant", [torch.inference_mode()(torch.relu), lambda x: torch.nn.Parameter(torch.relu(x))])
def test_results_that_are_closed_to_changes_are_poisoned_all_the_same(variant):
    x = torch.randn(64)
    good = experiment.Run(lambda: variant(x), lambda out: torch.testing.assert_close(out.detach(), torch.relu(x)))
    measure.check_on_poisoned(good, "toy")
    with torch.inference_mode():
        kept = torch.relu(x)
    with pytest.raises(AssertionError, match="toy: wrong result"):
        measure.check_on_poisoned(experiment.Run(lambda: kept, good.check), "toy")


def test_what_is_not_written_is_a_wrong_result():
    import torch

    memory = torch.zeros(4)

    def half_written():
        memory[:2] = 1.0
        return memory

    run = Run(half_written, lambda out: torch.testing.assert_close(out, torch.tensor([1.0, 1.0, 0.0, 0.0])))
    run.check(run.call())  # by luck: the memory held zeros
    with pytest.raises(AssertionError, match="wrong result"):
        measure.check_on_poisoned(run, "toy")


@pytest.mark.parametrize("wrong", [3, "gelu", [len]])
def test_only_functions_are_measured(wrong):
    with pytest.raises(TypeError, match="only a function can be measured"):
        measure.measure("gelu_sizes", yours=wrong)
    with pytest.raises(TypeError, match="only a function can be measured"):
        measure.time_us(wrong)
    with pytest.raises(ValueError, match="samples must be 1 or more"):
        measure.time_us(len, samples=0)


@pytest.mark.parametrize("ms, samples", [(0.005, 36), (1.0, 36), (8.0, 36), (20.0, 15), (35.0, 12), (500.0, 12)])
def test_long_calls_are_timed_less_often(monkeypatch, ms, samples):
    """A lecture cannot wait: three rounds of a variant take some 0.3 s, unless four samples a round take longer."""
    def do_bench(fn, warmup, rep, return_mode, grad_to_none=None):
        fn()
        return ms if return_mode == "median" else [ms] * max(1, round(rep / ms))

    monkeypatch.setattr(measure.triton.testing, "do_bench", do_bench, raising=False)
    monkeypatch.setattr(measure, "machine_name", lambda: "a GPU")
    monkeypatch.setattr(measure, "versions_line", lambda: "versions")
    calls = []
    found = experiment.Experiment("some", "00", "", lambda variant, n: Run(lambda: calls.append(variant), lambda out: None), {}, None)
    rows = measure._measure_case(found, {"a": 1, "b": 2}, {"n": 1}, specs.gpu("H200"), ())
    assert [(row["variant"], len(row["samples"])) for row in rows] == [("a", samples), ("b", samples)]
    assert calls[4:] == [1, 2, 1, 2, 1, 2, 1, 2], "checked twice each, estimated, then in turns"


@pytest.mark.parametrize("host_works", [False, True])
def test_the_host_has_a_head_start_unless_it_does_part_of_the_work(monkeypatch, host_works):
    events = []

    def do_bench(fn, warmup, rep, return_mode, grad_to_none=None):
        for x in grad_to_none or []:
            x.grad = None
        fn()
        return 1.0 if return_mode == "median" else [1.0] * 12

    monkeypatch.setattr(measure.triton.testing, "do_bench", do_bench, raising=False)
    monkeypatch.setattr(measure.torch.cuda, "_sleep", lambda cycles: events.append("wait"))
    for name in ("machine_name", "versions_line"):
        monkeypatch.setattr(measure, name, lambda: "some")
    run = Run(lambda: events.append("call"), lambda out: None, host_works=host_works)
    found = experiment.Experiment("some", "00", "", lambda variant: run, {}, None)
    measure._measure_case(found, {"a": 1}, {}, specs.gpu("H200"), ())
    assert events[3:] == (["call"] if host_works else ["wait", "call"]) * measure.ROUNDS


@pytest.mark.gpu
def test_a_slow_host_is_not_timed():
    import torch

    x = torch.zeros(256, device="cuda")

    def call():
        until = time.perf_counter() + 150e-6
        while time.perf_counter() < until:
            pass
        x.add_(1)

    assert measure.time_us(call).median < 30


@pytest.mark.gpu
def test_time_us_on_the_gpu():
    import torch

    a = torch.randn(4096, 4096, device="cuda")
    one = measure.time_us(lambda: a @ a)
    two = measure.time_us(lambda: (a @ a, a @ a))
    assert 1.6 < two.median / one.median < 2.4
    assert one.median > 2 * 4096**3 / (specs.gpu().fp32_tflops or 1e6) / 1e6


@pytest.mark.gpu
def test_yours_is_measured_beside_the_shipped():
    from helpers.experiments.gelu import gelu_torch

    table = measure.measure("gelu_sizes", n=2**20, variants=["gelu"], yours=gelu_torch, progress=False)
    assert list(table["variant"]) == ["gelu", "yours"] and set(table["evidence"]) == {"live"}
    with pytest.raises(AssertionError, match="yours.*wrong result"):
        measure.measure("gelu_sizes", n=2**20, yours=lambda x: x * 0, progress=False)
