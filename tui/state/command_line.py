"""The commands typed after `:`, as data: `goto 12.5ms`, `step 2`, `open PATH`."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from fusetui.text.cutting import clip
from fusetui.text.figures import parse_time
from fusetui.text.printable import printable


class Goto(msgspec.Struct, frozen=True):
    """A time in ns, counted as on the ruler."""

    ns: int


class Step(msgspec.Struct, frozen=True):
    """The first step is 1."""

    number: int


class Mark(msgspec.Struct, frozen=True):
    letter: str
    note: str = ""


class Only(msgspec.Struct, frozen=True):
    """Texts that the names of lanes contain, `|` between; "": all lanes."""

    pattern: str


class Open(msgspec.Struct, frozen=True):
    """A trace to open alone, or beside the first one that is open."""

    path: str
    beside: bool


class Quit(msgspec.Struct, frozen=True):
    pass


class Wrong(msgspec.Struct, frozen=True):
    """What is wrong with the line, and a correct example."""

    sentence: str


Command = Goto | Step | Mark | Only | Open | Quit | Wrong

EXAMPLES = ("goto 12.5ms", "step 2", "mark a", "only gpu", "open PATH", "diff PATH", "q")
VERBS = tuple(example.partition(" ")[0] for example in EXAMPLES)
NUMBER = re.compile(r"[0-9]{1,9}")
LETTER = re.compile(r"[A-Za-z]")
LONGEST_NOTE = 200  # characters
LONGEST = 30  # characters of a wrong word that are repeated


def parse(line: str) -> Command:
    """The command in a line; Wrong for anything that is not a command."""
    verb, _, rest = line.strip().removeprefix(":").strip().partition(" ")
    if verb in PARSERS:
        return PARSERS[verb](rest.strip())
    word = clip(printable(verb), LONGEST)
    return Wrong(f"{word or 'nothing'} is not a command: {', '.join(VERBS)}")


def _goto(rest: str) -> Command:
    time = parse_time(rest)
    return Wrong("goto takes a time with its unit: goto 12.5ms") if time is None else Goto(time)


def _step(rest: str) -> Command:
    return Step(int(rest)) if NUMBER.fullmatch(rest) else Wrong("step takes a number: step 2")


def _mark(rest: str) -> Command:
    letter, _, note = rest.partition(" ")
    if not LETTER.fullmatch(letter):
        return Wrong("mark takes one letter, then a note: mark a slow step")
    return Mark(letter, clip(printable(note.strip()), LONGEST_NOTE))


def _open(rest: str) -> Command:
    return Open(rest, beside=False) if rest else Wrong("open takes the path of a trace")


def _diff(rest: str) -> Command:
    return Open(rest, beside=True) if rest else Wrong("diff takes the path of another trace")


def _quit(rest: str) -> Command:
    return Wrong("q takes no argument") if rest else Quit()


PARSERS: dict[str, Callable[[str], Command]] = dict(
    zip(VERBS, (_goto, _step, _mark, Only, _open, _diff, _quit), strict=True)
)
