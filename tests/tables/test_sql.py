"""SQL over the tables: what a query answers, and what it cannot reach."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any

import duckdb
import msgspec
import pytest
from tests.cases import Cases
from tests.hostile import WORST

from fusetui import sample_traces
from fusetui.own_process import started
from fusetui.tables import sql, sql_process
from fusetui.tables.public import Table
from fusetui.tables.sources import TABLES
from fusetui.tables.sql import SqlTables, WrongSqlError, table_of_all
from fusetui.tables.sql_process import ask_elsewhere
from fusetui.trace import Trace, open_trace

SECRET = "a file that no query reads"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return open_trace(str(sample_traces.path("mlp-eager")))


@pytest.fixture
def database(trace: Trace) -> Iterator[SqlTables]:
    with SqlTables([("a", trace)]) as opened:
        yield opened


def refused(database: SqlTables, query: str) -> str:
    with pytest.raises(WrongSqlError) as error:
        database.ask(query)
    sentence = str(error.value)
    assert sentence.startswith("SQL: ")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("files", [["a"], ["a", "b"]], ids=["one", "several"])
def test_every_table_with_the_columns_that_were_announced(
    trace: Trace, files: list[str]
) -> None:
    with SqlTables([(file, trace) for file in files]) as database:
        for name in TABLES:
            found, given = database.ask(f"select * from {name}"), database.table(name)
            assert found.names == given.names
            assert [c.kind for c in found.columns] == [
                c.kind for c in database.columns(name)
            ]
            assert [*found] == [*given]


def test_every_column_needs_no_quotes(database: SqlTables) -> None:
    for name in TABLES:
        names = ", ".join(one.name for one in database.columns(name))
        assert database.ask(f"select {names} from {name}").names


def test_only_tables_that_are_named_are_made(database: SqlTables) -> None:
    assert "kernels" in [row["name"] for row in database.ask("show tables")]
    assert len(database.ask("describe kernels")) > 50
    assert not {*database._tables} - {"kernels"}
    database.ask("select count(*) from Steps, (select row from slices)")
    assert {*database._tables} <= {"kernels", "steps", "slices"}


def test_sums_are_whole_and_exact(database: SqlTables) -> None:
    query = "select sum(v) as s from (values (9007199254740993), (0)) t(v)"
    assert [*database.ask(query)] == [{"s": 9007199254740993}]


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("1.5", 1.5),
        ("true", True),
        ("null", None),
        ("null::bigint", None),
        ("''", ""),
        ("1e308 * 10", None),
        ("'nan'::double", None),
        ("date '2026-01-02'", "2026-01-02"),
        ("[1, 2]", "[1, 2]"),
        ("17::hugeint", 17),
        ("17::utinyint", 17),
        ("1.25::decimal(9, 2)", 1.25),
    ],
)
def test_sql_values_become_python_values(
    database: SqlTables, value: str, meaning: Any
) -> None:
    assert [*database.ask(f"select {value} as v")] == [{"v": meaning}]


def test_an_integer_that_is_too_large_is_an_error(database: SqlTables) -> None:
    assert "out of range" in refused(
        database, "select 9223372036854775807::hugeint + 1"
    )


def test_sql_columns_of_one_name_are_numbered(database: SqlTables) -> None:
    assert database.ask("select 1 as a, 2 as a, 3 as a_1").names == (
        "a",
        "a_1",
        "a_1_1",
    )


def test_sql_result_keeps_the_order_of_the_query(database: SqlTables) -> None:
    found = database.ask("select row from slices order by dur_ns desc, row")
    rows = database.table("slices").sort("dur_ns").column("row").to_list()
    assert found.column("row").to_list() == rows


def test_sql_result_without_rows_keeps_its_column_types(database: SqlTables) -> None:
    found = database.ask("select name, row, true as b from slices where false")
    assert (len(found), [c.kind for c in found.columns]) == (0, ["text", "int", "bool"])


def test_names_are_values() -> None:
    """A query that holds one, as any text."""
    names = database_of(WORST.replace("\ud800", ""))
    assert names == [WORST.replace("\ud800", "")]


def database_of(name: str) -> list[str]:
    import json
    from tempfile import TemporaryDirectory

    event = {
        "name": name,
        "ph": "X",
        "cat": "cpu_op",
        "ts": 1,
        "dur": 1,
        "pid": 1,
        "tid": 1,
    }
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.json")
        path.write_text(json.dumps({"traceEvents": [event]}))
        with SqlTables([("x", open_trace(str(path), cached=False))]) as database:
            found: list[str] = (
                database.ask("select name from slices").column("name").to_list()
            )
            return found


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("select nowhere from steps", 'SQL: Referenced column "nowhere" not found'),
        ("selec 1", 'SQL: syntax error at or near "selec".'),
        ("select * from kernel", 'does not exist! Did you mean "kernels"?'),
        ("", "SQL: pass one query, not none."),
        ("-- nothing", "SQL: pass one query, not none."),
        ("select 1; select 2", "SQL: pass one query, not 2."),
        ("select 'a'::int", "SQL: Could not convert string 'a' to INT32."),
        ("select '\udc80'", "SQL: the query is not valid UTF-8."),
        (
            "select unhex('\U0001f600')",
            "SQL: the query fails, with a message that is not UTF-8.",
        ),
        ("select " + "(" * 9000 + "1" + ")" * 9000, "SQL: Max expression depth"),
    ],
)
def test_wrong_sql_is_one_sentence(
    database: SqlTables, query: str, sentence: str
) -> None:
    assert sentence in refused(database, query)


CHANGES = (
    "copy (select 1) to 'FILE'",
    "copy slices to 'FILE' (format csv)",
    "attach 'FILE' as other",
    "export database 'FILE'",
    "import database 'FILE'",
    "install httpfs",
    "load 'FILE'",
    "force install json from 'FILE'",
    "pragma database_list",
    "pragma enable_profiling",
    "set enable_external_access = true",
    "set threads = 64",
    "reset memory_limit",
    "call pragma_version()",
    "create table x as select 1",
    "create secret (type s3)",
    "create macro f() as 1",
    "insert into steps values (1)",
    "update steps set number = 1",
    "delete from steps",
    "drop view steps",
    "alter view steps rename to x",
    "explain analyze copy (select 1) to 'FILE'",
    "prepare p as select 1",
    "use memory",
    "checkpoint",
    "vacuum",
)


def test_sql_other_than_select_is_refused_and_writes_nothing(
    database: SqlTables, tmp_path: Path
) -> None:
    with Cases() as cases:
        for query in CHANGES:
            with cases.case(query):
                sentence = refused(database, query.replace("FILE", str(tmp_path / "x")))
                assert "the tables are read-only: use SELECT, not" in sentence
                assert not [*tmp_path.iterdir()]


READS = (
    "select * from 'FILE'",
    "select * from read_csv('FILE')",
    "select * from read_csv_auto('FILE')",
    "select * from sniff_csv('FILE')",
    "select * from read_text('FILE')",
    "select * from read_blob('FILE')",
    "select * from read_json('FILE')",
    "select * from read_parquet('FILE')",
    "select * from parquet_metadata('FILE')",
    "select * from read_duckdb('FILE')",
    "select * from glob('FOLDER/*')",
    "select * from glob('/etc/*')",
    "select * from query('select * from read_text(''FILE'')')",
    "select * from query('copy (select 1) to ''FOLDER/y''')",
    "select * from query_table('FILE')",
    "with t as (from read_text('FILE')) select * from t",
    "select (select content from read_text('FILE'))",
    "select getenv('HOME')",
    "select * from read_csv('https://example.org/x.csv')",
    "select * from sqlite_scan('FILE', 'x')",
    "select * from SECRET",  # a variable of Python
    "select * from database",
    "select * from duckdb_extensions()",
    "select * from enable_profiling(save_location := 'FOLDER/y')",
    "select * from enable_logging(storage := 'file', storage_path := 'FOLDER/y')",
    "select * from json_execute_serialized_sql(json_serialize_sql('from read_text(''FILE'')'))",
)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_sql_reads_no_file_and_no_environment(
    database: SqlTables,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"x.{ending}"
    file.write_text(SECRET)
    with Cases() as cases:
        for query in READS:
            with cases.case(query):
                asked = query.replace("FILE", str(file))
                found = refused(database, asked.replace("FOLDER", str(tmp_path)))
                assert SECRET not in found
                assert [*tmp_path.iterdir()] == [file]


def test_sql_cannot_unlock_its_settings(database: SqlTables) -> None:
    names = (
        "enable_external_access",
        "lock_configuration",
        "autoload_known_extensions",
    )
    for name, value in zip(names, ("false", "true", "false"), strict=True):
        row = {"v": value}
        assert [*database.ask(f"select current_setting('{name}')::varchar as v")] == [
            row
        ]
    allowed = "allowed_paths", "allowed_directories", "temp_directory"
    for name in allowed:
        (found,) = database.ask(f"select current_setting('{name}')::varchar as v")
        assert found["v"] in ("[]", "")


def test_memory_and_threads_are_bounded(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sql.SETTINGS, "memory_limit", "20MB")
    with SqlTables([("a", trace)]) as database:
        query = "select list(repeat('x', 1000) || a.range) as v from range(1000000) a"
        assert "memory" in refused(database, query).lower()
        (found,) = database.ask("select current_setting('threads')::int as threads")
        assert found["threads"] == sql.THREADS


class ThreadNotingConnection:
    """A connection of DuckDB that notes in which threads statements run."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.threads: set[Thread] = set()

    def execute(self, statement: str) -> Any:
        self.threads.add(current_thread())
        return self.connection.execute(statement)

    def sql(self, query: str) -> Any:
        self.threads.add(current_thread())
        return self.connection.sql(query)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def test_no_statement_runs_in_the_main_thread(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a signal makes DuckDB raise an error of its own, "Query interrupted",
    instead of what the handler raises: SIGTERM would be reported as a crash."""
    connect = duckdb.connect
    connections: list[ThreadNotingConnection] = []

    def noted(*args: Any, **options: Any) -> ThreadNotingConnection:
        connections.append(ThreadNotingConnection(connect(*args, **options)))
        return connections[-1]

    monkeypatch.setattr(duckdb, "connect", noted)
    with SqlTables([("a", trace)]) as database:
        database.ask("select count(*) as rows from slices")
    (connection,) = connections
    assert connection.threads
    assert main_thread() not in connection.threads


def test_sql_writes_nothing_into_the_home_folder(
    trace: Trace, tmp_path: Path, monkeypatch: Any
) -> None:
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with SqlTables([("a", trace)]) as database:
        database.ask("select * from slices order by name")
    assert not [*tmp_path.iterdir()]


def test_a_process_of_its_own_gives_the_same(trace: Trace) -> None:
    """Of every kind of column, with and without values."""
    query = "select *, null as nothing, 1.5 as half, row % 2 = 0 as even from slices order by row"
    with SqlTables([("a", trace)]) as database:
        here = database.ask(query)
    make = partial(table_of_all, [("a", trace)])
    there = ask_elsewhere(query, make, of_several=False, limit_s=100)
    assert there.names == here.names
    assert [*there] == [*here]
    with pytest.raises(WrongSqlError, match="read-only"):
        ask_elsewhere("drop table slices", make, of_several=False, limit_s=100)


def test_no_progress_is_drawn_where_answers_are_sent(trace: Trace) -> None:
    """DuckDB draws a bar on standard output after 2 s, which no reply would survive."""
    make = partial(table_of_all, [("a", trace)])
    query = "select current_setting('enable_progress_bar')::varchar as bar"
    answer = ask_elsewhere(query, make, of_several=False, limit_s=100)
    assert [*answer] == [{"bar": "false"}]


def test_a_process_that_has_died(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system ends one that takes too much memory."""
    killed: list[str] = []

    def make(name: str) -> Table:
        killed.append(name)
        begun[-1].kill()
        return table_of_all([("a", trace)], name)

    begun: list[subprocess.Popen[bytes]] = []

    def noted(code: str, **streams: Any) -> subprocess.Popen[bytes]:
        begun.append(started(code, **streams))
        return begun[-1]

    monkeypatch.setattr(sql_process, "started", noted)
    with pytest.raises(WrongSqlError, match="ran out of memory"):
        ask_elsewhere("select * from slices", make, of_several=False, limit_s=100)
    assert killed == ["slices"]
    assert begun[0].poll() is not None


def test_a_query_tells_what_its_own_tables_leave_out(trace: Trace) -> None:
    said = ("some time is in none of the rows",)
    whole = msgspec.structs.replace(
        table_of_all([("a", trace)], "modules"), left_out=said
    )
    with SqlTables([("a", trace)]) as database:
        database._tables["modules"] = whole
        assert database.ask("select count(*) from modules").left_out == said
        assert database.ask("select 1").left_out == ()
