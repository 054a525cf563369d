"""The threads of some blocks, laid out in lanes: lane i is thread i % (32 * warps of a block) of its block."""

import numpy as np

WARP = 32


class Threads:
    """Geometry and names. `blocks` are numbers in the grid; the lanes past a block's last thread stay empty."""

    def __init__(self, grid, block, blocks: np.ndarray, shared_bytes: int, dynamic_bytes: int):
        self.grid, self.block, self.blocks = grid, block, blocks
        self.per_block = block[0] * block[1] * block[2]
        self.warps_per_block = -(-self.per_block // WARP)
        self.warps = len(blocks) * self.warps_per_block
        self.lanes = self.warps * WARP
        self.row = np.arange(self.lanes) // (self.warps_per_block * WARP)  # which of `blocks` a lane belongs to
        self.number = np.arange(self.lanes) % (self.warps_per_block * WARP)  # within the block
        self.exists = (self.number < self.per_block).reshape(self.warps, WARP)
        self._shared_sizes = {"total_smem_size": shared_bytes, "dynamic_smem_size": dynamic_bytes}
        self._special: dict = {}

    def special(self, name: str) -> np.ndarray:
        """A special register (%tid.x, ...): one value for all lanes, or one for each."""
        if name not in self._special:
            self._special[name] = self._compute(*name[1:].split("."))
        return self._special[name]

    def _compute(self, name: str, axis: str = ""):
        if axis:
            if name in ("ntid", "nctaid"):
                return np.array((self.block if name == "ntid" else self.grid)["xyz".index(axis)])
            return coordinate(self.number, self.block, axis) if name == "tid" else coordinate(
                self.blocks[self.row], self.grid, axis)
        lane = np.arange(self.lanes) % WARP
        below = (np.uint32(1) << lane.astype(np.uint32)) - np.uint32(1)  # bits of the lanes before
        upto = below << np.uint32(1) | np.uint32(1)
        values = {"laneid": lane, "warpid": self.number // WARP, "nwarpid": self.warps_per_block,
                  "smid": self.blocks[self.row] % 128, "nsmid": 128, "lanemask_lt": below, "lanemask_le": upto,
                  "lanemask_eq": below ^ upto, "lanemask_ge": ~below, "lanemask_gt": ~upto, **self._shared_sizes}
        return np.asarray(values[name])

    def index(self, lane: int) -> tuple[int, int, int]:
        """threadIdx of a lane."""
        return tuple(int(coordinate(self.number[lane], self.block, axis)) for axis in "xyz")

    def name(self, lane: int) -> str:
        block = tuple(int(coordinate(self.blocks[self.row[lane]], self.grid, axis)) for axis in "xyz")
        return f"Thread {self.index(lane)} of block {block}"


def coordinate(number, sizes, axis: str):
    """x, y or z of a number that counts along x first."""
    x, y, _ = sizes
    return {"x": lambda: number % x, "y": lambda: number // x % y, "z": lambda: number // (x * y)}[axis]()
