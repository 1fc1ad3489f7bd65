"""Tokens of known forms in a text, whatever it is: the warning names them, `scrub` removes them.

Both ask `tokens_in`, so nothing that the warning knows stays. What has no form of its own, such as
a password or 40 hexadecimal digits, is known only by the name before it (see secrets.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from fusetui.trace.scrub.secrets import compiled, is_trivial

ALPHABETS = {"A": "A-Za-z0-9", "B": "A-Za-z0-9+/=_-", "D": r"\w.=-", "H": "0-9a-fA-F",
             "L": "a-z0-9", "U": "A-Z0-9", "W": r"\w-"}  # fmt: skip

BEGIN = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv0])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
    r"|(?<=%[0-9a-fA-F]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
"""Where a token may begin: at a word, also after an escape of JSON, of a URL or of a terminal."""

ISSUED, FORMS = (
    Path(__file__).with_name(f"{name}.txt") for name in ("issued_tokens", "token_forms")
)
"""A token a line. Those that begin in a way of their own: who issues it, how it begins, and what
follows, an alphabet and the fewest characters of it, as the issuers document them and as scanners
of repositories know them. Others have a form: what it is, what is part of every text of this form
(in lower case), and a pattern whose last group, or all of it, is the secret; none if that is
empty."""

SEPARATORS = str.maketrans(dict.fromkeys("_-.~:/=+%|,;()[]{}<>\"'`\\\x1b@#$&?!*^", " "))
ESCAPE = r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[abfnrtv0]|%[0-9a-fA-F]{2}|\[[0-9]{1,3}m"


def tokens_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and kind of each token, from left to right; none overlaps another."""
    found = [
        (*match.span(match.lastindex or 0), kind)
        for kind, pattern in _patterns(text)
        for match in pattern.finditer(text)
        if not match[0][0].isalnum() or compiled(BEGIN).match(text, match.start())
    ]
    done = -1
    for begin, end, kind in sorted(found, key=lambda token: (token[0], -token[1])):
        if done <= begin < end and not is_trivial(text[begin:end]):
            yield begin, end, kind
            done = end


def _patterns(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The few patterns of which at least the beginning occurs in the text."""
    issued = _issued()
    for head in issued.keys() & _heads(text):
        for kind, prefix, body in issued[head]:
            if prefix in text:
                yield kind, compiled(f"{re.escape(prefix)}{body}")
    lower = text.lower()
    for kind, mark, pattern in _rows(FORMS):
        if mark in lower:
            yield kind, compiled(pattern)


def _heads(text: str) -> set[str]:
    """The words of a text, and the beginnings of long ones."""
    if "\\" in text or "%" in text or "[" in text:
        text = compiled(ESCAPE).sub(" ", text)
    words = set(text.translate(SEPARATORS).split())
    for word in [*words]:
        if len(word) > 4:
            words.add(word[:4])
            if len(word) > 9:
                words.add(word[:3])
                words.add(word[:2])
    return words


@cache
def _rows(table: Path) -> list[list[str]]:
    return [line.split(" : ", 2) for line in table.read_text("utf-8").splitlines()]


@cache
def _issued() -> Mapping[str, list[tuple[str, str, str]]]:
    """First word of a prefix, or four letters of it -> kind, prefix and pattern of what follows."""
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for kind, prefixes, body in _rows(ISSUED):
        alphabet = ALPHABETS[body[0]]
        following = rf"(?=[{alphabet}]{{0,60}}[\dA-Z])[{alphabet}]{{{body[1:]},}}+"
        for prefix in prefixes.split():
            word = prefix.translate(SEPARATORS).split()[0]
            head = word if len(word) < len(prefix) else word[:4]
            rows.setdefault(head, []).append((kind, prefix, following))
    return rows
