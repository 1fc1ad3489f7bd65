"""Finds the files for the user's arguments: paths, samples, lessons, run folders and
other folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from fusetui.commands.errors import CommandError, say
from fusetui.text.figures import several
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.read.foreign import HEAD, is_flight_dump
from fusetui.trace.read.source import glimpse

SAMPLE = "sample:"
LESSON = "lesson:"
RECORD = "run.json"
SWEEP = "sweep.json"
RECORDED_PREFIX = "recorded-"
"""How `run` and `record` name a folder, before the time."""

ENDINGS = (
    ".json",
    ".json.gz",
    ".json.zst",
    ".pftrace",
    ".pftrace.gz",
    ".pftrace.zst",
    ".sqlite",
    ".sqlite.gz",
    ".sqlite.zst",
)
ENDINGS_TEXT = "(.json, .pftrace or .sqlite, plain, .gz or .zst)"
MAX_LEVELS = 2
"""Of folders that are looked into, below the one that is named."""

MAX_LEVELS_OF_DUMPS = 3
"""The same for dumps, which may lie in a folder for each machine."""

NUMBER = lazy_pattern(r"[0-9]+")
MAX_ENTRIES = 10_000
"""Of a folder that are looked at."""

MAX_FOLDERS = 500
"""That are looked into, the newest first."""

MAX_SETTINGS_BYTES = 1 << 20
"""Of a file that is looked at to find out whether it is a trace."""

MAX_NAMED_TRACES = 6
MAX_NAMED_FOLDERS = 3
"""In a message, as MAX_NAMED_TRACES."""


def one_trace(name: str) -> str:
    """The file of a single trace. Raises CommandError for a folder with several."""
    paths = traces(name)
    if len(paths) > 1:
        names = [os.path.relpath(path, name) for path in paths[:MAX_NAMED_TRACES]]
        if len(paths) > MAX_NAMED_TRACES:
            names.append("...")
        raise CommandError(
            f"{name} is a folder with {len(paths)} traces: choose one ({', '.join(names)})."
        )
    return paths[0]


def traces(name: str) -> list[str]:
    """The trace files behind a name, at least one; variants of a run in their order.
    Files are not checked here: reading reports those that cannot be read. Raises
    CommandError."""
    if is_shipped(name):
        return [_shipped(name)]
    if not name.strip():
        raise CommandError("The trace name is empty: use a path, a URL or sample:NAME.")
    if not os.path.isdir(name):
        return [name]
    folder = Path(name)
    paths = _variants(folder) or _traces_in(folder)
    if paths:
        return [str(path) for path in paths]
    return traces(only_below(name))


def only_below(name: str) -> str:
    """The one folder with traces below a folder without. Raises CommandError."""
    folders = folders_below(name)
    if not folders:
        raise CommandError(f"{name} is a folder without traces {ENDINGS_TEXT}.")
    if len(folders) > 1:
        named = several(folders, MAX_NAMED_FOLDERS)
        raise CommandError(
            f"{name} contains {len(folders)} folders with traces: choose one ({named})."
        )
    return folders[0]


def of_one_job(name: str) -> list[str]:
    """As `traces`; of a folder with a folder for each rank, the traces of all of
    them."""
    folders = folders_below(name)
    if len(folders) < 2 or any(is_run(folder) for folder in folders):
        return traces(name)
    return [path for folder in sorted(folders) for path in traces(folder)]


def is_shipped(name: str) -> bool:
    """Whether it is the name of a sample or a lesson."""
    return name.startswith((SAMPLE, LESSON))


def is_run(name: str) -> bool:
    """Whether it is a folder that `fusetui capture` wrote."""
    return os.path.isfile(os.path.join(name, RECORD))


def _shipped(name: str) -> str:
    """The file of a sample or a lesson. Raises CommandError."""
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons

    kind, _, own_name = name.partition(":")
    catalog = lessons if name.startswith(LESSON) else sample_traces
    names = catalog.names()
    if own_name not in names:
        raise CommandError(f"There is no {kind} {own_name!r}, only {', '.join(names)}.")
    return str(catalog.path(own_name))


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
        first, *others = listed.ignored
        more = f" So are {len(others)} more of its files." if others else ""
        say(f"{first}{more}")
    return list(dict.fromkeys(path for _, path in listed.found))


def _traces_in(folder: Path) -> list[Path]:
    """The files in a folder that may be traces, by their names. Those that are small,
    whole JSON and no traces are left out where there are others. Raises
    CommandError."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise CommandError(f"{folder} cannot be listed: {error.strerror}.") from None
    files = []
    for path in entries:
        if not path.name.endswith(ENDINGS) or path.name in (RECORD, SWEEP):
            continue
        if path.is_file():
            files.append(path)
        elif not path.is_dir():
            say(f"{path} is skipped: it is not a regular file, or is a broken link.")
    if len(files) > 1:
        files = [path for path in files if not _is_json_but_no_trace(path)] or files
    if not is_run(str(folder)):
        return files
    from fusetui.capture.record import why_not_opened

    # A link could lead anywhere: a run folder may come from somebody else.
    return [path for path in files if why_not_opened(folder, path.name) is None]


def _is_json_but_no_trace(path: Path) -> bool:
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
    dated = islice(_below(top, MAX_LEVELS), MAX_FOLDERS)
    newest_first = sorted(
        dated, key=lambda one: (one.changed, str(one.path)), reverse=True
    )
    return [str(one.path) for one in newest_first]


class _DatedFolder(NamedTuple):
    """A folder with traces, and when the newest of them was written."""

    path: Path
    changed: float


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
            return [folder / entry.name for entry in islice(entries, MAX_ENTRIES)]
    except OSError:
        return []


def _below(folder: Path, levels: int) -> Iterator[_DatedFolder]:
    """Folders with traces. Hidden folders are left out: a capture that is not complete
    is one."""
    inner = [
        path
        for path in listed(folder)
        if not path.name.startswith(".") and path.is_dir()
    ]
    for path in sorted(inner, key=changed, reverse=True)[:MAX_FOLDERS]:
        newest = _newest(path)
        if newest is not None:
            yield _DatedFolder(path=path, changed=newest)
        elif levels > 1:
            yield from _below(path, levels - 1)


def _newest(folder: Path) -> float | None:
    """When the record of a run or the newest trace was written; None in a folder
    without either."""
    record = folder / RECORD
    if record.is_file():
        return changed(record)
    times = []
    for path in listed(folder):
        if path.name.endswith(ENDINGS) and path.name != SWEEP and path.is_file():
            times.append(changed(path))
    return max(times, default=None)


class NamedFiles(msgspec.Struct, frozen=True):
    """What the user names, by what it is."""

    dumps: tuple[str, ...]
    """Files of the flight recorder: those that are named, and those in folders."""
    others: tuple[str, ...]
    """The names of everything else, and of folders that hold traces too."""


def with_dumps_apart(names: Sequence[str]) -> NamedFiles:
    """Dumps are recognized by their content, whatever their names are. In a folder with
    traces, they are those beside them; else also those in folders below."""
    dumps: list[str] = []
    others: list[str] = []
    for name in names:
        if not os.path.isdir(name):
            is_dump = os.path.isfile(name) and is_dump_file(name)
            (dumps if is_dump else others).append(name)
            continue
        has_traces = holds_traces(name)
        if has_traces:
            beside = [path for path in listed(Path(name)) if path.is_file()]
            dumps_of_folder = dumps_among(beside)
        else:
            dumps_of_folder = dumps_in(name)
        dumps += dumps_of_folder
        if has_traces or not dumps_of_folder:
            others.append(name)
    return NamedFiles(dumps=tuple(dumps), others=tuple(others))


def dumps_in(folder: str) -> list[str]:
    """The dumps in a folder and below it."""
    return dumps_among(list(_files_in(Path(folder), MAX_LEVELS_OF_DUMPS)))


def dumps_among(files: Sequence[Path]) -> list[str]:
    """The dumps among some files, by content. An empty or damaged file counts too if
    only the number in its name tells it from a dump."""
    dumps = {path for path in files if is_dump_file(str(path))}
    patterns = {_without_numbers(path) for path in dumps}
    return sorted(
        str(path)
        for path in files
        if path in dumps or _without_numbers(path) in patterns
    )


def is_dump_file(path: str) -> bool:
    """Whether a file is a dump of the flight recorder, by its first bytes."""
    return is_flight_dump(glimpse(path, HEAD))


def holds_traces(folder: str) -> bool:
    """Whether it is a run, or a file of it, or of the folders below one without any,
    bears the name of a trace and is no dump: dumps may be JSON as traces are. Nothing is
    said about the files: the user may have asked for something else."""
    below = folders_below(folder)
    if any(is_run(path) for path in (folder, *below)):
        return True
    for inner in below or [folder]:
        for path in listed(Path(inner)):
            is_named_as_trace = path.name.endswith(ENDINGS) and path.is_file()
            if is_named_as_trace and not is_dump_file(str(path)):
                return True
    return False


def _files_in(folder: Path, levels: int) -> Iterator[Path]:
    """The files of a folder and of so many levels of folders below it; hidden ones are
    left out."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        say(f"{folder} cannot be listed: {error.strerror}.")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield folder / entry.name
        elif levels > 0 and entry.is_dir(follow_symlinks=False):
            yield from _files_in(folder / entry.name, levels - 1)


def _without_numbers(path: Path) -> str:
    """A name with # for its numbers."""
    return NUMBER.sub("#", path.name)
