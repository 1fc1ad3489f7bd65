"""A table has the same columns, of the same types, for every trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.corpus.fixtures import any_of

from fusetui.gpu.kernel_names import KernelName
from fusetui.tables.public import Table, table_of, with_files
from fusetui.tables.sources import BY, TABLES, TableRequest, columns_of, trace_table
from fusetui.tables.table import ColumnSpec, NoColumnError, column_of
from fusetui.trace import open_trace

Make = Callable[..., Any]

SPECS = (
    ColumnSpec("name", "text", "", first=True),
    ColumnSpec("dur_ns", "int", "", first=True),
    ColumnSpec("share", "float", "", optional=True),
    ColumnSpec("ok", "bool", "", optional=True),
)
ROWS = (
    {"name": "b", "dur_ns": 5, "share": 0.5, "ok": True},
    {"name": "a", "dur_ns": 7},
    {"name": "c", "dur_ns": 5, "share": 0.25, "ok": False, "other": 1},
)


def table(*rows: dict[str, Any]) -> Table:
    return table_of("rows", SPECS, rows or ROWS)


def types(found: Table) -> list[tuple[str, str, bool]]:
    return [(one.name, one.kind, one.known is not None) for one in found.columns]


def wanted(name: str, by: str = "name") -> list[tuple[str, str, bool]]:
    return [(one.name, one.kind, one.optional) for one in columns_of(name, by)]


@pytest.mark.parametrize("name", TABLES)
def test_table_of_one_op_has_all_columns_with_their_types(
    name: str, trace_of: Make, event: Make
) -> None:
    assert types(trace_table(name, trace_of([event()]))) == [
        (one.name, one.kind, one.optional) for one in columns_of(name)
    ]


any_trace = any_of(
    "training", "serving", "job/rank0", "lesson-mlp-eager", "sample-mlp-compiled"
)


def test_table_of_a_trace_has_all_columns_with_their_types(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    for name in TABLES:
        assert types(trace_table(name, trace)) == wanted(name), name


@pytest.mark.parametrize("by", BY)
def test_grouped_kernels_have_all_columns_with_their_types(
    by: str, trace_of: Make, event: Make
) -> None:
    found = trace_table("kernels", trace_of([event()]), TableRequest(by=by))
    assert types(found) == wanted("kernels", by)


def test_every_field_of_a_kernel_name_is_a_column() -> None:
    fields = {name.rstrip("_") for name in KernelName.__struct_fields__}
    of_name = {*columns_of("kernels")} - {*columns_of("kernels", "op")}
    columns = {"op" if one.name == "kernel_op" else one.name for one in of_name}
    assert columns == fields - {"parts"}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("by", ["name", "shape"])
def test_names_need_no_quotes_in_sql(name: str, by: str) -> None:
    for one in columns_of(name, by):
        duckdb.sql(
            f"select {one.name}, t.{one.name} from (select 1) t({one.name})"
        ).fetchall()


@pytest.mark.parametrize("name", TABLES)
def test_times_are_whole_nanoseconds(name: str) -> None:
    assert all(
        one.kind == "int" for one in columns_of(name) if one.name.endswith("_ns")
    )


def test_values_that_a_column_type_cannot_hold_are_missing() -> None:
    assert column_of(ColumnSpec("n", "int", ""), [1, 2**63, -(2**63)]).to_list() == [
        1,
        None,
        -(2**63),
    ]
    assert column_of(
        ColumnSpec("n", "float", ""), [1, 10**400, float("nan")]
    ).to_list() == [
        1,
        None,
        None,
    ]


def test_iteration_gives_rows_as_dicts_with_none_for_missing_values() -> None:
    assert [*table()][1] == {"name": "a", "dur_ns": 7, "share": None, "ok": None}
    assert len(table()) == 3


def test_columns_are_numpy_arrays_masked_where_values_are_missing() -> None:
    found = table()
    assert found["dur_ns"].tolist() == [5, 7, 5]
    assert found["dur_ns"].dtype == np.int64
    assert found["share"].sum() == 0.75
    assert found["name"].tolist() == ["b", "a", "c"]


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(
        NoColumnError, match="rows has no column dur_us: did you mean dur_ns"
    ):
        table().column("dur_us")


def test_column_is_found_without_its_unit() -> None:
    assert table().column("dur").name == "dur_ns"


@pytest.mark.parametrize(
    ("column", "names"),
    [("dur_ns", "abc"), ("name", "abc"), ("share", "bca"), ("ok", "bca")],
)
def test_sort_puts_largest_numbers_and_first_names_first(
    column: str, names: str
) -> None:
    assert "".join(table().sort(column)["name"]) == names


def test_sort_takes_the_other_direction() -> None:
    assert "".join(table().sort("dur_ns", descending=False)["name"]) == "bca"
    assert "".join(table().sort("name", descending=True)["name"]) == "cba"


def test_select_and_top_keep_columns_and_first_rows() -> None:
    assert [*table().select(["ok", "name"]).top(1)] == [{"ok": True, "name": "b"}]


def test_one_column_is_selected_by_its_name() -> None:
    assert table().select("name").names == ("name",)
    assert table().select("ok", "name").names == ("ok", "name")


def test_the_top_of_a_negative_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="not -1"):
        table().top(-1)


def test_rows_are_taken_by_number_and_slice() -> None:
    rows = [*table()]
    assert table()[0] == rows[0]
    assert table()[-1] == rows[-1]
    assert [*table()[:2]] == rows[:2]
    assert [*table()[::-1]] == rows[::-1]
    with pytest.raises(IndexError, match=r"rows has 3 rows, and none at 3\."):
        table()[len(rows)]
    with pytest.raises(TypeError, match="the number of a row or a slice, not float"):
        table()[1.5]  # type: ignore[call-overload]


def test_tables_of_several_files_have_a_file_column() -> None:
    file = ColumnSpec("file", "text", "", first=True)
    both = with_files([("x", table()), ("y", table(ROWS[0]))], file)
    assert both.names == ("file", "name", "dur_ns", "share", "ok")
    assert both["file"].tolist() == ["x", "x", "x", "y"]
    assert both["name"].tolist() == ["b", "a", "c", "b"]
    lines = table_of("lines", (file,), [{"file": "train.py"}])
    assert with_files([("x", lines)], file).names == ("file", "lines_file")
