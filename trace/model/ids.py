"""What writers of traces call a process, a thread, a device or a stream."""

from __future__ import annotations

Id = int | str | None

LARGEST = 2**53 - 1
"""Beyond this magnitude doubles, which jq and JavaScript use, cannot tell neighbours apart."""


def exact_id(value: Id) -> Id:
    """The id as every JSON reader keeps it: as text where a double would change it."""
    return str(value) if isinstance(value, int) and abs(value) > LARGEST else value
