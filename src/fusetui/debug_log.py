"""The debug log: which way was taken where there are several, and why.

Its lines go to the logger "fusetui" at the level DEBUG, so that a program which uses
fusetui as a library sees them by its own settings. `--debug` and FUSETUI_DEBUG=1 send
them to stderr, FUSETUI_DEBUG=FILE to the end of a file.
"""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import logging

VARIABLE = "FUSETUI_DEBUG"
STDERR = "1"
OFF = ("", "0")
LOGGER = "fusetui"
FORMAT = "fusetui %(process)d %(relativeCreated)d ms: %(message)s"


def debug(message: str, *values: object) -> None:
    """Log one line, with `%` formatting.

    Nothing happens if `logging` was not imported, because then nobody listens.
    """
    if "logging" in sys.modules:
        import logging

        logging.getLogger(LOGGER).debug(message, *values, stacklevel=2)


def start(destination: str) -> None:
    """Begin to write the log.

    Args:
        destination: The value of FUSETUI_DEBUG: "1" for stderr, "" or "0" for nowhere,
            anything else names a file, to whose end lines are added. Raises OSError if
            the file cannot be written.
    """
    if destination in OFF:
        return
    import logging

    if destination == STDERR:
        stream: IO[str] = sys.stderr
    else:
        stream = open(destination, "a", encoding="utf-8")  # noqa: SIM115
    logger = logging.getLogger(LOGGER)
    logger.addHandler(_handler(stream))
    logger.setLevel(logging.DEBUG)
    logger.propagate = False


def start_from_environment() -> None:
    """Begin to write the log if FUSETUI_DEBUG says so. Raises OSError."""
    start(os.environ.get(VARIABLE, ""))


def leave_terminal() -> None:
    """Stop logging to stderr, because the app is going to draw there."""
    if "logging" not in sys.modules:
        return
    import logging

    logger = logging.getLogger(LOGGER)
    for handler in list(logger.handlers):
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            logger.removeHandler(handler)


def _handler(stream: IO[str]) -> logging.Handler:
    """Make a handler that writes lines to a stream, safe for a terminal."""
    import logging

    from fusetui.text.printable import printable, without_credentials

    class Lines(logging.StreamHandler[IO[str]]):
        """Writes what a terminal can show. That nothing can be written is no error."""

        def format(self, record: logging.LogRecord) -> str:
            return printable(without_credentials(super().format(record)))

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
            pass

    handler = Lines(stream)
    handler.setFormatter(logging.Formatter(FORMAT))
    return handler
