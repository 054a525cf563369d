"""What can go wrong in a kernel, each with a sentence a reader can act on."""


class SimtError(Exception):
    """A fault of the kernel that ran, or PTX that this machine does not know."""


class UnknownInstruction(SimtError):
    """PTX that is not implemented; raised before anything runs, with its text and line."""


class OutOfBounds(SimtError):
    """An access outside every buffer: names thread, address and instruction."""


class Misaligned(SimtError):
    """An address that is not a multiple of the access's size."""


class Deadlock(SimtError):
    """Threads wait at a barrier that others of their block will never reach."""


class Race(SimtError):
    """Two threads touched one shared-memory word, one of them writing, with no barrier between."""


class TooLong(SimtError):
    """More instructions than the limit: probably an endless loop."""
