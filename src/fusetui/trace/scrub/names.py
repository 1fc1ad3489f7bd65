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
from collections.abc import Iterator, Sequence
from functools import cache

from fusetui.trace.model.op_names import aten_ops
from fusetui.trace.scrub.secrets import (
    INSIDE,
    Placeholders,
    is_placeholder,
    is_trivial,
    read_words,
    replaced,
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
    """The words that occur in the names of ATen operators or in a list of common words,
    in lower case."""
    words = set(aten_ops())
    for name in aten_ops():
        words.update(LETTERS.findall(name))
        words.update(name.split("_"))
    return frozenset(word.lower() for word in words) | read_words("common_words.txt")


def is_common(name: str) -> bool:
    """Whether a name must not be searched for everywhere, because other things are
    called so too. Short names and numbers are common."""
    if len(name) < MIN_SEARCHED_CHARS or not LETTERS.search(name):
        return True
    return name.lower() in common_words()


class Names:
    """The names of one file."""

    def __init__(self, given: Placeholders) -> None:
        """Start without names. `given` hands out the placeholders."""
        self._given = given
        # kind of placeholder of each known name, which is in lower case
        self._kinds: dict[str, str] = {}
        # lengths of known names by their first token, the longest first
        self._lengths: dict[str, list[int]] = {}
        self._public: set[str] = set()  # words in lower case

    def user(self, name: str) -> str:
        """Learn the name of a user, and return its placeholder."""
        return self._learn("user", name)

    def host(self, name: str) -> str:
        """Learn the name of a host, with and without its domain, and return its
        placeholder."""
        placeholder = self._learn("host", name)
        label, dot, _ = name.partition(".")
        if dot and not is_common(label) and not is_placeholder(name):
            self._learn("host", label)
        return placeholder

    def secret(self, text: str) -> str:
        """Return the placeholder of a secret. If it is long enough, it is also learned
        and removed everywhere."""
        if len(text) >= MIN_SECRET_CHARS and not is_trivial(text):
            return self._learn("secret", text)
        return self._given.give("secret", text)

    def see(self, text: str) -> None:
        """Note the words in the name of an ATen operator or a CUDA call. They are
        public, and kept even if a user is called so."""
        if PUBLIC.fullmatch(text):
            self._public.update(word.lower() for word in TOKEN.findall(text))

    def scrub(self, text: str) -> str:
        """A text in which placeholders stand for all learned names."""
        if not self._kinds:
            return text
        return replaced(text, self._changes(text))

    def expect(self, kind: str, text: str) -> None:
        """Learn a name or secret of a kind, to remove it wherever it occurs as a word.
        Common words and texts that are too long are not learned."""
        written = text.strip()
        name = _lower_keeping_length(written)
        # the same name may have other tokens in lower case: AdaLovelace
        first_tokens = {
            token.lower()
            for token in (*TOKEN.findall(written)[:1], *TOKEN.findall(name)[:1])
        }
        if not first_tokens or is_placeholder(text) or is_common(name):
            return
        if len(name) > MAX_SEARCHED_CHARS:
            return
        # a hostile file must not fill the memory with names
        if name in self._kinds or len(self._kinds) >= MAX_SEARCHED_NAMES:
            return
        self._kinds[name] = kind
        for token in first_tokens:
            lengths = {*self._lengths.get(token, ()), len(name)}
            self._lengths[token] = sorted(lengths, reverse=True)

    def _learn(self, kind: str, text: str) -> str:
        """Learn a name of a kind if it can be searched for, and return its placeholder."""
        self.expect(kind, text)
        return self._given.give(kind, _lower_keeping_length(text.strip()) or text)

    def _changes(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield begin, end and placeholder of each learned name in a text, from left to
        right."""
        for begin, end in self._found(text):
            name = _lower_keeping_length(text[begin:end])
            yield begin, end, self._given.give(self._kinds[name], name)

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each learned name in a text, from left to right.

        Of names that begin at one place the longest counts. Names inside placeholders
        are left out.
        """
        lower = _lower_keeping_length(text)
        placeholders = INSIDE.finditer(text)
        placeholder = next(placeholders, None)
        end_of_last = 0
        for token in TOKEN.finditer(text):
            begin = token.start()
            while placeholder is not None and placeholder.end() <= begin:
                placeholder = next(placeholders, None)
            is_in_placeholder = placeholder is not None and placeholder.start() <= begin
            lengths = self._lengths.get(token[0].lower())
            if lengths is None or is_in_placeholder or begin < end_of_last:
                continue
            end = self._end_of_name(text, lower, begin, lengths)
            if end is not None:
                yield begin, end
                end_of_last = end

    def _end_of_name(
        self, text: str, lower: str, begin: int, lengths: Sequence[int]
    ) -> int | None:
        """Where the learned name ends that begins at this place of a text; None if none
        does.

        Args:
            text: The text.
            lower: The same in lower case.
            begin: The place.
            lengths: The lengths of the names that may begin there, the longest first.
        """
        for length in lengths:
            end = begin + length
            is_learned = end <= len(text) and lower[begin:end] in self._kinds
            if is_learned and self._is_private_word(text, begin, end):
                return end
        return None

    def _is_private_word(self, text: str, begin: int, end: int) -> bool:
        """Whether the characters [begin, end) of a text are a word of their own, and
        not a public one."""
        if _lower_keeping_length(text[begin:end]) in self._public:
            return False
        return not (
            _are_one_word(text[begin - 1 : begin], text[begin])
            or _are_one_word(text[end - 1], text[end : end + 1])
        )


def _are_one_word(before: str, after: str) -> bool:
    """Whether two neighboring characters belong to one word. They do not where a
    capital letter follows a small one. A missing character is ""."""
    if before.isdigit() and after.isdigit():
        return True
    if not (before.isalpha() and after.isalpha()):
        return False
    return not (before.islower() and after.isupper())


def _lower_keeping_length(text: str) -> str:
    """A text in lower case, in which every character keeps its place. A letter whose
    lower case has two characters is kept."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)
