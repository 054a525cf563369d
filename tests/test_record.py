"""`make record` and the files it leaves: whole, readable by all who use a machine, and no experiment spoils another's."""

import copy
import os
import stat
import tempfile
import types

import pytest
import torch

from helpers import measure, record, results
from helpers.files import write_whole

ENTRY = {"date": "2026-11-30", "commit": "abc", "versions_line": "torch 2.11.0", "versions": {}, "rows": [
    {"variant": "a", "case": {"n": 8}, "samples_us": [2.0, 2.0, 2.2], "traffic_bytes": 64, "flops": 8}]}
MACHINE = {"name": "NVIDIA Imaginary 1", "compute_capability": "9.0", "sm_count": 4, "memory_bytes": 8, "l2_bytes": 4}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A machine with a GPU that nobody has recorded, and no recordings."""
    for module, name, value in ((results, "RECORDED", tmp_path), (record.mode, "is_live", lambda: True),
                                (record.measure, "machine_name", lambda: MACHINE["name"]), (record, "machine_facts", lambda: MACHINE)):
        monkeypatch.setattr(module, name, value)
    yield tmp_path
    results.load.cache_clear()


def record_all(monkeypatch, folder, **entries) -> int:
    """`make record` of these experiments, whose measurements are given."""
    monkeypatch.setattr(record, "entry_of", lambda name: entries[name])
    return record.main([*entries, "--out", str(folder)])


def test_what_is_written_is_for_everybody_on_the_machine(folder, monkeypatch):
    """A teacher records on a machine that a class shares."""
    before = os.umask(0o022)
    try:
        assert record_all(monkeypatch, folder, gelu_sizes=ENTRY) == 0
    finally:
        os.umask(before)
    (file,) = folder.iterdir()
    assert file.name == "nvidia_imaginary_1.json" and stat.S_IMODE(file.stat().st_mode) == 0o644
    assert len(results.recorded("gelu_sizes", machine="NVIDIA Imaginary 1")) == 1


def test_all_who_share_a_gpu_can_take_turns(tmp_path, monkeypatch):
    """The lock's file stays, and belongs to whoever measured first."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace(uuid="GPU-1"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with measure.gpu_lock():
        (file,) = tmp_path.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o666


@pytest.mark.parametrize("spoil", [
    lambda row: row["samples_us"].append(float("nan")), lambda row: row.update(values={"places": [1.0, float("inf")]}),
    lambda row: row.update(values={"what": object()}), lambda row: row.update(samples_us=[]),
], ids=["nan", "inf in a list", "no number", "nothing measured"])
def test_an_experiment_that_cannot_be_kept_spoils_no_other(folder, monkeypatch, capsys, spoil):
    assert record_all(monkeypatch, folder, gelu_sizes=ENTRY) == 0
    bad = copy.deepcopy(ENTRY)
    spoil(bad["rows"][0])
    assert record_all(monkeypatch, folder, gelu_sizes=bad, gelu_odd_length=ENTRY) == 1
    assert "gelu_sizes FAILED, its earlier recording stays" in capsys.readouterr().out
    assert results.load("NVIDIA Imaginary 1")["experiments"] == {"gelu_sizes": ENTRY, "gelu_odd_length": ENTRY}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_write_leaves_the_earlier_file(tmp_path, monkeypatch, stop):
    write_whole(tmp_path / "a", b"earlier")

    def interrupted(source, target):
        raise stop

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(stop if isinstance(stop, type) else type(stop)):
        write_whole(tmp_path / "a", b"later")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"earlier"]


def test_without_git_the_commit_is_unknown(monkeypatch, tmp_path):
    monkeypatch.delenv("COURSE_COMMIT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert record.commit() == "unknown"
