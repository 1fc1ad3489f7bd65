"""Finds the files behind what a user names: paths, samples, lessons, run folders, other
folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from fusetui.commands.errors import CommandError, say
from fusetui.text.figures import several

SAMPLE, LESSON = "sample:", "lesson:"
RECORD = "run.json"
SWEEP = "sweep.json"
ENDINGS = tuple(
    f".{form}{packed}"
    for form in ("json", "pftrace", "sqlite")
    for packed in ("", ".gz", ".zst")
)
WHAT = "(.json, .pftrace or .sqlite, plain, .gz or .zst)"
DEPTH = 2  # levels of folders
LISTED = 10_000  # entries of a folder that are looked at
FOLDERS = 500  # folders that are looked into, the newest first
# of a file that is looked at to find out whether it is a trace
MAX_SETTINGS_BYTES = 1 << 20
MOST_NAMED = 3  # folders listed in a message


def one_trace(name: str) -> str:
    """The file of a single trace. Raises CommandError for a folder with several."""
    found = traces(name)
    if len(found) > 1:
        named = ", ".join(os.path.relpath(path, name) for path in found[:6])
        named += ", ..." if len(found) > 6 else ""
        raise CommandError(
            f"{name} is a folder with {len(found)} traces: choose one ({named})."
        )
    return found[0]


def traces(name: str) -> list[str]:
    """The trace files behind a name, at least one; variants of a run in their order.
    Files are not checked here: reading reports those that cannot be read."""
    if is_shipped(name):
        return [_shipped(name)]
    if not name.strip():
        raise CommandError(
            "The name of a trace is empty: give a path, a URL or sample:NAME."
        )
    if not os.path.isdir(name):
        return [name]
    found = _variants(Path(name)) or _inside(Path(name))
    return [str(path) for path in found] or traces(only_below(name))


def only_below(name: str) -> str:
    """The one folder with traces below a folder without. Raises CommandError."""
    found = folders_below(name)
    if not found:
        raise CommandError(f"{name} is a folder without traces {WHAT}.")
    if len(found) > 1:
        named = several(found, MOST_NAMED)
        raise CommandError(
            f"{name} holds {len(found)} folders with traces: name one ({named})."
        )
    return found[0]


def of_one_job(name: str) -> list[str]:
    """As `traces`; of a folder with a folder for each rank, the traces of all of
    them."""
    below = folders_below(name)
    if len(below) < 2 or any(map(is_run, below)):
        return traces(name)
    return [path for folder in sorted(below) for path in traces(folder)]


def is_shipped(name: str) -> bool:
    """Whether it is the name of a sample or a lesson."""
    return name.startswith((SAMPLE, LESSON))


def is_run(name: str) -> bool:
    """Whether it is a folder that `fusetui capture` wrote."""
    return os.path.isfile(os.path.join(name, RECORD))


def _shipped(name: str) -> str:
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons

    kind, _, own_name = name.partition(":")
    shelf = lessons if name.startswith(LESSON) else sample_traces
    known = shelf.names()
    if own_name not in known:
        raise CommandError(f"There is no {kind} {own_name!r}, only {', '.join(known)}.")
    return str(shelf.path(own_name))


def _variants(folder: Path) -> list[Path]:
    """The files that run.json lists and that lie in its folder; [] when it cannot be
    read."""
    if not is_run(str(folder)):
        return []
    from fusetui.capture.errors import CaptureError
    from fusetui.capture.record import trace_files

    try:
        listed = trace_files(folder)
    except CaptureError as error:
        say(f"{error} The traces next to it are listed by name.")
        return []
    if listed.ignored:
        more = len(listed.ignored) - 1
        say(
            f"{listed.ignored[0]}{f' So are {more} more of its files.' if more else ''}"
        )
    return list(dict.fromkeys(path for _, path in listed.found))


def _inside(folder: Path) -> list[Path]:
    try:
        listed = sorted(
            path for path in folder.iterdir() if path.name.endswith(ENDINGS)
        )
    except OSError as error:
        raise CommandError(f"{folder} cannot be listed: {error.strerror}.") from None
    found = [path for path in listed if path.name not in (RECORD, SWEEP)]
    for path in found:
        if not (path.is_file() or path.is_dir()):
            say(
                f"{path} is left out: it is no regular file, or a link that leads nowhere."
            )
    found = [path for path in found if path.is_file()]
    if len(found) > 1:
        found = [path for path in found if not _is_other_json(path)] or found
    if not is_run(str(folder)):
        return found
    from fusetui.capture.record import why_not_opened

    # A link could lead anywhere: a run folder may come from somebody else.
    return [path for path in found if why_not_opened(folder, path.name) is None]


def _is_other_json(path: Path) -> bool:
    """Whether a small file is whole JSON and no trace, as the settings that a server
    writes beside its traces. Damaged files stay: reading them says what is wrong."""
    try:
        if path.suffix != ".json" or path.stat().st_size > MAX_SETTINGS_BYTES:
            return False
        keys = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.MsgspecError, RecursionError):
        return False
    return "traceEvents" not in keys


def folders_below(name: str) -> list[str]:
    """Folders with traces, the newest first; [] if `name` has its own. No file is
    read."""
    top = Path(name)
    if not top.is_dir() or _newest(top) is not None:
        return []
    found = islice(_below(top, DEPTH), FOLDERS)
    newest = sorted(((changed, str(path)) for path, changed in found), reverse=True)
    return [path for _, path in newest]


def changed(path: Path) -> float:
    """When it was written; 0 if that cannot be told."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def listed(folder: Path) -> list[Path]:
    """What is in a folder, of very many entries the first; [] if it cannot be
    listed."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in islice(entries, LISTED)]
    except OSError:
        return []


def _below(folder: Path, depth: int) -> Iterator[tuple[Path, float]]:
    """Folders with traces, and when the newest trace of each was written. Hidden
    folders are left out: a capture that is not complete is one."""
    inner = [path for path in listed(folder) if path.name[0] != "." and path.is_dir()]
    for path in sorted(inner, key=changed, reverse=True)[:FOLDERS]:
        newest = _newest(path)
        if newest is not None:
            yield path, newest
        elif depth > 1:
            yield from _below(path, depth - 1)


def _newest(folder: Path) -> float | None:
    """When the record of a run or the newest trace was written; None in a folder
    without either."""
    if (folder / RECORD).is_file():
        return changed(folder / RECORD)
    names = (
        path
        for path in listed(folder)
        if path.name.endswith(ENDINGS) and path.name != SWEEP
    )
    return max((changed(path) for path in names if path.is_file()), default=None)
