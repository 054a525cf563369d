"""Writing a file whole or not at all: an interruption, a full disc or another process that writes too leaves no half of one."""

import os
import uuid
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path`, making its folder. Who may read it is for the umask to say, as for any other file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f"{uuid.uuid4().hex}.part"
    try:
        part.write_bytes(content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
