"""The grammar of the command line, as argparse parsers."""

from __future__ import annotations

import os
import re
from argparse import Action, ArgumentError, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from fusetui import Error, __version__
from fusetui.command_line.registry import COMMANDS, command
from fusetui.report.streams import write

OURS = "Shows where the time of a PyTorch program's kernels went, in the terminal."
EXIT_CODES = {
    0: "done",
    1: "the answer is no: a diff over its threshold, a wrong guess, a variant that failed",
    2: "wrong use, unreadable input, or output that cannot be written",
    3: "cannot tell: the traces do not settle the question",
    70: "an internal error of fusetui; the traceback is in a file",
    130: "interrupted with Ctrl+C (129, 131, 143: by SIGHUP, SIGQUIT, SIGTERM)",
    141: "the reader of the pipe closed it",
}


WORDS = (
    ("^the following arguments are required: ", " needs "),
    ("^argument ([^:]*): (?=takes )", r": \1 "),
    ("^argument ([^:]*): expected .*", r": \1 needs a value, as in \1=VALUE"),
    (
        "^argument ([^:]*): invalid (int|amount|pixels) value: ",
        r": \1 takes a whole number, not ",
    ),
    ("^argument ([^:]*): invalid float value: ", r": \1 takes a number, not "),
    ("^argument ([^:]*): ignored explicit argument .*", r": \1 takes no value"),
    ("^(?![ :])", ": "),
)
"""How messages of argparse begin, and what is said instead."""


class UsageError(Error):
    """One plain sentence: what is wrong with the arguments."""


class Parser(ArgumentParser):
    """Accepts no abbreviated options, and raises errors instead of printing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=_Help)

    def error(self, message: str) -> NoReturn:
        """Says what argparse says, in the words of fusetui."""
        for pattern, words in WORDS:
            message = re.sub(pattern, words, message)
        raise UsageError(f"{self.prog}{message}; see {self.prog} --help.")

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            *others, last = map(str, action.choices)
            known = " or ".join(filter(None, (", ".join(others), last)))
            raise ArgumentError(action, f"takes {known}, not {str(value)!r}")

    def _print_message(self, message: str, file: object = None) -> None:
        """Writes help and version; argparse itself ignores that they cannot be
        written."""
        write(message)


class _Help(HelpFormatter):
    """Keeps the paragraphs of the description apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(part, width, indent) for part in text.split("\n\n"))


def parse(arguments: Sequence[str]) -> Namespace:
    """The parsed arguments; `command` is the name of the command, or None if none was
    given. `rest` holds the arguments that the parser of an open-ended command does not
    know. Raises UsageError, and SystemExit after printing help or the version."""
    names, first = [one.name for one in COMMANDS], arguments[0] if arguments else ""
    is_named = (
        first == "-" or "://" in first or first.startswith(("sample:", "lesson:"))
    )
    if first and first not in names and (is_named or os.path.exists(first)):
        arguments, first = ["open", *arguments], "open"  # `fusetui trace.json` opens it
    parsers = command_parsers(first)
    top = parsers[""]
    if arguments and not first.startswith("-") and first not in names:
        from difflib import get_close_matches  # rarely needed

        close = get_close_matches(first, names, 1)
        top.error(
            f"no such command: {first}{f' (did you mean {close[0]}?)' if close else ''}"
        )
    parsed, rest = top.parse_known_args(arguments)
    if hasattr(parsed, "others") and not any(word.startswith("-") for word in rest):
        parsed.others, rest = [*parsed.others, *rest], []  # those behind an option
    if rest and not (parsed.command and command(parsed.command).open_ended):
        what = "option" if rest[0].startswith("-") else "argument"
        parsers[parsed.command or ""].error(f"no such {what}: {rest[0]}")
    parsed.rest = tuple(rest)
    return parsed


def command_parsers(wanted: str | None = None) -> dict[str, Parser]:
    """Parsers by the name of the command; "" is the parser of the whole line. If
    `wanted` is the name of a command, there is only that one's parser beside it; for
    any other word, the parsers of commands have no arguments."""
    codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    top = Parser(prog="fusetui", description=OURS, epilog=f"Exit codes: {codes}.")
    top.add_argument(
        "--version",
        action="version",
        version=f"fusetui {__version__}",
        help="Print the version; with --verbose also those of its libraries, and whether the "
        "compiled parts are in use.",
    )
    below = top.add_subparsers(
        prog="fusetui", dest="command", metavar="COMMAND", title="commands"
    )
    found = {"": top}
    shown = [one for one in COMMANDS if one.name == wanted]
    for one in shown or COMMANDS:
        text = "\n\n".join(filter(None, (one.help, one.more)))
        found[one.name] = below.add_parser(one.name, help=one.help, description=text)
        if shown or wanted is None:
            for given in one.arguments() if callable(one.arguments) else one.arguments:
                found[one.name].add_argument(given.name, **given.settings)
    return found
