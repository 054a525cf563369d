"""CUDA C++ kernels: on the GPU where there is one, on the SIMT machine elsewhere; the same tests for both."""

import shutil
import subprocess

import numpy as np
import pytest
import torch
from tolerances import assert_matches

from helpers import mode
from helpers.cuda import (
    CudaKernel,
    launch,
    naive_matmul,
    nvrtc,
    offset_copy,
    strided_copy,
    tiled_matmul,
    transpose,
    vec_add,
)

SIZES = [0, 1, 31, 32, 33, 255, 256, 257, 1000]
SHAPES = [(1, 1, 1), (32, 32, 32), (33, 31, 1), (1, 40, 65), (31, 33, 70), (5, 0, 4), (0, 3, 2), (3, 2, 0)]


def randn(*shape):
    return torch.randn(*shape, device=mode.device())


def guarded(*shape):
    """A tensor to write into, inside a buffer of -1, and a function that tells whether the margins are still -1."""
    n, margin = torch.Size(shape).numel(), 64
    buffer = torch.full((n + 2 * margin,), -1.0, device=mode.device())
    inside = buffer[margin : margin + n].view(shape)
    inside.fill_(float("nan"))
    return inside, lambda: bool((buffer[:margin] == -1).all() and (buffer[margin + n :] == -1).all())


# ------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("block", [1, 32, 256, 1000, 1024])
@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000])
def test_vec_add(n, block):
    a, b = randn(n), randn(n)
    out, intact = guarded(n)
    assert vec_add(a, b, block=block, out=out) is out
    assert_matches(out, a.double().cpu() + b.double().cpu())
    assert intact(), "written outside the output"


def test_vec_add_of_any_shape_in_a_new_tensor():
    a, b = randn(3, 5, 7), randn(3, 5, 7)
    assert_matches(vec_add(a, b), a.double() + b.double())
    assert vec_add(a[0, 0, 0], b[0, 0, 0]).shape == ()
    assert vec_add(a, a, out=None).shape == (3, 5, 7)


def test_vec_add_of_special_values():
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 3e38, -0.0, 1e-45], device=mode.device())
    a, b = special.repeat_interleave(6), special.repeat(6)
    expected = a.cpu() + b.cpu()
    torch.testing.assert_close(vec_add(a, b).cpu(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("stride", [1, 2, 3, 8, 32, 100, 10**30])
@pytest.mark.parametrize("n", SIZES)
def test_strided_copy(n, stride):
    x = randn(n)
    out, intact = guarded(len(range(0, n, stride)))
    strided_copy(x, stride, out=out)
    assert torch.equal(out.cpu(), x.cpu()[:: min(stride, 2**40)]) and intact()


def test_whole_numbers_of_numpy_are_whole_numbers():
    x = randn(9)
    assert torch.equal(strided_copy(x, np.int64(2)), x[::2]) and torch.equal(offset_copy(x, np.int32(2)), x[2:])


@pytest.mark.parametrize("offset", [0, 1, 7, 8, 31, 33])
@pytest.mark.parametrize("n", SIZES)
def test_offset_copy(n, offset):
    x = randn(n)
    if offset > n:
        with pytest.raises(ValueError, match=f"at most n = {n}"):
            offset_copy(x, offset)
        return
    out, intact = guarded(n - offset)
    offset_copy(x, offset, out=out)
    assert torch.equal(out, x[offset:]) and intact()


@pytest.mark.parametrize("matmul", [naive_matmul, tiled_matmul])
@pytest.mark.parametrize("m, k, n", SHAPES)
def test_matmul(matmul, m, k, n):
    a, b = randn(m, k), randn(k, n)
    if k > 1:
        a[:, -1] *= 100  # the last column weighs most, so that a lost tail shows
    out, intact = guarded(m, n)
    matmul(a, b, out=out)
    assert_matches(out, a.double() @ b.double(), scale=max(4, k**0.5))
    assert intact()


@pytest.mark.parametrize("version", ["naive", "tiled", "padded"])
@pytest.mark.parametrize("rows, cols", [(1, 1), (32, 32), (33, 31), (1, 70), (70, 1), (65, 34), (0, 3), (3, 0)])
def test_transpose(version, rows, cols):
    x = randn(rows, cols)
    out, intact = guarded(cols, rows)
    transpose(x, version, out=out)
    assert torch.equal(out, x.t()) and intact()


def test_grids_past_65535_rows_of_blocks():
    """Small kernels that write which block row they are in: y is limited, the rest goes along z."""
    from helpers.cuda import _tiles

    assert _tiles(32 * 65535, 1) == (1, 65535, 1)
    assert _tiles(32 * 65535 + 1, 33) == (2, 65535, 2)
    assert _tiles(0, 5) == (1, 0, 0)
    # Small tiles, and the block rows folded at 1 instead of at 65535: block row 1 is z = 1.
    a, b, out = randn(4, 3), randn(3, 2), torch.full((4, 2), -1.0, device=mode.device())
    CudaKernel("matmul.cu", "tiled_matmul", ("-DTILE=2",)).launch((1, 1, 2), (2, 2), a, b, out, 4, 2, 3)
    assert_matches(out, a.double() @ b.double(), scale=4)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("block", [0, -1, 1025, 2048, 2.0, "256", None, True, (16, 16), (2048,)])
def test_a_bad_block_raises_names_the_limit_and_leaves_the_next_call_alone(block):
    a, b = randn(100), randn(100)
    with pytest.raises((ValueError, TypeError), match="1024|whole number"):
        vec_add(a, b, block=block)
    assert torch.equal(vec_add(a, b), a + b)
    with pytest.raises((ValueError, TypeError)):
        vec_add(a[:0], b[:0], block=block)  # wrong for an empty tensor too


def all_ops(x):
    """Every wrapper, called with x where it takes a matrix or, flattened, a vector."""
    v = x.flatten() if x.is_contiguous() else x.t().flatten()[::2] if x.dim() == 2 else x
    return [
        ("vec_add", lambda: vec_add(x, x)), ("strided_copy", lambda: strided_copy(v, 2)),
        ("offset_copy", lambda: offset_copy(v, 1)), ("naive_matmul", lambda: naive_matmul(x, x)),
        ("tiled_matmul", lambda: tiled_matmul(x, x)), ("transpose", lambda: transpose(x)),
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int32, torch.bool, torch.complex64])
def test_other_dtypes_are_refused(dtype):
    x = torch.ones(4, 4, device=mode.device()).to(dtype)
    for name, call in all_ops(x):
        with pytest.raises(TypeError, match=f"{name}.*float32, got {str(dtype)[6:]}"):
            call()


def test_views_that_are_not_contiguous_are_refused():
    for name, call in all_ops(randn(4, 4).t()):
        with pytest.raises(ValueError, match=f"{name}.*contiguous"):
            call()
    x = randn(8)
    with pytest.raises(ValueError, match="contiguous"):
        vec_add(x[::2], x[:4])
    with pytest.raises(ValueError, match="contiguous"):
        vec_add(x[:1].expand(4), x[:4])
    assert torch.equal(vec_add(x[1:5], x[3:7]), x[1:5] + x[3:7])  # shifted views are contiguous


def test_a_gradient_is_not_lost():
    x = randn(4, 4).requires_grad_()
    for name, call in all_ops(x):
        with pytest.raises(ValueError, match=f"{name}.*requires grad"):
            call()
    with torch.no_grad():
        assert_matches(vec_add(x, x), 2 * x.double())


def test_the_wrong_device_is_named():
    x = torch.ones(4, 4, device="cpu" if mode.is_live() else "meta")
    for name, call in all_ops(x):
        with pytest.raises(ValueError, match=f"{name}.*{x.device.type}"):
            call()
    if mode.is_live():
        with pytest.raises(ValueError, match="cpu"):
            vec_add(torch.ones(4, 4, device="cuda"), x)


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="torch.Tensor, got list"):
        vec_add([1.0], [2.0])


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"\(3,\) and \(4,\)"):
        vec_add(randn(3), randn(4))
    with pytest.raises(ValueError, match=r"\(1, 4\) and \(4,\)"):
        vec_add(randn(1, 4), randn(4))
    for copy in (strided_copy, offset_copy):
        with pytest.raises(ValueError, match=r"1 dimension.*\(2, 2\)"):
            copy(randn(2, 2), 1)
    for matmul in (naive_matmul, tiled_matmul):
        for a, b in ((randn(2, 3), randn(2, 3)), (randn(3), randn(3, 2)), (randn(1, 2, 3), randn(3, 2))):
            with pytest.raises(ValueError, match=r"\(m, k\) and \(k, n\)"):
                matmul(a, b)
    with pytest.raises(ValueError, match=r"rows, cols.*\(4,\)"):
        transpose(randn(4))
    with pytest.raises(ValueError, match="naive, tiled, padded, got 'fast'"):
        transpose(randn(4, 4), "fast")


@pytest.mark.parametrize("bad", [0, -1, 1.5, "2", None, True])
def test_strides_and_offsets_are_whole_numbers(bad):
    with pytest.raises(ValueError, match="stride must be a whole number of at least 1"):
        strided_copy(randn(8), bad)
    if bad != 0 or bad is True:
        with pytest.raises(ValueError, match="offset must be a whole number of at least 0"):
            offset_copy(randn(8), bad)


def test_an_output_that_does_not_fit_is_refused():
    a = randn(8)
    with pytest.raises(ValueError, match=r"out must be \(8,\).*got \(7,\)"):
        vec_add(a, a, out=randn(7))
    with pytest.raises(TypeError, match="out must be float32"):
        vec_add(a, a, out=randn(8).double())
    with pytest.raises(ValueError, match="shares memory"):
        offset_copy(a, 1, out=a[:7])
    with pytest.raises(ValueError, match="shares memory"):
        square = randn(4, 4)
        transpose(square, out=square)


# ------------------------------------------------------------------------------------------------ launches

SCALE = r"""
extern "C" __global__ void scale(const float* x, float* y, float factor, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"""


def test_a_kernel_typed_in_a_cell():
    kernel = CudaKernel(SCALE, "scale")
    x, y = randn(100), torch.full((100,), float("nan"), device=mode.device())
    kernel[2, 64](x, y, 3.0, 100)
    assert torch.equal(y, 3 * x)
    y.fill_(float("nan"))
    kernel.launch((2, 1), (64, 1, 1), x, y, 2.0, 100)
    assert torch.equal(y, 2 * x)
    assert kernel.compiled("sm_90").target == "sm_90" and kernel.compiled().count("st.global") == 1


def test_an_empty_grid_launches_nothing():
    x, y = randn(4), torch.full((4,), -1.0, device=mode.device())
    CudaKernel(SCALE, "scale")[0, 64](x, y, 3.0, 4)
    assert (y == -1).all()


@pytest.mark.parametrize("grid, block, message", [
    (1, 1025, "at most 1024"), (1, (32, 33), "1056 threads.*at most 1024"), (1, (1, 1, 65), "at most 64 .* along z"),
    ((1, 65536), 32, "at most 65535 blocks along y"), (2**31, 32, "blocks along x"), (-1, 32, "at least 0"),
    (1, 0, "at least 1"), (1, -32, "at least 1"), (1, (32, 0), "at least 1"), (1, 32.0, "whole numbers"),
    (1, float("nan"), "whole numbers"), (1, 10**30, "at most 1024 threads along x"), (10**30, 32, "blocks along x"),
    ((4, -1), 32, "at least 0"), ((1, 1, 1, 1), 32, "one to three"), (1.5, 32, "one to three"), ((), 32, "one to three"),
])
def test_launch_settings_no_gpu_accepts(grid, block, message):
    with pytest.raises(ValueError, match=message):
        CudaKernel(SCALE, "scale")[grid, block](randn(4), randn(4), 3.0, 4)


@pytest.mark.parametrize("shared_bytes, message", [
    (-1, "at least 0, got -1"), (1.5, "whole number"), (True, "whole number"), ("48", "whole number"), (None, "whole number"),
    (48 * 1024 + 1, "at most 49152 bytes.*declares 0.*49153 more"), (10**12, "at most 49152 bytes"),
])
def test_shared_memory_that_a_launch_cannot_have(shared_bytes, message):
    kernel, x, y = CudaKernel(SCALE, "scale"), randn(4), randn(4)
    with pytest.raises(ValueError, match=message):
        kernel.launch(1, 32, x, y, 3.0, 4, shared_bytes=shared_bytes)
    kernel.launch(1, 32, x, y, 3.0, 4, shared_bytes=48 * 1024)
    assert torch.equal(y, 3 * x)


def test_declared_and_dynamic_shared_memory_count_together():
    kernel, x, y = CudaKernel("transpose.cu", "transpose_tiled"), randn(32, 32), randn(32, 32)
    with pytest.raises(ValueError, match="declares 4096; shared_bytes asks for 45057 more"):
        kernel.launch(1, (32, 8), x, y, 32, 32, shared_bytes=48 * 1024 - 4096 + 1)
    kernel.launch(1, (32, 8), x, y, 32, 32, shared_bytes=48 * 1024 - 4096)
    assert torch.equal(y, x.t())


def test_sizes_of_a_launch_may_be_numpys():
    kernel, x, y = CudaKernel(SCALE, "scale"), randn(100), randn(100)
    kernel[np.int64(4), (np.int32(32), 1)](x, y, 3.0, 100)
    assert torch.equal(y, 3 * x)


def test_kernel_needs_grid_and_block():
    with pytest.raises(ValueError, match="a grid and a block"):
        CudaKernel(SCALE, "scale")[4]
    with pytest.raises(TypeError, match=r"write scale\[blocks, threads\]"):
        CudaKernel(SCALE, "scale")(randn(4), randn(4), 3.0, 4)


def test_arguments_that_do_not_fit_the_parameters():
    kernel, x, y = CudaKernel(SCALE, "scale"), randn(4), randn(4)
    with pytest.raises(TypeError, match="takes 4 arguments, got 3"):
        kernel[1, 32](x, y, 3.0)
    with pytest.raises(TypeError, match="parameter 2 is f32, got int 3; it takes a float, such as 1.0"):
        kernel[1, 32](x, y, 3, 4)
    with pytest.raises(TypeError, match="parameter 3 is b32, got float"):
        kernel[1, 32](x, y, 3.0, 4.0)
    with pytest.raises(TypeError, match="parameter 0 is b64, got ndarray; it takes a tensor or a whole number"):
        kernel[1, 32](x.cpu().numpy(), y, 3.0, 4)
    with pytest.raises(TypeError, match="parameter 3 is a 32-bit integer"):
        kernel[1, 32](x, y, 3.0, 2**40)
    with pytest.raises(TypeError, match="parameter 2 is a number"):
        kernel[1, 32](x, y, x, 4)
    with pytest.raises(TypeError, match=r"parameter 2 is float32, 1e\+39 does not fit"):
        kernel[1, 32](x, y, 1e39, 4)
    kernel[1, 32](x, y, float("-inf"), 4)
    assert CudaKernel(SCALE, "scale", "-DN=4").options == ("-DN=4",)


def test_numbers_of_every_size():
    """C++'s bool, char and short, and numpy's numbers; structures are refused."""
    source = """struct S { int a, b; };
    extern "C" __global__ void small(float* y, bool on, signed char c, short s, unsigned char u, unsigned n, double d) { *y = on ? c + s + u + n + d : -1; }
    extern "C" __global__ void whole(float* y, S s) { *y = s.a; }"""
    y = torch.zeros(1, device=mode.device())
    for on, c, s, u, n, d in ((True, -3, -30000, 200, 2**20, 0.5), (np.bool_(True), np.int8(-3), np.int16(-30000), np.uint8(200), np.uint32(2**20), np.float32(0.5)),
                              (1, -3, -30000, 200, np.int64(2**20), np.float64(0.5))):
        CudaKernel(source, "small")[1, 1](y, on, c, s, u, n, d)
        assert y.item() == -3 - 30000 + 200 + 2**20 + 0.5
    CudaKernel(source, "small")[1, 1](y, False, 1, 2, 3, 4, 5.0)
    assert y.item() == -1
    for bad, sentence in ((300, "8-bit integer, 300 does not fit"), (1.0, "parameter 2 is b8, got float 1.0; it takes a whole number")):
        with pytest.raises(TypeError, match=sentence):
            CudaKernel(source, "small")[1, 1](y, True, bad, 2, 3, 4, 5.0)
    with pytest.raises(TypeError, match="parameter 1 is b32|parameter 5 is b32, got bool True"):
        CudaKernel(source, "small")[1, 1](y, True, 1, 2, 3, True, 5.0)
    with pytest.raises(TypeError, match="parameter 1 is a structure"):
        CudaKernel(source, "whole")[1, 1](y, np.zeros(2, np.int32))


def test_wrong_code_is_explained_with_the_readers_line():
    with pytest.raises(nvrtc.CompileError, match=r"cell.cu\(5\)"):
        CudaKernel(SCALE.replace("factor *", "faktor *"), "scale").compiled()
    with pytest.raises(nvrtc.CompileError, match="no kernel 'skale'; it has scale"):
        CudaKernel(SCALE, "skale").compiled()
    with pytest.raises(ValueError, match="there are copies.cu"):
        CudaKernel("nothing.cu", "scale").compiled()


def test_every_kernel_compiles_for_every_generation_without_spills():
    for file, name in [("vec_add.cu", "vec_add"), ("copies.cu", "strided_copy"), ("matmul.cu", "naive_matmul"),
                       ("matmul.cu", "tiled_matmul"), ("transpose.cu", "transpose_padded"), ("walks.cu", "walk_rows")]:
        for target in ("sm_80", "sm_90", "sm_120"):
            compiled = nvrtc.compile_cuda(file, name, target)
            assert compiled.registers >= 8 and compiled.spill_bytes == 0
    shared = {name: nvrtc.compile_cuda("transpose.cu", f"transpose_{name}").shared_bytes
              for name in ("naive", "tiled", "padded")}
    assert shared == {"naive": 0, "tiled": 32 * 32 * 4, "padded": 32 * 33 * 4}


@pytest.mark.parametrize("capability", [75, 80, 89, 90, 100, 120])
def test_resources_are_known_where_nvrtc_passes_no_log_on(capability):
    for name in ("transpose_naive", "transpose_padded"):
        text = (nvrtc.FOLDER / "transpose.cu").read_text()
        _, cubin, log = nvrtc._run("transpose.cu", text, capability, ["--ptxas-options=-v"])
        without = nvrtc._resources("", name, cubin, capability)
        assert without["registers"] >= 16 and without["shared_bytes"] == (0 if name.endswith("naive") else 32 * 33 * 4)
        if log:
            assert without == nvrtc._resources(log, name, cubin, capability)


# ------------------------------------------------------------------------------------------------ without a GPU

needs_machine = pytest.mark.skipif(mode.is_live(), reason="kernels run on the GPU here")


@needs_machine
def test_counts_of_the_last_run():
    kernel = CudaKernel("copies.cu", "strided_copy")
    x = torch.zeros(32 * 32)
    per_request = {}
    for stride in (1, 2, 4, 8, 32):
        kernel[1, 32](x, torch.zeros(32), 32, stride)
        load, store = kernel.report.of("global load"), kernel.report.of("global store")
        assert (load.requests, store.requests, store.sectors) == (1, 1, 4)
        per_request[stride] = load.sectors
    assert per_request == {1: 4, 2: 8, 4: 16, 8: 32, 32: 32}


@needs_machine
def test_more_blocks_than_the_machine_can_run_are_refused_before_anything_runs():
    x, out = torch.ones(2**22 + 1), torch.full((2**22 + 1,), -1.0)
    with pytest.raises(ValueError, match="4194305.*would take this machine hours.*4194304 blocks"):
        vec_add(x, x, block=1, out=out)
    assert (out == -1).all()
    assert (vec_add(x, x, out=out) == 2).all()


@needs_machine
def test_each_version_takes_its_own_path():
    conflicts, sectors = {}, {}
    for version in ("naive", "tiled", "padded"):
        transpose(torch.zeros(32, 32), version)
        report = launch_report(version)
        conflicts[version] = report.bank_conflicts
        sectors[version] = report.of("global store").sectors
    assert conflicts == {"naive": 0, "tiled": 31 * 32, "padded": 0}
    assert sectors == {"naive": 32 * 32, "tiled": 4 * 32, "padded": 4 * 32}


def launch_report(version):
    from helpers.cuda import TRANSPOSE

    return TRANSPOSE[version].report


@needs_machine
@pytest.mark.parametrize("n", [4, 8, 16, 32, 64])
def test_reads_of_the_naive_product(n):
    """Every element of a and b is read n times: 2 n^3 lane loads, counted; a 32-wide tile cuts them to a 32nd."""
    kernels = {"naive": CudaKernel("matmul.cu", "naive_matmul"), "tiled": CudaKernel("matmul.cu", "tiled_matmul")}
    a, b, grid = torch.ones(n, n), torch.ones(n, n), -(-n // 32)
    lanes = {}
    for name, kernel in kernels.items():
        kernel[(grid, grid), (32, 32)](a, b, torch.empty(n, n), n, n, n)
        lanes[name] = kernel.report.of("global load").lanes
    assert lanes["naive"] == 2 * n**3
    assert lanes["tiled"] == 2 * n**2 * grid


# ------------------------------------------------------------------------------------------------ the program


@pytest.mark.skipif(not shutil.which("nvcc"), reason="the CUDA toolkit (nvcc) is not installed")
def test_vec_add_is_a_complete_program(tmp_path):
    program = tmp_path / "vec_add"
    built = subprocess.run(["nvcc", "-o", program, nvrtc.FOLDER / "vec_add.cu"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([program], capture_output=True, text=True)
    if mode.is_live():
        assert (ran.returncode, ran.stdout) == (0, "c[999] = 2997\n"), ran.stderr
    else:  # every call is checked: without a driver the first one fails, and says so
        assert ran.returncode == 1 and "cudaMallocHost" in ran.stderr and "vec_add.cu:" in ran.stderr


# ------------------------------------------------------------------------------------------------ on a GPU


@pytest.mark.gpu
def test_more_than_2_to_31_elements():
    n = 2**31 + 257
    x = torch.zeros(n, device="cuda")
    x[-1], x[2**31] = 5.0, 7.0
    out = vec_add(x, x)
    assert out[-1] == 10 and out[2**31] == 14 and out[:2**31].abs().max() == 0
    del out
    assert offset_copy(x, 2**31).tolist()[0] == 7.0
    assert strided_copy(x, 2**31).tolist() == [0.0, 7.0]
    assert torch.equal(transpose(x[-2**31:].view(2, -1), "padded"), x[-2**31:].view(2, -1).t())


@pytest.mark.gpu
@pytest.mark.parametrize("rows, cols", [(32 * 65535 + 5, 3), (3, 32 * 65535 + 5)])
def test_more_block_rows_than_a_grid_axis_holds(rows, cols):
    x = randn(rows, cols)
    for version in ("naive", "tiled", "padded"):
        out, intact = guarded(cols, rows)
        assert torch.equal(transpose(x, version, out=out), x.t()) and intact()
    b = randn(cols, 2) if cols < rows else None
    if b is not None:
        for matmul in (naive_matmul, tiled_matmul):
            torch.testing.assert_close(matmul(x, b), x @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_launches_go_to_the_current_stream():
    a, b = torch.zeros(1 << 22, device="cuda"), torch.ones(1 << 22, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # some 25 ms, in front of the kernel in its queue
        out = vec_add(a, b)
        done = torch.cuda.Event()
        done.record()
    assert not done.query(), "the kernel did not wait behind what its stream was busy with"
    done.synchronize()
    assert (out == 1).all()


@pytest.mark.gpu
def test_a_launch_the_driver_rejects_raises_and_the_next_one_works():
    """The kernel itself forbids more than 64 threads a block: our checks let 128 pass, the driver does not."""
    bounded = SCALE.replace("void scale", "void __launch_bounds__(64) scale")
    kernel, x, y = CudaKernel(bounded, "scale"), randn(4), torch.zeros(4, device="cuda")
    with pytest.raises(Exception, match="(?i)invalid|resources"):
        kernel[1, 128](x, y, 2.0, 4)
    kernel[1, 64](x, y, 2.0, 4)
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * x)


@pytest.mark.gpu
def test_a_fault_while_running_surfaces_at_the_next_synchronisation():
    """In a process of its own: a fault leaves the process's GPU context unusable."""
    code = """
import torch
from helpers.cuda import CudaKernel
kernel = CudaKernel('extern "C" __global__ void wild(float* x) { x[1ll << 40] = 1; }', "wild")
kernel[1, 1](torch.zeros(1, device="cuda"))
print("launched")
try:
    torch.cuda.synchronize()
except Exception as error:
    print("synchronise:", error)
"""
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=nvrtc.FOLDER.parents[1])
    assert done.stdout.startswith("launched\nsynchronise:") and "illegal memory access" in done.stdout, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_tensors_device_is_used():
    a = torch.ones(100, device="cuda:1")
    assert torch.cuda.current_device() == 0
    assert (vec_add(a, a) == 2).all() and vec_add(a, a).device == a.device
    with pytest.raises(ValueError, match="cuda:0, cuda:1"):
        vec_add(a, torch.ones(100, device="cuda:0"))


def test_limits_are_the_guides():
    assert (launch.MAX_THREADS, launch.MAX_BLOCK) == (1024, (1024, 1024, 64))
    assert launch.MAX_GRID == (2**31 - 1, 65535, 65535)
