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
    """Return the path of the single trace that a name stands for. Raises CommandError
    for a folder with several traces, and lists some of them."""
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
    """Return the paths of the traces that a name stands for, at least one. A run folder
    gives its variants in their order.

    Files are not opened here, so reading reports those that are missing or damaged.
    Raises CommandError for a folder without traces, or an unknown sample.
    """
    if is_shipped(name):
        return [_find_shipped(name)]
    if not name.strip():
        raise CommandError("The trace name is empty: use a path, a URL or sample:NAME.")
    if not os.path.isdir(name):
        return [name]
    folder = Path(name)
    paths = _find_variants(folder) or _find_traces_in(folder)
    if paths:
        return [str(path) for path in paths]
    return traces(find_only_folder(name))


def find_only_folder(name: str) -> str:
    """Return the one folder with traces somewhere below a folder that has none itself.
    Raises CommandError if there are none or several."""
    folders = find_folders_below(name)
    if not folders:
        raise CommandError(f"{name} is a folder without traces {ENDINGS_TEXT}.")
    if len(folders) > 1:
        folder_names = several(folders, MAX_NAMED_FOLDERS)
        raise CommandError(
            f"{name} contains {len(folders)} folders with traces: choose one ({folder_names})."
        )
    return folders[0]


def find_traces_of_job(name: str) -> list[str]:
    """Return the paths of all traces of a job. That is what `traces` returns, but a
    folder with a folder for each rank gives the traces of all ranks. Raises
    CommandError."""
    folders = find_folders_below(name)
    if len(folders) < 2 or any(is_run_folder(folder) for folder in folders):
        return traces(name)
    return [path for folder in sorted(folders) for path in traces(folder)]


def is_shipped(name: str) -> bool:
    """Whether it is the name of a sample or a lesson."""
    return name.startswith((SAMPLE, LESSON))


def is_run_folder(name: str) -> bool:
    """Return whether a folder was written by `fusetui capture`, because it has a
    run.json."""
    return os.path.isfile(os.path.join(name, RECORD))


def _find_shipped(name: str) -> str:
    """Return the path of a sample or a lesson, such as `lesson:gemm`. Raises
    CommandError if there is none of that name."""
    from fusetui import sample_traces
    from fusetui.sample_traces import lessons

    kind, _, own_name = name.partition(":")
    catalog = lessons if name.startswith(LESSON) else sample_traces
    names = catalog.names()
    if own_name not in names:
        raise CommandError(f"There is no {kind} {own_name!r}, only {', '.join(names)}.")
    return str(catalog.path(own_name))


def _find_variants(folder: Path) -> list[Path]:
    """Return the traces that the run.json of a folder lists and that lie in it. Empty
    if it is no run folder, or if run.json cannot be read, which is reported."""
    if not is_run_folder(str(folder)):
        return []
    from fusetui.capture.errors import CaptureError
    from fusetui.capture.record import list_traces

    try:
        listed_traces = list_traces(folder)
    except CaptureError as error:
        say(f"{error} The traces next to it are listed by name.")
        return []
    if listed_traces.ignored:
        first, *others = listed_traces.ignored
        more = f" So are {len(others)} more of its files." if others else ""
        say(f"{first}{more}")
    return list(dict.fromkeys(path for _, path in listed_traces.found))


def _find_traces_in(folder: Path) -> list[Path]:
    """Return the files in a folder that may be traces by their names, sorted. Where
    there are several, small JSON files that are no traces are left out. Raises
    CommandError if the folder cannot be listed."""
    try:
        paths_in_folder = sorted(folder.iterdir())
    except OSError as error:
        raise CommandError(f"{folder} cannot be listed: {error.strerror}.") from None
    files = []
    for path in paths_in_folder:
        if not path.name.endswith(ENDINGS) or path.name in (RECORD, SWEEP):
            continue
        if path.is_file():
            files.append(path)
        elif not path.is_dir():
            say(f"{path} is skipped: it is not a regular file, or is a broken link.")
    if len(files) > 1:
        files = [path for path in files if not _is_other_json(path)] or files
    if not is_run_folder(str(folder)):
        return files
    from fusetui.capture.record import explain_not_opened

    # A link could lead anywhere: a run folder may come from somebody else.
    return [path for path in files if explain_not_opened(folder, path.name) is None]


def _is_other_json(path: Path) -> bool:
    """Return whether a small file is complete JSON and no trace, such as settings that
    a server writes beside its traces. Damaged files are not, so that reading them
    reports the damage."""
    try:
        if path.suffix != ".json" or path.stat().st_size > MAX_SETTINGS_BYTES:
            return False
        keys = msgspec.json.decode(path.read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.MsgspecError, RecursionError):
        return False
    return "traceEvents" not in keys


def find_folders_below(name: str) -> list[str]:
    """Return the folders with traces below `name`, the newest first. Empty if `name`
    has traces itself. No file is read."""
    top = Path(name)
    if not top.is_dir() or _newest_time(top) is not None:
        return []
    dated = islice(_find_dated_folders(top, MAX_LEVELS), MAX_FOLDERS)
    newest_first = sorted(
        dated, key=lambda one: (one.changed, str(one.path)), reverse=True
    )
    return [str(one.path) for one in newest_first]


class _DatedFolder(NamedTuple):
    """A folder with traces, and when the newest of them was written."""

    path: Path
    changed: float


def changed(path: Path) -> float:
    """Return the Unix time in seconds at which a file was last written; 0 if that is
    unknown."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def listed(folder: Path) -> list[Path]:
    """Return the paths in a folder, at most MAX_ENTRIES of them. Empty if it cannot be
    listed."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in islice(entries, MAX_ENTRIES)]
    except OSError:
        return []


def _find_dated_folders(folder: Path, levels: int) -> Iterator[_DatedFolder]:
    """Yield the folders with traces below a folder, down to so many levels. Folders
    inside one with traces are not searched, and hidden folders are skipped, as an
    incomplete capture is one."""
    inner = [
        path
        for path in listed(folder)
        if not path.name.startswith(".") and path.is_dir()
    ]
    for path in sorted(inner, key=changed, reverse=True)[:MAX_FOLDERS]:
        newest = _newest_time(path)
        if newest is not None:
            yield _DatedFolder(path=path, changed=newest)
        elif levels > 1:
            yield from _find_dated_folders(path, levels - 1)


def _newest_time(folder: Path) -> float | None:
    """Return the Unix time in seconds when the newest trace in a folder was written, or
    its run.json if it has one. None if it has neither."""
    record = folder / RECORD
    if record.is_file():
        return changed(record)
    trace_times = []
    for path in listed(folder):
        if path.name.endswith(ENDINGS) and path.name != SWEEP and path.is_file():
            trace_times.append(changed(path))
    return max(trace_times, default=None)


class NamedFiles(msgspec.Struct, frozen=True):
    """What the user names, by what it is."""

    dumps: tuple[str, ...]
    """Files of the flight recorder: those that are named, and those in folders."""
    others: tuple[str, ...]
    """The names of everything else, and of folders that hold traces too."""


def separate_dumps(names: Sequence[str]) -> NamedFiles:
    """Return the names divided into flight-recorder dumps and others. Dumps are
    recognized by their content.

    In a folder with traces, dumps beside them count; in any other, also those in
    folders inside. A folder with traces is among the others too.
    """
    dumps: list[str] = []
    others: list[str] = []
    for name in names:
        if not os.path.isdir(name):
            is_dump = os.path.isfile(name) and is_dump_file(name)
            (dumps if is_dump else others).append(name)
            continue
        has_traces = holds_traces(name)
        if has_traces:
            files_in_folder = [path for path in listed(Path(name)) if path.is_file()]
            dumps_of_folder = find_dumps_among(files_in_folder)
        else:
            dumps_of_folder = dumps_in(name)
        dumps += dumps_of_folder
        if has_traces or not dumps_of_folder:
            others.append(name)
    return NamedFiles(dumps=tuple(dumps), others=tuple(others))


def dumps_in(folder: str) -> list[str]:
    """Return the flight-recorder dumps in a folder and in the folders inside it,
    sorted."""
    return find_dumps_among(list(_walk_files(Path(folder), MAX_LEVELS_OF_DUMPS)))


def find_dumps_among(files: Sequence[Path]) -> list[str]:
    """Return the dumps among these files by their content, sorted. A file that is empty
    or damaged counts too if its name is that of a dump except for the numbers."""
    dumps = {path for path in files if is_dump_file(str(path))}
    patterns = {_mask_numbers(path) for path in dumps}
    return sorted(
        str(path) for path in files if path in dumps or _mask_numbers(path) in patterns
    )


def is_dump_file(path: str) -> bool:
    """Whether a file is a dump of the flight recorder, by its first bytes."""
    return is_flight_dump(glimpse(path, HEAD))


def holds_traces(folder: str) -> bool:
    """Return whether a folder is a run or has traces, also in folders inside. A file
    counts if it is named as a trace and is no dump, as dumps may be JSON too. Nothing
    is reported."""
    below = find_folders_below(folder)
    if any(is_run_folder(path) for path in (folder, *below)):
        return True
    for inner in below or [folder]:
        for path in listed(Path(inner)):
            is_named_as_trace = path.name.endswith(ENDINGS) and path.is_file()
            if is_named_as_trace and not is_dump_file(str(path)):
                return True
    return False


def _walk_files(folder: Path, levels: int) -> Iterator[Path]:
    """Yield the files in a folder and in so many levels of folders inside it, sorted by
    name. Hidden ones are skipped, and links to folders are not followed. A folder that
    cannot be listed is reported."""
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
            yield from _walk_files(folder / entry.name, levels - 1)


def _mask_numbers(path: Path) -> str:
    """Return the name of a file with `#` in place of each number, so that `rank3.bin`
    becomes `rank#.bin`."""
    return NUMBER.sub("#", path.name)
