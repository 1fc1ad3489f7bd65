"""What became of each claim of the sources: writes the first table of
docs/experiments.md.

    python -P benchmarks/claims.py

docs/sources.toml has the claims, and for each the rows of the page's own CPU tables
that decide it. Nothing is run: after benchmarks/capture_experiments.py has written
these tables, this script finds the states anew. A test compares them with the page.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.capture.table import DISTURBED

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiments.md"
FACTS = PAGE.with_name("sources.toml")
WORKS, NOT_REPRODUCED, NEEDS = "works here", "not reproduced", "needs"
INCONCLUSIVE = "inconclusive"
TOLERANCE = 1.2
"""By what factor a figure may differ from the one of the source and still reproduce
it."""
RIGHT_GUESS = "= "  # how the line of a guess that was right begins
CELLS = re.compile(r" {2,}")  # between two cells of a table
FACTOR = re.compile(r"([0-9.]+)(?:x|:|$)")  # 12.5x, or 5: 3 GEMMs, gelu, mul


class DecidingRow(msgspec.Struct, frozen=True):
    """A row of a table on the page, by its beginning; `is_`: what its figure must
    be."""

    table: str
    row: str
    is_: str = msgspec.field(name="is", default="")


class Claim(msgspec.Struct, frozen=True):
    """docs/sources.toml describes the fields."""

    text: str
    command: str
    rows: tuple[DecidingRow, ...] = ()
    only_gpu: str = ""
    because: str = ""
    note: str = ""


class Claims(msgspec.Struct, frozen=True):
    """All of them, in the order of the table."""

    claim: tuple[Claim, ...]


def claims() -> tuple[Claim, ...]:
    """Return the claims of docs/sources.toml. Raises msgspec.ValidationError if the
    file has another form."""
    return msgspec.convert(
        tomllib.loads(FACTS.read_text(encoding="utf-8")), Claims
    ).claim


def state(claim: Claim, page: str) -> str:
    """Return the state of a claim according to the CPU tables of the page. Raises
    ValueError if the page lacks a row, or has no figure in it."""
    if not claim.rows:
        return f"{NEEDS} {claim.only_gpu}"

    wrong = [said for row in claim.rows if (said := contradiction(row, page))]

    disturbed = [said for row in claim.rows if (said := _disturbed(row, page))]
    if not wrong and disturbed:
        return f"{INCONCLUSIVE} on a CPU: {'; '.join(disturbed)} while {DISTURBED}; {NEEDS} a GPU"
    if not wrong:
        return f"{WORKS} ({claim.note})" if claim.note else WORKS

    because = f", where {claim.because}" if claim.because else ""
    return f"{NOT_REPRODUCED} on a CPU{because}: {'; '.join(wrong)}; {NEEDS} a GPU"


def contradiction(row: DecidingRow, page: str) -> str:
    """Return what a row has instead of what is claimed, or "" if it agrees. A figure
    agrees if it differs by a factor of at most TOLERANCE. Raises ValueError if the row
    or its figure is missing."""
    lines = _table(row.table, page).splitlines()
    if row.row.startswith(RIGHT_GUESS):
        return "" if row.row in lines else f"not {row.row.removeprefix(RIGHT_GUESS)}"

    cells = _columns_of(row, lines)
    if row.is_:
        return "" if row.is_ in cells else f"not {row.is_}"

    source, here = cells[1], cells[2]

    figures, _, answer = here.rpartition(": ")
    if answer in ("yes", "no"):
        return "" if answer == "yes" else figures

    wanted, found = FACTOR.match(source), FACTOR.match(here)
    if wanted is None or found is None:
        raise ValueError(f"{row.row}: no figure in '{source}' or '{here}'")

    ratio = float(found[1]) / float(wanted[1])
    return "" if 1 / TOLERANCE <= ratio <= TOLERANCE else here


def _disturbed(row: DecidingRow, page: str) -> str:
    """Return the speed-up of a row if one of its variants was timed while something
    else was running, else ""."""
    fast, _, slow = row.row.partition(" against ")
    if not slow or " of " in fast:  # counts and sizes are no times
        return ""

    lines = _table(row.table, page).splitlines()
    variants = [side.partition(" ")[0].partition(",")[0] for side in (fast, slow)]

    cells = _columns_of(row, lines)
    remarks = [line for line in lines if line.endswith(f"{DISTURBED}.")]
    if any(_is_about(line, variants, cells[0]) for line in remarks):
        figures, answered, _ = cells[2].rpartition(": ")
        return figures if answered else cells[2]

    return ""


def _is_about(remark: str, variants: Sequence[str], row: str) -> bool:
    """Return whether a remark names one of the variants and, in a sweep, also the point
    of a row. A row from one point to another is about all points.

        loop: at batch = 64, 128: something else was running.
    """
    variant, _, rest = remark.partition(": ")
    if variant not in variants:
        return False
    point = row.partition(", ")[2]
    if not rest.startswith("at ") or not point or " to " in point:
        return True
    disturbed = rest.partition(" = ")[2].rpartition(": ")[0].split(", ")
    sizes = " ".join(size.partition("=")[2] for size in point.split(","))
    return sizes in disturbed


def _table(name: str, page: str) -> str:
    """Return the text of a CPU table of the page. Raises ValueError if there is none."""
    for marked in (f"{name} cpu", name):
        place = re.compile(
            rf"<!-- table: {re.escape(marked)}, .*?-->\n(.*?)<!-- end -->", re.DOTALL
        )
        if found := place.search(page):
            return found[1]
    raise ValueError(f"the page has no table {name}")


def _columns_of(row: DecidingRow, lines: Sequence[str]) -> Sequence[str]:
    """Return the cells of the line whose first cell, or first two cells, the row names.
    Raises ValueError if there is none."""
    for line in lines:
        cells = CELLS.split(line)
        is_named = row.row in (cells[0], " ".join(cells[:2]))
        if is_named or cells[0].startswith(f"{row.row},"):
            return cells
    raise ValueError(f"the table {row.table} has no row '{row.row}'")


def markdown(page: str) -> str:
    """Return the Markdown table of all claims, with the states that the page's own
    tables give them."""
    rows = [
        f"| {one.text} | `{one.command}` | {state(one, page)} |" for one in claims()
    ]
    return "\n".join(["| claim | command | state |", "|---|---|---|", *rows])


def main() -> None:
    put(PAGE, "claims", markdown(PAGE.read_text(encoding="utf-8")), __file__)


if __name__ == "__main__":
    main()
