"""What there is to open if nothing was named: traces and runs in this folder, tutor, lessons."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui.commands.errors import DONE
from fusetui.commands.samples import lines_about
from fusetui.commands.showing import show
from fusetui.commands.sources import ENDINGS, LESSON, RECORD, SAMPLE, traces
from fusetui.commands.terminal import has_terminal

if TYPE_CHECKING:
    from fusetui.tui.state.offers import Offer

NEWEST = 9  # traces, and as many runs
LOOKED_AT = 50  # of the newest files: not every .json is a trace
RUNS = "runs"  # the folder in which make demo puts its runs
HINT = "fusetui open NAME opens one of them; fusetui --help lists all commands."


def start(ascii_only: bool = False, mouse: bool | None = None, theme: str = "auto") -> int:
    """Lets the user choose in the app, or prints the list if there is no terminal; returns the exit
    code."""
    offers = list(found_in(Path()))
    if not has_terminal():
        from fusetui.render.output import emit

        lines = [line for offer in offers for line in lines_about(offer.label, offer.about)]
        emit("\n".join([*lines, "", HINT]))
        return DONE
    return show([], opened=0, ascii_only=ascii_only, theme=theme, mouse=mouse, offers=offers)


def found_in(folder: Path) -> Iterator[Offer]:
    """The newest traces and runs of a folder, then what ships with fusetui."""
    yield from _traces(folder)
    yield from _runs(folder)
    yield from _shipped()


def _traces(folder: Path) -> Iterator[Offer]:
    from fusetui.trace.read.peek import looks_like_a_trace
    from fusetui.trace.text.figures import size
    from fusetui.tui.state.offers import Offer

    files = [path for path in _listed(folder) if path.name.endswith(ENDINGS) and path.is_file()]
    newest = heapq.nlargest(LOOKED_AT, files, key=_changed)
    for path in [path for path in newest if looks_like_a_trace(str(path))][:NEWEST]:
        yield Offer(str(path), (str(path),), f"{_when(path)}   {size(path.stat().st_size)}")


def _runs(folder: Path) -> Iterator[Offer]:
    from fusetui.tui.state.offers import Offer

    folders = [*_listed(folder), *_listed(folder / RUNS)]
    runs = [path for path in folders if (path / RECORD).is_file()]
    for path in heapq.nlargest(NEWEST, runs, key=_changed):
        paths = tuple(traces(str(path)))
        names = ", ".join(Path(name).name.partition(".")[0] for name in paths)
        yield Offer(f"{path}/", paths, f"{_when(path)}   run: {names}")


def _shipped() -> Iterator[Offer]:
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons
    from fusetui.tui.state.offers import Offer
    from fusetui.tui.state.tour_steps import LESSONS

    paths = tuple(str(lessons.path(name)) for name in LESSONS[:1])
    yield Offer("tutor", paths, "a guided tour of the app, in five minutes", is_tour=True)
    for prefix, shelf in ((LESSON, lessons), (SAMPLE, sample_traces)):
        for name in shelf.names():
            yield Offer(prefix + name, (str(shelf.path(name)),), shelf.describe(name))


def _listed(folder: Path) -> list[Path]:
    """What is in a folder; [] if it cannot be listed."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _changed(path: Path) -> float:
    """When it was written; 0 if that cannot be told."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _when(path: Path) -> str:
    return f"{datetime.fromtimestamp(_changed(path)):%Y-%m-%d %H:%M}"
