"""The driver's own answer to the question of lesson 07: how many blocks of a kernel one SM holds at a time."""

import torch

from helpers import mode
from helpers.cuda.launch import CudaKernel, _loaded


def resident_blocks(kernel: CudaKernel, threads: int, shared_bytes: int = 0) -> int:
    """Blocks of `threads` threads with `shared_bytes` of dynamic shared memory that one SM of this GPU can hold.

    The answer of cuOccupancyMaxActiveBlocksPerMultiprocessor; 0 where the kernel cannot be launched so. Raises
    RuntimeError without a GPU.
    """
    if not mode.is_live():
        raise RuntimeError("only a driver knows what the driver answers, and no GPU is in use here")
    from cuda.bindings import driver
    from cuda.core import Device

    index = torch.cuda.current_device()
    Device(index).set_current()
    loaded = _loaded(kernel.source, kernel.name, kernel.options, index)
    # without this a kernel may have 48 KiB; it is what a launch with more has to say first, too
    most = torch.cuda.get_device_properties(index).shared_memory_per_block_optin - loaded.attributes.shared_size_bytes
    (status,) = driver.cuKernelSetAttribute(driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            most, driver.CUkernel(int(loaded.handle)), driver.CUdevice(index))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{kernel.name}: the driver refuses {most} bytes of dynamic shared memory: {status}")
    return loaded.occupancy.max_active_blocks_per_multiprocessor(threads, shared_bytes)
