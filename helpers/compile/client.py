"""The compiler's process as a lesson sees it: one, started when needed and again if it died, one request at a time."""

import atexit
import contextlib
import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from helpers import mode
from helpers.compile.result import CompileError

WORKER = Path(__file__).with_name("worker.py")
# Settings that change what Triton generates. Lessons show what it does by itself; only its assembler may be another.
_ASSEMBLERS = {"ptxas": "TRITON_PTXAS_PATH", "ptxas-blackwell": "TRITON_PTXAS_BLACKWELL_PATH"}
_SETTINGS = re.compile(r"TRITON_|MLIR_|LLVM_|NVPTX_|DISABLE_PTXAS_OPT$|PTXAS_OPTIONS$|USE_IR_LOC$")


class Worker:
    def __init__(self):
        self.lock, self.process, self.messages = threading.Lock(), None, None

    def ask(self, request: dict, sass: bool = False) -> dict:
        """The worker's reply. Raises CompileError if it dies over the request; the next call then starts another."""
        with self.lock:
            try:
                self._start()
                self.process.stdin.write(json.dumps({"request": request, "sass": sass}) + "\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except BrokenPipeError:
                line = ""
            except BaseException:  # interrupted: the answer still to come would be taken for the next one's
                self.stop()
                raise
            if not line.endswith("\n"):  # nothing, or a part: the system may end it for the memory that it takes
                self.stop()
                raise CompileError("the compiler's process ended without an answer; the next call starts a new one. "
                                   f"Its last words: {self._last_words() or 'none'}")
            return json.loads(line)

    def start(self) -> None:
        with self.lock:
            self._start()

    def _start(self) -> None:
        if self.process is None or self.process.poll() is not None:
            self.messages = tempfile.TemporaryFile()
            self.process = subprocess.Popen(
                # -P: names of this folder must not hide packages. A session of its own: an interrupt of the notebook
                # must not end it. It ends when its input closes.
                [sys.executable, "-P", str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                stderr=self.messages, start_new_session=True, env=_environment(),
            )

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the ptxas that it may be waiting for
            process.wait()
            process.stdout.close()

    def _last_words(self) -> str:
        self.messages.seek(0)
        return self.messages.read().decode(errors="replace").strip()[-1000:]

    def forget(self) -> None:
        """In a forked child: the process is the parent's."""
        self.lock, self.process = threading.Lock(), None


worker = Worker()
atexit.register(worker.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=worker.forget)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items()
            if not _SETTINGS.match(name) or name in _ASSEMBLERS.values()}


def triton_version() -> str | None:
    """E.g. "Triton 3.7.1"; None on systems without Triton."""
    return f"Triton {importlib.metadata.version('triton')}" if mode.has_triton() else None


@functools.cache
def compiler_version(capability: int) -> str | None:
    """All that may change the code of a request: Triton's version and that of the ptxas it uses for the target."""
    if not triton_version():
        return None
    name = "ptxas-blackwell" if capability >= 100 else "ptxas"
    path = os.environ.get(_ASSEMBLERS[name]) or tool(name)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    except OSError as error:
        said = str(error)
    version = re.search(r"release .*V([0-9.]+)", said)
    if version is None:
        said = said.strip()[:80] or "it says nothing"
        raise CompileError(f"{path} is no ptxas that runs here ({said}); {_ASSEMBLERS[name]} may name another")
    return f"{triton_version()} ptxas {version.group(1)}"


def tool(name: str) -> Path:
    """One of the programs that Triton ships: ptxas, ptxas-blackwell, cuobjdump, nvdisasm."""
    return Path(importlib.util.find_spec("triton").origin).parent / "backends" / "nvidia" / "bin" / name
