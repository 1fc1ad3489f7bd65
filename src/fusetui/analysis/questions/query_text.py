"""Parses the text of a query into terms joined by `and`, `or`, `not` and parentheses.

    query  = all (or all)*
    all    = one ([and] one)*
    one    = not one | [-] ( query ) | term
    term   = [-] (word | "text" | /pattern/ | field:value | field = value | field > time)

The result is a list of alternatives (the disjunctive normal form). All terms of an
alternative must hold: `a (b or c)` has the alternatives `a b` and `a c`.
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
MAX_ALTERNATIVES: Final = 64
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


class WrittenTerm(NamedTuple):
    """A term as it was written, such as `-op = mm`."""

    text: str  # all of it but the minus, and without blanks: `op=mm`
    excluded: bool  # whether a minus stands before it, or a `not`
    field: str = ""  # what stands before a sign: `op`; "" for a term without a sign
    sign: str = ""
    value: str = ""  # what stands behind the sign: `mm`


Alternative = tuple[WrittenTerm, ...]
"""Terms that must all hold."""

IsSign = Callable[[str, str], bool]
"""Returns whether a word and a sign make a comparison, as `dur` and `>` do. If not, the
sign is a part of a word, as in `vector<int>`."""


def parse_alternatives(text: str, is_sign: IsSign) -> list[Alternative]:
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
    tokens = _split_into_tokens(text, is_sign)
    if not tokens:
        return []
    return _Reader(tokens).read_alternatives(negated=False, depth=0)


Token = WrittenTerm | str
"""A term or a parenthesis."""


def _split_into_tokens(text: str, is_sign: IsSign) -> list[Token]:
    """Split a text into terms and parentheses.

    E.g. `a -(b f(x))` gives a, `-(`, b, f(x), `)`. A parenthesis that closes none is a
    part of a term.

    Raises:
        WrongQueryError: If a parenthesis is not closed.
    """
    tokens: list[Token] = []
    index = 0
    depth = 0
    while index < len(text):
        if text[index].isspace():
            index += 1
        elif text.startswith(_OPEN, index):
            tokens.append(_OPEN)
            index += len(_OPEN)
            depth += 1
        elif text.startswith(_NOT_OPEN, index):
            tokens.append(_NOT_OPEN)
            index += len(_NOT_OPEN)
            depth += 1
        elif text.startswith(_CLOSE, index) and depth:
            tokens.append(_CLOSE)
            index += len(_CLOSE)
            depth -= 1
        else:
            match = _match_term_in_parentheses(text, index, depth, is_sign)
            tokens.append(_split_term(match))
            index = match.end()
    if depth:
        raise WrongQueryError('unclosed (: to search for the character, quote it: "("')
    return tokens


def _match_term_in_parentheses(
    text: str, begin: int, depth: int, is_sign: IsSign
) -> re.Match[str]:
    """Match the term that begins at some character, up to parentheses that enclose it.

    E.g. `f(x)` of the text `(f(x))`, whose last character closes the first one.

    Args:
        text: The text of the query.
        begin: The index of the character, which is no blank.
        depth: How many parentheses are open.
        is_sign: As in `_match_term`.
    """
    match = _match_term(text, begin, len(text), is_sign)
    surplus = min(depth, _count_surplus_parentheses(match[0]))
    if not surplus:
        return match
    return _match_term(text, begin, match.end() - surplus, is_sign)


def _match_term(text: str, begin: int, end: int, is_sign: IsSign) -> re.Match[str]:
    """Match the term that begins at some character, which is no blank.

    Args:
        text: The text of the query.
        begin: The index of the character.
        end: The index behind the last character that may belong to the term.
        is_sign: Decides whether the term is a comparison, of which blanks around the
            sign are a part.
    """
    comparison = SIGN.match(text, begin, end)
    if comparison and is_sign(comparison["field"], comparison["sign"]):
        return comparison
    term = _TERM.match(text, begin, end)
    assert term is not None  # it begins with no blank
    return term


def _count_surplus_parentheses(word: str) -> int:
    """Count the parentheses at the end of a word that close none of its own.

    E.g. 1 for `f(x))`, and 0 for `f(x)`.
    """
    at_end = len(word) - len(word.rstrip(_CLOSE))
    unopened = word.count(_CLOSE) - word.count(_OPEN)
    return max(0, min(at_end, unopened))


def _split_term(match: re.Match[str]) -> WrittenTerm:
    """Take the match of a term apart: into minus, field, sign and value, or one text.

    E.g. `-dur > 50us` has the field `dur`, the sign `>` and the value `50us`, and is
    excluded; `gemm` is only a text.
    """
    is_comparison = match.re.pattern == SIGN.pattern
    if is_comparison:
        field = match["field"]
        sign = match["sign"]
        value = match["value"]
        return WrittenTerm(
            text=f"{field}{sign}{value}",
            excluded=match["minus"] == "-",
            field=field,
            sign=sign,
            value=value.strip('"'),
        )

    # A minus alone is a word.
    is_excluded = match[0].startswith("-") and len(match[0]) > 1
    text = match[0].removeprefix("-") if is_excluded else match[0]
    with_field = FIELD.fullmatch(text)
    if with_field is None:
        return WrittenTerm(text=text, excluded=is_excluded)
    return WrittenTerm(
        text=text,
        excluded=is_excluded,
        field=with_field[1],
        sign=":",
        value=with_field[2].strip('"'),
    )


class _Reader:
    """Reads tokens from the left by recursive descent, one method per grammar rule.

    A method gets whether its part is negated, and then returns the alternatives of the
    opposite: `not (a b)` has the alternatives `not a` and `not b`, by De Morgan's laws.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._next = 0  # the index of the token that is read next

    def read_alternatives(self, negated: bool, depth: int) -> list[Alternative]:
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
            self._next += 1
            parts.append(self._read_joined_terms(negated, depth))
        if negated:
            return _require_all(parts)
        return _require_one(parts)

    def _read_joined_terms(self, negated: bool, depth: int) -> list[Alternative]:
        """Read terms that are joined by `and` or by nothing."""
        parts = [self._read_one_term(negated, depth)]
        while self._has_more() and not self._is_joining_word("or"):
            if self._is_joining_word("and"):
                self._next += 1
            parts.append(self._read_one_term(negated, depth))
        if negated:
            return _require_one(parts)
        return _require_all(parts)

    def _read_one_term(self, negated: bool, depth: int) -> list[Alternative]:
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
            self._next += 1
            return self._read_one_term(not negated, depth)
        token = self._tokens[self._next]
        self._next += 1
        if isinstance(token, WrittenTerm):
            is_excluded = token.excluded != negated
            return [(token._replace(excluded=is_excluded),)]

        if not self._has_more():
            raise WrongQueryError("nothing between ( and )")
        has_minus = token == _NOT_OPEN
        alternatives = self.read_alternatives(negated != has_minus, depth + 1)
        self._next += 1  # the parenthesis that closes
        return alternatives

    def _has_more(self, skipped: int = 0) -> bool:
        """Return whether something that can be read follows before the parentheses end.

        Args:
            skipped: How many tokens to skip before looking.
        """
        index = self._next + skipped
        return index < len(self._tokens) and self._tokens[index] != _CLOSE

    def _is_joining_word(self, word: str) -> bool:
        """Return whether the next token is a joining word: `and`, `or` or `not`.

        At the end of a query or of parentheses it joins nothing, and is a term.
        """
        if not self._has_more():
            return False
        token = self._tokens[self._next]
        if not isinstance(token, WrittenTerm) or token.excluded or token.field:
            return False
        return token.text.lower() == word and self._has_more(skipped=1)


def _require_one(parts: Sequence[list[Alternative]]) -> list[Alternative]:
    """Return the alternatives of parts of a query of which at least one must hold.

    These are the alternatives of all parts.
    """
    return _check_count(list(chain.from_iterable(parts)))


def _require_all(parts: Sequence[list[Alternative]]) -> list[Alternative]:
    """Return the alternatives of parts of a query all of which must hold.

    E.g. for the part `a` and the part `b or c`: the alternatives `a b` and `a c`.
    """
    combined: list[Alternative] = [()]
    for alternatives in parts:
        longer = []
        for terms_before, terms in product(combined, alternatives):
            longer.append((*terms_before, *terms))
        combined = _check_count(longer)
    return combined


def _check_count(alternatives: list[Alternative]) -> list[Alternative]:
    """Return the alternatives of a query unchanged if they are not too many.

    Combining parts multiplies the numbers of their alternatives, so a short text may
    have very many.

    Raises:
        WrongQueryError: There are too many.
    """
    if len(alternatives) > MAX_ALTERNATIVES:
        raise WrongQueryError(
            f"this expands to more than {MAX_ALTERNATIVES} alternatives: simplify it"
        )
    return alternatives
