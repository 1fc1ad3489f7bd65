"""`open`: shows the traces that the user names in the app."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fusetui.commands.errors import CommandError, say
from fusetui.commands.sources import is_run, traces
from fusetui.commands.terminal import is_light, needs_ascii, prepare


def run(args: Namespace) -> int:
    names = [args.trace] if args.other is None else [args.trace, args.other]
    return browse(names, args.ascii, args.mouse is not False, args.theme)


def browse(
    names: Sequence[str], ascii_only: bool = False, mouse: bool = True, theme: str = "auto"
) -> int:
    """Runs the app and returns its exit code.

    Raises CommandError if there is no terminal, or if there is no trace behind a name.
    """
    if not has_terminal():
        raise CommandError("fusetui open needs a terminal: use fusetui summary or diff instead.")
    paths = [path for name in names for path in _found(name, len(names) == 1)]
    for path in paths:
        if path == "-" or not Path(path).is_file():
            raise CommandError(f"{path} cannot be opened: there is no such file.")
    ascii_only = ascii_only or needs_ascii(os.environ, sys.stderr.encoding)
    light = is_light(theme, os.environ)
    prepare(os.environ)
    from fusetui.tui import app

    ranks = len(names) == 1 and len(paths) > 1 and not is_run(names[0])
    opened = 0 if ranks else 2
    return app.run(paths, opened=opened, ascii_only=ascii_only, light=light, mouse=mouse)


def has_terminal() -> bool:
    """Whether all standard streams are terminals.

    The app reads keys from standard input and draws on standard error.
    """
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _found(name: str, alone: bool) -> list[str]:
    """All traces of a folder if it is opened alone; next to another trace, only the first."""
    found = traces(name)
    if alone:
        return found
    if len(found) > 1:
        say(f"{name} contains {len(found)} traces; opening {found[0]}.")
    return found[:1]
