"""Arguments of commands as values, and those that several commands share.

Importing this takes a few milliseconds: every command waits for it.
"""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fusetui.capture.options import Declared


class Argument(NamedTuple):
    """What `ArgumentParser.add_argument` is given."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]


def argument(*names: str, **settings: Any) -> Argument:
    """`argument("--top", metavar="N", help="...")`, with everything that argparse knows."""
    return Argument(names, settings)


def flag(name: str, text: str) -> Argument:
    """An option without a value."""
    return argument(name, action="store_true", help=text)


def by(*groupings: str) -> Argument:
    """What the rows of a table have in common; the first one by default."""
    text = f"What a row has in common: {', '.join(groupings[:-1])} or {groupings[-1]}."
    return argument("--by", choices=groupings, metavar="WHAT", default=groupings[0], help=text)


def at_least_zero(number: Callable[[str], float]) -> Callable[[str], float]:
    """The type of an argument: `number`, unless it is negative."""

    def parsed(text: str) -> float:
        value = number(text)
        if not value >= 0:
            raise ArgumentTypeError(f"{text} is less than 0")
        return value

    parsed.__name__ = number.__name__  # in "invalid int value"
    return parsed


def option(one: Declared) -> Argument:
    """An option of a capture; what is not given is not in the parsed arguments either."""
    name, text = one.asked.flag, one.asked.help.replace("%", "%%")
    if one.kind is bool:
        action = BooleanOptionalAction if one.default else "store_true"
        return argument(name, dest=one.name, action=action, help=text, default=SUPPRESS)
    action = "append" if one.many else "store"
    return argument(
        name,
        dest=one.name,
        metavar=one.asked.metavar,
        type=one.kind,
        action=action,
        help=text,
        default=SUPPRESS,
    )


KERNELS_BY = ("name", "op", "shape", "module", "family", "stream", "step")
OPS_BY = ("name", "shape")
TRACE = argument(
    "trace",
    metavar="TRACE",
    help="A trace (.json, .gz or .zst), -, sample:NAME or lesson:NAME.",
)
JSON = flag("--json", "One JSON document; times in ns, exact.")
NO_CACHE = flag("--no-cache", "Read the file anew; keep nothing.")
PART = (
    argument("--step", metavar="N", type=int, help="Only ProfilerStep#N, or the Nth step from 1."),
    argument("--from", metavar="T", dest="begin", help="Only from this time on: 12.5ms, or in ns."),
    argument("--to", metavar="T", dest="end", help="Only up to this time."),
    argument("--device", metavar="D", help="Only this GPU, by its number."),
    argument("--step-by", metavar="PATTERN", help="Annotations that are steps, by a pattern."),
    flag("--all", "Every gap, not only the longest ones."),
)
"""What part of a trace is asked about."""

TOP = argument(
    "--top",
    metavar="N",
    type=at_least_zero(int),
    default=20,
    help="Rows of the table, 20 by default; 0 shows all.",
)
