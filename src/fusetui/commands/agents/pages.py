"""As much of an answer as a budget allows, and a cursor for the rest.

A cursor holds all that is known about it: where to go on, and a hash of the question. It is good
for the same question, as long as the files of its traces have not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
import orjson

from fusetui.commands.errors import CommandError
from fusetui.text.patterns import late
from fusetui.text.printable import printable

CHARACTERS = 4  # of JSON that are estimated as one token
CURSOR = late(r"([0-9]{1,15})-([0-9a-f]{12})")
WIDEST = 40  # characters of a cursor and of the number of tokens


class PagedItems(msgspec.Struct, frozen=True, eq=False):
    """What an answer has some of: their key, their number, and those from the n-th on."""

    key: str
    total: int
    rest: Callable[[int], Iterable[object]]


def paged(
    head: Mapping[str, object], items: PagedItems, most: int, cursor: str | None, question: object
) -> dict[str, Any]:
    """The head, and as many items as `most` tokens hold. Raises CommandError if that is not even
    one, or if the cursor is not one of this question."""
    digest = blake2b(repr(question).encode(), digest_size=6).hexdigest()
    begin = _begin(cursor, items.total, digest)
    answer: dict[str, Any] = {**safe(head), items.key: [], "total": items.total}
    answer |= {"cursor": None, "tokens": 0}
    room = most * CHARACTERS - len(text_of(answer)) - WIDEST
    taken = answer[items.key]
    for item in items.rest(begin) if begin < items.total else ():
        one = safe(item)
        room -= len(text_of(one)) + 1
        if room < 0 and not taken:
            raise _too_small(most, room)
        if room < 0:
            answer["cursor"] = f"{begin + len(taken)}-{digest}"
            break
        taken.append(one)
    if room < 0 and not taken:  # a head without items
        raise _too_small(most, room)
    answer["tokens"] = -(-len(text_of(answer)) // CHARACTERS)
    return answer


def _too_small(most: int, room: int) -> CommandError:
    return CommandError(
        f"This does not fit in {most:,} tokens: ask with max_tokens of at least "
        f"{most - room // CHARACTERS:,}, or of a table for fewer columns."
    )


def _begin(cursor: str | None, total: int, digest: str) -> int:
    if cursor is None:
        return 0
    found = CURSOR.fullmatch(cursor)
    if found is None or found[2] != digest or not 0 < int(found[1]) < total:
        raise CommandError(
            "This cursor is not one of this question, or the trace has changed since: repeat the "
            "arguments that it came with, or ask without a cursor."
        )
    return int(found[1])


def safe(value: object) -> Any:
    """As JSON has it, with texts in which nothing is left that a terminal interprets or hides."""
    return _printable(msgspec.to_builtins(value))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(key): _printable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(one) for one in value]
    return value


def text_of(value: object) -> str:
    """Compact JSON."""
    return orjson.dumps(value).decode()
