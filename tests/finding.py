"""Slices by a part of their name."""

from __future__ import annotations

import numpy as np

from fusetui.trace import Trace
from fusetui.trace.model.arrays import Rows


def find(trace: Trace, text: str) -> Rows:
    """In time order; case matters only if `text` has capitals."""
    fold = text == text.lower()
    matches = trace.named(lambda name: text in (name.lower() if fold else name))
    rows = np.flatnonzero(matches[trace.name[: trace.recorded()]])
    return rows[np.argsort(trace.start[rows], kind="stable")]
