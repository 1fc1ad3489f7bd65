"""docs/guide.md names every variable that the code reads, and where files are."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from platformdirs import user_cache_path, user_log_path
from tests.places import ROOT

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
FOLDERS = ("tui", "capture", "kernels", "src/fusetui")
CODE = "".join(
    path.read_text() for name in FOLDERS for path in (ROOT / name).rglob("*.py")
)


def test_guide_lists_every_variable_that_the_code_reads() -> None:
    read = set(re.findall(r'"(FUSETUI_\w+)"', CODE))
    assert read
    assert read == set(re.findall(r"^\| `(FUSETUI_\w+)`", GUIDE, re.MULTILINE))


def test_files_are_where_the_guide_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for path in (user_cache_path("fusetui", False), user_log_path("fusetui", False)):
        assert "/".join(path.parts[-2:]) in GUIDE


def test_the_guide_lists_every_package_that_opening_traces_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    names = [
        re.split(r"[><=; ]", dependency)[0] for dependency in project["dependencies"]
    ]
    _, section = GUIDE.split("## On a GPU machine without a network")
    listed = section.partition("\n## ")[0]
    assert [name for name in names if name not in listed] == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem
)
def test_no_section_stands_twice_on_a_page(page: Path) -> None:
    headings = re.findall(r"^#+ .*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [heading for heading, count in Counter(headings).items() if count > 1] == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem
)
def test_pages_name_modules_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = set(re.findall(r"`(fusetui(?:\.[a-z_]+)+)(?:\(|`)", text))
    packages = [name.rpartition(".")[0] for name in names]
    missing = [
        name
        for name, package in zip(names, packages, strict=True)
        if not (find_spec(name) if package == "fusetui" else find_spec(package))
    ]
    assert missing == []
