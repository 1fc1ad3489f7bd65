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
    """The answer to one SELECT; `make` gives the tables that it names, whose making
    does not count for the limit. Raises WrongSqlError, also at the limit or once `stop` says
    so: the process of the query is then gone."""
    from subprocess import PIPE

    process = started(START, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    most_cpu_s = int(limit_s * (THREADS + 1)) + SPARE_CPU_SECONDS
    try:
        _send(
            process.stdin,
            pickle.dumps(
                SqlQuery(text=query, of_several=of_several, most_cpu_s=most_cpu_s)
            ),
        )
        messages = _received(process.stdout)
        deadline_s = time.monotonic() + limit_s
        while True:
            reply = _next_reply(messages, deadline_s, limit_s, stop)
            if reply.error is not None:
                raise WrongSqlError(reply.error)
            if reply.needs is None:
                return _table(reply)
            if reply.needs not in TABLES:
                raise WrongSqlError(f"SQL: there is no table {reply.needs}.")
            began_s = time.monotonic()
            table = make(reply.needs)
            _send(process.stdin, pickle.dumps(table, pickle.HIGHEST_PROTOCOL))
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
    """The next one; the deadline is one of the monotonic clock. Raises WrongSqlError if
    there will be none."""
    while True:
        if stop():
            raise WrongSqlError("SQL: the request was cancelled.")
        if time.monotonic() > deadline_s:
            raise WrongSqlError(
                f"SQL: the query takes longer than {limit_s:g} s: ask for less at once."
            )
        with suppress(Empty):
            message = messages.get(timeout=POLL_SECONDS)
            if message is None:
                raise WrongSqlError(PROCESS_ENDED)
            return msgspec.msgpack.decode(message, type=SqlReply)


def _table(reply: SqlReply) -> Table:
    """The answer that a reply has."""
    columns = tuple(_table_column(column) for column in reply.columns)
    return Table(
        name="rows",
        columns=columns,
        first=frozenset(column.name for column in columns),
        left_out=tuple(reply.left_out),
    )


def _table_column(column: SqlColumn) -> TableColumn:
    """A column from its bytes."""
    known = None
    if column.known is not None:
        known = np.frombuffer(column.known, dtype=np.bool_)
    return TableColumn(
        name=column.name,
        values=np.frombuffer(column.values, dtype=column.dtype),
        texts=None if column.texts is None else tuple(column.texts),
        known=known,
    )


def _sql_column(column: TableColumn) -> SqlColumn:
    """A column as bytes."""
    return SqlColumn(
        name=column.name,
        dtype=column.values.dtype.name,  # type: ignore[arg-type]  # one that DTYPES has
        values=column.values.tobytes(),
        texts=None if column.texts is None else list(column.texts),
        known=None if column.known is None else column.known.tobytes(),
    )


def _send(stream: IO[bytes], message: bytes) -> None:
    """Writes the length of a message and the message."""
    for part in (LENGTH.pack(len(message)), message):
        rest = memoryview(part)
        while rest:  # the stream has no buffer: it may take a part only
            written_bytes = stream.write(rest)
            rest = rest[written_bytes:]


def _received(stream: IO[bytes]) -> SimpleQueue[bytes | None]:
    """The messages of a stream as they come, which a thread reads to its end; then
    None."""
    messages: SimpleQueue[bytes | None] = SimpleQueue()

    def read() -> None:
        """Puts the messages into the queue."""
        with suppress(OSError, ValueError, MemoryError):
            for message in _messages(stream):
                messages.put(message)
        messages.put(None)
        with suppress(OSError):
            stream.close()

    Thread(target=read, daemon=True).start()
    return messages


def _messages(stream: IO[bytes]) -> Iterator[bytes]:
    """The complete messages of a stream."""
    while True:
        head = _exactly(stream, LENGTH.size)
        if len(head) < LENGTH.size:
            return
        (length,) = LENGTH.unpack(head)
        message = _exactly(stream, length)
        if len(message) < length:
            return
        yield message


def _exactly(stream: IO[bytes], length: int) -> bytes:
    """So many bytes, or fewer at the end of the stream."""
    chunks: list[bytes] = []
    missing_bytes = length
    while missing_bytes:
        chunk = stream.read(min(missing_bytes, MAX_CHUNK_BYTES))
        if not chunk:
            break
        chunks.append(chunk)
        missing_bytes -= len(chunk)
    return b"".join(chunks)


def main() -> None:
    """The other process: answers one query."""
    messages: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for message in _messages(sys.stdin.buffer):
            messages.put(message)
        os._exit(1)  # nobody waits for the answer any more

    Thread(target=read, daemon=True).start()
    query: SqlQuery = pickle.loads(messages.get())
    limits = _ResourceLimits(query.most_cpu_s)

    def reply(message: SqlReply) -> None:
        _send(sys.stdout.buffer, msgspec.msgpack.encode(message))
        sys.stdout.buffer.flush()

    def table(name: str) -> Table:
        """The table of this name, which the first process is asked for."""
        reply(SqlReply(needs=name))
        message = messages.get()
        limits.widen(COPIES * len(message))
        unpickled: Table = pickle.loads(message)
        return unpickled

    try:
        with SqlDatabase(table, of_several=query.of_several) as database:
            answer = database.ask(query.text)
        columns = [_sql_column(column) for column in answer.columns]
        reply(SqlReply(columns=columns, left_out=[*answer.left_out]))
    except WrongSqlError as error:
        reply(SqlReply(error=str(error)))
    except MemoryError:
        reply(SqlReply(error=PROCESS_ENDED))
    os._exit(0)


class _ResourceLimits:
    """What this process may use, where the system has such limits."""

    def __init__(self, most_cpu_s: int) -> None:
        self._bytes = MEMORY_BYTES
        self._set("RLIMIT_CPU", most_cpu_s)
        self.widen(0)

    def widen(self, more_bytes: int) -> None:
        """Allows more memory."""
        self._bytes += more_bytes
        self._set("RLIMIT_DATA", self._bytes)

    @staticmethod
    def _set(name: str, limit: int) -> None:
        """Lowers a limit of the system, in its own unit."""
        with suppress(ImportError, AttributeError, OSError, ValueError):
            import resource

            number = getattr(resource, name)
            _, hard_limit = resource.getrlimit(number)
            if hard_limit != resource.RLIM_INFINITY:
                limit = min(limit, hard_limit)
            resource.setrlimit(number, (limit, hard_limit))
