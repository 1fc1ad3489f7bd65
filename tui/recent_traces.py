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
from fusetui.tui.kept_folder import OF_TRACES, kept_folder
from fusetui.tui.state.offers import Offer, job_of_paths

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
    """The newest first; only those of which a file is still there."""
    entries = []
    for entry in sorted(_read_list(), key=lambda entry: -entry.when_s):
        paths = tuple(path for path in entry.paths if _is_file(path))
        if paths:
            entries.append(msgspec.structs.replace(entry, paths=paths))
    return entries


def remember_opened(paths: Sequence[str]) -> None:
    """Puts traces that were opened at the begin of the list: files, but none of those
    that ship with fusetui."""
    now = time.time()
    entries = []
    for path in paths:
        if not is_remote(path) and not _is_shipped(path) and _is_file(path):
            entries.append(RecentTrace((os.path.abspath(path),), now))
    _remember(entries)


def remember_written(
    paths: Sequence[str], command: str, folder: str = "", *, are_dumps: bool = False
) -> None:
    """Puts what a command wrote at the begin of the list."""
    if not paths:
        return
    entry = RecentTrace(
        paths=tuple(map(os.path.abspath, paths)),
        when_s=time.time(),
        written_by=command,
        folder=os.path.abspath(folder) if folder else "",
        are_dumps=are_dumps,
    )
    _remember([entry])


def offers_of_recent(
    entries: Sequence[RecentTrace], known: Collection[str]
) -> tuple[Offer, ...]:
    """An offer for each entry, without those of which all paths are `known`
    already."""
    known_paths = {os.path.abspath(path) for path in known}
    offers = []
    for entry in entries:
        if not known_paths.issuperset(entry.paths):
            offers.append(_offer(entry))
            known_paths.update(entry.paths)
    return tuple(offers)


def offer_of_written(
    name: str, paths: Sequence[str], when_s: float, written_by: str, are_dumps: bool
) -> Offer:
    """An offer of what one command wrote, with the command that opens it. `name` is the
    folder or the file as it is typed."""
    noun = "dump" if are_dumps else "trace"
    parts = [
        f"{datetime.fromtimestamp(when_s):%Y-%m-%d %H:%M}",
        f"{plural(len(paths), noun)} of {written_by}",
        f"fusetui {shell_path(name)}",
    ]
    is_job = not are_dumps and bool(job_of_paths(tuple(paths)).paths)
    return Offer(
        label=name,
        paths=tuple(paths),
        about="   ".join(parts),
        is_job=is_job,
        are_dumps=are_dumps,
    )


def _offer(entry: RecentTrace) -> Offer:
    """The offer of an entry."""
    name = _typed(entry.folder or entry.paths[0])
    if entry.written_by:
        return offer_of_written(
            name, entry.paths, entry.when_s, entry.written_by, entry.are_dumps
        )
    file_size = size(os.path.getsize(entry.paths[0]))
    when = f"{datetime.fromtimestamp(entry.when_s):%Y-%m-%d %H:%M}"
    return Offer(label=name, paths=entry.paths, about=f"{when}   opened   {file_size}")


def _typed(path: str) -> str:
    """A path as a person types it here: relative below the current folder."""
    with suppress(OSError, ValueError):
        relative = os.path.relpath(path)
        if not relative.startswith(os.pardir):
            return relative
    return path


def _remember(entries: Sequence[RecentTrace]) -> None:
    """Puts entries at the begin of the list, instead of older ones of the same files.
    What cannot be written is not kept."""
    if not entries:
        return
    try:
        folder = kept_folder(OF_TRACES)
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
    """The entries of the list; none of a list that is damaged, which is said in the
    debug log."""
    file = ""
    try:
        folder = kept_folder(OF_TRACES)
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
    return list(_sound(entries))


def _sound(entries: Sequence[RecentTrace]) -> Iterator[RecentTrace]:
    """The entries of which everything can be shown."""
    for entry in entries[:MAX_ENTRIES]:
        with suppress(OSError, OverflowError, ValueError):
            datetime.fromtimestamp(entry.when_s)
            if entry.paths and all(map(os.path.isabs, entry.paths)):
                yield entry


def _is_file(path: str) -> bool:
    """Whether it is a file, also for a text that can be no path."""
    with suppress(OSError, ValueError):
        return os.path.isfile(path)
    return False


def _is_shipped(path: str) -> bool:
    """Whether it is a sample or a lesson."""
    from fusetui import sample_traces

    folder = os.path.realpath(os.path.dirname(sample_traces.__file__))
    return os.path.realpath(path).startswith(folder + os.sep)
