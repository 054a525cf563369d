"""Every notebook: runs as given with the stored outputs, runs with its solutions, and keeps the house rules."""

import html
import re

import nbformat
import pytest
from notebook_runs import read, run_nbval, tags

from helpers.lesson.exercise import exercises_of
from helpers.lesson.store import NOTEBOOKS, shipped_source, stored_mark, syntax

LESSONS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
SOLUTIONS = NOTEBOOKS / "solutions"
HOLE = re.compile(r"^[ \t]*(?:#|//) --- your code \(.*\)\n(.*?)^[ \t]*(?:#|//) --- end\n?", re.S | re.M)


def notebook(lesson: str):
    return read(NOTEBOOKS / f"{lesson}.ipynb")


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


# ------------------------------------------------------------------------------------------------ running


def solutions_of(lesson: str) -> dict[str, str]:
    """Code of each `# %% exercise-N` cell of a lesson's solutions."""
    path = SOLUTIONS / f"{lesson}.py"
    if not path.exists():
        return {}
    parts = re.split(r"^# %% (exercise-\d+).*\n", path.read_text(), flags=re.M)
    return {name: code.strip() + "\n" for name, code in zip(parts[1::2], parts[2::2], strict=True)}


def exercise_cells(nb) -> dict[str, object]:
    return {tag: cell for cell in code_cells(nb) for tag in tags(cell) if re.fullmatch(r"exercise-\d+", tag)}


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_exercise_has_a_test_and_a_solution(lesson):
    cells, solutions, tests = exercise_cells(notebook(lesson)), solutions_of(lesson), exercises_of(lesson)
    assert sorted(cells) == sorted(solutions), "an exercise without a solution, or the reverse"
    for tag, cell in cells.items():
        number = tag.removeprefix("exercise-")
        assert f"{lesson}.{number}" in tests, f"no test for {lesson}.{number}"
        assert f'check("{lesson}.{number}"' in cell.source, f"{tag} does not check its answer"
        assert f'check("{lesson}.{number}"' in solutions[tag], f"the solution of {tag} is not checked"
        hole = HOLE.search(cell.source)
        assert hole, f"{tag} has no hole"
        outside = [HOLE.sub("HOLE\n", text).strip() for text in (cell.source + "\n", solutions[tag])]
        assert outside[0] == outside[1], f"{lesson} {tag}: solution and skeleton differ outside the hole"


@pytest.mark.parametrize("lesson", LESSONS)
def test_skeletons_are_not_started(lesson):
    for tag, cell in exercise_cells(notebook(lesson)).items():
        shown = "".join(output.get("text", "") for output in cell.outputs)
        assert "not started" in shown, f"{lesson} {tag}: the stored skeleton must print that it is not started"


MUST_BE_RIGHT = """\
import contextlib, io
def check(id, answer, check=check):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        check(id, answer)
    assert said.getvalue() == f"Exercise {id}: OK\\n", said.getvalue()
"""


def with_solutions(nb, solutions: dict[str, str]):
    """The notebook with its solutions as further cells behind it, whose checks must say OK: one run proves both."""
    for source in [MUST_BE_RIGHT, *solutions.values()] if solutions else []:
        nb.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": ["nbval-ignore-output"]}))
    return nb


@pytest.mark.notebook
@pytest.mark.parametrize("lesson", LESSONS)
def test_shows_what_is_stored_and_its_solutions_are_right(lesson, tmp_path):
    path = tmp_path / f"{lesson}.ipynb"
    nbformat.write(with_solutions(notebook(lesson), solutions_of(lesson)), path)
    done = run_nbval(path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


# ------------------------------------------------------------------------------------------------ house rules


@pytest.mark.parametrize("lesson", LESSONS)
def test_format(lesson):
    nb = notebook(lesson)
    nbformat.validate(nb)
    assert nb.metadata.kernelspec.name == "python3", "another machine has no such kernel"
    assert "widgets" not in nb.metadata or all("state" in w for w in nb.metadata.widgets.values())
    assert (NOTEBOOKS / f"{lesson}.ipynb").stat().st_size < 1_000_000


@pytest.mark.parametrize("lesson", LESSONS)
def test_outputs_are_stored_by_the_shipped_command(lesson):
    for i, cell in enumerate(code_cells(notebook(lesson))):
        assert cell.execution_count, f"code cell {i} was not run: make notebooks"
        assert cell.metadata.get("stored") == stored_mark(cell), f"code cell {i}: outputs altered since make notebooks"
        for output in cell.outputs:
            assert output.get("name") != "stderr", f"code cell {i} prints to stderr: {output.get('text', '')[:300]}"
            if output.output_type == "error":
                assert "raises-exception" in tags(cell), f"code cell {i} fails: {output.ename}"


@pytest.mark.parametrize("lesson", LESSONS)
def test_taught_kernels_are_the_shipped_ones(lesson):
    for cell in code_cells(notebook(lesson)):
        if "kernel" in cell.metadata:
            assert syntax(cell.source) == syntax(shipped_source(cell.metadata["kernel"])), (
                f"{lesson}: a taught kernel differs from {cell.metadata['kernel']}; "
                "run python -m helpers.lesson.store --sync-only"
            )


@pytest.mark.parametrize("lesson", LESSONS)
def test_cells_stay_readable(lesson):
    nb = notebook(lesson)
    for cell in nb.cells:
        if cell.cell_type == "code":
            lines = len(cell.source.splitlines())
            assert lines <= (60 if "kernel" in tags(cell) else 25), f"{lines} lines of code: {cell.source[:80]}"
            assert "!" != cell.source.lstrip()[:1] and "%%capture" not in cell.source
            assert "plt." not in cell.source, f"plotting code belongs into figures/: {cell.source[:80]}"
        elif cell.cell_type == "markdown":
            prose = re.sub(r"```.*?```", "", cell.source, flags=re.S)
            prose = "\n".join(line for line in prose.splitlines() if not line.lstrip().startswith("|"))
            assert len(prose.split()) <= 150, f"{len(prose.split())} words: {cell.source[:80]}"
            assert "base64" not in cell.source


@pytest.mark.parametrize("lesson", LESSONS)
def test_helpers_come_before_triton(lesson):
    """They tell Triton how to run kernels, or stand in for it; it listens only while it is being imported."""
    names = re.findall(r"^(?:from|import) +(.*)", "\n".join(cell.source for cell in code_cells(notebook(lesson))), flags=re.M)
    firsts = [next((i for i, line in enumerate(names) if re.search(wanted, line)), len(names)) for wanted in (r"\bhelpers\b", r"\btriton\b")]
    assert firsts[0] < firsts[1] or firsts[1] == len(names), f"{lesson} imports Triton before helpers"


@pytest.mark.parametrize("lesson", LESSONS)
def test_outline(lesson):
    headings = [line for cell in notebook(lesson).cells if cell.cell_type == "markdown"
                for line in re.sub(r"```.*?```", "", cell.source, flags=re.S).splitlines() if line.startswith("#")]
    levels = [len(line.split()[0]) for line in headings]
    assert levels[0] == 1 and levels.count(1) == 1, "one title, first"
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False)), f"a skipped level: {headings}"
    if lesson != "00_start_here":
        assert any("What to remember" in line for line in headings), f"no heading What to remember: {headings}"
        assert any("Exercise" in line for line in headings), f"no heading with Exercise: {headings}"


@pytest.mark.parametrize("lesson", LESSONS)
def test_pictures_have_alt_text_and_their_own_bytes(lesson):
    import base64
    import hashlib

    for cell in code_cells(notebook(lesson)):
        for output in cell.outputs:
            data = output.get("data", {})
            assert "image/png" not in data, f"a picture without alt text: {cell.source[:80]}"
            for tag in re.findall(r"<img[^>]*>", data.get("text/html", "")):
                alt = re.search(r'alt="([^"]*)"', tag)
                assert alt and len(html.unescape(alt.group(1)).split()) >= 5, f"no alt text: {tag[:80]}"
                mark = re.search(r'data-png="([0-9a-f]+)"', tag)
                if mark:
                    raw = base64.b64decode(re.search(r"base64,([^\"]+)", tag).group(1))
                    assert hashlib.sha256(raw).hexdigest().startswith(mark.group(1)), "a stored picture was altered"


def interpreted_speed(text: str) -> bool:
    """Whether an output that says only "interpreted" states a time or a rate."""
    only = re.search(r"\binterpreted · ", text) and not re.search(r"\b(?:live|recorded|published|derived|simulated) · ", text)
    return bool(only and re.search(r"\d\s*(?:µs|us|ms|GB/s|TB/s|TFLOPS)\b|time \(µs\)|bandwidth \(GB/s\)", text))


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_interpreted_time_is_shown_as_speed(lesson):
    for cell in code_cells(notebook(lesson)):
        for output in cell.outputs:
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            assert not interpreted_speed(text), f"{lesson}: {text[:300]}"
    assert interpreted_speed("12 µs\ninterpreted · this computer") and not interpreted_speed("12 µs\nrecorded · NVIDIA H200")


@pytest.mark.parametrize("lesson", LESSONS)
def test_links_exist(lesson):
    for cell in notebook(lesson).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", cell.source):
                if not re.match(r"[a-z]+:", target):
                    assert (NOTEBOOKS / target).exists(), f"{lesson}: broken link {target}"


# ------------------------------------------------------------------------------------------------ the checks themselves


def toy(tmp_path, *cells):
    """A notebook of cells (source, outputs) or (source, outputs, tags)."""
    nb = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=1, metadata={"tags": list(tags)})
        for source, outputs, *tags in cells])
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.ipynb"
    nbformat.write(nb, path)
    return path


def printed(text):
    return [nbformat.v4.new_output("stream", name="stdout", text=text)]


def shown(text):
    return [nbformat.v4.new_output("execute_result", data={"text/plain": text}, execution_count=1)]


@pytest.mark.notebook
def test_nbval_as_configured_notices_and_forgives_the_right_things(tmp_path):
    """Forgives widget ids, picture bytes, addresses, twice in a row; notices a changed value and anything on stderr."""
    picture = "print('<img alt=\"A\" data-png=\"{0}{0}\" src=\"data:image/png;base64,{0}\"/> <Figure size {1} with 1 Axes>')"
    good = toy(
        tmp_path, ("print(1 + 1)", printed("2\n")), ("object()", shown("<object at 0x7f00deadbeef>")),
        ("import ipywidgets\nipywidgets.IntSlider(3)", shown("IntSlider(value=3)")),
        # What interact prints goes into its widget, which nbval cannot follow: such cells carry nbval's own tag.
        ("ipywidgets.interact(lambda x: print('x is', x), x=3)\nNone", [], "nbval-ignore-output"),
        (picture.format("abcd", "640x480"), printed('<img alt="A" data-png="efef" src="data:image/png;base64,efgh"/> <Figure size 432x288 with 1 Axes>\n')),
    )
    for _ in range(2):
        done = run_nbval(good)
        assert done.returncode == 0, done.stdout[-3000:]
    bad = toy(tmp_path, ("print(1 + 1)", printed("3\n")), ("import sys\nprint('warning', file=sys.stderr)", []),
              ("print('new')", []), ("", printed("removed\n")), ("1 / 0", []),
              (picture.format("abcd", "1x1"), printed('<img alt="B" data-png="ab" src="data:image/png;base64,abcd"/> <Figure size 1x1 with 1 Axes>\n')))
    done = run_nbval(bad)
    assert done.returncode == 1 and "6 failed" in done.stdout, done.stdout[-6000:]


@pytest.mark.notebook
def test_a_wrong_or_empty_solution_is_noticed(tmp_path):
    check = """
def check(id, answer):
    assert answer in (42, ...), "wrong"
    print(f"Exercise {id}: OK" if answer == 42 else f"Exercise {id}: not started")
"""
    path = toy(tmp_path, (check, []))
    nb = with_solutions(read(path), {f"exercise-{n}": f'check("toy.{n}", {answer})' for n, answer in enumerate(["42", "54", "..."])})
    nbformat.write(nb, path)
    done = run_nbval(path)
    assert "2 failed, 3 passed" in done.stdout, done.stdout[-3000:]
