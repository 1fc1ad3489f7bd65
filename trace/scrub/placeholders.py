"""What stands in the place of what was taken out: `dir1`, `<user2>`, ... numbered as they appear.

The same text always gets the same placeholder, another text another one. A placeholder that a file
holds already stays as it is, and its number is not given again: so scrubbing twice changes nothing
more. A number tells nobody what it stands for; a hash could be found by trying names.
"""

from __future__ import annotations

import re
from collections import Counter

REMOVED = "scrubbed"
"""In the place of what nothing else needs to be told apart from."""

FOLDER = "dir"
KINDS = ("user", "host", "mail", "secret", "command")
FORM = r"(?:dir[1-9][0-9]{0,8}|<(?:user|host|mail|secret|command)[1-9][0-9]{0,8}>)"
WHOLE = re.compile(FORM)
INSIDE = re.compile(rf"(?<![A-Za-z0-9]){FORM}(?![A-Za-z0-9])")


def is_placeholder(text: str) -> bool:
    return text == REMOVED or WHOLE.fullmatch(text) is not None


class Placeholders:
    """Those of one file."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._last: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()  # of different texts that were taken out, by kind

    def reserve(self, text: str) -> None:
        """A text of the file: the placeholders in it are not given to anything else."""
        self._taken.update(INSIDE.findall(text))

    def give(self, kind: str, text: str) -> str:
        """The placeholder of a text; that of a placeholder is itself."""
        if is_placeholder(text):
            return text
        key = (kind, text)
        known = self._given.get(key)
        if known is None:
            known = self._given[key] = self._next(kind)
            self.counts[kind] += 1
        return known

    def _next(self, kind: str) -> str:
        while True:
            self._last[kind] += 1
            number = self._last[kind]
            name = f"{kind}{number}" if kind == FOLDER else f"<{kind}{number}>"
            if name not in self._taken:
                return name
