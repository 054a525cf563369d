"""Exercises of lessons 01 and 02: likely wrong answers are refused with a sentence that helps."""

import pytest
import triton
import triton.language as tl

from helpers.lesson import check


@triton.jit
def short_kernel(x_ptr, y_ptr, out_ptr, s, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n - 1
    x, y = tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + s * y, mask=mask)


@triton.jit
def swapped_kernel(x_ptr, y_ptr, out_ptr, s, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x, y = tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, s * x + y, mask=mask)


WRONG = [
    ("01_memory_hierarchy.1", lambda peak, bandwidth, intensity: min(peak, bandwidth * intensity), "reaches 0.1493 TFLOPS, you say 104.8"),
    ("01_memory_hierarchy.1", lambda peak, bandwidth, intensity: None, "must be a number, got None"),
    ("01_memory_hierarchy.1", lambda peak, bandwidth, intensity: 0.0, "you say 0"),
    ("01_memory_hierarchy.2", lambda bandwidth, cycles, mhz: bandwidth * cycles / mhz, "need 1,000,000 bytes, you say 1,000"),
    ("01_memory_hierarchy.2", lambda bandwidth, cycles, mhz: "many", "must be a number"),
    ("01_memory_hierarchy.3", swapped_kernel, "expected"),
    ("01_memory_hierarchy.3", short_kernel, "1 elements were never written at n = 1000"),
    ("02_sm_and_warps.1", lambda t, n: (t // 32, t % 32, [t // 32]), "shares its scheduler with"),
    ("02_sm_and_warps.1", lambda t, n: (t % 32, t // 32, []), "thread 31 is lane 31 of warp 0"),
    ("02_sm_and_warps.1", lambda t, n: (t // 32, t % 32, None), "must be a list of warps"),
    ("02_sm_and_warps.2", lambda warps, alone: warps / 4 * alone, "1 warps of 100 cycles each take 100"),
    ("02_sm_and_warps.2", lambda warps, alone: alone, "5 warps of 100 cycles each take 200"),
    ("02_sm_and_warps.3", lambda ready, last: ready[0], "waited longest; you choose 0"),
    ("02_sm_and_warps.3", lambda ready, last: min(range(len(last)), key=last.__getitem__), "waited longest"),
]


@pytest.mark.parametrize("id, answer, hint", WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_answers_get_a_hint(id, answer, hint):
    with pytest.raises(AssertionError, match="not yet") as caught:
        check(id, answer)
    assert hint in str(caught.value)
