"""What a caller hears while a trace is read, and how reading ends early."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fusetui.trace.text.figures import size

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
        """`the first 340 MB of 1.007 GB`."""
        about = "" if self.exact else "about "
        return f"the first {size(self.read)} of {about}{size(self.total)}"


def silent(*_: int) -> None:
    """Nobody wants to know."""


def never() -> bool:
    """Nobody wants to stop."""
    return False
