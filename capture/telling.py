"""What a capture prints: results to stdout, talk to stderr. A terminal obeys nothing in it."""

from __future__ import annotations

import sys
from contextlib import suppress

from fusetui.trace.text.printable import printable, printable_lines

from .errors import CaptureError


def show(text: str) -> None:
    """Lines of a result.

    Raises CaptureError if they cannot be written, BrokenPipeError if nobody reads them any more.
    """
    try:
        print(printable_lines(text), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CaptureError(f"standard output cannot be written: {error.strerror}.") from error


def tell(line: str) -> None:
    """One line of talk; it is no failure when nobody can hear it."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)
