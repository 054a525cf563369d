"""Live or recorded: what decides, in every situation, with torch's answers typed here."""

import re
import subprocess
import sys
import warnings

import pytest
import torch

from helpers import mode


@pytest.fixture
def machine(monkeypatch):
    """Sets what torch says about this machine; a working GPU unless told otherwise."""

    def say(cuda="13.0", available=True, cc=(9, 0), built_for=("sm_80", "sm_90"), triton=True, evidence=None):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: cc)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(built_for))
        monkeypatch.setattr(mode, "has_triton", lambda: triton)
        monkeypatch.delenv("COURSE_EVIDENCE", raising=False)
        if evidence is not None:
            monkeypatch.setenv("COURSE_EVIDENCE", evidence)
        mode.mode.cache_clear()

    yield say
    monkeypatch.undo()
    mode.mode.cache_clear()


@pytest.mark.parametrize("facts, reason", [
    (dict(cuda=None), "build without CUDA"), (dict(available=False), "no NVIDIA GPU or driver"), (dict(triton=False), "Triton is not installed"),
    (dict(cc=(12, 0)), r"no code for sm_120 \(it has sm_80, sm_90\)"), (dict(cc=(8, 0), built_for=["sm_86"]), "no code for sm_80"),
    (dict(cc=(7, 5)), "no code for sm_75"), (dict(built_for=["compute_90"]), "no code for sm_90"),
    (dict(cc=(12, 1), built_for=["sm_120a"]), "no code for sm_121"),
])
def test_why_a_gpu_is_not_used(machine, facts, reason):
    machine(**facts)
    assert re.search(reason, mode.usable_gpu()) and mode.mode() == "recorded" and not mode.is_live()
    machine(**facts, evidence="live")
    with pytest.raises(RuntimeError, match=f"COURSE_EVIDENCE=live needs a GPU, but .*{reason}"):
        mode.mode()


@pytest.mark.parametrize("facts", [{}, dict(cc=(8, 9)), dict(built_for=["sm_90a"]), dict(cc=(12, 1), built_for=["sm_120"])])
def test_a_gpu_is_used(machine, facts):
    for evidence in (None, "", "auto", "live", " LIVE "):
        machine(**facts, evidence=evidence)
        assert mode.usable_gpu() is None and mode.mode() == "live" and mode.is_live()
    machine(**facts, evidence="recorded")
    assert mode.mode() == "recorded" and mode.device() == torch.device("cpu")


def test_an_old_driver_is_no_noise(machine, monkeypatch):
    machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: warnings.warn("the driver is too old", stacklevel=1) or False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "no NVIDIA GPU" in mode.usable_gpu()


def test_an_unknown_wish_is_refused(machine):
    machine(evidence="measured")
    with pytest.raises(ValueError, match="one of auto, live, recorded; it is 'measured'"):
        mode.mode()


def test_another_python_is_named():
    code = "import sys; sys.modules['torch'] = None; import helpers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and f"torch is not installed for the Python that runs here, {sys.executable}" in done.stderr
