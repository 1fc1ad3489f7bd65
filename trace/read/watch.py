"""What a caller hears while a trace is read, and how reading ends early."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

Progress = Callable[[int, int], None]
"""Called with (bytes read, bytes in all) of the file as stored, ever again while it is read."""

Stop = Callable[[], bool]
"""Asked ever again; once it says True, reading ends and keeps what was read."""


class Part(msgspec.Struct, frozen=True):
    """Only the first `read` bytes of the document were read, of `total`."""

    read: int
    total: int
    exact: bool = True  # false: a guess, since a packed file was not unpacked to its end

    def __str__(self) -> str:
        """`the first 340 of 1007 MB`."""
        about = "" if self.exact else "about "
        return f"the first {_megabytes(self.read)} of {about}{_megabytes(self.total)} MB"


def silent(*_: int) -> None:
    """Nobody wants to know."""


def never() -> bool:
    """Nobody wants to stop."""
    return False


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f}" if size >= 10_000_000 else f"{size / 1e6:.1f}"
