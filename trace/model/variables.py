"""Amounts in variables of the environment."""

from __future__ import annotations

import math


def amount(text: str) -> float | None:
    """The number in the value of a variable; None if it is none, or not finite, or negative.

    >>> amount("0.5"), amount("-1"), amount("")
    (0.5, None, None)
    """
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None
