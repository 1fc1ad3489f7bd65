"""Damage: of an element, of a token, of some bytes, of the whole file."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from fuzz import words
from fuzz.document import Document

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+|\s+', re.DOTALL)
SYNTAX = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"-",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
)
INSERTED = (
    *SYNTAX,
    b'{"ph":"X"',
    b"}{",
    b"]}",
    b"],[",
    b'"traceEvents":[',
    b"9" * 30,
    b"e9",
    b"\xef\xbb\xbf",
)

Change = Callable[[bytes, Random], bytes]


def damaged_lines(whole: Document, rnd: Random) -> bytes:
    """Some elements damaged within their lines; the other lines are as they were."""
    elements = [element.encode("utf-8", "surrogatepass") for element in whole.elements]
    if not elements:
        return whole.text().encode()
    for _ in range(rnd.choice((1, 1, 1, 2, 5))):
        at = rnd.randrange(len(elements))
        elements[at] = rnd.choice(OF_ELEMENTS)(elements[at], rnd).replace(b"\n", b" ")
    head, between, tail = (
        part.encode() for part in (whole.head, whole.between, whole.tail)
    )
    data = head + between.join(elements) + tail
    return cut(data, rnd) if rnd.random() < 0.1 else data


def damaged(data: bytes, rnd: Random) -> bytes:
    """Anything anywhere."""
    for _ in range(rnd.choice((1, 1, 1, 2, 3, 10))):
        data = rnd.choice(OF_FILES if rnd.random() < 0.3 else ANYWHERE)(data, rnd)
    return data


def cut(data: bytes, rnd: Random) -> bytes:
    return data[: rnd.randint(0, len(data))]


def _place(data: bytes, rnd: Random) -> tuple[int, int]:
    """A stretch, mostly a short one."""
    begin = rnd.randint(0, len(data))
    return begin, min(begin + rnd.choice((0, 1, 1, 3, 20, len(data) // 4)), len(data))


def _without(data: bytes, rnd: Random) -> bytes:
    begin, end = _place(data, rnd)
    return data[:begin] + data[end:]


def _twice(data: bytes, rnd: Random) -> bytes:
    begin, end = _place(data, rnd)
    return data[:end] + data[begin:]


def _swapped(data: bytes, rnd: Random) -> bytes:
    a, b, c = sorted(rnd.randint(0, len(data)) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _inserted(data: bytes, rnd: Random) -> bytes:
    at = rnd.randint(0, len(data))
    return data[:at] + rnd.choice(INSERTED) + data[at:]


def _random_bytes(data: bytes, rnd: Random) -> bytes:
    begin, end = _place(data, rnd)
    return data[:begin] + rnd.randbytes(min(end - begin, 40)) + data[end:]


def _without_syntax(data: bytes, rnd: Random) -> bytes:
    """Without one quote, bracket, comma or backslash."""
    places = [n for n, byte in enumerate(data) if byte in b'"{}[],:\\']
    at = rnd.choice(places or [0])
    return data[:at] + data[at + 1 :]


def _token(data: bytes, rnd: Random) -> bytes:
    """A token left out, written twice, or another in its place."""
    tokens = TOKEN.findall(data) or [b""]
    at = rnd.randrange(len(tokens))
    other = (
        rnd.choice(words.UNKNOWN) if rnd.random() < 0.5 else words.value(rnd)
    ).encode()
    tokens[at] = rnd.choice((b"", tokens[at] * 2, other, rnd.choice(tokens)))
    return b"".join(tokens)


def _unknown_value(data: bytes, rnd: Random) -> bytes:
    """What JSON does not know, in the place of a value."""
    values = list(re.finditer(rb":\s*([^,{}\[\]]+)", data))
    if not values:
        return data
    place = rnd.choice(values)
    return (
        data[: place.start(1)]
        + rnd.choice(words.UNKNOWN).encode()
        + data[place.end(1) :]
    )


def _deep(data: bytes, rnd: Random) -> bytes:
    at = rnd.randint(0, len(data))
    return data[:at] + words.nested(rnd).encode() + data[at:]


def _doubled(data: bytes, rnd: Random) -> bytes:
    return data + rnd.choice((b"", b"\n", b",", b"\x00")) + data


def _marked(data: bytes, rnd: Random) -> bytes:
    return (
        rnd.choice((b"\xef\xbb\xbf", b"\n\n", b" ", b"\x00", b"\xff\xfe", b"callback("))
        + data
    )


def _followed(data: bytes, rnd: Random) -> bytes:
    return data + rnd.choice(
        (b"\n\n", b"\x00" * 99, b"garbage", b'{"ph":"X","ts":1}', b"]", b"}", b",[]")
    )


def _wide(data: bytes, rnd: Random) -> bytes:
    return data.decode("utf-8", "replace").encode(
        rnd.choice(("utf-16", "utf-16-le", "utf-32")), "replace"
    )


OF_ELEMENTS: tuple[Change, ...] = (
    *(
        _without,
        _twice,
        _inserted,
        _without_syntax,
        _without_syntax,
        _token,
        _unknown_value,
    ),
    *(_unknown_value, cut, _random_bytes),
)
OF_FILES: tuple[Change, ...] = (
    cut,
    cut,
    cut,
    _doubled,
    _marked,
    _followed,
    _wide,
    _deep,
)
ANYWHERE: tuple[Change, ...] = (
    *(
        _without,
        _twice,
        _swapped,
        _inserted,
        _random_bytes,
        _without_syntax,
        _token,
        _unknown_value,
    ),
)
