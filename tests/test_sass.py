"""Reading SASS: loops are found by their backward branches, counts are of whole opcodes."""

import pytest
import torch

from helpers.compile import compile_kernel
from helpers.kernels.row_sum import row_sum_kernel
from helpers.sass import before, count, main_loop

LISTING = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;          /* 0x1 */
        /*0010*/                   LDG.E R2, [R4] ;                /* 0x2 */
        /*0020*/                   LDG.E.128 R4, [R8.64] ;         /* 0x3 */
        /*0030*/              @!P0 LDG.E.128 R8, [R8.64+0x200] ;   /* 0x4 */
        /*0040*/                   FADD R1, R1, R4 ;               /* 0x5 */
        /*0050*/                   LDG.E.128 R8, [R8.64+0x400] ;   /* 0x6 */
        /*0060*/               @P0 BRA 0x20 ;                      /* 0xffff */
        /*0070*/                   FADD.FTZ R1, R1, R2 ;           /* 0x7 */
        /*0080*/               @P1 BRA 0x70 ;                      /* 0x8 */
        /*0090*/                   EXIT ;                          /* 0x9 */
        /*00a0*/                   BRA 0xa0;                       /* 0xa */
"""


def test_the_loop_with_the_most():
    loop = main_loop(LISTING, "LDG")
    assert loop == ["LDG.E.128", "LDG.E.128", "FADD", "LDG.E.128", "BRA"]
    assert count(loop, "LDG") == 3 and count(loop, "LDG.E") == 3 and count(loop, "LD") == 0
    assert before(loop, "LDG", "FADD") == 2
    assert before(loop, "LDG", "STG") == 3
    assert main_loop(LISTING, "FADD.FTZ") == ["FADD.FTZ", "BRA"]


def test_no_loop():
    with pytest.raises(ValueError, match="no loop with FFMA in 11 instructions"):
        main_loop(LISTING, "FFMA")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_on_real_code(target):
    x, out = torch.empty(132, 524288, device="meta"), torch.empty(132, device="meta")
    c = compile_kernel(row_sum_kernel, x, out, 524288, 524288, 1, target=target, num_warps=4, TILE=512)
    loop = main_loop(c.sass, "LDG")
    assert count(loop, "FADD") == 4 * count(loop, "LDG"), "four additions for each load of four numbers"
    assert 1 <= before(loop, "LDG", "FADD") <= count(loop, "LDG")
