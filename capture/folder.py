"""Run folders: reserved before measuring, so that two captures never use the same one,
and written under a temporary name, until they are complete.

Until a run is complete, it is in `.NAME.part` next to its folder. A file in it, locked
as long as the capture is alive, shows the next capture that the folder is ours, and
whether it is still being written. Does not need torch.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path

import orjson

from .errors import CaptureError
from .guard import tidied

try:
    import fcntl
except ImportError:  # Windows: a folder cannot be proven to be abandoned
    fcntl = None  # type: ignore[assignment]

MARKER = ".fusetui-capture"
"""The file that marks a folder as ours; it names the machine that holds the lock."""
_PART = re.compile(r"\..+\.part", re.DOTALL)
_OPEN = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)

# what this process has claimed and neither kept nor released
_held: set[FolderClaim] = set()


class TakenError(CaptureError):
    """The folder exists, or another capture is writing it."""


class FolderClaim:
    """A folder to fill, `part`, which becomes `out` or is removed. A child process
    forked by the user's code can do neither. Raises CaptureError; TakenError if `out`
    is already taken."""

    def __init__(self, out: Path) -> None:
        self.out = out
        if out.name in ("", ".."):
            raise CaptureError(
                f"{out} is not a valid name for a new folder: give another --out."
            )
        try:  # the same folder whatever the working directory becomes
            self._place = out.absolute()
        except OSError as error:
            raise CaptureError(
                f"The working directory is gone: {error.strerror}."
            ) from error
        self.part = self._place.with_name(f".{self._place.name}.part")
        self._pid = os.getpid()
        if os.path.lexists(self._place):
            raise TakenError(
                f"{out} exists already: give another --out, or move it away."
            )
        remove_abandoned(self._place.parent)
        self._made = [parent for parent in self._place.parents if not parent.exists()]
        self._marker = self._make()
        _held.add(self)
        if os.path.lexists(self._place):  # another capture was faster
            self.release()
            raise TakenError(
                f"{out} exists already: give another --out, or move it away."
            )

    def keep(self) -> None:
        """Renames the folder. Raises CaptureError if the run had to get another
        name."""
        if os.getpid() != self._pid:
            return
        named = next(
            path for path in numbered(self._place) if not os.path.lexists(path)
        )
        try:
            self.part.rename(named)
            (named / MARKER).unlink()
        except OSError as error:
            raise CaptureError(f"Cannot write to {named}: {error.strerror}.") from error
        self._let_go()
        if named != self._place:
            raise CaptureError(
                f"{self.out} was made by another program: the run is in {named}."
            )

    def release(self) -> None:
        """Removes the folder, and any parent folders that were created for it."""
        if os.getpid() != self._pid or self not in _held:
            return
        shutil.rmtree(self.part, ignore_errors=True)
        with suppress(OSError):
            for parent in self._made:
                parent.rmdir()
        self._let_go()

    def _make(self) -> int:
        try:
            self.part.mkdir(parents=True)
        except FileExistsError:
            raise TakenError(
                f"another capture is writing {self.out}: give another --out, or, if there is no "
                f"other capture, remove {self.part}."
            ) from None
        except OSError as error:
            raise CaptureError(
                f"Cannot write to {self.out.parent}: {error.strerror}."
            ) from error
        try:
            return _marked(self.part)
        except OSError as error:
            shutil.rmtree(self.part, ignore_errors=True)
            raise CaptureError(
                f"Cannot write to {self.part}: {error.strerror}."
            ) from error

    def _let_go(self) -> None:
        _held.discard(self)
        os.close(self._marker)


def claim_free(first: Path) -> FolderClaim:
    """A folder to fill, with a number appended to its name if it is taken. Raises
    CaptureError."""
    for path in numbered(first):
        with suppress(TakenError):
            return FolderClaim(path)
    raise AssertionError("there is always a higher number")


def numbered(first: Path) -> Iterator[Path]:
    """`mlp`, `mlp-2`, `mlp-3` ..."""
    yield first
    yield from (first.with_name(f"{first.name}-{number}") for number in count(2))


def release_all() -> None:
    """Removes everything that this process has claimed."""
    for claim in list(_held):
        claim.release()


def remove_abandoned(parent: Path) -> None:
    """Removes what captures of this user left in a folder when they were killed. Only
    runs that are certainly ours and no longer being written: see `_is_abandoned`."""
    with suppress(OSError), os.scandir(parent) as found:
        for item in found:
            if _PART.fullmatch(item.name) and item.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(parent / item.name)


def _remove_if_abandoned(part: Path) -> None:
    directory = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    with (
        _opened(part, directory) as folder,
        _opened(MARKER, os.O_RDWR, folder) as marker,
    ):
        if _is_abandoned(part, folder, marker):
            # the marker goes last
            for name in sorted(os.listdir(folder), key=MARKER.__eq__):
                os.unlink(name, dir_fd=folder)
            part.rmdir()


def _is_abandoned(part: Path, folder: int, marker: int) -> bool:
    """Whether a folder belongs to a capture on this machine whose lock is free. Once we
    hold the lock, the marker must still be in place; otherwise the capture has
    finished, and this is a run that was kept. Raises OSError."""
    if not _is_users(folder) or not _is_users(marker) or not _locked(marker):
        return False
    if os.pread(marker, len(_mark()) + 1, 0) != _mark():
        return False
    if not os.path.samestat(os.stat(part / MARKER), os.fstat(marker)):
        return False
    found = [
        os.stat(name, dir_fd=folder, follow_symlinks=False)
        for name in os.listdir(folder)
    ]
    return all(stat.S_ISREG(state.st_mode) for state in found)


@contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    number = os.open(path, flags | _OPEN, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)


def _marked(part: Path) -> int:
    """Puts the marker into a new folder; its lock lasts as long as the descriptor.
    Raises OSError. The marker is empty until it is locked, and stays empty if files
    cannot be locked: an empty marker proves nothing."""
    marker = os.open(part / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    try:
        if _locked(marker):
            os.write(marker, _mark())
    except BaseException:
        os.close(marker)
        raise
    return marker


def _mark() -> bytes:
    """What the marker says. Locks of other machines may be invisible: their folders
    stay."""
    return f"fusetui capture on {platform.node()}\n".encode(errors="replace")


def _locked(marker: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_users(number: int) -> bool:
    state = os.fstat(number)
    regular = stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)
    return regular and (not hasattr(os, "geteuid") or state.st_uid == os.geteuid())


def default_folder(workload: str, device_kind: str, now: datetime) -> Path:
    """`runs/mlp-cpu-20260131-174500`; the name may be taken."""
    return Path("runs") / f"{workload}-{device_kind}-{now:%Y%m%d-%H%M%S}"


def file_name(workload: str) -> str:
    """A folder's name for a workload: `my_file-build` for `src/my_file.py:build`."""
    source, _, name = workload.rpartition(":")
    return re.sub(
        r"[^\w.-]", "-", f"{Path(source).stem}-{name}" if source else workload
    )


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` if the block succeeds and is removed if it
    does not. It is also removed if a signal ends the process; if it is killed, see
    `remove_abandoned`. Raises CaptureError if `out` already exists or cannot be
    created."""
    with filled(lambda: FolderClaim(out)) as claim:
        yield claim.part


@contextmanager
def filled(take: Callable[[], FolderClaim]) -> Iterator[FolderClaim]:
    """The same for a folder that `take` claims: `part` is to be filled, `out` its final
    name."""
    with tidied(release_all):
        claim = take()
        try:
            yield claim
            claim.keep()
        except BaseException:
            claim.release()
            raise


def as_json(content: object) -> bytes:
    """As our files have it: indented, with a newline at the end."""
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def store(path: Path, content: bytes) -> None:
    """Writes a file. Raises CaptureError."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CaptureError(f"Cannot write {path.name}: {error.strerror}.") from error
