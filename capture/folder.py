"""Run folders. Does not need torch.

The name of a folder is reserved before anything is measured, so that two captures never
use the same one. Until a run is complete, its files are in `.NAME.part` beside its
folder. There a marker file says which machine runs the capture. It is locked as long as
the capture is alive, so the next capture can tell a folder that is being written from
one that a killed capture left behind, which it removes.
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
from .guard import cleaned_up_on_signal

try:
    import fcntl
except ImportError:  # Windows: a folder cannot be proven to be abandoned
    fcntl = None  # type: ignore[assignment]

MARKER = ".fusetui-capture"
"""The file that marks a folder as ours; it names the machine that holds the lock."""
_PART_NAME = re.compile(r"\..+\.part", re.DOTALL)
_SAFE_OPEN_FLAGS = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
"""Whatever another program put into the place of a file: no link is followed, and no
pipe is waited for. Windows has none of these flags."""

_open_claims: set[FolderClaim] = set()
"""What this process has claimed and neither kept nor released."""


class TakenError(CaptureError):
    """The folder exists, or another capture is writing it."""


class FolderClaim:
    """A reserved name, `out`, and the folder to fill, `part`.

    `keep` renames `part` to `out`, and `release` removes it; in a child process that
    the user's code forked, neither does anything. The constructor makes `part`. It
    raises TakenError if `out` exists or another capture is writing it, and CaptureError
    if the folder cannot be made.
    """

    def __init__(self, out: Path) -> None:
        """Claims the folder `out`, which must not exist. Raises CaptureError."""
        self.out = out
        if out.name in ("", ".."):
            raise CaptureError(
                f"{out} is not a valid name for a new folder: choose another --out."
            )
        try:  # the same folder whatever the working directory becomes
            self._absolute_out = out.absolute()
        except OSError as error:
            raise CaptureError(
                f"The working directory no longer exists: {error.strerror}."
            ) from error
        self.part = self._absolute_out.with_name(f".{self._absolute_out.name}.part")
        self._owner = os.getpid()
        self._raise_if_taken()
        remove_abandoned(self._absolute_out.parent)
        self._new_parents = [
            parent for parent in self._absolute_out.parents if not parent.exists()
        ]
        self._marker = self._make_part()
        _open_claims.add(self)
        try:  # another capture may have finished since
            self._raise_if_taken()
        except TakenError:
            self.release()
            raise

    def keep(self) -> None:
        """Renames the folder to `out`. Raises CaptureError if that is not possible, and
        also if another program has made `out` meanwhile, after renaming the folder to
        `out-2`, `out-3` ..."""
        if os.getpid() != self._owner:
            return
        final = next(
            path
            for path in numbered_paths(self._absolute_out)
            if not os.path.lexists(path)
        )
        try:
            self.part.rename(final)
            (final / MARKER).unlink()
        except OSError as error:
            raise CaptureError(f"Cannot write to {final}: {error.strerror}.") from error
        self._unlock()
        if final != self._absolute_out:
            raise CaptureError(
                f"Another program created {self.out}: the run is in {final}."
            )

    def release(self) -> None:
        """Removes the folder, and those of its parents that were made for it, unless
        they hold something else."""
        if os.getpid() != self._owner or self not in _open_claims:
            return
        shutil.rmtree(self.part, ignore_errors=True)
        with suppress(OSError):
            for parent in self._new_parents:
                parent.rmdir()
        self._unlock()

    def _raise_if_taken(self) -> None:
        if os.path.lexists(self._absolute_out):
            raise TakenError(
                f"{self.out} already exists: choose another --out, or move it."
            )

    def _make_part(self) -> int:
        """Makes the folder and its marker, whose descriptor it returns."""
        try:
            self.part.mkdir(parents=True)
        except FileExistsError:
            raise TakenError(
                f"another capture is writing {self.out}: choose another --out or, if "
                f"no other capture is running, remove {self.part}."
            ) from None
        except OSError as error:
            raise CaptureError(
                f"Cannot write to {self.out.parent}: {error.strerror}."
            ) from error
        try:
            return _make_marker(self.part)
        except OSError as error:
            shutil.rmtree(self.part, ignore_errors=True)
            raise CaptureError(
                f"Cannot write to {self.part}: {error.strerror}."
            ) from error

    def _unlock(self) -> None:
        _open_claims.discard(self)
        os.close(self._marker)


def claim_free(first: Path) -> FolderClaim:
    """Claims `first`, or if it is taken the first free one of `first-2`, `first-3` ...
    Raises CaptureError if a folder cannot be made."""
    for path in numbered_paths(first):
        with suppress(TakenError):
            return FolderClaim(path)
    raise AssertionError("numbered_paths() never ends")


def numbered_paths(first: Path) -> Iterator[Path]:
    """`mlp`, `mlp-2`, `mlp-3` ... without end."""
    yield first
    for number in count(2):
        yield first.with_name(f"{first.name}-{number}")


def release_all() -> None:
    """Removes every folder that this process has claimed and not kept."""
    for claim in list(_open_claims):
        claim.release()


def remove_abandoned(parent: Path) -> None:
    """Removes from `parent` the folders of this user's captures that were killed. Those
    that are being written stay, and all that may be something else: see
    `_is_abandoned`. Errors are ignored."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not _PART_NAME.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(parent / entry.name)


def _remove_if_abandoned(part: Path) -> None:
    """Raises OSError if the folder cannot be opened or removed."""
    folder_flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    with (
        _opened(part, folder_flags) as folder,
        _opened(MARKER, os.O_RDWR, folder) as marker,
    ):
        if not _is_abandoned(part, folder, marker):
            return
        for name in os.listdir(folder):
            if name != MARKER:
                os.unlink(name, dir_fd=folder)
        # last: without it, nobody could tell that what is left is ours
        os.unlink(MARKER, dir_fd=folder)
        part.rmdir()


def _is_abandoned(part: Path, folder: int, marker: int) -> bool:
    """Whether a folder was left behind by a capture of this user on this machine, and
    holds nothing but files. `folder` and `marker` are descriptors; on success the
    marker stays locked until its descriptor is closed. Raises OSError."""
    if not _belongs_to_user(folder) or not _belongs_to_user(marker):
        return False
    if not _lock(marker):  # its capture is alive
        return False
    text = _marker_text()
    if os.pread(marker, len(text) + 1, 0) != text:
        return False
    # A capture that finished before we had the lock has renamed the folder.
    if not os.path.samestat(os.stat(part / MARKER), os.fstat(marker)):
        return False
    for name in os.listdir(folder):
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(state.st_mode):
            return False
    return True


@contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    """The descriptor of a file, relative to that of a folder. Raises OSError."""
    descriptor = os.open(path, flags | _SAFE_OPEN_FLAGS, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_marker(part: Path) -> int:
    """Makes the marker of a new folder and locks it; returns its descriptor, which
    holds the lock until it is closed. The text is written once the file is locked; if
    files cannot be locked here, the marker stays empty, which `_is_abandoned` does not
    accept. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE_OPEN_FLAGS
    marker = os.open(part / MARKER, flags, 0o600)
    try:
        if _lock(marker):
            os.write(marker, _marker_text())
    except BaseException:
        os.close(marker)
        raise
    return marker


def _marker_text() -> bytes:
    """It names this machine, because locks that another one holds may be invisible
    here: folders of other machines are never removed."""
    return f"fusetui capture on {platform.node()}\n".encode(errors="replace")


def _lock(descriptor: int) -> bool:
    """Locks a file without waiting; returns whether it could be locked."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _belongs_to_user(descriptor: int) -> bool:
    """Whether it is a regular file or a folder of this user; on Windows, of any."""
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        return False
    return not hasattr(os, "geteuid") or state.st_uid == os.geteuid()


def default_folder(workload: str, device_kind: str, now: datetime) -> Path:
    """`runs/mlp-cpu-20260131-174500`, which may exist."""
    return Path("runs") / f"{workload}-{device_kind}-{now:%Y%m%d-%H%M%S}"


def folder_name(workload: str) -> str:
    """The workload as part of a folder's name: `mlp` as it is, and
    `src/my_file.py:build` as `my_file-build`. Other characters than letters, digits,
    `_`, `.` and `-` become `-`."""
    source, _, function = workload.rpartition(":")
    name = f"{Path(source).stem}-{function}" if source else workload
    return re.sub(r"[^\w.-]", "-", name)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill. It becomes `out` if the block succeeds; it is removed if the
    block raises, or if a signal ends the process. If the process is killed, the next
    capture removes it. Raises TakenError if `out` exists, and CaptureError if it cannot
    be made."""
    with folder_to_fill(lambda: FolderClaim(out)) as claim:
        yield claim.part


@contextmanager
def folder_to_fill(make_claim: Callable[[], FolderClaim]) -> Iterator[FolderClaim]:
    """The same for a folder that `make_claim` reserves: the block fills `part`, and
    `out` is its final name."""
    with cleaned_up_on_signal(release_all):
        claim = make_claim()
        try:
            yield claim
            claim.keep()
        except BaseException:
            claim.release()
            raise


def as_json(content: object) -> bytes:
    """The JSON of run.json and sweep.json: indented, with a newline at the end."""
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_file(path: Path, content: bytes) -> None:
    """Writes a file. Raises CaptureError if that fails."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CaptureError(f"Cannot write {path.name}: {error.strerror}.") from error
