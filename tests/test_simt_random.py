"""Random kernels on the SIMT machine against what an H200 made of them: bit for bit, approximations within their bounds."""

import gc
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import random_kernels as generated
from cuda.bindings import nvrtc

from helpers import simt

RECORDED = json.loads((Path(__file__).parent / "data" / "simt_random_h200.json").read_text())
FIRSTS = range(0, generated.COUNT, generated.PER_FILE)


def test_the_sources_are_those_that_were_recorded():
    text = "".join(generated.file_source(first) for first in FIRSTS)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == RECORDED["source"]
    assert len(RECORDED["hashes"]) == len(set(RECORDED["hashes"])) == generated.COUNT >= 300


def ptx_of(source: str, *options: str) -> str:
    """NVRTC's PTX alone: machine code for 40 kernels takes longer than to run them."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"random.cu", 0, [], [])
    flags = [b"--gpu-architecture=compute_90", *(option.encode() for option in options)]
    assert nvrtc.nvrtcCompileProgram(program, len(flags), flags) == (nvrtc.nvrtcResult.NVRTC_SUCCESS,)
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.decode().rstrip("\0")


@pytest.fixture(autouse=True)
def no_garbage_collection():
    """It would look through the many small functions of decoded kernels again and again."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("first", FIRSTS)
def test_results_equal_the_gpus_bit_for_bit(first):
    text = ptx_of(generated.file_source(first), *generated.OPTIONS)
    ints, floats = generated.inputs()
    wrong = []
    for seed in range(first, first + generated.PER_FILE):
        out, out_f = np.full((generated.N, 12), -1, np.int32), np.full((generated.N, 4), -1, np.float32)
        block = generated.kernel_source(seed)[1]
        simt.run(text, generated.GRID, block, [ints, floats, out, out_f, generated.N], kernel=f"random_{seed}", shuffle=seed,
                 races=seed % 4 == 0)  # without false alarms; looking for races everywhere takes time
        if generated.digest(out, out_f) != RECORDED["hashes"][seed]:
            wrong.append(seed)
    assert not wrong


# Largest difference that the PTX ISA documents between the GPU and the exact value, where it documents one.
ULPS = {"ex2": 2, "rcp": 1, "sqrt": 1, "rsqrt": 2, "div": 2}
ABSOLUTE = {"sin": 2**-20.5, "cos": 2**-20.5, "lg2": 2**-21}
RELATIVE = {"tanh": 2**-10.9}


def test_approximations_stay_within_their_documented_error():
    gpu = np.frombuffer(bytes.fromhex(RECORDED["approximate"]), "<f4").reshape(-1, generated.POINTS)
    x, y = generated.approximate_inputs(), np.full(gpu.shape, np.nan, np.float32)
    text = ptx_of(generated.approximate_source())
    simt.run(text, generated.POINTS // 128, 128, [x, y, generated.POINTS])
    for (name, low, high), argument, theirs, ours in zip(generated.APPROXIMATE, x, gpu, y, strict=True):
        kind = name.split(".")[0]
        finite = np.isfinite(theirs) & np.isfinite(ours)
        same = (np.isnan(theirs) & np.isnan(ours)) | (theirs == ours)
        assert (finite | same).all(), name
        inside = finite & (argument >= low) & (argument <= high)
        error = np.abs(theirs[inside].astype(np.float64) - ours[inside])
        ulp = np.maximum(np.spacing(np.abs(ours[inside])).astype(np.float64), 2.0**-149)
        if kind in ULPS:
            assert (error <= (ULPS[kind] + 1) * ulp).all(), name
        elif kind in ABSOLUTE:
            assert (error <= ABSOLUTE[kind] + ulp).all(), name
        else:
            assert (error <= RELATIVE[kind] * np.abs(ours[inside]) + ulp).all(), name
