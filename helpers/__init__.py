"""Everything the lessons call. Importing it decides how kernels run on this machine (see `helpers.mode`)."""

from helpers.mode import decide as _decide

_decide()
