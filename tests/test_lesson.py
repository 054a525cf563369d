"""What notebooks call: tables, listings, widgets, exercises, the store's marks; and evidence and comparison behind them."""

import ast
import contextlib
import math
import subprocess
import sys

import nbformat
import pandas as pd
import pytest
import torch

from helpers import compare, evidence, mode, results
from helpers.lesson import check, explore, start, sweep, table
from helpers.lesson.code import Listing
from helpers.lesson.exercise import NotStarted, exercise, poisoned_like, started
from helpers.lesson.map import LESSONS, part_of
from helpers.lesson.store import NOTEBOOKS, ROOT, clean, stored_mark, sync_kernels
from helpers.lesson.widgets import options_of


def test_table_shows_caption_units_numbers_and_evidence():
    shown = table([{"time_us": 506.2718, "ok": True, "none": None, "text": "<b>"}], caption="C", evidence="recorded · X")
    assert "time (µs)" in repr(shown) and "506.3" in repr(shown) and "recorded · X" in repr(shown) and "–" in repr(shown)
    assert "&lt;b&gt;" in shown._repr_html_() and "text-align:right" in shown._repr_html_()
    with pytest.raises(ValueError, match="no column"):
        table([{"a": 1}], caption="C", columns=["b"])
    with pytest.raises(ValueError, match="caption"):
        table([{"a": 1}], caption="")


def test_what_groupby_and_pivot_leave_in_the_index_is_shown():
    times = pd.DataFrame({"variant": ["a", "a", "b"], "n": [8, 16, 8], "time_us": [1.0, 2.0, 5.0]})
    assert list(table(times.groupby("variant")["time_us"].median(), caption="c").data["variant"]) == ["a", "b"]
    wide = table(times.pivot(index="variant", columns="n", values="time_us"), caption="c")
    assert list(wide.data.columns) == ["variant", 8, 16] and "<td style=\"text-align:left\">b</td>" in wide._repr_html_()
    assert list(table(times[times["n"] == 16], caption="c").data.columns) == ["variant", "n", "time (µs)"], "row numbers say nothing"
    assert list(table(times.set_index("n", drop=False), caption="c").data.columns) == ["variant", "n", "time (µs)"]


def test_listing_marks_and_cuts():
    listing = Listing("t", "\n".join(f"ld.global {i}" for i in range(50)) + "\nst.global", match=r"ld\.", most=10)
    assert len(listing.shown) == 10 and "and 40 more" in repr(listing) and "st.global" not in repr(listing)


def test_widget_moves_its_picture_and_shows_errors():
    def double(n, flip):
        if n == 3:
            raise ValueError("three is refused")
        return f"value {2 * n} {flip}"

    explorer = explore(double, n=[1, 2, 3], flip=False)
    box = explorer.widget()
    (slider, checkbox), view = box.children[0].children, box.children[1]
    assert "value 2 False" in view.value and "jp-RenderedHTMLCommon" in view._dom_classes  # or JupyterLab leaves tables bare
    slider.value = 2
    assert "value 4 False" in view.value
    checkbox.value = True
    assert "value 4 True" in view.value
    slider.value = 3
    assert "three is refused" in view.value
    bundle = explorer._repr_mimebundle_()
    assert "value 2 False" in bundle["text/html"] and "run the cell" in bundle["text/html"]


def test_a_choice_of_long_words_is_shown_whole():
    box = explore(lambda work, n: f"{work} {n}", work=["load", "load, then 64 long steps"], n=[1, 2]).widget()
    (words, numbers), view = box.children[0].children, box.children[1]
    assert type(words).__name__ == "Dropdown" and type(numbers).__name__ == "SelectionSlider"  # whose readout cuts at 146 pixels
    words.value = "load, then 64 long steps"
    assert "64 long steps 1" in view.value


@pytest.mark.parametrize("choices, second", [([0, 1], 1), ((0, 1), 1), ([None, 4], 4), ([{"a": 1}, {"a": 2}], {"a": 2})])
def test_a_choice_reaches_the_callback_as_it_is(choices, second):
    """0 and 1 are no checkbox, None is a value like another."""
    seen = []
    box = explore(lambda x: seen.append(x) or "shown", x=choices).widget()
    box.children[0].children[0].index = 1
    assert seen[-1] == second and type(seen[-1]) is type(second)


@pytest.mark.parametrize("control, values, start", [
    ([1, 2], [1, 2], 1), ((1, 9, 4), [1, 5, 9], 1), ((0, 2), [0, 1, 2], 0), (True, [False, True], True), (([4, 5], 5), [4, 5], 5),
    ((0, 0.5, 0.1), [0.0, 0.1, 0.2, 0.3, 0.4, 0.5], 0), ((1e-9, 3e-9, 1e-9), [1e-9, 2e-9, 3e-9], 1e-9), ([None, 4], [None, 4], None),
])
def test_controls(control, values, start):
    assert options_of("x", control) == (values, start)


@pytest.mark.parametrize("control", ["abc", [], (3, 1), (1, 5, 0), ([1], 2), 7, ("a", "b"), (0, float("inf")), (0, 4, None)])
def test_what_is_no_control(control):
    with pytest.raises(ValueError, match="control x"):
        options_of("x", control)


def test_sweep_visits_ends_and_corners():
    seen = []
    assert sweep(lambda a, b: seen.append((a, b)) or "shown", {"a": [1, 2, 3], "b": [True, False]}) == len(set(seen))
    assert {(1, True), (1, False), (3, True), (3, False), (2, True)} <= set(seen)
    with pytest.raises(ValueError, match="no argument"):
        explore(lambda a: "x", b=[1])


@exercise("99_toy.1")
def _(answer):
    assert answer == 42, "six times nine, in base thirteen"


def test_check_says_one_of_three_things(capsys, monkeypatch):
    monkeypatch.setattr("helpers.lesson.exercise.exercises_of", lambda lesson: {"99_toy.1": _})
    check("99_toy.1", ...)
    check("99_toy.1", 42)
    assert capsys.readouterr().out == "Exercise 99_toy.1: not started\nExercise 99_toy.1: OK\n"
    with pytest.raises(AssertionError, match="not yet. six times nine"):
        check("99_toy.1", 54)
    with pytest.raises(ValueError, match="no exercise"):
        check("99_toy.2", 1)
    with pytest.raises(ValueError, match="no exercise 99.1"):
        check(99.1, 1)


@pytest.mark.parametrize("code", ["from helpers.lesson import check; check('03_gelu.2', lambda *sizes: -1)",
                                  "from helpers import measure; measure.run_experiment('gelu_sizes')"], ids=["check", "measure"])
def test_without_assertions_nothing_is_right(code):
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "everything would pass" in done.stderr


@pytest.mark.parametrize("id, answer, hint", [
    ("06_matmul.2", lambda *tile: None, "returned None: is `return` missing"),
    ("03_gelu.2", lambda *sizes: "4", "returned text, '4'"),  # among numbers, '4' would print like the right answer
    ("02_sm_and_warps.1", lambda t, n: 3.0, "cannot use this answer (TypeError"),
    ("A_tpu.3", lambda share: float("inf"), "cannot convert float infinity"),
    ("A_tpu.3", 128, "not called"),
    ("03_gelu.1", lambda x, y, n: None, "with its decorator"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_answers_of_the_wrong_kind_get_a_hint(id, answer, hint):
    with pytest.raises(AssertionError, match=f"Exercise {id}: not yet") as caught:
        check(id, answer)
    assert hint in str(caught.value)


def test_the_readers_own_mistake_keeps_its_line():
    def grid_of(n, block, sm_count):
        return triton_cdiv(n, block)  # noqa: F821

    with pytest.raises(NameError, match="triton_cdiv") as caught:
        check("03_gelu.2", grid_of)
    assert caught.traceback[-1].name == "grid_of"


def test_unwritten_output_is_not_started():
    out = poisoned_like(torch.zeros(3))
    with pytest.raises(NotStarted):
        started(out)
    out[1] = 0
    assert started(out) is out


def kernel_of(source):
    """The Triton kernel k of `source`, as if typed in a cell."""
    import linecache

    import triton
    import triton.language as tl

    name = f"<{hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"triton": triton, "tl": tl}
    exec(compile(source, name, "exec"), space)
    return space["k"]


def wrong_kernel(formula):
    """Exercise 03_gelu.1 with a wrong answer in its hole."""
    return kernel_of("@triton.jit\ndef k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
                     "    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    mask = offsets < n\n"
                     f"    x = tl.load(x_ptr + offsets, mask=mask)\n    tl.store(y_ptr + offsets, {formula}, mask=mask)\n")


@pytest.mark.parametrize("formula", ["x * 0", "x", "x / (1 + tl.exp(-1.6 * x))", "x * (tl.exp(1.702 * x) / (1 + tl.exp(1.702 * x)))"])
def test_gelu_exercise_refuses_wrong_kernels(formula):
    with pytest.raises(AssertionError):
        check("03_gelu.1", wrong_kernel(formula))


MATMUL_WITH_BIAS = """@triton.jit
def k(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * K + k + ks[None, :], mask=(rows[:, None] < M) & (k + ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + (k + ks[:, None]) * N + cols[None, :], mask=(k + ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)[None, :]
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], FORMULA, mask=mask)
"""


@pytest.mark.parametrize("formula, hint", [
    ("tl.maximum(acc, 0) + bias", "the bias was added after the ReLU"), ("tl.maximum(acc, 0)", "largest error"),
    ("acc + bias", "largest error"), ("tl.maximum(acc - bias, 0)", "largest error"),
])
def test_matmul_exercise_refuses_wrong_kernels(formula, hint):
    with pytest.raises(AssertionError, match=hint):
        check("06_matmul.1", kernel_of(MATMUL_WITH_BIAS.replace("FORMULA", formula)))


@pytest.mark.parametrize("seed", range(6))  # at 1 × 1 × 1 the order of bias and ReLU shows with one sign of three
def test_matmul_exercise_takes_the_right_kernel_with_any_numbers(seed, monkeypatch, capsys):
    manual_seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda _: manual_seed(seed))
    check("06_matmul.1", kernel_of(MATMUL_WITH_BIAS.replace("FORMULA", "tl.maximum(acc + bias, 0)")))
    assert capsys.readouterr().out == "Exercise 06_matmul.1: OK\n"


def test_a_check_has_the_same_numbers_every_time_and_leaves_the_readers_alone(monkeypatch):
    seen = []
    monkeypatch.setattr("helpers.lesson.exercise.exercises_of",
                        lambda lesson: {"99_toy.1": lambda answer: seen.append(torch.rand(3).tolist())})
    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    check("99_toy.1", 1)
    assert torch.rand(2).tolist() == expected
    check("99_toy.1", 1)
    assert seen[0] == seen[1]
    forked = []
    monkeypatch.setattr("helpers.lesson.exercise.is_live", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.random, "fork_rng", lambda gpus: forked.extend(gpus) or contextlib.nullcontext())
    check("99_toy.1", 1)
    assert forked == [3], "those of the GPU in use too"


SOFTMAX_OF_ROWS = """@triton.jit
def k(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * n_cols + cols, mask=mask, other=-float("inf"))
    e = tl.exp(x - LARGEST)
    tl.store(y_ptr + rows * n_cols + cols, e / tl.sum(e, axis=1)[:, None], mask=mask)
"""


def test_softmax_exercise_wants_the_maximum_taken_off(capsys):
    check("04_softmax.1", kernel_of(SOFTMAX_OF_ROWS.replace("LARGEST", "tl.max(x, axis=1)[:, None]")))
    assert capsys.readouterr().out == "Exercise 04_softmax.1: OK\n"
    with pytest.raises(AssertionError, match="NaN; the largest number of all is 200"):
        check("04_softmax.1", kernel_of(SOFTMAX_OF_ROWS.replace("LARGEST", "0")))


def test_merging_softmax_parts_must_not_overflow():
    def merge(m, s, n, t):  # right on paper
        return max(m, n), (s * math.exp(m) + t * math.exp(n)) / math.exp(max(m, n))

    with pytest.raises(OverflowError):
        check("04_softmax.2", merge)


ROW_MAX = """@triton.jit
def k(x_ptr, out_ptr, n_cols, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    partial = tl.full((TILE,), -float("inf"), tl.float32)
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + ROW + cols, mask=cols < n_cols, other=OTHER)
        partial = STEP
    tl.store(OUT + row, tl.max(partial, axis=0))
"""
RIGHT = {"ROW": "row * n_cols", "OTHER": '-float("inf")', "STEP": "tl.maximum(partial, x)", "OUT": "out_ptr"}


@pytest.mark.parametrize("wrong, hint", [
    ({"OTHER": "0.0"}, "columns past the end"), ({"ROW": "0"}, "where does `row` enter the address"),
    ({"STEP": "x"}, "some columns were left out"), ({"OUT": "x_ptr"}, "All of the output is NaN, as it was before"),
])
def test_row_max_exercise_hints_at_the_mistake(wrong, hint, capsys):
    def answer(parts):
        source = ROW_MAX
        for hole, text in parts.items():
            source = source.replace(hole, text)
        return kernel_of(source)

    check("05_row_sum.1", answer(RIGHT))
    assert capsys.readouterr().out == "Exercise 05_row_sum.1: OK\n"
    with pytest.raises(AssertionError, match=hint):
        check("05_row_sum.1", answer(RIGHT | wrong))


def test_a_part_of_an_answer_is_started():
    with pytest.raises(AssertionError, match="warp and lane are right"):
        check("02_sm_and_warps.1", lambda t, n: (t // 32, t % 32, ...))


@pytest.mark.parametrize("id, wrong", [
    ("03_gelu.2", lambda n, block, sms: (n // block,)), ("03_gelu.2", lambda n, block, sms: (sms,)),
    ("03_gelu.2", lambda n, block, sms: (n // block + 1,)), ("03_gelu.3", lambda block, warps: block // warps),
    ("03_gelu.3", lambda block, warps: block // (32 * warps)),
])
def test_gelu_exercises_refuse_wrong_functions(id, wrong):
    with pytest.raises(AssertionError):
        check(id, wrong)


def test_marks_of_stored_cells_notice_changes():
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", name="stdout", text="1\n")])
    nb = nbformat.v4.new_notebook(cells=[cell])
    clean(nb)
    assert cell.metadata["stored"] == stored_mark(cell) and nb.metadata.kernelspec.name == "python3"
    cell.outputs[0]["text"] = "2\n"
    assert cell.metadata["stored"] != stored_mark(cell)
    cell.outputs = []
    assert cell.metadata["stored"] != stored_mark(cell)


def test_sync_copies_the_shipped_kernel():
    cell = nbformat.v4.new_code_cell("pass", metadata={"kernel": "helpers.kernels.gelu:gelu_kernel"})
    nb = nbformat.v4.new_notebook(cells=[cell])
    assert sync_kernels(nb) == 1 and "def gelu_kernel" in cell.source and sync_kernels(nb) == 0


def test_evidence_line_and_refusals():
    line = evidence.Evidence("recorded", "NVIDIA H200", "2026-11-30", "torch 2.11.0").line()
    assert line == "recorded · torch 2.11.0 · NVIDIA H200 · 2026-11-30"
    with pytest.raises(ValueError, match="must be one of live"):
        evidence.Evidence("guessed", "x", "2026-11-30")
    table_ = results.recorded("gelu_sizes")
    assert evidence.evidence_of(table_).kind == "recorded"
    both = pd.concat([table_.assign(versions="torch 2.11.0", date="2026-11-29"), table_.assign(versions="torch 2.13.0", date="2026-11-30")])
    assert evidence.evidence_of(both).line() == "recorded · torch 2.11.0; torch 2.13.0 · NVIDIA H200 · 2026-11-29 to 2026-11-30"
    mixed = pd.concat([table_, table_.assign(machine="other")])
    with pytest.raises(ValueError, match="mixed"):
        evidence.evidence_of(mixed)


def test_comparison_scales_and_judges():
    entry = {"quantity": "time_us", "value": 80, "bound": "memory", "machine": "RTX 5090", "params": {"rows": 4096}}
    from helpers import specs

    assert compare.expectation(entry, specs.gpu("H200 SXM")) == pytest.approx(80 * 1792 / 4800)
    assert compare.verdict(30, entry, 29.9) == "as the machines' data predict"
    assert compare.verdict(60, entry, 30) == "2 times what the machines' data predict: worse"
    assert compare.verdict(15, entry, 30) == "0.5 times what the machines' data predict: better"
    with pytest.raises(ValueError, match="nothing published"):
        compare.compare("03_gelu", computed={"nonsense": 1})
    for wrong in (float("nan"), float("inf"), "8"):
        with pytest.raises(ValueError, match="finite numbers, got {'gelu_loads'"):
            compare.compare("03_gelu", computed={"gelu_loads": wrong})
    shown = compare.compare("03_gelu", computed={"gelu_loads": 8, "gelu_stores": 2}).data
    assert list(shown["verdict"]) == ["as published", "0.25 times the published"]
    unknown = specs.from_driver("NVIDIA GeForce RTX 1", (8, 9), 46, 12e9, 2**25)
    assert compare.expectation(entry, unknown) is None and "no datasheet" in compare.verdict(30, entry, None)
    assert "latency" in compare.verdict(30, entry | {"bound": "latency"}, None)


def test_computed_values_of_several_kinds():
    counted = evidence.interpreted_here("A")
    shown = compare.compare("03_gelu", computed={"gelu_loads": 8}, evidence=[counted, "compiled", counted])
    assert shown.evidence.splitlines().count(counted.line()) == 1 and "compiled" in shown.evidence.splitlines()


def test_published_numbers_without_a_counterpart():
    alone = compare.compare("09_coalescing")  # published for a V100; this course measures other cases
    assert "790 GB/s" in set(alone.data["published (V100)"]) and set(alone.data["verdict"]) == {"nothing here compares"}
    assert not any(column.startswith("recorded") for column in alone.data)
    mixed = compare.compare("06_matmul").data
    assert len(mixed) and "nothing here compares" not in set(mixed["verdict"])


@pytest.mark.parametrize("lesson, says, not_says", [
    ("03_gelu", "the Triton interpreter", "SIMT"), ("07_occupancy", "the Triton interpreter", "SIMT"),
    ("08_cuda_threads", "SIMT machine", "interpreter"), ("11_streams", "SIMT machine", "interpreter"),
    ("A_tpu", "simulated", "recorded"), ("00_start_here", "NVIDIA H200", "SIMT"),
])
def test_the_first_line_of_a_lesson_names_its_evidence(lesson, says, not_says, capsys):
    if mode.is_live() and lesson != "A_tpu":
        says, not_says = "live", "recorded"
    start(lesson)
    said = capsys.readouterr().out
    assert said.startswith(f"Lesson {lesson}. Evidence: ") and says in said and not_says not in said


def test_the_map_and_the_notebooks_agree_on_the_time():
    for row in LESSONS:
        path = NOTEBOOKS / f"{row['lesson']}.ipynb"
        if path.exists():
            assert f"About {row['minutes']} minutes" in nbformat.read(path, 4).cells[0].source, row


def test_the_map_names_the_part_of_each_lesson():
    parts = {row["lesson"][:2]: part_of(row["lesson"]) for row in LESSONS}
    assert parts["01"] == parts["02"] != parts["03"] == parts["07"] != parts["08"] == parts["11"] != parts["A_"]
    assert part_of("00_start_here") is None and None not in parts.values()
    assert part_of("12_of_a_reader") is None, "whose evidence is not that of a model"


def test_helpers_never_import_figures():
    for path in (ROOT / "helpers").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            assert not any(n == "figures" or n.startswith("figures.") for n in names), path
