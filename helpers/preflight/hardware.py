"""Rules about the GPU, its driver, and what is built for them."""

from os import PathLike

from packaging.version import Version

from helpers.facts import parse_cc
from helpers.preflight.rules import ALL_EVIDENCE, Finding, rule

# The first CUDA toolkit that compiles for a compute capability, and the oldest driver of a CUDA major version
# (release notes of the toolkits).
CUDA_OF_CC = {(7, 5): "10.0", (8, 0): "11.0", (8, 6): "11.1", (8, 7): "11.4", (8, 9): "11.8", (9, 0): "11.8",
              (10, 0): "12.8", (10, 3): "12.9", (11, 0): "13.0", (12, 0): "12.8", (12, 1): "12.9"}
DRIVER_OF_CUDA = {11: "450", 12: "525", 13: "580"}
FREE_MEMORY_GB = 8  # the largest experiment holds three tensors of 1 GiB, and works on up to 4 GiB


def newest_ptx(driver_cuda: str) -> str:
    """The newest PTX version that a driver for this CUDA version reads: "12.4" -> "8.4"."""
    cuda = Version(driver_cuda)
    if cuda.major < 11:
        return f"6.{cuda.minor + (3 if cuda.major == 10 else 0)}"
    minor = cuda.minor - 1 if cuda.major == 12 and cuda.minor >= 6 else cuda.minor  # 12.5 and 12.6 share PTX 8.5
    return f"{cuda.major - 4}.{minor}"


def cuda_of_ptx(ptx: str) -> str:
    """The first CUDA version whose drivers read a PTX version: "8.7" -> "12.8"."""
    version = Version(ptx)
    if version.major < 7:
        return "11.0"
    minor = version.minor + 1 if version.major == 8 and version.minor >= 6 else version.minor
    return f"{version.major + 4}.{minor}"


def _to_driver(cuda_major: int) -> str:
    oldest = DRIVER_OF_CUDA.get(cuda_major)
    return f" to {oldest} or newer" if oldest else ""


def has_code_for(cc: tuple[int, int], arch_list: list[str]) -> bool:
    """True if a binary for one of `arch_list` runs on cc: the same major version, not a newer minor one; sm_120a: exactly.

    The list is torch's ("sm_86") or as builds are told it ("8.6+PTX"). PTX does not count, as it does not for torch.
    """
    compiled = [(parse_cc(arch.removesuffix("+PTX")), arch.endswith("a")) for arch in arch_list if not arch.startswith("compute_")]
    return any(found and (found == cc or found[0] == cc[0] and found[1] < cc[1] and not exactly) for found, exactly in compiled)


@rule("gpu")
def no_gpu(f):
    if f["gpu"] is None and not f.get("nvidia_device") and not f.get("cuda_available"):
        return Finding("No NVIDIA GPU was found.",
                       "Lessons show recorded measurements, each with the GPU it comes from.",
                       "Nothing to mend: the whole course works so.", severity="note", stops=("live",))


@rule("gpu", "nvidia_device", "libcuda")
def driver_does_not_answer(f):
    if f["gpu"] is None and f["nvidia_device"] and f["libcuda"] and not f.get("cuda_available"):
        return Finding("An NVIDIA GPU is built in and its driver installed, but the driver does not answer.",
                       "No program reaches the GPU. Most often the driver was updated and the one in memory is still the old one.",
                       "Restart the machine (in a container: its host); nvidia-smi must then list the GPU.", stops=("live",))


@rule("evidence")
def evidence_forced(f):
    asked = (f["evidence"] or "auto").strip().lower() or "auto"
    if asked not in ("auto", "live", "recorded"):
        return Finding(f"COURSE_EVIDENCE is {f['evidence']!r}.", "It must be auto, live or recorded; importing helpers stops.",
                       "Unset COURSE_EVIDENCE.", stops=ALL_EVIDENCE)
    if asked == "recorded" and f.get("gpu"):
        return Finding("COURSE_EVIDENCE=recorded is set.", "Recordings are shown although there is a GPU.",
                       "Unset it to measure here.", severity="note", stops=("live",))
    if asked == "live" and _cannot_be_live(f):
        return Finding("COURSE_EVIDENCE=live is set, but there is no GPU that lessons can use.", "Importing helpers stops with an error.",
                       "Unset COURSE_EVIDENCE.", stops=ALL_EVIDENCE)


def _cannot_be_live(f: dict) -> bool:
    """As `helpers.mode` decides, as far as the facts are given."""
    missing = any(name in f and f[name] is None for name in ("torch_cuda", "triton"))
    unreached = f["cuda_available"] is False if "cuda_available" in f else "gpu" in f and f["gpu"] is None
    no_code = bool(f.get("cc") and f.get("arch_list") is not None and not has_code_for(f["cc"], f["arch_list"]))
    return missing or unreached or no_code


@rule("libcuda")
def no_libcuda(f):
    nobody_expects_it = "gpu" in f and f["gpu"] is None and not f.get("nvidia_device")
    if not f["libcuda"] and not nobody_expects_it:
        return Finding("The driver's library, libcuda.so.1, was not found.",
                       "Without NVIDIA's driver no program reaches the GPU (nouveau does not run CUDA).",
                       "Install NVIDIA's driver; in a container, start it with the GPU passed through (--gpus all).",
                       stops=("live",))


@rule("libcuda")
def libcuda_in_wsl_only(f):
    found = [f["libcuda"]] if isinstance(f["libcuda"], str | PathLike) else list(f["libcuda"] or ())
    if found and all("/wsl/" in str(path) for path in found) and not f.get("cuda_available"):
        return Finding(f"libcuda is only in WSL's folder: {', '.join(map(str, found))}.",
                       "WSL keeps it outside the folders that are searched, and only as libcuda.so.1, without the name "
                       "libcuda.so that linkers look for.",
                       "Before starting: export TRITON_LIBCUDA_PATH=/usr/lib/wsl/lib "
                       "LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH. Install no Linux driver inside WSL.",
                       stops=("live",))


@rule("torch_cuda")
def torch_without_cuda(f):
    if f["torch_cuda"] is None and not ("gpu" in f and f["gpu"] is None):
        return Finding("This torch is a CPU build (torch.version.cuda is None).",
                       "It cannot use a GPU, so lessons show recordings. conda picks such a build silently.",
                       "On a machine with an NVIDIA GPU install a CUDA build: pip uninstall torch, then "
                       "pip install -r requirements.txt without a CPU index.", stops=("live",))


@rule("torch_cuda")
def driver_too_old_for_torch(f):
    if f["torch_cuda"] is None:
        return None  # another rule
    wanted = Version(f["torch_cuda"]).major
    oldest = DRIVER_OF_CUDA.get(wanted)
    if f.get("driver_cuda"):
        too_old, has = Version(f["driver_cuda"]).major < wanted, f"for CUDA {f['driver_cuda']}"
    elif f.get("driver") and oldest:
        too_old, has = Version(f["driver"]) < Version(oldest), f["driver"]
    else:
        return None
    if too_old:
        return Finding(f"The display driver is {has}; this torch is built for CUDA {f['torch_cuda']}.",
                       "A driver runs programs of its own CUDA major version and older ones.",
                       f"Update the driver{_to_driver(wanted)}, or install a torch build for the driver's CUDA.",
                       stops=("live",))


@rule("driver_cuda", "nvrtc")
def nvrtc_newer_than_driver(f):
    if f["nvrtc"] is None or not f["driver_cuda"]:
        return None
    if Version(f["nvrtc"]).major > Version(f["driver_cuda"]).major:
        return Finding(f"NVRTC is {f['nvrtc']}, the driver is for CUDA {f['driver_cuda']}.",
                       "The driver does not load what a newer major version compiled, so the CUDA C++ lessons cannot "
                       "launch.",
                       f"Update the driver{_to_driver(Version(f['nvrtc']).major)}.",
                       stops=("live",))


@rule("driver_cuda", "ptx")
def driver_cannot_read_ptx(f):
    if f["driver_cuda"] is None or f["ptx"] is None:
        return None
    newest = newest_ptx(f["driver_cuda"])
    if Version(f["ptx"]) > Version(newest):
        return Finding(f"The code is PTX {f['ptx']}; a driver for CUDA {f['driver_cuda']} reads PTX up to {newest}.",
                       "The driver refuses it as an unsupported PTX version.",
                       f"Update the driver to one for CUDA {cuda_of_ptx(f['ptx'])} or newer, or compile with an older "
                       "toolkit.", stops=("live",))


@rule("cc", "arch_list")
def torch_has_no_code_for_the_gpu(f):
    if f["cc"] is None or f["arch_list"] is None or ("torch_cuda" in f and f["torch_cuda"] is None):
        return None
    if has_code_for(f["cc"], f["arch_list"]):
        return None
    name, needs = f"sm_{f['cc'][0]}{f['cc'][1]}", CUDA_OF_CC.get(f["cc"])
    is_new = needs is not None and Version(needs) >= Version("12.8")
    build = f"a cu{needs.replace('.', '')}+ build of torch" if is_new else "a build of torch that has it"
    there = ", ".join(f["arch_list"]) or "none"
    return Finding(f"This torch has no {name} code (it has {there}).",
                   "Its kernels do not run on this GPU, although torch.cuda.is_available() is True.",
                   f"Install {build}, or use the course's CPU mode (COURSE_EVIDENCE=recorded).", stops=("live",))


@rule("cc", "torch_cuda")
def torch_older_than_the_gpu(f):
    """Where nobody says what torch has code for, its CUDA version may tell."""
    if f["cc"] is None or f["torch_cuda"] is None or f.get("arch_list") is not None:
        return None
    needs = [Version(cuda) for (major, minor), cuda in CUDA_OF_CC.items() if major == f["cc"][0] and minor <= f["cc"][1]]
    if needs and Version(f["torch_cuda"]) < min(needs):
        name = f"sm_{f['cc'][0]}{f['cc'][1]}"
        return Finding(f"This torch is built for CUDA {f['torch_cuda']}, which knows no {name}.",
                       "Its kernels do not run on this GPU, although torch.cuda.is_available() is True.",
                       f"Install a cu{str(min(needs)).replace('.', '')}+ build of torch, or use the course's CPU mode "
                       "(COURSE_EVIDENCE=recorded).", stops=("live",))


@rule("cc")
def gpu_older_than_the_course(f):
    if f["cc"] is not None and f["cc"] < (7, 5):
        return Finding(f"The GPU has compute capability {f['cc'][0]}.{f['cc'][1]}.",
                       "The course, like current builds of torch and Triton, starts at 7.5.",
                       "Nothing to mend: recordings are shown (COURSE_EVIDENCE=recorded).", severity="note", stops=("live",))


@rule("cc", "ptxas")
def ptxas_too_old_for_the_gpu(f):
    needs = CUDA_OF_CC.get(f["cc"])
    if needs and f["ptxas"] and Version(f["ptxas"]) < Version(needs):
        name = f"sm_{f['cc'][0]}{f['cc'][1]}"
        return Finding(f"Triton's ptxas is {f['ptxas']}, and {name} needs {needs}.",
                       "Kernels cannot be compiled for this GPU.",
                       "Install a newer Triton with its torch, or set TRITON_PTXAS_PATH to a newer ptxas "
                       "(TRITON_PTXAS_BLACKWELL_PATH for Blackwell).", stops=("live",))


@rule("cuda_available")
def gpu_hidden_from_torch(f):
    if f["cuda_available"] or ("torch_cuda" in f and f["torch_cuda"] is None):
        return None
    if "gpu" not in f:
        return Finding("torch reaches no GPU (torch.cuda.is_available() is False).", "Lessons show recordings.",
                       "If there is an NVIDIA GPU, nvidia-smi must list it, and torch must be a CUDA build.",
                       severity="note", stops=("live",))
    if not f["gpu"]:
        return None  # another rule
    if f.get("visible_devices") in ("", "-1"):
        return Finding(f"CUDA_VISIBLE_DEVICES={f['visible_devices']} hides the {f['gpu']}.",
                       "Lessons show recordings.", "Unset it to measure here.", severity="note", stops=("live",))
    return Finding(f"torch does not reach the {f['gpu']}.", "The driver sees it, torch.cuda.is_available() is False.",
                   "Restart after a driver update; check CUDA_VISIBLE_DEVICES and that nvidia-smi works.",
                   stops=("live",))


@rule("free_memory_gb")
def little_gpu_memory(f):
    if f["free_memory_gb"] is not None and f["free_memory_gb"] < FREE_MEMORY_GB:
        return Finding(f"The GPU has {f['free_memory_gb']:.1f} GB of free memory.",
                       f"The largest experiments need {FREE_MEMORY_GB} GB and stop with an out-of-memory error.",
                       "Close other programs on the GPU (nvidia-smi lists them), or restart other notebooks' kernels; "
                       "smaller sizes still run.", severity="note")


@rule("compiler", "gpu")
def no_c_compiler(f):
    if f["gpu"] and f["compiler"] is None and f.get("platform", "linux") == "linux":
        return Finding("There is no C compiler.", "Triton builds a launcher with it when a kernel first runs.",
                       "Install gcc (on Debian and Ubuntu: apt install gcc), or set CC.", stops=("live",))
