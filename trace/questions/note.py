"""What a trace says of itself that whoever looks at its figures must know."""

from __future__ import annotations

from fusetui.trace.model.columns import Trace
from fusetui.trace.text.printable import printable

RECONSTRUCTED = "reconstructed"
"""The top-level key of a trace that nobody recorded; its value says where it is from."""
LONGEST = 300


def note_of(trace: Trace) -> str:
    """That the trace is reconstructed and not recorded, in one printable line; else "".

    Whoever shows figures of a trace shows this with them.
    """
    value = trace.keys.get(RECONSTRUCTED)
    return printable(value)[:LONGEST] if isinstance(value, str) else ""
