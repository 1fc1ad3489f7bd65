"""Generates pages from the code.

- docs/reference.md: commands, options and keys
- docs/capture.md: its table of options
- docs/why.md: its table of how findings were judged, from docs/judgments.tsv
- docs/tables.md: its columns
- docs/tour.md: the steps of the tour
- docs/fusetui.1: the manual page, by make_man.py

make reference
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from runpy import run_path
from textwrap import fill
from unittest.mock import patch

from fusetui.command_line.parser import command_parsers
from fusetui.command_line.registry import COMMANDS
from fusetui.commands.errors import EXIT_CODES
from fusetui.tables.sources import TABLES, columns_of
from fusetui.tables.table import ColumnSpec
from fusetui.tui.registry import by_section
from fusetui.tui.state.action import Action, key_text, with_keys
from fusetui.tui.state.state import State
from fusetui.tui.state.tour import STEPS, TourStep

HERE = Path(__file__).parent
REFERENCE_PAGE = HERE / "reference.md"
CAPTURE_PAGE = HERE / "capture.md"
WHY_PAGE = HERE / "why.md"
TOUR_PAGE = HERE / "tour.md"
TABLES_PAGE = HERE / "tables.md"
OPTIONS_BEGIN = "<!-- options -->\n"
OPTIONS_END = "<!-- end -->"
JUDGMENTS_BEGIN = "<!-- judgments -->\n"
JUDGMENTS_END = "<!-- end of judgments -->"
COLUMNS_BEGIN = "<!-- columns -->\n"
COLUMNS_END = "<!-- end of columns -->"
JUDGMENTS = ("right", "half right", "wrong", "cannot be told")
MAX_LINE_CHARS = 90
COLUMNS_CHANGE_WITH = {
    "kernels": ("op", "shape", "module", "family", "stream", "step"),
    "ops": ("shape",),
}
"""The values of `--by` with which a table has other columns."""
KEYS_HEAD = "| keys | what | | name in keys.toml |\n|---|---|---|---|"
HEAD = """# Reference

This page is generated from the code by `make reference`.

Results go to stdout and messages to stderr. fusetui reports an error in one sentence.

## Exit codes

| code | meaning |
|---|---|
{codes}

## Commands
"""

TOUR_HEAD = """# The tour

```console
fusetui tutor
```

opens a lesson, a GPU trace of an MLP, and guides you through the steps below. The tour shows one
instruction at a time and says when you have followed it. `>` then goes to the next step; it also
skips a step, and `<` goes back. The tour takes five minutes. The lessons were not recorded but
reconstructed from published measurements.

`make reference` generates this page from the steps of the tour.
"""


def reference() -> str:
    """docs/reference.md: exit codes, the help of each command, and the keys."""
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())

    sections = [HEAD.format(codes=codes)]
    with patch.dict(os.environ, COLUMNS=str(MAX_LINE_CHARS)):
        parsers = command_parsers()
        for command in COMMANDS:
            text = parsers[command.name].format_help()
            sections.append(f"### fusetui {command.name}\n\n```\n{text}```\n")

    sections.append("## Keys\n")

    for title, actions in by_section():
        rows = "\n".join(_key_row(action) for action in actions)
        sections.append(f"### {title}\n\n{KEYS_HEAD}\n{rows}\n")

    return "\n".join(sections)


def _key_row(action: Action) -> str:
    keys = _key_names(action.keys)
    return f"| {keys} | {action.title} | {action.help} | `{action.name}` |"


def _key_names(keys: Iterable[str]) -> str:
    return " ".join(f"`{key_text(key)}`" for key in keys)


def capture() -> str:
    """docs/capture.md with its table of options regenerated."""
    lines = ["| option | meaning |", "|---|---|"]
    for action in command_parsers("capture")["capture"]._actions:
        if action.option_strings and action.dest != "help":
            names = ", ".join(action.option_strings)
            usage = f"{names} {action.metavar or ''}".strip()
            lines.append(f"| `{usage}` | {action.help or ''} |")
    table = "".join(f"{line}\n" for line in lines)
    return _replaced(CAPTURE_PAGE, OPTIONS_BEGIN, table, OPTIONS_END)


def _replaced(path: Path, begin: str, text: str, end: str) -> str:
    """The text of a page with what is between two marks replaced."""
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{text}{end}{after}"


def why() -> str:
    """docs/why.md with its table of judgments regenerated."""
    return _replaced(WHY_PAGE, JUDGMENTS_BEGIN, _judgments(), JUDGMENTS_END)


def _judgments() -> str:
    """A table with the number of findings by rule and judgment. A judgment that was
    never made has no column, a rule without findings no row."""
    counts: Counter[tuple[str, str]] = Counter()
    with (HERE / "judgments.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["rule"] != "-":
                counts[row["rule"], row["judgment"]] += 1
                counts["all", row["judgment"]] += 1

    rules = sorted({rule for rule, _ in counts if rule != "all"})

    judgments = [judgment for judgment in JUDGMENTS if counts["all", judgment]]
    rows = [["rule", *judgments], ["---"] * (len(judgments) + 1)]
    for rule in (*rules, "all"):
        rows.append([rule, *(str(counts[rule, judgment]) for judgment in judgments)])

    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def tables() -> str:
    """docs/tables.md with the columns of all tables regenerated."""
    text = "".join(_columns(name) for name in (*TABLES, "ranks", "memory"))
    return _replaced(TABLES_PAGE, COLUMNS_BEGIN, text, COLUMNS_END)


def _columns(name: str) -> str:
    """The columns of a table, and how they change with `--by`."""
    columns = columns_of(name)
    lines = [f"### {name}\n", "| column | type | meaning |", "|---|---|---|"]
    for column in columns:
        kind = f"{column.kind}, optional" if column.optional else column.kind
        lines.append(f"| `{column.name}` | {kind} | {column.meaning} |")
    for by in COLUMNS_CHANGE_WITH.get(name, ()):
        lines += ["", f"With `--by {by}`, {_changes(columns, columns_of(name, by))}"]
    return "\n".join([*lines, "", ""])


def _changes(columns: Sequence[ColumnSpec], columns_by: Sequence[ColumnSpec]) -> str:
    """`the table has the column `op` (the op) instead of those derived from the name.`:
    the columns that are new with a `--by`, and whether any is gone."""
    new = [column for column in columns_by if column not in columns]
    listed = ", ".join(f"`{column.name}` ({column.meaning})" for column in new)
    names = {column.name for column in columns_by}
    is_any_gone = any(column.name not in names for column in columns)
    instead = " instead of those derived from the name" if is_any_gone else ""
    noun = "column" if len(new) == 1 else "columns"
    return f"the table has the {noun} {listed}{instead}."


def tour() -> str:
    """docs/tour.md: a section for each step."""
    sections = [_step(number, step) for number, step in enumerate(STEPS, 1)]
    return "\n".join([TOUR_HEAD, *sections])


def _step(number: int, step: TourStep) -> str:
    keys = _key_names(step.keys)
    text = fill(with_keys(step.text, State()), MAX_LINE_CHARS, break_on_hyphens=False)
    picture = ""
    if step.picture:
        picture = f"\n![{step.title}](pictures/tour-{number}.svg)\n"
    return f"## {number}. {step.title}\n\n{text}\n\nFor example: {keys}\n{picture}"


if __name__ == "__main__":
    pages = {
        REFERENCE_PAGE: reference(),
        CAPTURE_PAGE: capture(),
        WHY_PAGE: why(),
        TOUR_PAGE: tour(),
        TABLES_PAGE: tables(),
    }
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
        print(f"docs/{path.name}")
    run_path(str(HERE / "make_man.py"), run_name="__main__")
