"""The ids of processes, threads, devices and streams, and their labels."""

from __future__ import annotations

Id = int | str | None

LARGEST = 2**53 - 1
"""Beyond this magnitude doubles, which jq and JavaScript use, cannot represent every
integer."""


def exact_id(value: Id) -> Id:
    """A pid or tid in a form that every JSON reader keeps exactly: a text if it is an
    integer too large for a double."""
    return str(value) if isinstance(value, int) and abs(value) > LARGEST else value


def device_label(device: Id) -> str:
    """The label of a GPU: `GPU 0`, or `GPU` if the trace does not say which."""
    return f"GPU {device}" if isinstance(device, int) else str(device or "GPU")


def stream_label(stream: Id) -> str:
    """The label of a stream: `stream 7`, or `events` if the trace does not say which."""
    return f"stream {stream}" if isinstance(stream, int) else str(stream or "events")
