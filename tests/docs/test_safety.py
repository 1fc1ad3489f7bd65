"""docs/safety.md has a row for every kind of the fuzzer, and names tests that there
are."""

from __future__ import annotations

import re

from tests.places import ROOT

PAGE = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")


def test_every_kind_was_tried() -> None:
    kinds = re.findall(r'KIND = Kind\("(\w+)"', "".join(_texts("fuzz")))
    tried = re.findall(r"^\| `(\w+)` \| [\d,]+ \| \d+ \| 0 \|", PAGE, re.MULTILINE)
    told = re.findall(r"^\| `(\w+)` \| [^\d\s]", PAGE, re.MULTILINE)
    assert sorted(kinds) == sorted(tried)
    assert set(kinds) <= set(told)


def test_the_tests_of_what_was_found_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = set(re.findall(r"def (test_\w+)", "".join(_texts("tests"))))
    assert named
    assert named <= there


def _texts(folder: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py")]
