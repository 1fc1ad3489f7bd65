"""SQL over the tables of traces, with DuckDB: only SELECT, and no access to files,
extensions, settings or Python variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Final, Self, TypeVar

import numpy as np
from msgspec.structs import replace

from fusetui import Error
from fusetui.tables.dataframes import schema_of
from fusetui.tables.files import import_optional
from fusetui.tables.public import Table, name_beside_file, with_files
from fusetui.tables.sources import FILE, TABLES, columns_of, trace_table
from fusetui.tables.table import ColumnSpec, Kind, TableColumn, column_of
from fusetui.trace.model.columns import Trace

Result = TypeVar("Result")

THREADS = 4
SETTINGS: Final = {"threads": THREADS, "memory_limit": "4GB", "temp_directory": ""}
LOCKED: Final = {
    # A bar goes to standard output, where answers go: without a script as its main
    # module, Python is interactive for DuckDB, which then draws one after 2 s.
    "enable_progress_bar": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,  # variables of Python are no tables
    "enable_external_access": False,
    "lock_configuration": True,  # the last
}
"""In this order: what is locked cannot be set any longer."""

KINDS: Final[dict[str, Kind]] = {
    "tinyint": "int",
    "smallint": "int",
    "integer": "int",
    "bigint": "int",
    "hugeint": "int",
    "utinyint": "int",
    "usmallint": "int",
    "uinteger": "int",
    "ubigint": "int",
    "uhugeint": "int",
    "float": "float",
    "double": "float",
    "decimal": "float",
    "boolean": "bool",
}
"""What a column of an answer is, by its type in DuckDB; a text where it is none of
these."""

CASTS: Final[dict[Kind, str]] = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
}
"""The type of DuckDB as which a column of each kind is fetched."""

ERROR_KIND = re.compile(r"^(?:\w+ )*Error: ", re.IGNORECASE)
"""Before a message of DuckDB."""

ERROR_PLACE = re.compile(r"\s*\n\s*LINE \d+: .*", re.DOTALL)
"""Behind a message of DuckDB."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Stands for a byte that is not UTF-8."""


class WrongSqlError(Error, ValueError):
    """One plain sentence: why a query has no answer."""


class SqlDatabase:
    """Tables, each made when a query first names it. A context manager."""

    def __init__(self, make: Callable[[str], Table], *, of_several: bool) -> None:
        """Open an empty database, whose tables are made when a query needs them. Raises
        MissingPackageError without DuckDB.

        Args:
            make: Makes one of TABLES, given its name.
            of_several: Whether the tables are of several traces, with a column `file`.
        """
        self._make = make
        self._of_several = of_several
        self._tables: dict[str, Table] = {}
        self._read: set[str] = set()  # names of tables that the last query reads
        self._engine = import_optional("duckdb", "SQL", "sql")
        self._connection = self._engine.connect(":memory:", config=SETTINGS)
        self._run_in_thread(self._prepare)

    def _prepare(self) -> None:
        """Register the tables, and lock the settings so that no query can change them."""
        for setting, value in LOCKED.items():
            self._connection.execute(f"SET {setting} = {value}")
        for name in TABLES:
            table = _LazyTable(self.columns(name), partial(self.table, name))
            self._connection.register(name, table)

    def __enter__(self) -> Self:
        """Return the database itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the connection."""
        # a query may still run, if it was interrupted twice
        with suppress(self._engine.Error):
            self._connection.close()

    def columns(self, name: str) -> tuple[ColumnSpec, ...]:
        """Return the columns of a table. The table need not be made for that."""
        specs = columns_of(name)
        if not self._of_several:
            return specs
        specs_beside_file = []
        for spec in specs:
            column_name = name_beside_file(name, spec.name, FILE)
            specs_beside_file.append(replace(spec, name=column_name))
        return (FILE, *specs_beside_file)

    def table(self, name: str) -> Table:
        """Return one of TABLES with the rows of all traces, made at its first use. It
        counts as read by the present query."""
        if name not in self._tables:
            self._tables[name] = self._make(name)
        self._read.add(name)
        return self._tables[name]

    def ask(self, query: str) -> Table:
        """Answer one SELECT.

        The result has the rows of the answer, and the sentences about what the tables
        that it reads leave out. Raises WrongSqlError if the query is wrong, is no
        SELECT, or is interrupted.
        """
        self._read.clear()
        if SURROGATE.search(query):
            raise WrongSqlError("SQL: the query is not valid UTF-8.")
        try:
            self._check(query)
            for name in self._tables_named(query):
                self.table(name)
            answer = self._run_in_thread(lambda: self._answer(query))
        except self._engine.Error as error:
            raise WrongSqlError(_format_error(str(error))) from None
        except UnicodeDecodeError:
            # DuckDB quotes bytes of the query in what it reports
            raise WrongSqlError(
                "SQL: the query fails, with a message that is not UTF-8."
            ) from None
        left_out: list[str] = []
        read_tables = [name for name in TABLES if name in self._read]
        for name in read_tables:
            left_out += self._tables[name].left_out
        return replace(answer, left_out=tuple(left_out))

    def interrupt(self) -> None:
        """End a query that runs in another thread, which then raises WrongSqlError."""
        self._connection.interrupt()

    def _check(self, query: str) -> None:
        """Raise WrongSqlError unless the query is one SELECT, and an error of DuckDB if
        it cannot be parsed."""
        statements = self._connection.extract_statements(query)
        if not statements:
            raise WrongSqlError("SQL: pass one query, not none.")
        if len(statements) > 1:
            raise WrongSqlError(f"SQL: pass one query, not {len(statements)}.")
        kind = statements[0].type.name
        if kind != "SELECT":
            raise WrongSqlError(
                f"SQL: the tables are read-only: use SELECT, not {kind}."
            )

    def _tables_named(self, query: str) -> list[str]:
        """List the tables that a query names, and perhaps some that it only seems to
        name."""
        try:
            names = set(self._connection.get_table_names(query))
        except self._engine.Error:
            # it cannot be bound: it may need whatever it names
            names = set(re.findall(r"\w+", query))
        lower_names = {name.lower() for name in names}
        return [name for name in TABLES if name in lower_names]

    def _answer(self, query: str) -> Table:
        """Answer a query by a table, with a column for each of its expressions. Raises
        an error of DuckDB."""
        relation = self._connection.sql(query)
        names = _make_distinct(relation.columns)
        kinds = [KINDS.get(duckdb_type.id, "text") for duckdb_type in relation.types]
        casts = []
        for number, kind in enumerate(kinds, start=1):  # as DuckDB counts, from 1
            casts.append(f"CAST(#{number} AS {CASTS[kind]}) AS c{number}")
        values_by_alias = relation.project(", ".join(casts)).fetchnumpy()

        columns = []
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True), start=1):
            values = values_by_alias[f"c{number}"]
            columns.append(_column_from_duckdb(name, kind, values))
        return Table(name="rows", columns=tuple(columns), first=frozenset(names))

    def _run_in_thread(self, work: Callable[[], Result]) -> Result:
        """Run `work` in another thread, and return its result or raise its error.

        In the main thread, DuckDB would look for signals, and raise an error of its own
        in place of what their handlers raise.
        """
        result: Future[Result] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        Thread(target=run, daemon=True).start()
        try:
            wait([result])
        except BaseException:
            self._connection.interrupt()
            wait([result])
            raise
        return result.result()


class SqlTables(SqlDatabase):
    """The tables of one or several open traces."""

    def __init__(self, traces: Sequence[tuple[str, Trace]]) -> None:
        """Open a database with the tables of traces, given as names and traces."""
        super().__init__(partial(table_of_all, traces), of_several=len(traces) > 1)


def table_of_all(traces: Sequence[tuple[str, Trace]], name: str) -> Table:
    """Make one of TABLES, of one or several traces.

    The table of several traces has a column with the name of the trace.
    """
    tables = [(trace_name, trace_table(name, trace)) for trace_name, trace in traces]
    if len(tables) == 1:
        return tables[0][1]
    return with_files(tables, FILE)


class _LazyTable:
    """Columns for DuckDB, and the rows once it needs them."""

    def __init__(self, specs: Sequence[ColumnSpec], table: Callable[[], Table]) -> None:
        """Remember the columns, and the function that makes the table."""
        self.specs = specs
        self.table = table

    def __arrow_c_schema__(self) -> Any:
        """Return the Arrow schema of the columns; the table is not made for that."""
        schema = schema_of((spec.name, spec.kind) for spec in self.specs)
        return schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the rows as an Arrow stream, for which the table is made."""
        return self.table().__arrow_c_stream__(requested_schema)


def _format_error(message: str) -> str:
    """Turn a message of DuckDB into one sentence in one line, without the kind of the
    error and its place in the query."""
    without_place = ERROR_PLACE.sub("", message)
    without_kind = ERROR_KIND.sub("", without_place)
    in_one_line = " ".join(without_kind.split())
    if in_one_line.endswith("?"):
        return f"SQL: {in_one_line}"
    return f"SQL: {in_one_line.rstrip('.!')}."


def _make_distinct(names: Sequence[str]) -> list[str]:
    """Make names of columns distinct: of two names `a` the second becomes `a_1`."""
    distinct_names: list[str] = []
    taken: set[str] = set()
    for name in names:
        distinct_name = name
        number = 0
        while distinct_name in taken:
            number += 1
            distinct_name = f"{name}_{number}"
        taken.add(distinct_name)
        distinct_names.append(distinct_name)
    return distinct_names


def _column_from_duckdb(name: str, kind: Kind, values: Any) -> TableColumn:
    """Make a column of an array of DuckDB, in which missing values are masked. A float
    that is not finite counts as missing."""
    has_value = ~np.ma.getmaskarray(values)
    unmasked = np.ma.getdata(values)
    if kind == "text":
        spec = ColumnSpec(name=name, kind=kind, meaning="", optional=True)
        texts = unmasked.tolist()
        for row in np.flatnonzero(~has_value).tolist():
            texts[row] = None
        return column_of(spec, texts)
    if kind == "float":
        has_value &= np.isfinite(unmasked)
    numbers = np.where(has_value, unmasked, 0).astype(unmasked.dtype)
    return TableColumn(name=name, values=numbers, known=has_value)
