"""Search queries: `gemm`, `family:gemm dur>50us stream:7`, `/tn_.*fp8/ -memset`.

A word is looked for in names, short names, libraries and decoded fields, then in args
and shapes, a value in its field; after `=` and `!=` the value is all of it. `<`, `>`,
`<=` and `>=` compare. Blanks around these signs are ignored. Case matters only if a
word has capitals. `and`, `or`, `not` and parentheses join terms: query_text.py has the
grammar.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.query_text import (
    FIELD,
    SIGN,
    WrittenTerm,
    WrongQueryError,
    parse_alternatives,
)
from fusetui.gpu.kinds import SEARCHED_KINDS
from fusetui.text.figures import parse_time

if TYPE_CHECKING:
    import regex

KINDS: Final = (
    "kernel",
    "memcpy",
    "memset",
    "op",
    "call",
    "python",
    "annotation",
    "sync",
)
FIELDS_OF_NAMES: Final = {
    "name": "the full name",
    "library": "where a kernel comes from: cutlass, triton",
    "family": "the kind or library of a kernel: gemm, cutlass",
    "dtype": "of a kernel: bf16, fp8",
    "tile": "of a kernel: 128x128",
    "arch": "of a kernel: sm90",
}
FIELDS_OF_ROWS: Final = {
    "op": "the CPU op around it, or around its launch",
    "stream": "its number",
    "thread": "its number or name",
    "kind": f"what a slice is ({', '.join(KINDS)}) or what a kernel does (gemm, pointwise)",
    "step": "the number of the step, as the trace prints it",
}
FIELDS_OF_ARGS: Final = {
    "shape": "of an input of its op: 8192x768",
    "args": "any text in its args",
}
TIMES: Final = {"dur": "its duration", "at": "its start time within the trace"}
FIELDS: Final = {**FIELDS_OF_NAMES, **FIELDS_OF_ROWS, **FIELDS_OF_ARGS, **TIMES}
"""What each field is, in a few words."""

MAX_PATTERN_SECONDS: Final = 2.0  # over all names
COMPARED: Final = ("<", ">", "<=", ">=")  # signs
_EQUAL_SIGNS: Final = ("=", "!=")


class Word(msgspec.Struct, frozen=True):
    """A term that asks for a text: `gemm`, `name:gemm`, `op=aten::mm` or `-memset`."""

    field: str  # such as `op`; "" for a word that may be in any part of a name
    text: str
    excluded: bool = False  # whether the term asks for what does not have it
    whole: bool = False  # whether the text must be the whole field, not a part of it

    @property
    def ignores_case(self) -> bool:
        """Whether case does not matter: for a word without capitals."""
        return self.text == self.text.lower()

    def holds(self, text: str) -> bool:
        """Return whether a text contains this word, or is this word if it is `whole`.

        It does not look at `excluded`.
        """
        compared = text.lower() if self.ignores_case else text
        if self.whole:
            return compared == self.text
        return self.text in compared


class Pattern(msgspec.Struct, frozen=True):
    """A term between slashes: a regular expression that matches a part of the name."""

    text: str
    excluded: bool = False


class Bound(msgspec.Struct, frozen=True):
    """A term that compares a number: `dur > 50us`."""

    field: str
    above: bool  # whether the number must be larger than `value`, else smaller
    value: float  # of a time in ns
    excluded: bool = False  # whether the term asks for the opposite


Term = Word | Pattern | Bound


def list_plain_words(terms: Sequence[Term]) -> tuple[Word, ...]:
    """Return the words of a query that name no field and are not excluded.

    Such a word may be in the args of a slice, if it is not in its name.
    """
    words = []
    for term in terms:
        if isinstance(term, Word) and not term.field and not term.excluded:
            words.append(term)
    return tuple(words)


class Query(msgspec.Struct, frozen=True):
    """A query as alternatives: `a b or c` has the alternatives (a, b) and (c).

    A slice is a hit if all terms of one of the alternatives hold for it.
    """

    alternatives: tuple[tuple[Term, ...], ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of all alternatives."""
        return tuple(chain.from_iterable(self.alternatives))

    @property
    def words(self) -> tuple[Word, ...]:
        """The words without a field that are not excluded; see `list_plain_words`."""
        return list_plain_words(self.terms)

    @property
    def reads_args(self) -> bool:
        """Whether the file is read again for the answer."""
        return any(
            isinstance(term, Word) and term.field in FIELDS_OF_ARGS
            for term in self.terms
        )

    @property
    def needs_only_names(self) -> bool:
        """Whether neither args are read for the answer nor patterns are matched."""
        has_pattern = any(isinstance(term, Pattern) for term in self.terms)
        return not self.reads_args and not has_pattern

    @property
    def asks_for_longest(self) -> bool:
        """Whether a term of it asks for what takes longer than a time: `dur>50us`."""
        for term in self.terms:
            if isinstance(term, Bound) and term.field == "dur":
                asks_for_longer = term.above != term.excluded
                if asks_for_longer:
                    return True
        return False


def parse(text: str) -> Query:
    """Read the text of a query.

    >>> parse("family:gemm and dur > 50us").terms[1]
    Bound(field='dur', above=True, value=50000, excluded=False)

    Args:
        text: The text. A blank one gives a query without alternatives, which finds
            nothing.

    Raises:
        WrongQueryError: If a value does not fit its field, a pattern is no regular
            expression, or parentheses do not match.
    """
    alternatives = []
    for written_terms in parse_alternatives(text, _is_comparison):
        terms = tuple(_parse_term(written) for written in written_terms)
        alternatives.append(terms)
    return Query(alternatives=tuple(alternatives))


def _is_comparison(field: str, sign: str) -> bool:
    """Return whether a sign after a word makes the two a comparison.

    E.g. `dur>` and `op=` do, but `op>` and `x=` are parts of a word, because `op` has
    no order and `x` is no field.
    """
    if field in TIMES:
        return True
    return field in FIELDS and sign in _EQUAL_SIGNS


def _parse_term(part: WrittenTerm) -> Term:
    """Turn a term as it was written into what it asks for.

    E.g. `/tn_.*/` is a Pattern, `dur>50us` a Bound, `op:mm` a Word of the field `op`,
    and `gemm` or `"gemm"` a Word without a field.

    Raises:
        WrongQueryError: If the value does not fit the field.
    """
    pattern = parse_pattern(part)
    if pattern:
        return pattern
    if part.field in TIMES:
        return parse_bound(part, _parse_time_ns(part))
    if part.field in FIELDS:
        return parse_word(part, _check_value(part.field, part.value))
    text = part.text.strip('"') or part.text
    return Word(field="", text=text, excluded=part.excluded)


def _parse_time_ns(part: WrittenTerm) -> int:
    """Return the time that a field is compared with, in ns: 50000 of `dur>50us`.

    Raises:
        WrongQueryError: If the sign does not compare, or no time with a unit follows.
    """
    if part.sign not in COMPARED:
        raise WrongQueryError(
            f"{part.field} needs a comparison: {part.field}>50us or {part.field}<2ms"
        )
    ns = parse_time(part.value)
    if ns is None or ns < 0:
        beginning = f"{part.field}{part.sign}"
        raise WrongQueryError(f"{beginning} needs a time with a unit: {beginning}50us")
    return ns


def parse_pattern(part: WrittenTerm) -> Pattern | None:
    """Return the regular expression of a term in slashes, `/tn_.*fp8/`; else None.

    Raises:
        WrongQueryError: If it is no regular expression.
    """
    is_pattern = len(part.text) > 2 and part.text[0] == part.text[-1] == "/"
    if not is_pattern:
        return None
    expression = part.text[1:-1]
    compile_pattern(expression)
    return Pattern(text=expression, excluded=part.excluded)


def parse_bound(part: WrittenTerm, value: float) -> Bound:
    """Turn a comparison into a bound, in which there is only above or below.

    E.g. `dur>5` asks for what is above 5, and `dur>=5` for what is not below 5.

    Args:
        part: The term as it was written; its sign is <, >, <= or >=.
        value: The number that its text says, of a time in ns.
    """
    includes_value = "=" in part.sign
    if includes_value:
        is_above = part.sign == "<="  # asks for what is not above
        is_excluded = not part.excluded
    else:
        is_above = part.sign == ">"
        is_excluded = part.excluded
    return Bound(field=part.field, above=is_above, value=value, excluded=is_excluded)


def parse_word(part: WrittenTerm, value: str) -> Word:
    """Turn a term about a field into a word.

    E.g. `op:mm` asks for an op with `mm` in its name, `op=mm` for the op `mm`, and
    `op!=mm` for every other one. A minus in front of the term negates that once more.

    Args:
        part: The term as it was written; its sign is `:`, `=` or `!=`.
        value: What follows the sign.
    """
    asks_for_others = part.sign == "!="
    return Word(
        field=part.field,
        text=value,
        excluded=part.excluded != asks_for_others,
        whole=part.sign != ":",
    )


def _check_value(field: str, text: str) -> str:
    """Return the text that follows `field:` in a query, if a slice can have such a
    value.

    Raises:
        WrongQueryError: There is no text, it is no kind that exists, or no number
            of a step.
    """
    if not text:
        raise WrongQueryError(f"{field}: is followed by {FIELDS[field]}")
    if field == "kind" and text.lower() not in (*KINDS, *SEARCHED_KINDS):
        raise WrongQueryError(f"kind: is followed by {FIELDS_OF_ROWS['kind']}")
    if field == "step" and not text.isdecimal():
        raise WrongQueryError("step: is followed by the number of a step: step:2")
    return text


def explain_misread_word(query: Query) -> str:
    """Explain to a user who found nothing which word looks like a field and is none.

    E.g. "x is not a field, so x:y is searched as text". Returns "" if no word does.
    """
    for word in query.words:
        with_field = FIELD.fullmatch(word.text)
        if with_field:
            return f"{with_field[1]} is not a field, so {word.text} is searched as text"
        comparison = SIGN.match(word.text)
        if comparison and comparison["field"] in FIELDS:
            field = comparison["field"]
            comparable = " and ".join(TIMES)
            example = f"{field}:{comparison['value'] or '...'}"
            return f"only {comparable} can be compared: {example} searches for {field}"
    return ""


def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile the regular expression of a query. Case does not matter if it has no
    capitals.

    Raises:
        WrongQueryError: It is no valid regular expression.
    """
    import regex  # only a pattern needs it

    flags = regex.IGNORECASE if pattern == pattern.lower() else 0
    try:
        return regex.compile(pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        raise WrongQueryError(
            f"/{pattern}/ is not a valid regular expression: {error}"
        ) from None


def match_names(
    pattern: str, names: Sequence[str], seconds: float = MAX_PATTERN_SECONDS
) -> NDArray[np.bool_]:
    """Mark the names that contain a match of a regular expression.

    Args:
        pattern: The expression. It may come from anybody, and take exponential time.
        names: The names.
        seconds: How long the search may take over all names.

    Returns:
        A flag per name.

    Raises:
        WrongQueryError: If it is no regular expression, or takes longer.
    """
    search = compile_pattern(pattern).search
    deadline = time.monotonic() + seconds
    matches = np.zeros(len(names), dtype=np.bool_)
    try:
        for index, name in enumerate(names):
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                raise TimeoutError
            match = search(name, timeout=seconds_left, concurrent=True)
            matches[index] = match is not None
    except TimeoutError:
        raise WrongQueryError(
            f"/{pattern}/ takes longer than {seconds:g} s: make it simpler"
        ) from None
    return matches
