"""Tables as text and as files: every row on one line, no name shortened, never half a
file."""

from __future__ import annotations

import csv
import io
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile import HIDDEN_CATEGORIES, PAYLOADS, WORST
from tests.room import room_for

from fusetui.tables.files import (
    ENDINGS,
    FORMATS,
    TEXTS,
    MissingPackageError,
    UnknownFormatError,
    save,
)
from fusetui.tables.public import Table, table_of
from fusetui.tables.table import ColumnSpec
from fusetui.text.printable import printable
from fusetui.trace.new_file import CannotWriteError

SPECS = (
    ColumnSpec("name", "text", "", first=True),
    ColumnSpec("op", "text", "", optional=True),
    ColumnSpec("dur_ns", "int", "", first=True),
    ColumnSpec("share", "float", "", optional=True),
    ColumnSpec("ok", "bool", ""),
)
LONG = "void gemm<" + "x" * 5000 + ">"
NAMES = [
    *PAYLOADS.values(),
    WORST,
    LONG,
    'a,b"c"',
    "a|b_*`[x](y)<b>&amp;@me",
    "\\t\t",
    "",
    " x ",
]


@pytest.fixture
def table() -> Table:
    rows = [
        {"name": name, "op": name or None, "dur_ns": number, "ok": number % 2 == 0}
        for number, name in enumerate(NAMES)
    ]
    return table_of("rows", SPECS, rows)


def text(table: Table, form: str) -> str:
    return "".join(TEXTS[form](table))


@pytest.mark.parametrize("form", TEXTS)
def test_text_formats_hold_no_hidden_characters(table: Table, form: str) -> None:
    found = text(table, form).replace("\n", "").replace("\t", "").replace("@\u200b", "")
    assert not {
        letter for letter in found if unicodedata.category(letter) in HIDDEN_CATEGORIES
    }
    found.encode()


@pytest.mark.parametrize(
    ("form", "heads"), [("csv", 1), ("tsv", 1), ("markdown", 2), ("json", 0)]
)
def test_each_row_of_a_written_table_is_one_line(
    table: Table, form: str, heads: int
) -> None:
    assert text(table, form).count("\n") == len(NAMES) + heads


def test_csv_is_read_back(table: Table) -> None:
    rows = [*csv.DictReader(io.StringIO(text(table, "csv")))]
    assert [row["name"] for row in rows] == [*map(printable, NAMES)]
    assert [*rows[2].values()][2:] == ["2", "", "true"]


@given(st.lists(st.text(max_size=8), max_size=5))
def test_any_name_is_read_back(names: list[str]) -> None:
    table = table_of("rows", SPECS[:1], [{"name": name} for name in names])
    rows = csv.reader(io.StringIO(text(table, "csv"), newline=""))
    assert [*rows] == [["name"], *([printable(name)] for name in names)]
    assert json.loads(text(table, "json")) == [*table]
    assert text(table, "tsv").count("\n") == text(table, "markdown").count("\n") - 1


def test_csv_tells_a_blank_from_nothing(table: Table) -> None:
    line = text(table, "csv").splitlines()[1 + NAMES.index("")]
    assert line.startswith('"",,')


def test_tsv_is_read_back(table: Table) -> None:
    rows = [line.split("\t") for line in text(table, "tsv").splitlines()]
    assert {len(row) for row in rows} == {len(SPECS)}
    assert rows[1 + NAMES.index("\\t\t")][0] == "\\\\t\\t"


def test_json_is_read_back(table: Table) -> None:
    assert json.loads(text(table, "json")) == [*table]
    assert text(table.top(0), "json") == "[]\n"


def test_markdown_has_no_markup_of_names(table: Table) -> None:
    (line,) = [line for line in text(table, "markdown").splitlines() if "a\\|b" in line]
    assert line.startswith("| a\\|b\\_\\*\\`\\[x\\](y)\\<b\\>&amp;amp;@\u200bme |")


def test_repr_and_html_of_a_table_are_printable_and_escaped(table: Table) -> None:
    assert printable(repr(table).replace("\n", "")) == repr(table).replace("\n", "")
    assert max(map(len, repr(table).splitlines())) <= 100
    assert "<b>" not in table._repr_html_()
    assert "&lt;b&gt;" in table.where('"a|b"')._repr_html_()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_is_new(table: Table, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    table.save(str(path))
    before = path.read_bytes()
    with pytest.raises(CannotWriteError, match="already exists"):
        table.top(1).save(str(path))
    assert path.read_bytes() == before
    table.top(1).save(str(path), replace=True)
    assert path.stat().st_size < len(before)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", [0, 200])
def test_full_disk_is_one_sentence_and_leaves_no_file(
    table: Table, tmp_path: Path, form: str, size: int
) -> None:
    with room_for(size), pytest.raises(CannotWriteError, match="file too large"):
        save(table, str(tmp_path / "out"), form)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_loses_no_file_that_was_there(
    table: Table, tmp_path: Path, form: str
) -> None:
    path = tmp_path / "out"
    path.write_text("mine")
    with room_for(200), pytest.raises(CannotWriteError):
        save(table, str(path), form, replace=True)
    assert path.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [path]


def test_where_nothing_can_be_written(table: Table, tmp_path: Path) -> None:
    with pytest.raises(CannotWriteError, match="no such folder"):
        table.save(str(tmp_path / "none" / "out.csv"))
    with pytest.raises(
        UnknownFormatError, match=r"its name must end in \.csv, \.tsv, "
    ):
        table.save(str(tmp_path / "out.xlsx"))


def test_parquet_holds_names_as_they_are(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    table.save(str(path))
    found = pyarrow.parquet.read_table(path).to_pylist()
    lone = NAMES.index(PAYLOADS["surrogate"]), NAMES.index(WORST)
    assert [row for n, row in enumerate(found) if n not in lone] == [
        row for n, row in enumerate(table) if n not in lone
    ]


WAYS: dict[str, Callable[[Table, Path], object]] = {
    "to_pandas() needs pandas: pip install 'pandas'.": lambda table, _: (
        table.to_pandas()
    ),
    "to_polars() needs polars: pip install 'polars'.": lambda table, _: (
        table.to_polars()
    ),
    "Parquet needs pyarrow: pip install 'fusetui[parquet]'.": lambda table, path: (
        table.save(str(path / "x.parquet"))
    ),
}


@pytest.mark.parametrize("sentence", WAYS)
def test_a_package_that_is_not_there(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, sentence.split()[2][:-1], None)
    with pytest.raises(MissingPackageError) as error:
        WAYS[sentence](table, tmp_path)
    assert str(error.value) == sentence
    assert [*tmp_path.iterdir()] == []
