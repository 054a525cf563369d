"""`make html` and `make slides`: copies of the notebooks that need neither Jupyter nor the network.

    python -m helpers.lesson.static html build/html
    python -m helpers.lesson.static slides build/slides

Pages load nothing: pictures are in them already, and nbconvert's links to scripts on other sites are left out. Slides are the
same page in pieces that fit a projector (`slides.css`), each part of the notebook on slides of its own; keys turn them
(`slides.js`), and printing gives one slide a page.
"""

import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from helpers.lesson.map import NOTEBOOKS


def page(notebook, slides: bool) -> str:
    """A notebook as one HTML page that loads nothing."""
    exporter = HTMLExporter(exclude_input_prompt=slides, exclude_output_prompt=slides)
    for trait in ("require_js_url", "mathjax_url", "jquery_url", "mermaid_js_url", "mermaid_layout_elk_js_url",
                  "jupyter_widgets_base_url"):
        if exporter.has_trait(trait):
            setattr(exporter, trait, "")
    if slides:
        notebook.cells = [cell for cell in notebook.cells if slide_type(cell) not in ("skip", "notes")]
        for cell in notebook.cells:
            mark = ["begins"] if slide_type(cell) in ("slide", "subslide") else []
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), *mark]
    html, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title(notebook)}})
    html = re.sub(r'(<a href="[^":]+)\.ipynb\b', r"\1.html", without_loading(html))
    html = html.replace("</head>", f"<style>\n{beside('slides.css' if slides else 'page.css')}</style>\n</head>", 1)
    return html.replace("</body>", f"<script>\n{beside('slides.js')}</script>\n</body>") if slides else html


def beside(name: str) -> str:
    """A file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def title(notebook) -> str:
    """What the browser's tab says: the notebook's first heading."""
    return notebook.cells[0].source.partition("\n")[0].lstrip("# ")


def slide_type(cell) -> str:
    return cell.metadata.get("slideshow", {}).get("slide_type", "-")


def without_loading(html: str) -> str:
    """A page without scripts that would come from elsewhere, or that do nothing but load such."""
    html = re.sub(r"<script[^>]*\ssrc=\"[^\"]*\"[^>]*>\s*</script>", "", html)
    return re.sub(r"<script type=\"(?:module|text/x-mathjax-config)\">.*?</script>", "", html, flags=re.S)


def main(kind: str, folder: str) -> None:
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        target = to / f"{path.stem}.html"
        target.write_text(page(nbformat.read(path, as_version=4), slides=kind == "slides"), encoding="utf-8")
        print(target)
    shutil.copytree(NOTEBOOKS / "solutions", to / "solutions", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


if __name__ == "__main__":
    main(*sys.argv[1:])
