"""Matmul with ReLU: right for any sizes and strides in every precision; each precision is what it says on a GPU."""

import subprocess
import sys

import pytest
import torch
from test_softmax import run_huge_stride
from tolerances import assert_matches

from helpers import mode
from helpers.compile import compile_kernel
from helpers.kernels import matmul as module
from helpers.kernels.matmul import (
    PRECISIONS,
    TILES,
    matmul_flops,
    matmul_relu,
    matmul_relu_grouped,
    matmul_relu_reference,
    matmul_relu_tiled,
    matmul_traffic_bytes,
    part_k_for,
    settings_for,
)
from helpers.kernels.row_sum import sm_count

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
VERSIONS = [matmul_relu, matmul_relu_tiled, matmul_relu_grouped]
inf, nan = float("inf"), float("nan")


def assert_product(out, a, b, eps=1e-6):
    """Equal to float64 within eps * |a| @ |b| (the error of a float32 sum), then one rounding to a's dtype."""
    expected = matmul_relu_reference(a, b)
    assert out.shape == expected.shape and out.dtype == a.dtype
    if out.numel() == 0:
        return
    rounding = {torch.float32: 6e-8, torch.float16: 5e-4, torch.bfloat16: 4e-3}[a.dtype]
    bound = eps * (a.double().abs() @ b.double().abs()) + 1.01 * rounding * expected.abs() + 1e-7
    error = (out.double() - expected).abs()
    assert (error <= bound).all(), f"{(error > bound).sum()} of {error.numel()} off, worst by {error.max():.3g}"
    assert (out >= 0).all()


def matrices(m, k, n, dtype, device):
    a, b = torch.randn(m, k), torch.randn(k, n)
    if a.numel() and b.numel():
        a[0, -1], b[-1, 0], a[-1, 0] = 8.0, 7.0, -9.0  # outliers where a wrong index shows
    return a.to(device, dtype), b.to(device, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, k, n", [
    (1, 1, 1), (1, 1, 128), (3, 17, 5), (63, 64, 65), (64, 16, 64), (129, 33, 127), (65, 129, 3), (200, 16, 300),
])
@pytest.mark.parametrize("version", VERSIONS)
def test_sizes(version, m, k, n, dtype, device):
    a, b = matrices(m, k, n, dtype, device)
    assert_product(version(a, b), a, b)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_precisions(precision, dtype, device):
    a, b = matrices(70, 50, 130, dtype, device)
    eps = 2e-3 if precision == "tf32" and dtype == torch.float32 else 2e-6  # 10 bits of mantissa: 2^-11 an operand
    assert_product(matmul_relu(a, b, precision=precision), a, b, eps)


def test_known_values(device):
    def full(value, *shape, dtype=torch.float32):
        return torch.full(shape, value, dtype=dtype, device=device)

    assert torch.equal(matmul_relu(full(2.0, 1, 1), full(3.0, 1, 128)), full(6.0, 1, 128))
    assert torch.equal(matmul_relu(full(2.0, 1, 1), full(-3.0, 1, 5)), full(0.0, 1, 5))
    eye = torch.eye(32, device=device)
    assert torch.equal(matmul_relu(2049 * eye, eye), 2049 * eye)  # 2049 has no place in tf32
    four = full(4.0, 4, 4096, dtype=torch.float16)
    assert (matmul_relu(four[:, :4094], four[:, :4094].t()) == 65504).all()  # summed in float32
    assert (matmul_relu(four, four.t()) == inf).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_beyond_k_is_added(version, device):
    a = torch.ones(3, 32, device=device)[:, :17]
    b = torch.ones(32, 5, device=device)[:17]
    assert torch.equal(version(a, b), torch.full((3, 5), 17.0, device=device))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_strides(version, dtype, device):
    big = torch.randn(90, 80).to(device, dtype)
    cases = [
        (big[:40, :30], big[:50, :30].t()),
        (big.t()[:33, 3:70], big[5:72, ::2]),
        (big[::2, 1::3], big[:27, 7:48]),
        (big[:1, :20].expand(7, 20), big[:20, :1].expand(20, 9)),
    ]
    for a, b in cases:
        assert_product(version(a, b), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_misaligned_view_after_aligned_call(version, dtype, device):
    buffer = (torch.arange(1100.0) % 37 / 16 - 1).to(device, dtype)
    for start in (0, 1, 2, 3, 0, 8):
        a = buffer[start:start + 32 * 32].view(32, 32)
        assert_product(version(a, a), a, a)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_special_values_follow_torch(precision, device):
    a = torch.tensor([[nan, 1], [inf, 1], [-inf, 1], [inf, -inf], [0, inf], [1, 2]], device=device)
    b = torch.tensor([[1.0, 0, 2], [1, 1, 1]], device=device)
    expected = torch.relu(a.double() @ b.double())
    assert_matches(matmul_relu(a, b, precision=precision), expected)


@pytest.mark.parametrize("m, k, n", [(3, 0, 5), (0, 4, 5), (3, 4, 0), (0, 0, 0)])
@pytest.mark.parametrize("version", VERSIONS)
def test_empty(version, m, k, n, device):
    out = version(torch.ones(m, k, device=device), torch.ones(k, n, device=device))
    assert torch.equal(out.cpu(), torch.zeros(m, n))


@pytest.mark.parametrize("a, b, error, message", [
    (torch.eye(16).half(), torch.eye(16), TypeError, "one dtype, got a: float16, b: float32"),
    (torch.eye(4).double(), torch.eye(4).double(), TypeError, "got float64"),
    (torch.eye(4).int(), torch.eye(4).int(), TypeError, "got int32"),
    (torch.ones(2, 3), torch.ones(4, 5), ValueError, r"got shapes \(2, 3\) and \(4, 5\)"),
    (torch.ones(3), torch.ones(3, 5), ValueError, r"a must have 2 dimensions, got shape \(3,\)"),
    (torch.ones(2, 3), torch.ones(1, 3, 5), ValueError, r"b must have 2 dimensions, got shape \(1, 3, 5\)"),
])
@pytest.mark.parametrize("version", VERSIONS)
def test_refusals(version, a, b, error, message, device):
    with pytest.raises(error, match=message):
        version(a.to(device), b.to(device))


def test_unknown_precision(device):
    a = torch.eye(4, device=device)
    for version in VERSIONS:
        with pytest.raises(ValueError, match="one of ieee, tf32, tf32x3, bf16x6, got 'fp64'"):
            version(a, a, precision="fp64")


def test_gradient_is_not_lost_silently(device):
    a = torch.eye(4, device=device)
    with pytest.raises(ValueError, match="b requires grad"):
        matmul_relu(a, a.clone().requires_grad_())


def test_too_many_tiles_side_by_side(device):
    a, b = torch.ones(1, 1, device=device), torch.ones(1, 1, device=device).expand(1, 65536 * 64)
    with pytest.raises(ValueError, match="65536 tiles side by side"):
        matmul_relu_tiled(a, b)


@pytest.mark.parametrize("tile", [(16, 16, 16), (32, 64, 16), (64, 32, 32), (128, 16, 64)])
@pytest.mark.parametrize("group", [1, 3, 8, 2**31 - 1, 2**40])
def test_every_tile_is_computed_once(tile, group, device):
    """Any grouping walks all tiles: more rows than a group, a smaller last group, groups far beyond the matrix."""
    a, b = matrices(150, 40, 70, torch.float32, device)
    assert_product(matmul_relu_grouped(a, b, tile=tile, group=group), a, b)
    assert_product(matmul_relu_tiled(a, b, tile=tile), a, b)


def test_each_version_takes_its_own_path(monkeypatch, device):
    a = torch.eye(4, device=device)
    monkeypatch.setattr(module, "matmul_relu_kernel", None)
    matmul_relu(a, a), matmul_relu_grouped(a, a)
    with pytest.raises(TypeError):
        matmul_relu_tiled(a, a)
    monkeypatch.undo()
    monkeypatch.setattr(module, "matmul_relu_grouped_kernel", None)
    with pytest.raises(TypeError):
        matmul_relu(a, a)
    monkeypatch.undo()
    monkeypatch.setattr(module, "sum_parts_kernel", None)
    matmul_relu(a, a)
    with pytest.raises(TypeError):
        matmul_relu(torch.ones(1, 512, device=device), torch.ones(512, 1, device=device))


@pytest.mark.parametrize("m, k, n", [(1, 512, 1), (64, 8192, 64), (33, 1300, 70), (128, 777, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_small_products_in_parts_of_k(m, k, n, dtype, device):
    tile, _, _ = settings_for("ieee" if dtype == torch.float32 else "half", 101_376)
    assert part_k_for(m, k, n, tile, sm_count(device)) < k, "this case has no parts"
    a, b = matrices(m, k, n, dtype, device)
    out = matmul_relu(a, b)
    assert_product(out, a, b)
    assert torch.equal(out, matmul_relu(a, b)), "equal inputs, other bits"


def test_special_values_in_parts_of_k(device):
    a, b = torch.zeros(3, 600, device=device), torch.ones(600, 2, device=device)
    a[0, 3], a[0, 599], a[1, 0], a[2, 300] = inf, -inf, nan, -5.0  # inf in one part, -inf in another
    assert_matches(matmul_relu(a, b), torch.tensor([[nan, nan], [nan, nan], [0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("m, k, n", [(4096, 4096, 4096), (64, 8192, 64), (1, 1, 1), (512, 16384, 512), (5, 10**6, 3)])
@pytest.mark.parametrize("sms", [1, 4, 132])
def test_parts_of_k(m, k, n, sms):
    part_k = part_k_for(m, k, n, (64, 128, 32), sms)
    parts = -(-k // part_k)
    tiles = -(-m // 64) * -(-n // 128)
    assert (parts - 1) * part_k < k <= parts * part_k
    assert parts == 1 or (part_k % 32 == 0 and part_k >= 256 and parts * tiles <= 8 * sms)
    assert (m, sms) != (4096, 132) or parts == 1


def test_counts():
    assert matmul_flops(4096, 4096, 4096) == 2 * 4096**3
    assert matmul_traffic_bytes(2, 3, 5) == (2 * 5 + 5 * 3 + 2 * 3) * 4
    assert set(TILES) == {*PRECISIONS, "half"}


@pytest.mark.parametrize("kind", TILES)
@pytest.mark.parametrize("gpu, shared_kib", [("H200", 227), ("A100", 163), ("RTX 5090", 99), ("T4", 64)])
def test_every_gpu_has_a_tile_that_fits(kind, gpu, shared_kib):
    tile, num_warps, num_stages = settings_for(kind, shared_kib * 1024)
    x = torch.empty(4096, 4096, device="meta", dtype=torch.float16 if kind == "half" else torch.float32)
    if (kind, gpu) in {("half", "RTX 5090"), ("ieee", "T4"), ("tf32", "A100")}:  # one compilation of each is enough
        n = 4096
        compiled = compile_kernel(
            module.matmul_relu_grouped_kernel, x, x, x, n, n, n, n, n, 1, n, 1, n, target=gpu, num_warps=num_warps,
            num_stages=num_stages, BLOCK_M=tile[0], BLOCK_N=tile[1], BLOCK_K=tile[2], GROUP=8, WHOLE_K=True, RELU=True,
            PRECISION="ieee" if kind == "half" else kind,
        )  # fmt: skip
        assert compiled.shared_bytes <= shared_kib * 1024


def test_no_tile_fits():
    with pytest.raises(ValueError, match="no tile for ieee fits into 1000 bytes"):
        settings_for("ieee", 1000)


def test_the_first_choices():
    assert settings_for("ieee", 232_448) == ((64, 128, 32), 4, 2)
    assert settings_for("bf16x6", 101_376) == ((64, 128, 32), 4, 3)


@pytest.mark.skipif(mode.is_live(), reason="the GPU version of this test uses real rows")
def test_offsets_beyond_2_31():
    eye = "torch.eye(8, dtype=torch.float16)"
    run_huge_stride("matmul", "matmul_relu, matmul_relu_tiled", "x.float()", call=f"version(x, {eye})")


STEPS_BEYOND_2_31 = """
import helpers, torch
from helpers.kernels.matmul import matmul_relu, matmul_relu_grouped, matmul_relu_tiled
stride, k = 2**26, 70                   # a step of 32 along K is 2^31 elements; few pages of the arrays are real
base = torch.empty(k * stride + 16, dtype=torch.float16)
for i in range(k): base[i * stride : i * stride + 3] = torch.tensor([1.0, 2, 3]) * (i % 5 + 1)
tall, wide = base.as_strided((3, k), (1, stride)), base.as_strided((k, 3), (stride, 1))
far = torch.empty(129 * 2**25 + 16, dtype=torch.float16).as_strided((4, 129), (1, 2**25))  # half a tile is 2^31
for i in range(129): far[:, i] = i % 7
ones = torch.ones(k, 3, dtype=torch.float16)
for version in (matmul_relu, matmul_relu_grouped, matmul_relu_tiled):
    for a, b in ((tall, ones), (ones.t(), wide), (ones[:3, :1].expand(3, 4), far)):
        assert torch.equal(version(a, b).double(), (a.double() @ b.double())), (version, a.shape)
print("right")
"""


@pytest.mark.skipif(mode.is_live(), reason="the GPU version of this test uses real arrays")
def test_steps_beyond_2_31():
    """BLOCK_K * stride and half a tile * stride, in a process of its own: computed in 32 bits they would kill it."""
    done = subprocess.run([sys.executable, "-c", STEPS_BEYOND_2_31], capture_output=True, text=True)
    assert done.stdout.strip() == "right", done.stdout + done.stderr


@pytest.mark.gpu
def test_steps_beyond_2_31_on_a_gpu():
    a = torch.zeros(96, 2**26, dtype=torch.float16, device="cuda").t()  # a step of 32 along K is 2^31 elements
    b = torch.ones(96, 3, dtype=torch.float16, device="cuda")
    a[:3] = torch.arange(3.0, device="cuda").half()[:, None]
    a[5] = torch.arange(96.0, device="cuda").half() / 8
    a = a[:70]
    for version in (matmul_relu, matmul_relu_grouped, matmul_relu_tiled):
        assert_product(version(a, b), a, b)
        assert_product(version(b.t(), a.t()), b.t(), a.t())


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "bf16x6"])
def test_long_sums_are_as_good_as_torch(precision):
    a, b = torch.randn(64, 8192, device="cuda"), torch.randn(8192, 64, device="cuda")
    expected = matmul_relu_reference(a, b)
    error = (matmul_relu(a, b, precision=precision) - expected).abs().max()
    torch_error = (torch.relu(a @ b) - expected).abs().max()
    assert 0 < error < 4 * torch_error, (error, torch_error)


@pytest.mark.gpu
def test_tf32_rounds():
    eye = torch.eye(32, device="cuda")
    out = matmul_relu(2049 * eye, eye, precision="tf32").diagonal()
    assert ((out == 2048) | (out == 2050)).all()
    for precision in ("tf32x3", "bf16x6"):
        assert (matmul_relu(2049 * eye, eye, precision=precision).diagonal() == 2049).all()


@pytest.mark.gpu
@pytest.mark.parametrize("precision, largest", [("ieee", 3.4e38), ("tf32", 3.4e38), ("tf32x3", 3.4e38), ("bf16x6", 3.38e38)])
def test_range_of_each_precision(precision, largest):
    eye = torch.eye(32, device="cuda")
    for value in (largest, 1e30, 1e-30):
        out = matmul_relu(value * eye, eye, precision=precision).diagonal() / value
        assert (out - 1).abs().max() < (2e-3 if precision == "tf32" else 1e-6), (value, out)
    assert (matmul_relu(3.4e38 * eye, eye, precision="bf16x6").diagonal() == inf).all()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_and_odd_on_a_gpu(precision, dtype):
    for m, k, n in ((1000, 777, 1025), (1024, 1024, 1024)):
        a, b = torch.randn(m, k, device="cuda").to(dtype), torch.randn(k, n, device="cuda").to(dtype)
        eps = 1e-3 if precision == "tf32" and dtype == torch.float32 else 1e-6
        assert_product(matmul_relu(a, b, precision=precision), a, b, eps)


def test_tf32_cuts_its_inputs_off():
    """The error of the recording (a claim of lesson 06), from numbers whose last 13 bits are gone or rounded away."""
    generator, k, n = torch.Generator().manual_seed(0), 1024, 256
    a, b = (torch.randn(size, generator=generator) for size in ((n, k), (k, n)))
    exact = a.double() @ b.double()

    def error(shorten):
        wrong = (shorten(a.view(torch.int32)).view(torch.float32).double() @ shorten(b.view(torch.int32)).view(torch.float32).double())
        return (torch.relu(wrong) - torch.relu(exact)).square().mean().sqrt().item() / k**0.5

    assert error(lambda bits: bits & -(1 << 13)) == pytest.approx(5.42e-4, rel=0.03)
    assert error(lambda bits: (bits + (1 << 12)) & -(1 << 13)) == pytest.approx(2.08e-4, rel=0.03)


@pytest.mark.gpu
def test_more_tiles_than_a_second_axis_takes():
    width = 65536 * TILES["half"][0][0][1]
    for shape in ((1, width), (width, 1)):
        a = torch.ones(shape[0], 1, dtype=torch.float16, device="cuda")
        b = torch.ones(1, shape[1], dtype=torch.float16, device="cuda")
        assert (matmul_relu(a, b) == 1).all()


@pytest.mark.gpu
def test_more_than_2_31_elements():
    a = torch.zeros(2**16 + 3, 2**15 + 16, dtype=torch.float16, device="cuda")
    a[-1, -1], a[-1, 0] = 3, 2
    b = torch.zeros(2**15 + 16, 5, dtype=torch.float16, device="cuda")
    b[-1], b[0] = 7, 1
    out = matmul_relu(a, b)
    assert (out[-1] == 23).all() and (out[:-1] == 0).all()
    wide = matmul_relu(a[:, :1] + 1, b[:1, :1].expand(1, 2**15 + 16))
    assert (wide[-1] == 3).all() and (wide[:-1] == 1).all()


@pytest.mark.gpu
def test_two_devices_or_cpu_are_refused():
    a = torch.eye(4)
    with pytest.raises(ValueError, match="one device, got a: cuda:0, b: cpu"):
        matmul_relu(a.cuda(), a)
