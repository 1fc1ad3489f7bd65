"""The list of recently opened and recently written traces in the user's state folder. A
damaged list is taken for an empty one."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from fusetui.debug_log import debug
from fusetui.text.figures import plural, size
from fusetui.text.shell import shell_path
from fusetui.trace.new_file import replaced_file
from fusetui.trace.read.source import is_remote
from fusetui.tui.kept_folder import OF_TRACES, find_kept_folder
from fusetui.tui.state.offers import Offer, find_job

FILE_NAME = "recent.json"
MAX_ENTRIES = 100  # of more, the newest are kept
MAX_FILE_BYTES = 1 << 20  # a longer list is none of ours
IGNORED = "The list of recent traces %s is ignored: %s."


class RecentTrace(msgspec.Struct, frozen=True):
    """One entry: a trace that was opened, or what one command wrote."""

    paths: tuple[str, ...]  # absolute
    when_s: float  # since 1970
    written_by: str = ""  # the command that wrote it; "": it was opened
    folder: str = ""  # that was written, absolute; "": single files
    are_dumps: bool = False  # of the flight recorder


def recent_traces() -> list[RecentTrace]:
    """Return the recently opened or written traces, the newest first. Entries whose
    files are all gone are left out."""
    entries = []
    for entry in sorted(_read_list(), key=lambda entry: -entry.when_s):
        paths = tuple(path for path in entry.paths if _is_file(path))
        if paths:
            entries.append(msgspec.structs.replace(entry, paths=paths))
    return entries


def remember_opened(paths: Sequence[str]) -> None:
    """Put traces that were opened at the begin of the list. URLs, and traces that ship
    with fusetui, are not remembered."""
    opened_at = time.time()
    entries = []
    for path in paths:
        if not is_remote(path) and not _is_shipped(path) and _is_file(path):
            entries.append(RecentTrace((os.path.abspath(path),), opened_at))
    _write_entries(entries)


def remember_written(
    paths: Sequence[str], command: str, folder: str = "", *, are_dumps: bool = False
) -> None:
    """Put the files that a command wrote at the begin of the list, as one entry.
    `folder` is the folder that was written, "" for single files."""
    if not paths:
        return
    entry = RecentTrace(
        paths=tuple(map(os.path.abspath, paths)),
        when_s=time.time(),
        written_by=command,
        folder=os.path.abspath(folder) if folder else "",
        are_dumps=are_dumps,
    )
    _write_entries([entry])


def make_recent_offers(
    entries: Sequence[RecentTrace], known: Collection[str]
) -> tuple[Offer, ...]:
    """Return a choice for each recent entry. Entries whose paths are all in `known`, or
    in an earlier entry, are left out."""
    known_paths = {os.path.abspath(path) for path in known}
    offers = []
    for entry in entries:
        if not known_paths.issuperset(entry.paths):
            offers.append(_make_offer(entry))
            known_paths.update(entry.paths)
    return tuple(offers)


def make_written_offer(
    name: str, paths: Sequence[str], when_s: float, written_by: str, are_dumps: bool
) -> Offer:
    """Return the choice that opens what one command wrote.

    Its line has the time, the number of files, and the command that opens them. `name`
    is the folder or file as it is typed; `when_s` is in seconds since 1970.
    """
    noun = "dump" if are_dumps else "trace"
    parts = [
        f"{datetime.fromtimestamp(when_s):%Y-%m-%d %H:%M}",
        f"{plural(len(paths), noun)} of {written_by}",
        f"fusetui {shell_path(name)}",
    ]
    is_job = not are_dumps and bool(find_job(tuple(paths)).paths)
    return Offer(
        label=name,
        paths=tuple(paths),
        about="   ".join(parts),
        is_job=is_job,
        are_dumps=are_dumps,
    )


def _make_offer(entry: RecentTrace) -> Offer:
    """Return the choice that opens a recent entry, with its time and size."""
    name = _shorten_path(entry.folder or entry.paths[0])
    if entry.written_by:
        return make_written_offer(
            name, entry.paths, entry.when_s, entry.written_by, entry.are_dumps
        )
    file_size = size(os.path.getsize(entry.paths[0]))
    time_text = f"{datetime.fromtimestamp(entry.when_s):%Y-%m-%d %H:%M}"
    return Offer(
        label=name, paths=entry.paths, about=f"{time_text}   opened   {file_size}"
    )


def _shorten_path(path: str) -> str:
    """Return a path as a person types it here: relative if it is below the current
    folder."""
    with suppress(OSError, ValueError):
        relative = os.path.relpath(path)
        if not relative.startswith(os.pardir):
            return relative
    return path


def _write_entries(entries: Sequence[RecentTrace]) -> None:
    """Write the list with these entries at its begin. Older entries of the same files
    are replaced. A list that cannot be written is only noted in the debug log."""
    if not entries:
        return
    try:
        folder = find_kept_folder(OF_TRACES)
        if folder is None:
            return
        of_same_files = {entry.paths for entry in entries}
        older = [entry for entry in _read_list() if entry.paths not in of_same_files]
        kept = [*entries, *sorted(older, key=lambda entry: -entry.when_s)]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = msgspec.json.encode(kept[:MAX_ENTRIES])
        with replaced_file(folder / FILE_NAME) as file:
            file.write(content)
    except (OSError, RuntimeError, UnicodeEncodeError) as error:
        debug("The list of recent traces was not written: %s.", error)


def _read_list() -> list[RecentTrace]:
    """Return the entries of the list of recent traces. A damaged or very large list
    counts as empty; the debug log says why."""
    file = ""
    try:
        folder = find_kept_folder(OF_TRACES)
        if folder is None or not (folder / FILE_NAME).is_file():
            return []
        file = str(folder / FILE_NAME)
        if os.path.getsize(file) > MAX_FILE_BYTES:
            debug(IGNORED, file, "it is too long")
            return []
        content = Path(file).read_bytes()
        entries = msgspec.json.decode(content, type=list[RecentTrace])
    except (OSError, RuntimeError, msgspec.DecodeError, UnicodeDecodeError) as error:
        debug(IGNORED, file, error)
        return []
    return list(_keep_sound_entries(entries))


def _keep_sound_entries(entries: Sequence[RecentTrace]) -> Iterator[RecentTrace]:
    """Yield the entries that can be shown: their time is valid and their paths are
    absolute."""
    for entry in entries[:MAX_ENTRIES]:
        with suppress(OSError, OverflowError, ValueError):
            datetime.fromtimestamp(entry.when_s)
            if entry.paths and all(map(os.path.isabs, entry.paths)):
                yield entry


def _is_file(path: str) -> bool:
    """Return whether `path` is a file. A text that cannot be a path gives false instead
    of an error."""
    with suppress(OSError, ValueError):
        return os.path.isfile(path)
    return False


def _is_shipped(path: str) -> bool:
    """Return whether the path is a sample trace or a lesson that ships with fusetui."""
    from fusetui import sample_traces

    folder = os.path.realpath(os.path.dirname(sample_traces.__file__))
    return os.path.realpath(path).startswith(folder + os.sep)
