"""The ids of processes, threads, devices and streams, and their labels."""

from __future__ import annotations

Id = int | str | None

LARGEST = 2**53 - 1
"""Beyond this magnitude doubles, which jq and JavaScript use, cannot represent every
integer."""


def exact_id(value: Id) -> Id:
    """The id as every JSON reader preserves it: a string if a double would change
    it."""
    return str(value) if isinstance(value, int) and abs(value) > LARGEST else value


def device_label(device: Id) -> str:
    """`GPU 0`; `GPU` if the trace does not say which."""
    return f"GPU {device}" if isinstance(device, int) else str(device or "GPU")


def stream_label(stream: Id) -> str:
    """`stream 7`; `events` if the trace does not say which."""
    return f"stream {stream}" if isinstance(stream, int) else str(stream or "events")
