"""What can go wrong in a kernel, each with a sentence a reader can act on."""


class SimtError(Exception):
    """A fault of the kernel that ran, or PTX that this machine does not know."""


class UnknownInstruction(SimtError):
    """PTX that is not implemented; raised before anything runs, with its text and line."""


class OutOfBounds(SimtError):
    """An access outside every buffer: names thread, address and instruction."""


class Misaligned(SimtError):
    """An address that is not a multiple of the access's size."""


class WrongType(SimtError, TypeError):
    """Floats of one size read from, or written to, an array that holds something else."""


class UnreachedBarrier(SimtError):
    """A __syncthreads() that some threads of the block reach and others do not."""


class Deadlock(SimtError):
    """Threads wait for others that will never come: at a barrier for some of the block, or at a shuffle of their warp."""


class Race(SimtError):
    """Two threads touched one word of shared memory, one of them writing, with no barrier between."""


class Uninitialised(SimtError):
    """Shared memory was read that no thread of the block had written."""


class TooLong(SimtError):
    """More instructions than the limit: probably an endless loop."""


class Trap(SimtError):
    """The kernel stopped itself (`trap`, a failed assertion)."""
