"""Dataframes hold the figures that `--json` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow
import pytest
from tests.corpus.files import corpus_path
from tests.corpus.fixtures import any_of

import fusetui as ft

Run = Callable[..., Any]
NAMES = ("training", "job/rank0", "sample-mlp-eager", "annotated-graph")
any_trace = any_of(*NAMES)
SUMS = {
    "kernels": ("total_ns", "count", "max_ns", "effective_ns", "flop_ns"),
    "ops": ("total_ns", "count", "self_ns", "gpu_ns", "kernels"),
    "modules": ("gpu_ns", "gpu_self_ns", "cpu_ns", "kernels"),
    "lines": ("gpu_self_ns", "cpu_ns", "count"),
    "gaps": ("dur_ns", "start_ns"),
    "findings": ("at_stake_ns",),
    "steps": ("dur_ns", "kernels", "gpu_busy_ns"),
}
MAX_ROWS = 2_000
KEYS = {"lines": "functions"}
COMMANDS = {"findings": ("why",), "gaps": ("gaps", "--all"), "steps": ("summary",)}


def of_pandas(table: ft.Table, name: str) -> float:
    return float(table.to_pandas()[name].sum())


def of_polars(table: ft.Table, name: str) -> float:
    return float(polars.DataFrame(table)[name].sum())


def of_arrow(table: ft.Table, name: str) -> float:
    values: list[float | None] = pyarrow.table(table)[name].to_pylist()
    return sum(filter(None, values))


def sql(query: str, held: ft.Table) -> list[tuple[Any, ...]]:
    """DuckDB finds the table by the name of the variable."""
    found: list[tuple[Any, ...]] = duckdb.sql(query).fetchall()
    return found


def of_duckdb(table: ft.Table, name: str) -> float:
    ((found,),) = sql(f"select sum({name}) from held", table)
    return found or 0


def of_numpy(table: ft.Table, name: str) -> float:
    return float(np.ma.filled(table[name], 0).sum())


@cache
def opened(path: Path) -> ft.OpenTrace:
    return ft.open(path)


@pytest.fixture
def trace(any_trace: Path) -> tuple[Path, ft.OpenTrace]:
    return any_trace, opened(any_trace)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_every_dataframe_are_those_of_json(
    fusetui: Run, trace: tuple[Path, ft.OpenTrace], name: str
) -> None:
    path, held = trace
    command, *more = COMMANDS.get(name, (name,))
    rows = fusetui(command, path, "--json", *more).json[KEYS.get(name, name)]
    table = getattr(held, name)
    assert len(table) == len(rows)
    for column in SUMS[name]:
        wanted = sum(row[column] or 0 for row in rows)
        for ask in (of_pandas, of_polars, of_arrow, of_duckdb, of_numpy):
            assert ask(table, column) == wanted, (ask, column)


def test_every_value_of_a_table_arrives_in_every_dataframe(
    trace: tuple[Path, ft.OpenTrace],
) -> None:
    """Of each table, in each dataframe; None where there is none. Of long tables the
    first rows, as dicts of Python are slow."""
    for name in (*SUMS, "launches", "collectives", "slices"):
        table = getattr(trace[1], name)[:MAX_ROWS]
        rows = [*table]
        assert pyarrow.table(table).to_pylist() == rows
        assert polars.DataFrame(table).to_dicts() == rows
        assert sql("from held", table) == [tuple(row.values()) for row in rows]
        frame = table.to_pandas()
        held = frame.astype(object).where(frame.notna(), None).to_dict("records")
        assert held == rows


def test_slices_add_up_to_the_summary(
    fusetui: Run, trace: tuple[Path, ft.OpenTrace]
) -> None:
    path, held = trace
    summary = fusetui("summary", path, "--json").json
    gpu = held.slices.where("/^(kernel|memcpy|memset)$/")
    kinds = np.isin(held.slices["kind"], ["kernel", "memcpy", "memset"])
    assert len(held.slices) == summary["slices"]
    assert int(held.slices["dur_ns"][kinds].sum()) == summary["gpu_sum_ns"]
    assert len(gpu) >= int(kinds.sum()) == summary["gpu_events"]


def types_are_the_same(paths: Sequence[Path]) -> None:
    for name in SUMS:
        for types in (
            lambda table: pyarrow.table(table).schema,
            lambda table: polars.DataFrame(table).schema,
            lambda table: [*map(str, table.to_pandas().dtypes)],
            lambda table: sql("describe from held", table),
        ):
            found = [types(getattr(opened(path), name)) for path in paths]
            assert all(one == found[0] for one in found), name


def test_types_are_the_same_for_every_trace() -> None:
    types_are_the_same([corpus_path(name) for name in NAMES])


def test_numbers_are_not_copied() -> None:
    table = opened(corpus_path("training")).slices
    assert table["dur_ns"] is table.column("dur_ns").values
    assert np.shares_memory(table.to_pandas()["dur_ns"].to_numpy(), table["dur_ns"])
    assert np.shares_memory(
        pyarrow.table(table)["dur_ns"].chunk(0).to_numpy(), table["dur_ns"]
    )
