"""The facts about this machine that `helpers.preflight` judges. A fact that cannot be found out is left out."""

import ctypes.util
import glob
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KNOWN_FACTS = {
    "python": "version of Python",
    "platform": "linux, darwin (macOS) or win32 (Windows)",
    "glibc": "version of the C library (Linux)",
    "torch": "version of torch",
    "torch_cuda": "CUDA version that torch is built for; None: a CPU build",
    "triton": "version of Triton; None: not installed",
    "triton_wanted": "the Triton that the installed torch asks for, as a specifier",
    "triton_imported_first": "True if Triton was imported before helpers",
    "numpy": "version of numpy",
    "ipywidgets": "version of ipywidgets, where the kernel runs",
    "jupyterlab_widgets": "version of jupyterlab_widgets, where JupyterLab runs",
    "gpu": "name of the NVIDIA GPU that torch uses, otherwise of the first one; None: the driver shows none",
    "nvidia_device": "True if an NVIDIA display device is built in, with a driver or without",
    "cc": "compute capability of the GPU",
    "arch_list": "what torch has binary code for: sm_80, sm_90, ...",
    "cuda_available": "what torch.cuda.is_available() says",
    "visible_devices": "the environment's CUDA_VISIBLE_DEVICES, if set",
    "driver": "version of the display driver",
    "driver_cuda": "newest CUDA version that the driver supports",
    "ptx": "PTX version of code that the driver is to read (Triton and this course hand it binary code instead)",
    "ptxas": "version of the ptxas that Triton uses for this GPU",
    "nvrtc": "version of NVRTC; None: not installed",
    "libcuda": "where libcuda.so.1 was found",
    "compiler": "the C compiler that Triton would use; None: there is none",
    "free_memory_gb": "free memory of the GPU in GB",
    "cache_writable": "True if Triton's cache folder can be written",
    "evidence": "the environment's COURSE_EVIDENCE, if set",
    "not_found_out": "what could not be looked at, and why",
}


def facts() -> dict:
    """The facts of KNOWN_FACTS about this machine, without those that cannot be found out. Never raises."""
    found = {}
    for probe in (_python, _packages, _torch, _driver, _libcuda, _device, _environment, _cache, _ptxas):
        try:
            found |= probe(found)
        except Exception as error:  # a broken part of the machine must not keep the others from being looked at
            found.setdefault("not_found_out", {})[probe.__name__[1:]] = repr(error)
    return found


def _python(_) -> dict:
    found = {"python": platform.python_version(), "platform": sys.platform}
    name, version = platform.libc_ver()
    return found | ({"glibc": version} if name == "glibc" else {})


def _packages(_) -> dict:
    found = {name: _version(name) for name in ("triton", "numpy", "ipywidgets", "jupyterlab_widgets")}
    if _version("torch") is not None:
        for requirement in importlib.metadata.requires("torch") or ():
            match = re.match(r"triton\s*([=~]=[\d.]+)", requirement)
            if match:
                found["triton_wanted"] = match[1]
    found["nvrtc"] = _version("nvidia-cuda-nvrtc") or _version("nvidia-cuda-nvrtc-cu12")
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch(_) -> dict:
    import torch

    found = {"torch": torch.__version__, "torch_cuda": torch.version.cuda, "cuda_available": torch.cuda.is_available()}
    if found["cuda_available"]:
        found |= {"gpu": torch.cuda.get_device_name(), "cc": torch.cuda.get_device_capability(), "arch_list": torch.cuda.get_arch_list()}
    return found


def _driver(found: dict) -> dict:
    """What the driver's management library says, which works without torch. (Jetsons have a GPU without this library.)"""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or no device
        return {"gpu": found.get("gpu")}
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        versions = {"driver": pynvml.nvmlSystemGetDriverVersion(), "driver_cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}
        if found.get("cuda_available"):  # torch has said which GPU it uses: not always the first one of the driver
            import torch

            uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
            return versions | _free_memory(pynvml, lambda: pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        if pynvml.nvmlDeviceGetCount() == 0:
            return versions | {"gpu": None}
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        return versions | {"gpu": pynvml.nvmlDeviceGetName(device), "cc": tuple(pynvml.nvmlDeviceGetCudaComputeCapability(device)),
                           **_free_memory(pynvml, lambda: device)}
    finally:
        pynvml.nvmlShutdown()


def _free_memory(pynvml, device) -> dict:
    try:
        return {"free_memory_gb": pynvml.nvmlDeviceGetMemoryInfo(device()).free / 1e9}
    except pynvml.NVMLError:  # a GPU that shares the memory of its CPU (GB10, Jetson), or a part of one (MIG)
        return {}


def _libcuda(_) -> dict:
    if sys.platform != "linux":
        return {}
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/usr/lib/x86_64-linux-gnu",
               "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"]
    paths = [str(path) for folder in folders if folder for path in [Path(folder, "libcuda.so.1")] if path.exists()]
    if not paths and ctypes.util.find_library("cuda"):
        paths = [ctypes.util.find_library("cuda")]
    return {"libcuda": list(dict.fromkeys(paths))}


def _device(_) -> dict:
    """Looks at the PCI bus, where a device shows up without any driver."""
    if sys.platform != "linux":
        return {}
    display = [Path(path).parent for path in glob.glob("/sys/bus/pci/devices/*/class")
               if Path(path).read_text().startswith("0x03")]
    return {"nvidia_device": any(Path(device, "vendor").read_text().strip() == "0x10de" for device in display)}


def _environment(_) -> dict:
    found = {"compiler": os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")}
    for name, variable in (("visible_devices", "CUDA_VISIBLE_DEVICES"), ("evidence", "COURSE_EVIDENCE")):
        if variable in os.environ:
            found[name] = os.environ[variable]
    return found


def _cache(_) -> dict:
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path(os.environ.get("TRITON_HOME") or Path.home(), ".triton"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        return {"cache_writable": True}
    except OSError:
        return {"cache_writable": False}


def _ptxas(found: dict) -> dict:
    if found.get("triton") is None or found.get("cc") is None:
        return {}
    folder = Path(importlib.metadata.distribution("triton").locate_file("triton/backends/nvidia/bin"))
    blackwell = Path(folder, "ptxas-blackwell")
    ptxas = blackwell if found["cc"] >= (10, 0) and blackwell.exists() else Path(folder, "ptxas")
    said = subprocess.run([ptxas, "--version"], capture_output=True, text=True, timeout=10).stdout
    match = re.search(r"release ([\d.]+)", said)
    return {"ptxas": match[1]} if match else {}
