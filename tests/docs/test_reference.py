"""Pages that are generated from the code are up to date."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

from tests.places import ROOT

DOCS = ROOT / "docs"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_that_of_this_code() -> None:
    written = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert written == script("make_reference").reference(), "run make reference"


def test_the_options_of_capture_are_those_of_this_code() -> None:
    written = (DOCS / "capture.md").read_text(encoding="utf-8")
    assert written == script("make_reference").capture(), "run make reference"


def test_the_rules_are_those_of_this_code() -> None:
    written = (DOCS / "why.md").read_text(encoding="utf-8")
    assert written == script("make_reference").why(), "run make reference"


def test_the_columns_are_those_of_this_code() -> None:
    written = (DOCS / "tables.md").read_text(encoding="utf-8")
    assert written == script("make_reference").tables(), "run make reference"


def test_the_tour_is_that_of_this_code() -> None:
    written = (DOCS / "tour.md").read_text(encoding="utf-8")
    assert written == script("make_reference").tour(), "run make reference"


def test_the_tour_has_its_pictures() -> None:
    named = re.findall(
        r"\]\((pictures/.*)\)", (DOCS / "tour.md").read_text(encoding="utf-8")
    )
    assert named
    assert all((DOCS / name).is_file() for name in named)


def test_the_list_of_files_is_that_of_this_code() -> None:
    written = (DOCS / "files.md").read_text(encoding="utf-8")
    assert written == script("make_map").files(), "run make reference"


def test_the_picture_of_the_rooms_is_that_of_this_code() -> None:
    written = (DOCS / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert written == script("make_map").architecture(), "run make reference"


def test_the_manual_page_is_that_of_this_code() -> None:
    written = (DOCS / "fusetui.1").read_text(encoding="utf-8")
    assert written == script("make_man").man(), "run make reference"
