"""The text of a query, as terms that are joined by `and`, `or`, `not` and parentheses.

    query  = all (or all)*
    all    = one ([and] one)*
    one    = not one | [-] ( query ) | term
    term   = [-] (word | "text" | /pattern/ | field:value | field = value | field > time)

What a query says is written out as alternatives, of each of which all terms hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from fusetui import Error
from fusetui.text.patterns import late

LONGEST = 500  # characters of a query
DEEPEST = 20  # parentheses in parentheses
MOST_WAYS = 64  # alternatives
SIGN = late(
    r"(-?)([a-z][a-z_0-9]*)\s*(!=|<=|>=|=|<|>)\s*"
    r'("[^"]*"|\d[\d.]*\s+(?:ns|us|ms|s)\b|\S*)'
)
TERM = late(r'-?(?:/(?:[^/\\]|\\.)+/(?=[\s)]|$)|[a-z]+:"[^"]*"|"[^"]*"|\S+)')
FIELD = late(r"([a-z_0-9]+):(?!:)(.*)", re.DOTALL)
OPEN, NOT_OPEN, CLOSE = "(", "-(", ")"


class WrongQuery(Error):  # noqa: N818
    """One plain sentence about what is wrong with a query."""


class Written(NamedTuple):
    """A term as it was written, without its `-`; of one that is about a field also the
    two sides of its sign."""

    text: str
    excluded: bool
    field: str = ""
    sign: str = ""
    value: str = ""


Way = tuple[Written, ...]
"""Terms that all hold."""
IsSign = Callable[[str, str], bool]


def written_ways(text: str, is_sign: IsSign) -> list[Way]:
    """What a query says; `is_sign` says whether a sign other than `:` compares a field
    of this name, or is only a part of a word. No way where the text is blank. Raises
    WrongQuery."""
    if len(text) > LONGEST:
        raise WrongQuery(f"a search has at most {LONGEST} characters")
    tokens = _tokens(text, is_sign)
    return _Reader(tokens).either(False, 0) if tokens else []


Token = Written | str
"""A term or a parenthesis."""


def _tokens(text: str, is_sign: IsSign) -> list[Token]:
    found, at, depth = list[Token](), 0, 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text.startswith((OPEN, NOT_OPEN), at):
            found.append(OPEN if text[at] == OPEN else NOT_OPEN)
            at, depth = at + len(found[-1]), depth + 1
        elif text[at] == CLOSE and depth:
            found.append(CLOSE)
            at, depth = at + 1, depth - 1
        else:
            match = _term(text, at, len(text), is_sign)
            if surplus := min(depth, _surplus(match[0])):
                match = _term(text, at, match.end() - surplus, is_sign)
            found.append(_written(match))
            at = match.end()
    if depth:
        raise WrongQuery('a ( is not closed: "(" in quotes looks for one')
    return found


def _term(text: str, at: int, end: int, is_sign: IsSign) -> re.Match[str]:
    match = SIGN.match(text, at, end)
    if match is None or not is_sign(match[2], match[3]):
        match = TERM.match(text, at, end)
    assert match is not None  # it begins with no blank
    return match


def _surplus(word: str) -> int:
    """The parentheses at its end that close none of its own: 1 of `f(x))`."""
    last = len(word) - len(word.rstrip(CLOSE))
    return max(0, min(last, word.count(CLOSE) - word.count(OPEN)))


def _written(match: re.Match[str]) -> Written:
    if match.re.pattern == SIGN.pattern:
        minus, field, sign, value = match.groups()
        return Written(
            f"{field}{sign}{value}", minus == "-", field, sign, value.strip('"')
        )
    excluded = match[0].startswith("-") and len(match[0]) > 1
    text = match[0][1:] if excluded else match[0]
    field = FIELD.fullmatch(text)
    return Written(
        text, excluded, *((field[1], ":", field[2].strip('"')) if field else ())
    )


class _Reader:
    """Reads tokens from the left; what is negated is turned into the opposite of its
    parts."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens, self._at = tokens, 0

    def either(self, negated: bool, depth: int) -> list[Way]:
        if depth > DEEPEST:
            raise WrongQuery(
                f"a search has at most {DEEPEST} parentheses in one another"
            )
        parts = [self._all(negated, depth)]
        while self._is("or"):
            self._at += 1
            parts.append(self._all(negated, depth))
        return _every(parts) if negated else _any(parts)

    def _all(self, negated: bool, depth: int) -> list[Way]:
        parts = [self._one(negated, depth)]
        while self._follows() and not self._is("or"):
            self._at += self._is("and")
            parts.append(self._one(negated, depth))
        return _any(parts) if negated else _every(parts)

    def _one(self, negated: bool, depth: int) -> list[Way]:
        if self._is("not"):
            self._at += 1
            return self._one(not negated, depth)
        token = self._tokens[self._at]
        self._at += 1
        if isinstance(token, Written):
            return [(token._replace(excluded=token.excluded ^ negated),)]
        if not self._follows():
            raise WrongQuery("nothing stands between ( and )")
        found = self.either(negated ^ (token == NOT_OPEN), depth + 1)
        self._at += 1  # its end
        return found

    def _follows(self, further: int = 0) -> bool:
        at = self._at + further
        return at < len(self._tokens) and self._tokens[at] != CLOSE

    def _is(self, word: str) -> bool:
        """Whether this word is next and joins what follows it: at an end it is looked
        for."""
        token = self._tokens[self._at] if self._follows() else None
        if not isinstance(token, Written) or token.excluded or token.field:
            return False
        return token.text.lower() == word and self._follows(1)


def _any(parts: Sequence[list[Way]]) -> list[Way]:
    return _few([way for ways in parts for way in ways])


def _every(parts: Sequence[list[Way]]) -> list[Way]:
    found: list[Way] = [()]
    for ways in parts:
        found = _few([(*before, *way) for before, way in product(found, ways)])
    return found


def _few(ways: list[Way]) -> list[Way]:
    if len(ways) > MOST_WAYS:
        raise WrongQuery(
            f"this says more than {MOST_WAYS} alternatives: make it simpler"
        )
    return ways
