"""Whether a person sits at a terminal."""

from __future__ import annotations

import sys


def has_terminal() -> bool:
    """Whether all standard streams are terminals.

    The app reads keys from standard input and draws on standard error.
    """
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
