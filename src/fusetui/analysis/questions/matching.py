"""Regular expressions with a time limit: a pattern may take exponential time, and the names come
from a file of somebody else. Python's cannot be interrupted, those of the package regex can."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from regex import Pattern

SECONDS = 2.0


class WrongQuery(Exception):  # noqa: N818
    """One plain sentence about what is wrong with a query."""


def compiled(pattern: str) -> Pattern[str]:
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
