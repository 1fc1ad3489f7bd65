"""Generates docs/fusetui.1, the manual page, from the help of the commands and from the
variables and files that docs/guide.md lists.

make reference
"""

from __future__ import annotations

import re
from argparse import Action
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from fusetui import __version__
from fusetui.command_line.parser import OURS, Parser, command_parsers
from fusetui.commands.errors import EXIT_CODES

HERE = Path(__file__).parent
TARGET = HERE / "fusetui.1"
GUIDE = HERE / "guide.md"
MAX_LINE_CHARS = 100
ROFF_ESCAPES = str.maketrans(
    {
        "-": "\\-",
        '"': "\\(dq",
        "'": "\\(aq",
        "~": "\\(ti",
        "^": "\\(ha",
    }
)
"""How roff writes the characters that it would print in another form."""


def man() -> str:
    """The whole page, in the macros of man(7)."""
    summary = OURS[0].lower() + OURS[1:].rstrip(".")

    lines = [
        '.\\" This page is generated from the code by `make reference`.',
        f'.TH FUSETUI 1 "" "fusetui {__version__}" "User Commands"',
        ".SH NAME",
        f"fusetui \\- {_text(summary)}",
        ".SH SYNOPSIS",
        ".B fusetui",
        "COMMAND [ARGUMENT ...]",
        ".br",
        ".B fusetui",
        "TRACE",
        ".SH DESCRIPTION",
        *_wrapped(OURS),
        *_paragraph(
            "`fusetui help` lists the pages of the documentation, which it prints."
        ),
        ".SH COMMANDS",
    ]
    for name, parser in command_parsers().items():
        if name:  # the parser without a command has no section
            lines += _command(name, parser)

    lines.append(".SH EXIT STATUS")

    for code, meaning in EXIT_CODES.items():
        lines += _term(str(code), meaning)

    lines += [".SH ENVIRONMENT", *_guide_rows("variable")]
    lines += [".SH FILES", *_guide_rows("file")]
    return "\n".join([*lines, ""])


def _command(name: str, parser: Parser) -> Iterator[str]:
    """The section of a command: its description and its arguments."""
    actions = [action for action in parser._actions if action.dest != "help"]
    positionals = [
        _positional(action) for action in actions if not action.option_strings
    ]
    usage = " ".join(["fusetui", name, *positionals])
    yield f'.SS "{_text(usage)}"'
    first, *others = (parser.description or "").split("\n\n")
    yield from _wrapped(first)  # directly below the heading, without a macro

    for paragraph in others:
        yield from _paragraph(paragraph)

    for action in actions:
        term = _option(action) if action.option_strings else _positional(action)
        yield from _term(term, (action.help or "").replace("%%", "%"))


def _option(action: Action) -> str:
    """`-s, --save FILE`; `--json` for a flag."""
    names = ", ".join(action.option_strings)
    if action.nargs == 0:
        return names
    more = " ..." if action.nargs == "+" else ""
    return f"{names} {action.metavar or action.dest.upper()}{more}"


def _positional(action: Action) -> str:
    """A positional argument as a usage line has it: `TRACE`, `[TRACE]`, `TRACE ...`."""
    name = str(action.metavar or action.dest.upper())
    match action.nargs:
        case "?":
            return f"[{name}]"
        case "*":
            return f"[{name} ...]"
        case "+":
            return f"{name} ..."
        case _:
            return name


def _guide_rows(title: str) -> Iterator[str]:
    """The rows of the table of the guide whose first column has this title."""
    page = GUIDE.read_text(encoding="utf-8")
    _, _, section = page.partition("\n## Environment variables and")
    _, _, from_table = section.partition(f"\n| {title} |")
    table, _, _ = from_table.partition("\n\n")
    for row in table.splitlines()[2:]:  # below the title and the rule
        name, text = row.strip("| ").split(" | ", 1)
        yield from _term(name, text)


def _term(name: str, text: str) -> list[str]:
    """A name in bold, and its description indented below it."""
    return [".TP", f".B {_text(name)}", *_wrapped(text)]


def _paragraph(text: str) -> list[str]:
    return [".PP", *_wrapped(text)]


def _wrapped(text: str) -> list[str]:
    lines = wrap(text, MAX_LINE_CHARS, break_on_hyphens=False)
    return [_text(line) for line in lines]


def _text(text: str) -> str:
    """Markdown as text of roff: of a link to a page only its words, without backquotes,
    and with every character escaped that roff would read as a command."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\.md[^)]*\)", r"\1", text)
    plain = without_links.replace("`", "")
    escaped = plain.replace("\\", "\\e").translate(ROFF_ESCAPES)
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    TARGET.write_text(man(), encoding="utf-8")
    print(f"docs/{TARGET.name}")
