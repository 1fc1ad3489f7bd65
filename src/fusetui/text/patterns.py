"""Regular expressions that are compiled on first use, because most runs need few of
them."""

from __future__ import annotations

import re
from functools import cache
from typing import AnyStr, cast

MAX_SEARCHED_CHARS = 1 << 14  # only the beginning of a longer name is searched

compiled = cache(re.compile)
"""A pattern that is made while the program runs, compiled once."""


class _LazyPattern:
    """Has the methods of a compiled pattern. The first use of a method compiles the
    pattern and keeps the method as an attribute, so later uses cost nothing more.
    `pattern`, its source, is there without compiling."""

    def __init__(self, pattern: object, flags: int) -> None:
        """Remember a pattern without compiling it."""
        self.pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        """Compile the pattern and keep the method that is asked for. Python calls this
        only for attributes that are not kept yet."""
        method = getattr(compiled(self.pattern, self._flags), name)
        setattr(self, name, method)
        return method


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled at its first use.

    It replaces `re.compile` in modules that most runs import and do not use.

    re.error, if the pattern is wrong, is raised when it is used.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
