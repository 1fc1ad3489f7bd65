"""Generates docs/reference.md from the code (commands, options, keys), the table of
options in docs/capture.md, what was judged of the rules in docs/why.md
(docs/judgments.tsv), the columns in docs/tables.md, docs/tour.md from the steps of the
tour, and the manual page by make_man.py.

make reference
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from runpy import run_path
from textwrap import fill
from unittest.mock import patch

from fusetui.command_line.parser import command_parsers
from fusetui.command_line.registry import COMMANDS
from fusetui.commands.errors import EXIT_CODES
from fusetui.tables.sources import TABLES, columns_of
from fusetui.tables.table import Spec
from fusetui.tui.registry import by_section
from fusetui.tui.state.action import Action, key_text, with_keys
from fusetui.tui.state.state import State
from fusetui.tui.state.tour import STEPS, TourStep

HERE = Path(__file__).parent
TARGET, CAPTURE, WHY = HERE / "reference.md", HERE / "capture.md", HERE / "why.md"
TOUR, COLUMNS = HERE / "tour.md", HERE / "tables.md"
BEGIN, END = "<!-- options -->\n", "<!-- end -->"
JUDGED, JUDGED_END = "<!-- judgments -->\n", "<!-- end of judgments -->"
LISTED, LISTED_END = "<!-- columns -->\n", "<!-- end of columns -->"
JUDGMENTS = ("right", "half right", "wrong", "cannot be told")
WIDTH = 90
KEYS_HEAD = "| keys | what | | name in keys.toml |\n|---|---|---|---|"
HEAD = """# Reference

This page is generated from the code by `make reference`.

Results go to stdout, messages to stderr; an error is reported as one sentence.

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

opens a lesson, a trace of an MLP on a GPU, and takes you through the steps below: it shows one
instruction at a time, and goes on when you have done it. `>` skips a step, `<` goes back. It takes
five minutes. The lessons are reconstructed from published measurements, not recorded.

This page is generated from the steps by `make reference`.
"""


def reference() -> str:
    """The whole page."""
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    texts = [HEAD.format(codes=codes)]
    with patch.dict(os.environ, COLUMNS=str(WIDTH)):
        parsers = command_parsers()
        for one in COMMANDS:
            text = parsers[one.name].format_help()
            texts.append(f"### fusetui {one.name}\n\n```\n{text}```\n")
    texts.append("## Keys\n")
    for title, actions in by_section():
        texts.append(f"### {title}\n\n{KEYS_HEAD}\n{_rows(actions)}\n")
    return "\n".join(texts)


def _rows(actions: Iterable[Action]) -> str:
    return "\n".join(
        f"| {_keys(action)} | {action.title} | {action.help} | `{action.name}` |"
        for action in actions
    )


def _keys(action: Action) -> str:
    return " ".join(f"`{key_text(key)}`" for key in action.keys)


def capture() -> str:
    """docs/capture.md with its table of options regenerated."""
    rows = "".join(f"| `{names}` | {text} |\n" for names, text in _options())
    table = f"| option | meaning |\n|---|---|\n{rows}"
    return _between(CAPTURE.read_text(encoding="utf-8"), BEGIN, table, END)


def _between(page: str, begin: str, text: str, end: str) -> str:
    """The page with this text between two of its marks."""
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{text}{end}{after}"


def _options() -> Iterator[tuple[str, str]]:
    """The names of each option, and its help."""
    parser = command_parsers("capture")["capture"]
    for action in parser._actions:
        if action.option_strings and action.dest != "help":
            names = ", ".join(action.option_strings)
            yield f"{names} {action.metavar or ''}".strip(), action.help or ""


def why() -> str:
    """The page about `why` with what was judged of each rule."""
    return _between(WHY.read_text(encoding="utf-8"), JUDGED, _judgments(), JUDGED_END)


def _judgments() -> str:
    """How many findings of each rule were judged how; a rule that said nothing has no
    line."""
    with (HERE / "judgments.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        found = [(row["rule"], row["judgment"]) for row in rows if row["rule"] != "-"]
    counts = Counter([*found, *(("all", judgment) for _, judgment in found)])
    rules = sorted({rule for rule, _ in found})
    columns = [one for one in JUDGMENTS if counts["all", one]]
    lines = [("rule", *columns), ("---",) * (len(columns) + 1)]
    lines += [
        (name, *(str(counts[name, one]) for one in columns)) for name in (*rules, "all")
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tables() -> str:
    """The page about tables with their columns."""
    text = "".join(map(_columns, (*TABLES, "ranks", "memory")))
    return _between(COLUMNS.read_text(encoding="utf-8"), LISTED, text, LISTED_END)


def _columns(name: str) -> str:
    """The columns of a table, and those with another `--by`."""
    groups = {
        "kernels": ("op", "shape", "module", "family", "stream", "step"),
        "ops": ("shape",),
    }
    own = columns_of(name)
    lines = [
        f"### {name}\n",
        "| column | type | meaning |",
        "|---|---|---|",
        *map(_column, own),
    ]
    for by in groups.get(name, ()):
        others = [one for one in columns_of(name, by) if one not in own]
        lines += ["", f"With `--by {by}`, " + _with(others, own, columns_of(name, by))]
    return "\n".join([*lines, "", ""])


def _column(one: Spec) -> str:
    kind = f"{one.kind}, optional" if one.optional else one.kind
    return f"| `{one.name}` | {kind} | {one.meaning} |"


def _with(others: Sequence[Spec], own: Sequence[Spec], found: Sequence[Spec]) -> str:
    """Which columns there are more, and less."""
    more = ", ".join(f"`{one.name}` ({one.meaning})" for one in others)
    names = {one.name for one in found}
    gone = [one.name for one in own if one.name not in names]
    less = " instead of what a name says" if gone else ""
    return f"there {'is' if len(others) == 1 else 'are'} {more}{less}."


def tour() -> str:
    """The whole page."""
    return "\n".join(
        [TOUR_HEAD, *(_step(number, step) for number, step in enumerate(STEPS, 1))]
    )


def _step(number: int, step: TourStep) -> str:
    keys = " ".join(f"`{key_text(key)}`" for key in step.keys)
    picture = f"\n![{step.title}](pictures/tour-{number}.svg)\n" if step.picture else ""
    text = fill(with_keys(step.text, State()), WIDTH, break_on_hyphens=False)
    return f"## {number}. {step.title}\n\n{text}\n\nFor example: {keys}\n{picture}"


if __name__ == "__main__":
    pages = {
        TARGET: reference(),
        CAPTURE: capture(),
        WHY: why(),
        TOUR: tour(),
        COLUMNS: tables(),
    }
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
        print(f"docs/{path.name}")
    run_path(str(HERE / "make_man.py"), run_name="__main__")
