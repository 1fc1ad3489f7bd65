"""The files that a compile log consists of.

Only regular files at or below the path that the user names are opened. Links are left
out, because they may lead anywhere, and so are pipes and devices.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fusetui.trace.compile_log.records import is_compile_log
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError
from fusetui.trace.read.source import is_remote, open_stored
from fusetui.trace.read.unpack import first_pieces

MAX_LEVELS = 4  # of folders, below the one that is named
MAX_ENTRIES = 20_000  # of folders, that are looked at altogether
MAX_LOGS = 4_096  # one for each rank
MAX_GRAPH_FOLDERS = 10_000
HEAD_BYTES = 1 << 16  # of a file, that show what it is
ENDINGS = (".log", ".log.gz", ".log.zst", ".txt", ".txt.gz", ".txt.zst")
"""Names of files that are looked at to find out whether they are logs."""
OUTPUT_CODE = "output_code.py"
"""Of each folder of a graph in `torch_compile_debug/run_*/torchinductor/*/`."""


class LogFiles(msgspec.Struct, frozen=True):
    """What of a path may be read."""

    path: str  # as the user named it
    logs: tuple[str, ...]  # recognized by their content
    graph_folders: tuple[str, ...]  # of torch_compile_debug
    links: int  # that were left out
    is_cut: bool  # there are more than are looked at

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read."""
        return not (self.logs or self.graph_folders)


def find_log_files(path: str) -> LogFiles:
    """The logs behind a path: the file itself, or everything in a folder and below it.
    Raises CannotReadError for a URL, and for what is no file or folder."""
    if is_remote(path) or path == "-":
        raise CannotReadError(
            f"{path} is not a local file or folder, which a compile log must be."
        )
    if not os.path.exists(path):
        raise CannotReadError(f"{path} cannot be opened: no such file.")
    if not os.path.isdir(path):
        if not os.path.isfile(path):
            raise CannotReadError(f"{path} is neither a file nor a folder.")
        return LogFiles(
            path=path, logs=(path,), graph_folders=(), links=0, is_cut=False
        )
    walk = _Walk()
    walk.look_into(Path(path), MAX_LEVELS)
    return LogFiles(
        path=path,
        logs=tuple(sorted(walk.logs)),
        graph_folders=tuple(sorted(walk.graph_folders)),
        links=walk.links,
        is_cut=walk.is_cut,
    )


def check_log_path(path: str) -> str:
    """The path itself, if there is a compile log behind it. Raises TraceError if there
    is none."""
    files = find_log_files(path)
    if files.is_empty:
        raise NotATraceError(explain_empty(files))
    if not os.path.isdir(path) and not looks_like_log(path):
        raise NotATraceError(f"{path} is not a TORCH_TRACE log.")
    return path


def logs_beside(folder: Path, most: int) -> list[str]:
    """The logs directly in a folder, recognized by their content. At most `most` files
    with the names of logs are looked at. [] if the folder cannot be listed."""
    names = []
    for entry in _list_folder(folder, MAX_ENTRIES):
        if entry.name.endswith(ENDINGS) and _is_regular(entry):
            names.append(entry.path)
    return [path for path in sorted(names)[:most] if looks_like_log(path)]


def looks_like_log(path: str) -> bool:
    """Whether a file is a compile log, judged by its first bytes once unpacked. False
    if it cannot be read."""
    try:
        return is_compile_log(read_head(path))
    except (TraceError, OSError):
        return False


def read_head(path: str) -> bytes:
    """The first bytes of a file, unpacked; b"" if it cannot be unpacked. Raises
    TraceError and OSError."""
    stored = open_stored(path)
    with stored.file:
        pieces = first_pieces(stored.document, stored.packing, HEAD_BYTES)
        return b"".join(pieces)[:HEAD_BYTES]


class _Walk:
    """Goes through folders, within bounds."""

    def __init__(self) -> None:
        """Start without files."""
        self.logs: list[str] = []
        self.graph_folders: list[str] = []
        self.links = 0
        self.is_cut = False
        self._entries_left = MAX_ENTRIES

    def look_into(self, folder: Path, levels: int) -> None:
        """Take the logs in a folder and in the folders below it, at most `levels` deep.
        Links are counted, not followed."""
        subfolders: list[Path] = []
        for entry in _list_folder(folder, self._entries_left):
            self._entries_left -= 1
            if entry.is_symlink():
                self.links += 1
            elif entry.is_dir(follow_symlinks=False):
                subfolders.append(Path(entry.path))
            elif _is_regular(entry):
                self._take(folder, entry)
        may_go_deeper = self._entries_left > 0 and levels > 0
        if subfolders and not may_go_deeper:
            self.is_cut = True
            return
        for path in sorted(subfolders):
            self.look_into(path, levels - 1)

    def _take(self, folder: Path, entry: os.DirEntry[str]) -> None:
        """Take a regular file if it is a log, or the code in the folder of a graph.
        `is_cut` notes that there are too many."""
        if entry.name == OUTPUT_CODE:
            if len(self.graph_folders) < MAX_GRAPH_FOLDERS:
                self.graph_folders.append(str(folder))
            else:
                self.is_cut = True
        elif entry.name.endswith(ENDINGS) and looks_like_log(entry.path):
            if len(self.logs) < MAX_LOGS:
                self.logs.append(entry.path)
            else:
                self.is_cut = True


def _list_folder(folder: Path, most: int) -> Iterator[os.DirEntry[str]]:
    """Yield at most `most` entries of a folder; nothing if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= most:
                    return
                yield entry
    except OSError:
        return


def _is_regular(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is a regular file, not a link to one."""
    try:
        return stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def read_text_in(folder: str, name: str, most: int) -> str:
    """The text of a regular file in a folder, at most `most` bytes of it; "" if there
    is none. Links are not followed."""
    return read_bytes_in(folder, name, most).decode("utf-8", "replace")


def read_bytes_in(folder: str, name: str, most: int) -> bytes:
    """The first bytes of a regular file in a folder, at most `most`; b"" if there is
    none. Links are not followed."""
    path = os.path.join(folder, name)
    no_follow = getattr(os, "O_NOFOLLOW", 0)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        number = os.open(path, os.O_RDONLY | no_follow)
        with os.fdopen(number, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def explain_empty(files: LogFiles) -> str:
    """A sentence about a path at which no compile log was found."""
    links = " Links are not followed." if files.links else ""
    return (
        f"{files.path} contains no torch.compile log (written by "
        f"TORCH_TRACE=DIR).{links}"
    )
