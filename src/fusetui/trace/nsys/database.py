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
        """Open a database for reading; `stop` is asked while statements run. Raises
        CannotReadError if it is damaged beyond use."""
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
        """Connect, and read which tables and columns there are. Raises one of FAILURES,
        with the connection closed."""
        with ExitStack() as unless_read:
            self._connection = unless_read.enter_context(closing(_connect(place)))
            _configure(self._connection, place)
            self._connection.set_progress_handler(
                self._is_over, INSTRUCTIONS_BETWEEN_LOOKS
            )
            self._columns = self._tables()
            self.tables = {
                table: frozenset(columns) for table, columns in self._columns.items()
            }
            unless_read.pop_all()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is a table of this name with all of these columns."""
        return table in self.tables and self.tables[table].issuperset(columns)

    def integer(self, table: str, column: str) -> str:
        """The SQL expression for an integer column; NONE in rows that have anything
        else there."""
        return self.typed(table, column, "'integer'", NONE)

    def rows(
        self,
        table: str,
        columns: Sequence[str],
        rest: str = "",
        values: Sequence[int] = (),
    ) -> Iterator[tuple[Any, ...]]:
        """Yield rows of a table, as far as the database is sound.

        What stops it (damage, or too long a time) is noted in `damage`.

        Args:
            table: The table.
            columns: SQL expressions, one for each value of a row.
            rest: What follows them in the query: "where rowid > ?".
            values: The values of the question marks.
        """
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
        """Return rows of integers as columns: an array with a row for each expression.

        The arguments are those of `rows`.
        """
        rows = self.rows(table, columns, rest, values)
        numbers = np.fromiter(chain.from_iterable(rows), np.int64)
        return numbers.reshape(-1, len(columns)).T

    def records(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return all rows of a small table: [(1, "GPU 0"), (2, None)].

        A value is an integer or a text, None for anything else and where the table has
        no such column. [] if there is no such table.
        """
        if not self.has(table):
            return []
        expressions = [
            self.typed(table, column, "'integer', 'text'", "NULL") for column in columns
        ]
        return list(self.rows(table, expressions))

    def typed(self, table: str, column: str, types: str, missing: object) -> str:
        """Return an SQL expression for the values of a column that are of some types.

        Args:
            table: The table.
            column: The column, which it need not have.
            types: The types of SQLite: "'integer', 'text'".
            missing: What the expression gives for values of other types, and for all
                rows if there is no such column.
        """
        if column not in self.tables[table]:
            return str(missing)
        return f"""iif(typeof("{column}") in ({types}), "{column}", {missing})"""

    def header(self, table: str) -> str:
        """An SQL expression that is always 0. SQLite reads the header of a row to its
        end for it. So it finds damage in rows of which only some columns are asked for.
        """
        return f'typeof("{self._columns[table][-1]}") is null'

    def _tables(self) -> dict[str, tuple[str, ...]]:
        """The columns of each table with rows of its own. Views, and columns that are
        computed or hidden, are left out."""
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
        """Whether a running statement has to end: the user stops it, or it takes too
        much processor time."""
        self.stopped = self.stopped or self._stop()
        return self.stopped or time.thread_time() > self._until

    def damaged(self, table: str, why: str) -> None:
        """Note that a table cannot be read to its end, for the reason `why`. Each table
        is noted once."""
        if not self.stopped and table not in self._damaged:
            self._damaged.add(table)
            self.damage.append(
                f"Table {table} is damaged ({why}): only the rows before the damage "
                "are read."
            )

    def hidden(self, table: str, rows: int) -> None:
        """Note that a table has `rows` rows that its rowids do not lead to. A negative
        number means that they lead to so many rows too many."""
        what = (
            f"{rows:,} of its rows are not found"
            if rows > 0
            else f"{-rows:,} rows too many"
        )
        self.damage.append(
            f"Table {table} is damaged: {what} by their numbers: its figures may be wrong."
        )


def _connect(place: ExportFile) -> sqlite3.Connection:
    """An open connection to the file, or to an empty database in memory if the content
    is there."""
    if place.data is None:
        address = f"{Path(place.path).absolute().as_uri()}?mode=ro&immutable=1"
    else:
        address = "file::memory:"
    return sqlite3.connect(address, uri=True, isolation_level=None)


def _configure(connection: sqlite3.Connection, place: ExportFile) -> None:
    """Make a connection safe before anything is read: limits for texts, no attached
    files, no code in the schema."""
    if place.data is not None:
        connection.deserialize(place.data)
    connection.text_factory = lambda text: str(text, "utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if place.is_cut:  # else SQLite refuses all of it
        connection.execute("pragma writable_schema = on")
    for setting in ("trusted_schema = off", "cell_size_check = on", "query_only = on"):
        connection.execute(f"pragma {setting}")


def locate_database(path: str, size: int, data: bytes | None = None) -> ExportFile:
    """Describe where a database is.

    One that is cut short is held in memory, without what is left of its last page:
    SQLite would take the missing rest of that for zeros.

    Args:
        path: The file. Raises OSError if it cannot be read.
        size: How many bytes the database has.
        data: Its content, if that is in memory already.
    """
    with Path(path).open("rb") if data is None else BytesIO(data) as file:
        header = file.read(HEADER_BYTES)
        whole_bytes = _whole_bytes_if_cut(header, size)
        if whole_bytes is None:
            return ExportFile(path=path, size=size, data=data)
        rest = file.read(max(0, whole_bytes - len(header)))
    return ExportFile(path=path, size=size, data=header + rest, is_cut=True)


def _whole_bytes_if_cut(header: bytes, size: int) -> int | None:
    """Return how many bytes of a database that is cut short are whole pages.

    A file of 10,000 bytes with pages of 4,096, of which its header says that there are
    5, has 8,192. It is None if the file has all pages that its header says, or the
    header does not say it (sqlite.org/fileformat.html).

    Args:
        header: The first HEADER_BYTES of the file.
        size: How many bytes it has.
    """
    page_bytes = int.from_bytes(header[16:18], "big")
    if page_bytes == 1:
        page_bytes = 1 << 16
    pages = int.from_bytes(header[28:32], "big")
    # versions before 3.7 leave an old number of pages, with another change counter
    are_pages_known = header[24:28] == header[92:96]
    if not are_pages_known or size >= pages * page_bytes:
        return None
    return size // page_bytes * page_bytes
