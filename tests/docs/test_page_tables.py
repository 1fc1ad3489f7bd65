"""The tables of the benchmarks stand between markers in the pages."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tests.places import ROOT
from tests.scripts import benchmark

pages = benchmark("pages")
digest, insert, put = pages.digest, pages.insert, pages.put
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TABLE = re.compile(
    r"<!-- table: (.+?)(?:, (.+?))? -->\n(.*?)\n?<!-- end -->", re.DOTALL
)
TABLES = [
    (page, *found) for page in PAGES for found in TABLE.findall(page.read_text("utf-8"))
]


def test_a_table_goes_between_its_markers() -> None:
    page = "a\n<!-- table: x cpu -->\nold\n<!-- end -->\n<!-- table: x cuda -->\n<!-- end -->\n"
    once = insert(page, "x cpu", "new\n", "b.py 12 at ab")
    assert once == page.replace("x cpu", "x cpu, b.py 12 at ab").replace("old", "new")
    assert (
        insert(once, "x cpu", "old", "b.py 34 at cd").count("x cpu, b.py 34 at cd") == 1
    )


def test_a_table_without_a_place_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- table: x cpu -->\n<!-- end -->")
    with pytest.raises(ValueError, match=r"page\.md: no place for 'y cpu'"):
        put(page, "y cpu", "new", pages.__file__)


def test_a_digest_is_of_what_a_script_does() -> None:
    script = '"""How fast."""\nfrom a import b\n\nprint(b(1))  # once\n'
    assert digest(script) == digest("from c import b\nprint(b(1))\n")
    assert digest(script) != digest(script.replace("1", "2"))


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="Python writes code in other forms"
)
def test_no_table_is_older_than_its_script() -> None:
    """After a change of the script: make benchmarks ONLY=its name."""
    outdated = []
    for _, name, source, _ in TABLES:
        is_measured = bool(source) or not name.endswith(" cuda")
        if is_measured and not is_up_to_date(source):
            outdated.append((name, source))
    assert outdated == []


def is_up_to_date(source: str) -> bool:
    """Whether the source of a table, `SCRIPT DIGEST at COMMIT`, is of the script as it
    is."""
    parts = re.fullmatch(r"(\S+) (\S+) at [0-9a-f]{8}", source)
    if parts is None:
        return False
    script = (ROOT / parts[1]).read_text(encoding="utf-8")
    return bool(digest(script) == parts[2])


def test_examples_of_ranks_are_in_the_page_under_their_names() -> None:
    script = (ROOT / "docs" / "make_ranks.py").read_text(encoding="utf-8")
    wanted = set(re.findall(r'put_console\(\s*"(.+?)"', script))
    assert wanted
    assert wanted <= {name for page, name, *_ in TABLES if page.name == "ranks.md"}


def test_a_page_keeps_its_form_when_a_table_is_put_again() -> None:
    changed = []
    for page, name, source, text in TABLES:
        before = page.read_text(encoding="utf-8")
        places = re.findall(rf"<!-- table: {re.escape(name)}(?:,| -->)", before)
        after = insert(before, name, text, source)
        expected = before.replace(
            f"<!-- table: {name} -->", f"<!-- table: {name}, {source} -->"
        )
        if len(places) != 1 or after != expected:
            changed.append(name)
    assert changed == []
