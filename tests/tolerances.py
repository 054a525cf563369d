"""The one table of tolerances, and the one comparison that uses it."""

import torch

# Relative error of one correctly rounded operation chain, by output dtype (unit roundoff x a few operations), and an
# absolute part scaled by the largest expected value: it covers cancellation, and can never accept an all-zero result.
RELATIVE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def assert_matches(out: torch.Tensor, expected: torch.Tensor, *, dtype=None, scale: float = 1.0) -> None:
    """Assert that `out` equals the float64 `expected` within the tolerance of its dtype times `scale`.

    NaN and infinities must stand in the same places. Shapes and dtype must agree. `scale` widens the tolerance for
    long sums (error grows with their length); it is stated where it is used.
    """
    dtype = dtype or out.dtype
    assert out.dtype == dtype, f"dtype {out.dtype}, expected {dtype}"
    assert out.shape == expected.shape, f"shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    assert expected.dtype == torch.float64, "expected values must be computed in float64"
    if expected.numel() == 0:
        return
    out, expected = out.detach().cpu().double(), expected.detach().cpu()
    # What overflows the dtype is infinite in it: round the expectation once, as the kernel does.
    rounded = expected.to(dtype).double()
    finite = torch.isfinite(rounded)
    special = torch.where(finite, torch.zeros_like(rounded), rounded)
    got_special = torch.where(torch.isfinite(out), torch.zeros_like(out), out)
    assert torch.equal(special.nan_to_num(nan=7e300), got_special.nan_to_num(nan=7e300)), "NaN or inf in other places"
    if not finite.any():
        return
    error = (out[finite] - expected[finite]).abs()
    largest = expected[finite].abs().max()
    bound = scale * RELATIVE[dtype] * expected[finite].abs() + 1e-2 * scale * RELATIVE[dtype] * largest
    if dtype == torch.float16:
        bound = bound + 2.0**-24  # subnormal spacing
    if dtype != torch.float16:
        bound = bound + 2.0**-140
    worst = int((error - bound).argmax())
    assert (error <= bound).all(), (
        f"{int((error > bound).sum())} of {error.numel()} values are off; worst: got {out[finite][worst]:.9g}, "
        f"expected {expected[finite][worst]:.9g}, allowed error {bound[worst]:.2g}"
    )
