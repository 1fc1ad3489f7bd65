"""The files that agents may open, which must lie in the folders of the server after all
links are followed; and their traces, which stay open while they are in use."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import BoundedSemaphore, Lock, local
from typing import Any, NamedTuple
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
    find_traces_of_job,
    is_shipped,
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
from fusetui.trace.read.source import is_remote, reason

SQLITE_HEAD = b"SQLite format 3\0"
"""What a database of SQLite begins with."""

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
"""For reading; what became a pipe is not waited for."""

MAX_TRACES = 4
MAX_ANSWERS = 8
"""So many are kept, as MAX_TRACES."""

MAX_LISTED_FILES = 10_000
POLL_SECONDS = 0.05
"""Between two looks whether a call that waits is still wanted."""

NOT_JOINED = (
    "Graph replays were not joined with captures next to the trace: links there lead "
    "outside the folders that this server may read."
)
CANCELLED = "The request was cancelled."


class State(NamedTuple):
    """What tells a file from another one, and from itself once it has changed."""

    path: str
    size_bytes: int
    modified_ns: int
    inode: int


def _make_state(path: str, status: os.stat_result) -> State:
    """Return the state of the file at `path`: its path, size, time of change and inode.
    A file with an equal state is taken to be unchanged."""
    return State(
        path=path,
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        inode=status.st_ino,
    )


class KeptTrace(msgspec.Struct, frozen=True, eq=False):
    """A trace, and what a user of its figures must know."""

    name: str
    state: State
    trace: Trace
    notes: tuple[str, ...]
    file: OpenFile  # stays open as long as the trace is kept


@contextmanager
def holding(lock: Lock | BoundedSemaphore, stop: Stop) -> Iterator[None]:
    """Hold the lock within the block. While it is taken, wait and ask `stop` every
    POLL_SECONDS. Raises CannotReadError if `stop` returns True before the block begins.
    """
    while not lock.acquire(timeout=POLL_SECONDS):
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

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        # the one that was used last comes last
        self._values: dict[Hashable, Any] = {}
        self._lock = Lock()  # held for a moment
        # by the key of a value, a lock that is held while it is made
        self._makers = WeakValueDictionary[Hashable, Lock]()

    def kept(self, key: Hashable) -> Any:
        """Return the value of a key, or None if it is not kept. A value that is
        returned counts as the one used last, so it is dropped last."""
        with self._lock:
            if key not in self._values:
                return None
            # put it at the end, as the one that was used last
            value = self._values.pop(key)
            self._values[key] = value
            return value

    def get(self, key: Hashable, make: Callable[[], Any], stop: Stop = never) -> Any:
        """Return the value of a key; if none is kept, make it and keep it. If another
        thread is already making it, wait for that thread. Raises what `make` raises,
        and CannotReadError if `stop` returns True while waiting."""
        value = self.kept(key)
        if value is not None:
            return value
        with self._lock:
            maker = self._makers.get(key)
            if maker is None:
                maker = Lock()
                self._makers[key] = maker
        with holding(maker, stop):
            value = self.kept(key)
            if value is None:
                value = make()
                self._keep(key, value)
        return value

    def _keep(self, key: Hashable, value: Any) -> None:
        """Keep a value as the one used last, and drop the oldest ones beyond the
        maximum number."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._max_values:
                oldest = next(iter(self._values))
                del self._values[oldest]


class _Names(local):
    """The names of traces by the places that the call of this thread read them at:
    another call may read another file at the same place later."""

    def __init__(self) -> None:
        self.by_place: dict[str, str] = {}


class Opener:
    """Opens what lies in the folders, for any thread. A file that has changed is read
    again."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._traces = Recent(MAX_TRACES)
        self.answers = Recent(MAX_ANSWERS)
        """Those that were given last, for their next pages."""
        self._names = _Names()

    def open(self, name: str, stop: Stop = never) -> KeptTrace:
        """Return the trace of that name, which is kept open for later calls. A file
        that changed since is read again. Raises Error with one plain sentence, also
        once `stop` has ended the reading."""
        path = self.folders.file(name)
        file = self._opened(name, path)
        state = _make_state(path, os.fstat(file.number))
        kept_trace: KeptTrace = self._traces.get(
            state, lambda: self._read(name, state, file, stop), stop
        )
        self._names.by_place[_descriptor_path(kept_trace.file)] = name
        return kept_trace if kept_trace.name == name else replace(kept_trace, name=name)

    @contextmanager
    def lent(self, name: str) -> Iterator[str]:
        """Within the block, give a path at which the file `name` can be read, which
        need not be a trace. Raises Error.

        Where the system gives paths for open files, as Linux does, a replacement of the
        file has no effect. Elsewhere Error is raised after the block if the file was
        replaced meanwhile."""
        path = self.folders.file(name)
        file = self._opened(name, path)
        readable_path = _descriptor_path(file)
        # some systems give no paths for open files
        if not os.path.exists(readable_path):
            readable_path = path
        self._names.by_place[readable_path] = name
        yield readable_path
        if readable_path == path and not _is_unchanged_path(
            path, os.fstat(file.number)
        ):
            raise CannotReadError(f"{name} was replaced while it was read: try again.")

    @contextmanager
    def lent_job(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Within the block, give the paths of the traces of a job, which other
        processes may read. `names` are files and folders. Raises Error, also after the
        block if a file was replaced meanwhile."""
        paths = self._job(names)
        status_before: dict[str, os.stat_result] = {}
        for path in paths:
            if not self.folders.has(path):  # it ships with fusetui
                continue
            name = self.folders.called(path)
            self._names.by_place[path] = name
            file = self._opened(name, path)  # which is open as long as the name
            status_before[path] = os.fstat(file.number)
        yield paths
        for path, before in status_before.items():
            if not _is_unchanged_path(path, before):
                name = self._names.by_place[path]
                raise CannotReadError(
                    f"{name} was replaced while it was read: try again."
                )

    def states_of(self, asked: Any) -> tuple[State, ...]:
        """Return the states of all files that a call names, without opening them. Equal
        states mean unchanged files. Raises Error if a file cannot be found or examined.
        """
        paths = []
        for argument in ("trace", "model_config"):
            name = getattr(asked, argument, None)
            if name:
                paths.append(self.folders.file(name))
        paths += self._job(getattr(asked, "traces", ()))
        states = []
        for path in paths:
            try:
                states.append(_make_state(path, os.stat(path)))
            except OSError as error:
                raise CannotReadError(
                    f"{path} cannot be opened: {reason(error)}."
                ) from None
        return tuple(states)

    def with_names(self, answer: Any) -> Any:
        """Return an answer with the names of traces in place of their paths, in all its
        texts. Structs are not accepted: it has to be plain values."""
        if isinstance(answer, str):
            return self.told(answer)
        if isinstance(answer, dict):
            return {key: self.with_names(value) for key, value in answer.items()}
        if isinstance(answer, list | tuple):
            return [self.with_names(one) for one in answer]
        return answer

    def _job(self, names: Sequence[str]) -> list[str]:
        """Return the paths of the traces that `names` stand for, each once. A folder
        stands for all traces of the job in it. Raises Error."""
        paths: list[str] = []
        for name in names:
            may_be_folder = not is_shipped(name) and not is_remote(name)
            if may_be_folder and self.folders.is_folder(name):
                paths += self.folders.traces_below(name)
            else:
                paths.append(self.folders.file(name))
        return list(dict.fromkeys(paths))

    def _opened(self, name: str, path: str) -> OpenFile:
        """Open the file at `path`, which the server is allowed to read. `name` is what
        the client calls it. Raises CannotReadError."""
        try:
            return (
                _open_shipped_file(path)
                if is_shipped(name)
                else self.folders.opened(path)
            )
        except OSError as error:
            raise CannotReadError(
                f"{name} cannot be opened: {reason(error)}."
            ) from None

    def told(self, sentence: str) -> str:
        """Return a sentence with the names that the client uses in place of the paths
        of files. The longest paths are replaced first, as one path may begin with
        another."""
        longest_first = sorted(self._names.by_place, key=len, reverse=True)
        for read_path in longest_first:
            sentence = sentence.replace(read_path, self._names.by_place[read_path])
        return sentence

    def _read(self, name: str, state: State, file: OpenFile, stop: Stop) -> KeptTrace:
        """Read the trace in an open file, join the captures of its CUDA graphs, and
        collect notes on its figures. Raises Error."""
        trace = self._trace(name, state.path, file, stop)
        notes = [*notices(trace.report)]
        if wants_capture(trace):
            trace, about_joins = self._joined(trace, is_shipped(name), stop)
            notes += about_joins
        notes += notes_of(trace)
        return KeptTrace(
            name=name,
            state=state,
            trace=trace,
            notes=tuple(dict.fromkeys(notes)),
            file=file,
        )

    def _trace(self, name: str, path: str, file: OpenFile, stop: Stop) -> Trace:
        """Return the trace in an open file. `path` is the path that its report names.

        Where the system gives no paths for open files, and for an SQLite database, the
        file is read at `path`. Raises CannotReadError if it was replaced meanwhile, or
        once `stop` returns True.
        """
        readable_path = _descriptor_path(file)
        is_database = read_at(file.number, 0, len(SQLITE_HEAD)) == SQLITE_HEAD
        if is_database or not os.path.exists(readable_path):
            readable_path = path
        self._names.by_place[readable_path] = name
        try:
            trace = open_trace(readable_path, stop=stop)
            if trace.report.prefix is not None:
                raise NothingReadError
        except NothingReadError:
            raise CannotReadError(
                f"{name} was not read: the request was cancelled."
            ) from None
        if readable_path == path and not _is_unchanged_path(
            path, os.fstat(file.number)
        ):
            raise CannotReadError(f"{name} was replaced while it was read: try again.")
        return replace(trace, report=replace(trace.report, path=path, named=name))

    def _joined(self, trace: Trace, ships: bool, stop: Stop) -> tuple[Trace, list[str]]:
        """Return the trace with captures of its CUDA graphs that lie beside it, and
        notes about them. Nothing is joined if a file beside it is a link out of the
        allowed folders. Raises CannotReadError."""
        from fusetui.analysis.graphs.opening import (
            join_sentences,
            list_files_beside,
            with_captures,
        )

        path = trace.report.path
        if not ships:
            for neighbor in list_files_beside(path):
                if not self.folders.has(neighbor.path):
                    return trace, [NOT_JOINED]
        open_files: list[OpenFile] = []  # as long as captures are read

        def opened(path: str) -> Trace:
            try:
                file = _open_shipped_file(path) if ships else self.folders.opened(path)
            except OSError as error:
                raise CannotReadError(
                    f"{path} cannot be opened: {reason(error)}."
                ) from None
            open_files.append(file)
            return self._trace(path, path, file, stop)

        trace, joins = with_captures(trace, (), opened)
        return trace, join_sentences(joins)


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
        """Return the path of a trace, without links. Raises CommandError for a URL, for
        what is not a file, and for a file outside the allowed folders."""
        if is_shipped(name):
            return one_trace(name)
        if is_remote(name):
            raise CommandError(f"{name} is a URL: this server reads files only.")
        path = self._inside(name)
        if not os.path.isfile(path):
            kind_of_path = "a folder" if os.path.isdir(path) else "no file"
            raise CommandError(
                f"{name} is {kind_of_path}: the tool traces lists the available files."
            )
        return path

    def opened(self, path: str) -> OpenFile:
        """Open the regular file at a path that has no links. If part of the path has
        become a link since, it is not followed, so the file lies where it was allowed.
        Raises OSError."""
        number = _open_without_links(path)
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OSError(errno.EINVAL, "it is no longer a regular file")
            return OpenFile(number)
        finally:
            os.close(number)

    def has(self, path: str) -> bool:
        """Return whether a path lies in one of the allowed folders, once all links are
        followed."""
        real = os.path.realpath(path)
        return any(os.path.commonpath([real, root]) == root for root in self.roots)

    def is_folder(self, name: str) -> bool:
        """Whether a name is that of a folder. Raises CommandError for what is
        outside."""
        return os.path.isdir(self._inside(name))

    def traces_below(self, name: str) -> list[str]:
        """Return the traces of a job in a folder, as paths without links. A link that
        leads out of the allowed folders is left out. Raises Error."""
        paths = [
            os.path.realpath(path) for path in find_traces_of_job(self._inside(name))
        ]
        return [path for path in paths if self.has(path) and os.path.isfile(path)]

    def called(self, path: str) -> str:
        """How a client names a path in the folders."""
        root = self.roots[0]
        is_below = os.path.commonpath([path, root]) == root
        return os.path.relpath(path, root) if is_below else path

    def listed(self) -> tuple[list[Listed], list[str]]:
        """Return the files that may be traces and all samples and lessons, and notes.
        There is one note, if only MAX_LISTED_FILES files are listed; else none."""
        files = list(islice(self._find_files(), MAX_LISTED_FILES + 1))
        listed_files = files[:MAX_LISTED_FILES]
        for name in lessons.names():
            listed_files.append(Listed(LESSON + name, shows=lessons.describe(name)))
        for name in sample_traces.names():
            listed_files.append(
                Listed(SAMPLE + name, shows=sample_traces.describe(name))
            )
        if len(files) <= MAX_LISTED_FILES:
            return listed_files, []
        note = f"Only the first {MAX_LISTED_FILES:,} files are listed: name a folder with fewer."
        return listed_files, [note]

    def _inside(self, name: str) -> str:
        """Return the path that a client names, without links. A relative name starts at
        the first folder. Raises CommandError if the path lies outside the allowed
        folders."""
        try:
            real = os.path.realpath(os.path.join(self.roots[0], name))
        except ValueError:  # a null byte
            raise CommandError(f"{name} is not a file name.") from None
        if not self.has(real):
            raise CommandError(
                f"{name} is outside the folders that this server may read "
                f"({several(self.roots, 3)}): --allow names others when it is started."
            )
        return real

    def _find_files(self) -> Iterator[Listed]:
        """Yield the files in the allowed folders whose names end like those of traces,
        sorted. Hidden folders are skipped, and no link to a folder is followed."""
        for root in self.roots:
            for folder, inner_folders, names in os.walk(root):
                inner_folders[:] = sorted(
                    inner for inner in inner_folders if not inner.startswith(".")
                )
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    if not path.endswith(ENDINGS):
                        continue
                    if not (os.path.isfile(path) and self.has(path)):
                        continue
                    is_relative = root == self.roots[0]
                    called = os.path.relpath(path, root) if is_relative else path
                    yield Listed(called, bytes=os.path.getsize(path))


def _descriptor_path(file: OpenFile) -> str:
    """Return the path of an open file by its number, on systems such as Linux that have
    /proc."""
    return f"/proc/self/fd/{file.number}"


def _is_unchanged_path(path: str, before: os.stat_result) -> bool:
    """Return whether `path` still leads to the file with the status `before`, and by no
    link. False if it cannot be examined."""
    try:
        is_link = os.path.realpath(path) != path
        return not is_link and os.path.samestat(os.stat(path), before)
    except OSError:
        return False


def _open_shipped_file(path: str) -> OpenFile:
    """Open a file that ships with fusetui, which may be a link. Raises OSError."""
    with open(path, "rb") as file:
        return OpenFile(file.fileno())


def _open_without_links(path: str) -> int:
    """Open an absolute path for reading and return its descriptor. Raises OSError, also
    if any part of the path is a link.

    Folder after folder is opened, so that no part can be replaced meanwhile. Where the
    system cannot do that, the path is checked for links after it is opened.
    """
    if os.open not in os.supports_dir_fd:
        number = os.open(path, OPEN_FLAGS)
        if os.path.realpath(path) == path:
            return number
        os.close(number)
        raise OSError(errno.ELOOP, "it became a link")
    # O_PATH, of Linux, needs no permission to list a folder
    folder_flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    *folder_names, file_name = path.split("/")[1:]
    try:
        for name in folder_names:
            inner = os.open(name, folder_flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(file_name, OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
