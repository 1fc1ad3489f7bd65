"""Files that would take a naive reader hours or all memory end within seconds.

Nothing here measures time: a reader that falls into one of the traps does not come
back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import sum_ops_by_name
from fusetui.trace import NotATraceError, Trace, open_trace
from fusetui.trace.layout.nesting import arrange
from fusetui.trace.read import damaged

Open = Callable[..., Trace]
Event = Callable[..., dict[str, Any]]
N = 10_000


@pytest.mark.parametrize("category", ["cpu_op", "kernel", "cuda_runtime"])
def test_slices_that_all_overlap_get_subrows_in_bounded_time(
    trace_of: Open, event: Event, category: str
) -> None:
    trace = trace_of([event("a", n, N, cat=category) for n in range(N)])
    assert len(trace.tracks) == len(trace) == N


def test_equal_calls_nest_in_bounded_time(trace_of: Open, event: Event) -> None:
    trace = trace_of([event("a", 1, 5, cat="cuda_runtime") for _ in range(N)])
    assert len(trace.tracks) == N


def test_deeply_nested_slices_have_their_depth(trace_of: Open, event: Event) -> None:
    trace = trace_of([event("a", n, 2 * N - 2 * n) for n in range(N)])
    assert trace.depth.tolist() == list(range(N))


def test_kernels_with_one_correlation_take_the_last_call_before(
    trace_of: Open, event: Event
) -> None:
    args = {"correlation": 1}
    calls = [event("c", n, 1, cat="cuda_runtime", args=args) for n in range(N)]
    kernels = [event("k", n, 1, cat="kernel", args=args) for n in reversed(range(N))]
    trace = trace_of(calls + kernels)
    gpu = trace.gpu_rows
    assert (trace.start[trace.launch[gpu]] == trace.start[gpu]).all()


def test_thousands_of_damaged_events_are_each_counted(trace_of: Open) -> None:
    good = '{"ph":"X","name":"a","ts":1,"args":{"x":[1,2]}}'
    bad = '{"ph":"X","name":"a "b" c","ts":1,"args":{"x":[1,2]}}'
    trace = trace_of('{"traceEvents":[' + ",\n".join([good, bad, good] * 1000) + "]}")
    assert (len(trace), len(trace.report.skipped)) == (2000, 1000)


@pytest.mark.parametrize("end", ['"}]', '\\q"}]', ""])
def test_name_of_a_million_characters_is_read_or_refused(
    trace_of: Open, end: str
) -> None:
    text = '[{"ph":"X","ts":1,"name":"' + "a" * 1_000_000 + end
    if not end:
        with pytest.raises(NotATraceError):
            trace_of(text)
        return
    trace = trace_of(text)
    assert len(trace.names[0]) >= 1_000_000
    assert summary(trace).slices == 1


@pytest.mark.parametrize(
    ("middle", "skipped"),
    [
        ('{"ph":"X","args":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}", 1),
        ("[" * 100_000 + "]" * 100_000, 1),
        ("," * 1_000_000, 0),
        (" " * 1_000_000, 0),
        ("{}," * 50_000 + "{}", 0),
        ("null," * 9_999 + "null", 10_000),
        ("17," * 9_999 + "17", 10_000),
    ],
    ids=["deep args", "deep", "commas", "blanks", "empty objects", "nulls", "numbers"],
)
def test_junk_between_two_events_loses_neither(
    trace_of: Open, middle: str, skipped: int
) -> None:
    event = '{"ph":"X","ts":1}'
    trace = trace_of(f'{{"traceEvents":[{event},{middle},{event}]}}')
    assert (len(trace), len(trace.report.skipped)) == (2, skipped)


@pytest.mark.parametrize("text", ['{"ph":', "}", "]", '"', '{"ph":"'])
def test_syntax_alone_after_an_event_is_counted_as_damage(
    write: Callable[[str], Any], text: str
) -> None:
    path = write('{"traceEvents":[{"ph":"X","ts":1}' + text * 2000)
    trace = open_trace(str(path))
    assert not trace.report.complete
    assert len(trace.report.skipped) <= trace.report.events


def test_list_of_events_in_args_adds_no_events(trace_of: Open, event: Event) -> None:
    """They are no events of the file."""
    inner = [event("x", n) for n in range(5000)]
    trace = trace_of([event("a", args={"list": inner}), event("b", 5)])
    assert trace.names == ("a", "b")
    assert trace.args_of(0) == {"list": inner}


intervals = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=12,
)


@given(intervals, st.booleans())
def test_subrows_are_the_first_that_fit(
    slices: list[tuple[int, int, bool]], flat: bool
) -> None:
    rows = sorted(slices, key=lambda s: (s[0], -s[1], s[2]))
    start = np.array([s[0] for s in rows], dtype=np.int64)
    end = start + np.array([s[1] for s in rows], dtype=np.int64)
    call = np.array([s[2] for s in rows])
    found = arrange(start, end, call, flat).tolist()
    stacks: dict[int, list[tuple[int, int, bool]]] = {}
    for row, number in zip(
        zip(start.tolist(), end.tolist(), call.tolist(), strict=True),
        found,
        strict=True,
    ):
        fitting = [
            n for n in range(number + 1) if fits(stacks.setdefault(n, []), row, flat)
        ]
        assert fitting[-1] == number, (rows, found)
        stacks[number].append(row)


def fits(
    stack: list[tuple[int, int, bool]], row: tuple[int, int, bool], flat: bool
) -> bool:
    while stack and stack[-1][1] <= row[0]:
        stack.pop()
    if not stack:
        return True
    top = stack[-1]
    return not flat and row[1] <= top[1] and not (row == top and row[2])


def test_keys_that_no_event_has(trace_of: Open) -> None:
    good = [f'{{"tts":1,"ph":"X","name":"a","ts":{n}}}' for n in range(4000)]
    trace = trace_of("[" + ",".join(['{"tts":1,"ph":"X","ts":NaN}', *good]) + "]")
    assert (len(trace), trace.report.events, trace.report.unreadable) == (4000, 4001, 1)


def test_times_in_quotes_and_keys_that_no_event_has(trace_of: Open) -> None:
    texts = [f'{{"tts":1,"ph":"X","name":"a","ts":"{n}"}}' for n in range(20_000)]
    trace = trace_of("[" + ",".join(texts) + "]")
    assert trace.start.tolist() == [1000 * n for n in range(20_000)]


def test_100_000_opened_events_without_an_end_are_no_trace(trace_of: Open) -> None:
    with pytest.raises(NotATraceError, match="not of trace events"):
        trace_of('[{"ph":' * 100_000)


def test_damage_in_every_event_ends_reading_at_a_bound(
    trace_of: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that damage may cost is bounded; what is beyond the bound is
    reported."""
    assert damaged.patience_for(0)[0] > 500
    monkeypatch.setattr(damaged, "patience_for", lambda _: (500, 1 << 26))
    bad = '{"ph":"X","name":"a"b","ts":1}'
    trace = trace_of('[{"ph":"X","ts":1},' + ",".join([bad] * 600) + "]")
    assert len(trace) == 1
    assert trace.report.too_damaged > 0
    assert not trace.report.complete
    assert trace.report.unreadable == trace.report.events - 1


def test_50_000_unreadable_events_are_counted_and_10_000_listed(trace_of: Open) -> None:
    trace = trace_of("[" + "1," * 50_000 + '{"ph":"X","ts":1}]')
    assert (trace.report.events, trace.report.unreadable) == (50_001, 50_000)
    assert len(trace.report.skipped) == 10_000


def test_begin_events_that_never_end(trace_of: Open) -> None:
    marks = [
        {"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": n} for n in range(50_000)
    ]
    trace = trace_of(marks)
    # more than 16 bits hold; the last one has no duration
    assert trace.depth.max() == 49_998
    assert summary(trace).slices_unfinished == 50_000


def test_nested_ops_of_one_name_count_their_time_once(
    trace_of: Open, event: Event
) -> None:
    n = 20_000
    trace = trace_of([event("a", k, 2 * n - 2 * k) for k in range(n)])
    (total,) = sum_ops_by_name(trace)
    assert (total.count, total.total_ns) == (n, 2 * n * 1000)


@pytest.mark.parametrize("category", ["cpu_op", "kernel"])
def test_thread_for_every_slice_gives_as_many_tracks(
    trace_of: Open, event: Event, category: str
) -> None:
    n = 20_000
    trace = trace_of([event("a", k, 2, cat=category, pid=k, tid=k) for k in range(n)])
    figures = summary(trace)
    assert len(figures.tracks) == n
    assert figures.gpu_busy_ns == (n * 2000 if category == "kernel" else 0)


def test_many_small_threads_nest_as_a_few_do(trace_of: Open, event: Event) -> None:
    def slices(tid: int) -> list[dict[str, Any]]:
        return [
            event("a", tid, 9, tid=tid),
            event("b", tid, 5, tid=tid),
            event("c", tid + 3, 4, tid=tid),
        ]

    few = trace_of(slices(0))
    many = trace_of([found for tid in range(2000) for found in slices(tid)])
    assert many.depth.tolist() == few.depth.tolist() * 2000
    assert len(many.tracks) == len(few.tracks) * 2000
    assert (many.parent[3::3] < 0).all()


def test_times_50_years_apart_give_an_exact_span(trace_of: Open, event: Event) -> None:
    """Some writers set the first time to 0 and count the others from 1970."""
    trace = trace_of([event("a", 0, 1), event("b", 1.7e15, 1)])
    assert summary(trace).span_ns == 1_700_000_000_000_001_000


@pytest.mark.parametrize(
    "ts", ["2305843009213694", "-2305843009213694", "1e1000000", "-1e999999999"]
)
def test_times_out_of_range_are_unreadable(trace_of: Open, ts: str) -> None:
    trace = trace_of(f'[{{"ph":"X","ts":1}},{{"ph":"X","ts":{ts}}}]')
    assert (len(trace), trace.report.unreadable) == (1, 1)


def test_durations_that_no_sum_holds(trace_of: Open, event: Event) -> None:
    with pytest.raises(NotATraceError, match="exceed 146 years"):
        trace_of([event("k", n, 2.3e15, cat="kernel") for n in range(3)])


@pytest.mark.parametrize(
    "properties", [[{"id": [1], "name": ["a"]}], [5], {"id": 1}, "x"]
)
def test_device_properties_of_odd_types_are_ignored(
    trace_of: Open, event: Event, properties: Any
) -> None:
    kernel = event("k", cat="kernel", pid=0, tid=7)
    trace = trace_of([kernel], deviceProperties=properties)
    assert summary(trace).devices == []
