"""Every situation that preflight knows, as facts: the finding names it, says why and how to mend it."""

import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from helpers.preflight import Finding, facts, hardware, machine, paragraph, preflight, software
from helpers.preflight.rules import ALL_EVIDENCE, RULES

LAPTOP = dict(python="3.11.7", platform="linux", glibc="2.36", torch="2.13.0+cpu", torch_cuda=None, triton="3.7.1",
              numpy="2.4.6", ipywidgets="8.1.9", jupyterlab_widgets="3.0.17", nvrtc="13.5.37", cuda_available=False,
              gpu=None, nvidia_device=False, libcuda=[], compiler="/usr/bin/gcc", cache_writable=True)
GPU_MACHINE = dict(python="3.12.3", platform="linux", glibc="2.39", torch="2.11.0+cu130", torch_cuda="13.0",
                   triton="3.6.0", triton_wanted="==3.6.0", numpy="2.3.5", ipywidgets="8.1.9",
                   jupyterlab_widgets="3.0.17", nvrtc="13.0.88", cuda_available=True, gpu="NVIDIA H200",
                   nvidia_device=True, cc=(9, 0), arch_list=["sm_80", "sm_90", "sm_100", "sm_120"],
                   driver="580.159.04", driver_cuda="13.0", ptxas="12.8", compiler="/usr/bin/gcc", cache_writable=True,
                   libcuda=["/usr/lib/x86_64-linux-gnu/libcuda.so.1"], free_memory_gb=140.0)


def only(**given) -> Finding:
    found = preflight(**given)
    assert len(found) == 1, [str(finding) for finding in found]
    assert all(len(part) > 10 and part.endswith((".", ")")) for part in found[0]), found[0]
    return found[0]


def test_a_healthy_gpu_machine_has_no_findings():
    assert preflight(**GPU_MACHINE) == []
    assert paragraph([]).startswith("Measurements here are live")
    on_gpu = only(**GPU_MACHINE | {"numpy": "2.5.0"})  # breaks the interpreter, which is not used here
    assert on_gpu.severity == "note" and on_gpu.stops == ("interpreted",)


def test_a_healthy_laptop_is_told_so():
    finding = only(**LAPTOP)
    assert finding.severity == "note" and finding.stops == ("live",) and "No NVIDIA GPU" in finding.what
    text = paragraph([finding])
    assert "recorded" in text and "interpreted" in text and "compiled" in text and "To mend" not in text


@pytest.mark.parametrize(("given", "what", "fix"), [
    # packages
    (dict(torch="2.11.0", triton="3.5.1"), "torch 2.11.0 needs 3.6.0", "triton==3.6.0"),
    (dict(torch="2.13.0", triton="3.6.0"), "needs 3.7.1", "triton==3.7.1"),
    (dict(torch="2.13.0+cu130", triton="3.8.0"), "needs 3.7.1", "triton==3.7.1"),
    (dict(torch="2.12.0", triton="3.7.1"), "needs 3.7.0", "triton==3.7.0"),
    (dict(torch="2.14.1", triton="3.7.1"), "needs 3.8.0", "triton~=3.8.0"),
    (dict(torch="9.9.0", triton="3.5.1", triton_wanted="==4.0.0"), "needs 4.0.0", "triton==4.0.0"),
    (dict(torch="2.10.0", triton="3.6.0"), "torch is 2.10.0", "requirements.txt"),
    (dict(torch=None), "torch is not installed", "requirements.txt"),
    (dict(torch="2.10.0a0+git1.nv26.01"), "torch is 2.10.0a0", "requirements.txt"),
    (dict(triton="3.6.0", numpy="2.4.0rc1"), "numpy 2.4.0rc1", "numpy<2.4"),
    (dict(triton="3.5.1"), "Triton is 3.5.1", "requirements.txt"),
    (dict(triton="3.6.0", numpy="2.4.0"), "numpy 2.4.0", "numpy<2.4"),
    (dict(triton="3.6.0+git1234", numpy="2.5.1"), "numpy 2.5.1", "numpy<2.4"),
    (dict(triton=None, torch="2.13.0+cpu", platform="linux"), "Triton is not installed", "triton==3.7.1"),
    (dict(triton=None), "Triton is not installed", "pip install"),
    (dict(platform="darwin"), "no package for macOS", "container"),
    (dict(platform="macOS", triton=None), "no package for macOS", "Linux"),
    (dict(platform="Windows"), "no package for Windows", "WSL"),
    (dict(platform="win32", triton=None, torch="2.13.0"), "no package for Windows", "WSL"),
    (dict(triton_imported_first=True), "Triton was imported before helpers", "Restart the kernel"),
    (dict(ipywidgets="8.1.9", jupyterlab_widgets="1.1.0"), "jupyterlab_widgets 1.1.0", "ipywidgets 8 with"),
    (dict(ipywidgets="7.8.5", jupyterlab_widgets="3.0.17"), "ipywidgets is 7.8.5", "jupyterlab_widgets 3"),
    (dict(ipywidgets="8.1.9", jupyterlab_widgets=None), "jupyterlab_widgets is not installed", ">=3,<4"),
    (dict(python="3.10.14"), "Python is 3.10.14", "newer Python"),
    (dict(glibc="2.17"), "glibc 2.17", "newer Linux"),
    (dict(glibc="2.27"), "glibc 2.27", "newer Linux"),
    (dict(cache_writable=False), "cannot be written", "TRITON_CACHE_DIR"),
    # the GPU, its driver and what is built for them
    (dict(cc=(12, 0), arch_list=["sm_80", "sm_86", "sm_90"]), "no sm_120 code", "cu128+ build of torch, or use"),
    (dict(cc="sm_121", arch_list=["sm_90", "sm_110"]), "no sm_121 code", "cu129+"),
    (dict(cc="12.1", arch_list=[]), "no sm_121 code (it has none)", "CPU mode"),
    (dict(cc=(10, 3), arch_list=["sm_90", "sm_120"]), "no sm_103 code", "cu129+"),
    (dict(cc=(8, 0), arch_list=["sm_86", "sm_90"]), "no sm_80 code", "a build of torch that has it"),
    (dict(cc=(12, 1), arch_list=["sm_90", "sm_120a"]), "no sm_121 code", "cu129+"),
    (dict(cc=(12, 0), torch_cuda="12.4"), "CUDA 12.4, which knows no sm_120", "cu128+ build of torch, or use"),
    (dict(cc=(12, 1), torch_cuda="12.6"), "knows no sm_121", "cu128+"),
    (dict(cc=(9, 0), torch_cuda="11.7"), "knows no sm_90", "cu118+"),
    (dict(libcuda=Path("/usr/lib/wsl/lib/libcuda.so.1")), "WSL's folder", "TRITON_LIBCUDA_PATH"),
    (dict(cc=(12, 1), ptxas="12.8"), "sm_121 needs 12.9", "TRITON_PTXAS_PATH"),
    (dict(cc=(12, 0), ptxas="12.4"), "sm_120 needs 12.8", "newer Triton"),
    (dict(cc=(7, 0)), "compute capability 7.0", "recorded"),
    (dict(driver_cuda="12.4", ptx="8.7"), "reads PTX up to 8.4", "CUDA 12.8 or newer"),
    (dict(driver_cuda="13.0", ptx="9.5"), "reads PTX up to 9.0", "CUDA 13.5 or newer"),
    (dict(driver_cuda="12.4", torch_cuda="13.0"), "built for CUDA 13.0", "to 580 or newer"),
    (dict(driver="550.54.15", torch_cuda="13.0"), "550.54.15", "to 580 or newer"),
    (dict(driver="470.82.01", torch_cuda="12.8"), "470.82.01", "to 525 or newer"),
    (dict(driver_cuda="12.8", nvrtc="13.5.37"), "NVRTC is 13.5.37", "to 580 or newer"),
    (dict(libcuda=["/usr/lib/wsl/lib/libcuda.so.1"]), "WSL's folder", "/usr/lib/wsl/lib"),
    (dict(libcuda="/usr/lib/wsl/lib/libcuda.so.1"), "WSL's folder", "TRITON_LIBCUDA_PATH"),
    (dict(libcuda=[]), "libcuda.so.1, was not found", "driver"),
    (dict(libcuda=[], gpu=None, nvidia_device=True), "libcuda.so.1, was not found", "Install NVIDIA's driver"),
    (dict(torch_cuda=None), "CPU build", "CUDA build"),
    (dict(torch_cuda=None, gpu="NVIDIA L4", cuda_available=False, arch_list=[], cc=(8, 9)), "CPU build", "CUDA build"),
    (dict(cuda_available=False, gpu="NVIDIA L4", torch_cuda="13.0"), "does not reach the NVIDIA L4", "nvidia-smi"),
    (dict(cuda_available=False, gpu="NVIDIA L4", visible_devices="-1"), "CUDA_VISIBLE_DEVICES=-1", "Unset it"),
    (dict(free_memory_gb=3.2), "3.2 GB of free memory", "Close other programs"),
    (dict(compiler=None, gpu="NVIDIA L4"), "no C compiler", "gcc"),
    (dict(evidence="fast"), "'fast'", "Unset"),
    (dict(evidence="recorded", gpu="NVIDIA L4"), "recorded is set", "Unset"),
    (dict(evidence="live", gpu=None, nvidia_device=True), "no GPU", "Unset"),
    (dict(evidence="live", cuda_available=False, gpu=None, nvidia_device=True), "no GPU that lessons can use", "Unset"),
    (dict(libcuda=["/usr/lib/x86_64-linux-gnu/libcuda.so.1"], gpu=None, nvidia_device=True), "driver does not answer", "Restart the machine"),
    (dict(not_found_out={"driver": "OSError()"}), "driver: OSError()", "Report"),
])
def test_one_thing_wrong_is_one_finding(given, what, fix):
    finding = only(**given)
    assert what in finding.what and fix in finding.fix, finding


@pytest.mark.parametrize("given", [
    dict(torch="2.11.0", triton="3.6.0"), dict(torch="2.13.0+cpu", triton="3.7.1"),
    dict(torch="2.12.1", triton="3.7.1"),
    dict(torch="2.14.0", triton="3.8.2"), dict(torch="2.13.0", triton="3.7.1+git7"), dict(torch="9.9", triton="3.9"),
    dict(triton="3.6.0", numpy="2.3.5"), dict(triton="3.7.1", numpy="2.5.0"), dict(triton=None, platform="linux")
    | dict(triton="3.7.1"), dict(ipywidgets="8.1.9", jupyterlab_widgets="3.0.17"), dict(python="3.11.0"),
    dict(python="3.14.1"), dict(glibc="2.28"), dict(cc=(12, 1), arch_list=["sm_90", "sm_120"]),
    dict(cc=(8, 9), torch_cuda="11.7"), dict(cc=(12, 1), torch_cuda="12.8"), dict(cc=(13, 0), torch_cuda="13.0"),
    dict(cc=(12, 1), arch_list=["sm_120f"]), dict(cc=(12, 0), arch_list=["sm_120a"]), dict(cc=None, torch_cuda="12.4"),
    dict(cc=(8, 9), arch_list=["sm_80", "sm_120"]), dict(cc=(9, 0), arch_list=["sm_90a"]),
    dict(cc=(8, 9), arch_list="8.0;8.6+PTX"), dict(cc="9.0", arch_list=["9.0a"]), dict(driver_cuda="9.2", ptx="6.2"),
    dict(cc=(12, 0), ptxas="12.8"), dict(cc=(13, 0), ptxas="12.8"), dict(driver_cuda="12.4", ptx="8.4"),
    dict(driver_cuda="13.0", torch_cuda="12.8"), dict(driver="580.65", torch_cuda="13.0"),
    dict(driver_cuda="12.4", torch_cuda="12.8"), dict(driver_cuda="13.0", nvrtc="13.5.37"),
    dict(libcuda=["/usr/lib/wsl/lib/libcuda.so.1"], cuda_available=True), dict(libcuda=[], gpu=None),
    dict(torch_cuda="13.0"), dict(free_memory_gb=24.0), dict(free_memory_gb=None), dict(compiler=None, gpu=None)
    | dict(nvidia_device=True), dict(evidence="auto"), dict(evidence=""), dict(cache_writable=True),
    dict(triton_imported_first=False), dict(platform="linux"), dict(driver_cuda=None, ptx=None, nvrtc=None),
    dict(cc=None, arch_list=None, ptxas=None), dict(not_found_out={}),
])
def test_what_is_well_is_not_mentioned(given):
    assert [f for f in preflight(**given) if "No NVIDIA GPU" not in f.what] == []


@pytest.mark.parametrize(("cuda", "ptx"), [("11.0", "7.0"), ("11.8", "7.8"), ("12.0", "8.0"), ("12.4", "8.4"),
                                           ("12.5", "8.5"), ("12.6", "8.5"), ("12.7", "8.6"), ("12.8", "8.7"),
                                           ("12.9", "8.8"), ("13.0", "9.0"), ("13.1", "9.1"), ("13.5", "9.5")])
def test_ptx_versions(cuda, ptx):
    assert hardware.newest_ptx(cuda) == ptx
    assert preflight(driver_cuda=cuda, ptx=ptx) == []
    assert hardware.newest_ptx(hardware.cuda_of_ptx(ptx)) == ptx
    major, minor = ptx.split(".")
    assert f"up to {ptx}" in only(driver_cuda=cuda, ptx=f"{major}.{int(minor) + 1}").what


def test_ptx_versions_agree_with_triton():
    compiler = pytest.importorskip("triton.backends.nvidia.compiler")
    for cuda in ("11.8", "12.4", "12.6", "12.8", "13.0", "13.1"):
        assert compiler.ptx_get_version(cuda) == int(hardware.newest_ptx(cuda).replace(".", ""))


def test_the_pinned_pair_is_the_one_that_torch_asks_for():
    lines = (machine.Path(__file__).parent.parent / "requirements.txt").read_text()
    pins = dict(line.split(";")[0].strip().split("==") for line in lines.splitlines() if "==" in line)
    assert software.triton_wanted(pins["torch"]) == f"=={pins['triton']}"
    assert preflight(torch=pins["torch"], triton=pins["triton"], numpy=pins["numpy"]) == []


def test_a_code_build_for_a_feature_set_is_read_too():
    assert hardware.has_code_for((12, 1), ["sm_120f"]) and not hardware.has_code_for((12, 0), ["sm_121", "compute_90"])


def test_a_driver_that_does_not_answer_is_no_live_measurement():
    """The library of an updated driver without a restart finds no GPU, and nothing else is wrong."""
    given = {k: v for k, v in GPU_MACHINE.items() if k not in ("driver", "driver_cuda", "free_memory_gb", "cc", "arch_list", "ptxas")}
    text = paragraph([only(**given | {"gpu": None, "cuda_available": False})])
    assert text.startswith("Measurements here are recorded ones") and "Restart the machine" in text


def test_a_gpu_without_management_library_is_there_all_the_same(monkeypatch):
    """As on a Jetson: torch names it."""
    def init():
        raise RuntimeError("no NVML")

    monkeypatch.setitem(sys.modules, "pynvml", types.SimpleNamespace(NVMLError=RuntimeError, nvmlInit=init))
    assert machine._driver({"gpu": "Orin"}) == {"gpu": "Orin"} and machine._driver({}) == {"gpu": None}
    assert preflight(**GPU_MACHINE | {"gpu": "Orin", "nvidia_device": False}) == preflight(gpu=None, cuda_available=True) == []


@pytest.mark.parametrize("given", [
    {"evidence": "lve"}, {"evidence": "live"}, {"evidence": "live", "triton": None},
    {"evidence": "live", "cuda_available": True, "cc": (12, 0), "arch_list": ["sm_90"], "torch_cuda": "13.0"},
])  # fmt: skip
def test_where_importing_helpers_would_stop_nothing_is_promised(given):
    assert paragraph(preflight(**LAPTOP | given)).startswith("The course does not run here yet")


def test_paragraphs():
    dead = paragraph(preflight(**LAPTOP | {"python": "3.9"}))
    assert dead.startswith("The course does not run here yet. Python is 3.9.") and "To mend" in dead
    mac = paragraph(preflight(**LAPTOP | {"platform": "darwin", "triton": None}))
    assert "recorded" in mac and "interpreted" not in mac and "To mend" not in mac
    old = paragraph(preflight(**GPU_MACHINE | {"driver": "550.54", "driver_cuda": "12.4"}))
    assert "recorded" in old and "interpreted" in old and "Update the driver" in old
    both = preflight(triton="3.6.0", numpy="2.4.0", gpu=None)
    assert "compiled" in paragraph(both) and "interpreted" not in paragraph(both)


def test_a_finding_reads_in_three_parts():
    finding = only(glibc="2.17")
    what, why, fix = finding
    assert (what, why, fix) == (finding.what, finding.why, finding.fix) and str(finding) == f"{what} {why} {fix}"
    assert finding.severity == "problem" and finding.stops == ALL_EVIDENCE


def test_wrong_questions_are_refused():
    with pytest.raises(TypeError, match=r"unknown facts cuda_version, tritn; known are python, .*triton"):
        preflight(tritn="3.6.0", cuda_version="12")
    for wrong in ("newest", 12.4, (12, 4)):
        with pytest.raises(ValueError, match='driver_cuda must be a version as a string, such as "12.4"'):
            preflight(driver_cuda=wrong, ptx="8.7")
    with pytest.raises(ValueError, match="compute capability"):
        preflight(cc="RTX 5090", arch_list=[])
    for wrong in ({"evidence": 1}, {"platform": 3}, {"free_memory_gb": "3"}, {"free_memory_gb": float("nan")}, {"free_memory_gb": -1},
                  {"arch_list": [None], "cc": (9, 0)}, {"arch_list": 90, "cc": (9, 0)}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a"):
            preflight(**wrong)


def test_every_rule_asks_for_known_facts_and_every_fact_is_asked_for():
    assert {need for needs, _ in RULES for need in needs} <= set(machine.KNOWN_FACTS)
    text = "".join(path.read_text() for path in machine.Path(machine.__file__).parent.glob("*ware.py"))
    assert [fact for fact in machine.KNOWN_FACTS if f'"{fact}"' not in text] == []


def test_the_facts_of_this_machine():
    found = facts()
    assert set(found) <= set(machine.KNOWN_FACTS) and "not_found_out" not in found
    assert found["python"] == ".".join(map(str, sys.version_info[:3])) and found["platform"] == sys.platform
    import torch

    assert found["torch"] == torch.__version__ and found["cuda_available"] == torch.cuda.is_available()
    assert found["cache_writable"] is True
    assert preflight() == preflight(**found)
    packages = ("torch", "triton", "triton_wanted", "numpy", "ipywidgets", "jupyterlab_widgets", "python")
    installed = {name: found[name] for name in (*packages, "cuda_available") if name in found}
    assert [f for f in preflight(**installed) if f.severity == "problem"] == []


def test_collecting_facts_survives_anything(monkeypatch, tmp_path):
    def broken(_):
        raise OSError("no such thing")

    broken.__name__ = "_driver"
    monkeypatch.setattr(machine, "_driver", broken)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("COURSE_EVIDENCE", "recorded")
    found = facts()
    assert "no such thing" in found["not_found_out"]["driver"] and found["cache_writable"] is False
    assert found["evidence"] == "recorded" and ("gpu" in found) == torch.cuda.is_available()
    assert any("driver: OSError" in finding.what for finding in preflight())


def test_facts_of_a_gpu(monkeypatch):
    nvml = types.SimpleNamespace(
        NVMLError=RuntimeError, nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 1,
        nvmlSystemGetCudaDriverVersion_v2=lambda: 13000, nvmlSystemGetDriverVersion=lambda: "580.159.04",
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetName=lambda device: "NVIDIA H200",
        nvmlDeviceGetCudaComputeCapability=lambda device: [9, 0],
        nvmlDeviceGetMemoryInfo=lambda device: types.SimpleNamespace(free=150e9))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert machine._driver({}) == {"driver": "580.159.04", "driver_cuda": "13.0", "gpu": "NVIDIA H200", "cc": (9, 0),
                                   "free_memory_gb": 150.0}
    nvml.nvmlDeviceGetHandleByUUID = {"GPU-12ab": 1}.__getitem__
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace(uuid="12ab"))
    nvml.nvmlDeviceGetMemoryInfo = {1: types.SimpleNamespace(free=20e9)}.__getitem__
    second = machine._driver({"cuda_available": True, "gpu": "NVIDIA L4", "cc": (8, 9)})  # the one that torch uses
    assert second == {"driver": "580.159.04", "driver_cuda": "13.0", "free_memory_gb": 20.0}

    def not_supported(device):
        raise nvml.NVMLError("Not Supported")

    nvml.nvmlDeviceGetMemoryInfo = not_supported
    assert machine._driver({})["gpu"] == "NVIDIA H200" and "free_memory_gb" not in machine._driver({})
    if machine._version("triton"):
        assert float(machine._ptxas({"triton": "3.7.1", "cc": (12, 0)})["ptxas"]) >= 12.8


def test_an_unwritable_folder_is_noticed(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    assert machine._cache({}) == {"cache_writable": False}


def test_without_more_facts_torch_that_reaches_no_gpu_is_not_live():
    for given in (dict(cuda_available=False), dict(cuda_available=False, cc=(12, 0), arch_list=["sm_120"])):
        assert only(**given).stops == ("live",) and paragraph(preflight(**given)).startswith("Measurements here are recorded ones")


def test_facts_as_others_write_them():
    listed = preflight(cc=(12, 0), arch_list=["sm_80", "sm_90"])
    assert preflight(cc="12.0", arch_list="sm_80 sm_90") == preflight(cc=12.0, arch_list="sm_80; sm_90") == listed
    assert preflight(torch="2.11.0a0+git1.nv26.01") == preflight(**GPU_MACHINE | {"evidence": " Live "}) == []
    assert preflight(platform=None) == preflight(glibc=None) == preflight(python=None) == []
    assert paragraph(preflight(cc=(7, 0))).count("To mend") == 0


def test_an_unwritable_cache_stops_launches_only():
    assert only(cache_writable=False).stops == ("live",) and only(cache_writable=False).severity == "problem"
    assert [f.severity for f in preflight(cache_writable=False, gpu=None)] == ["note", "note"]


def test_the_command_says_what_works():
    done = subprocess.run([sys.executable, "-m", "helpers.preflight"], capture_output=True, text=True, cwd=machine.Path(__file__).parents[1])
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith(paragraph(preflight()))
