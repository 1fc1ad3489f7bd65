"""Where the list of events ends, and what is behind it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from fusetui.trace import Trace, open_trace
from fusetui.trace.read import damaged

Write = Callable[[str | bytes], Path]

EVENT = '{"ph":"X","name":"%s","ts":1}'


def opened(write: Write, text: str | bytes) -> Trace:
    return open_trace(str(write(text)), cached=False)


@pytest.mark.parametrize("stray", ["]", "]}", "],", ']"'])
def test_a_bracket_too_many_does_not_end_the_events(stray: str, write: Write) -> None:
    text = f'{{"traceEvents":[{EVENT % "a"}{stray},\n{EVENT % "b"},\n{EVENT % "c"}\n]}}'
    assert sorted(opened(write, text).names) == ["a", "b", "c"]


def test_a_second_list_of_events_counts_as_unread(write: Write) -> None:
    text = f'{{"traceEvents":[{EVENT % "a"}],"x":1,"traceEvents":[{EVENT % "b"}]}}'
    report = opened(write, text).report
    assert (report.events, report.unreadable) == (2, 1)
    assert report.skipped[0].reason == "a second list of events begins here"


def test_keys_behind_the_events_may_hold_what_json_does_not_know(write: Write) -> None:
    text = f'{{"traceEvents":[{EVENT % "a"}],"x":NaN,"traceName":"n"}}'
    assert opened(write, text).keys == {"x": "NaN", "traceName": "n"}


def test_events_behind_a_list_that_is_not_closed_are_read(write: Write) -> None:
    text = f'{{"traceEvents":[\n[[1],\n{EVENT % "a"},\n{EVENT % "b"},\n], "x'
    assert sorted(opened(write, text).names) == ["a", "b"]


def test_garbage_after_gzip_data_is_told_about_and_zeros_are_not(write: Write) -> None:
    packed = gzip.compress(f"[{EVENT % 'a'}]".encode(), mtime=0)
    report = opened(write, packed + b"garbage").report
    assert report.cut == f"other data follows the gzip data, at byte {len(packed)}"
    assert opened(write, packed + b"\0" * 700).report.cut is None


def test_any_number_of_brackets_too_many_is_one_place_of_damage(write: Write) -> None:
    text = f'{{"traceEvents":[{EVENT % "a"}{"]" * 9000},\n{EVENT % "b"}\n]}}'
    assert sorted(opened(write, text).names) == ["a", "b"]


def test_damage_that_leaves_no_slice_is_told_about(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged, "patience_for", lambda _: (1, 0))
    event = '{"ph":"X","name":"a"b","ts":1}'
    trace = opened(write, f'{{"traceEvents":[{",".join([event] * 4)}]}}')
    assert len(trace) == 0
    assert trace.report.too_damaged > 0
