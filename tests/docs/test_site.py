"""The site of the documentation, which `make docs` builds."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from tests.docs.test_reference import DOCS, script
from tests.places import ROOT

import fusetui
from fusetui import api


def test_every_page_stands_in_the_contents_once() -> None:
    conf = script("conf")
    listed = [f"docs/{page}" for pages in conf.SECTIONS.values() for page in pages]
    found = {
        page.relative_to(ROOT).with_suffix("").as_posix() for page in DOCS.rglob("*.md")
    }
    assert Counter([*listed, *conf.PROJECT]) == Counter(
        {
            *found,
            *("docs/notebook", "CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING"),
            *("SECURITY", "sample_traces/README", "sample_traces/lessons/README"),
        }
    )


def test_the_reference_has_every_name() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert all(
        f":: {name}\n" in page or f":: {name}()\n" in page for name in api.__all__
    )
    assert all(getattr(fusetui, name).__doc__ for name in api.__all__)


def test_the_notebook_says_what_its_cells_say() -> None:
    run = [sys.executable, "-P", str(DOCS / "make_notebook.py"), "--check"]
    found = subprocess.run(
        run, capture_output=True, text=True, timeout=300, check=False
    )
    assert not found.returncode, f"run make notebook\n{found.stderr[-2000:]}"
