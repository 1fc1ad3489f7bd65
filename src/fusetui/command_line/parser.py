"""The grammar of the command line, as argparse parsers."""

from __future__ import annotations

import os
import re
from argparse import Action, ArgumentError, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, NoReturn

from fusetui import Error, __version__
from fusetui.command_line.registry import COMMANDS, command
from fusetui.report.streams import write

DEBUG = "--debug"
OURS = "Shows where your PyTorch program spends its GPU time, in the terminal."


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
"""How messages of argparse begin (patterns), and what is said instead, behind the name
of the program. The last one is for messages that none of the others matches."""


class UsageError(Error):
    """One plain sentence: what is wrong with the arguments."""


class Parser(ArgumentParser):
    """Accepts no abbreviated options, and raises errors instead of printing them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=_Help)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError with what argparse says, in the words of fusetui."""
        for pattern, words in WORDS:
            message = re.sub(pattern, words, message)
        raise UsageError(f"{self.prog}{message}; see {self.prog} --help.")

    def _check_value(self, action: Action, value: object) -> None:
        """Raises ArgumentError unless the value is one of the action's choices."""
        if action.choices is None or value in action.choices:
            return
        *others, last = map(str, action.choices)
        choices = f"{', '.join(others)} or {last}" if others else last
        raise ArgumentError(action, f"takes {choices}, not {str(value)!r}")

    def _print_message(self, message: str, file: object = None) -> None:
        """Writes help and version; argparse itself ignores that they cannot be
        written."""
        write(message)


class _Help(HelpFormatter):
    """Keeps the paragraphs of the description apart, and breaks no option at its
    hyphens."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = []
        for paragraph in text.split("\n\n"):
            lines = self._split_lines(paragraph, width - len(indent))
            paragraphs.append("\n".join(indent + line for line in lines))
        return "\n\n".join(paragraphs)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)


def parse(arguments: Sequence[str], epilog: str = "") -> Namespace:
    """The parsed arguments of a command line, without the name of the program.

    `command` is the name of the command, or None if none was given. `rest` holds the
    arguments that the parser of an open-ended command does not know; `debug` is whether
    --debug was given. `epilog` ends the help of the whole line. Raises UsageError, and
    SystemExit after printing help or the version.
    """
    arguments, is_debug = without_debug(arguments)
    if arguments and _is_to_be_opened(arguments[0]):
        arguments = ["open", *arguments]  # `fusetui trace.json`
    first = arguments[0] if arguments else ""
    is_word = bool(arguments) and not first.startswith("-")
    parsers = command_parsers(first, epilog)
    top = parsers[""]
    if is_word and first not in _command_names():
        top.error(f"no such command: {first}{_suggestion(first)}")
    parsed, rest = top.parse_known_args(arguments)
    has_more_traces = hasattr(parsed, "others")
    if has_more_traces and not any(word.startswith("-") for word in rest):
        # Traces that stand behind an option are unknown to argparse.
        parsed.others = [*parsed.others, *rest]
        rest = []
    takes_any = bool(parsed.command) and command(parsed.command).open_ended
    if rest and not takes_any:
        what = "option" if rest[0].startswith("-") else "argument"
        parsers[parsed.command or ""].error(f"no such {what}: {rest[0]}")
    parsed.rest = tuple(rest)
    parsed.debug = is_debug
    return parsed


def _command_names() -> list[str]:
    return [entry.name for entry in COMMANDS]


def _is_to_be_opened(word: str) -> bool:
    """Whether the first word names a trace, or anything else that exists, and no
    command."""
    if not word or word in _command_names():
        return False
    if word == "-" or "://" in word or word.startswith(("sample:", "lesson:")):
        return True
    return os.path.exists(word)


def _suggestion(word: str) -> str:
    """` (did you mean ops?)`: the command with the nearest name; "" if none is near."""
    from difflib import get_close_matches  # rarely needed

    nearest = get_close_matches(word, _command_names(), 1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def without_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments without --debug, and whether it was given.

    It may stand before the command or behind it, but what stands behind an open-ended
    command, or behind `--`, may be meant for somebody else and stays.
    """
    kept: list[str] = []
    for place, word in enumerate(arguments):
        if word == "--" or (kept and _is_open_ended(kept[0])):
            kept += arguments[place:]
            break
        if word != DEBUG:
            kept.append(word)
    return kept, len(kept) < len(arguments)


def _is_open_ended(name: str) -> bool:
    return any(entry.name == name and entry.open_ended for entry in COMMANDS)


def command_parsers(wanted: str | None = None, epilog: str = "") -> dict[str, Parser]:
    """Parsers by the name of the command; "" is the parser of the whole line, whose
    help ends with `epilog`.

    If `wanted` is the name of a command, there is only that one's parser beside it; for
    any other word, the parsers of commands have no arguments; for None, all parsers
    have theirs.
    """
    top = Parser(prog="fusetui", description=OURS, epilog=epilog)
    top.add_argument(
        "--version",
        action="version",
        version=f"fusetui {__version__}",
        help="Print the version; with --verbose, also print the versions of its libraries, and "
        "whether the compiled parts are in use.",
    )
    top.add_argument(
        DEBUG,
        action="store_true",
        help="Log on stderr how fusetui reads a trace: cache, reader, compiled parts, "
        "processes. This option may also follow the command.",
    )
    subparsers = top.add_subparsers(
        prog="fusetui", dest="command", metavar="COMMAND", title="commands"
    )
    is_command = wanted in _command_names()
    parsers = {"": top}
    for entry in COMMANDS:
        if is_command and entry.name != wanted:
            continue
        description = f"{entry.help}\n\n{entry.more}" if entry.more else entry.help
        parser = subparsers.add_parser(
            entry.name, help=entry.help, description=description
        )
        if is_command or wanted is None:
            for argument in entry.all_arguments():
                parser.add_argument(argument.name, **argument.settings)
        parsers[entry.name] = parser
    return parsers
