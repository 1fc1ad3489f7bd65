"""Repeats an export of Nsight Systems in time, so that it has as many rows as wanted.

    python -P benchmarks/generate_nsys.py h100_2gpu_1s.sqlite big.sqlite --rows 1000000

Each copy begins where the one before ended, with correlation ids of its own.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

TIMES = ("start", "end", "rawTimestamp")
EVENTS = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "PROFILER_OVERHEAD")


def generate(export: Path, out: Path, rows: int) -> int:
    """Writes the database; returns the number of rows of events in it."""
    shutil.copyfile(export, out)
    out.chmod(0o600)
    with closing(sqlite3.connect(out)) as db:
        names = [
            name
            for (name,) in db.execute(
                "select name from sqlite_master where type = 'table'"
            )
        ]
        tables = {name: _columns(db, name) for name in names if name.startswith(EVENTS)}
        count = sum(_one(db, f'select count(*) from "{name}"') for name in tables)
        span = max(
            _one(db, f'select max("end") from "{name}"')
            for name in _with(tables, "end")
        )
        ids = _with(tables, "correlationId")
        step = 1 + max(
            _one(db, f'select max(correlationId) from "{name}"') for name in ids
        )
        copies = max(1, round(rows / count))
        for name, columns in tables.items():
            shift = dict.fromkeys(TIMES, span) | {"correlationId": step}
            chosen = ", ".join(
                f'"{one}" + {shift[one]} * copies.number_of_copy'
                if one in shift
                else f'"{one}"'
                for one in columns
            )
            if copies > 1:
                db.execute(
                    "with recursive copies(number_of_copy) as (select 1 union all "
                    "select number_of_copy + 1 from copies where number_of_copy < ?) "
                    f'insert into "{name}" select {chosen} from "{name}", copies',
                    (copies - 1,),
                )
        db.commit()
    return count * copies


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f'pragma table_info("{table}")')]


def _with(tables: dict[str, list[str]], column: str) -> list[str]:
    return [name for name, columns in tables.items() if column in columns]


def _one(db: sqlite3.Connection, query: str) -> int:
    (found,) = db.execute(query).fetchone()
    return int(found or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("export", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    print(f"{generate(args.export, args.out, args.rows):,} rows")


if __name__ == "__main__":
    main()
