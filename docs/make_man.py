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
TARGET, GUIDE = HERE / "fusetui.1", HERE / "guide.md"
WIDTH = 100  # of a line in the source of the page
ROFF = {"-": "\\-", '"': "\\(dq", "'": "\\(aq", "~": "\\(ti", "^": "\\(ha"}
"""Characters that would be set in another form."""


def man() -> str:
    """The whole page, in the macros of man(7)."""
    parsers = command_parsers()
    return "\n".join(
        [
            '.\\" This page is generated from the code by `make reference`.',
            f'.TH FUSETUI 1 "" "fusetui {__version__}" "User Commands"',
            *(
                ".SH NAME",
                f"fusetui \\- {_text(OURS[0].lower() + OURS[1:].rstrip('.'))}",
            ),
            *(".SH SYNOPSIS", ".B fusetui", "COMMAND [ARGUMENT ...]", ".br"),
            *(".B fusetui", "TRACE"),
            *(".SH DESCRIPTION", *_paragraph(OURS)[1:]),
            *_paragraph(
                "`fusetui help` lists the pages of the documentation, which it prints."
            ),
            ".SH COMMANDS",
            *(
                line
                for name, one in parsers.items()
                if name
                for line in _command(name, one)
            ),
            ".SH EXIT STATUS",
            *(
                line
                for code in EXIT_CODES
                for line in _term(str(code), EXIT_CODES[code])
            ),
            *(".SH ENVIRONMENT", *_rows("variable")),
            *(".SH FILES", *_rows("file")),
            "",
        ]
    )


def _command(name: str, parser: Parser) -> Iterator[str]:
    actions = [one for one in parser._actions if one.dest != "help"]
    names = " ".join(_shown(one) for one in actions if not one.option_strings)
    yield f'.SS "{_text(f"fusetui {name} {names}".strip())}"'
    for number, part in enumerate((parser.description or "").split("\n\n")):
        yield from _paragraph(part)[number == 0 :]
    for one in actions:
        term = (
            f"{', '.join(one.option_strings)} {_value(one)}"
            if one.option_strings
            else ""
        )
        yield from _term(
            term.strip() or _shown(one), (one.help or "").replace("%%", "%")
        )


def _value(action: Action) -> str:
    """What stands behind an option."""
    if action.nargs == 0:
        return ""
    return f"{action.metavar or action.dest.upper()}{' ...' if action.nargs == '+' else ''}"


def _shown(action: Action) -> str:
    """A positional argument, as a usage line has it."""
    name = str(action.metavar or action.dest.upper())
    return {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} ..."}.get(
        str(action.nargs), name
    )


def _rows(title: str) -> Iterator[str]:
    """The rows of the table of the guide with this title."""
    _, _, section = GUIDE.read_text(encoding="utf-8").partition(
        "\n## Environment variables and"
    )
    _, _, table = section.partition(f"\n| {title} |")
    for row in table.partition("\n\n")[0].splitlines()[2:]:
        name, text = row.strip("| ").split(" | ", 1)
        yield from _term(name, text)


def _term(name: str, text: str) -> list[str]:
    return [".TP", f".B {_text(name)}", *_paragraph(text)[1:]]


def _paragraph(text: str) -> list[str]:
    return [".PP", *(_text(line) for line in wrap(text, WIDTH, break_on_hyphens=False))]


def _text(text: str) -> str:
    """No character of it is one of roff; of Markdown, the names that are meant."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\.md[^)]*\)", r"\1", text).replace("`", "")
    escaped = plain.replace("\\", "\\e").translate(
        {ord(one): ROFF[one] for one in ROFF}
    )
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    TARGET.write_text(man(), encoding="utf-8")
    print(f"docs/{TARGET.name}")
