"""docs/guide.md names every variable that the code reads, and where files are."""

from __future__ import annotations

import re

import pytest
from platformdirs import user_cache_path, user_log_path
from tests.places import ROOT

GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
FOLDERS = ("trace", "tui", "capture", "kernels", "src/fusetui")
CODE = "".join(path.read_text() for name in FOLDERS for path in (ROOT / name).rglob("*.py"))


def test_variables() -> None:
    read = set(re.findall(r'"(FUSETUI_\w+)"', CODE))
    assert read
    assert read == set(re.findall(r"^\| `(FUSETUI_\w+)`", GUIDE, re.MULTILINE))


def test_files_are_where_the_guide_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for path in (user_cache_path("fusetui", False), user_log_path("fusetui", False)):
        assert "/".join(path.parts[-2:]) in GUIDE
