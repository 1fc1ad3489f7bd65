"""Names of users and hosts, and secrets: learned where a trace reveals them, and
removed everywhere.

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

MIN_SEARCHED_CHARS = 3  # of a name that is searched for everywhere
MAX_SEARCHED_CHARS = 4096
MIN_SECRET_CHARS = 6  # shorter ones are removed only where they were found
MAX_SEARCHED_NAMES = 100_000
"""Per file, more than any real trace has; others are removed only where found."""
LETTERS = re.compile(r"[A-Za-z]+")
TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|[0-9]+")
PUBLIC = re.compile(r"(?:aten::|cuda[A-Z]|hip[A-Z]|cu[A-Z])\w+")


@cache
def common_words() -> frozenset[str]:
    """Words of names of operators, and of a list, in lower case."""
    words = set(aten_ops())
    for name in aten_ops():
        words.update(LETTERS.findall(name))
        words.update(name.split("_"))
    return frozenset(word.lower() for word in words) | words_of("common_words.txt")


def is_common(name: str) -> bool:
    """Whether searching for this name everywhere would hit other things."""
    if len(name) < MIN_SEARCHED_CHARS or not LETTERS.search(name):
        return True
    return name.lower() in common_words()


class Names:
    """The names of one file."""

    def __init__(self, given: Placeholders) -> None:
        self._given = given
        # kind of placeholder of each known name, which is in lower case
        self._kinds: dict[str, str] = {}
        # lengths of known names by their first token, the longest first
        self._lengths: dict[str, list[int]] = {}
        self._public: set[str] = set()  # words in lower case

    def user(self, name: str) -> str:
        """Learns the name of a user; returns its placeholder."""
        return self._learn("user", name)

    def host(self, name: str) -> str:
        """Learns the name of a host, with and without its domain; returns its
        placeholder."""
        placeholder = self._learn("host", name)
        label, dot, _ = name.partition(".")
        if dot and not is_common(label) and not is_placeholder(name):
            self._learn("host", label)
        return placeholder

    def secret(self, text: str) -> str:
        """Learns a secret, if it may be searched for; returns its placeholder."""
        if len(text) >= MIN_SECRET_CHARS and not is_trivial(text):
            return self._learn("secret", text)
        return self._given.give("secret", text)

    def see(self, text: str) -> None:
        """Notes a text of the file: words that occur in names of ATen and CUDA are
        kept."""
        if PUBLIC.fullmatch(text):
            self._public.update(word.lower() for word in TOKEN.findall(text))

    def scrub(self, text: str) -> str:
        """A text without the names that were learnt."""
        if not self._kinds:
            return text
        return replaced(text, self._changes(text))

    def expect(self, kind: str, text: str) -> None:
        """Searches for a text that may occur nowhere in the file."""
        written = text.strip()
        name = _lower(written)
        # the same name may have other tokens in lower case: AdaLovelace
        first_tokens = {
            token.lower()
            for token in (*TOKEN.findall(written)[:1], *TOKEN.findall(name)[:1])
        }
        if not first_tokens or is_placeholder(text) or is_common(name):
            return
        if len(name) > MAX_SEARCHED_CHARS:
            return
        if name in self._kinds or len(self._kinds) >= MAX_SEARCHED_NAMES:
            return
        self._kinds[name] = kind
        for token in first_tokens:
            lengths = {*self._lengths.get(token, ()), len(name)}
            self._lengths[token] = sorted(lengths, reverse=True)

    def _learn(self, kind: str, text: str) -> str:
        self.expect(kind, text)
        return self._given.give(kind, _lower(text.strip()) or text)

    def _changes(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Begin, end and placeholder of each name in a text, from left to right."""
        for begin, end in self._found(text):
            name = _lower(text[begin:end])
            yield begin, end, self._given.give(self._kinds[name], name)

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """The positions of learnt names, from left to right, of those that begin at the
        same place the longest; none begins in a placeholder."""
        lower = _lower(text)
        placeholders = [match.span() for match in INSIDE.finditer(text)]
        placeholders.append((len(text), len(text)))  # so that there is a next one
        next_placeholder = 0
        done = 0
        for token in TOKEN.finditer(text):
            begin = token.start()
            while begin >= placeholders[next_placeholder][1]:
                next_placeholder += 1
            is_in_placeholder = begin >= placeholders[next_placeholder][0]
            if begin < done or is_in_placeholder:
                continue
            for length in self._lengths.get(token[0].lower(), ()):
                end = begin + length
                if end > len(text) or lower[begin:end] not in self._kinds:
                    continue
                if self._is_word(text, begin, end):
                    yield begin, end
                    done = end
                    break

    def _is_word(self, text: str, begin: int, end: int) -> bool:
        """Whether these characters are a word of their own, and not a public one."""
        if _lower(text[begin:end]) in self._public:
            return False
        return not (
            _are_one_word(text[begin - 1 : begin], text[begin])
            or _are_one_word(text[end - 1], text[end : end + 1])
        )


def _are_one_word(before: str, after: str) -> bool:
    """Whether a word goes on from one character, or none, to the next: not where a
    capital letter follows a small one."""
    if before.isdigit() and after.isdigit():
        return True
    if not (before.isalpha() and after.isalpha()):
        return False
    return not (before.islower() and after.isupper())


def _lower(text: str) -> str:
    """Lower case, letter by letter; letters that would become two are kept."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
