"""Parses the text of a query into terms joined by `and`, `or`, `not` and parentheses.

    query  = all (or all)*
    all    = one ([and] one)*
    one    = not one | [-] ( query ) | term
    term   = [-] (word | "text" | /pattern/ | field:value | field = value | field > time)

The result is a list of alternatives (*ways*, the disjunctive normal form). All terms of
a way must hold: `a (b or c)` has the ways (a, b) and (a, c).
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
    """A term as it was written, such as `-op = mm`."""

    text: str  # all of it but the minus, and without blanks: `op=mm`
    excluded: bool  # whether a minus stands before it, or a `not`
    field: str = ""  # what stands before a sign: `op`; "" for a term without a sign
    sign: str = ""
    value: str = ""  # what stands behind the sign: `mm`


Way = tuple[Written, ...]
"""Terms that all hold."""

IsSign = Callable[[str, str], bool]
"""Returns whether a word and a sign make a comparison, as `dur` and `>` do. If not, the
sign is a part of a word, as in `vector<int>`."""


def parse_ways(text: str, is_sign: IsSign) -> list[Way]:
    """Read the text of a query as alternatives, each a list of terms that must all
    hold.

    E.g. `a (b or c)` has the two alternatives `a b` and `a c`.

    Args:
        text: The text.
        is_sign: Decides whether a sign other than `:` after a word makes a
            comparison.

    Returns:
        The alternatives; none if the text is blank.

    Raises:
        WrongQueryError: The text is too long, has too many alternatives, or a
            parenthesis is not closed.
    """
    if len(text) > MAX_CHARACTERS:
        raise WrongQueryError(f"a search can have at most {MAX_CHARACTERS} characters")
    tokens = _tokens(text, is_sign)
    return _Reader(tokens).either(negated=False, depth=0) if tokens else []


Token = Written | str
"""A term or a parenthesis."""


def _tokens(text: str, is_sign: IsSign) -> list[Token]:
    """Split a text into terms and parentheses.

    E.g. `a -(b f(x))` gives a, `-(`, b, f(x), `)`. A parenthesis that closes none is a
    part of a term.

    Raises:
        WrongQueryError: If a parenthesis is not closed.
    """
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
            surplus = min(depth, _count_surplus_parentheses(match[0]))
            if surplus:
                match = _match_term(text, at, match.end() - surplus, is_sign)
            tokens.append(_split_term(match))
            at = match.end()
    if depth:
        raise WrongQueryError('unclosed (: to search for the character, quote it: "("')
    return tokens


def _match_term(text: str, at: int, end: int, is_sign: IsSign) -> re.Match[str]:
    """Match the term that begins at some character, which is no blank.

    Args:
        text: The text of the query.
        at: The index of the character.
        end: The index behind the last character that may belong to the term.
        is_sign: Decides whether the term is a comparison, of which blanks around the
            sign are a part.
    """
    match = SIGN.match(text, at, end)
    if match is None or not is_sign(match["field"], match["sign"]):
        match = _TERM.match(text, at, end)
    assert match is not None  # it begins with no blank
    return match


def _count_surplus_parentheses(word: str) -> int:
    """Count the parentheses at the end of a word that close none of its own.

    E.g. 1 for `f(x))`, and 0 for `f(x)`.
    """
    at_end = len(word) - len(word.rstrip(_CLOSE))
    unopened = word.count(_CLOSE) - word.count(_OPEN)
    return max(0, min(at_end, unopened))


def _split_term(match: re.Match[str]) -> Written:
    """Take the match of a term apart: into minus, field, sign and value, or one text.

    E.g. `-dur > 50us` has the field `dur`, the sign `>` and the value `50us`, and is
    excluded; `gemm` is only a text.
    """
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
    """Reads tokens from the left by recursive descent, one method per grammar rule.

    A method gets whether its part is negated, and then returns the ways of the
    opposite: `not (a b)` has the ways (not a) and (not b), by De Morgan's laws.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def either(self, negated: bool, depth: int) -> list[Way]:
        """Read alternatives joined by `or`, up to the end of the text or of the
        parentheses.

        Args:
            negated: Whether to return the alternatives of the opposite.
            depth: How many parentheses are open.
        """
        if depth > MAX_DEPTH:
            raise WrongQueryError(f"a search can nest at most {MAX_DEPTH} parentheses")
        parts = [self._read_joined_terms(negated, depth)]
        while self._is_joining_word("or"):
            self._at += 1
            parts.append(self._read_joined_terms(negated, depth))
        return _combine_ways(parts) if negated else _join_alternatives(parts)

    def _read_joined_terms(self, negated: bool, depth: int) -> list[Way]:
        """Read terms that are joined by `and` or by nothing."""
        parts = [self._read_one_term(negated, depth)]
        while self._has_more() and not self._is_joining_word("or"):
            self._at += self._is_joining_word("and")
            parts.append(self._read_one_term(negated, depth))
        return _join_alternatives(parts) if negated else _combine_ways(parts)

    def _read_one_term(self, negated: bool, depth: int) -> list[Way]:
        """Read a single term, or a query in parentheses, with any `not` in front.

        Args:
            negated: Whether to return the opposite of what is read.
            depth: How many parentheses are open.

        Returns:
            The alternatives, of which at least one must hold.

        Raises:
            WrongQueryError: There is nothing between two parentheses.
        """
        if self._is_joining_word("not"):
            self._at += 1
            return self._read_one_term(not negated, depth)
        token = self._tokens[self._at]
        self._at += 1
        if isinstance(token, Written):
            return [(token._replace(excluded=token.excluded ^ negated),)]
        if not self._has_more():
            raise WrongQueryError("nothing between ( and )")
        ways = self.either(negated ^ (token == _NOT_OPEN), depth + 1)
        self._at += 1  # the parenthesis that closes
        return ways

    def _has_more(self, further: int = 0) -> bool:
        """Return whether something that can be read follows before the parentheses end.

        Args:
            further: How many tokens to skip before looking.
        """
        at = self._at + further
        return at < len(self._tokens) and self._tokens[at] != _CLOSE

    def _is_joining_word(self, word: str) -> bool:
        """Return whether the next token is a joining word: `and`, `or` or `not`.

        At the end of a query or of parentheses it joins nothing, and is a term.
        """
        token = self._tokens[self._at] if self._has_more() else None
        if not isinstance(token, Written) or token.excluded or token.field:
            return False
        return token.text.lower() == word and self._has_more(1)


def _join_alternatives(parts: Sequence[list[Way]]) -> list[Way]:
    """Return the ways of parts of a query of which at least one must hold.

    A *way* is a list of terms that must all hold. So the result has all ways of all
    parts.
    """
    return _check_number_of_ways(list(chain.from_iterable(parts)))


def _combine_ways(parts: Sequence[list[Way]]) -> list[Way]:
    """Return the ways of parts of a query all of which must hold.

    A *way* is a list of terms that must all hold. E.g. for parts with the ways (a) and
    (b), (c): the ways (a, b) and (a, c).
    """
    combined: list[Way] = [()]
    for ways in parts:
        combined = _check_number_of_ways(
            [(*before, *way) for before, way in product(combined, ways)]
        )
    return combined


def _check_number_of_ways(ways: list[Way]) -> list[Way]:
    """Return the ways of a query unchanged if they are not too many.

    Combining parts multiplies the numbers of their ways, so a short text may have very
    many.

    Raises:
        WrongQueryError: There are too many ways.
    """
    if len(ways) > MAX_WAYS:
        raise WrongQueryError(
            f"this expands to more than {MAX_WAYS} alternatives: simplify it"
        )
    return ways
