"""What one warp's load moves, counted by the SIMT machine from the compiled kernel, with a GPU or without."""

import functools
from dataclasses import dataclass

import torch

from helpers.cuda.launch import CudaKernel
from helpers.evidence import Evidence, interpreted_here

ELEMENTS = {1: "char", 2: "short", 4: "float", 8: "float2", 16: "float4"}  # bytes -> type
ORDERS = {"in order": 0, "pairs swapped": 1, "halves swapped": 16, "reversed": 31}  # name -> lane ^ flip


@dataclass(frozen=True)
class WarpLoad:
    """One load of 32 lanes: the byte address of each lane in the buffer, sectors counted, bytes moved and used."""

    addresses: tuple[int, ...]
    sectors: int
    moved_bytes: int
    used_bytes: int
    evidence: Evidence

    @property
    def efficiency(self) -> float:
        return self.used_bytes / self.moved_bytes


@functools.lru_cache(maxsize=512)
def count_warp(stride: int = 1, offset: int = 0, order: str = "in order", element: str = "float") -> WarpLoad:
    """Run `pattern_copy` on one warp: lane i loads element (i ^ flip) * stride + offset, 4 bytes wide or `element`.

    Raises ValueError for an unknown order or element, or a negative stride or offset.
    """
    if order not in ORDERS or element not in ELEMENTS.values() or min(stride, offset) < 0:
        raise ValueError(f"order out of {list(ORDERS)}, element out of {list(ELEMENTS.values())}, stride and offset of "
                         f"at least 0; got {order!r}, {element!r}, {stride}, {offset}")
    size = next(size for size, name in ELEMENTS.items() if name == element)
    elements = 31 * stride + offset + 32
    # Numbered elements tell where each lane read; the wide or narrow kernel is the one whose sectors are counted.
    x, y = torch.arange(float(elements)), torch.empty(32)
    CudaKernel("copies.cu", "pattern_copy").counted(1, 32, x, y, stride, offset, ORDERS[order])
    wide = CudaKernel("copies.cu", "pattern_copy", (f"-DELEMENT={element}",))
    bytes_x, bytes_y = torch.zeros(elements * size, dtype=torch.uint8), torch.zeros(32 * size, dtype=torch.uint8)
    load = wide.counted(1, 32, bytes_x, bytes_y, stride, offset, ORDERS[order]).of("global load")
    addresses = tuple(int(i) * size for i in y)
    return WarpLoad(addresses, load.sectors, 32 * load.sectors, len(set(addresses)) * size,
                    interpreted_here("SIMT machine"))
