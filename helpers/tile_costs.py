"""What the compiler makes of lesson 06's tiled kernel for many tiles and targets: registers, spills, shared memory.

Compiling takes seconds for each, too long for a control that is moved, so the numbers are shipped in `data/tile_costs.json`.
After a change of the kernel: `python -m helpers.tile_costs` (some minutes); a test compares some with the compiler.
"""

import functools
import itertools
import json
from pathlib import Path

from helpers.evidence import Evidence, today

PATH = Path(__file__).parent / "data" / "tile_costs.json"
GPUS = ("RTX 5090", "H100 SXM5", "A100", "T4")
TILES = ("32x32x32", "64x64x32", "64x128x16", "128x128x16", "128x128x32", "128x256x16")
NUM_WARPS = (4, 8)
COMPILED_STAGES = (2, 3)  # with more stages the registers stay, and each adds a pair of tiles in shared memory


def compiled_tile(gpu_name: str, tile: str, num_warps: int, num_stages: int):
    """The compiler's own answer, `helpers.compile.Compiled`, for float32 matrices of 4096 x 4096 and precision "ieee"."""
    import torch

    from helpers.compile import compile_kernel
    from helpers.kernels.matmul import matmul_relu_kernel

    x, n = torch.empty(4096, 4096, device="meta"), 4096
    block_m, block_n, block_k = map(int, tile.split("x"))
    return compile_kernel(matmul_relu_kernel, x, x, x, n, n, n, n, 1, n, 1, n, target=gpu_name, PRECISION="ieee", BLOCK_M=block_m,
                          BLOCK_N=block_n, BLOCK_K=block_k, num_warps=num_warps, num_stages=num_stages)


def tile_cost(gpu_name: str, tile: str, num_warps: int, num_stages: int) -> dict[str, int]:
    """registers and spill_bytes of a thread, shared_bytes of a program. KeyError for a setting that is not shipped."""
    if num_stages not in range(COMPILED_STAGES[0], 100):
        raise KeyError(f"num_stages must be {COMPILED_STAGES[0]} or more, got {num_stages}: less is not shipped")
    two, three = (_shipped()["costs"][gpu_name][f"{tile} {num_warps} {stages}"] for stages in COMPILED_STAGES)
    registers, spilled, shared = two if num_stages == 2 else three
    if num_stages > 3 and shared > two[2]:  # equal before 8.0, where nothing is copied ahead into shared memory
        shared += (num_stages - 3) * (shared - two[2])
    return {"registers": registers, "spill_bytes": spilled, "shared_bytes": shared}


def evidence(gpu_name: str) -> Evidence:
    return Evidence("compiled", "shipped with the course", _shipped()["date"], f"for the {gpu_name} by {_shipped()['compiler']}")


@functools.cache
def _shipped() -> dict:
    return json.loads(PATH.read_text(encoding="utf-8"))


def write() -> None:
    """Compile all settings, and ship what comes out."""
    costs, settings = {}, list(itertools.product(TILES, NUM_WARPS, COMPILED_STAGES))
    for name in GPUS:
        found = {" ".join(map(str, setting)): compiled_tile(name, *setting) for setting in settings}
        costs[name] = {key: [c.registers, c.spill_bytes, c.shared_bytes] for key, c in found.items()}
        print(f"{name}: {len(found)} settings", flush=True)
        compiler = next(iter(found.values())).compiler
    lines = json.dumps({"compiler": compiler, "date": today(), "costs": costs}, indent=1)
    PATH.write_text(lines.replace("[\n    ", "[").replace(",\n    ", ", ").replace("\n   ]", "]") + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
