"""environment.yml, requirements.txt and pyproject.toml say the same, and torch's pins are those installed."""

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement

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


def test_triton_is_named_itself_because_the_cpu_wheel_of_torch_does_not_bring_it():
    (triton,) = [Requirement(line) for line in pins() if line.startswith("triton")]
    assert triton.marker.evaluate({"sys_platform": "linux"})
    assert not any(triton.marker.evaluate({"sys_platform": other}) for other in ("darwin", "win32"))
