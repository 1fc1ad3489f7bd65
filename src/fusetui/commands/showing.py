"""Runs the app in this terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from fusetui.commands.errors import CommandError, say
from fusetui.commands.settings import user_settings
from fusetui.commands.terminal import background, needs_ascii, prepare
from fusetui.commands.variables import ignored_colors


def show(
    paths: Sequence[str],
    *,
    ascii_only: bool = False,
    theme: str = "auto",
    mouse: bool | None = None,
    **options: Any,
) -> int:
    """Runs the app as fits the terminal (`options` as for `tui.app.run`); returns its exit code.
    What is not given is as the user's config.toml says.

    Raises CommandError if config.toml or keys.toml is wrong.
    """
    settings = user_settings()
    ascii_only = ascii_only or settings.ascii or needs_ascii(os.environ, sys.stderr.encoding)
    theme = theme if theme != "auto" else settings.theme
    for sentence in ignored_colors(os.environ) if theme == "auto" else ():
        say(sentence)
    light, typed = background(theme, os.environ)
    mouse = settings.mouse if mouse is None else mouse
    prepare(os.environ)
    from fusetui.tui import app  # imports Textual, which reads the environment
    from fusetui.tui.keymap import KeymapError

    try:
        return app.run(
            paths,
            ascii_only=ascii_only,
            light=light,
            mouse=mouse,
            typed=typed,
            say=say,
            **options,
        )
    except KeymapError as error:
        raise CommandError(str(error)) from None
