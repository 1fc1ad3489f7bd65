"""Runs an SQL query in a separate process and kills it at a time limit or on request,
because DuckDB does not check for interrupts everywhere, and its own limit does not
cover all of its memory.

The two processes exchange messages, each after its length in bytes. The other process
asks for the tables that the query names, and gets them pickled. What it sends is
decoded as plain values only.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Literal

import msgspec
import numpy as np

from fusetui.own_process import started
from fusetui.tables.public import Table
from fusetui.tables.sources import TABLES
from fusetui.tables.sql import THREADS, SqlDatabase, WrongSqlError
from fusetui.tables.table import TableColumn
from fusetui.trace.model.report import Stop, never

START = "from fusetui.tables.sql_process import main; main()"
LENGTH = struct.Struct("<Q")
"""What stands before each message."""

MAX_CHUNK_BYTES = 1 << 24
"""So much of a message is read at once."""

MEMORY_BYTES = 6 << 30
"""That the process may have besides the tables."""

COPIES = 4
"""Of each table that it may hold: as bytes, as columns, and as DuckDB has them."""

SPARE_CPU_SECONDS = 60
"""Beyond the limit of a query, before the system ends a process that nobody killed."""

POLL_SECONDS = 0.05
"""Between two looks whether the answer is still wanted."""

PROCESS_ENDED = (
    f"SQL: the query ran out of memory (limit: {MEMORY_BYTES >> 30} GiB besides the "
    "tables)."
)


class SqlQuery(msgspec.Struct, frozen=True):
    """What the other process is asked first."""

    text: str
    of_several: bool  # traces
    most_cpu_s: int  # after which it ends by itself, should nobody kill it


class SqlColumn(msgspec.Struct, frozen=True):
    """A TableColumn as bytes."""

    name: str
    dtype: Literal["int8", "int16", "int32", "int64", "float64", "bool"]
    values: bytes
    texts: list[str] | None
    known: bytes | None


class SqlReply(msgspec.Struct, frozen=True):
    """What the other process sends: the name of a table that it needs, or why there is
    no answer, or the answer."""

    needs: str | None = None
    error: str | None = None
    columns: list[SqlColumn] = []
    left_out: list[str] = []


def ask_elsewhere(
    query: str,
    make: Callable[[str], Table],
    *,
    of_several: bool,
    limit_s: float,
    stop: Stop = never,
) -> Table:
    """Answer a SELECT in another process, whose memory and time are bounded.

    The process is gone when this returns or raises.

    Args:
        query: The SELECT.
        make: Makes a table that the query names. The time this takes does not count.
        of_several: Whether the tables are of several traces, with a column `file`.
        limit_s: How many seconds the query may take.
        stop: Is asked repeatedly; once it returns True, the query ends.

    Raises WrongSqlError if there is no answer: the query is wrong, takes too long or
    too much memory, or was stopped.
    """
    from subprocess import PIPE

    process = started(START, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    most_cpu_s = int(limit_s * (THREADS + 1)) + SPARE_CPU_SECONDS
    request = SqlQuery(text=query, of_several=of_several, most_cpu_s=most_cpu_s)
    try:
        _send_message(process.stdin, pickle.dumps(request))
        messages = _receive_messages(process.stdout)
        deadline_s = time.monotonic() + limit_s
        while True:
            reply = _next_reply(messages, deadline_s, limit_s, stop)
            if reply.error is not None:
                raise WrongSqlError(reply.error)
            needed_table = reply.needs
            if needed_table is None:
                return _table_from_reply(reply)
            if needed_table not in TABLES:
                raise WrongSqlError(f"SQL: there is no table {needed_table}.")

            began_s = time.monotonic()
            pickled_table = pickle.dumps(make(needed_table), pickle.HIGHEST_PROTOCOL)
            _send_message(process.stdin, pickled_table)
            deadline_s += time.monotonic() - began_s
    except BrokenPipeError:
        raise WrongSqlError(PROCESS_ENDED) from None
    finally:
        process.kill()
        process.stdin.close()
        process.wait()


def _next_reply(
    messages: SimpleQueue[bytes | None], deadline_s: float, limit_s: float, stop: Stop
) -> SqlReply:
    """Wait for the next reply of the other process.

    Args:
        messages: Its messages as they come; None after the last.
        deadline_s: Until when to wait, on the clock of time.monotonic.
        limit_s: How long the query may take, for the sentence that says so.
        stop: Is asked repeatedly; once it returns True, waiting ends.

    Raises WrongSqlError if no reply comes: at the deadline, when it is stopped, or if
    the process has ended.
    """
    while True:
        if stop():
            raise WrongSqlError("SQL: the request was cancelled.")
        if time.monotonic() > deadline_s:
            raise WrongSqlError(
                f"SQL: the query takes longer than {limit_s:g} s: ask for less at once."
            )
        try:
            message = messages.get(timeout=POLL_SECONDS)
        except Empty:
            continue
        if message is None:
            raise WrongSqlError(PROCESS_ENDED)
        return msgspec.msgpack.decode(message, type=SqlReply)


def _table_from_reply(reply: SqlReply) -> Table:
    """Make the table that the other process has sent as its answer."""
    columns = tuple(_decode_column(column) for column in reply.columns)
    return Table(
        name="rows",
        columns=columns,
        first=frozenset(column.name for column in columns),
        left_out=tuple(reply.left_out),
    )


def _decode_column(column: SqlColumn) -> TableColumn:
    """Make a column of a table from the bytes of its values."""
    known = None
    if column.known is not None:
        known = np.frombuffer(column.known, dtype=np.bool_)
    return TableColumn(
        name=column.name,
        values=np.frombuffer(column.values, dtype=column.dtype),
        texts=None if column.texts is None else tuple(column.texts),
        known=known,
    )


def _encode_column(column: TableColumn) -> SqlColumn:
    """Write the values of a column as bytes."""
    return SqlColumn(
        name=column.name,
        dtype=column.values.dtype.name,  # type: ignore[arg-type]  # one that DTYPES has
        values=column.values.tobytes(),
        texts=None if column.texts is None else list(column.texts),
        known=None if column.known is None else column.known.tobytes(),
    )


def _send_message(stream: IO[bytes], message: bytes) -> None:
    """Write a message to a stream, after its length."""
    for part in (LENGTH.pack(len(message)), message):
        rest = memoryview(part)
        while rest:  # the stream has no buffer: it may take a part only
            written_bytes = stream.write(rest)
            rest = rest[written_bytes:]


def _receive_messages(stream: IO[bytes]) -> SimpleQueue[bytes | None]:
    """Start a thread that reads the messages of a stream into a queue.

    After the last message it puts None there, and closes the stream.
    """
    messages: SimpleQueue[bytes | None] = SimpleQueue()

    def read() -> None:
        # The stream may break off, and a message may be too large.
        with suppress(OSError, ValueError, MemoryError):
            for message in _read_messages(stream):
                messages.put(message)
        messages.put(None)
        with suppress(OSError):
            stream.close()

    Thread(target=read, daemon=True).start()
    return messages


def _read_messages(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the messages of a stream: each is its length and so many bytes.

    The last one is left out if the stream ends within it.
    """
    while True:
        packed_length = _read_exactly(stream, LENGTH.size)
        if len(packed_length) < LENGTH.size:
            return
        (message_bytes,) = LENGTH.unpack(packed_length)
        message = _read_exactly(stream, message_bytes)
        if len(message) < message_bytes:
            return
        yield message


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    """Read `length` bytes from a stream, or fewer at its end."""
    chunks: list[bytes] = []
    missing_bytes = length
    while missing_bytes > 0:
        chunk = stream.read(min(missing_bytes, MAX_CHUNK_BYTES))
        if not chunk:
            break
        chunks.append(chunk)
        missing_bytes -= len(chunk)
    return b"".join(chunks)


def main() -> None:
    """Answer one query, as the other process of `ask_elsewhere`.

    It reads the query from stdin, asks on stdout for each table that the query names,
    which then comes on stdin, and writes the answer to stdout.
    """
    messages: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for message in _read_messages(sys.stdin.buffer):
            messages.put(message)
        os._exit(1)  # nobody waits for the answer any more

    Thread(target=read, daemon=True).start()
    query: SqlQuery = pickle.loads(messages.get())
    limits = _ResourceLimits(query.most_cpu_s)

    def request_table(name: str) -> Table:
        _send_reply(SqlReply(needs=name))
        pickled_table = messages.get()
        limits.widen(COPIES * len(pickled_table))
        table: Table = pickle.loads(pickled_table)
        return table

    try:
        with SqlDatabase(request_table, of_several=query.of_several) as database:
            answer = database.ask(query.text)
        columns = [_encode_column(column) for column in answer.columns]
        _send_reply(SqlReply(columns=columns, left_out=list(answer.left_out)))
    except WrongSqlError as error:
        _send_reply(SqlReply(error=str(error)))
    except MemoryError:
        _send_reply(SqlReply(error=PROCESS_ENDED))
    os._exit(0)


def _send_reply(reply: SqlReply) -> None:
    """Write a reply to standard output."""
    _send_message(sys.stdout.buffer, msgspec.msgpack.encode(reply))
    sys.stdout.buffer.flush()


class _ResourceLimits:
    """What this process may use, where the system has such limits."""

    def __init__(self, most_cpu_s: int) -> None:
        """Limit the CPU seconds and the memory of this process."""
        self._bytes = MEMORY_BYTES
        self._set("RLIMIT_CPU", most_cpu_s)
        self.widen(0)

    def widen(self, more_bytes: int) -> None:
        """Allow this process some more bytes of memory."""
        self._bytes += more_bytes
        self._set("RLIMIT_DATA", self._bytes)

    @staticmethod
    def _set(name: str, limit: int) -> None:
        """Set a limit of the system, not above its hard limit. Nothing happens where
        the system has no such limits."""
        with suppress(ImportError, AttributeError, OSError, ValueError):
            import resource

            number = getattr(resource, name)
            _soft_limit, hard_limit = resource.getrlimit(number)
            has_hard_limit = hard_limit != resource.RLIM_INFINITY
            soft_limit = min(limit, hard_limit) if has_hard_limit else limit
            resource.setrlimit(number, (soft_limit, hard_limit))
