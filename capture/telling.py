"""What a capture prints: results to stdout, messages to stderr, all escaped for terminals."""

from __future__ import annotations

import sys
from contextlib import suppress

from fusetui.text.printable import printable, printable_lines

from .errors import CaptureError


def show(text: str) -> None:
    """Prints lines of a result.

    Raises CaptureError if they cannot be written, BrokenPipeError if the reader has left.
    """
    try:
        print(printable_lines(text), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CaptureError(f"Standard output cannot be written: {error.strerror}.") from error


def tell(line: str) -> None:
    """Prints one message; it is not an error if that fails."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)
