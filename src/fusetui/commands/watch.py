"""`watch`: opens each new trace of a folder, for changing and profiling in turn."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from fusetui.commands.errors import CommandError, say
from fusetui.commands.open import browse
from fusetui.commands.sources import ENDINGS, changed, listed
from fusetui.commands.terminal import has_terminal
from fusetui.trace.formats import looks_like_a_trace

LOOK_S = 0.5  # between two looks; a file that is the same in both is whole


def run_watch(args: Namespace) -> int:
    """Runs until it is interrupted. Raises CommandError without a terminal or a folder."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder.")
    if not has_terminal():
        raise CommandError("fusetui watch needs a terminal: use fusetui diff A B instead.")
    shown = newest(folder)
    while True:
        beside = f", to open it beside {shown.name}" if shown else ""
        say(f"Waiting for a new trace in {folder}{beside} (Ctrl+C ends this).")
        new = waited_for(folder, shown)
        browse([str(one) for one in (shown, new) if one is not None])
        shown = new


def newest(folder: Path) -> Path | None:
    """The trace that was written last."""
    files = (path for path in listed(folder) if path.name.endswith(ENDINGS) and path.is_file())
    for path in sorted(files, key=changed, reverse=True):
        if looks_like_a_trace(str(path)):
            return path
    return None


def waited_for(folder: Path, shown: Path | None) -> Path:
    """The newest trace once it is another than the one shown, or that one was written again."""
    before = last = _state(shown)
    while True:
        found = _state(newest(folder))
        if found == last != before and found is not None:
            return found[0]
        last = found
        time.sleep(LOOK_S)


def _state(path: Path | None) -> tuple[Path, float, int] | None:
    return None if path is None else (path, changed(path), path.stat().st_size)
