"""`open` and `tutor` start the app in this terminal with the traces that the user
selects; `watch` opens each new trace of a folder. A report of Nsight Systems is
exported by nsys, if it is there and the user wants it, into the folder of the cache,
where the export is found again."""

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
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from fusetui import debug_log, sample_traces
from fusetui.command_line.arguments import ROWS
from fusetui.commands import terminal
from fusetui.commands.about import lines_about
from fusetui.commands.errors import DONE, CommandError, say
from fusetui.commands.loading import captures_named
from fusetui.commands.sources import (
    ENDINGS,
    LESSON,
    RECORDED_PREFIX,
    SAMPLE,
    NamedFiles,
    changed,
    dumps_in,
    folders_below,
    is_run,
    listed,
    traces,
    with_dumps_apart,
)
from fusetui.commands.terminal import has_terminal, needs_ascii
from fusetui.report.output import emit
from fusetui.sample_traces import lessons
from fusetui.signals import ENDED, HUNG_UP, SignalInterrupt
from fusetui.text.figures import size
from fusetui.trace.cache.folder import cache_folder, is_own_file
from fusetui.trace.formats import looks_like_a_trace
from fusetui.trace.read.source import is_remote
from fusetui.tui.recent_traces import (
    make_recent_offers,
    make_written_offer,
    recent_traces,
)
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.tour import LESSONS

SIDES = 2
"""Traces, or snapshots, that are shown side by side."""

MAX_NEWEST = 9
"""Of the traces of a folder that are offered, and as many runs."""

MAX_OFFERS = 200
"""Of what is in a folder of folders."""

MAX_LOOKED_AT = 50
"""Of the newest files: not every .json is a trace."""

RECORDERS = "run or record"
"""The commands that make folders of RECORDED_PREFIX."""

DEMO_RUNS = "runs"
"""The folder in which make demo puts its runs."""

HINT = "Open one with fusetui open NAME; fusetui --help lists all commands."


def run_open(args: Namespace) -> int:
    """The app, with what the user names or chooses; returns its exit code."""
    if not args.traces and not args.memory:
        return start(**_look(args))
    captures = captures_named(args.captured_by)
    return browse(
        args.traces,
        args.memory,
        captured_by=captures,
        compile_log=args.compile_log,
        **_look(args),
    )


def run_tutor(args: Namespace) -> int:
    """A guided tour of the app, on a lesson. Raises CommandError if there is no
    terminal."""
    if not has_terminal():
        raise CommandError(
            "fusetui tutor needs a terminal; docs/tour.md describes the same steps."
        )
    paths = [str(lessons.path(name)) for name in LESSONS]
    return show(paths, opened=1, tour=True, **_look(args))


def _look(args: Namespace) -> dict[str, Any]:
    """The options of `show` that say how the app looks."""
    return {"ascii_only": args.ascii, "theme": args.theme, "mouse": args.mouse}


def browse(names: Sequence[str], memory: Sequence[str] = (), **options: Any) -> int:
    """Runs the app and returns its exit code; of more than two names the user chooses.
    `memory`: snapshots, as any of the names may be. `options` are those of `show`.

    Raises CommandError if there is no terminal, if there is no trace behind a name, or
    if the user's keys.toml is wrong.
    """
    named = with_dumps_apart(names)
    if not has_terminal():
        return _without_terminal(named)
    if named.dumps:
        options["dumps"] = named.dumps
    snapshots = [*(name for name in named.others if is_snapshot(name)), *memory]
    if snapshots:
        _check_snapshots(snapshots)
        options["memory"] = snapshots
    names = [name for name in named.others if name not in snapshots]
    if not names:
        return show([], **options)
    if len(names) == 1:
        folders = folders_below(names[0])
        if len(folders) > 1:
            return show([], opened=0, offers=found_below(folders), **options)
    paths = _traces_of_all(names, but=named.dumps)
    is_job = len(names) == 1 and len(paths) > 1 and not is_run(names[0])
    user_chooses = is_job or len(names) > SIDES
    return show(paths, opened=0 if user_chooses else SIDES, **options)


def _without_terminal(named: NamedFiles) -> int:
    """The answer of dumps alone, which is a text. Raises CommandError for anything
    else."""
    if named.dumps and not named.others:
        from fusetui.commands.hang import tell

        return tell(named.dumps, top=ROWS)
    raise CommandError(
        "fusetui open needs a terminal: use fusetui summary or diff instead."
    )


def _traces_of_all(names: Sequence[str], but: Sequence[str]) -> list[str]:
    """The traces behind all names, without the files of `but`. Raises CommandError for
    one that does not exist."""
    paths: list[str] = []
    for name in names:
        traces_of_name = _traces_of(name, every=len(names) != SIDES)
        paths += [path for path in traces_of_name if path not in but]
    for path in paths:
        if path == "-" or not (is_remote(path) or Path(path).is_file()):
            raise CommandError(f"{path} cannot be opened: no such file.")
    return paths


def _check_snapshots(paths: Sequence[str]) -> None:
    """Raises CommandError for too many, and for what does not exist."""
    if len(paths) > SIDES:
        raise CommandError(f"fusetui open shows {SIDES} snapshots at most.")
    for path in paths:
        if not Path(path).is_file():
            raise CommandError(f"{path} cannot be opened: no such file.")


def is_snapshot(path: str) -> bool:
    """Whether a file is a memory snapshot, by its name or its first bytes: a trace is
    no pickle."""
    from fusetui.commands import memory
    from fusetui.trace.read.foreign import is_pickle

    if path.endswith(memory.ENDINGS):
        return os.path.isfile(path)
    try:
        with open(path, "rb") as file:
            return is_pickle(file.read(2))
    except (OSError, ValueError):
        return False


def _traces_of(name: str, every: bool) -> list[str]:
    """Every trace of a folder, or only the first, next to another trace. Raises
    CommandError."""
    paths = [exported(path) for path in traces(name)]
    if every:
        return paths
    if len(paths) > 1:
        say(f"{name} contains {len(paths)} traces; opening {paths[0]}.")
    return paths[:1]


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
    if theme == "auto":
        theme = settings.theme
    if theme == "auto":
        say(*terminal.ignored_colors(os.environ))
    background = terminal.background(theme, os.environ)
    terminal.prepare(os.environ)
    is_ascii_asked = ascii_only or settings.ascii
    from fusetui.tui import app  # imports Textual, which reads the environment

    debug_log.leave_terminal()
    return app.run(
        paths,
        ascii_only=is_ascii_asked or needs_ascii(os.environ, sys.stderr.encoding),
        light=background.is_light,
        mouse=settings.mouse if mouse is None else mouse,
        typed=background.typed,
        say=say,
        **options,
    )


def start(**look: Any) -> int:
    """Lets the user choose in the app, or lists what there is; returns the exit
    code."""
    offers = start_offers(Path())
    if has_terminal():
        return show([], opened=0, offers=offers, **look)
    lines: list[str] = []
    for offer in offers:
        lines += lines_about(offer.label, offer.about)
    emit("\n".join([*lines, "", HINT]))
    return DONE


def start_offers(folder: Path) -> list[Offer]:
    """What is in a folder, then recent traces from anywhere, what was recorded first,
    then what ships with fusetui."""
    offers = list(found_in(folder))
    known = [path for offer in offers for path in offer.paths]
    entries = recent_traces()
    written = [entry for entry in entries if entry.written_by]
    opened = [entry for entry in entries if not entry.written_by]
    for some in (written, opened):
        recent = make_recent_offers(some, known)[:MAX_NEWEST]
        offers += recent
        known += [path for offer in recent for path in offer.paths]
    return [*offers, *_shipped()]


def found_in(folder: Path) -> Iterator[Offer]:
    """The newest traces, runs and recordings of a folder."""
    newest_files = _by_age(folder)[:MAX_LOOKED_AT]
    newest_traces = (path for path in newest_files if looks_like_a_trace(str(path)))
    for path in islice(newest_traces, MAX_NEWEST):
        yield _trace(path)
    entries = (*listed(folder), *listed(folder / DEMO_RUNS))
    runs = [path for path in entries if is_run(str(path))]
    for path in heapq.nlargest(MAX_NEWEST, runs, key=changed):
        yield from _run(path)
    recorded = [path for path in entries if _is_recorded(path)]
    for path in heapq.nlargest(MAX_NEWEST, recorded, key=changed):
        yield from _recording(path)


def found_below(folders: Sequence[str]) -> list[Offer]:
    """At most MAX_OFFERS runs and traces of these folders; a run is one offer. No trace
    is read."""
    all_offers = chain.from_iterable(_inside(folder) for folder in folders)
    offers = list(islice(all_offers, MAX_OFFERS + 1))
    if len(offers) > MAX_OFFERS:
        say(
            f"There are more than {MAX_OFFERS} runs and traces: only the newest are listed."
        )
    return offers[:MAX_OFFERS]


def _inside(folder: str) -> Iterator[Offer]:
    """The run that a folder is, or its traces, the newest first."""
    if is_run(folder):
        yield from _run(Path(folder))
        return
    paths = [Path(path) for path in traces(folder)]
    for path in sorted(paths, key=changed, reverse=True):
        yield _trace(path)


def _by_age(folder: Path) -> list[Path]:
    """The files that may be traces, the newest first."""
    files = [
        path
        for path in listed(folder)
        if path.name.endswith(ENDINGS) and path.is_file()
    ]
    return sorted(files, key=changed, reverse=True)


def _trace(path: Path) -> Offer:
    about = f"{_when(path)}   {size(path.stat().st_size)}"
    return Offer(str(path), (str(path),), about)


def _run(path: Path) -> Iterator[Offer]:
    """The variants of a run; nothing if there is none, as after a capture that
    failed."""
    with suppress(CommandError):
        paths = tuple(traces(str(path)))
        names = ", ".join(Path(name).name.partition(".")[0] for name in paths)
        yield Offer(f"{path}/", paths, f"{_when(path)}   run: {names}")


def _is_recorded(folder: Path) -> bool:
    """Whether it is named as the folders that `run` and `record` make, and is no
    run."""
    is_named_so = folder.name.startswith(RECORDED_PREFIX)
    return is_named_so and folder.is_dir() and not is_run(str(folder))


def _recording(folder: Path) -> Iterator[Offer]:
    """What `run` or `record` wrote into a folder, its traces or its dumps, with the
    command that opens it; nothing if there is neither."""
    name = f"{folder}{os.sep}"
    dumps = dumps_in(str(folder))
    if dumps:
        yield make_written_offer(
            name, dumps, changed(folder), RECORDERS, are_dumps=True
        )
        return
    with suppress(CommandError):
        paths = traces(str(folder))
        yield make_written_offer(
            name, paths, changed(folder), RECORDERS, are_dumps=False
        )


def _shipped() -> Iterator[Offer]:
    paths = tuple(str(lessons.path(name)) for name in LESSONS[:1])
    yield Offer(
        "tutor", paths, "a guided tour of the app, in five minutes", is_tour=True
    )
    for prefix, catalog in ((LESSON, lessons), (SAMPLE, sample_traces)):
        for name in catalog.names():
            paths = (str(catalog.path(name)),)
            yield Offer(prefix + name, paths, catalog.describe(name))


def _when(path: Path) -> str:
    """The minute in which a file was written."""
    return f"{datetime.fromtimestamp(changed(path)):%Y-%m-%d %H:%M}"


POLL_SECONDS = 0.5
"""Between two looks at a folder; a file that is the same in both is whole."""


def run_watch(args: Namespace) -> int:
    """Runs until it is interrupted; returns the exit code of the signal that ended it.
    Raises CommandError without a terminal or a folder."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder.")
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
    for path in _by_age(folder):
        if looks_like_a_trace(str(path)):
            return path
    return None


def waited_for(folder: Path, shown: Path | None) -> Path:
    """The newest trace once it is another than the one shown, or that one was written
    again. Raises SignalInterrupt when the terminal is gone."""
    state_shown = _state(shown)
    previous = state_shown
    while True:
        current = _state(newest(folder))
        is_whole = current == previous
        if current is not None and is_whole and current != state_shown:
            return current.path
        previous = current
        time.sleep(POLL_SECONDS)
        if not has_terminal():
            # a terminal may go away without a signal, as with nohup
            raise SignalInterrupt(HUNG_UP)


class _FileState(NamedTuple):
    """What tells a file from another one, and from itself while it is written."""

    path: Path
    changed: float
    size_bytes: int


def _state(path: Path | None) -> _FileState | None:
    if path is None:
        return None
    return _FileState(path, changed(path), path.stat().st_size)


def exported(path: str) -> str:
    """The export of a report; of any other file, and where nothing can be exported, the
    path.

    Asks before it exports. An export of another user in a shared cache folder is not
    used. Raises CommandError if nsys fails.
    """
    if not (path.endswith(".nsys-rep") and os.path.isfile(path)):
        return path
    place = _place(path)
    if place is None:
        return path
    if not is_own_file(place):
        nsys = shutil.which("nsys")
        if nsys is None or not sys.stdin.isatty():
            return path
        say(
            f"{path} is an Nsight Systems report. Export it with nsys to {place}? [y/N]"
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return path
        _export(nsys, path, place)
    return str(place)


def _place(path: str) -> Path | None:
    """Where the export of a report is kept, a file for each state of the report; None
    if the cache is off."""
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
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true"]
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as private:
            export = Path(private, place.name)
            done = subprocess.run(
                [*command, "--output", str(export), os.path.abspath(path)],
                stdout=sys.stderr,
                check=False,
            )
            if done.returncode != 0:
                raise CommandError(
                    f"nsys could not export {path}: it exited with code "
                    f"{done.returncode}."
                )
            export.replace(place)
    except OSError as error:
        raise CommandError(f"nsys cannot export {path}: {error.strerror}.") from None
    say(f"Exported to {place}; the file stays there until you remove it.")
