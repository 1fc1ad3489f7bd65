"""Microseconds as written in a file -> exact integer nanoseconds.

A float64 holds a decimal of three fraction digits exactly enough only below 2**43 microseconds:
its neighbours are then closer than one nanosecond. Absolute Unix times with a fraction are larger;
they are parsed from their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

EXACT_BELOW_US = float(2**43)
"""Floats below this (in microseconds) still tell every nanosecond apart."""

LIMIT_NS = 2**62
"""Times beyond this cannot be added without overflow; such an event is unreadable."""


class InexactTimes(Exception):  # noqa: N818
    """These floats lost digits of the file: decode the text instead."""


def nanoseconds(values: Sequence[int | float]) -> NDArray[np.int64]:
    """Integer or float microseconds, shape [n] -> int64 nanoseconds, shape [n].

    Raises InexactTimes when a float is too large to be exact, and OverflowError when a time does
    not fit.
    """
    types = set(map(type, values))
    if types <= {int}:
        return _from_integers(values)
    floats = np.asarray(values, dtype=np.float64)
    if not np.isfinite(floats).all():
        raise OverflowError("a time is not finite")
    if (np.abs(floats) >= EXACT_BELOW_US).any():
        raise InexactTimes
    fraction, whole = np.modf(floats)
    exact: NDArray[np.int64] = whole.astype(np.int64) * 1000
    exact += np.rint(fraction * 1000).astype(np.int64)
    return exact


def _from_integers(values: Sequence[int | float]) -> NDArray[np.int64]:
    micros = np.asarray(values, dtype=np.int64)
    if micros.size and int(np.abs(micros).max()) > LIMIT_NS // 1000:
        raise OverflowError("a time does not fit into 64 bits")
    return micros * 1000


def exact_nanoseconds(text: bytes | str) -> int:
    """The text of one JSON number (or a number in quotes), in microseconds -> nanoseconds.

    Digits beyond the nanosecond are rounded half to even. Raises ValueError for anything that is
    not a finite number of a plausible size.
    """
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    try:
        number = Decimal(plain.strip().strip('"'))
    except InvalidOperation:
        raise ValueError(f"not a number: {plain[:40]!r}") from None
    if not number.is_finite() or abs(number) > LIMIT_NS // 1000:
        raise ValueError(f"not a time: {plain[:40]!r}")
    return int((number * 1000).to_integral_value())
