"""`open`: shows the traces that the user names in the app."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui.commands.errors import CommandError, say
from fusetui.commands.folders import folders_below
from fusetui.commands.loading import captures_named
from fusetui.commands.showing import show
from fusetui.commands.sources import is_run, traces
from fusetui.commands.terminal import has_terminal
from fusetui.trace.read.remote import is_remote

if TYPE_CHECKING:
    from fusetui.tui.state.state import Offer

SIDES = 2  # traces that are shown side by side


def run(args: Namespace) -> int:
    if not args.traces:
        from fusetui.commands.start import start  # only when nothing is named

        return start(args.ascii, args.mouse, args.theme)
    captured_by = captures_named(args.captured_by)
    return browse(args.traces, args.ascii, args.mouse, args.theme, captured_by)


def browse(
    names: Sequence[str],
    ascii_only: bool = False,
    mouse: bool | None = None,
    theme: str = "auto",
    captured_by: Sequence[str] = (),
) -> int:
    """Runs the app and returns its exit code; of more than two names the user chooses.

    Raises CommandError if there is no terminal, if there is no trace behind a name, or if the
    user's keys.toml is wrong.
    """
    if not has_terminal():
        raise CommandError("fusetui open needs a terminal: use fusetui summary or diff instead.")
    if len(names) == 1 and (found := _offered(names[0])):
        return show(
            [],
            opened=0,
            ascii_only=ascii_only,
            theme=theme,
            mouse=mouse,
            offers=found,
            captured_by=captured_by,
        )
    paths = [path for name in names for path in _found(name, len(names) != SIDES)]
    for path in paths:
        if path == "-" or not (is_remote(path) or Path(path).is_file()):
            raise CommandError(f"{path} cannot be opened: there is no such file.")
    ranks = len(names) == 1 and len(paths) > 1 and not is_run(names[0])
    opened = 0 if ranks or len(names) > SIDES else SIDES
    return show(
        paths,
        opened=opened,
        ascii_only=ascii_only,
        theme=theme,
        mouse=mouse,
        captured_by=captured_by,
    )


def _offered(name: str) -> list[Offer]:
    """What to choose from in a folder of several folders with traces; [] for anything else."""
    found = folders_below(name)
    if len(found) < 2:
        return []
    from fusetui.commands.start import found_below  # imports a part of the app

    return found_below(found)


def _found(name: str, every: bool) -> list[str]:
    """Every trace of a folder, or only the first, next to another trace."""
    found = traces(name)
    if name.endswith(".nsys-rep"):
        from fusetui.commands.exporting import exported  # rarely needed

        found = [exported(path) for path in found]
    if every:
        return found
    if len(found) > 1:
        say(f"{name} contains {len(found)} traces; opening {found[0]}.")
    return found[:1]
