"""The files that a server may read: those that lie in its folders once all links are followed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from fusetui import sample_traces
from fusetui.commands.errors import CommandError
from fusetui.commands.sources import ENDINGS, LESSON, SAMPLE, is_shipped, one_trace
from fusetui.sample_traces import lessons
from fusetui.text.figures import several
from fusetui.trace.read.remote import is_remote

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
            raise CommandError(f"{name} is {what}: the tool traces lists the files that there are.")
        return path

    def has(self, path: str) -> bool:
        """Whether it lies in one of the folders."""
        real = os.path.realpath(path)
        return any(os.path.commonpath([real, root]) == root for root in self.roots)

    def listed(self) -> tuple[list[Listed], list[str]]:
        """The files that may be traces, and what ships with fusetui; and a note if not all of the
        files are listed."""
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
                    if path.endswith(ENDINGS) and os.path.isfile(path) and self.has(path):
                        name = os.path.relpath(path, root) if root == self.roots[0] else path
                        yield Listed(name, os.path.getsize(path))
