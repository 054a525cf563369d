"""Keeping results: in `.cache/` (or $COURSE_CACHE), and those that the lessons ask for in `helpers/data/compiled/`.

The shipped ones make a fresh clone quick and serve systems without the compiler. `make notebooks` writes them, a folder
per lesson, so that what a lesson no longer asks for disappears. A result is found by all that determines it: the whole
request and the compiler's version; where there is no compiler, by the request alone.
"""

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path

from helpers.files import write_whole

SHIPPED = Path(__file__).parents[1] / "data" / "compiled"
COLLECT = "COURSE_COLLECT_COMPILED"
FORMAT = 1  # of requests and results together; entries of another one are not read


def kept(request, name: str, version: str | None, build) -> tuple[dict, bool]:
    """The result of a request by this version of the compiler (None: there is none here), or else what `build()` says.

    Requests and results are JSON; `name` is for people who look at the files. The bool: it was shipped.
    """
    stem = f"{name}-{hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:24]}"
    result, shipped = _read(_shipped(stem, version), request), True
    if result is None:
        path = version and _cache() / _file_name(stem, version)
        result, shipped = _read(path, request), False
        if result is None:
            result = build()
            if path:
                with contextlib.suppress(OSError):  # an unwritable cache only costs the next session time
                    _write(path, request, result)
    if os.environ.get(COLLECT) and version:
        _write(Path(os.environ[COLLECT]) / _file_name(stem, version), request, result)
        shipped = True
    return result, shipped


@contextlib.contextmanager
def collecting(lesson: str):
    """Ship what is compiled inside, also by processes started inside, as the results of `lesson`, and no others."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[COLLECT] = folder
        try:
            yield
        finally:
            del os.environ[COLLECT]
        shutil.rmtree(SHIPPED / lesson, ignore_errors=True)
        for path in Path(folder).iterdir():
            (SHIPPED / lesson).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, SHIPPED / lesson / path.name)


def entries() -> list[tuple[Path, object, dict]]:
    """(file, request, result) of all that is shipped. Raises ValueError for a damaged file."""
    found = []
    for path in sorted(SHIPPED.glob("*/*.json.gz")):
        entry = json.loads(gzip.decompress(path.read_bytes()))
        found.append((path, entry["request"], entry["result"]))
    return found


def _cache() -> Path:
    return Path(os.environ.get("COURSE_CACHE") or Path(__file__).parents[2] / ".cache") / "compiled"


def _file_name(stem: str, version: str) -> str:
    return f"{stem}-{re.sub(r'[^A-Za-z0-9.]+', '_', version)}.json.gz"


def _shipped(stem: str, version: str | None) -> Path | None:
    paths = sorted(SHIPPED.glob(f"*/{stem}-*" if version is None else f"*/{_file_name(stem, version)}"))
    return paths[-1] if paths else None


def _read(path: Path | None, request) -> dict | None:
    """An entry's result, or None if there is none that can be used; it is then made and written again."""
    try:
        entry = json.loads(gzip.decompress(path.read_bytes())) if path else {}
        return entry["result"] if entry and (entry["format"], entry["request"]) == (FORMAT, request) else None
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, request, result: dict) -> None:
    content = json.dumps({"format": FORMAT, "request": request, "result": result}, sort_keys=True).encode()
    write_whole(path, gzip.compress(content, mtime=0))
