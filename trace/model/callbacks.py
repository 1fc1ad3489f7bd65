"""What a caller hears while a trace is read, and how reading ends early."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes in all) of the file as stored, repeatedly while it is read."""

Stop = Callable[[], bool]
"""Polled; return True to stop. What was read by then is kept."""


def silent(*_: int) -> None:
    """Nobody wants to know."""


def never() -> bool:
    """Nobody wants to stop."""
    return False
