"""The kind of inputs that are exports of Nsight Systems: odd values in any column,
tables that are missing, views and triggers in their place, damaged pages."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from fuzz.campaign import Kind
from fuzz.checks import WrongError, check, check_trace
from fuzz.commands import answer
from fuzz.damage import cut
from fuzz.examine import Limited
from fuzz.limits import check_memory, limited
from fuzz.zip import opened
from tests.hostile import PAYLOADS
from tests.trace.nsys.export import COLUMNS, call, kernel, process, span, thread, write

from fusetui.trace import Trace
from fusetui.trace.read.times import LIMIT_NS

HOSTILE = [text.encode("utf-8", "replace").decode() for text in PAYLOADS.values()]
COMMANDS = ("summary", "why", "kernels", "ops", "gaps", "launches", "modules", "ranks")
TIMED = {
    **{table: ("start", "end") for table in COLUMNS if "start end" in COLUMNS[table]},
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": ("timestamp", "timestamp"),
    "GPU_METRICS": ("timestamp", "timestamp", "value", "typeId", "metricId"),
}
METRICS = "GPU_METRICS"
UNREAD = ("OSRT_API",)
RANGE = 59  # the eventType of a range with a start and an end
MARK = 34  # that of a mark, a range of no length
NAMES_A_DOMAIN = 75  # the eventType of a row that is no event
NAMES = (
    "aten::mm, seq = 3, op_id = 12, sizes = [[2, 3], [3]]",
    "aten::add_, op_id = 9",
    "step",
)
ODD = (
    None,
    -1,
    0,
    1,
    2**31,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
    1.5,
    1e308,
    "",
    "abc",
    "7",
    b"\xff",
)
SHAPES = "aten::x, op_id = 7, sizes = " + "[" * 3000


def export(seed: int, number: int) -> tuple[bytes, bool]:
    """Always the same for the same numbers; and whether its pages are whole."""
    rnd = Random(f"nsys {seed}/{number}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        write(path, _strings(rnd), **_tables(rnd))
        with closing(sqlite3.connect(path)) as db:
            db.text_factory = bytes
            for _ in range(rnd.choice((0, 1, 1, 2, 4))):
                with suppress(sqlite3.Error):
                    rnd.choice(CHANGES)(db, rnd)
            db.commit()
            with suppress(sqlite3.Error):
                db.execute("vacuum")
        data = path.read_bytes()
    if rnd.random() < 0.5:
        return data, True
    return rnd.choice(DAMAGE)(data, rnd), False


def _strings(rnd: Random) -> dict[int, str]:
    texts = [
        "gemm",
        "cudaLaunchKernel_v7000",
        "cudaGraphLaunch_v10000",
        "python3",
        *HOSTILE,
    ]
    return {n: rnd.choice(texts) for n in range(1, rnd.choice((2, 6)))}


def _tables(rnd: Random) -> dict[str, list[dict[str, Any]]]:
    """Rows of an export, by table, one in ten of which is missing: calls, and what each
    did on the GPU."""
    count = rnd.choice((0, 1, 5, 40))
    starts = [rnd.randrange(100_000) for _ in range(count)]
    pids = [rnd.choice((7, 8)) for _ in starts]
    # number, start and pid of each
    calls = list(zip(range(1, count + 1), starts, pids, strict=True))
    tables: dict[str, list[dict[str, Any]]] = {
        "KERNEL": [
            kernel(start + 50, start + 90, number, pid, deviceId=pid - 7)
            for number, start, pid in calls
        ],
        "RUNTIME": [
            call(start, start + 20, number, pid) for number, start, pid in calls
        ],
        "NVTX_EVENTS": [
            span(start - 5, start + 30, rnd.choice(NAMES), pid)
            for _, start, pid in calls
        ],
        "MEMCPY": [
            kernel(start, start + 9, number, pid, bytes=4, copyKind=1, srcKind=0)
            for number, start, pid in calls[:3]
        ],
        "MEMSET": [
            kernel(start, start + 9, number, pid, memKind=2)
            for number, start, pid in calls[:3]
        ],
        "SYNCHRONIZATION": [
            kernel(start, start + 9, number, pid, syncType=3)
            for number, start, pid in calls[:3]
        ],
        "GRAPH_TRACE": [
            kernel(start, start + 9, number, pid, graphId=3)
            for number, start, pid in calls[:2]
        ],
        "CUDA_EVENT": [
            kernel(0, 0, number, pid, timestamp=start, eventId=number)
            for number, start, pid in calls[:2]
        ],
        "OSRT_API": [
            call(start, start + 9, number, pid) for number, start, pid in calls[:5]
        ],
        "GPU_METRICS": [
            {"timestamp": start, "typeId": 1 << 56, "metricId": 1, "value": 0.5}
            for _, start, _ in calls
        ],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100", "smCount": 132}],
        "ThreadNames": [{"nameId": 4, "globalTid": thread(7, 7)}],
        "PROCESSES": [{"globalPid": process(7), "pid": 7, "name": "python3"}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18}],
        "ANALYSIS_DETAILS": [{"startTime": -9, "stopTime": 10**6}],
    }
    tables["NVTX_EVENTS"] += _domains(rnd)
    return {name: rows for name, rows in tables.items() if rnd.random() < 0.9}


def _domains(rnd: Random) -> list[dict[str, Any]]:
    """Several processes name domains, which each of them numbers from 1 on, and use
    them."""
    rows = []
    for pid in (7, 8, 9)[: rnd.choice((0, 0, 2, 3))]:
        for number in range(1, rnd.choice((2, 3))):
            name = rnd.choice(("NCCL", "own", *HOSTILE))
            rows.append(
                span(0, 0, name, pid, eventType=NAMES_A_DOMAIN, domainId=number)
            )
            rows.append(
                span(number, number + 9, rnd.choice(NAMES), pid, domainId=number)
            )
    return rows


def _table(db: sqlite3.Connection, rnd: Random) -> str:
    found = db.execute(
        "select name from sqlite_master where type = 'table' order by name"
    )
    names: list[str] = [name.decode() for (name,) in found]
    return rnd.choice(names)


def _column(db: sqlite3.Connection, table: str, rnd: Random) -> str:
    rows = db.execute(f'pragma table_info("{table}")')
    names: list[str] = [row[1].decode() for row in rows]
    return rnd.choice(names)


def _odd_values(db: sqlite3.Connection, rnd: Random) -> None:
    table = _table(db, rnd)
    for _ in range(rnd.choice((1, 5))):
        column, value = _column(db, table, rnd), rnd.choice((*ODD, *HOSTILE))
        rows = rnd.choice(("", " where rowid % 3 = 0"))
        with suppress(sqlite3.Error):
            db.execute(f'update "{table}" set "{column}" = ?{rows}', (value,))


def _odd_text(db: sqlite3.Connection, rnd: Random) -> None:
    text = rnd.choice(
        (SHAPES, "x" * 1_000_000, "a, op_id = ", ", op_id = 5", "a, seq = 1, op_id = x")
    )
    db.execute("update NVTX_EVENTS set text = ? where rowid % 2 = 0", (text,))
    db.execute(
        "update NVTX_EVENTS set jsonText = ?",
        (rnd.choice(('{"Peer rank": 1}', "[", "1e999")),),
    )


def _no_table(db: sqlite3.Connection, rnd: Random) -> None:
    db.execute(f'drop table "{_table(db, rnd)}"')


def _no_column(db: sqlite3.Connection, rnd: Random) -> None:
    table = _table(db, rnd)
    db.execute(f'alter table "{table}" drop column "{_column(db, table, rnd)}"')


def _a_view(db: sqlite3.Connection, rnd: Random) -> None:
    """That would never end."""
    table = _table(db, rnd)
    db.execute(f'drop table "{table}"')
    db.execute(
        f'create view "{table}" as with recursive n(start) as (select 1 union all select start + 1 '
        'from n) select start, start as "end", 0 as deviceId, 0 as value, 0 as id from n'
    )


def _a_trigger(db: sqlite3.Connection, rnd: Random) -> None:
    table = _table(db, rnd)
    db.execute(
        f'create trigger t after insert on "{table}" begin delete from "{table}"; end'
    )


def _a_computed_column(db: sqlite3.Connection, rnd: Random) -> None:
    table = _table(db, rnd)
    db.execute(
        f'alter table "{table}" add column greenContextId as (length(zeroblob(900000000)))'
    )


def _without_rowids(db: sqlite3.Connection, rnd: Random) -> None:
    table = _table(db, rnd)
    columns = [row[1].decode() for row in db.execute(f'pragma table_info("{table}")')]
    listed = ", ".join(f'"{c}"' for c in columns)
    db.execute(f'alter table "{table}" rename to old')
    db.execute(
        f'create table "{table}" ({listed}, primary key ("{columns[0]}")) without rowid'
    )
    db.execute(f'insert or ignore into "{table}" select * from old')
    db.execute("drop table old")


def _far_rowids(db: sqlite3.Connection, rnd: Random) -> None:
    table = _table(db, rnd)
    far = rnd.choice((2**40, 2**62, -(2**62)))
    db.execute(f'update "{table}" set rowid = rowid + {far} where rowid % 2 = 0')


def _no_strings(db: sqlite3.Connection, rnd: Random) -> None:
    db.execute("delete from StringIds where id % 2 = 0")


Change = Callable[[sqlite3.Connection, Random], None]
CHANGES: tuple[Change, ...] = (
    *(
        _odd_values,
        _odd_values,
        _odd_values,
        _odd_text,
        _no_table,
        _no_column,
        _a_view,
        _a_trigger,
    ),
    *(_a_computed_column, _without_rowids, _far_rowids, _no_strings),
)


def _flipped(data: bytes, rnd: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rnd.choice((1, 1, 3, 30))):
        found[rnd.randrange(rnd.choice((100, len(found))))] ^= 1 << rnd.randrange(8)
    return bytes(found)


def _pages(data: bytes, rnd: Random) -> bytes:
    """One page in the place of another."""
    size = 4096
    at, other = (rnd.randrange(len(data) // size) * size for _ in range(2))
    return data[:at] + data[other : other + size] + data[at + size :]


def _zeros(data: bytes, rnd: Random) -> bytes:
    at = rnd.randrange(len(data))
    size = min(rnd.choice((10, 4096, 20_000)), len(data) - at)
    return data[:at] + bytes(size) + data[at + size :]


DAMAGE = (_flipped, _flipped, _flipped, _pages, _pages, _zeros, cut)


def examine_export(data: bytes, whole: bool, rnd: Random, limited: Limited) -> str:
    """What became of it: `exactly`, `damaged`, or `refused`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sqlite"
        path.write_bytes(data)
        with limited("open"):
            found = opened(path)
        with limited("a command"):
            answer([rnd.choice(COMMANDS), str(path), *rnd.choice(([], ["--json"]))])
        check_memory()
        if isinstance(found, str):
            check(
                not whole or not expected_rows(path).total,
                "refused what could be read",
                found,
            )
            return "refused"
        check_trace(found)
        with limited("open again"):
            check_again(found, path)
        with limited("text"):
            check_text(found, whole)
        if not whole:
            return "damaged"
        check_rows(found, path)
        return "exactly"


def check_again(trace: Trace, path: Path) -> None:
    """A second look at damaged pages finds the same events and losses as the first."""
    again = opened(path)
    if isinstance(again, str):
        raise WrongError("read once, then refused", again)
    one, other = trace.report, again.report
    check(
        len(trace) == len(again), "slices of a second reading", (len(trace), len(again))
    )
    check(
        one.phases == other.phases,
        "phases of a second reading",
        (one.phases, other.phases),
    )
    check(one.unreadable == other.unreadable, "losses of a second reading")
    check(one.remarks == other.remarks, "remarks of a second reading")


def check_rows(trace: Trace, path: Path) -> None:
    """Every row is an event, or counted as unreadable or left out."""
    expected = expected_rows(path)
    report = trace.report
    found = RowCounts(
        readable=len(trace) + report.phases["C"],
        unreadable=report.unreadable,
        left_out=sum(report.left_out.values()),
    )
    same = found == expected or not report.complete
    check(same, "rows", (found, expected, report.remarks))


@dataclass
class RowCounts:
    """How many rows are events, how many should be, and how many have no place."""

    readable: int = 0
    unreadable: int = 0
    left_out: int = 0

    @property
    def total(self) -> int:
        return self.readable + self.unreadable + self.left_out


def expected_rows(path: Path) -> RowCounts:
    """The rows of all tables, as plain SQL finds them."""
    counts = RowCounts()
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        tables = db.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall()
        for (name,) in tables:
            _count_rows(db, name.decode(), counts)
    return counts


def _count_rows(db: sqlite3.Connection, table: str, counts: RowCounts) -> None:
    """Adds the rows of a table."""
    info = db.execute(f'pragma table_info("{table}")')
    columns = {row[1].decode() for row in info}
    needed = TIMED.get(table)
    lacks_columns = needed is not None and not set(needed) <= columns
    if table in UNREAD or lacks_columns:
        if columns & {"start", "timestamp"}:
            rows = db.execute(f'select 1 from "{table}"').fetchall()
            counts.left_out += len(rows)
    elif needed is not None:
        has_kinds = table == "NVTX_EVENTS" and "eventType" in columns
        kind = "eventType" if has_kinds else str(RANGE)
        value = "value" if table == METRICS else "0"
        begin, end, *_ = needed
        rows = db.execute(
            f'select "{begin}", "{end}", {kind}, {value} from "{table}"'
        ).fetchall()
        _count_events(table, rows, counts)


def _count_events(
    table: str, rows: list[tuple[Any, Any, Any, Any]], counts: RowCounts
) -> None:
    """Adds rows of (begin, end, kind, value) of a table of events."""
    for begin, end, kind, value in rows:
        if kind == NAMES_A_DOMAIN:
            continue
        if kind not in (RANGE, MARK):
            counts.left_out += 1
        elif _fits(begin) and (_fits(end) or _open(table, end)) and _is_number(value):
            counts.readable += 1
        else:
            counts.unreadable += 1


def _fits(value: object) -> bool:
    return type(value) is int and abs(value) <= LIMIT_NS


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e300


def _open(table: str, end: object) -> bool:
    return table == "NVTX_EVENTS" and end is None


def check_text(trace: Trace, whole: bool) -> None:
    """The text of every stretch is JSON with as many elements as the stretch has."""
    events = trace.elements
    for one in events.stretches:
        text = bytes(events.text.part(one.start, one.end))
        listed = msgspec.json.decode(b"[" + text + b"]")
        damaged = not whole or not trace.report.complete
        check(
            len(listed) == one.events or damaged, "elements", (len(listed), one.events)
        )


def attempt(seed: int, number: int) -> str:
    data, whole = export(seed, number)
    return examine_export(data, whole, Random(number), limited)


def save(seed: int, number: int, what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.sqlite")
    path.write_bytes(export(seed, number)[0])
    return path


KIND = Kind("nsys", attempt, save)
