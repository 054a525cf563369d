"""Views of code: a kernel's source, and the PTX or SASS that the compiler made of it."""

import html
import inspect
import re


class Listing:
    """Lines of code with some marked; shows the marked ones with context, and folds the whole away below."""

    def __init__(self, title: str, text: str, match: str | None = None, evidence=None, context=0, most=40):
        self.title = title
        self.lines = text.rstrip().splitlines()
        self.evidence = evidence.line() if hasattr(evidence, "line") else (evidence or "")
        marked = [i for i, line in enumerate(self.lines) if match and re.search(match, line)]
        self.marked = marked
        near = sorted({j for i in marked for j in range(max(0, i - context), min(len(self.lines), i + context + 1))})
        self.shown = (near if match else list(range(len(self.lines))))[:most]
        self.left_out = (len(near) if match else len(self.lines)) - len(self.shown)

    def __repr__(self):
        body = "\n".join(f"{i + 1:5d} {self.lines[i].strip()}" for i in self.shown)
        more = f"\n      ... and {self.left_out} more" if self.left_out else ""
        return f"{self.title}\n{body}{more}" + (f"\n{self.evidence}" if self.evidence else "")

    def _repr_html_(self):
        marked = set(self.marked)
        rows = "\n".join(
            (f'<span style="font-weight:600">{i + 1:5d} {html.escape(self.lines[i].strip())}</span>' if i in marked
             else f"{i + 1:5d} {html.escape(self.lines[i])}")
            for i in self.shown
        )
        more = f"\n      ... and {self.left_out} more" if self.left_out else ""
        note = f'<div style="font-size:85%;opacity:.75">{html.escape(self.evidence)}</div>' if self.evidence else ""
        style = "overflow-x:auto;white-space:pre;font-family:monospace;font-size:90%"
        return f'<div><b>{html.escape(self.title)}</b><pre style="{style}">{rows}{more}</pre>{note}</div>'


def show_source(kernel) -> Listing:
    """The source of a kernel (or of any function), as the compiler sees it."""
    fn = kernel
    while hasattr(fn, "fn"):  # unwrap autotune, heuristics and jit
        fn = fn.fn
    return Listing(getattr(fn, "__name__", "kernel"), inspect.getsource(fn))


def show_ptx(compiled, match: str | None = None, *, context: int = 0, most: int = 40) -> Listing:
    """The PTX lines that match a regular expression (all lines without one), e.g. show_ptx(c, r"ld\\.global")."""
    return _listing(compiled, "PTX", compiled.ptx, match, context, most)


def show_sass(compiled, match: str | None = None, *, context: int = 0, most: int = 40) -> Listing:
    """The SASS (machine code) lines that match a regular expression; like `show_ptx`."""
    return _listing(compiled, "SASS", compiled.sass, match, context, most)


def _listing(compiled, kind, text, match, context, most):
    title = f"{compiled.name}: {kind} for {compiled.target}"
    if match:
        count = sum(bool(re.search(match, line)) for line in text.splitlines())
        title += f", {count} lines with {match.replace(chr(92), '')}"
    return Listing(title, text, match, compiled.evidence, context, most)
