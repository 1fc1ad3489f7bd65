"""The place of a run: taken before it is measured, so that no two captures want the same one.

Until a run is whole it is in `.NAME.part` beside its folder. A file in it, locked as long as the
capture lives, is how the next capture knows that a folder is ours and that nobody writes it any
more. Needs no torch.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from .errors import CaptureError

try:
    import fcntl
except ImportError:  # Windows: nothing can be proven to be abandoned
    fcntl = None  # type: ignore[assignment]

MARKER = ".fusetui-capture"
"""The file that makes a folder ours; it tells the machine whose lock it has."""
_PART = re.compile(r"\..+\.part", re.DOTALL)
_OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_held: set[Claim] = set()
"""What this process has claimed and neither kept nor released."""


class TakenError(CaptureError):
    """The folder exists, or another capture is writing it."""


class Claim:
    """A folder to fill, `part`, that becomes `out` or vanishes.

    A child that the user's code forked can do neither. Raises CaptureError; TakenError if somebody
    has `out` already.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._place = _absolute(out)
        self.part = self._place.with_name(f".{self._place.name}.part")
        self._pid = os.getpid()
        if os.path.lexists(self._place):
            raise TakenError(f"{out} exists already: give another --out, or move it away.")
        remove_abandoned(self._place.parent)
        self._made = [parent for parent in self._place.parents if not parent.exists()]
        self._marker = self._make()
        _held.add(self)
        if os.path.lexists(self._place):  # another capture was faster
            self.release()
            raise TakenError(f"{out} exists already: give another --out, or move it away.")

    def keep(self) -> None:
        """The folder gets its name. Raises CaptureError when the run had to get another one."""
        if os.getpid() != self._pid:
            return
        named = next(path for path in numbered(self._place) if not os.path.lexists(path))
        try:
            self.part.rename(named)
            (named / MARKER).unlink()
        except OSError as error:
            raise CaptureError(f"cannot write to {named}: {error.strerror}.") from error
        self._let_go()
        if named != self._place:
            raise CaptureError(f"{self.out} was made by another program: the run is in {named}.")

    def release(self) -> None:
        """The folder vanishes, with those around it that were made for it."""
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
            raise CaptureError(f"cannot write to {self.out.parent}: {error.strerror}.") from error
        try:
            return _marked(self.part)
        except OSError as error:
            shutil.rmtree(self.part, ignore_errors=True)
            raise CaptureError(f"cannot write to {self.part}: {error.strerror}.") from error

    def _let_go(self) -> None:
        _held.discard(self)
        os.close(self._marker)


def claim_free(first: Path) -> Claim:
    """A folder to fill, with a number behind its name if others have that. Raises CaptureError."""
    for path in numbered(first):
        with suppress(TakenError):
            return Claim(path)
    raise AssertionError("there is always a higher number")


def numbered(first: Path) -> Iterator[Path]:
    """`mlp`, `mlp-2`, `mlp-3` ..."""
    yield first
    yield from (first.with_name(f"{first.name}-{number}") for number in count(2))


def release_all() -> None:
    """Everything that this process has begun vanishes."""
    for claim in list(_held):
        claim.release()


def remove_abandoned(parent: Path) -> None:
    """Removes what captures of this user left in a folder whose process ended without a word.

    Only what is provably a run of ours that nobody writes any more: see `_is_abandoned`.
    """
    with suppress(OSError), os.scandir(parent) as found:
        for item in found:
            if _PART.fullmatch(item.name) and item.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(parent / item.name)


def _remove_if_abandoned(part: Path) -> None:
    """Raises OSError."""
    directory = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
    with _opened(part, directory) as folder, _opened(MARKER, os.O_RDWR, folder) as marker:
        if _is_abandoned(part, folder, marker):
            for name in sorted(os.listdir(folder), key=MARKER.__eq__):  # the proof goes last
                os.unlink(name, dir_fd=folder)
            part.rmdir()


def _is_abandoned(part: Path, folder: int, marker: int) -> bool:
    """Is a folder that of a capture on this machine, whose lock nobody holds.

    Once we hold the lock, the marker must still be where it was: else its capture is done, and what
    we look at is a run that was kept. Raises OSError.
    """
    if not _is_users(folder) or not _is_users(marker) or not _locked(marker):
        return False
    if os.pread(marker, len(_mark()) + 1, 0) != _mark():
        return False
    if not os.path.samestat(os.stat(part / MARKER), os.fstat(marker)):
        return False
    found = [os.stat(name, dir_fd=folder, follow_symlinks=False) for name in os.listdir(folder)]
    return all(stat.S_ISREG(state.st_mode) for state in found)


@contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    """A descriptor. Raises OSError."""
    number = os.open(path, flags | _OPEN, dir_fd=folder)
    try:
        yield number
    finally:
        os.close(number)


def _marked(part: Path) -> int:
    """Puts the marker into a new folder; its lock lasts as long as the descriptor. Raises OSError.

    It is empty until it is locked, and stays empty where files cannot be locked: an empty marker
    proves nothing.
    """
    marker = os.open(part / MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
    try:
        if _locked(marker):
            os.write(marker, _mark())
    except BaseException:
        os.close(marker)
        raise
    return marker


def _mark() -> bytes:
    """Locks of other machines may be invisible here, so their folders are never removed."""
    return f"fusetui capture on {platform.node()}\n".encode(errors="replace")


def _locked(marker: int) -> bool:
    """Takes the lock, without waiting."""
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


def _absolute(out: Path) -> Path:
    """The same folder wherever the user's code goes. Raises CaptureError."""
    if out.name in ("", ".."):
        raise CaptureError(f"{out} is no name of a new folder: give another --out.")
    try:
        return out.absolute()
    except OSError as error:
        raise CaptureError(f"the working directory is gone: {error.strerror}.") from error
