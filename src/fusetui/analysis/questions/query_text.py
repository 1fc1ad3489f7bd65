"""Parses the text of a query into terms joined by `and`, `or`, `not` and parentheses.

    query  = all (or all)*
    all    = one ([and] one)*
    one    = not one | [-] ( query ) | term
term   = [-] (word | "text" | /pattern/ | field:value | field = value | field > time)

What a query says is written out as alternatives, of each of which all terms hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Final, NamedTuple

from fusetui import Error
from fusetui.text.patterns import lazy_pattern

MAX_CHARACTERS: Final = 500  # of a query
MAX_DEPTH: Final = 20  # parentheses in parentheses
MAX_WAYS: Final = 64  # alternatives
SIGN = lazy_pattern(
    r"(?P<minus>-?)(?P<field>[a-z][a-z_0-9]*)\s*(?P<sign>!=|<=|>=|=|<|>)\s*"
    r'(?P<value>"[^"]*"|\d[\d.]*\s+(?:ns|us|ms|s)\b|\S*)'
)
_TERM = lazy_pattern(r'-?(?:/(?:[^/\\]|\\.)+/(?=[\s)]|$)|[a-z]+:"[^"]*"|"[^"]*"|\S+)')
FIELD = lazy_pattern(r"([a-z_0-9]+):(?!:)(.*)", re.DOTALL)
_OPEN: Final = "("
_NOT_OPEN: Final = "-("
_CLOSE: Final = ")"


class WrongQueryError(Error):
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
"""Whether a sign, the second argument, compares the field that the first one names."""


def written_ways(text: str, is_sign: IsSign) -> list[Way]:
    """What a query says; `is_sign` says whether a sign other than `:` compares a field
    of this name, or is only a part of a word. No way where the text is blank. Raises
    WrongQueryError."""
    if len(text) > MAX_CHARACTERS:
        raise WrongQueryError(f"a search can have at most {MAX_CHARACTERS} characters")
    tokens = _tokens(text, is_sign)
    return _Reader(tokens).either(negated=False, depth=0) if tokens else []


Token = Written | str
"""A term or a parenthesis."""


def _tokens(text: str, is_sign: IsSign) -> list[Token]:
    """The terms and parentheses of a text. Raises WrongQueryError for a parenthesis
    that is not closed; one that closes none is looked for."""
    tokens: list[Token] = []
    at = 0
    depth = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text.startswith((_OPEN, _NOT_OPEN), at):
            parenthesis = _OPEN if text[at] == _OPEN else _NOT_OPEN
            tokens.append(parenthesis)
            at += len(parenthesis)
            depth += 1
        elif text[at] == _CLOSE and depth:
            tokens.append(_CLOSE)
            at += len(_CLOSE)
            depth -= 1
        else:
            match = _match_term(text, at, len(text), is_sign)
            surplus = min(depth, _surplus(match[0]))
            if surplus:
                match = _match_term(text, at, match.end() - surplus, is_sign)
            tokens.append(_written(match))
            at = match.end()
    if depth:
        raise WrongQueryError('unclosed (: to search for the character, quote it: "("')
    return tokens


def _match_term(text: str, at: int, end: int, is_sign: IsSign) -> re.Match[str]:
    """The term at a place that is no blank: a comparison, if `is_sign` says so."""
    match = SIGN.match(text, at, end)
    if match is None or not is_sign(match["field"], match["sign"]):
        match = _TERM.match(text, at, end)
    assert match is not None  # it begins with no blank
    return match


def _surplus(word: str) -> int:
    """The parentheses at its end that close none of its own: 1 of `f(x))`."""
    at_end = len(word) - len(word.rstrip(_CLOSE))
    unopened = word.count(_CLOSE) - word.count(_OPEN)
    return max(0, min(at_end, unopened))


def _written(match: re.Match[str]) -> Written:
    """A term from its match: with a field and a sign, as `dur>50us` or `name:gemm`, or
    as one text. A minus in front excludes it."""
    if match.re.pattern == SIGN.pattern:
        minus, field, sign, value = match.groups()
        return Written(
            text=f"{field}{sign}{value}",
            excluded=minus == "-",
            field=field,
            sign=sign,
            value=value.strip('"'),
        )
    is_excluded = match[0].startswith("-") and len(match[0]) > 1
    text = match[0][1:] if is_excluded else match[0]
    with_field = FIELD.fullmatch(text)
    if with_field is None:
        return Written(text=text, excluded=is_excluded)
    return Written(
        text=text,
        excluded=is_excluded,
        field=with_field[1],
        sign=":",
        value=with_field[2].strip('"'),
    )


class _Reader:
    """Reads tokens from the left; what is negated is turned into the opposite of its
    parts."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def either(self, negated: bool, depth: int) -> list[Way]:
        """What follows, up to the end of its parentheses: alternatives joined by
        `or`."""
        if depth > MAX_DEPTH:
            raise WrongQueryError(f"a search can nest at most {MAX_DEPTH} parentheses")
        parts = [self._all(negated, depth)]
        while self._is("or"):
            self._at += 1
            parts.append(self._all(negated, depth))
        return _all_of(parts) if negated else _any_of(parts)

    def _all(self, negated: bool, depth: int) -> list[Way]:
        """Terms that are joined by `and` or by nothing."""
        parts = [self._one(negated, depth)]
        while self._follows() and not self._is("or"):
            self._at += self._is("and")
            parts.append(self._one(negated, depth))
        return _any_of(parts) if negated else _all_of(parts)

    def _one(self, negated: bool, depth: int) -> list[Way]:
        """A term, or what parentheses hold."""
        if self._is("not"):
            self._at += 1
            return self._one(not negated, depth)
        token = self._tokens[self._at]
        self._at += 1
        if isinstance(token, Written):
            return [(token._replace(excluded=token.excluded ^ negated),)]
        if not self._follows():
            raise WrongQueryError("nothing between ( and )")
        ways = self.either(negated ^ (token == _NOT_OPEN), depth + 1)
        self._at += 1  # the parenthesis that closes
        return ways

    def _follows(self, further: int = 0) -> bool:
        """Whether a token follows, so many further on, and does not close."""
        at = self._at + further
        return at < len(self._tokens) and self._tokens[at] != _CLOSE

    def _is(self, word: str) -> bool:
        """Whether this word is next and joins what follows it: at an end it is looked
        for."""
        token = self._tokens[self._at] if self._follows() else None
        if not isinstance(token, Written) or token.excluded or token.field:
            return False
        return token.text.lower() == word and self._follows(1)


def _any_of(parts: Sequence[list[Way]]) -> list[Way]:
    """The alternatives of which one part holds."""
    return _limited(list(chain.from_iterable(parts)))


def _all_of(parts: Sequence[list[Way]]) -> list[Way]:
    """The alternatives of which all parts hold: every way of one with every way of
    another."""
    combined: list[Way] = [()]
    for ways in parts:
        combined = _limited(
            [(*before, *way) for before, way in product(combined, ways)]
        )
    return combined


def _limited(ways: list[Way]) -> list[Way]:
    if len(ways) > MAX_WAYS:
        raise WrongQueryError(
            f"this expands to more than {MAX_WAYS} alternatives: simplify it"
        )
    return ways
