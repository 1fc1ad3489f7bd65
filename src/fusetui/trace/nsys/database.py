"""A hostile SQLite database, opened read-only: only tables are queried, values of the
wrong type count as missing, and the time of each statement and the size of each text
are limited.

Immutable: neither a lock nor a journal beside the file is looked at or made.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.report import Stop, never

NONE = -(2**63)
"""An integer that is missing."""
MAX_TEXT_BYTES = 16 << 20
HEADER_BYTES = 100  # of a database (sqlite.org/fileformat.html)
MIN_SECONDS = 4.0  # of the processor that any database may take
SECONDS_PER_BYTE = 1e-6
"""How much more a database may take: several times what a sound one takes."""
INSTRUCTIONS_BETWEEN_LOOKS = 10_000  # of SQLite, at the time
FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""Of statements; the latter of what they say."""


class ExportFile(msgspec.Struct, frozen=True, eq=False):
    """Where a database is: in a file, or in memory."""

    path: str
    size: int  # bytes
    data: bytes | None = None
    is_cut: bool = False  # pages are missing at its end (sqlite.org/fileformat.html)
    process: int | None = None  # the pid of the only process that is read
    # the globalPid of GPU events that name none; see tables.with_owner
    owner: int = NONE


class Export:
    """An open database. What is wrong with it is kept in `damage`: a sentence for each
    table that cannot be read, or not to its end."""

    def __init__(self, place: ExportFile, stop: Stop = never) -> None:
        """Raises CannotReadError."""
        self.path = place.path
        self.process = place.process
        self.owner = place.owner
        self.damage: list[str] = []
        self._damaged: set[str] = set()  # tables
        self.stopped = False
        self._stop = stop
        seconds = MIN_SECONDS + SECONDS_PER_BYTE * place.size
        self._until = time.thread_time() + seconds
        if place.is_cut:
            self.damage.append(
                "The file is truncated: the rows at its end are missing."
            )
        try:
            self._open(place)
        except FAILURES as error:
            raise CannotReadError(
                f"{place.path} is a damaged SQLite database ({error})."
            ) from None

    def _open(self, place: ExportFile) -> None:
        """Connects, and reads which tables and columns there are. Raises FAILURES."""
        with ExitStack() as unless_read:
            self._connection = unless_read.enter_context(closing(_connected(place)))
            _prepare(self._connection, place)
            self._connection.set_progress_handler(
                self._is_over, INSTRUCTIONS_BETWEEN_LOOKS
            )
            self._columns = self._tables()
            self.tables = {
                table: frozenset(columns) for table, columns in self._columns.items()
            }
            unless_read.pop_all()

    def close(self) -> None:
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table, with all of these columns."""
        return table in self.tables and self.tables[table].issuperset(columns)

    def integer(self, table: str, column: str) -> str:
        """The expression of an integer column, NONE where it is anything else."""
        return self.typed(table, column, "'integer'", NONE)

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        rest: str = "",
        values: Sequence[int] = (),
    ) -> Iterator[tuple[Any, ...]]:
        """Rows as far as they can be read; `columns` are expressions, `rest` what
        follows them."""
        listed = ", ".join(columns)
        try:
            yield from self._connection.execute(
                f'select {listed} from "{table}" not indexed {rest}', values
            )
        except FAILURES as error:
            is_too_late = "interrupt" in str(error)
            reason = "it takes too long to read" if is_too_late else str(error)
            self.damaged(table, reason)

    def integers(
        self,
        table: str,
        columns: Sequence[str],
        rest: str = "",
        values: Sequence[int] = (),
    ) -> NDArray[np.int64]:
        """As `rows`, of integers only; shape [columns, rows]."""
        rows = self.rows(table, columns, rest, values)
        numbers = np.fromiter(chain.from_iterable(rows), np.int64)
        return numbers.reshape(-1, len(columns)).T

    def records(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Small tables: rows of integers and texts, None for what is missing; []
        without them."""
        if not self.has(table):
            return []
        expressions = [
            self.typed(table, column, "'integer', 'text'", "NULL") for column in columns
        ]
        return list(self.rows(table, expressions))

    def typed(self, table: str, column: str, types: str, missing: object) -> str:
        """The expression of a column, `missing` where it is of none of these types."""
        if column not in self.tables[table]:
            return str(missing)
        return f"""iif(typeof("{column}") in ({types}), "{column}", {missing})"""

    def header(self, table: str) -> str:
        """An expression that is always 0, for which SQLite reads the header of a row to
        its end: so it finds damage in a row of which only some columns are asked
        for."""
        return f'typeof("{self._columns[table][-1]}") is null'

    def _tables(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table with rows of its own, without those that are
        computed."""
        query = "select name from sqlite_master where type = 'table' and rootpage > 0"
        names = [name for (name,) in self._connection.execute(query)]
        return {
            name: self._columns_of(name)
            for name in names
            if isinstance(name, str) and '"' not in name
        }

    def _columns_of(self, table: str) -> tuple[str, ...]:
        """The columns of a table, without hidden and computed ones."""
        columns: list[str] = []
        for row in self._connection.execute(f'pragma table_xinfo("{table}")'):
            _number, name, _type, _not_null, _default, _primary_key, hidden = row
            is_stored = hidden == 0  # others are hidden or computed
            if is_stored and '"' not in str(name):
                columns.append(str(name))
        return tuple(columns)

    def _is_over(self) -> bool:
        self.stopped = self.stopped or self._stop()
        return self.stopped or time.thread_time() > self._until

    def damaged(self, table: str, why: str) -> None:
        """Notes that a table cannot be read to its end, once for each table."""
        if not self.stopped and table not in self._damaged:
            self._damaged.add(table)
            self.damage.append(
                f"Table {table} is damaged ({why}): only the rows before the damage "
                "are read."
            )

    def hidden(self, table: str, rows: int) -> None:
        """Notes that so many rows are in a table which its rowids do not lead to; below
        zero, that they lead to so many more than are in it."""
        what = (
            f"{rows:,} of its rows are not found"
            if rows > 0
            else f"{-rows:,} rows too many"
        )
        self.damage.append(
            f"Table {table} is damaged: {what} by their numbers: its figures may be wrong."
        )


def _connected(place: ExportFile) -> sqlite3.Connection:
    """An open connection, to the file or to an empty database in memory."""
    if place.data is None:
        address = f"{Path(place.path).absolute().as_uri()}?mode=ro&immutable=1"
    else:
        address = "file::memory:"
    return sqlite3.connect(address, uri=True, isolation_level=None)


def _prepare(connection: sqlite3.Connection, place: ExportFile) -> None:
    """Before anything is read."""
    if place.data is not None:
        connection.deserialize(place.data)
    connection.text_factory = lambda text: str(text, "utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if place.is_cut:  # else SQLite refuses all of it
        connection.execute("pragma writable_schema = on")
    for setting in ("trusted_schema = off", "cell_size_check = on", "query_only = on"):
        connection.execute(f"pragma {setting}")


def place_of(path: str, size: int, data: bytes | None = None) -> ExportFile:
    """A database, held in memory if it is cut short: SQLite would take what is missing
    of its last page for zeros. Raises OSError."""
    with Path(path).open("rb") if data is None else BytesIO(data) as file:
        header = file.read(HEADER_BYTES)
        whole_bytes = _whole_bytes_if_cut(header, size)
        if whole_bytes is None:
            return ExportFile(path=path, size=size, data=data)
        rest = file.read(max(0, whole_bytes - len(header)))
    return ExportFile(path=path, size=size, data=header + rest, is_cut=True)


def _whole_bytes_if_cut(header: bytes, size: int) -> int | None:
    """How many of the `size` bytes of a file are whole pages, if it has fewer pages
    than its header says (sqlite.org/fileformat.html); else None."""
    page_bytes = int.from_bytes(header[16:18], "big")
    if page_bytes == 1:
        page_bytes = 1 << 16
    pages = int.from_bytes(header[28:32], "big")
    # versions before 3.7 leave an old number of pages, with another change counter
    are_pages_known = header[24:28] == header[92:96]
    if not are_pages_known or size >= pages * page_bytes:
        return None
    return size // page_bytes * page_bytes
