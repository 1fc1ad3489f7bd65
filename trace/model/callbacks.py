"""Callbacks that report progress while a trace is read, and end reading early."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called repeatedly with (bytes read, bytes in total) of the file as stored."""

Stop = Callable[[], bool]
"""Polled; return True to stop. What was read until then is kept."""


def silent(*_: int) -> None:
    """Ignores progress."""


def never() -> bool:
    """Never stops."""
    return False
