"""Regular expressions that are compiled when they are first used: most runs need few of
them."""

from __future__ import annotations

import re
from functools import cache
from typing import AnyStr, cast

LONGEST_NAME = 1 << 14  # characters; only the beginning of a longer name is searched

compiled = cache(re.compile)
"""A pattern that is made while the program runs, compiled once."""


class _Late:
    """What a compiled pattern offers, each method kept from its first use on."""

    def __init__(self, pattern: object, flags: int) -> None:
        self.pattern, self.given = pattern, flags

    def __getattr__(self, name: str) -> object:
        found = getattr(compiled(self.pattern, self.given), name)
        setattr(self, name, found)
        return found


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile` for patterns of modules, which most runs import and do not use.

    re.error, if the pattern is wrong, is raised when it is used.
    """
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))
