"""`fusetui sql`: a query of the command line, of a pipe, and those of a person at a
prompt."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import WORST, obeyed
from tests.terminal import Terminal

from fusetui.command_line.arguments import FORMATS
from fusetui.commands.tables import completions, split_arguments

Run = Callable[..., Any]
LESSON, OTHER = "lesson:mlp-eager", "lesson:mlp-compiled"
STEPS = "select number, dur_ns, name from steps order by number"
SLOW = "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range % 7 = 3"
COLUMNS = {"steps": ["number", "dur_ns"], "gaps": ["device", "dur_ns"]}


@pytest.mark.parametrize(
    ("given", "query"),
    [
        (["a.json"], ""),
        (["a.json", "b.json"], ""),
        (["a.json", "select 1"], "select 1"),
        (["a.json", "b.json", "from steps"], "from steps"),
        (["my trace.json"], ""),
        (["a.json", "select\n1"], "select\n1"),
    ],
)
def test_text_with_a_space_that_names_no_file_is_a_query(
    given: list[str], query: str
) -> None:
    assert split_arguments(given) == (given[: -1 if query else None], query)


def test_a_file_with_a_space_is_no_query(tmp_path: Path) -> None:
    (tmp_path / "my trace.json").touch()
    given = ["a.json", str(tmp_path / "my trace.json")]
    assert split_arguments(given) == (given, "")


def test_sql_prints_a_table(fusetui: Run) -> None:
    found = fusetui("sql", LESSON, STEPS)
    assert found.code == 0
    assert found.out.splitlines()[:2] == [
        "number     dur  name",
        "     2  762 us  ProfilerStep#2",
    ]
    assert "! Reconstructed, not recorded" in found.out


def test_only_the_first_rows_unless_asked(fusetui: Run) -> None:
    query = "select row from slices"
    assert "207 more rows (--top 0 shows all)" in fusetui("sql", LESSON, query).out
    assert len(fusetui("sql", LESSON, query, "--top", "0").out.splitlines()) > 227
    assert len(fusetui("sql", LESSON, query, "--format", "csv").out.splitlines()) == 228


def test_sql_of_several_traces_has_a_file_column(fusetui: Run) -> None:
    query = "select file, count(*) as steps from steps group by file order by file"
    found = fusetui("sql", LESSON, "--format", "json", OTHER, query)
    assert found.json == [{"file": OTHER, "steps": 3}, {"file": LESSON, "steps": 3}]


def test_sql_reads_a_query_from_a_pipe(fusetui: Run) -> None:
    found = fusetui("sql", LESSON, "--format", "csv", stdin=f"{STEPS};\n")
    assert found.out.splitlines()[1] == "2,762000,ProfilerStep#2"


@pytest.mark.parametrize("form", [one for one in FORMATS if one != "table"])
def test_sql_writes_every_format_and_replaces_no_file(
    fusetui: Run, tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"x.{form.replace('markdown', 'md')}"
    assert fusetui("sql", LESSON, STEPS, "--output", path).out == f"{path}: 3 rows.\n"
    assert path.stat().st_size > 0
    again = fusetui("sql", LESSON, STEPS, "--output", path)
    assert again.code == 2


def test_names_of_columns_are_data(fusetui: Run) -> None:
    query = 'select 1 as "a,%s", 2 as "b\x1b[31m"'
    assert (
        fusetui("sql", LESSON, query, "--format", "csv").out
        == '"a,%s",b\\x1b[31m\n1,2\n'
    )
    assert fusetui("sql", LESSON, query, "--format", "json").json == [
        {"a,%s": 1, "b\x1b[31m": 2}
    ]
    for form in ("table", "json", "csv", "markdown"):
        assert not obeyed(fusetui("sql", LESSON, query, "--format", form).out)


def test_names_of_the_trace_are_data(fusetui: Run, write: Callable[..., Path]) -> None:
    event = {
        "name": WORST,
        "ph": "X",
        "cat": "cpu_op",
        "ts": 1,
        "dur": 1,
        "pid": 1,
        "tid": 1,
    }
    path = write(json.dumps({"traceEvents": [event]}))
    for query in ("select name from slices", "select name::int from slices"):
        for form in FORMATS[:-1]:
            found = fusetui("sql", path, query, "--format", form)
            assert not obeyed(found.out + found.err)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((LESSON, "select x from steps"), 'SQL: Referenced column "x" not found'),
        ((LESSON, "drop view steps"), "SQL: the tables are read-only"),
        ((LESSON,), "SQL: pass one query, not none."),
        (("-",), "Standard input is the trace: pass the query as an argument."),
        ((LESSON, STEPS, "--format", "parquet"), "Parquet cannot be printed"),
    ],
)
def test_wrong_sql_arguments_are_one_sentence(
    fusetui: Run, words: tuple[str, ...], sentence: str
) -> None:
    found = fusetui("sql", *words)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err.splitlines()[-1]


def test_sql_without_duckdb_says_how_to_install_it(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert fusetui("sql", LESSON, STEPS).sentence == (
        "SQL needs duckdb: pip install 'fusetui[sql]'."
    )


TELLING = """
import sys
from fusetui.cli import script
from fusetui.tables.sql import SqlDatabase

ask = SqlDatabase.ask

def telling(database, query):
    print("asked", file=sys.stderr, flush=True)
    return ask(database, query)

SqlDatabase.ask = telling
script()
"""
"""fusetui, which says on standard error that a query begins."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_query_that_takes_long_is_ended(number: signal.Signals) -> None:
    command = [sys.executable, "-P", "-c", TELLING, "sql", "-", SLOW]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdin
        run.stdin.write(b'{"traceEvents": []}')
        run.stdin.close()
        assert run.stderr
        assert run.stderr.readline() == b"asked\n"
        time.sleep(0.5)  # it runs in DuckDB by then
        run.send_signal(number)
        assert run.wait(60) == 128 + number
        assert run.stdout
        assert run.stdout.read() == b""


@pytest.mark.parametrize(
    ("begun", "rest", "words"),
    [
        ("select * from s", "", ["steps"]),
        ("select d", " from gaps", ["desc", "device", "dur_ns"]),
        ("select dur", "", ["dur_ns"]),
        ("select num", " from gaps", []),
        (".c", "", [".columns"]),
        (".columns ga", "", ["gaps"]),
    ],
)
def test_sql_prompt_completes_tables_and_columns(
    begun: str, rest: str, words: list[str]
) -> None:
    assert completions(begun.split()[-1], begun + rest, len(begun), COLUMNS) == words


def test_sql_prompt_answers_commands_and_queries() -> None:
    with Terminal(["sql", LESSON], columns=120, anew=True) as screen:
        screen.wait_for("sql> ")
        screen.press(".tables\n")
        screen.wait_for("slices")
        screen.press(".columns steps\n")
        screen.wait_for("the number of the step")
        screen.press("select number, dur_ns\n")
        screen.wait_for("...> ")
        screen.press("from st\t order by 1;\n")
        screen.wait_for("762 us")
        screen.press("selec 1;\n")
        screen.wait_for('SQL: syntax error at or near "selec".')
        screen.press("begun")
        # the terminal drops what was not read when Ctrl+C comes
        screen.wait_for("begun")
        screen.press("\x03")
        screen.wait_for("sql> ")
        screen.press(f"{SLOW};\n")
        time.sleep(2)
        screen.press("\x03")
        screen.wait_for("Interrupted.")
        screen.press("select 41 + 1 as x;\n")
        screen.wait_for("42")
        screen.press("\x04")
        assert screen.wait() == 0


def test_sql_prompt_ends_at_quit() -> None:
    with Terminal(["sql", LESSON], anew=True) as screen:
        screen.wait_for("sql> ")
        screen.press(".quit\n")
        assert screen.wait() == 0
