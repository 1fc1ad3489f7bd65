"""Finds slices by a part of their name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.columns import Trace


def find(trace: Trace, text: str) -> NDArray[np.intp]:
    """Rows whose name contains `text`, in time order; case matters only if `text` has capitals.

    `text` is plain text, not a pattern: a name or a search may contain any character.
    """
    if not text:
        return np.empty(0, dtype=np.intp)
    fold = text == text.lower()
    matching = [text in (name.lower() if fold else name) for name in trace.names]
    rows = np.flatnonzero(np.array(matching or [False])[trace.name])
    return rows[np.argsort(trace.start[rows], kind="stable")]
