"""Runs the app in this terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from fusetui.commands.errors import CommandError
from fusetui.commands.terminal import is_light, needs_ascii, prepare


def show(
    paths: Sequence[str], *, ascii_only: bool = False, theme: str = "auto", **options: Any
) -> int:
    """Runs the app as fits the terminal (`options` as for `tui.app.run`); returns its exit code.

    Raises CommandError if the user's keys.toml is wrong.
    """
    ascii_only = ascii_only or needs_ascii(os.environ, sys.stderr.encoding)
    light = is_light(theme, os.environ)
    prepare(os.environ)
    from fusetui.tui import app  # imports Textual, which reads the environment
    from fusetui.tui.keymap import KeymapError

    try:
        return app.run(paths, ascii_only=ascii_only, light=light, **options)
    except KeymapError as error:
        raise CommandError(str(error)) from None
