"""`open`, `tutor`: the app in this terminal, with what the user names or chooses;
`watch`: with each new trace of a folder. A report of Nsight Systems is exported by
nsys, if it is there and the user wants it, into the folder of the cache, where the
export is found again."""

from __future__ import annotations

import heapq
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from fusetui import sample_traces
from fusetui.command_line.arguments import ROWS
from fusetui.commands import terminal
from fusetui.commands.about import lines_about
from fusetui.commands.errors import DONE, CommandError, say
from fusetui.commands.loading import captures_named
from fusetui.commands.sources import (
    ENDINGS,
    LESSON,
    SAMPLE,
    changed,
    folders_below,
    is_run,
    listed,
    traces,
)
from fusetui.commands.terminal import has_terminal, needs_ascii
from fusetui.report.output import emit
from fusetui.sample_traces import lessons
from fusetui.signals import ENDED, HUNG_UP, SignalInterrupt
from fusetui.text.figures import size
from fusetui.trace.cache.folder import cache_folder, is_own_file
from fusetui.trace.formats import looks_like_a_trace
from fusetui.trace.read.foreign import HEAD, is_flight_dump
from fusetui.trace.read.remote import is_remote
from fusetui.trace.read.source import glimpse
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.tour import LESSONS

SIDES = 2  # traces that are shown side by side
NEWEST = 9  # traces, and as many runs
MOST = 200  # of what is in a folder of folders
LOOKED_AT = 50  # of the newest files: not every .json is a trace
RUNS = "runs"  # the folder in which make demo puts its runs
HINT = "fusetui open NAME opens one of them; fusetui --help lists all commands."


def run_open(args: Namespace) -> int:
    look = {"ascii_only": args.ascii, "theme": args.theme, "mouse": args.mouse}
    if not args.traces and not args.memory:
        return start(**look)
    captures = captures_named(args.captured_by)
    return browse(args.traces, captured_by=captures, memory=args.memory, **look)


def run_tutor(args: Namespace) -> int:
    """A guided tour of the app, on a lesson. Raises CommandError if there is no
    terminal."""
    if not has_terminal():
        raise CommandError(
            "fusetui tutor needs a terminal; docs/tour.md describes the same steps."
        )
    look = {"ascii_only": args.ascii, "theme": args.theme, "mouse": args.mouse}
    return show(
        [str(lessons.path(name)) for name in LESSONS], opened=1, tour=True, **look
    )


def browse(names: Sequence[str], memory: Sequence[str] = (), **options: Any) -> int:
    """Runs the app and returns its exit code; of more than two names the user chooses.
    `memory`: snapshots, as any of the names may be. `options` are those of `show`.

    Raises CommandError if there is no terminal, if there is no trace behind a name, or
    if the user's keys.toml is wrong.
    """
    if dumps := dumps_named(names):
        from fusetui.commands.hang import tell

        return tell(dumps, top=ROWS)
    if not has_terminal():
        raise CommandError(
            "fusetui open needs a terminal: use fusetui summary or diff instead."
        )
    snapshots = [*filter(is_snapshot, names), *memory]
    if snapshots:
        _check_snapshots(snapshots)
        options["memory"] = snapshots
    names = [name for name in names if name not in snapshots]
    if not names:
        return show([], **options)
    if len(names) == 1 and len(below := folders_below(names[0])) > 1:
        return show([], opened=0, offers=found_below(below), **options)
    paths = [path for name in names for path in _found(name, len(names) != SIDES)]
    for path in paths:
        if path == "-" or not (is_remote(path) or Path(path).is_file()):
            raise CommandError(f"{path} cannot be opened: there is no such file.")
    ranks = len(names) == 1 and len(paths) > 1 and not is_run(names[0])
    return show(paths, opened=0 if ranks or len(names) > SIDES else SIDES, **options)


def _check_snapshots(paths: Sequence[str]) -> None:
    """Raises CommandError for too many, and for what does not exist."""
    if len(paths) > SIDES:
        raise CommandError(f"fusetui open shows {SIDES} snapshots at most.")
    for path in paths:
        if not Path(path).is_file():
            raise CommandError(f"{path} cannot be opened: there is no such file.")


def dumps_named(names: Sequence[str]) -> list[str]:
    """The dumps of the flight recorder that are named, or that lie in folders that are
    and that hold no trace beside them; [] if anything else is named."""
    dumps: list[str] = []
    for name in names:
        if os.path.isdir(name):
            inside = _dumps_alone_in(name)
        else:
            inside = [name] if os.path.isfile(name) and _is_dump(name) else []
        if not inside:
            return []
        dumps += inside
    return dumps


def _dumps_alone_in(folder: str) -> list[str]:
    """The dumps of a folder without a trace; only that it has none is found out for
    one that has."""
    if any(map(is_run, (folder, *folders_below(folder)))):
        return []
    # dumps may be JSON as traces are
    if not all(map(_is_dump, _named_as_traces(folder))):
        return []
    from fusetui.commands.hang import dumps_in

    return dumps_in(folder)


def _named_as_traces(folder: str) -> Iterator[str]:
    """The files of a folder, or of the folders below one without any, that bear the
    name of a trace. Nothing is said about them: the user may have asked for something
    else."""
    for inner in folders_below(folder) or [folder]:
        for path in listed(Path(inner)):
            if path.name.endswith(ENDINGS) and path.is_file():
                yield str(path)


def _is_dump(path: str) -> bool:
    return is_flight_dump(glimpse(path, HEAD))


def is_snapshot(path: str) -> bool:
    """By its name or its first bytes: a trace is no pickle."""
    from fusetui.commands.memory import ENDINGS as OF_SNAPSHOTS
    from fusetui.trace.read.foreign import is_pickle

    if path.endswith(OF_SNAPSHOTS):
        return os.path.isfile(path)
    try:
        with open(path, "rb") as file:
            return is_pickle(file.read(2))
    except (OSError, ValueError):
        return False


def _found(name: str, every: bool) -> list[str]:
    """Every trace of a folder, or only the first, next to another trace."""
    found = [*map(exported, traces(name))]
    if len(found) > 1 and not every:
        say(f"{name} contains {len(found)} traces; opening {found[0]}.")
    return found if every else found[:1]


def show(
    paths: Sequence[str],
    *,
    ascii_only: bool = False,
    theme: str = "auto",
    mouse: bool | None = None,
    **options: Any,
) -> int:
    """Runs the app as fits the terminal (`options` as for `tui.app.run`); returns its
    exit code. What is not given is as the user's config.toml says. Raises Error if
    config.toml or keys.toml is wrong."""
    settings = terminal.user_settings()
    theme = theme if theme != "auto" else settings.theme
    if theme == "auto":
        say(*terminal.ignored_colors(os.environ))
    light, typed = terminal.background(theme, os.environ)
    terminal.prepare(os.environ)
    from fusetui.tui import app  # imports Textual, which reads the environment

    return app.run(
        paths,
        ascii_only=ascii_only
        or settings.ascii
        or needs_ascii(os.environ, sys.stderr.encoding),
        light=light,
        mouse=settings.mouse if mouse is None else mouse,
        typed=typed,
        say=say,
        **options,
    )


def start(**look: Any) -> int:
    """Lets the user choose in the app, or lists what there is; returns the exit
    code."""
    offers = list(found_in(Path()))
    if has_terminal():
        return show([], opened=0, offers=offers, **look)
    lines = [line for offer in offers for line in lines_about(offer.label, offer.about)]
    emit("\n".join([*lines, "", HINT]))
    return DONE


def found_in(folder: Path) -> Iterator[Offer]:
    """The newest traces and runs of a folder, then what ships with fusetui."""
    looked_at = (
        path for path in _by_age(folder)[:LOOKED_AT] if looks_like_a_trace(str(path))
    )
    yield from map(_trace, islice(looked_at, NEWEST))
    runs = (
        path for path in (*listed(folder), *listed(folder / RUNS)) if is_run(str(path))
    )
    for path in heapq.nlargest(NEWEST, runs, key=changed):
        yield from _run(path)
    yield from _shipped()


def found_below(folders: Sequence[str]) -> list[Offer]:
    """At most MOST runs and traces of these folders; a run is one offer. No trace is
    read."""
    found = list(
        islice((offer for name in folders for offer in _inside(name)), MOST + 1)
    )
    if len(found) > MOST:
        say(f"There are more than {MOST} runs and traces: only the newest are listed.")
    return found[:MOST]


def _inside(name: str) -> Iterator[Offer]:
    if is_run(name):
        yield from _run(Path(name))
    else:
        yield from map(
            _trace, sorted(map(Path, traces(name)), key=changed, reverse=True)
        )


def _by_age(folder: Path) -> list[Path]:
    """The files that may be traces, the newest first."""
    files = (
        path
        for path in listed(folder)
        if path.name.endswith(ENDINGS) and path.is_file()
    )
    return sorted(files, key=changed, reverse=True)


def _trace(path: Path) -> Offer:
    return Offer(
        str(path), (str(path),), f"{_when(path)}   {size(path.stat().st_size)}"
    )


def _run(path: Path) -> Iterator[Offer]:
    """The variants of a run; nothing if there is none, as after a capture that
    failed."""
    with suppress(CommandError):
        paths = tuple(traces(str(path)))
        names = ", ".join(Path(name).name.partition(".")[0] for name in paths)
        yield Offer(f"{path}/", paths, f"{_when(path)}   run: {names}")


def _shipped() -> Iterator[Offer]:
    paths = tuple(str(lessons.path(name)) for name in LESSONS[:1])
    yield Offer(
        "tutor", paths, "a guided tour of the app, in five minutes", is_tour=True
    )
    for prefix, shelf in ((LESSON, lessons), (SAMPLE, sample_traces)):
        for name in shelf.names():
            yield Offer(prefix + name, (str(shelf.path(name)),), shelf.describe(name))


def _when(path: Path) -> str:
    return f"{datetime.fromtimestamp(changed(path)):%Y-%m-%d %H:%M}"


LOOK_S = 0.5  # between two looks; a file that is the same in both is whole


def run_watch(args: Namespace) -> int:
    """Runs until it is interrupted; returns the exit code of the signal that ended it.
    Raises CommandError without a terminal or a folder."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder.")
    if not has_terminal():
        raise CommandError(
            "fusetui watch needs a terminal: use fusetui diff A B instead."
        )
    shown = newest(folder)
    while True:
        beside = f", to open it beside {shown.name}" if shown else ""
        say(f"Waiting for a new trace in {folder}{beside} (Ctrl+C ends this).")
        new = waited_for(folder, shown)
        code = browse([str(path) for path in (shown, new) if path is not None])
        if code >= ENDED:
            return code
        shown = new


def newest(folder: Path) -> Path | None:
    """The trace that was written last."""
    return next(
        (path for path in _by_age(folder) if looks_like_a_trace(str(path))), None
    )


def waited_for(folder: Path, shown: Path | None) -> Path:
    """The newest trace once it is another than the one shown, or that one was written
    again."""
    before = last = _state(shown)
    while True:
        found = _state(newest(folder))
        if found == last != before and found is not None:
            return found[0]
        last = found
        time.sleep(LOOK_S)
        if not has_terminal():
            # a terminal may go away without a signal, as with nohup
            raise SignalInterrupt(HUNG_UP)


def _state(path: Path | None) -> tuple[Path, float, int] | None:
    return None if path is None else (path, changed(path), path.stat().st_size)


def exported(path: str) -> str:
    """The export of a report; of any other file, and where nothing can be exported, the
    path.

    Asks before it exports. An export of another user in a shared cache folder is not
    used. Raises CommandError if nsys fails.
    """
    is_report = path.endswith(".nsys-rep") and os.path.isfile(path)
    if not is_report or (place := _place(path)) is None:
        return path
    if not is_own_file(place):
        nsys = shutil.which("nsys")
        if nsys is None or not sys.stdin.isatty():
            return path
        say(
            f"{path} is a report of Nsight Systems. Export it with nsys to {place}? [y/N]"
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return path
        _export(nsys, path, place)
    return str(place)


def _place(path: str) -> Path | None:
    """A file for each state of a report; None if the cache is off."""
    folder = cache_folder()
    if folder is None:
        return None
    state = os.stat(path)
    identity = f"{os.path.realpath(path)}\0{state.st_size}\0{state.st_mtime_ns}"
    hashed = blake2b(os.fsencode(identity), digest_size=8).hexdigest()
    return folder / "nsys" / f"{Path(path).stem}-{hashed}.sqlite"


def _export(nsys: str, path: str, place: Path) -> None:
    """Has nsys write the export into a new folder that only this user can enter, then
    moves it to `place`. Raises CommandError."""
    options = ("export", "--type", "sqlite", "--force-overwrite", "true", "--output")
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as private:
            export = Path(private, place.name)
            done = subprocess.run(
                [nsys, *options, str(export), os.path.abspath(path)],
                stdout=sys.stderr,
                check=False,
            )
            if done.returncode != 0:
                raise CommandError(
                    f"nsys could not export {path}: it ended with {done.returncode}."
                )
            export.replace(place)
    except OSError as error:
        raise CommandError(f"nsys cannot export {path}: {error.strerror}.") from None
    say(f"{place} is the export; it stays there until you remove it.")
