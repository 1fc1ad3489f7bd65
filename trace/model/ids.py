"""Integers that survive every JSON reader: jq and JavaScript read numbers as doubles."""

from __future__ import annotations

from fusetui.trace.model.columns import Id

LARGEST = 2**53 - 1
"""Beyond this magnitude a double tells neighbouring integers no longer apart."""


def exact_id(value: Id) -> Id:
    """An id of a process, thread or stream; as text where a double would change it."""
    return str(value) if isinstance(value, int) and abs(value) > LARGEST else value
