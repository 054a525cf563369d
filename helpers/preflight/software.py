"""Rules about Python packages and the system they run on."""

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from helpers.preflight.rules import ALL_EVIDENCE, Finding, rule

# torch asks for one Triton. Read from the metadata of torch's wheels; of the installed torch it is read anew.
TRITON_OF_TORCH = {
    "2.4": "==3.0.0", "2.5": "==3.1.0", "2.6": "==3.2.0", "2.7.0": "==3.3.0", "2.7.1": "==3.3.1", "2.8": "==3.4.0",
    "2.9.0": "==3.5.0", "2.9.1": "==3.5.1", "2.10": "==3.6.0", "2.11": "==3.6.0", "2.12.0": "==3.7.0",
    "2.12.1": "==3.7.1", "2.13": "==3.7.1", "2.14": "~=3.8.0",
}
LABEXTENSION_OF_IPYWIDGETS = {7: 1, 8: 3}
OLDEST = {"python": "3.11", "torch": "2.11", "triton": "3.6", "glibc": "2.28"}


def triton_wanted(torch: str) -> str | None:
    """The Triton that a torch version asks for, as a specifier ("==3.6.0"); None for a torch that is not known."""
    version = Version(torch)
    for key in (f"{version.major}.{version.minor}.{version.micro}", f"{version.major}.{version.minor}"):
        if key in TRITON_OF_TORCH:
            return TRITON_OF_TORCH[key]
    return None


@rule("python")
def old_python(f):
    if f["python"] and Version(f["python"]) < Version(OLDEST["python"]):
        return Finding(f"Python is {f['python']}.", f"The course needs {OLDEST['python']} or newer.",
                       "Install a newer Python and make the environment again: make clean, make lab PYTHON=python3.12.",
                       stops=ALL_EVIDENCE)


@rule("glibc")
def old_glibc(f):
    if f["glibc"] and Version(f["glibc"]) < Version(OLDEST["glibc"]):
        return Finding(f"The C library is glibc {f['glibc']}.",
                       f"The wheels of torch and Triton want glibc {OLDEST['glibc']} or newer and do not load.",
                       "Use a newer Linux, or a container with one.", stops=ALL_EVIDENCE)


@rule("platform")
def no_triton_wheel(f):
    if f["platform"] in ("darwin", "win32") and not f.get("triton"):
        name = "macOS" if f["platform"] == "darwin" else "Windows"
        where = "a Linux container or a Linux machine" if name == "macOS" else "WSL 2, a Linux container or Linux"
        return Finding(f"Triton has no package for {name}.",
                       "Kernels cannot be interpreted or compiled here: values come from torch, compiled code and "
                       "measurements from what is stored, each labelled so.",
                       f"For everything else use {where}.", severity="note", stops=("live", "interpreted", "compiled"))


@rule("triton")
def missing_triton(f):
    if f["triton"] is None and f.get("platform", "linux") not in ("darwin", "win32"):
        wanted = _wanted(f) or ""
        return Finding("Triton is not installed.", "The CPU wheel of torch does not bring it, not even on Linux.",
                       f'Install it: pip install "triton{wanted}".', stops=("live", "interpreted", "compiled"))


@rule("torch")
def old_torch(f):
    if f["torch"] is None:
        return Finding("torch is not installed.", "Nothing of the course runs without it.",
                       "Install the pinned versions: pip install -r requirements.txt.", stops=ALL_EVIDENCE)
    if Version(f["torch"]).release[:2] < Version(OLDEST["torch"]).release:  # NVIDIA's containers bring a 2.11.0a0
        return Finding(f"torch is {f['torch']}.", f"The course is written for {OLDEST['torch']} and newer.",
                       "Install the pinned versions: pip install -r requirements.txt.")


@rule("torch", "triton")
def triton_is_not_torchs(f):
    wanted = _wanted(f)
    if f["triton"] is None or wanted is None or SpecifierSet(wanted).contains(_base(f["triton"]), prereleases=True):
        return None
    version = wanted.lstrip("=~")
    return Finding(f"Triton is {f['triton']}, but torch {f['torch']} needs {version}.",
                   "Another package has moved it. torch.compile and the kernels may fail, or work differently.",
                   f'Install the pair again: pip install "triton{wanted}"; then pip check must be silent.')


@rule("triton")
def old_triton(f):
    if f["triton"] is not None and Version(f["triton"]) < Version(OLDEST["triton"]) and "torch" not in f:
        return Finding(f"Triton is {f['triton']}.", f"The course is written for {OLDEST['triton']} and newer.",
                       "Install the pinned versions: pip install -r requirements.txt.")


@rule("triton", "numpy")
def numpy_breaks_the_interpreter(f):
    if f["triton"] is None or f["numpy"] is None:
        return None
    if Version(f["numpy"]).release[:2] >= (2, 4) and Version(_base(f["triton"])) < Version("3.7"):
        live = f.get("cuda_available", False)
        return Finding(f"numpy {f['numpy']} does not work with the interpreter of Triton {f['triton']}.",
                       "Kernels that loop up to a runtime size fail when they run on the CPU; this concerns Triton 3.6 "
                       "and older with numpy 2.4 and newer." + (" On the GPU they run." if live else ""),
                       'Install an older numpy (pip install "numpy<2.4"), or a torch that asks for Triton 3.7+.',
                       severity="note" if live else "problem", stops=("interpreted",))


@rule("triton_imported_first")
def triton_came_first(f):
    if f["triton_imported_first"]:
        return Finding("Triton was imported before helpers.", "It reads once, on import, how kernels are to be run.",
                       "Restart the kernel and import helpers first.", stops=("interpreted",))


@rule("ipywidgets", "jupyterlab_widgets")
def widgets_do_not_match(f):
    if f["ipywidgets"] is None or f["jupyterlab_widgets"] is None:
        missing = "ipywidgets" if f["ipywidgets"] is None else "jupyterlab_widgets"
        return Finding(f"{missing} is not installed.", "Sliders do not show; a static picture says the same.",
                       'Install the pair: pip install "ipywidgets>=8.1,<9" "jupyterlab_widgets>=3,<4".')
    major, there = Version(f["ipywidgets"]).major, Version(f["jupyterlab_widgets"]).major
    wanted = LABEXTENSION_OF_IPYWIDGETS.get(major)
    if wanted is not None and wanted != there:
        return Finding(f"ipywidgets is {f['ipywidgets']}, jupyterlab_widgets {f['jupyterlab_widgets']}.",
                       f"ipywidgets {major} talks to jupyterlab_widgets {wanted}; otherwise sliders stay empty.",
                       'Install the pair, ipywidgets 8 with jupyterlab_widgets 3, where JupyterLab runs: '
                       'pip install "ipywidgets>=8.1,<9" "jupyterlab_widgets>=3,<4".')


@rule("cache_writable")
def cache_not_writable(f):
    if not f["cache_writable"]:
        no_gpu = "gpu" in f and f["gpu"] is None
        return Finding("Triton's cache folder cannot be written.",
                       "Launches on a GPU keep their code there; compiling for a named target works without.",
                       "Set TRITON_CACHE_DIR to a folder of yours, or free disk space.",
                       severity="note" if no_gpu else "problem", stops=("live",))


@rule("not_found_out")
def not_everything_was_found_out(f):
    if f["not_found_out"]:
        causes = "; ".join(f"{what}: {why}" for what, why in f["not_found_out"].items())
        return Finding(f"Some facts about this machine could not be found out ({causes}).",
                       "The other findings may miss something.", "Report it, with this line.", severity="note")


def _wanted(f: dict) -> str | None:
    return f.get("triton_wanted") or (triton_wanted(f["torch"]) if f.get("torch") else None)


def _base(version: str) -> str:
    """Without the local part: "3.6.0+git1234" -> "3.6.0"."""
    return Version(version).public
