"""What may stand on the command line, as parsers of the standard library."""

from __future__ import annotations

import os
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from fusetui import __version__
from fusetui.commands.streams import write
from fusetui.registry import COMMANDS, command

OURS = "Shows where the time of a PyTorch program's kernels went, in the terminal."
EXIT_CODES = {
    0: "done",
    1: "the answer is no: a diff or a check that failed its threshold, a wrong guess",
    2: "wrong use, input that cannot be read, or output that cannot be written",
    3: "cannot tell: the traces do not settle the question",
    70: "an error of fusetui itself; a file holds its traceback",
    130: "interrupted with Ctrl+C (129, 131, 143: by SIGHUP, SIGQUIT, SIGTERM)",
    141: "the reader of a pipe left",
}


class WrongUse(Exception):  # noqa: N818
    """One plain sentence: what is wrong with the arguments."""


class Parser(ArgumentParser):
    """Options are written out in full; what is wrong is raised, not printed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=_Help)

    def error(self, message: str) -> NoReturn:
        raise WrongUse(f"{self.prog}: {message}; see {self.prog} --help.")

    def _print_message(self, message: str, file: object = None) -> None:
        """Help and version; argparse itself does not tell when they cannot be written."""
        write(message)


class _Help(HelpFormatter):
    """Paragraphs of the description stay apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(part, width, indent) for part in text.split("\n\n"))


def parse(arguments: Sequence[str]) -> Namespace:
    """`command` of the result is the name of the command; it is None when there is none.

    `rest` holds what the parser does not know, for a command that is open-ended. Raises WrongUse,
    and SystemExit once help or the version was shown.
    """
    names = {one.name for one in COMMANDS}
    parsers = command_parsers(next((word for word in arguments if word in names), ""))
    top = parsers[""]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in parsers:
        top.error(f"no such command: {arguments[0]}{_suggestion(arguments[0], list(parsers))}")
    parsed, rest = top.parse_known_args(arguments)
    if rest and not (parsed.command and command(parsed.command).open_ended):
        what = "option" if rest[0].startswith("-") else "argument"
        parsers[parsed.command or ""].error(f"no such {what}: {rest[0]}")
    parsed.rest = tuple(rest)
    return parsed


def _suggestion(wrong: str, names: Sequence[str]) -> str:
    if os.path.exists(wrong):
        return f" (to open it: fusetui open {wrong})"
    from difflib import get_close_matches  # most people never see this

    close = get_close_matches(wrong, names, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def command_parsers(wanted: str | None = None) -> dict[str, Parser]:
    """By the name of the command; the one of the whole line is named "".

    The arguments of only the wanted one are added, if it is named.
    """
    codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    top = Parser(prog="fusetui", description=OURS, epilog=f"Exit codes: {codes}.")
    top.add_argument("--version", action="version", version=f"fusetui {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    found = {"": top}
    for one in COMMANDS:
        text = "\n\n".join(filter(None, (one.help, one.more)))
        found[one.name] = commands.add_parser(one.name, help=one.help, description=text)
        if wanted in (None, one.name):
            one.add_to(found[one.name])
    return found
