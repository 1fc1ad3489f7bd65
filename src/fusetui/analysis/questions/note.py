"""A trace's note about its own origin, which every user of its figures must see."""

from __future__ import annotations

from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace

RECONSTRUCTED = "reconstructed"
"""The top-level key of a trace that was not recorded; its value says where it comes from."""
LONGEST = 300


def note_of(trace: Trace) -> str:
    """A printable line that says that the trace is reconstructed, not recorded; else "".

    Any output with figures of the trace must include it.
    """
    value = trace.keys.get(RECONSTRUCTED)
    return printable(value)[:LONGEST] if isinstance(value, str) else ""
