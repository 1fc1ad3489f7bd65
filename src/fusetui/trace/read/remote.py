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


def expand_pattern(pattern: str) -> list[str]:
    """The URLs that a pattern with `*`, `?` or `[` matches, or those of the files in a
    folder. Any other URL is returned alone. Raises CannotReadError."""
    system, path = _system(pattern)
    try:
        if any(letter in path for letter in "*?["):
            paths = sorted(system.glob(path))
        elif not pattern.lower().startswith("http") and system.isdir(path):
            paths = sorted(system.ls(path, detail=False))
        else:
            return [pattern]
        return [str(system.unstrip_protocol(matched_path)) for matched_path in paths]
    except Exception as error:
        raise _unreadable_error(pattern, error) from None


class Arriving(Document):
    """The bytes of a file that are fetched when they are asked for, in order, and kept
    in `room`, which is in memory; `size` is that of the file."""

    def __init__(self, url: str, room: IO[bytes], size: int) -> None:
        """Prepare to fetch a URL of `size` bytes into the file `room`."""
        super().__init__(room.fileno(), size)
        self._url = url
        self._piece_sizes = _copy_pieces(url, room)
        self._here = 0  # bytes
        self.cut: str | None = None  # why no more than that arrive

    def __getitem__(self, place: slice) -> bytes:
        """The bytes of a slice, after fetching what is missing of them. Raises
        CannotReadError and OSError."""
        _, end, _ = place.indices(len(self))
        self.fetch(end)
        return super().__getitem__(place)

    def fetch(self, end: int) -> int:
        """Fetch the bytes before `end`, or somewhat more, and return how many are
        there. If the connection breaks, `cut` says so. Raises CannotReadError."""
        try:
            while self._here < end and not self.cut:
                self._here += self._fetch_piece()
        except BrokenDownloadError:
            self.cut = f"the connection broke after {self._here} of {len(self)} bytes"
        return self._here

    def _fetch_piece(self) -> int:
        """Fetch one more piece, and return its size.

        Raises CannotReadError if the file is longer or shorter than its server says,
        and BrokenDownloadError.
        """
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


def copy_url(url: str, room: IO[bytes]) -> str | None:
    """Append the bytes of a file of unknown length to `room`, which is in memory.
    Return why there are not more, or None.

    Raises CannotReadError if it cannot be fetched, or does not end within the limit.
    """
    gib = amount(os.environ.get(LIMIT, ""))
    limit = MAX_UNKNOWN_BYTES if gib is None else int(gib * GIB)
    fetched_bytes = 0
    try:
        for size in _copy_pieces(url, room):
            fetched_bytes += size
            if fetched_bytes > limit:
                raise CannotReadError(
                    f"{url} did not end within {limit / GIB:.3g} GiB, and its server "
                    f"does not report its size: download it, or set {LIMIT} to the number of GiB to allow."
                )
    except BrokenDownloadError:
        return f"the connection broke after {fetched_bytes} bytes"
    return None


def size_of_url(url: str) -> int | None:
    """The size of a file in bytes; None if the server does not say. Raises
    CannotReadError if the server does not answer."""
    system, path = _system(url)
    try:
        size = system.info(path).get("size")
    except Exception as error:  # others are reported when it is read
        if isinstance(error.__cause__ or error, TimeoutError):
            raise _unreadable_error(url, error) from None
        return None
    return size if isinstance(size, int) else None


def state_of_url(url: str) -> tuple[int, bytes]:
    """The size of a file, and bytes that tell this state of it from others. Raises
    ValueError if the server does not say them, and CannotReadError."""
    system, path = _system(url)
    try:
        info = system.info(path)
    except Exception as error:
        raise _unreadable_error(url, error) from None
    known = [f"{key}={info[key]}" for key in STATE if info.get(key)]
    if not known or not isinstance(info.get("size"), int):
        raise ValueError("the server does not report a modification time")
    return info["size"], " ".join(known).encode()[:MAX_TAG_BYTES]


def _copy_pieces(url: str, room: IO[bytes]) -> Iterator[int]:
    """Fetch a URL into a file, and yield the size of each piece after it was appended.

    Raises CannotReadError if the URL cannot be fetched, or memory runs short.
    """
    for piece in _pieces(url):
        if memory_left() < SPARE_BYTES:
            raise CannotReadError(f"{url} needs more memory than is available.")
        room.write(piece)
        room.flush()
        yield len(piece)


def _pieces(url: str) -> Iterator[bytes]:
    """Yield the bytes of a URL in pieces; if the connection breaks, a new one goes on
    from there.

    Raises BrokenDownloadError if that is not possible after some bytes came, and
    CannotReadError otherwise.
    """
    return _Download(url).pieces()


class _Download:
    """The reading of one file, over as many connections as it takes."""

    def __init__(self, url: str) -> None:
        """Prepare to read a URL. Raises CannotReadError if there is no driver for it."""
        self._url = url
        self._system, self._path = _system(url)
        self._done = 0  # bytes
        self._failures = 0  # since the last byte
        self._last_byte_at = time.monotonic()
        self._size = PIECE_BYTES  # bytes that are asked for at once
        self._in_parts = True  # whether the server can begin in the middle
        self._state: list[str] | None = None

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes of the file in pieces, over as many connections as it takes.
        Raises as `_pieces`."""
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
        """Raise CannotReadError if the file is no longer the same as at the first call."""
        self._system.invalidate_cache()
        info = self._system.info(self._path)
        state = [str(info.get(key)) for key in ("size", *STATE)]
        if self._state not in (None, state):
            raise CannotReadError(f"{self._url} changed while it was read: try again.")
        self._state = state

    def _pieces_of_connection(self) -> Generator[bytes, None, bool]:
        """Yield the bytes that one connection gives. Return whether they go up to the
        end of the file.

        A connection that asks for small pieces is ended after some of them, because
        larger ones may be possible again.
        """
        arriving = _read_from(
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
        """Wait after an error until it is worth trying again, then with smaller pieces.
        Raises BrokenDownloadError or CannotReadError if it is not worth it."""
        self._failures += 1
        self._size = max(self._size // SHRINK_FACTOR, 1)
        if self._done and isinstance(error, ValueError):
            self._in_parts = False  # as drivers say
        is_refused = _is_missing(error) or isinstance(error, PermissionError)
        is_silent = time.monotonic() - self._last_byte_at > PATIENCE_S
        if is_refused or is_silent or self._failures >= MAX_FAILURES:
            sentence = _unreadable_error(self._url, error, self._done)
            if self._done and not is_refused:
                raise BrokenDownloadError(str(sentence)) from None
            raise sentence from None
        time.sleep(PAUSE_S * self._failures)


def _read_from(
    system: Any, path: str, at: int, size: int, in_parts: bool
) -> Generator[bytes, None, None]:
    """Yield the rest of a file from the byte `at` on, asked for in pieces of `size`
    bytes.

    A driver gives nothing of a piece that breaks, so smaller ones follow. Without
    `in_parts`, the server sends everything from the begin; what was read before is
    dropped.
    """
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
        reached_byte = at
        for piece in _read_until_broken(file, size):
            new = piece[repeated:]
            repeated -= len(piece) - len(new)
            if new:
                yield new
                reached_byte += len(new)
        total = getattr(file, "size", None)
        if isinstance(total, int) and reached_byte < total:
            raise ConnectionError(f"it ended after {reached_byte} of {total} bytes")


def _read_until_broken(file: Any, size: int) -> Iterator[bytes]:
    """Yield pieces of at most `size` bytes, up to the end of the file or until the
    connection breaks. What had arrived by then is given too, before the error is
    raised."""
    try:
        while piece := file.read(size):
            yield piece
    except Exception:
        unread = _take_unread(file)
        if unread:
            yield unread
        raise


def _take_unread(file: Any) -> bytes:
    """The bytes that had arrived before a connection broke, but were not read; aiohttp
    keeps them behind the exception. b"" if there are none."""
    with suppress(Exception):
        content = file.r.content
        content.set_exception(None)
        return bytes(content.read_nowait())
    return b""


def _system(url: str) -> tuple[Any, str]:
    """The fsspec driver of a URL, and the path as the driver has it. Raises
    CannotReadError with what is missing."""
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
        system, path = url_to_fs(url, **_driver_options(kind, fsspec.config.conf))
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
        raise _unreadable_error(url, error) from None
    return system, path


def _driver_options(kind: str, conf: dict[str, Any]) -> dict[str, Any]:
    """The options of the driver for a URL. An HTTP server that sends nothing is given
    up after a while, unless the user's fsspec.json says when."""
    with suppress(ImportError):  # the driver will name it
        if kind in ("http", "https"):
            from aiohttp import ClientTimeout

            given = conf.get(kind, {}).get("client_kwargs", {})
            quiet = ClientTimeout(total=None, sock_connect=STALL_S, sock_read=STALL_S)
            return {"client_kwargs": {"timeout": quiet, **given}}
    return {}


def _is_missing(error: Exception) -> bool:
    """Whether an error means that there is no such file.

    The driver for https:// raises FileNotFoundError for everything that goes wrong, and
    names the cause. Then only an answer of the server counts.
    """
    if not isinstance(error, FileNotFoundError):
        return False
    return error.__cause__ is None or getattr(error.__cause__, "status", None) in GONE


def _unreadable_error(url: str, error: Exception, done: int = 0) -> CannotReadError:
    """The error with one sentence for what a driver raised, after `done` bytes."""
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
