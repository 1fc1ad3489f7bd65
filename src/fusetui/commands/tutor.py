"""`tutor`: a guided tour of the app, on a lesson."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.errors import CommandError
from fusetui.commands.showing import show
from fusetui.commands.terminal import has_terminal


def run(args: Namespace) -> int:
    """Raises CommandError if there is no terminal."""
    if not has_terminal():
        raise CommandError("fusetui tutor needs a terminal; docs/tour.md describes the same steps.")
    return tour(args.ascii, args.mouse, args.theme)


def tour(ascii_only: bool, mouse: bool | None, theme: str = "auto") -> int:
    """Runs the app with the tour, and returns its exit code."""
    from fusetui.sample_traces import lessons
    from fusetui.tui.state.tour import LESSONS

    paths = [str(lessons.path(name)) for name in LESSONS]
    return show(paths, opened=1, ascii_only=ascii_only, theme=theme, mouse=mouse, tour=True)
