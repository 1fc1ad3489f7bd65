"""The terminal, and the app in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fusetui.commands.errors import CommandError


def has_terminal() -> bool:
    """Whether all standard streams are terminals.

    The app reads keys from standard input and draws on standard error.
    """
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def run_app(paths: Sequence[str], **options: Any) -> int:
    """Runs the app (`options` as for `tui.app.run`) and returns its exit code.

    Raises CommandError if the user's keys.toml is wrong.
    """
    from fusetui.tui import app  # imports Textual
    from fusetui.tui.keymap import KeymapError

    try:
        return app.run(paths, **options)
    except KeymapError as error:
        raise CommandError(str(error)) from None
