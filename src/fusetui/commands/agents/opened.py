"""The files that agents may ask about, which lie in the folders of a server once all
links are followed; and their traces, which are kept as long as they are in use."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from threading import BoundedSemaphore, Lock, local
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from fusetui import sample_traces
from fusetui.analysis.questions.launches import wants_capture
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import notices
from fusetui.commands.sources import (
    ENDINGS,
    LESSON,
    SAMPLE,
    is_shipped,
    of_one_job,
    one_trace,
)
from fusetui.report.output import notes_of
from fusetui.sample_traces import lessons
from fusetui.text.figures import several
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError, NothingReadError
from fusetui.trace.model.report import Stop, never
from fusetui.trace.read.document import OpenFile, read_at
from fusetui.trace.read.remote import is_remote
from fusetui.trace.read.source import reason

SQLITE = b"SQLite format 3\0"
# what became a pipe is not waited for
AT_ONCE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
TRACES, ANSWERS = 4, 8  # that are kept
NOT_JOINED = (
    "Graph replays were not joined with captures beside the trace: links there lead out of the "
    "folders that this server may read."
)

CANCELLED = "The request was cancelled."
LOOK_S = 0.05  # between two looks whether a call that waits is still wanted
State = tuple[str, int, int, int]
"""The path of a file, its size in bytes, when it was modified in ns, and its inode."""


class OpenTrace(msgspec.Struct, frozen=True, eq=False):
    """A trace, and what a user of its figures must know."""

    name: str
    state: State
    trace: Trace
    notes: tuple[str, ...]
    file: OpenFile  # stays open as long as the trace is kept


@contextmanager
def holding(lock: Lock | BoundedSemaphore, stop: Stop) -> Iterator[None]:
    """Within the block the lock is held. Raises CannotReadError once `stop` says so
    before."""
    while not lock.acquire(timeout=LOOK_S):
        if stop():
            raise CannotReadError(CANCELLED)
    try:
        if stop():
            raise CannotReadError(CANCELLED)
        yield
    finally:
        lock.release()


class Recent:
    """The values that were used last, for any thread. Who asks for one that another
    thread is making waits for it, and makes it if that one fails."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, Any] = {}
        self._lock = Lock()  # held for a moment
        # held while a value is made
        self._turns = WeakValueDictionary[Hashable, Lock]()

    def kept(self, key: Hashable) -> Any:
        """The one of this key; None if there is none."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept[key] = self._kept.pop(key)
            return self._kept[key]

    def get(self, key: Hashable, make: Callable[[], Any], stop: Stop = never) -> Any:
        """The one of this key, made if it is not there. Raises what `make` does, and
        CannotReadError if `stop` says so while another thread makes it."""
        found = self.kept(key)
        if found is not None:
            return found
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                turn = self._turns[key] = Lock()
        with holding(turn, stop):
            found = self.kept(key)
            if found is None:
                found = make()
                self._keep(key, found)
        return found

    def _keep(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]


class _Names(local):
    """Of traces, by the places that the call of this thread read them at: another call
    may read another file at the same place later."""

    def __init__(self) -> None:
        self.of = dict[str, str]()


class Opener:
    """Opens what lies in the folders, for any thread. A file that has changed is read
    again."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._traces = Recent(TRACES)
        self.answers = Recent(ANSWERS)  # that are kept for their next pages
        self._names = _Names()

    def open(self, name: str, stop: Stop = never) -> OpenTrace:
        """Raises Error with one plain sentence, also once `stop` has ended the
        reading."""
        path = self.folders.file(name)
        file = self._opened(name, path)
        found = os.fstat(file.number)
        state = path, found.st_size, found.st_mtime_ns, found.st_ino
        opened: OpenTrace = self._traces.get(
            state, lambda: self._read(name, state, file, stop), stop
        )
        self._names.of[_place(opened.file)] = name
        return opened if opened.name == name else replace(opened, name=name)

    @contextmanager
    def lent(self, name: str) -> Iterator[str]:
        """Within the block, a place at which a file that need not be a trace can be
        read. Raises Error."""
        path = self.folders.file(name)
        file = self._opened(name, path)
        place = _place(file)
        if not os.path.exists(place):
            place = path
        self._names.of[place] = name
        yield place
        if place == path and not _is_still(path, os.fstat(file.number)):
            raise CannotReadError(f"{name} was replaced while it was read: ask again.")

    @contextmanager
    def lent_job(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Within the block, the paths of the traces of a job, which other processes may
        read. Raises Error, at the end if one of them was replaced meanwhile."""
        paths = self._job(names)
        found: dict[str, os.stat_result] = {}
        for path in paths:
            if not self.folders.has(path):  # it ships with fusetui
                continue
            self._names.of[path] = self.folders.called(path)
            file = self._opened(self._names.of[path], path)
            found[path] = os.fstat(file.number)
        yield paths
        for path, before in found.items():
            if not _is_still(path, before):
                name = self._names.of[path]
                raise CannotReadError(
                    f"{name} was replaced while it was read: ask again."
                )

    def states_of(self, asked: Any) -> tuple[State, ...]:
        """Of all files that a call names, which are not opened. Raises Error."""
        names = [getattr(asked, key, None) for key in ("trace", "model_config")]
        paths = [self.folders.file(name) for name in names if name]
        paths += self._job(getattr(asked, "traces", ()))
        states = []
        for path in paths:
            try:
                found = os.stat(path)
            except OSError as error:
                raise CannotReadError(
                    f"{path} cannot be opened: {reason(error)}."
                ) from None
            states.append((path, found.st_size, found.st_mtime_ns, found.st_ino))
        return tuple(states)

    def with_names(self, answer: Any) -> Any:
        """An answer as plain values, with the names of traces in place of their
        paths."""
        if isinstance(answer, str):
            return self.told(answer)
        if isinstance(answer, dict):
            return {key: self.with_names(value) for key, value in answer.items()}
        if isinstance(answer, list | tuple):
            return [self.with_names(one) for one in answer]
        return answer

    def _job(self, names: Sequence[str]) -> list[str]:
        """The traces that are named, and those of folders, each once."""
        found: list[str] = []
        for name in names:
            if (
                not is_shipped(name)
                and not is_remote(name)
                and self.folders.is_folder(name)
            ):
                found += self.folders.traces_below(name)
            else:
                found.append(self.folders.file(name))
        return [*dict.fromkeys(found)]

    def _opened(self, name: str, path: str) -> OpenFile:
        try:
            return _shipped(path) if is_shipped(name) else self.folders.opened(path)
        except OSError as error:
            raise CannotReadError(
                f"{name} cannot be opened: {reason(error)}."
            ) from None

    def told(self, sentence: str) -> str:
        """A sentence with the names of traces, where it has the places that they were
        read at."""
        for place, name in sorted(self._names.of.items(), key=lambda one: -len(one[0])):
            sentence = sentence.replace(place, name)
        return sentence

    def _read(self, name: str, state: State, file: OpenFile, stop: Stop) -> OpenTrace:
        trace = self._trace(name, state[0], file, stop)
        told = [*notices(trace.report)]
        if wants_capture(trace):
            trace, more = self._joined(trace, is_shipped(name), stop)
            told += more
        return OpenTrace(
            name, state, trace, tuple(dict.fromkeys(told + notes_of(trace))), file
        )

    def _trace(self, name: str, path: str, file: OpenFile, stop: Stop) -> Trace:
        """What an open file holds. Where the system does not give the file by its
        number, or a database is opened by its name, that must still lead to it
        afterwards."""
        place = _place(file)
        if not os.path.exists(place) or read_at(file.number, 0, len(SQLITE)) == SQLITE:
            place = path
        self._names.of[place] = name
        try:
            trace = open_trace(place, stop=stop)
            if trace.report.prefix is not None:
                raise NothingReadError
        except NothingReadError:
            raise CannotReadError(
                f"{name} was not read: the request was cancelled."
            ) from None
        with suppress(OSError):
            if place != path or (
                os.path.realpath(path) == path
                and os.path.samestat(os.stat(path), os.fstat(file.number))
            ):
                return replace(
                    trace, report=replace(trace.report, path=path, named=name)
                )
        raise CannotReadError(f"{name} was replaced while it was read: ask again.")

    def _joined(self, trace: Trace, ships: bool, stop: Stop) -> tuple[Trace, list[str]]:
        """With captures that are found beside it, unless a link there leads out of the
        folders."""
        from fusetui.analysis.graphs.opening import files_beside, said, with_captures

        path, files = trace.report.path, list[OpenFile]()
        if not ships and not all(
            map(self.folders.has, (f.path for f in files_beside(path)))
        ):
            return trace, [NOT_JOINED]

        def opened(path: str) -> Trace:
            try:
                files.append(_shipped(path) if ships else self.folders.opened(path))
            except OSError as error:
                raise CannotReadError(
                    f"{path} cannot be opened: {reason(error)}."
                ) from None
            return self._trace(path, path, files[-1], stop)

        trace, joins = with_captures(trace, (), opened)
        return trace, said(joins)


MOST_LISTED = 10_000  # files


class Listed(msgspec.Struct, frozen=True):
    """A trace that can be named, or a file that may be one."""

    trace: str
    bytes: int | None = None  # as stored; null of what ships with fusetui
    shows: str | None = None


class Folders:
    """Names of traces are relative to the first of the folders."""

    def __init__(self, named: Sequence[str]) -> None:
        self.roots = tuple(map(os.path.realpath, named))

    def file(self, name: str) -> str:
        """The file of a trace, without links. Raises CommandError."""
        if is_shipped(name):
            return one_trace(name)
        if is_remote(name):
            raise CommandError(f"{name} is a URL: this server reads files only.")
        path = self._inside(name)
        if not os.path.isfile(path):
            what = "a folder" if os.path.isdir(path) else "no file"
            raise CommandError(
                f"{name} is {what}: the tool traces lists the files that there are."
            )
        return path

    def opened(self, path: str) -> OpenFile:
        """The regular file at a path without links. What became a link since is not
        followed, so the file lies where it did when it was allowed. Raises OSError."""
        number = _without_links(path)
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file any more")
            return OpenFile(number)
        finally:
            os.close(number)

    def has(self, path: str) -> bool:
        """Whether it lies in one of the folders."""
        real = os.path.realpath(path)
        return any(os.path.commonpath([real, root]) == root for root in self.roots)

    def is_folder(self, name: str) -> bool:
        """Whether a name is that of a folder. Raises CommandError for what is
        outside."""
        return os.path.isdir(self._inside(name))

    def traces_below(self, name: str) -> list[str]:
        """The traces of a job in a folder, none of which a link leads out to. Raises
        Error."""
        paths = [os.path.realpath(path) for path in of_one_job(self._inside(name))]
        return [path for path in paths if self.has(path) and os.path.isfile(path)]

    def called(self, path: str) -> str:
        """How a client names a path in the folders."""
        root = self.roots[0]
        is_below = os.path.commonpath([path, root]) == root
        return os.path.relpath(path, root) if is_below else path

    def listed(self) -> tuple[list[Listed], list[str]]:
        """What may be a trace, and what ships with fusetui; and a note if that is not
        all of it."""
        files = list(islice(self._files(), MOST_LISTED + 1))
        note = f"Only the first {MOST_LISTED:,} files are listed: name a folder with fewer."
        shelves = ((LESSON, lessons), (SAMPLE, sample_traces))
        shipped = [
            Listed(kind + name, shows=shelf.describe(name))
            for kind, shelf in shelves
            for name in shelf.names()
        ]
        return files[:MOST_LISTED] + shipped, [note] if len(files) > MOST_LISTED else []

    def _inside(self, name: str) -> str:
        try:
            real = os.path.realpath(os.path.join(self.roots[0], name))
        except ValueError:  # a null byte
            raise CommandError(f"{name} is no name of a file.") from None
        if not self.has(real):
            raise CommandError(
                f"{name} is outside the folders that this server may read "
                f"({several(self.roots, 3)}): --allow names others when it is started."
            )
        return real

    def _files(self) -> Iterator[Listed]:
        """Hidden folders are left out, and no link to a folder is followed."""
        for root in self.roots:
            for folder, inner, names in os.walk(root):
                inner[:] = sorted(name for name in inner if name[0] != ".")
                for path in (os.path.join(folder, name) for name in sorted(names)):
                    if (
                        path.endswith(ENDINGS)
                        and os.path.isfile(path)
                        and self.has(path)
                    ):
                        name = (
                            os.path.relpath(path, root)
                            if root == self.roots[0]
                            else path
                        )
                        yield Listed(name, os.path.getsize(path))


def _place(file: OpenFile) -> str:
    """The path of an open file, where the system gives files by their numbers."""
    return f"/proc/self/fd/{file.number}"


def _is_still(path: str, before: os.stat_result) -> bool:
    """Whether a path leads to the same file as before, and by no link."""
    with suppress(OSError):
        return os.path.realpath(path) == path and os.path.samestat(
            os.stat(path), before
        )
    return False


def _shipped(path: str) -> OpenFile:
    with open(path, "rb") as file:
        return OpenFile(file.fileno())


def _without_links(path: str) -> int:
    """Opens an absolute path, no part of which may be a link; where the system cannot
    open a folder after the other, links are looked for once it is open. Raises
    OSError."""
    if os.open not in os.supports_dir_fd:
        number = os.open(path, AT_ONCE)
        if os.path.realpath(path) == path:
            return number
        os.close(number)
        raise OSError(errno.ELOOP, "it became a link")
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    *folders, name = path.split("/")[1:]
    try:
        for one in folders:  # O_PATH, of Linux, needs no permission to list it
            kind = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
            inner = os.open(one, kind, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(name, AT_ONCE | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
