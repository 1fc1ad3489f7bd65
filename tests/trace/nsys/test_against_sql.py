"""Exports of Nsight Systems: every figure is what SQL finds in the file, to the ns, and
what is shown of an event is what torch's JSON would say."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fusetui.analysis.questions.busy import measure_gpu_times
from fusetui.trace import Trace, open_trace
from fusetui.trace.formats import text_of
from fusetui.trace.model.categories import Layer, Role
from fusetui.trace.read.document import OpenFile
from fusetui.trace.read.source import state_of

KERNEL, MEMCPY, MEMSET, RUNTIME = (
    f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")
)
TABLES = {Role.KERNEL: KERNEL, Role.MEMCPY: MEMCPY, Role.MEMSET: MEMSET}


@pytest.fixture(scope="module")
def trace(any_export: Path) -> Trace:
    return open_trace(str(any_export), cached=False)


@pytest.fixture(scope="module")
def db(any_export: Path) -> Iterator[sqlite3.Connection]:
    with closing(
        sqlite3.connect(f"{any_export.as_uri()}?mode=ro&immutable=1", uri=True)
    ) as found:
        yield found


def test_kernels_of_exports_equal_sql_by_name_and_device(
    trace: Trace, db: sqlite3.Connection
) -> None:
    rows = trace.rows_of(Role.KERNEL)
    found = Counter[tuple[str, object]]()
    total = Counter[tuple[str, object]]()
    for row in rows.tolist():
        key = trace.name_of(row), trace.track_of(row).pid
        found[key] += 1
        total[key] += int(trace.dur[row])
    asked = (
        f"select value, deviceId, count(*), sum(end - start) from {KERNEL} "
        "join StringIds on id = demangledName group by 1, 2"
    )
    assert {(*key, n, total[key]) for key, n in found.items()} == set(db.execute(asked))


@pytest.mark.parametrize("role", TABLES, ids=lambda role: role.name)
def test_spans_of_gpu_work(trace: Trace, db: sqlite3.Connection, role: Role) -> None:
    rows = trace.rows_of(role)
    streams = [trace.track_of(row) for row in rows.tolist()]
    where = ((track.pid, track.tid) for track in streams)
    found = zip(
        trace.start[rows].tolist(), trace.end[rows].tolist(), where, strict=True
    )
    asked = f"select start, end, deviceId, streamId from {TABLES[role]}"
    assert Counter((s, e, *lane) for s, e, lane in found) == Counter(db.execute(asked))


def test_how_long_the_gpus_were_busy(trace: Trace, db: sqlite3.Connection) -> None:
    asked = " union all ".join(
        f"select deviceId d, start s, end e from {t}" for t in TABLES.values()
    )
    busy = sum(
        end - start
        for start, end in db.execute(
            f"""with work as ({asked}), reached as (select d, s, e, max(e) over
            (partition by d order by s, e rows between unbounded preceding and 1 preceding) as m
            from work) select max(s, ifnull(m, s)), max(e, ifnull(m, s)) from reached"""
        )
    )
    assert measure_gpu_times(trace).busy_ns == busy


def test_launches_are_joined_within_a_process(
    trace: Trace, db: sqlite3.Connection
) -> None:
    asked = " union all ".join(
        f"""select g.start, g.end, r.start, r.end from {table} g join {RUNTIME} r
        on r.correlationId = g.correlationId and r.globalTid >> 24 = g.globalPid >> 24"""
        for table in TABLES.values()
    )
    rows = trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0]
    calls = trace.launch[rows]
    found = zip(
        *(c.tolist() for c in (trace.start[rows], trace.end[rows])),
        *(c.tolist() for c in (trace.start[calls], trace.end[calls])),
        strict=True,
    )
    pairs = set(db.execute(asked))
    assert set(found) <= pairs
    assert {pair[:2] for pair in pairs} == set(
        zip(trace.start[rows].tolist(), trace.end[rows].tolist(), strict=True)
    )


def test_ranges_with_an_id_are_ops_or_annotations(
    trace: Trace, db: sqlite3.Connection
) -> None:
    asked = "select text from NVTX_EVENTS where text like '%, op_id = %'"
    told = Counter(
        text.split(", op_id = ")[0].split(", seq = ")[0]
        for (text,) in db.execute(asked)
    )
    rows = trace.rows_of(Role.OP, Role.ANNOTATION)
    found = Counter(
        trace.name_of(row) for row in rows[trace.external_id[rows] > 0].tolist()
    )
    assert found == told
    ops = {trace.name_of(row) for row in trace.rows_of(Role.OP).tolist()}
    notes = {trace.name_of(row) for row in trace.rows_of(Role.ANNOTATION).tolist()}
    assert "aten::copy_" in ops
    assert any(name.startswith("FSDP::pre_forward") for name in notes)
    assert not ops & notes


def test_synchronizations_are_on_the_device_of_their_context(trace: Trace) -> None:
    streams = {(t.pid, t.tid) for t in trace.tracks if t.layer is Layer.STREAM}
    waits = {t.pid for t in trace.tracks if t.layer is Layer.SYNC}
    assert waits == {device for device, _ in streams}


def test_the_session_has_a_time(trace: Trace, db: sqlite3.Connection) -> None:
    ((utc, clock),) = db.execute(
        "select utcEpochNs, systemClockNs from TARGET_INFO_SESSION_START_TIME"
    )
    assert trace.epoch_ns + clock == utc


def test_the_text_of_the_events_says_what_the_columns_say(
    trace: Trace, tmp_path: Path
) -> None:
    """Also in the order that the columns have, so that each slice has the args of its
    own row."""
    text = trace.elements.text
    parts = (text.part(one.start, one.end) for one in trace.elements.stretches)
    keys = json.dumps(trace.keys)[1:-1].encode()
    (tmp_path / "a.json").write_bytes(
        b'{%b,"traceEvents":[%b]}' % (keys, b",".join(part for part in parts if part))
    )
    other = open_trace(str(tmp_path / "a.json"), cached=False)
    for name in (
        "start",
        "dur",
        "role",
        "track",
        "correlation",
        "external_id",
        "launch",
        "op",
    ):
        np.testing.assert_array_equal(getattr(other, name), getattr(trace, name), name)
    np.testing.assert_array_equal(other.order, trace.order)
    assert other.report.phases == trace.report.phases
    assert [other.names[n] for n in other.name] == [trace.names[n] for n in trace.name]
    assert [other.category_of(n) for n in range(len(other))] == [
        trace.category_of(n) for n in range(len(trace))
    ]
    assert [(t.label, t.pid, t.tid) for t in other.tracks] == [
        (t.label, t.pid, t.tid) for t in trace.tracks
    ]


def test_the_text_of_a_trace_from_the_cache_is_the_same(
    trace: Trace, any_export: Path
) -> None:
    with any_export.open("rb") as file:
        opened, state = OpenFile(file.fileno()), state_of(file.fileno())
        text = text_of("nsys", str(any_export), opened, state)
        for one in trace.elements.stretches:
            assert text.part(one.start, one.end) == trace.elements.text.part(
                one.start, one.end
            )
