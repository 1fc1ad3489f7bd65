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
        """Raise ArgumentError unless the value is one of the choices of the action. The
        message is shorter than that of argparse."""
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
        """Return a description with its paragraphs kept apart, each in lines of
        `width`."""
        paragraphs = []
        for paragraph in text.split("\n\n"):
            lines = self._split_lines(paragraph, width - len(indent))
            paragraphs.append("\n".join(indent + line for line in lines))
        return "\n\n".join(paragraphs)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(" ".join(text.split()), width, break_on_hyphens=False)


def parse(arguments: Sequence[str], epilog: str = "") -> Namespace:
    """Return the parsed arguments of a command line, which is given without the name of
    the program.

    `command` is the name of the command, or None if none was given. `rest` has the
    arguments that the parser of an open-ended command does not know, and `debug` is
    whether --debug was given. `epilog` ends the help of the whole line. Raises
    UsageError, and SystemExit after printing help or the version.
    """
    arguments, is_debug = remove_debug(arguments)
    if arguments and _names_trace(arguments[0]):
        arguments = ["open", *arguments]  # `fusetui trace.json`
    first_word = arguments[0] if arguments else ""
    is_word = bool(arguments) and not first_word.startswith("-")
    parsers = command_parsers(first_word, epilog)
    line_parser = parsers[""]
    if is_word and first_word not in _command_names():
        line_parser.error(
            f"no such command: {first_word}{_suggest_command(first_word)}"
        )
    parsed, unknown_arguments = line_parser.parse_known_args(arguments)
    has_more_traces = hasattr(parsed, "others")
    if has_more_traces and not any(word.startswith("-") for word in unknown_arguments):
        # Traces that stand behind an option are unknown to argparse.
        parsed.others = [*parsed.others, *unknown_arguments]
        unknown_arguments = []
    takes_any = bool(parsed.command) and command(parsed.command).open_ended
    if unknown_arguments and not takes_any:
        argument_kind = "option" if unknown_arguments[0].startswith("-") else "argument"
        parsers[parsed.command or ""].error(
            f"no such {argument_kind}: {unknown_arguments[0]}"
        )
    parsed.rest = tuple(unknown_arguments)
    parsed.debug = is_debug
    return parsed


def _command_names() -> list[str]:
    return [entry.name for entry in COMMANDS]


def _names_trace(word: str) -> bool:
    """Return whether the first word names a trace, or anything else that exists, and no
    command. Then `open` is meant."""
    if not word or word in _command_names():
        return False
    if word == "-" or "://" in word or word.startswith(("sample:", "lesson:")):
        return True
    return os.path.exists(word)


def _suggest_command(word: str) -> str:
    """Return a hint at the command with the nearest name, such as ` (did you mean
    ops?)`, or "" if none is near."""
    from difflib import get_close_matches  # rarely needed

    nearest = get_close_matches(word, _command_names(), 1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def remove_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the arguments without --debug, and whether it was given.

    It may stand before the command or behind it. What stands behind an open-ended
    command, or behind `--`, may be meant for another program and stays.
    """
    kept_words: list[str] = []
    for index, word in enumerate(arguments):
        # from here on, words may belong to another program
        if word == "--" or (kept_words and _is_open_ended(kept_words[0])):
            kept_words += arguments[index:]
            break
        if word != DEBUG:
            kept_words.append(word)
    return kept_words, len(kept_words) < len(arguments)


def _is_open_ended(name: str) -> bool:
    return any(entry.name == name and entry.open_ended for entry in COMMANDS)


def command_parsers(wanted: str | None = None, epilog: str = "") -> dict[str, Parser]:
    """Return the parsers by the name of the command; "" is the parser of the whole
    line, whose help ends with `epilog`.

    If `wanted` is the name of a command, there is only its parser beside that one. For
    any other word, the parsers of commands have no arguments; for None, all have
    theirs. This saves time, as most runs need one command.
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
