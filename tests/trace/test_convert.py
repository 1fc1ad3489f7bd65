"""From any format to JSON: the same Trace, with the args of every slice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests import pftraces

from fusetui.trace import CannotReadError, NotATraceError, Trace, open_trace
from fusetui.trace.convert import convert_file
from fusetui.trace.model.raw import CONVERTED_FROM
from fusetui.trace.new_file import CannotWriteError
from fusetui.trace.scrub.document import ENDINGS

COLUMNS = (
    *("start", "dur", "role", "track", "parent", "end_row", "depth"),
    *("correlation", "external_id", "launch", "op", "order"),
)


def test_converted_trace_equals_the_original(any_trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    convert_file(str(any_trace), str(out))
    same(open_trace(str(any_trace), cached=False), open_trace(str(out), cached=False))
    json.loads(out.read_text(encoding="utf-8"))


def same(one: Trace, other: Trace) -> None:
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for row in range(len(one)):
        assert one.name_of(row) == other.name_of(row)
        assert one.category_of(row) == other.category_of(row)
        assert one.args_of(row) == other.args_of(row)
    assert one.tracks == other.tracks
    origin = other.keys.get(CONVERTED_FROM)
    assert (origin is None) == (one.report.format == "json")
    assert {**one.keys, CONVERTED_FROM: origin} == {
        **other.keys,
        CONVERTED_FROM: origin,
    }
    for name in ("phases", "writer", "cut_ends", "remarks"):
        assert getattr(one.report, name) == getattr(other.report, name), name


@pytest.mark.parametrize("ending", ENDINGS)
def test_ending_of_the_output_decides_its_packing(tmp_path: Path, ending: str) -> None:
    path, out = tmp_path / "a.pftrace", tmp_path / f"out{ending}"
    kernel = pftraces.stage(0, 5, 1, (20, 3))
    path.write_bytes(b"".join((*pftraces.head(), kernel)))
    convert_file(str(path), str(out))
    assert [*tmp_path.glob("out*")] == [out]
    same(open_trace(str(path), cached=False), open_trace(str(out), cached=False))


@pytest.mark.parametrize(
    "text",
    [
        '[{"ph":"X","name":"a","ts":1,"dur":2}',
        '{"b": 1e400, "traceEvents": [{"ph":"X","name":"a","ts":1.5,"dur":0.001,}], "c": [{}]}',
        '{"traceEvents": [{"ph":"X","name":"a\\q","ts":1,"dur":1},{"ph":"X","name":"b","ts":2}]}',
        '{"traceEvents": [{"ph":"B","name":"a","ts":1},{"ph":"E","ts":2},{"ph":"B","ts":3}]}',
    ],
)
def test_json_that_writers_damage_is_converted_to_valid_json(
    tmp_path: Path, text: str
) -> None:
    path, out = tmp_path / "a.json", tmp_path / "out.json"
    path.write_text(text)
    convert_file(str(path), str(out))
    json.loads(out.read_text())
    same(open_trace(str(path), cached=False), open_trace(str(out), cached=False))


def test_convert_leaves_out_events_that_cannot_be_read(tmp_path: Path) -> None:
    path, out = tmp_path / "a.json", tmp_path / "out.json"
    path.write_text(
        '{"traceEvents": [{"ph":"X","name":"a"}, {"ph" "X"}, {"ph":"X","name":"b"}]}'
    )
    assert convert_file(str(path), str(out)).report.unreadable == 1
    names = [event["name"] for event in json.loads(out.read_text())["traceEvents"]]
    assert names == ["a", "b"]


def test_a_file_that_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "a.json", tmp_path / "out.json"
    path.write_text('{"traceEvents": [{"ph":"X","name":"a"}]}')
    problem = "fusetui.trace.read.document_text.Filed.problem"
    monkeypatch.setattr(problem, lambda self: "a.json has changed since it was read")
    with pytest.raises(CannotReadError, match="changed"):
        convert_file(str(path), str(out))
    assert [*tmp_path.iterdir()] == [path]


def test_convert_of_a_trace_without_events_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(NotATraceError, match="no readable event"):
        convert_file(str(path), str(tmp_path / "out.json"))
    with pytest.raises(CannotWriteError, match="must end in"):
        convert_file(str(path), str(tmp_path / "out.pftrace"))
