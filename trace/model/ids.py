"""The ids of processes, threads, devices and streams."""

from __future__ import annotations

Id = int | str | None

LARGEST = 2**53 - 1
"""Beyond this magnitude doubles, which jq and JavaScript use, cannot represent every integer."""


def exact_id(value: Id) -> Id:
    """The id as every JSON reader preserves it: a string if a double would change it."""
    return str(value) if isinstance(value, int) and abs(value) > LARGEST else value
