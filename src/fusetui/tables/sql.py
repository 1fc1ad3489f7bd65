"""SQL over the tables of traces, by DuckDB: SELECT alone, and no file, extension,
setting or variable of Python is in its reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from itertools import chain, count
from threading import Thread
from typing import Any, Final, Self

import numpy as np
from msgspec.structs import replace

from fusetui import Error
from fusetui.tables.files import needed, schema_of
from fusetui.tables.public import Table, renamed, with_files
from fusetui.tables.sources import FILE, TABLES, columns_of, made
from fusetui.tables.table import Kind, Spec, TableColumn, column_of
from fusetui.trace.model.columns import Trace

MEMORY, THREADS = "4GB", 4
SETTINGS: Final = {"threads": THREADS, "memory_limit": MEMORY, "temp_directory": ""}
LOCKED: Final = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
    "python_enable_replacements": False,  # variables of Python are no tables
    "enable_external_access": False,
    "lock_configuration": True,  # the last
}
"""In this order: what is locked cannot be set any longer."""
INTEGERS = ("tinyint", "smallint", "integer", "bigint", "hugeint")
KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys((*INTEGERS, *(f"u{name}" for name in INTEGERS)), "int"),
    **dict.fromkeys(("float", "double", "decimal"), "float"),
    "boolean": "bool",
}
"""What a column of an answer is, by its type in DuckDB; a text where it is none of
these."""
CASTS: Final = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
}
KIND = re.compile(r"^(?:\w+ )*Error: ", re.IGNORECASE)  # before a message of DuckDB
PLACE = re.compile(r"\s*\n\s*LINE \d+: .*", re.DOTALL)  # behind it


class WrongSqlError(Error, ValueError):
    """One plain sentence: why a query has no answer."""


class SqlDatabase:
    """Tables, each made when a query first names it. A context manager."""

    def __init__(self, make: Callable[[str], Table], *, of_several: bool) -> None:
        """`make` gives one of TABLES. Where they are `of_several` traces, the names of
        these stand in the column `file`. Raises MissingPackageError."""
        self._make, self._of_several = make, of_several
        self._tables: dict[str, Table] = {}
        self._read: dict[str, Table] = {}  # by the last query
        self._engine = needed("duckdb", "SQL", "sql")
        self._connection = self._engine.connect(":memory:", config=SETTINGS)
        for name, value in LOCKED.items():
            self._connection.execute(f"SET {name} = {value}")
        for name in TABLES:
            self._connection.register(
                name, _Lazy(self.columns(name), partial(self.table, name))
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        # a query may still run, if it was interrupted twice
        with suppress(self._engine.Error):
            self._connection.close()

    def columns(self, name: str) -> tuple[Spec, ...]:
        """Those of a table, which need not be made for that."""
        specs = columns_of(name)
        if not self._of_several:
            return specs
        return (
            FILE,
            *(replace(spec, name=renamed(name, spec.name, FILE)) for spec in specs),
        )

    def table(self, name: str) -> Table:
        """One of TABLES, of all traces."""
        if name not in self._tables:
            self._tables[name] = self._make(name)
        self._read[name] = self._tables[name]
        return self._tables[name]

    def ask(self, query: str) -> Table:
        """The answer to one SELECT, with what the tables that it reads leave out.
        Raises WrongSqlError; an interrupt ends the query."""
        self._read.clear()
        if re.search("[\ud800-\udfff]", query):
            raise WrongSqlError("SQL: the query is not valid UTF-8.")
        try:
            statements = self._connection.extract_statements(query)
            if len(statements) != 1:
                raise WrongSqlError(
                    f"SQL: one query is needed, not {len(statements) or 'none'}."
                )
            if (kind := statements[0].type.name) != "SELECT":
                raise WrongSqlError(
                    f"SQL: the tables are read-only: SELECT is possible, not {kind}."
                )
            try:
                names = set(self._connection.get_table_names(query))
            except (
                self._engine.Error
            ):  # it cannot be bound: it may need whatever it names
                names = set(re.findall(r"\w+", query))
            lower = {one.lower() for one in names}
            for name in TABLES:
                if name in lower:
                    self.table(name)
            answer = self._elsewhere(lambda: self._answer(query))
            read = [self._read[name] for name in TABLES if name in self._read]
            left_out = tuple(sentence for table in read for sentence in table.left_out)
            return replace(answer, left_out=left_out)
        except self._engine.Error as error:
            said = " ".join(KIND.sub("", PLACE.sub("", str(error))).split())
            raise WrongSqlError(
                f"SQL: {said.rstrip('.!')}{'' if said.endswith('?') else '.'}"
            ) from None
        except (
            UnicodeDecodeError
        ):  # DuckDB quotes bytes of the query in what it reports
            raise WrongSqlError(
                "SQL: the query fails, with a message that is not UTF-8."
            ) from None

    def interrupt(self) -> None:
        """Ends a query from another thread, which then raises WrongSqlError."""
        self._connection.interrupt()

    def _answer(self, query: str) -> Table:
        relation = self._connection.sql(query)
        kinds = [KINDS.get(one.id, "text") for one in relation.types]
        names = _apart(relation.columns)
        casts = (
            f"CAST(#{n} AS {CASTS[kind]}) AS c{n}" for n, kind in enumerate(kinds, 1)
        )
        values = relation.project(", ".join(casts)).fetchnumpy()
        columns = (
            _column(name, kind, values[f"c{number}"])
            for number, (name, kind) in enumerate(zip(names, kinds, strict=True), 1)
        )
        return Table("rows", tuple(columns), frozenset(names))

    def _elsewhere(self, work: Callable[[], Table]) -> Table:
        """Waits for another thread, as signals do not end a query in the main one."""
        ended: Future[Table] = Future()

        def run() -> None:
            try:
                ended.set_result(work())
            except BaseException as error:
                ended.set_exception(error)

        Thread(target=run, daemon=True).start()
        try:
            wait([ended])
        except BaseException:
            self._connection.interrupt()
            wait([ended])
            raise
        return ended.result()


class SqlTables(SqlDatabase):
    """The tables of one or several open traces."""

    def __init__(self, traces: Sequence[tuple[str, Trace]]) -> None:
        super().__init__(partial(table_of_all, traces), of_several=len(traces) > 1)


def table_of_all(traces: Sequence[tuple[str, Trace]], name: str) -> Table:
    """One of TABLES, of one or several traces with their names."""
    tables = [(file, made(name, trace)) for file, trace in traces]
    return with_files(tables, FILE) if len(tables) > 1 else tables[0][1]


class _Lazy:
    """Columns for DuckDB, and the rows once it needs them."""

    def __init__(self, specs: Sequence[Spec], table: Callable[[], Table]) -> None:
        self.specs, self.table = specs, table

    def __arrow_c_schema__(self) -> Any:
        return schema_of(
            (spec.name, spec.kind) for spec in self.specs
        ).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.table().__arrow_c_stream__(requested_schema)


def _apart(names: Sequence[str]) -> list[str]:
    """Names of columns, with a number behind those that came before: `a`, `a_1`."""
    found: dict[str, None] = {}
    for name in names:
        ways = chain((name,), (f"{name}_{number}" for number in count(1)))
        found[next(way for way in ways if way not in found)] = None
    return [*found]


def _column(name: str, kind: Kind, values: Any) -> TableColumn:
    """A number that is not finite is none."""
    known = ~np.ma.getmaskarray(values)
    plain = np.ma.getdata(values)
    if kind == "text":
        given = [
            text if there else None
            for text, there in zip(plain, known.tolist(), strict=True)
        ]
        return column_of(Spec(name, kind, "", optional=True), given)
    if kind == "float":
        known &= np.isfinite(plain)
    return TableColumn(name, np.where(known, plain, 0).astype(plain.dtype), None, known)
