"""Repeats an export of Nsight Systems in time, so that it has about as many rows as
wanted.

    python -P benchmarks/generate_nsys.py h100_2gpu_1s.sqlite big.sqlite --rows 1000000

Each copy begins where the one before ended, with correlation ids of its own.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

TIME_COLUMNS = ("start", "end", "rawTimestamp")
ID_COLUMN = "correlationId"
EVENT_TABLES = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "PROFILER_OVERHEAD")
"""What the names of tables with events begin with."""


def generate(export: Path, out: Path, rows: int) -> int:
    """Write a database with about `rows` rows of events, made by repeating `export`.
    Returns the number of rows of events in it."""
    shutil.copyfile(export, out)
    out.chmod(0o600)

    with closing(sqlite3.connect(out)) as db:
        tables = _find_event_tables(db)
        count = 0

        last_end = 0
        last_id = 0
        for name, columns in tables.items():
            count += _query_number(db, f'select count(*) from "{name}"')
            if "end" in columns:
                last_end = max(
                    last_end, _query_number(db, f'select max("end") from "{name}"')
                )
            if ID_COLUMN in columns:
                last_id = max(
                    last_id, _query_number(db, f'select max({ID_COLUMN}) from "{name}"')
                )

        copies = max(1, round(rows / count))
        growth_by_column = {
            **dict.fromkeys(TIME_COLUMNS, last_end),
            ID_COLUMN: last_id + 1,
        }
        if copies > 1:
            for name, columns in tables.items():
                _repeat_rows(db, name, columns, growth_by_column, copies)

        db.commit()

    return count * copies


def _find_event_tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of each table with events, by its name."""
    tables = {}
    query = "select name from sqlite_master where type = 'table'"
    for (name,) in db.execute(query).fetchall():
        if name.startswith(EVENT_TABLES):
            info = db.execute(f'pragma table_info("{name}")')
            tables[name] = [column[1] for column in info]
    return tables


def _repeat_rows(
    db: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    grows: Mapping[str, int],
    copies: int,
) -> None:
    """Add rows until a table has all its rows `copies` times. Copy n adds to a column n
    times what `grows` has for it."""
    values = []
    for column in columns:
        value = f'"{column}"'
        if column in grows:
            value += f" + {grows[column]} * copies.number_of_copy"
        values.append(value)

    db.execute(
        "with recursive copies(number_of_copy) as (select 1 union all "
        "select number_of_copy + 1 from copies where number_of_copy < ?) "
        f'insert into "{table}" select {", ".join(values)} from "{table}", copies',
        (copies - 1,),
    )


def _query_number(db: sqlite3.Connection, query: str) -> int:
    """Return the only value of a query; 0 for null."""
    (value,) = db.execute(query).fetchone()
    return int(value or 0)


def main() -> None:
    """Write the larger export that the command line asks for, and print its number of
    rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    print(f"{generate(args.export, args.out, args.rows):,} rows")


if __name__ == "__main__":
    main()
