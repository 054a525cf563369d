"""environment.yml, requirements.txt and pyproject.toml say the same and name all that is imported; the README's links exist."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement

from helpers.lesson.map import LESSONS
from helpers.lesson.store import readme_pictures

ROOT = Path(__file__).parent.parent


def pins() -> list[str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def conda() -> dict:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def test_conda_has_the_same_pins():
    *others, pip = conda()["dependencies"]
    assert pip["pip"] == [*pins(), "-e ."]
    assert [re.split("[ =<>]", other)[0] for other in others] == ["python", "pip"]


def test_no_build_strings_and_no_conda_torch():
    text = (ROOT / "environment.yml").read_text()
    for dependency in conda()["dependencies"][:-1]:
        assert not re.search(r"=[\w.]+=\w+|\*cuda|\*cpu", dependency), dependency
    assert "prefix:" not in text and conda()["name"] == "gpu-course"


def test_python_of_conda_is_the_packages_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = Requirement(conda()["dependencies"][0])
    assert python.name == "python" and "3.11" in python.specifier and "3.10" not in python.specifier
    assert project["requires-python"] == ">=3.11"


def test_every_pin_is_exact_and_lies_in_the_packages_range():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = {}
    for line in project["dependencies"] + project["optional-dependencies"]["test"]:
        ranges[Requirement(line).name] = Requirement(line)
    pinned = {Requirement(line).name: Requirement(line) for line in pins()}
    assert set(pinned) == set(ranges)
    for name, requirement in pinned.items():
        (exact,) = requirement.specifier
        assert exact.operator == "==" and exact.version in ranges[name].specifier, name
        assert str(requirement.marker) == str(ranges[name].marker) and requirement.extras == ranges[name].extras, name


# torch's wheel with CUDA fixes the version of NVRTC (by way of cuda-toolkit[nvrtc]), its CPU wheel does not: a pin that
# contradicts it installs here and on no reader's machine. For another torch: pip install --dry-run torch==VERSION.
NVRTC_OF_TORCH = {"2.13.0": "13.0.88"}


def test_nvrtc_is_the_one_that_torch_with_cuda_asks_for():
    exact = {Requirement(line).name: next(iter(Requirement(line).specifier)).version for line in pins()}
    assert exact["nvidia-cuda-nvrtc"] == NVRTC_OF_TORCH[exact["torch"]]


def test_triton_is_named_itself_because_the_cpu_wheel_of_torch_does_not_bring_it():
    (triton,) = [Requirement(line) for line in pins() if line.startswith("triton")]
    assert triton.marker.evaluate({"sys_platform": "linux"})
    assert not any(triton.marker.evaluate({"sys_platform": other}) for other in ("darwin", "win32"))


def imported(*folders: str) -> dict[str, Path]:
    """Top-level names that Python files import, each with one of the files; without Python's own and the course's."""
    found = {}
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0]: path for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found[node.module.partition(".")[0]] = path
    ours = {"helpers", "figures"} | {path.stem for path in (ROOT / "tests").glob("*.py")} | set(sys.stdlib_module_names)
    return {name: path for name, path in found.items() if name not in ours}


@pytest.mark.parametrize("folders, with_tests", [(("helpers", "figures"), False), (("tests",), True)])
def test_every_imported_package_is_named(folders, with_tests):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + (project["optional-dependencies"]["test"] if with_tests else [])
    named = {Requirement(line).name for line in lines}
    providers = importlib.metadata.packages_distributions()
    for name, path in imported(*folders).items():
        assert {p.lower() for p in providers.get(name, [])} & named, f"{path} imports {name}; pyproject.toml does not name it"


README = (ROOT / "README.md").read_text()


def test_links_of_the_readme_exist():
    links = re.findall(r"\]\(([^)#\s]+)", README)
    local = [link for link in links if not re.match(r"[a-z]+:", link)]
    assert len(local) >= 10 and [link for link in local if not (ROOT / link).exists()] == []


def test_the_readmes_pictures_are_those_of_the_notebooks():
    shown = dict(re.findall(r"!\[([^]]+)\]\((pictures/[\w.]+)\)", README))
    stored = {}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        stored |= readme_pictures(nbformat.read(path, as_version=4))
    assert {Path(file).stem for file in shown.values()} == {path.stem for path in (ROOT / "pictures").iterdir()} == {*stored, "jupyterlab"}
    for name, png in stored.items():
        assert (ROOT / "pictures" / f"{name}.png").read_bytes() == png, f"{name} is not what its notebook shows: make notebooks"
    assert all(len(alt) > 40 for alt in shown)


def test_the_readme_lists_every_lesson_with_its_question():
    for lesson in LESSONS:
        assert f"notebooks/{lesson['lesson']}.ipynb" in README and lesson["question"] in README, lesson
    assert {p.name for p in (ROOT / "notebooks").glob("*.ipynb")} <= set(re.findall(r"notebooks/(\w+\.ipynb)", README))


def test_the_commands_of_the_readme_are_targets():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.M))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.M))
    assert {"lab", "test", "record", "notebooks", "html", "slides", "help"} <= named <= targets
    assert all(re.search(rf"^{target}:.*  ## \S", makefile, flags=re.M) for target in targets), "make help lists every target"


def test_the_architecture_names_every_module_and_no_other():
    text = re.sub(r"```.*?```", "", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.S)
    words = set(re.findall(r"[\w.]+", " ".join(re.findall(r"`([^`]+)`", text))))
    there = {path.stem for folder in ("helpers", "figures") for path in (ROOT / folder).iterdir()} - {"__init__", "__pycache__"}
    topics = {path.stem for path in (ROOT / "helpers" / "experiments").iterdir()}  # one name everywhere
    assert there - words - topics - {"course"} == set(), "modules that the one page does not mention"
    paths = re.findall(r"`((?:helpers|tests|notebooks|kernels|cuda)/[\w./]+)`", text)
    roots = ("", "helpers")
    missing = [p for p in paths if not any((ROOT / root / (p + end)).exists() for root in roots for end in ("", ".py"))]
    assert len(paths) > 20 and missing == []


def test_files_are_read_as_utf_8_whatever_the_system_prefers(tmp_path):
    """Windows, where the course runs too, prefers another encoding: an umlaut in a comment would become two letters, or an error."""
    (tmp_path / "mine.cu").write_text("// größer", encoding="utf-8")
    code = f"""
import warnings, pathlib
from helpers import claims, facts, results, tile_costs
from helpers.cuda import nvrtc
from helpers.experiments import shared_memory
from helpers.lesson import cuda_code
warnings.simplefilter("error", EncodingWarning)
facts.gpu_table(), facts.tpu_table(), facts.memory_wall(), results.load(), results.published_all(), results.published_sources()
claims.claims_of("03_gelu"), tile_costs.evidence("A100"), shared_memory.tiled_without(""), cuda_code.show_cuda("vec_add.cu", "vec_add")
assert nvrtc.source_text(pathlib.Path({str(tmp_path / "mine.cu")!r}))[1] == "// größer"
"""
    subprocess.run([sys.executable, "-X", "warn_default_encoding", "-c", code], check=True, cwd=ROOT)
