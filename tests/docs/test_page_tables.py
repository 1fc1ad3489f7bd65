"""The tables of the benchmarks stand between markers in the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.scripts import benchmark

pages = benchmark("pages")
insert, put = pages.insert, pages.put
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TABLE = re.compile(r"<!-- table: (.+?) -->\n(.*?)\n?<!-- end -->", re.DOTALL)
TABLES = [(page, *found) for page in PAGES for found in TABLE.findall(page.read_text("utf-8"))]


def test_a_table_goes_between_its_markers() -> None:
    page = "a\n<!-- table: x cpu -->\nold\n<!-- end -->\n<!-- table: x cuda -->\n<!-- end -->\n"
    once = insert(page, "x cpu", "new\n")
    assert once == page.replace("old", "new")
    assert insert(once, "x cpu", "old") == page


def test_a_table_without_a_place_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: x cpu --><!-- end -->")
    with pytest.raises(ValueError, match=r"page\.md: no place for 'y cpu'"):
        put(page, "y cpu", "new")


def test_the_examples_of_ranks_stand_between_the_same_markers() -> None:
    script = (ROOT / "docs" / "make_ranks.py").read_text(encoding="utf-8")
    wanted = set(re.findall(r'put_console\(\s*"(.+?)"', script))
    assert wanted
    assert wanted <= {name for page, name, _ in TABLES if page.name == "ranks.md"}


@pytest.mark.parametrize(("page", "name", "text"), TABLES, ids=[name for _, name, _ in TABLES])
def test_a_page_keeps_its_form_when_a_table_is_put_again(page: Path, name: str, text: str) -> None:
    found = page.read_text(encoding="utf-8")
    assert found.count(f"<!-- table: {name} -->") == 1
    assert insert(found, name, text) == found
