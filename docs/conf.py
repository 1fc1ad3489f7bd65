"""How Sphinx builds the site: the pages that GitHub shows, and the reference of the
Python API.

make docs
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import fusetui

SECTIONS = {
    "Begin": (
        "tour",
        "reading-a-gpu-trace",
        "recording",
        "attach",
        "formats",
        "questions",
    ),
    "Answers": (
        "guide",
        "why",
        "whatif",
        "reproduce",
        "modules",
        "kernel-names",
        "compile",
        "diff",
        "memory",
        "ranks",
        "hang",
        "serving",
        "glossary",
        "reference",
        "capture",
        "ssh",
        "ci",
    ),
    "Take it along": (
        "pictures",
        "python",
        "notebook",
        "api",
        "tables",
        "sql",
        "json",
        "stability",
        "agents",
        "skills/fusetui/SKILL",
    ),
    "How good it is": ("benchmarks", "experiments", "safety"),
}
"""The pages of docs/ by the title of their section, in the order of the site. Sphinx
warns about a page that is in no section."""
PROJECT = (
    "CHANGELOG",
    "CONTRIBUTING",
    "CODE_OF_CONDUCT",
    "SECURITY",
    "docs/ARCHITECTURE",
    "docs/one-kernel",
    "docs/releasing",
    "docs/files",
    "sample_traces/README",
    "sample_traces/lessons/README",
)

project = "fusetui"
release = fusetui.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# the source folder is the root, so that links are the same here and on GitHub
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "docs/notebook.ipynb", "sample_traces/**.md"]
exclude_patterns = [".*", "build", "dist", "runs", "src", "tests", "fuzz"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # docs/make_notebook.py has executed it
default_role = "code"  # single backticks, as in our docstrings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
html_theme = "furo"
html_title = f"fusetui {release}"
html_copy_source = False


def add_sidebar(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds the pages of the sidebar to the text of README.md, `source[0]`."""
    if page != root_doc:
        return
    for title, pages in SECTIONS.items():
        source[0] += _toctree(title, [f"docs/{name}" for name in pages])
    source[0] += _toctree("The project", PROJECT)


def _toctree(title: str, pages: Sequence[str]) -> str:
    lines = [
        "",
        "```{toctree}",
        ":hidden:",
        f":caption: {title}",
        "",
        *pages,
        "```",
        "",
    ]
    return "\n".join(lines)


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Copies README.html to index.html, which a web server opens."""
    if error is None and app.builder.format == "html":
        out = Path(app.outdir)
        shutil.copyfile(out / "README.html", out / "index.html")


def describe_field(
    app: Sphinx, kind: str, name: str, value: object, options: Any, lines: list[str]
) -> None:
    """Fills `lines`, the description of the field `module.Record.field`, with the
    comment behind the field in the source, if it has no docstring."""
    if kind != "attribute" or any(lines):
        return
    record_name, _, field = name.rpartition(".")
    module_name, _, class_name = record_name.rpartition(".")
    record = getattr(importlib.import_module(module_name), class_name)
    comment = re.search(
        rf"^    {field}: [^\n#]*#:? *(.+)$", inspect.getsource(record), re.MULTILINE
    )
    lines[:] = [comment[1], ""] if comment else []


def setup(app: Sphinx) -> None:
    """What Sphinx calls; the parameters of each function are those of its event."""
    app.connect("autodoc-process-docstring", describe_field)
    app.connect("source-read", add_sidebar)
    app.connect("build-finished", add_index)
