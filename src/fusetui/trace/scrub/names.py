"""Names of users and hosts, and secrets: learnt where a trace reveals them, removed
everywhere.

A name is found as a word in any text, in any case and next to others: `ada` in
`ada_run3`, `Ada` in `AdaModel`, not in `adapter`. Common words are not searched for: a
user may be called `max`; then `aten::max` must stay, and the name is removed only where
it is used as a user's name: after a key such as `username`, in a home folder, before an
@.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from fusetui.trace.model.op_names import aten_ops
from fusetui.trace.scrub.secrets import (
    INSIDE,
    Placeholders,
    is_placeholder,
    is_trivial,
    replaced,
    words_of,
)

SHORTEST = 3  # characters of a name that is searched for everywhere
PART = re.compile(r"[A-Za-z]+")
TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|[0-9]+")
SHORTEST_SECRET = 6  # characters; shorter ones are removed only where they were found
LONGEST = 4096
# names per file, more than any real trace has; others are removed only where found
MOST = 100_000
PUBLIC = re.compile(r"(?:aten::|cuda[A-Z]|hip[A-Z]|cu[A-Z])\w+")


@cache
def common_words() -> frozenset[str]:
    parts = {
        part for name in aten_ops() for part in PART.findall(name) + name.split("_")
    }
    operators = frozenset(word.lower() for word in (*aten_ops(), *parts))
    return operators | words_of("common_words.txt")


def is_common(name: str) -> bool:
    """Whether searching for this name everywhere would hit other things."""
    return (
        len(name) < SHORTEST or not PART.search(name) or name.lower() in common_words()
    )


class Names:
    """The names of one file."""

    def __init__(self, given: Placeholders) -> None:
        self._given = given
        self._known: dict[str, str] = {}  # in lower case -> kind of placeholder
        # lengths of known names by their first token
        self._lengths: dict[str, list[int]] = {}
        self._public: set[str] = set()

    def user(self, name: str) -> str:
        """Learns the name of a user; returns its placeholder."""
        return self._learn("user", name)

    def host(self, name: str) -> str:
        """Learns the name of a host, with and without its domain."""
        placeholder = self._learn("host", name)
        label, dot, _ = name.partition(".")
        if dot and not is_common(label) and not is_placeholder(name):
            self._learn("host", label)
        return placeholder

    def secret(self, text: str) -> str:
        if len(text) >= SHORTEST_SECRET and not is_trivial(text):
            return self._learn("secret", text)
        return self._given.give("secret", text)

    def see(self, text: str) -> None:
        """Notes a text of the file: words that occur in names of ATen and CUDA are
        kept."""
        if PUBLIC.fullmatch(text):
            self._public.update(word.lower() for word in TOKEN.findall(text))

    def scrub(self, text: str) -> str:
        """A text without the names that were learnt."""
        if not self._known:
            return text
        found = ((a, b, _lower(text[a:b])) for a, b in self._found(text))
        give = self._given.give
        return replaced(
            text, ((a, b, give(self._known[name], name)) for a, b, name in found)
        )

    def expect(self, kind: str, text: str) -> None:
        """Searches for a text that may occur nowhere in the file."""
        plain = _lower(text.strip())
        tokens = TOKEN.findall(text.strip())[:1] + TOKEN.findall(plain)[:1]
        if (
            not tokens
            or is_placeholder(text)
            or is_common(plain)
            or len(plain) > LONGEST
        ):
            return
        if plain not in self._known and len(self._known) < MOST:
            self._known[plain] = kind
            for token in {token.lower() for token in tokens}:
                lengths = {*self._lengths.get(token, ()), len(plain)}
                self._lengths[token] = sorted(lengths, reverse=True)

    def _learn(self, kind: str, text: str) -> str:
        self.expect(kind, text)
        return self._given.give(kind, _lower(text.strip()) or text)

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """The positions of learnt names, from left to right, longest first."""
        lower = _lower(text)
        spared = iter(
            [*(found.span() for found in INSIDE.finditer(text)), (len(text), len(text))]
        )
        first, last = next(spared)
        done = 0
        for token in TOKEN.finditer(text):
            begin = token.start()
            while begin >= last:
                first, last = next(spared)
            if begin < done or begin >= first:
                continue
            for length in self._lengths.get(token[0].lower(), ()):
                end = begin + length
                if end > len(text) or lower[begin:end] not in self._known:
                    continue
                if self._is_word(text, begin, end):
                    yield begin, end
                    done = end
                    break

    def _is_word(self, text: str, begin: int, end: int) -> bool:
        if _lower(text[begin:end]) in self._public:
            return False
        borders = (
            (text[begin - 1 : begin], text[begin]),
            (text[end - 1], text[end : end + 1]),
        )
        return not any(
            (
                before.isalpha()
                and after.isalpha()
                and not (before.islower() and after.isupper())
            )
            or (before.isdigit() and after.isdigit())
            for before, after in borders
        )


def _lower(text: str) -> str:
    """Lower case, letter by letter; letters that would become two are kept."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
