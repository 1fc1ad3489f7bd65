"""What may stand on the command line, as parsers of the standard library: they are imported in a
few milliseconds, which every command waits for.
"""

from __future__ import annotations

import os
from argparse import (
    ArgumentParser,
    ArgumentTypeError,
    BooleanOptionalAction,
    HelpFormatter,
    Namespace,
)
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fusetui import __version__
from fusetui.capture.defaults import STEPS
from fusetui.commands.streams import write

TRACE = "A trace (.json, .gz or .zst), -, sample:NAME or lesson:NAME."
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

    The options that only a workload can know are in `of_workload`. Raises WrongUse, and SystemExit
    once help or the version was shown.
    """
    parsers = command_parsers()
    top = parsers[""]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in parsers:
        top.error(f"no such command: {arguments[0]}{_suggestion(arguments[0], list(parsers))}")
    parsed, rest = top.parse_known_args(arguments)
    if parsed.command == "capture":
        parsed.of_workload = tuple(rest)
    elif rest:
        what = "option" if rest[0].startswith("-") else "argument"
        parsers[parsed.command or ""].error(f"no such {what}: {rest[0]}")
    return parsed


def _suggestion(wrong: str, names: Sequence[str]) -> str:
    if os.path.exists(wrong):
        return f" (to open it: fusetui open {wrong})"
    from difflib import get_close_matches  # most people never see this

    close = get_close_matches(wrong, names, 1)
    return f" (did you mean {close[0]}?)" if close else ""


def command_parsers() -> dict[str, Parser]:
    """By the name of the command; the one of the whole line is named ""."""
    codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    top = Parser(prog="fusetui", description=OURS, epilog=f"Exit codes: {codes}.")
    top.add_argument("--version", action="version", version=f"fusetui {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    found = {"": top}
    for name, (text, fill) in COMMANDS.items():
        found[name] = commands.add_parser(name, help=text.split("\n\n")[0], description=text)
        fill(found[name])
    return found


def _capture(parser: Parser) -> None:
    add = parser.add_argument
    add("workload", metavar="WORKLOAD", help="mlp, linear, ... or your own file.py:build.")
    add("--variant", metavar="V", action="append", help="Only this one; may be repeated.")
    add("--device", metavar="WHERE", default="auto", help="auto (default), cuda or cpu.")
    add("--dtype", metavar="D", help="bfloat16, float16 or float32.")
    add("--out", metavar="DIR", type=Path, help="The run folder to write.")
    add("--steps", metavar="N", type=int, default=STEPS, help=f"Profiled steps; default {STEPS}.")
    add("--seconds", metavar="S", type=float, help="Time spent on timing each variant.")
    add("--backward", action="store_true", help="Forward and backward.")
    add("--mode", metavar="M", help="The mode of torch.compile.")
    add("--stack", action="store_true", help="Record Python frames.")
    add("--shapes", action=BooleanOptionalAction, help="Record the shapes of inputs, or not.")
    add("--memory", action="store_true", help="Record allocations.")
    add("--scrub", action="store_true", help="Take out what is private, as scrub does.")
    add("--expect", metavar="GUESS", action="append", help='"kernels=5 gemm=3"; else exit 1.')
    add("--sweep", metavar="AXIS", action="append", help="A run per value: batch=1,2,4.")
    add("--open", action="store_true", help="Open the result.")


def _open(parser: Parser) -> None:
    add = parser.add_argument
    add("trace", metavar="TRACE", help="A trace, a run folder, sample:NAME or lesson:NAME.")
    add("other", metavar="OTHER", nargs="?", help="A second one, side by side.")
    add("--ascii", action="store_true", help="Draw with ASCII only.")
    add("--mouse", action=BooleanOptionalAction, help="Let the app see the mouse, or not.")
    _no_cache(parser)


def _figures(parser: Parser) -> None:
    parser.add_argument("trace", metavar="TRACE", help=TRACE)
    _json(parser)
    _no_cache(parser)


def _table(parser: Parser) -> None:
    _figures(parser)
    text = "Rows of the table, 20 by default; 0 shows all."
    parser.add_argument("--top", metavar="N", type=_at_least_zero(int), default=20, help=text)


def _diff(parser: Parser) -> None:
    add = parser.add_argument
    add("a", metavar="A", help="The trace to compare with.")
    add("b", metavar="B", nargs="?", help="The other; a run folder A has all.")
    add("--baseline", metavar="VARIANT", help="Of a run folder: what the others are compared with.")
    _json(parser)
    add("--markdown", action="store_true", help="A table for a report.")
    text = "Exit 1 if B's step is slower by more, beyond noise; 3 if that cannot be told."
    add("--fail-over", metavar="PERCENT", type=_at_least_zero(float), help=text)
    _no_cache(parser)


def _scrub(parser: Parser) -> None:
    add = parser.add_argument
    add("trace", metavar="TRACE", help=TRACE)
    add("out", metavar="OUT", help="The new file: .json, .json.gz or .json.zst by its name.")


def _decode(parser: Parser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="Names; - reads stdin.")
    _json(parser)


def _check(parser: Parser) -> None:
    _figures(parser)
    text = 'For example "kernels=5 gemm=3 pointwise=2".'
    parser.add_argument("--expect", metavar="GUESS", required=True, help=text)


def _json(parser: Parser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="One JSON document; times in ns, exact."
    )


def _no_cache(parser: Parser) -> None:
    text = "Read the file anew; keep nothing."
    parser.add_argument("--no-cache", action="store_true", help=text)


def _at_least_zero(number: Callable[[str], float]) -> Callable[[str], float]:
    def parsed(text: str) -> float:
        value = number(text)
        if not value >= 0:
            raise ArgumentTypeError(f"{text} is less than 0")
        return value

    parsed.__name__ = number.__name__  # in "invalid int value"
    return parsed


COMMANDS: dict[str, tuple[str, Callable[[Parser], None]]] = {
    "capture": (
        "Profile the variants of a workload and write a run folder.\n\n"
        "Shapes are options too, by the names of the workload: --batch 32 --hidden 64. A guess may "
        'be for one variant: --expect "eager: kernels=5". A sweep over several axes measures every '
        "combination; batch=64,128,...,2048 goes on as it began, and paper-batch is the name of "
        "one.",
        _capture,
    ),
    "open": ("Browse a trace, or two side by side.", _open),
    "summary": ("The figures of a whole trace: times, counts, steps, lanes.", _figures),
    "kernels": ("The kernels by name, the largest total time first.", _table),
    "ops": ("The CPU ops by name, with the GPU time launched under each.", _table),
    "diff": (
        "What B does differently from A: what was fused, added, removed, slower or faster.\n\n"
        "Two folders are compared by the names of their files; of one run folder, every variant "
        "with the first.",
        _diff,
    ),
    "scrub": (
        "Write a trace anew without what is private, to share it.\n\n"
        "Environment variables, tokens, the names of hosts and users, command lines and folders "
        "go; figures stay exactly as they are.",
        _scrub,
    ),
    "decode": ("Explain kernel names, part by part.", _decode),
    "check": ("Guess first, then look: exit 1 when the trace's kernels differ.", _check),
    "samples": ("The traces that ship with fusetui.", _json),
}
"""What each command says of itself, and what adds its arguments."""
