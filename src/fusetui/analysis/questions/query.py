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
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.query_text import (
    FIELD,
    SIGN,
    Written,
    WrongQueryError,
    written_ways,
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
OF_NAMES: Final = {
    "name": "the full name",
    "library": "where a kernel comes from: cutlass, triton",
    "family": "the kind or library of a kernel: gemm, cutlass",
    "dtype": "of a kernel: bf16, fp8",
    "tile": "of a kernel: 128x128",
    "arch": "of a kernel: sm90",
}
OF_ROWS: Final = {
    "op": "the CPU op around it, or around its launch",
    "stream": "its number",
    "thread": "its number or name",
    "kind": f"what a slice is ({', '.join(KINDS)}) or what a kernel does (gemm, pointwise)",
    "step": "the number of the step, as the trace prints it",
}
OF_ARGS: Final = {
    "shape": "of an input of its op: 8192x768",
    "args": "any text in its args",
}
TIMES: Final = {"dur": "its duration", "at": "its start time within the trace"}
FIELDS: Final = {**OF_NAMES, **OF_ROWS, **OF_ARGS, **TIMES}
"""What each field is, in a few words."""

MAX_PATTERN_SECONDS: Final = 2.0  # over all names
COMPARED: Final = ("<", ">", "<=", ">=")  # signs
_EQUAL_SIGNS: Final = ("=", "!=")


class Word(msgspec.Struct, frozen=True):
    """`field` "" stands for all that a name says. `whole`: the text is all of the
    field."""

    field: str
    text: str
    excluded: bool = False
    whole: bool = False

    @property
    def folds(self) -> bool:
        """Whether case does not matter."""
        return self.text == self.text.lower()

    def holds(self, text: str) -> bool:
        """Whether a text contains it, or is it."""
        compared = text.lower() if self.folds else text
        return self.text == compared if self.whole else self.text in compared


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression that some part of the name matches."""

    text: str
    excluded: bool = False


class Bound(msgspec.Struct, frozen=True):
    """A number that is exceeded or not reached; times are in ns."""

    field: str
    above: bool
    value: float
    excluded: bool = False


Term = Word | Pattern | Bound


def words_of(terms: Sequence[Term]) -> tuple[Word, ...]:
    """Those that args may contain where names do not."""
    return tuple(
        term
        for term in terms
        if isinstance(term, Word) and not term.field and not term.excluded
    )


class Query(msgspec.Struct, frozen=True):
    """All terms of one of its ways hold for a hit."""

    ways: tuple[tuple[Term, ...], ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for way in self.ways for term in way)

    @property
    def words(self) -> tuple[Word, ...]:
        return words_of(self.terms)

    @property
    def reads_args(self) -> bool:
        """Whether the file is read again for the answer."""
        return any(
            isinstance(term, Word) and term.field in OF_ARGS for term in self.terms
        )

    @property
    def is_quick(self) -> bool:
        """Whether names alone decide."""
        has_pattern = any(isinstance(term, Pattern) for term in self.terms)
        return not self.reads_args and not has_pattern

    @property
    def is_of_longest(self) -> bool:
        """Whether it asks for what takes longer than a time."""
        return any(
            isinstance(term, Bound)
            and term.field == "dur"
            and term.above != term.excluded
            for term in self.terms
        )


def parse(text: str) -> Query:
    """The query that a text says; nothing holds for a blank one. Raises
    WrongQueryError.

    >>> parse("family:gemm and dur > 50us").terms[1]
    Bound(field='dur', above=True, value=50000, excluded=False)
    """
    ways = []
    for written_terms in written_ways(text, _compares):
        ways.append(tuple(_term(part) for part in written_terms))
    return Query(ways=tuple(ways))


def _compares(field: str, sign: str) -> bool:
    """Whether a sign after a word compares the field of this name."""
    return field in TIMES or (field in FIELDS and sign in _EQUAL_SIGNS)


def _term(part: Written) -> Term:
    """What a written term asks for: a pattern, a bound of a time, a word of a field, or
    a word of any name. Raises WrongQueryError if its value does not fit its field."""
    pattern = pattern_of(part)
    if pattern:
        return pattern
    if part.field in TIMES:
        return bound_of(part, _time_ns(part))
    if part.field in FIELDS:
        return word_of(part, _value(part.field, part.value))
    text = part.text.strip('"') or part.text
    return Word(field="", text=text, excluded=part.excluded)


def _time_ns(part: Written) -> int:
    """The time that a field is compared with. Raises WrongQueryError if it is not."""
    if part.sign not in COMPARED:
        raise WrongQueryError(
            f"{part.field} needs a comparison: {part.field}>50us or {part.field}<2ms"
        )
    ns = parse_time(part.value)
    if ns is None or ns < 0:
        beginning = f"{part.field}{part.sign}"
        raise WrongQueryError(f"{beginning} needs a time with a unit: {beginning}50us")
    return ns


def pattern_of(part: Written) -> Pattern | None:
    """What stands between slashes. Raises WrongQueryError for what is no regular
    expression."""
    is_pattern = len(part.text) > 2 and part.text[0] == part.text[-1] == "/"
    if not is_pattern:
        return None
    expression = part.text[1:-1]
    compiled(expression)
    return Pattern(text=expression, excluded=part.excluded)


def bound_of(part: Written, value: float) -> Bound:
    """`>=` is what is not below, and `<=` what is not above."""
    is_negated = "=" in part.sign
    return Bound(
        field=part.field,
        above=part.sign in (">", "<="),
        value=value,
        excluded=part.excluded ^ is_negated,
    )


def word_of(part: Written, value: str) -> Word:
    """A value that a field contains (`:`), is (`=`) or is not (`!=`)."""
    is_negated = part.sign == "!="
    return Word(
        field=part.field,
        text=value,
        excluded=part.excluded ^ is_negated,
        whole=part.sign != ":",
    )


def _value(field: str, text: str) -> str:
    """The text after `field:`. Raises WrongQueryError when no slice can have it."""
    if not text:
        raise WrongQueryError(f"{field}: is followed by {FIELDS[field]}")
    if field == "kind" and text.lower() not in (*KINDS, *SEARCHED_KINDS):
        raise WrongQueryError(f"kind: is followed by {OF_ROWS['kind']}")
    if field == "step" and not text.isdecimal():
        raise WrongQueryError("step: is followed by the number of a step: step:2")
    return text


def misread(query: Query) -> str:
    """A sentence about a word that looks like a field, which a person should know if
    nothing is found; "" where there is none."""
    for word in query.words:
        with_field = FIELD.fullmatch(word.text)
        if with_field:
            return f"{with_field[1]} is not a field, so {word.text} is searched as text"
        comparison = SIGN.match(word.text)
        if comparison and comparison["field"] in FIELDS:
            field = comparison["field"]
            example = f"{field}:{comparison['value'] or '...'}"
            return (
                f"only {' and '.join(TIMES)} can be compared: {example} searches for "
                f"{field}"
            )
    return ""


def compiled(pattern: str) -> regex.Pattern[str]:
    """The pattern; lower case finds upper case too. Raises WrongQueryError for what is
    none."""
    import regex  # only a pattern needs it

    flags = regex.IGNORECASE if pattern == pattern.lower() else 0
    try:
        return regex.compile(pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        raise WrongQueryError(
            f"/{pattern}/ is not a valid regular expression: {error}"
        ) from None


def matching(
    pattern: str, names: Sequence[str], seconds: float = MAX_PATTERN_SECONDS
) -> NDArray[np.bool_]:
    """Which names some part of matches. Raises WrongQueryError for a wrong pattern, and
    for one that takes longer than `seconds`."""
    search = compiled(pattern).search
    deadline = time.monotonic() + seconds
    matches = np.zeros(len(names), dtype=np.bool_)
    try:
        for place, name in enumerate(names):
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                raise TimeoutError
            match = search(name, timeout=seconds_left, concurrent=True)
            matches[place] = match is not None
    except TimeoutError:
        raise WrongQueryError(
            f"/{pattern}/ takes longer than {seconds:g} s: make it simpler"
        ) from None
    return matches
