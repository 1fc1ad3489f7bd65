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
        """Raise UsageError with what argparse says, in the words of fusetui."""
        own_message = message
        for pattern, words in WORDS:
            own_message = re.sub(pattern, words, own_message)
        raise UsageError(f"{self.prog}{own_message}; see {self.prog} --help.")

    def _check_value(self, action: Action, value: object) -> None:
        """Raise ArgumentError unless the value is one of the choices of the action. The
        message is shorter than that of argparse."""
        if action.choices is None or value in action.choices:
            return
        *others, last = map(str, action.choices)
        choices = f"{', '.join(others)} or {last}" if others else last
        raise ArgumentError(action, f"takes {choices}, not {str(value)!r}")

    def _print_message(self, message: str, file: object = None) -> None:
        """Write help or the version. argparse itself would ignore that they cannot be
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
    """Parse a command line, which is given without the name of the program.

    Raises UsageError, and SystemExit after printing help or the version.

    Args:
        arguments: The words of the command line.
        epilog: What ends the help of the whole line.

    Returns:
        The parsed arguments. `command` is the name of the command, or None if none was
        given. `rest` has the arguments that the parser of an open-ended command does
        not know, and `debug` is whether --debug was given.
    """
    words, is_debug = remove_debug(arguments)
    if words and _names_trace(words[0]):
        words = ["open", *words]  # `fusetui trace.json`
    first_word = words[0] if words else ""
    parsers = command_parsers(first_word, epilog)
    line_parser = parsers[""]
    is_option = first_word.startswith("-")
    if words and not is_option and first_word not in _command_names():
        hint = _suggest_command(first_word)
        line_parser.error(f"no such command: {first_word}{hint}")

    parsed, unknown_words = line_parser.parse_known_args(words)
    has_unknown_option = any(word.startswith("-") for word in unknown_words)
    takes_more_traces = hasattr(parsed, "others")
    if takes_more_traces and not has_unknown_option:
        # Traces that stand behind an option are unknown to argparse.
        parsed.others = [*parsed.others, *unknown_words]
        unknown_words = []

    takes_any_word = bool(parsed.command) and command(parsed.command).open_ended
    if unknown_words and not takes_any_word:
        first_unknown = unknown_words[0]
        word_kind = "option" if first_unknown.startswith("-") else "argument"
        command_parser = parsers[parsed.command or ""]
        command_parser.error(f"no such {word_kind}: {first_unknown}")
    parsed.rest = tuple(unknown_words)
    parsed.debug = is_debug
    return parsed


def _command_names() -> list[str]:
    """List the names of all commands."""
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
        is_behind_open_ended = bool(kept_words) and _is_open_ended(kept_words[0])
        if word == "--" or is_behind_open_ended:
            kept_words += arguments[index:]
            break
        if word != DEBUG:
            kept_words.append(word)
    was_given = len(kept_words) < len(arguments)
    return kept_words, was_given


def _is_open_ended(name: str) -> bool:
    """Return whether a command passes on arguments that the parser does not know."""
    return any(entry.name == name and entry.open_ended for entry in COMMANDS)


def command_parsers(wanted: str | None = None, epilog: str = "") -> dict[str, Parser]:
    """Make the parsers of commands.

    Args:
        wanted: The name of the only command whose parser is made, because most runs
            need one. For any other word there are parsers of all commands, but without
            arguments; for None, all have theirs.
        epilog: What ends the help of the whole line.

    Returns:
        The parsers by the name of the command; "" is that of the whole line.
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
    is_one_wanted = wanted in _command_names()
    have_arguments = is_one_wanted or wanted is None
    parsers = {"": top}
    for entry in COMMANDS:
        if is_one_wanted and entry.name != wanted:
            continue
        description = f"{entry.help}\n\n{entry.more}" if entry.more else entry.help
        parser = subparsers.add_parser(
            entry.name, help=entry.help, description=description
        )
        if have_arguments:
            for argument in entry.all_arguments():
                parser.add_argument(argument.name, **argument.settings)
        parsers[entry.name] = parser
    return parsers
