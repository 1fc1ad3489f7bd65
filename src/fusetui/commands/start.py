"""What there is to open if nothing was named: traces and runs in this folder, tutor, lessons."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from fusetui.commands.errors import DONE, CommandError, say
from fusetui.commands.folders import ENDINGS, changed, listed
from fusetui.commands.samples import lines_about
from fusetui.commands.showing import show
from fusetui.commands.sources import LESSON, SAMPLE, is_run, traces
from fusetui.commands.terminal import has_terminal

if TYPE_CHECKING:
    from fusetui.tui.state.state import Offer

NEWEST = 9  # traces, and as many runs
MOST = 200  # of what is in a folder of folders
LOOKED_AT = 50  # of the newest files: not every .json is a trace
RUNS = "runs"  # the folder in which make demo puts its runs
HINT = "fusetui open NAME opens one of them; fusetui --help lists all commands."


def start(ascii_only: bool = False, mouse: bool | None = None, theme: str = "auto") -> int:
    """Lets the user choose in the app, or prints the list if there is no terminal; returns the exit
    code."""
    offers = list(found_in(Path()))
    if not has_terminal():
        from fusetui.report.output import emit

        lines = [line for offer in offers for line in lines_about(offer.label, offer.about)]
        emit("\n".join([*lines, "", HINT]))
        return DONE
    return show([], opened=0, ascii_only=ascii_only, theme=theme, mouse=mouse, offers=offers)


def found_in(folder: Path) -> Iterator[Offer]:
    """The newest traces and runs of a folder, then what ships with fusetui."""
    yield from _traces(folder)
    yield from _runs(folder)
    yield from _shipped()


def found_below(folders: Sequence[str]) -> list[Offer]:
    """At most MOST of what is in run folders and folders of traces; a run is one offer. No trace is
    read."""
    found = list(islice((offer for name in folders for offer in _inside(name)), MOST + 1))
    if len(found) > MOST:
        say(f"There are more than {MOST} runs and traces: only the newest are listed.")
    return found[:MOST]


def _inside(name: str) -> Iterator[Offer]:
    if is_run(name):
        yield from _run(Path(name))
    else:
        yield from map(_trace, sorted(map(Path, traces(name)), key=changed, reverse=True))


def _traces(folder: Path) -> Iterator[Offer]:
    from fusetui.trace.formats import looks_like_a_trace

    files = [path for path in listed(folder) if path.name.endswith(ENDINGS) and path.is_file()]
    newest = heapq.nlargest(LOOKED_AT, files, key=changed)
    for path in [path for path in newest if looks_like_a_trace(str(path))][:NEWEST]:
        yield _trace(path)


def _runs(folder: Path) -> Iterator[Offer]:
    folders = [*listed(folder), *listed(folder / RUNS)]
    runs = [path for path in folders if is_run(str(path))]
    for path in heapq.nlargest(NEWEST, runs, key=changed):
        yield from _run(path)


def _trace(path: Path) -> Offer:
    from fusetui.text.figures import size
    from fusetui.tui.state.state import Offer

    return Offer(str(path), (str(path),), f"{_when(path)}   {size(path.stat().st_size)}")


def _run(path: Path) -> Iterator[Offer]:
    """The variants of a run; nothing if there is none, as after a capture that failed."""
    from fusetui.tui.state.state import Offer

    with suppress(CommandError):
        paths = tuple(traces(str(path)))
        names = ", ".join(Path(name).name.partition(".")[0] for name in paths)
        yield Offer(f"{path}/", paths, f"{_when(path)}   run: {names}")


def _shipped() -> Iterator[Offer]:
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons
    from fusetui.tui.state.state import Offer
    from fusetui.tui.state.tour import LESSONS

    paths = tuple(str(lessons.path(name)) for name in LESSONS[:1])
    yield Offer("tutor", paths, "a guided tour of the app, in five minutes", is_tour=True)
    for prefix, shelf in ((LESSON, lessons), (SAMPLE, sample_traces)):
        for name in shelf.names():
            yield Offer(prefix + name, (str(shelf.path(name)),), shelf.describe(name))


def _when(path: Path) -> str:
    return f"{datetime.fromtimestamp(changed(path)):%Y-%m-%d %H:%M}"
