"""Replacements for removed text: `dir1`, `<user2>`, ... numbered in order of appearance.

Equal texts get equal placeholders, different texts different ones. A placeholder that already
occurs in a file is kept, and its number is not reused, so scrubbing twice changes nothing more. A
number does not reveal what it stands for; a hash could be inverted by trying names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

from fusetui.text.patterns import late

REMOVED = "scrubbed"  # For text that need not be distinguished from anything

FOLDER = "dir"
KINDS = ("user", "host", "mail", "secret", "command")
FORM = r"(?:dir[1-9][0-9]{0,8}|<(?:user|host|mail|secret|command)[1-9][0-9]{0,8}>)"
WHOLE = late(FORM)
INSIDE = late(rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])")


def is_placeholder(text: str) -> bool:
    return text == REMOVED or WHOLE.fullmatch(text) is not None


def replaced(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """A text with other texts in these places [begin, end), which ascend."""
    kept: list[str] = []
    done = 0
    for begin, end, new in changes:
        kept += [text[done:begin], new]
        done = end
    return "".join([*kept, text[done:]]) if kept else text


class Placeholders:
    """The placeholders of one file."""

    def __init__(self) -> None:
        self.reserved: set[str] = set()  # those of the file: they are not given to anything else
        self.counts: Counter[str] = Counter()  # number of distinct texts that were removed, by kind
        self._given: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, Iterator[int]] = {}

    def give(self, kind: str, text: str) -> str:
        """The placeholder of a text; a placeholder is kept as it is."""
        if is_placeholder(text):
            return text
        if (kind, text) not in self._given:
            numbers = self._numbers.setdefault(kind, count(1))
            form = f"{kind}{{}}" if kind == FOLDER else f"<{kind}{{}}>"
            names = map(form.format, numbers)
            self._given[kind, text] = next(name for name in names if name not in self.reserved)
            self.counts[kind] += 1
        return self._given[kind, text]
