"""Traces behind URLs, with the drivers of fsspec: s3://, gs://, https://, ssh:// and
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
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.read.document import Document
from fusetui.trace.read.memory import memory_left
from fusetui.trace.read.unpack import GIB, LIMIT

PIECE_BYTES = 4 << 20  # that are asked for at once
# How many times fewer are asked for after each failure, down to a single byte.
SHRINK_FACTOR = 64
PIECES_BEFORE_GROWTH = 100  # that arrive until as many times more are asked for again
SPARE_BYTES = 64 << 20  # of memory that are left alone
MAX_FAILURES = 5  # in a row without a single byte
PAUSE_S = 0.2  # after the first failure; longer after each
# Without a byte of an HTTP server; other drivers have bounds of their own.
STALL_S = 20.0
PATIENCE_S = 60.0  # after the last byte until nothing more is tried
# Of a file whose server does not say how long it is.
MAX_UNKNOWN_BYTES = 4 * GIB
MAX_ERROR_CHARS = 200  # of what a driver says
MAX_TAG_BYTES = 1000
ERROR_NUMBER = lazy_pattern(r"^\[Errno -?[0-9]+\] ")
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
            paths = sorted(system.glob(path))
        elif not pattern.lower().startswith("http") and system.isdir(path):
            paths = sorted(system.ls(path, detail=False))
        else:
            return [pattern]
        return [str(system.unstrip_protocol(each)) for each in paths]
    except Exception as error:
        raise _unreadable(pattern, error) from None


class Arriving(Document):
    """The bytes of a file that are fetched when they are asked for, in order, and kept
    in `room`, which is in memory; `size` is that of the file."""

    def __init__(self, url: str, room: IO[bytes], size: int) -> None:
        """The bytes of `url` arrive in `room`; `size`: how many there will be."""
        super().__init__(room.fileno(), size)
        self._url = url
        self._piece_sizes = _copied(url, room)
        self._here = 0  # bytes
        self.cut: str | None = None  # why no more than that arrive

    def __getitem__(self, place: slice) -> bytes:
        """Fetches what is missing. Raises CannotReadError and OSError."""
        _, end, _ = place.indices(len(self))
        self.fetch(end)
        return super().__getitem__(place)

    def fetch(self, end: int) -> int:
        """Fetches up to this byte at least, unless the connection breaks (`cut`);
        returns how many bytes are there. Raises CannotReadError."""
        try:
            while self._here < end and not self.cut:
                self._here += self._next_size()
        except BrokenDownloadError:
            self.cut = f"the connection broke after {self._here} of {len(self)} bytes"
        return self._here

    def _next_size(self) -> int:
        """Fetches one more piece. Behind the last one, nothing may follow. Raises
        CannotReadError, and BrokenDownloadError."""
        size = next(self._piece_sizes, 0)
        here = self._here + size
        if size == 0 or here >= len(self):
            beyond = sum(self._piece_sizes)
            if here + beyond != len(self):
                raise CannotReadError(
                    f"{self._url} does not have the length that its server reports: "
                    "try again."
                )
        return size


def copied_to(url: str, room: IO[bytes]) -> str | None:
    """Appends the bytes of a file of unknown length to `room`, which is in memory;
    returns why there are not more. Raises CannotReadError."""
    gib = amount(os.environ.get(LIMIT, ""))
    limit = MAX_UNKNOWN_BYTES if gib is None else int(gib * GIB)
    here = 0
    try:
        for size in _copied(url, room):
            here += size
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
        raise ValueError("the server does not report a modification time")
    return info["size"], " ".join(known).encode()[:MAX_TAG_BYTES]


def _copied(url: str, room: IO[bytes]) -> Iterator[int]:
    """The sizes of the pieces that were appended to `room`. Raises CannotReadError."""
    for piece in _pieces(url):
        if memory_left() < SPARE_BYTES:
            raise CannotReadError(f"{url} needs more memory than is available.")
        room.write(piece)
        room.flush()
        yield len(piece)


def _pieces(url: str) -> Iterator[bytes]:
    """The bytes of a file in pieces. Where the connection breaks, reading goes on.

    Raises BrokenDownloadError if it could not go on behind the first byte, and
    CannotReadError otherwise.
    """
    return _Download(url).pieces()


class _Download:
    """The reading of one file, over as many connections as it takes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._system, self._path = _system(url)
        self._done = 0  # bytes
        self._failures = 0  # since the last byte
        self._last_byte_at = time.monotonic()
        self._size = PIECE_BYTES  # bytes that are asked for at once
        self._in_parts = True  # whether the server can begin in the middle
        self._state: list[str] | None = None

    def pieces(self) -> Iterator[bytes]:
        """All bytes of the file; see `_pieces`."""
        is_at_end = False
        while not is_at_end:
            try:
                self._check_unchanged()
                is_at_end = yield from self._pieces_of_connection()
            except CannotReadError:
                raise
            except Exception as error:
                self._wait_after(error)

    def _check_unchanged(self) -> None:
        """Raises CannotReadError if the file is no longer what it was at first."""
        self._system.invalidate_cache()
        info = self._system.info(self._path)
        state = [str(info.get(key)) for key in ("size", *STATE)]
        if self._state not in (None, state):
            raise CannotReadError(f"{self._url} changed while it was read: try again.")
        self._state = state

    def _pieces_of_connection(self) -> Generator[bytes, None, bool]:
        """What one connection gives; returns whether that is up to the end of the file.
        After some small pieces it ends, as larger ones may be possible again."""
        arriving = _from(
            self._system, self._path, self._done, self._size, self._in_parts
        )
        with closing(arriving):
            for number, piece in enumerate(arriving, 1):
                yield piece
                self._done += len(piece)
                self._failures = 0
                self._last_byte_at = time.monotonic()
                if self._size < PIECE_BYTES and number == PIECES_BEFORE_GROWTH:
                    self._size = min(self._size * SHRINK_FACTOR, PIECE_BYTES)
                    return False
        return True

    def _wait_after(self, error: Exception) -> None:
        """Waits until it is worth trying again, with smaller pieces. Raises
        BrokenDownloadError or CannotReadError if it is not."""
        self._failures += 1
        self._size = max(self._size // SHRINK_FACTOR, 1)
        if self._done and isinstance(error, ValueError):
            self._in_parts = False  # as drivers say
        is_refused = _is_missing(error) or isinstance(error, PermissionError)
        is_silent = time.monotonic() - self._last_byte_at > PATIENCE_S
        if is_refused or is_silent or self._failures >= MAX_FAILURES:
            sentence = _unreadable(self._url, error, self._done)
            if self._done and not is_refused:
                raise BrokenDownloadError(str(sentence)) from None
            raise sentence from None
        time.sleep(PAUSE_S * self._failures)


def _from(
    system: Any, path: str, at: int, size: int, in_parts: bool
) -> Generator[bytes, None, None]:
    """The rest of a file, asked for in pieces of this many bytes: a driver gives
    nothing of a piece that breaks, so that smaller ones follow. A server that cannot
    begin in the middle sends all in one answer, and what was read again."""
    # What is read ahead may break as well.
    cache_type = "readahead" if size == PIECE_BYTES else "none"
    block_size = size if in_parts else 0
    with system.open(path, "rb", block_size=block_size, cache_type=cache_type) as file:
        repeated = at  # bytes that the file gives once more
        if in_parts and file.seekable():
            file.seek(at)
            repeated = 0
        else:
            size = PIECE_BYTES
        here = at
        for piece in _arriving(file, size):
            new = piece[repeated:]
            repeated -= len(piece) - len(new)
            if new:
                yield new
                here += len(new)
        total = getattr(file, "size", None)
        if isinstance(total, int) and here < total:
            raise ConnectionError(f"it ended after {here} of {total} bytes")


def _arriving(file: Any, size: int) -> Iterator[bytes]:
    """Pieces of at most so many bytes, up to the end of the file or until the
    connection breaks."""
    try:
        while piece := file.read(size):
            yield piece
    except Exception:
        unread = _unread(file)
        if unread:
            yield unread
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
                f"{url} needs the fsspec driver for {kind}://: {driver}."
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
    """A sentence for what a driver raised, after so many bytes."""
    if _is_missing(error):
        return CannotReadError(f"{url} cannot be opened: no such file.")
    # The driver for https:// hides the cause behind a FileNotFoundError.
    hidden = error.__cause__ if isinstance(error, FileNotFoundError) else None
    cause = hidden or error
    if isinstance(cause, TimeoutError):
        text = f"nothing arrived for {STALL_S:g} s"
    else:
        words = ERROR_NUMBER.sub("", str(cause)).split()
        text = " ".join(words)[:MAX_ERROR_CHARS] or type(error).__name__
    after = f" after {done} bytes" if done else ""
    return CannotReadError(f"{url} cannot be read{after}: {text.rstrip('.')}.")
