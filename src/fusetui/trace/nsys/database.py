"""A SQLite database that is only read, whatever is in it: tables alone are asked, no
view or trigger; what is not of the type that a column should have is missing; no
statement runs for longer than a sound database of its size could take, and no text is
larger than LONGEST.

Immutable: neither a lock nor a journal beside the file is looked at or made.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
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
LONGEST = 16 << 20  # bytes of a text
SECONDS = 4.0  # of the processor that any database may take, and
# how much more for each byte: several times what a sound one takes
SECONDS_A_BYTE = 1e-6
OFTEN = 10_000  # instructions of SQLite between two looks at the time


# of statements; the latter of what they say
FAILURES = (sqlite3.Error, UnicodeDecodeError)


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
        self.path, self.process = place.path, place.process
        self.owner = place.owner
        self.damage: list[str] = []
        self._damaged: set[str] = set()  # tables
        self.stopped = False
        self._stop = stop
        self._until = time.thread_time() + SECONDS + SECONDS_A_BYTE * place.size
        if place.is_cut:
            self.damage.append(
                "The file was cut short: the rows in its last part are missing."
            )
        try:
            with ExitStack() as unless_read:
                self._connection = unless_read.enter_context(closing(_connected(place)))
                _prepare(self._connection, place)
                self._connection.set_progress_handler(self._is_over, OFTEN)
                self._columns = self._tables()
                self.tables = {
                    name: frozenset(own) for name, own in self._columns.items()
                }
                unless_read.pop_all()
        except FAILURES as error:
            raise CannotReadError(
                f"{place.path} is a damaged SQLite database ({error})."
            ) from None

    def close(self) -> None:
        self._connection.close()

    def has(self, table: str, *columns: str) -> bool:
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
            late = "interrupt" in str(error)
            self.damaged(table, "it takes too long to read" if late else str(error))

    def integers(
        self,
        table: str,
        columns: Sequence[str],
        rest: str = "",
        values: Sequence[int] = (),
    ) -> NDArray[np.int64]:
        """As `rows`, of integers only; shape [columns, rows]."""
        flat = np.fromiter(
            chain.from_iterable(self.rows(table, columns, rest, values)), np.int64
        )
        return (
            flat[: len(flat) // len(columns) * len(columns)].reshape(-1, len(columns)).T
        )

    def records(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Small tables: rows of integers and texts, None for what is missing; []
        without them."""
        if not self.has(table):
            return []
        asked = [
            self.typed(table, column, "'integer', 'text'", "NULL") for column in columns
        ]
        return list(self.rows(table, asked))

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
        ask = self._connection.execute
        asked = "select name from sqlite_master where type = 'table' and rootpage > 0"
        names = [
            name for (name,) in ask(asked) if isinstance(name, str) and '"' not in name
        ]
        infos = {name: list(ask(f'pragma table_xinfo("{name}")')) for name in names}
        return {
            name: tuple(
                str(row[1]) for row in rows if row[6] == 0 and '"' not in str(row[1])
            )
            for name, rows in infos.items()
        }

    def _is_over(self) -> bool:
        self.stopped = self.stopped or self._stop()
        return self.stopped or time.thread_time() > self._until

    def damaged(self, table: str, why: str) -> None:
        if not self.stopped and table not in self._damaged:
            self._damaged.add(table)
            self.damage.append(
                f"Table {table} is damaged ({why}): only its rows before that are read."
            )

    def hidden(self, table: str, rows: int) -> None:
        """So many rows are there, but not where their rowids say; or fewer of them."""
        found = (
            f"{rows:,} of its rows are not found"
            if rows > 0
            else f"{-rows:,} rows too many"
        )
        self.damage.append(
            f"Table {table} is damaged: {found} by their numbers: its figures may be wrong."
        )


def _connected(place: ExportFile) -> sqlite3.Connection:
    in_file = f"{Path(place.path).absolute().as_uri()}?mode=ro&immutable=1"
    address = in_file if place.data is None else "file::memory:"
    return sqlite3.connect(address, uri=True, isolation_level=None)


def _prepare(connection: sqlite3.Connection, place: ExportFile) -> None:
    """Before anything is read."""
    if place.data is not None:
        connection.deserialize(place.data)
    connection.text_factory = lambda text: str(text, "utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if place.is_cut:  # else SQLite refuses all of it
        connection.execute("pragma writable_schema = on")
    for setting in ("trusted_schema = off", "cell_size_check = on", "query_only = on"):
        connection.execute(f"pragma {setting}")


def place_of(path: str, size: int, data: bytes | None = None) -> ExportFile:
    """A database, held in memory if it is cut short: SQLite would take what is missing
    of its last page for zeros. Raises OSError."""
    with Path(path).open("rb") if data is None else nullcontext(BytesIO(data)) as file:
        head = file.read(100)
        page = int.from_bytes(head[16:18], "big")
        page = 1 << 16 if page == 1 else page
        # versions before 3.7 leave an old number of pages
        known = head[24:28] == head[92:96]
        if not known or size >= int.from_bytes(head[28:32], "big") * page:
            return ExportFile(path, size, data)
        rest = file.read(max(0, size // page * page - len(head)))
        return ExportFile(path, size, head + rest, is_cut=True)
