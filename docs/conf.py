"""How Sphinx builds the site: the pages that GitHub shows, and the reference of the
Python API.

make docs
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
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
        *(
            "guide",
            "why",
            "whatif",
            "modules",
            "kernel-names",
            "diff",
            "memory",
            "ranks",
            "hang",
        ),
        *("serving", "glossary", "reference", "capture", "ssh", "ci"),
    ),
    "Take it along": (
        *("pictures", "python", "notebook", "api", "tables", "sql", "json", "agents"),
        "skills/fusetui/SKILL",
    ),
    "How good it is": ("benchmarks", "experiments", "safety"),
}
"""The pages of docs/ in the order of the site; Sphinx warns of those that stand
nowhere."""
PROJECT = (
    *("CHANGELOG", "CONTRIBUTING", "SECURITY", "docs/ARCHITECTURE", "docs/files"),
    *("sample_traces/README", "sample_traces/lessons/README"),
)

project = "fusetui"
release = fusetui.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc"]
# the source folder is the root, so that links are the same here and on GitHub
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "docs/notebook.ipynb", "sample_traces/**.md"]
exclude_patterns = [".*", "build", "dist", "runs", "src", "tests"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # docs/make_notebook.py has executed it
default_role = "code"  # single backticks, as in our docstrings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
html_theme = "furo"
html_title = f"fusetui {release}"
html_copy_source = False


def contents(app: Sphinx, name: str, source: list[str]) -> None:
    """What stands in the sidebar, which README.md itself does not say."""
    if name == root_doc:
        sections = {
            title: [f"docs/{one}" for one in pages] for title, pages in SECTIONS.items()
        }
        for title, pages in (*sections.items(), ("The project", PROJECT)):
            lines = (
                "```{toctree}",
                ":hidden:",
                f":caption: {title}",
                "",
                *pages,
                "```",
                "",
            )
            source[0] += "\n" + "\n".join(lines)


def index(app: Sphinx, error: Exception | None) -> None:
    """A server asks for index.html."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def comments(  # what the event gives
    app: Sphinx, kind: str, name: str, found: object, options: Any, lines: list[str]
) -> None:
    """The comment behind a field of a record describes it."""
    parent, _, field = name.rpartition(".")
    if kind != "attribute" or any(lines):
        return
    module, _, record = parent.rpartition(".")
    owner = getattr(importlib.import_module(module), record)
    said = re.search(
        rf"^    {field}: [^\n#]*#:? *(.+)$", inspect.getsource(owner), re.MULTILINE
    )
    lines[:] = [said[1], ""] if said else []


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", comments)
    app.connect("source-read", contents)
    app.connect("build-finished", index)
