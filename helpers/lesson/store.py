"""`make notebooks`: run notebooks in recorded mode and store what they show, the same on every machine.

    python -m helpers.lesson.store                       all notebooks
    python -m helpers.lesson.store notebooks/03_gelu.ipynb
    python -m helpers.lesson.store --sync-only           only copy shipped kernels into the cells that teach them

What a notebook compiles is shipped in helpers/data/compiled/<notebook>; pictures that the README shows go to pictures/.
A notebook that raises is not written; the error and its cell are printed, and the command exits with 1.
"""

import argparse
import ast
import base64
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
import textwrap
import time
from pathlib import Path

import nbformat

from helpers.compile import store as compiled_store
from helpers.lesson.map import NOTEBOOKS

ROOT = NOTEBOOKS.parent
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
TIMEOUT_S = 120


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m helpers.lesson.store", description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--sync-only", action="store_true")
    options = parser.parse_args(arguments)
    failed = []
    for path in options.notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        changed = sync_kernels(notebook)
        began = time.monotonic()
        if not options.sync_only:
            try:
                with compiled_store.collecting(path.stem):
                    execute(notebook)
            except Exception as error:  # nbclient's message holds the cell and the traceback
                failed.append(path)
                print(f"{path.name} FAILED, not written\n{error}", flush=True)
                continue
            clean(notebook)
        nbformat.write(notebook, path)
        for name, png in readme_pictures(notebook).items():
            (ROOT / "pictures" / f"{name}.png").write_bytes(png)
        took = "" if options.sync_only else f", {time.monotonic() - began:.1f} s"
        size = path.stat().st_size / 1e6
        print(f"{path.name}: {changed} kernels updated, {size:.2f} MB{took}", flush=True)
    return 1 if failed else 0


def execute(notebook, *, mode: str = "recorded") -> None:
    """Run all cells in place, in a kernel of this Python whose COURSE_EVIDENCE is `mode`."""
    from nbclient import NotebookClient

    client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", store_widget_state=True, coalesce_streams=True,
                            record_timing=False, resources={"metadata": {"path": str(NOTEBOOKS)}})
    client.execute(env=readers_environment(mode))


def readers_environment(mode: str) -> dict[str, str]:
    """This process's environment as a reader's kernel finds it: without what `helpers.mode` has set in it."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"COURSE_EVIDENCE": mode}


def clean(notebook) -> None:
    """Drop what differs from run to run or machine to machine: widget ids, timings, kernel details."""
    notebook.metadata = nbformat.from_dict({
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    })
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
        if cell.cell_type == "code":
            cell.metadata["stored"] = stored_mark(cell)


def stored_mark(cell) -> str:
    """How many outputs this command stored in a cell, and their hash: a removed or altered output no longer fits."""
    outputs = [{key: value for key, value in output.items() if key != "execution_count"} for output in cell.outputs]
    digest = hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()
    return f"{len(outputs)} outputs, {digest[:16]}"


def readme_pictures(notebook) -> dict[str, bytes]:
    """The stored pictures that the README shows too: PNGs by the name that their cell has in its metadata `picture`."""
    found = {}
    for cell in notebook.cells:
        if name := cell.metadata.get("picture"):
            html = "".join(str(output.get("data", {}).get("text/html", "")) for output in cell.outputs)
            found[name] = base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', html)[1])
    return found


def sync_kernels(notebook) -> int:
    """Put the shipped source of each kernel that a cell names in its metadata into that cell; returns how many."""
    changed = 0
    for cell in notebook.cells:
        named = cell.metadata.get("kernel")
        if not named:
            continue
        source = shipped_source(named)
        if syntax(source) != syntax(cell.source):
            cell.source = source
            changed += 1
    return changed


def shipped_source(named: str) -> str:
    """Source of "helpers.kernels.gelu:gelu_kernel"; several names, separated by commas, follow one another."""
    module_name, _, names = named.partition(":")
    module = importlib.import_module(module_name)
    parts = []
    for name in names.split(","):
        fn = getattr(module, name.strip())
        while hasattr(fn, "fn"):
            fn = fn.fn
        parts.append(textwrap.dedent(inspect.getsource(fn)).strip())
    return "\n\n\n".join(parts)


def syntax(source: str) -> str:
    """The syntax tree as text: equal for sources that differ only in comments and layout."""
    return ast.dump(ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)))


if __name__ == "__main__":
    sys.exit(main())
