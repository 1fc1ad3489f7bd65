"""What a person searches for: `gemm`, `family:gemm dur>50us stream:7`, `/tn_.*fp8/
-memset`.

A word is looked for in names, short names, families and decoded fields, then in args
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
    WrongQuery,
    written_ways,
)
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
    "family": "what a kernel does or its naming scheme: gemm, attention, cutlass",
    "dtype": "of a kernel: bf16, fp8",
    "tile": "of a kernel: 128x128",
    "arch": "of a kernel: sm90",
}
OF_ROWS: Final = {
    "op": "the CPU op around it, or around its launch",
    "stream": "its number",
    "thread": "its number or name",
    "kind": ", ".join(KINDS),
    "step": "the number of the step, as the trace prints it",
}
OF_ARGS: Final = {
    "shape": "of an input of its op: 8192x768",
    "args": "any text in its args",
}
TIMES: Final = {"dur": "its duration", "at": "its start after that of the trace"}
# what each field is, in a few words
FIELDS: Final = {**OF_NAMES, **OF_ROWS, **OF_ARGS, **TIMES}
SECONDS = 2.0  # that a pattern may take
COMPARED = ("<", ">", "<=", ">=")


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
        given = text.lower() if self.folds else text
        return self.text == given if self.whole else self.text in given


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
    words = (term for term in terms if isinstance(term, Word) and not term.field)
    return tuple(word for word in words if not word.excluded)


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
        return not self.reads_args and not any(
            isinstance(term, Pattern) for term in self.terms
        )

    @property
    def is_of_longest(self) -> bool:
        """Whether it asks for what takes longer than a time."""
        bounds = [
            term
            for term in self.terms
            if isinstance(term, Bound) and term.field == "dur"
        ]
        return any(bound.above != bound.excluded for bound in bounds)


def parse(text: str) -> Query:
    """The query that a text says; nothing holds for a blank one. Raises WrongQuery.

    >>> parse("family:gemm and dur > 50us").terms[1]
    Bound(field='dur', above=True, value=50000, excluded=False)
    """
    ways = written_ways(
        text,
        lambda field, sign: field in TIMES or (field in FIELDS and sign in ("=", "!=")),
    )
    return Query(tuple(tuple(map(_term, way)) for way in ways))


def _term(part: Written) -> Term:
    if pattern := pattern_of(part):
        return pattern
    if part.field in TIMES:
        ns = parse_time(part.value) if part.sign in COMPARED else None
        if part.sign not in COMPARED:
            raise WrongQuery(
                f"{part.field} is compared: {part.field}>50us or {part.field}<2ms"
            )
        if ns is None or ns < 0:
            said = f"{part.field}{part.sign}"
            raise WrongQuery(f"{said} takes a time with its unit: {said}50us")
        return bound_of(part, ns)
    if part.field in FIELDS:
        return word_of(part, _value(part.field, part.value))
    return Word("", part.text.strip('"') or part.text, part.excluded)


def pattern_of(part: Written) -> Pattern | None:
    """What stands between slashes. Raises WrongQuery for what is no regular
    expression."""
    if len(part.text) > 2 and part.text[0] == part.text[-1] == "/":
        compiled(part.text[1:-1])
        return Pattern(part.text[1:-1], part.excluded)
    return None


def bound_of(part: Written, value: float) -> Bound:
    """`>=` is what is not below."""
    above = part.sign in (">", "<=")
    return Bound(part.field, above, value, part.excluded ^ ("=" in part.sign))


def word_of(part: Written, value: str) -> Word:
    """A value that a field contains (`:`), is (`=`) or is not (`!=`)."""
    return Word(
        part.field, value, part.excluded ^ (part.sign == "!="), part.sign != ":"
    )


def _value(field: str, text: str) -> str:
    """The text after `field:`. Raises WrongQuery when no slice can have it."""
    if not text:
        raise WrongQuery(f"{field}: is followed by {FIELDS[field]}")
    if field == "kind" and text.lower() not in KINDS:
        raise WrongQuery(f"kind: is followed by one of {OF_ROWS['kind']}")
    if field == "step" and not text.isdecimal():
        raise WrongQuery("step: is followed by the number of a step: step:2")
    return text


def misread(query: Query) -> str:
    """A sentence about a word that looks like a field, which a person should know if
    nothing is found; "" where there is none."""
    for word in query.words:
        field, bound = FIELD.fullmatch(word.text), SIGN.match(word.text)
        if field:
            return f"{field[1]} is no field, so {word.text} was looked for as a word"
        if bound and bound[2] in FIELDS:
            example = f"{bound[2]}:{bound[4] or '...'}"
            return f"only {' and '.join(TIMES)} are compared: {example} looks for {bound[2]}"
    return ""


def compiled(pattern: str) -> regex.Pattern[str]:
    """The pattern; lower case finds upper case too. Raises WrongQuery for what is
    none."""
    import regex  # only a pattern needs it

    try:
        return regex.compile(
            pattern, regex.IGNORECASE if pattern == pattern.lower() else 0
        )
    except (regex.error, RecursionError, OverflowError) as error:
        raise WrongQuery(f"/{pattern}/ is no regular expression: {error}") from None


def matching(
    pattern: str, names: Sequence[str], seconds: float = SECONDS
) -> NDArray[np.bool_]:
    """Which names some part of matches. Raises WrongQuery for a wrong pattern, and for
    one that takes longer than `seconds`."""
    search, end = compiled(pattern).search, time.monotonic() + seconds
    found = np.zeros(len(names), dtype=np.bool_)
    try:
        for place, name in enumerate(names):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            found[place] = search(name, timeout=left, concurrent=True) is not None
    except TimeoutError:
        raise WrongQuery(
            f"/{pattern}/ takes longer than {seconds:g} s: make it simpler"
        ) from None
    return found
