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
from fusetui.commands.about import format_description
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
    find_folders_below,
    is_run_folder,
    listed,
    separate_dumps,
    traces,
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
    """Run the app with the traces that the user names, or let the user choose if none
    is named. Returns the exit code."""
    if not args.traces and not args.memory:
        return start(**_appearance_options(args))
    captures = captures_named(args.captured_by)
    return browse(
        args.traces,
        args.memory,
        captured_by=captures,
        compile_log=args.compile_log,
        **_appearance_options(args),
    )


def run_tutor(args: Namespace) -> int:
    """Run the app with a guided tour on a lesson, and return the exit code. Raises
    CommandError if there is no terminal."""
    if not has_terminal():
        raise CommandError(
            "fusetui tutor needs a terminal; docs/tour.md describes the same steps."
        )
    paths = [str(lessons.path(name)) for name in LESSONS]
    return show(paths, opened=1, tour=True, **_appearance_options(args))


def _appearance_options(args: Namespace) -> dict[str, Any]:
    """Return the options of `show` that say how the app looks: characters, theme and
    mouse."""
    return {"ascii_only": args.ascii, "theme": args.theme, "mouse": args.mouse}


def browse(names: Sequence[str], memory: Sequence[str] = (), **options: Any) -> int:
    """Run the app with what the names stand for, and return its exit code. If there are
    more than two names, or traces of a job, the user chooses among them.

    `memory` names snapshots, and dumps or snapshots may be among `names` too. `options`
    are those of `show`. Raises CommandError if there is no terminal, or no trace behind
    a name.
    """
    named_files = separate_dumps(names)
    if not has_terminal():
        return _answer_without_terminal(named_files)
    if named_files.dumps:
        options["dumps"] = named_files.dumps
    snapshots = [*(name for name in named_files.others if is_snapshot(name)), *memory]
    if snapshots:
        _check_snapshots(snapshots)
        options["memory"] = snapshots
    names = [name for name in named_files.others if name not in snapshots]
    if not names:
        return show([], **options)
    if len(names) == 1:
        folders = find_folders_below(names[0])
        if len(folders) > 1:
            return show([], opened=0, offers=list_offers(folders), **options)
    paths = _find_traces(names, but=named_files.dumps)
    is_job = len(names) == 1 and len(paths) > 1 and not is_run_folder(names[0])
    user_chooses = is_job or len(names) > SIDES
    return show(paths, opened=0 if user_chooses else SIDES, **options)


def _answer_without_terminal(named: NamedFiles) -> int:
    """Print the answer about dumps as text, and return its exit code. Raises
    CommandError if anything else is to be opened, because the app needs a terminal."""
    if named.dumps and not named.others:
        from fusetui.commands.hang import tell

        return tell(named.dumps, top=ROWS)
    raise CommandError(
        "fusetui open needs a terminal: use fusetui summary or diff instead."
    )


def _find_traces(names: Sequence[str], but: Sequence[str]) -> list[str]:
    """Return the paths of the traces behind all names, without the files in `but`.
    Raises CommandError for a file that does not exist, and for standard input."""
    paths: list[str] = []
    for name in names:
        traces_of_name = _find_traces_of_name(name, every=len(names) != SIDES)
        paths += [path for path in traces_of_name if path not in but]
    for path in paths:
        if path == "-" or not (is_remote(path) or Path(path).is_file()):
            raise CommandError(f"{path} cannot be opened: no such file.")
    return paths


def _check_snapshots(paths: Sequence[str]) -> None:
    """Raise CommandError if there are more than two snapshots, or one that does not
    exist."""
    if len(paths) > SIDES:
        raise CommandError(f"fusetui open shows {SIDES} snapshots at most.")
    for path in paths:
        if not Path(path).is_file():
            raise CommandError(f"{path} cannot be opened: no such file.")


def is_snapshot(path: str) -> bool:
    """Return whether a file is a memory snapshot, by its name or its first bytes, which
    are those of a pickle. False if it cannot be read."""
    from fusetui.commands import memory
    from fusetui.trace.read.foreign import is_pickle

    if path.endswith(memory.ENDINGS):
        return os.path.isfile(path)
    try:
        with open(path, "rb") as file:
            return is_pickle(file.read(2))
    except (OSError, ValueError):
        return False


def _find_traces_of_name(name: str, every: bool) -> list[str]:
    """Return the paths of all traces behind a name if `every`, else only the first.
    Other traces that are left out are reported on stderr. Raises CommandError."""
    paths = [find_export(path) for path in traces(name)]
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
    """Run the app in this terminal, and return its exit code. Options that are not
    given are as in the user's config.toml; `options` are those of `tui.app.run`. Raises
    Error if config.toml or keys.toml is wrong."""
    settings = terminal.read_user_settings()
    if theme == "auto":
        theme = settings.theme
    if theme == "auto":
        say(*terminal.report_ignored_colors(os.environ))
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
    """Let the user choose a trace in the app; without a terminal, list what there is.
    `look` says how the app looks. Returns the exit code."""
    offers = collect_offers(Path())
    if has_terminal():
        return show([], opened=0, offers=offers, **look)
    lines: list[str] = []
    for offer in offers:
        lines += format_description(offer.label, offer.about)
    emit("\n".join([*lines, "", HINT]))
    return DONE


def collect_offers(folder: Path) -> list[Offer]:
    """Return what the user can open, without a name. The traces and runs in `folder`
    come first, then recorded and recently opened traces, and last what ships with
    fusetui."""
    offers = list(find_offers(folder))
    known = [path for offer in offers for path in offer.paths]
    entries = recent_traces()
    written = [entry for entry in entries if entry.written_by]
    opened = [entry for entry in entries if not entry.written_by]
    for some in (written, opened):
        recent = make_recent_offers(some, known)[:MAX_NEWEST]
        offers += recent
        known += [path for offer in recent for path in offer.paths]
    return [*offers, *_offer_shipped()]


def find_offers(folder: Path) -> Iterator[Offer]:
    """Yield the newest traces, runs and recordings in a folder, each kind with the
    newest first. Only the first MAX_LOOKED_AT files are examined."""
    newest_files = _sort_by_age(folder)[:MAX_LOOKED_AT]
    newest_traces = (path for path in newest_files if looks_like_a_trace(str(path)))
    for path in islice(newest_traces, MAX_NEWEST):
        yield _offer_trace(path)
    entries = (*listed(folder), *listed(folder / DEMO_RUNS))
    runs = [path for path in entries if is_run_folder(str(path))]
    for path in heapq.nlargest(MAX_NEWEST, runs, key=changed):
        yield from _offer_run(path)
    recorded = [path for path in entries if _is_recording(path)]
    for path in heapq.nlargest(MAX_NEWEST, recorded, key=changed):
        yield from _offer_recording(path)


def list_offers(folders: Sequence[str]) -> list[Offer]:
    """Return at most MAX_OFFERS runs and traces of these folders, without reading any
    trace. A run is one offer. If there are more, that is said on stderr."""
    all_offers = chain.from_iterable(_offers_of_folder(folder) for folder in folders)
    offers = list(islice(all_offers, MAX_OFFERS + 1))
    if len(offers) > MAX_OFFERS:
        say(
            f"There are more than {MAX_OFFERS} runs and traces: only the newest are listed."
        )
    return offers[:MAX_OFFERS]


def _offers_of_folder(folder: str) -> Iterator[Offer]:
    """Yield the run that a folder is, or else its traces, the newest first."""
    if is_run_folder(folder):
        yield from _offer_run(Path(folder))
        return
    paths = [Path(path) for path in traces(folder)]
    for path in sorted(paths, key=changed, reverse=True):
        yield _offer_trace(path)


def _sort_by_age(folder: Path) -> list[Path]:
    """Return the files in a folder that may be traces by their names, the newest first."""
    files = [
        path
        for path in listed(folder)
        if path.name.endswith(ENDINGS) and path.is_file()
    ]
    return sorted(files, key=changed, reverse=True)


def _offer_trace(path: Path) -> Offer:
    """Return the offer of one trace, with the time it was written and its size."""
    about = f"{_when(path)}   {size(path.stat().st_size)}"
    return Offer(str(path), (str(path),), about)


def _offer_run(path: Path) -> Iterator[Offer]:
    """Yield the offer of a run with the names of its variants. Nothing is yielded if it
    has no trace, as after a capture that failed."""
    # a run without traces is not offered
    with suppress(CommandError):
        paths = tuple(traces(str(path)))
        names = ", ".join(Path(name).name.partition(".")[0] for name in paths)
        yield Offer(f"{path}/", paths, f"{_when(path)}   run: {names}")


def _is_recording(folder: Path) -> bool:
    """Return whether a folder is named like those that `run` and `record` make, and is
    no run of `capture`."""
    is_named_so = folder.name.startswith(RECORDED_PREFIX)
    return is_named_so and folder.is_dir() and not is_run_folder(str(folder))


def _offer_recording(folder: Path) -> Iterator[Offer]:
    """Yield the offer of what `run` or `record` wrote into a folder: its dumps, or else
    its traces. Nothing is yielded if it has neither."""
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


def _offer_shipped() -> Iterator[Offer]:
    """Yield the offers of what ships with fusetui: the guided tour, the lessons and the
    samples."""
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
    """Open each new trace of a folder beside the one before, until the command is
    interrupted. Returns the code of the signal that ended the app; after any other end
    of the app, the next trace is awaited. Raises CommandError without a terminal or a
    folder."""
    folder = Path(args.folder)
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder.")
    if not has_terminal():
        raise CommandError(
            "fusetui watch needs a terminal: use fusetui diff A B instead."
        )
    shown = newest(folder)
    while True:
        beside_text = f", to open it beside {shown.name}" if shown else ""
        say(f"Waiting for a new trace in {folder}{beside_text} (press Ctrl+C to stop).")
        new = waited_for(folder, shown)
        code = browse([str(path) for path in (shown, new) if path is not None])
        if code >= ENDED:
            return code
        shown = new


def newest(folder: Path) -> Path | None:
    """Return the trace in a folder that was written last, or None if there is none."""
    for path in _sort_by_age(folder):
        if looks_like_a_trace(str(path)):
            return path
    return None


def waited_for(folder: Path, shown: Path | None) -> Path:
    """Wait for a trace in `folder` that is not the one `shown`, or is that one written
    again; return its path. Raises SignalInterrupt if the terminal is closed."""
    state_shown = _read_state(shown)
    previous = state_shown
    while True:
        current = _read_state(newest(folder))
        # a file that did not change between two looks is no longer being written
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


def _read_state(path: Path | None) -> _FileState | None:
    """Return what tells a file from its later versions: its path, time of change and
    size. None for None."""
    if path is None:
        return None
    return _FileState(path, changed(path), path.stat().st_size)


def find_export(path: str) -> str:
    """Return the path of the SQLite export of a report of Nsight Systems, made if the
    user agrees. Any other file is returned as it is, and so is a report that cannot be
    exported.

    An export that another user owns is not used, because it cannot be trusted. Raises
    CommandError if nsys fails.
    """
    if not (path.endswith(".nsys-rep") and os.path.isfile(path)):
        return path
    export_path = _export_path(path)
    if export_path is None:
        return path
    if not is_own_file(export_path):
        nsys = shutil.which("nsys")
        if nsys is None or not sys.stdin.isatty():
            return path
        say(
            f"{path} is an Nsight Systems report. Export it with nsys to {export_path}? [y/N]"
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return path
        _export_report(nsys, path, export_path)
    return str(export_path)


def _export_path(path: str) -> Path | None:
    """Return where the export of a report is kept in the cache, or None if the cache is
    off. Each state of the report (path, size, time) has its own file."""
    folder = cache_folder()
    if folder is None:
        return None
    state = os.stat(path)
    identity = f"{os.path.realpath(path)}\0{state.st_size}\0{state.st_mtime_ns}"
    hashed = blake2b(os.fsencode(identity), digest_size=8).hexdigest()
    return folder / "nsys" / f"{Path(path).stem}-{hashed}.sqlite"


def _export_report(nsys: str, path: str, place: Path) -> None:
    """Export a report with nsys, and move the result to `place`. It is written into a
    private folder first, so that no incomplete file is found there. Raises
    CommandError."""
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true"]
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as private:
            export = Path(private, place.name)
            nsys_process = subprocess.run(
                [*command, "--output", str(export), os.path.abspath(path)],
                stdout=sys.stderr,
                check=False,
            )
            if nsys_process.returncode != 0:
                raise CommandError(
                    f"nsys could not export {path}: it exited with code "
                    f"{nsys_process.returncode}."
                )
            export.replace(place)
    except OSError as error:
        raise CommandError(f"nsys cannot export {path}: {error.strerror}.") from None
    say(f"Exported to {place}; the file stays there until you remove it.")
