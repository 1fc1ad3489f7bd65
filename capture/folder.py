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
from .guard import clean_up_on_signal

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
        """Rename the folder to `out`. Raises CaptureError if that is not possible. If
        another program has made `out` meanwhile, the folder becomes `out-2`, `out-3`
        and so on, and CaptureError is raised too."""
        if os.getpid() != self._owner:
            return

        final_folder = next(
            path
            for path in numbered_paths(self._absolute_out)
            if not os.path.lexists(path)
        )
        try:
            self.part.rename(final_folder)
            (final_folder / MARKER).unlink()
        except OSError as error:
            raise CaptureError(
                f"Cannot write to {final_folder}: {error.strerror}."
            ) from error

        self._unlock()
        if final_folder != self._absolute_out:
            raise CaptureError(
                f"Another program created {self.out}: the run is in {final_folder}."
            )

    def release(self) -> None:
        """Remove the folder, and those of its parents that were made for it, unless
        they hold something else. Nothing happens in a forked child, or if it was kept
        or released already."""
        if os.getpid() != self._owner or self not in _open_claims:
            return
        shutil.rmtree(self.part, ignore_errors=True)
        # a parent that holds something else stays, and so do those above it
        with suppress(OSError):
            for parent in self._new_parents:
                parent.rmdir()
        self._unlock()

    def _raise_if_taken(self) -> None:
        """Raise TakenError if the final folder exists already."""
        if os.path.lexists(self._absolute_out):
            raise TakenError(
                f"{self.out} already exists: choose another --out, or move it."
            )

    def _make_part(self) -> int:
        """Make the folder to fill and its marker file, and return the descriptor of the
        marker. Raises TakenError if another capture is writing it, and CaptureError if
        it cannot be made."""
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
    """Claim `first`, or if it is taken the first free one of `first-2`, `first-3` and
    so on. Raises CaptureError if a folder cannot be made."""
    for path in numbered_paths(first):
        # another capture may have taken the name since
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
    """Remove from `parent` the folders that killed captures of this user left behind.
    Folders that are being written stay, and so does all that may be something else.
    Errors are ignored."""
    # cleaning up is a courtesy: a capture must not fail because of it
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not _PART_NAME.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(parent / entry.name)


def _remove_if_abandoned(part: Path) -> None:
    """Remove a folder and its files if a killed capture left it behind. Raises OSError
    if it cannot be opened or removed."""
    folder_flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    with (
        _open_descriptor(part, folder_flags) as folder,
        _open_descriptor(MARKER, os.O_RDWR, folder) as marker,
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
    """Return whether a capture of this user on this machine left a folder behind, and
    it holds nothing but files. `folder` and `marker` are descriptors.

    If so, the marker stays locked until its descriptor is closed, so that no other
    process removes it too. Raises OSError.
    """
    if not _belongs_to_user(folder) or not _belongs_to_user(marker):
        return False
    if not _lock(marker):  # its capture is alive
        return False

    text = _make_marker_text()
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
def _open_descriptor(
    path: Path | str, flags: int, folder: int | None = None
) -> Iterator[int]:
    """Within the block, give the descriptor of a file. `folder` is the descriptor of
    the folder that `path` is relative to. Raises OSError."""
    descriptor = os.open(path, flags | _SAFE_OPEN_FLAGS, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_marker(part: Path) -> int:
    """Make the marker file of a new folder, lock it, and return its descriptor, which
    holds the lock until it is closed.

    The text is written once the file is locked. Where files cannot be locked the marker
    stays empty, so the folder is never taken for an abandoned one. Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE_OPEN_FLAGS
    marker = os.open(part / MARKER, flags, 0o600)
    try:
        if _lock(marker):
            os.write(marker, _make_marker_text())
    except BaseException:
        os.close(marker)
        raise
    return marker


def _make_marker_text() -> bytes:
    """Return the text of a marker file, which names this machine. Locks of another
    machine may be invisible here, so folders of other machines are never removed."""
    return f"fusetui capture on {platform.node()}\n".encode(errors="replace")


def _lock(descriptor: int) -> bool:
    """Lock a file without waiting, and return whether it could be locked. Always False
    on Windows, which has no such locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _belongs_to_user(descriptor: int) -> bool:
    """Return whether a descriptor is a regular file or a folder of this user. Windows
    has no owners, so there it may be of any user."""
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):
        return False
    return not hasattr(os, "geteuid") or state.st_uid == os.geteuid()


def default_folder(workload: str, device_kind: str, now: datetime) -> Path:
    """Return the default path of a run folder, such as `runs/mlp-cpu-20260131-174500`.
    It may exist already."""
    return Path("runs") / f"{workload}-{device_kind}-{now:%Y%m%d-%H%M%S}"


def make_folder_name(workload: str) -> str:
    """Return a workload as part of the name of a folder: `mlp` as it is, and
    `src/my_file.py:build` as `my_file-build`. Characters other than letters, digits,
    `_`, `.` and `-` become `-`."""
    source, _, function = workload.rpartition(":")
    name = f"{Path(source).stem}-{function}" if source else workload
    return re.sub(r"[^\w.-]", "-", name)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Within the block, give a folder to fill. It becomes `out` if the block succeeds,
    and is removed if the block raises or a signal ends the process.

    If the process is killed, the next capture removes it. Raises TakenError if `out`
    exists, and CaptureError if it cannot be made.
    """
    with folder_to_fill(lambda: FolderClaim(out)) as claim:
        yield claim.part


@contextmanager
def folder_to_fill(make_claim: Callable[[], FolderClaim]) -> Iterator[FolderClaim]:
    """Within the block, give the claim on a folder that `make_claim` reserves. The
    block fills its `part`, which becomes `out` if the block succeeds, and is removed
    otherwise."""
    with clean_up_on_signal(release_all):
        claim = make_claim()
        try:
            yield claim
            claim.keep()
        except BaseException:
            claim.release()
            raise


def encode_json(content: object) -> bytes:
    """The JSON of run.json and sweep.json: indented, with a newline at the end."""
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_file(path: Path, content: bytes) -> None:
    """Write a file. Raises CaptureError if that fails."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CaptureError(f"Cannot write {path.name}: {error.strerror}.") from error
