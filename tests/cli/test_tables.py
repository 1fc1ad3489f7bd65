"""Answers as tables: formats, files, columns, queries, several traces."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from tests.corpus.files import corpus_path

from fusetui.command_line.arguments import AS_TABLE, FORMATS, TRACE
from fusetui.command_line.registry import COMMANDS
from fusetui.tables import files
from fusetui.tables.sources import TABLES, columns_of

Run = Callable[..., Any]
LESSON, OTHER = "lesson:mlp-eager", "lesson:mlp-compiled"
NAMES = [
    one.name
    for one in COMMANDS
    if not callable(one.arguments)
    and TRACE in one.arguments
    and any(a.name == "--where" for a in one.arguments)
]


def rows(found: Any) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(found.out))]


def test_every_command_with_rows_is_a_table() -> None:
    # what `compile` takes may be a log, so that it has an argument of its own
    assert {*NAMES} == {*TABLES} - {"collectives", "findings", "compile"}
    assert ("table", *sorted(files.FORMATS, key=FORMATS.index)) == FORMATS
    assert {name.removeprefix("--") for name in ("others", *OPTIONS)} == {*AS_TABLE}


OPTIONS = ("--format", "--output", "--columns", "--sort", "--where")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["csv", "tsv", "json", "markdown"])
def test_table_formats_print_all_columns(fusetui: Run, name: str, form: str) -> None:
    found = fusetui(name, LESSON, "--format", form)
    assert found.code == 0
    columns = [one.name for one in columns_of(name)]
    heads = {"csv": ",".join(columns), "tsv": "\t".join(columns), "json": "[{"}
    heads["markdown"] = f"| {' | '.join(columns)} |".replace("_", "\\_")
    assert found.out.startswith(heads[form])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ending", files.ENDINGS)
def test_table_is_written_to_a_file_of_every_ending(
    fusetui: Run, tmp_path: Path, name: str, ending: str
) -> None:
    path = tmp_path / f"out{ending}"
    found = fusetui(name, LESSON, "--output", path)
    assert found.code == 0
    printed = fusetui(name, LESSON, "--format", "json").json
    assert found.out.startswith(f"{path}: {len(printed)} row")
    if ending == ".parquet":
        assert pyarrow.parquet.read_table(path).to_pylist() == printed
    else:
        form = files.ENDINGS[ending]
        assert path.read_text("utf-8") == fusetui(name, LESSON, "--format", form).out


def test_a_file_that_is_there(fusetui: Run, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("mine")
    found = fusetui("kernels", LESSON, "--output", path)
    assert found.code == 2
    assert found.sentence == f"{path} already exists: choose another name, or move it."
    assert path.read_text() == "mine"


def test_the_figures_are_those_of_the_answer(fusetui: Run) -> None:
    answer = fusetui("kernels", LESSON, "--json").json["kernels"]
    table = fusetui("kernels", LESSON, "--format", "json").json
    assert [row["total_ns"] for row in table] == [row["total_ns"] for row in answer]
    assert [row["kernel_op"] for row in table] == [
        row["decoded"].get("op") for row in answer
    ]


def test_where_sort_top_and_columns_apply_together(fusetui: Run) -> None:
    asked = ("--where", "family = gemm and dur > 50us", "--sort", "count", "--top", 1)
    found = fusetui(
        "kernels", LESSON, *asked, "--columns", "short,count", "--format", "csv"
    )
    assert found.out == "short,count\ngemm bf16 128x128x32 tn sm80 s5,6\n"


def test_table_format_shows_few_rows_and_says_how_many_more(fusetui: Run) -> None:
    found = fusetui(
        "kernels", LESSON, "--sort", "count", "--columns", "count,short", "--top", 2
    )
    lines = found.out.splitlines()
    assert lines[0] == "count  short"
    assert lines[3] == "... and 2 more rows (--top 0 shows all)"
    assert "! Reconstructed" in found.out
    assert max(map(len, lines)) <= 80


def test_table_in_a_pipe_cuts_no_name(
    fusetui: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    names = [
        row["name"] for row in fusetui("kernels", LESSON, "--json").json["kernels"]
    ]
    out = fusetui("kernels", LESSON, "--format", "table").out
    assert all(name in out for name in names)


def test_tables_of_several_traces_have_a_file_column(fusetui: Run) -> None:
    both = rows(fusetui("steps", LESSON, "--format", "csv", OTHER))
    assert [row["file"] for row in both] == [LESSON] * 3 + [OTHER] * 3
    alone = rows(fusetui("steps", OTHER, "--format", "csv"))
    assert [row["dur_ns"] for row in both[3:]] == [row["dur_ns"] for row in alone]
    assert "file" not in alone[0]


def test_several_traces_need_no_format(fusetui: Run) -> None:
    assert fusetui("kernels", LESSON, OTHER).out.count("lesson:mlp-eager") == 4


def test_the_options_of_a_command_are_kept(fusetui: Run) -> None:
    by_op = rows(fusetui("kernels", LESSON, "--by", "op", "--format", "csv"))
    assert {*by_op[0]} >= {"op", "total_ns"}
    assert "name" not in by_op[0]
    peaks = ("--peak", "bf16=1e15", "--peak", "bandwidth=1e12")
    shares = (
        rows(fusetui("kernels", LESSON, "--format", "csv", *more))[0]["share_of_peak"]
        for more in ((), peaks)
    )
    assert len({*shares}) == 2
    whole, part = (
        rows(fusetui("gaps", LESSON, "--format", "csv", *more))
        for more in ((), ("--step", 3))
    )
    assert 0 < len(part) < len(whole)


def test_table_without_rows_says_why(fusetui: Run) -> None:
    found = fusetui(
        "lines", "sample:mlp-eager", "--file", "nowhere.py", "--format", "csv"
    )
    assert found.code == 0
    assert found.sentence == "This trace has no Python frames in nowhere.py."
    by_line = fusetui("lines", "sample:mlp-eager", "--by", "line", "--format", "json")
    assert by_line.sentence.startswith("The calling lines were not recorded")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            ("--format", "parquet"),
            ("Parquet cannot be printed: write it to a file with --output."),
        ),
        (("--json", "--format", "csv"), "Use --format json for a table"),
        (
            ("--sort", "totl_ns"),
            "kernels has no column totl_ns: did you mean total_ns?",
        ),
        (("--columns", "a"), "kernels has no column a"),
        (
            ("--columns", "file"),
            "kernels has no column file: only rows of several traces have",
        ),
        (("--where", "dur > x"), "--where: dur needs a number: dur > 50us."),
        (("--where", "nothing = 1"), "kernels has no column nothing"),
        (("--format", "xlsx"), "fusetui kernels: --format takes table, json"),
        (
            ("--output", "out.csv.gz"),
            "Unknown format of out.csv.gz: its name must end in .csv, ",
        ),
        (("--output", "out.xlsx/x.csv"), "out.xlsx/x.csv cannot be written"),
    ],
)
def test_wrong_table_options_are_one_sentence(
    fusetui: Run, asked: tuple[str, ...], sentence: str
) -> None:
    found = fusetui("kernels", LESSON, *asked)
    assert found.code == 2
    assert found.sentence.startswith(sentence)
    assert found.out == ""


def test_a_trace_that_cannot_be_read(fusetui: Run, tmp_path: Path) -> None:
    found = fusetui("kernels", LESSON, "nowhere.json", "--output", tmp_path / "out.csv")
    assert found.code == 2
    assert found.sentence.startswith("nowhere.json cannot be opened")
    assert [*tmp_path.iterdir()] == []


def test_a_trace_that_is_cut_short(fusetui: Run, write: Callable[..., Path]) -> None:
    whole = '{"traceEvents": [{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1},'
    found = fusetui("slices", write(whole), "--format", "csv")
    assert len(rows(found)) == 1
    assert "ends early" in found.err


SHELL = pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")


def in_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = line.replace("fusetui", f"{sys.executable} -P -m fusetui")
    run = ["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"]
    surroundings = {**os.environ, "FUSETUI_CACHE": "off"}
    return subprocess.run(
        run, cwd=folder, env=surroundings, capture_output=True, text=True
    )


@pytest.fixture
def large(write: Callable[..., Path]) -> Path:
    """A trace whose table does not fit into a pipe."""
    events = (
        {"ph": "X", "name": f"op{n}", "ts": n, "dur": 1, "pid": 1, "tid": 1}
        for n in range(20_000)
    )
    return write(json.dumps({"traceEvents": [*events]}))


@SHELL
@pytest.mark.parametrize("form", ["table", "csv", "tsv", "json", "markdown"])
def test_a_pipe_that_is_closed(large: Path, form: str) -> None:
    found = in_shell(
        f"fusetui slices {large} --top 0 --format {form} | head -1", large.parent
    )
    assert found.returncode == 141
    assert "Traceback" not in found.stderr


@SHELL
@pytest.mark.parametrize("ending", files.ENDINGS)
def test_a_file_that_may_not_grow(large: Path, ending: str) -> None:
    out = f"out{ending}"
    found = in_shell(
        f"ulimit -f 8; fusetui slices {large} --output {out}", large.parent
    )
    assert found.returncode == 2, found.stderr
    assert found.stderr == f"{out} cannot be written: file too large.\n"
    assert [*large.parent.iterdir()] == [large]


@SHELL
def test_standard_output_that_may_not_grow(large: Path) -> None:
    found = in_shell(
        f"ulimit -f 8; fusetui slices {large} --format csv > out.csv", large.parent
    )
    assert found.returncode == 2
    assert found.stderr == "Standard output cannot be written: File too large.\n"


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_a_trace_have_rows(fusetui: Run, name: str) -> None:
    path = corpus_path("training")
    assert len(rows(fusetui(name, path, "--format", "csv"))) > 0


@pytest.mark.parametrize("option", ["--output=x.csv", "--format=csv", "--columns=name"])
@pytest.mark.parametrize("command", ["steps", "slices"])
def test_options_of_tables_are_refused_beside_json(
    fusetui: Run, command: str, option: str
) -> None:
    outcome = fusetui(command, "lesson:mlp-eager", "--json", option)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--json prints the whole answer" in outcome.sentence
