"""What a person searches for: `gemm`, `family:gemm dur>50us stream:7`, `/tn_.*fp8/ -memset`.

    query  = term*                 every term must hold
    term   = [-] (word | "text" | /pattern/ | field:value | field<time | field>time)

A word is looked for in names, short names, families and decoded fields, then in args and shapes, a
value in its field. Case matters only if a word has capitals.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.text.errors import Error
from fusetui.text.figures import parse_time

if TYPE_CHECKING:
    import regex

KINDS: Final = ("kernel", "memcpy", "memset", "op", "call", "python", "annotation", "sync")
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
FIELDS: Final = {**OF_NAMES, **OF_ROWS, **OF_ARGS, **TIMES}
"""What each field is, in a few words."""

LONGEST = 500  # characters of a query
SECONDS = 2.0  # that a pattern may take
TERM = re.compile(r'-?(?:/(?:[^/\\]|\\.)+/(?=\s|$)|[a-z]+:"[^"]*"|"[^"]*"|\S+)')
BOUND = re.compile(r"([a-z]+)([<>])(.*)", re.DOTALL)
FIELD = re.compile(r"([a-z]+):(?!:)(.*)", re.DOTALL)


class WrongQuery(Error):  # noqa: N818
    """One plain sentence about what is wrong with a query."""


class Word(msgspec.Struct, frozen=True):
    """`field` "" stands for all that a name says."""

    field: str
    text: str
    excluded: bool = False

    @property
    def folds(self) -> bool:
        """Whether case does not matter."""
        return self.text == self.text.lower()


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression that some part of the name matches."""

    text: str
    excluded: bool = False


class Bound(msgspec.Struct, frozen=True):
    """A time (ns) that is exceeded, or not reached."""

    field: str
    above: bool
    ns: int
    excluded: bool = False


Term = Word | Pattern | Bound


class Query(msgspec.Struct, frozen=True):
    """All of these hold for a hit."""

    terms: tuple[Term, ...]

    @property
    def is_quick(self) -> bool:
        """Whether names alone decide."""
        return not self.reads_args and not any(isinstance(term, Pattern) for term in self.terms)

    @property
    def reads_args(self) -> bool:
        """Whether the file is read again for the answer."""
        return any(isinstance(term, Word) and term.field in OF_ARGS for term in self.terms)

    @property
    def is_of_longest(self) -> bool:
        """Whether it asks for what takes longer than a time."""
        bounds = [term for term in self.terms if isinstance(term, Bound) and term.field == "dur"]
        return any(bound.above != bound.excluded for bound in bounds)

    @property
    def words(self) -> tuple[Word, ...]:
        """Those that args may contain where names do not."""
        words = (term for term in self.terms if isinstance(term, Word) and not term.field)
        return tuple(word for word in words if not word.excluded)


def parse(text: str) -> Query:
    """The query that a text says; without terms if it is blank. Raises WrongQuery.

    >>> parse("family:gemm dur>50us").terms[1]
    Bound(field='dur', above=True, ns=50000, excluded=False)
    """
    if len(text) > LONGEST:
        raise WrongQuery(f"a search has at most {LONGEST} characters")
    return Query(tuple(_term(found[0]) for found in TERM.finditer(text)))


def _term(text: str) -> Term:
    excluded = text.startswith("-") and len(text) > 1
    text = text[1:] if excluded else text
    if len(text) > 2 and text[0] == text[-1] == "/":
        compiled(text[1:-1])
        return Pattern(text[1:-1], excluded)
    bound, field = BOUND.fullmatch(text), FIELD.fullmatch(text)
    if bound and bound[1] in TIMES:
        ns = parse_time(bound[3])
        if ns is None or ns < 0:
            raise WrongQuery(f"{bound[1]}{bound[2]} takes a time with its unit: {bound[1]}>50us")
        return Bound(bound[1], bound[2] == ">", ns, excluded)
    if field and field[1] in FIELDS:
        if field[1] in TIMES:
            raise WrongQuery(f"{field[1]} is compared: {field[1]}>50us or {field[1]}<2ms")
        return Word(field[1], _value(field[1], field[2].strip('"')), excluded)
    return Word("", text.strip('"') or text, excluded)


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
    """A sentence about a word that looks like a field, which a person should know if nothing is
    found; "" where there is none."""
    for word in query.words:
        field, bound = FIELD.fullmatch(word.text), BOUND.match(word.text)
        if field:
            return f"{field[1]} is no field, so {word.text} was looked for as a word"
        if bound and bound[1] in FIELDS:
            example = f"{bound[1]}:{bound[3] or '...'}"
            return f"only {' and '.join(TIMES)} are compared: {example} looks for {bound[1]}"
    return ""


def compiled(pattern: str) -> regex.Pattern[str]:
    """The pattern; lower case finds upper case too. Raises WrongQuery for what is none."""
    import regex  # only a pattern needs it

    try:
        return regex.compile(pattern, regex.IGNORECASE if pattern == pattern.lower() else 0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise WrongQuery(f"/{pattern}/ is no regular expression: {error}") from None


def matching(pattern: str, names: Sequence[str], seconds: float = SECONDS) -> NDArray[np.bool_]:
    """Which names some part of matches. Raises WrongQuery for a wrong pattern, and for one that
    takes longer than `seconds`."""
    search, end = compiled(pattern).search, time.monotonic() + seconds
    found = np.zeros(len(names), dtype=np.bool_)
    try:
        for place, name in enumerate(names):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            found[place] = search(name, timeout=left, concurrent=True) is not None
    except TimeoutError:
        raise WrongQuery(f"/{pattern}/ takes longer than {seconds:g} s: make it simpler") from None
    return found
