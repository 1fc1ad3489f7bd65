"""What a trace must hold, told by Python's own json module."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

LIMIT_NS = 2**61
BEGINS, ENDS = tuple("BbS"), tuple("EeF")
BLANKS = " \t\r\n"
CLOSERS = {"]": "[", "}": "{"}
SIGNS = re.compile(r'"(?:[^"\\]|\\.)*"?|[][{}]')


@dataclass(frozen=True)
class Slice:
    """One that the file holds; None: its value is odd, and what is made of it is not
    settled."""

    order: int
    start: int
    dur: int | None
    name: str | None
    category: str | None
    place: tuple[int | str | None, int | str | None] | None
    args: dict[str, Any]


@dataclass
class Expected:
    """Of a document that Python's json can read."""

    events: int = 0
    unreadable: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    slices: list[Slice] = field(default_factory=list)
    is_list: bool = False
    samples: int = 0  # finite values of counters
    series: set[Any] = field(default_factory=set)  # that they belong to


def expected(data: bytes) -> Expected | None:
    """None when Python's json cannot read it, or finds no traceEvents."""
    pairs = _loaded(_text(data))
    if isinstance(pairs, Pairs):
        events = [value for key, value in pairs if key == "traceEvents"]
        elements = events[0] if events else None
        more = sum(isinstance(again, list) for again in events[1:])
    else:
        elements, more = pairs, 0
    if not isinstance(elements, list):
        return None
    found = Expected(len(elements), is_list=not isinstance(pairs, Pairs))
    for order, element in enumerate(elements):
        _judge(found, order, element)
    found.events, found.unreadable = found.events + more, found.unreadable + more
    return found


def good_lines(data: bytes, told: bool = False) -> list[Slice]:
    """The slices that stand each on a line of its own, which Python's json can read,
    and within no other value.

    They have to be read whatever is damaged on the other lines, if what opens the list
    is not. `told`: it was said that the file ends early, as it does if its end is that
    of a value in it.
    """
    lines = _text(data).split("\n")
    opening = _opening_line(lines)
    head = "\n".join(lines[: opening + 1])
    if not any(isinstance(_loaded(head + end), list | Pairs) for end in ("]", "]}")):
        return []
    inside = _lines_within_values(lines, opening, head, told)
    found = Expected()
    for number in range(opening + 1, len(lines)):
        if number in inside:
            continue
        element = _loaded(lines[number].strip(f"{BLANKS},"))
        # no value of args
        if isinstance(element, Pairs) and element.get("name") is not None:
            _judge(found, 0, element)
    return found.slices


def _opening_line(lines: list[str]) -> int:
    """The number of the line whose `[` opens the list of events; -1 without one."""
    for number, line in enumerate(lines):
        if line.rstrip(BLANKS).endswith("["):
            return number
    return -1


def _lines_within_values(
    lines: list[str], opening: int, head: str, told: bool
) -> set[int]:
    """The lines after the list's opening that may be part of a value begun on an
    earlier one, and so be no event.

    A list that is still open when the last line ends it lost its own end to one of
    its values, whose end is missing. Then the values found are wrong, and none counts.
    """
    values = _values(lines)
    list_is_open = all(begin > opening for begin, _ in values)
    its_end = "}" if isinstance(_loaded(head + "]}"), Pairs) else "]"
    if list_is_open and lines[-1].rstrip(BLANKS).endswith(its_end) and not told:
        return set()
    return {
        number
        for begin, end in values
        if begin > opening
        for number in range(begin + 1, end)
    }


def _values(lines: list[str]) -> list[tuple[int, int]]:
    """The first and last line of each object and list that has both of its brackets,
    whatever else is damaged. Strings end with their line.

    A closing bracket ends the latest open one of its kind; those opened in between
    never close. One with no partner is left out.
    """
    opened = list[tuple[str, int]]()
    still_open = Counter[str]()
    found = list[tuple[int, int]]()
    for number, line in enumerate(lines):
        for sign in SIGNS.findall(line):
            if sign in CLOSERS.values():
                opened.append((sign, number))
                still_open[sign] += 1
                continue
            partner = CLOSERS.get(sign, "")
            while still_open[partner]:
                other, begin = opened.pop()
                still_open[other] -= 1
                if other == partner:
                    found.append((begin, number))
                    break
    return found


class Pairs(tuple[tuple[str, Any], ...]):
    """An object with all its keys, also those that it has twice."""

    __slots__ = ()

    def get(self, key: str, default: Any = None) -> Any:
        return next((value for name, value in reversed(self) if name == key), default)


def plain(value: Any) -> Any:
    """As a person sees args: the last of equal keys, numbers as floats."""
    if isinstance(value, Pairs):
        return {key: plain(inner) for key, inner in value}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


def _text(data: bytes) -> str:
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _loaded(text: str) -> Any:
    try:
        return json.loads(
            text,
            strict=False,
            object_pairs_hook=Pairs,
            parse_float=_fraction,
            parse_constant=str,
        )
    except (ValueError, RecursionError):
        return None


def _fraction(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal(float(text))


def _judge(found: Expected, order: int, element: Any) -> None:
    if isinstance(element, Pairs) and not element:
        return  # some writers end a list with an empty object: no event, no loss
    phase = _word(element.get("ph", "")) if isinstance(element, Pairs) else ""
    timed = phase == "X" or phase in (*BEGINS, *ENDS)
    start = _time(element.get("ts", 0)) if timed else 0
    dur = (
        _time(element.get("dur", 0))
        if phase == "X" and element.get("dur", 0) is not None
        else 0
    )
    if not phase or start is None or dur is None or start + dur > LIMIT_NS:
        found.unreadable += 1
        return
    found.phases[phase] += 1
    if phase == "C":
        _count_values(found, element)
    if phase == "X" or phase in BEGINS:
        found.slices.append(
            _slice(order, element, start, max(dur, 0) if phase == "X" else None)
        )


def _count_values(found: Expected, element: Pairs) -> None:
    args = element.get("args")
    if not isinstance(args, Pairs) or _time(element.get("ts", 0)) is None:
        return
    who = [str(element.get(key)) for key in ("pid", "name", "id")]
    for name, value in plain(args).items():
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and _is_finite(value)
        ):
            found.samples += 1
            found.series.add((*who, name))


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _slice(order: int, element: Pairs, start: int, dur: int | None) -> Slice:
    args = element.get("args")
    pid, tid = (_identity(element.get(key)) for key in ("pid", "tid"))
    return Slice(
        order,
        start,
        dur,
        _settled(element.get("name", "")),
        _settled(element.get("cat", "")),
        (pid[0], tid[0]) if pid and tid and dur is not None else None,
        plain(args) if isinstance(args, Pairs) else {},
    )


def _settled(value: Any) -> str | None:
    return _word(value) if isinstance(value, str) or value is None else None


def _word(value: Any) -> str:
    """As text; lone surrogates, which no output takes, as question marks."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _identity(value: Any) -> tuple[int | str | None] | None:
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        return None
    if isinstance(value, int):
        return (value if -(2**63) <= value < 2**63 else str(value),)
    return (value if value is None else _word(value),)


def _time(value: Any) -> int | None:
    """Microseconds -> ns; None for what is no time."""
    if isinstance(value, bool | list | Pairs) or value is None:
        return None
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() > 30:
        return None
    ns = int((number * 1000).to_integral_value()) if number.adjusted() > -30 else 0
    return ns if abs(ns) <= LIMIT_NS else None
