"""`make html` and `make slides`: copies of the notebooks that need neither Jupyter nor the network.

    python -m helpers.lesson.static html build/html
    python -m helpers.lesson.static slides build/slides

Pages load nothing: pictures are in them already, and nbconvert's links to scripts on other sites are left out. Slides are the
same page cut at the cells that begin a slide; the arrow keys turn them, and printing gives one slide a page.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter

from helpers.lesson.map import NOTEBOOKS

SLIDES = """
<style>
  main > div { display: none; padding: 12px 48px; }
  main > div.shown { display: block; }
  @media print { main { zoom: 1 !important; } main > div { display: block; break-after: page; } }
</style>
<script>
  const main = document.querySelector("main"), slides = [];
  const is = (cell, tag) => cell.matches(tag) || cell.querySelector(tag);  // text cells carry their tags inside
  for (const cell of [...main.querySelectorAll(".jp-Cell")]) {
    if (is(cell, ".celltag_skip")) { cell.remove(); continue; }
    if (!slides.length || is(cell, ".celltag_begins")) slides.push(main.appendChild(document.createElement("div")));
    slides.at(-1).appendChild(cell);
  }
  let at = 0;
  function show(to) {
    at = Math.max(0, Math.min(slides.length - 1, to));
    slides.forEach((slide, i) => slide.classList.toggle("shown", i === at));
    window.scrollTo(0, 0);
    location.hash = at + 1;
  }
  // Jupyter's sizes are in pixels: every projector gets a page 1200 of them wide, so letters grow with the picture.
  const fit = () => { main.style.zoom = innerWidth / 1200; };
  addEventListener("resize", fit);
  fit();
  show((parseInt(location.hash.slice(1)) || 1) - 1);
  addEventListener("keydown", event => {
    const step = {ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1}[event.key];
    if (step) { event.preventDefault(); show(at + step); }
  });
</script>
"""


def page(notebook, name: str, slides: bool) -> str:
    """A notebook as one HTML page that loads nothing."""
    exporter = HTMLExporter(exclude_input_prompt=slides, exclude_output_prompt=slides)
    for trait in ("require_js_url", "mathjax_url", "jquery_url", "mermaid_js_url", "mermaid_layout_elk_js_url",
                  "jupyter_widgets_base_url"):
        if exporter.has_trait(trait):
            setattr(exporter, trait, "")
    for cell in notebook.cells if slides else []:
        kind = cell.metadata.get("slideshow", {}).get("slide_type", "-")
        mark = {"slide": ["begins"], "subslide": ["begins"], "skip": ["skip"], "notes": ["skip"]}.get(kind, [])
        cell.metadata["tags"] = [*cell.metadata.get("tags", []), *mark]
    html, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": name}})
    html = without_loading(html).replace(".ipynb", ".html")
    return html.replace("</body>", f"{SLIDES}</body>") if slides else html


def without_loading(html: str) -> str:
    """A page without scripts that would come from elsewhere, or that do nothing but load such."""
    html = re.sub(r"<script[^>]*\ssrc=\"[^\"]*\"[^>]*>\s*</script>", "", html)
    return re.sub(r"<script type=\"(?:module|text/x-mathjax-config)\">.*?</script>", "", html, flags=re.S)


def main(kind: str, folder: str) -> None:
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        target = to / f"{path.stem}.html"
        target.write_text(page(nbformat.read(path, as_version=4), path.stem, slides=kind == "slides"))
        print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
