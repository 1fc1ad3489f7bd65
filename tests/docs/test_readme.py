"""What the README opens first opens; the figures of its comparison stand in
docs/diff.md, where a benchmark wrote them."""

from __future__ import annotations

import re

from tests.places import ROOT
from tests.terminal import Terminal

DIFF = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def cells(text: str, row: str) -> list[list[str]]:
    """The cells of every row of a table that begins so, without the first one."""
    lines = re.findall(rf"^\| {re.escape(row)}[^|]*\|(.*)\|$", text, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_readme_times_and_memory_are_those_of_the_diff_page() -> None:
    (shown,) = cells(README, "time and peak memory")
    _, second, _ = cells(DIFF, "time and peak memory")
    assert shown == second[1:]


def test_readme_share_of_matched_kernels_is_that_of_the_diff_page() -> None:
    ((shown, *_),) = cells(README, "kernels matched across different names")
    first, second, _ = (
        row[1].partition(",")[0] for row in cells(DIFF, "kernels under other")
    )
    assert shown.startswith(f"{first} (1), {second} (2)")


def test_a_name_alone_opens_it() -> None:
    (name,) = re.findall(r"^```console\nfusetui (\S+:\S+)\n```$", README, re.MULTILINE)
    with Terminal([name]) as terminal:
        terminal.wait_for("w/s zoom")
        assert "mlp-eager" in terminal.text
        terminal.press("q")
        assert terminal.wait() == 0
