"""Traces behind URLs, by the drivers of fsspec: s3://, gs://, https://, ssh:// and
others.

A file is read in order, once, and kept in memory. When a connection breaks, reading
goes on where it broke, as long as the file is still the same; if it cannot, what
arrived is a file that was cut short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import IO, Any

from fusetui.text.figures import amount
from fusetui.text.patterns import late
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.read.document import Document
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.unpack import GIB, LIMIT

PIECE = 4 << 20  # bytes that are asked for at once
# how many times fewer are asked for after each failure, down to a single byte
SHRINKING = 64
PIECES_BEFORE_GROWTH = 100  # that arrive until as many times more are asked for again
SPARE = 64 << 20  # bytes of memory that are left alone
TRIES = 5  # in a row without a single byte
PAUSE_S = 0.2  # after the first failure; longer after each
# without a byte of an HTTP server; other drivers have bounds of their own
STALL_S = 20.0
PATIENCE_S = 60.0  # after the last byte until nothing more is tried
ENDLESS = 4 * GIB  # bytes of a file whose server does not say how long it is
NUMBER = late(r"^\[Errno -?[0-9]+\] ")
GONE = (404, 410)  # what an HTTP server answers where there is no such file
STATE = (
    "ETag",
    "etag",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
    "md5",
    "version_id",
)
"""What drivers call that by which one state of a file can be told from another."""


class BrokenDownloadError(CannotReadError):
    """The connection ended before the file did, and could not be taken up again."""


def matching(pattern: str) -> list[str]:
    """The URLs that a pattern matches, or the files in a folder. Raises
    CannotReadError."""
    system, path = _system(pattern)
    try:
        if any(letter in path for letter in "*?["):
            found = sorted(system.glob(path))
        elif not pattern.lower().startswith("http") and system.isdir(path):
            found = sorted(one for one in system.ls(path, detail=False))
        else:
            return [pattern]
        return [str(system.unstrip_protocol(one)) for one in found]
    except Exception as error:
        raise _unreadable(pattern, error) from None


class Arriving(Document):
    """The bytes of a file that are fetched when they are asked for, in order, and kept
    in `room`, which is in memory; `size` is that of the file."""

    def __init__(self, url: str, room: IO[bytes], size: int) -> None:
        super().__init__(room.fileno(), size)
        self._url, self._room, self._pieces = url, room, _copied(url, room)
        self._here = 0  # bytes
        self.cut: str | None = None  # why no more than that arrive

    def __getitem__(self, place: slice) -> bytes:
        """Fetches what is missing. Raises CannotReadError and OSError."""
        self.fetch(place.indices(len(self))[1])
        return super().__getitem__(place)

    def fetch(self, end: int) -> int:
        """Fetches up to this byte at least, unless the connection breaks (`cut`);
        returns how many bytes are there. Raises CannotReadError."""
        try:
            while self._here < end and not self.cut:
                self._here += self._next()
        except BrokenDownloadError:
            self.cut = f"the connection broke after {self._here} of {len(self)} bytes"
        return self._here

    def _next(self) -> int:
        found = next(self._pieces, 0)
        last = not found or self._here + found >= len(self)
        if last and self._here + found + sum(self._pieces) != len(self):
            raise CannotReadError(
                f"{self._url} is not as long as its server says: try again."
            )
        return found


def copied_to(url: str, room: IO[bytes]) -> str | None:
    """Appends the bytes of a file of unknown length to `room`, which is in memory;
    returns why there are not more. Raises CannotReadError."""
    given = amount(os.environ.get(LIMIT, ""))
    limit = ENDLESS if given is None else int(given * GIB)
    here = 0
    try:
        for got in _copied(url, room):
            here += got
            if here > limit:
                raise CannotReadError(
                    f"{url} did not end within {limit / GIB:.3g} GiB, and its server does not say "
                    f"how long it is: download it, or set {LIMIT} to the GiB that it may take."
                )
    except BrokenDownloadError:
        return f"the connection broke after {here} bytes"
    return None


def size_of_url(url: str) -> int | None:
    """How many bytes a file has; None if the server does not say. Raises
    CannotReadError."""
    system, path = _system(url)
    try:
        size = system.info(path).get("size")
    except Exception as error:  # others are reported when it is read
        if isinstance(error.__cause__ or error, TimeoutError):
            raise _unreadable(url, error) from None
        return None
    return size if isinstance(size, int) else None


def state_of_url(url: str) -> tuple[int, bytes]:
    """The size of a file and what tells this state of it from others. Raises ValueError
    if the server does not say, and CannotReadError."""
    system, path = _system(url)
    try:
        info = system.info(path)
    except Exception as error:
        raise _unreadable(url, error) from None
    known = [f"{key}={info[key]}" for key in STATE if info.get(key)]
    if not known or not isinstance(info.get("size"), int):
        raise ValueError("the server does not say when it was changed")
    return info["size"], " ".join(known).encode()[:1000]


def _copied(url: str, room: IO[bytes]) -> Iterator[int]:
    """The sizes of the pieces that were appended to `room`. Raises CannotReadError."""
    for piece in _pieces(url):
        if memory_left() < SPARE:
            raise CannotReadError(f"{url} needs more memory than there is.")
        room.write(piece)
        room.flush()
        yield len(piece)


def _pieces(url: str) -> Iterator[bytes]:
    system, path = _system(url)
    done = failed = 0
    size = PIECE  # bytes
    in_parts = True
    state: object = None
    heard = time.monotonic()
    while True:
        try:
            system.invalidate_cache()
            info = system.info(path)
            now = [str(info.get(key)) for key in ("size", *STATE)]
            if state not in (None, now):
                raise CannotReadError(f"{url} changed while it was read: try again.")
            state = now
            with closing(_from(system, path, done, size, in_parts)) as arriving:
                for number, piece in enumerate(arriving, 1):
                    yield piece
                    done, failed, heard = done + len(piece), 0, time.monotonic()
                    if size < PIECE and number == PIECES_BEFORE_GROWTH:
                        size = min(size * SHRINKING, PIECE)
                        break
                else:
                    return
        except CannotReadError:
            raise
        except Exception as error:
            failed += 1
            size = max(size // SHRINKING, 1)
            # says the driver
            in_parts = in_parts and not (done and isinstance(error, ValueError))
            refused = _is_missing(error) or isinstance(error, PermissionError)
            if refused or failed >= TRIES or time.monotonic() - heard > PATIENCE_S:
                said = _unreadable(url, error, done)
                raise (
                    BrokenDownloadError(str(said)) if done and not refused else said
                ) from None
            time.sleep(PAUSE_S * failed)


def _from(
    system: Any, path: str, at: int, size: int, in_parts: bool
) -> Generator[bytes, None, None]:
    """The rest of a file, asked for in pieces of this many bytes: a driver gives
    nothing of a piece that breaks, so that smaller ones follow. A server that cannot
    begin in the middle sends all in one answer, and what was read again."""
    # what is read ahead may break as well
    ahead = "readahead" if size == PIECE else "none"
    block = size if in_parts else 0
    with system.open(path, "rb", block_size=block, cache_type=ahead) as file:
        known = at  # bytes that the file gives once more
        if in_parts and file.seekable():
            file.seek(at)
            known = 0
        else:
            size = PIECE
        got = at
        for piece in _arriving(file, size):
            fresh = piece[known:]
            known -= len(piece) - len(fresh)
            if fresh:
                yield fresh
                got += len(fresh)
        whole = getattr(file, "size", None)
        if isinstance(whole, int) and got < whole:
            raise ConnectionError(f"it ended after {got} of {whole} bytes")


def _arriving(file: Any, size: int) -> Iterator[bytes]:
    """Pieces of at most so many bytes, up to the end of the file or until the
    connection breaks."""
    try:
        while piece := file.read(size):
            yield piece
    except Exception:
        if left := _unread(file):
            yield left
        raise


def _unread(file: Any) -> bytes:
    """What had arrived of one answer before its connection broke, and was not read:
    aiohttp keeps it behind the exception."""
    with suppress(Exception):
        content = file.r.content
        content.set_exception(None)
        return bytes(content.read_nowait())
    return b""


def _system(url: str) -> tuple[Any, str]:
    """The driver of a URL, and the path as it has it. Raises CannotReadError, naming
    what is missing."""
    kind = url.partition("://")[0].lower()
    try:
        import fsspec
        from fsspec.core import url_to_fs
        from fsspec.registry import known_implementations
    except ImportError:
        raise CannotReadError(
            f"{url} needs fsspec: pip install 'fusetui[remote]'."
        ) from None
    try:
        system, path = url_to_fs(url, **_options(kind, fsspec.config.conf))
    except (ImportError, ValueError) as error:
        if kind in fsspec.available_protocols():
            driver = known_implementations.get(kind, {}).get("err") or str(error)
            raise CannotReadError(
                f"{url} needs a driver of fsspec for {kind}://: {driver}."
            ) from None
        raise CannotReadError(
            f"{url} cannot be read: fsspec has no driver for {kind}://."
        ) from None
    except Exception as error:
        raise _unreadable(url, error) from None
    return system, path


def _options(kind: str, conf: dict[str, Any]) -> dict[str, Any]:
    """An HTTP server that says nothing is given up, unless the user's fsspec.json says
    when."""
    with suppress(ImportError):  # the driver will name it
        if kind in ("http", "https"):
            from aiohttp import ClientTimeout

            given = conf.get(kind, {}).get("client_kwargs", {})
            quiet = ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S)
            return {"client_kwargs": {"timeout": quiet, **given}}
    return {}


def _is_missing(error: Exception) -> bool:
    """Whether there is no such file. The driver for https:// says so of all that goes
    wrong, and names the cause: only an answer of the server tells that a file is not
    there."""
    if not isinstance(error, FileNotFoundError):
        return False
    return error.__cause__ is None or getattr(error.__cause__, "status", None) in GONE


def _unreadable(url: str, error: Exception, done: int = 0) -> CannotReadError:
    if _is_missing(error):
        return CannotReadError(f"{url} cannot be opened: there is no such file.")
    hidden = error.__cause__ if isinstance(error, FileNotFoundError) else None
    said = NUMBER.sub("", str(hidden or error))
    text = " ".join(said.split())[:200] or type(error).__name__
    if isinstance(hidden or error, TimeoutError):
        text = f"nothing arrived for {STALL_S:g} s"
    after = f" after {done} bytes" if done else ""
    return CannotReadError(f"{url} cannot be read{after}: {text.rstrip('.')}.")
