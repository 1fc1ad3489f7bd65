"""The memory page of a trace with memory events: what it shows, beside the events of
the file."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.analysis.memory.test_of_trace import Event, event, op
from tests.corpus.files import corpus_path
from tests.tui.prepared import after, at, do, drawn, laid_over, opened

from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.counters import counters, curve_of
from fusetui.trace.model.report import never
from fusetui.tui.helper_client import ALONE, Beside
from fusetui.tui.loading import load_memory
from fusetui.tui.pages.memory import PAGE
from fusetui.tui.registry import open_page
from fusetui.tui.state import reading
from fusetui.tui.state.memory import here, window
from fusetui.tui.state.state import ReadMemory, Size, State

Make = Callable[..., Trace]
Matches = Callable[[str, str], None]
WIDE = Size(200, 40)
NOTE = {
    "ph": "X",
    "cat": "user_annotation",
    "name": "step",
    "pid": 1,
    "tid": 1,
    "ts": 18,
    "dur": 9,
}
OPS = (
    op("aten::mm", 0, 10),
    op("aten::empty", 4, 2),
    op("aten::relu", 20.002, 9),
    NOTE,
)
EVENTS = (
    *(event(5, 100, 300), event(20.001, 70, 370, 4), event(25.003, 50, 420, 2)),
    *(event(30, -100, 320), event(31, -7, 313, 3)),
)


def asked(state: State) -> tuple[State, ReadMemory]:
    outcome = open_page(PAGE, state)
    assert isinstance(outcome, tuple)
    assert isinstance(outcome[1], ReadMemory)
    return outcome[0], outcome[1]


def answered(state: State, start: Callable[[], Beside] = lambda: ALONE) -> State:
    """Page 9 was asked for, and its answer has come."""
    now, effect = asked(state)
    posted: list[Any] = []
    load_memory(effect, posted.append, never, start)
    return after(now, *posted)


def written(path: Path) -> Trace:
    path.write_text(json.dumps({"traceEvents": [*OPS, *EVENTS]}))
    return open_trace(str(path))


def cursor(state: State) -> tuple[int, int]:
    """The number of the event under the cursor, and the bytes that the screen says."""
    said = re.search(r"([0-9,]+) bytes allocated.* event ([0-9,]+):", drawn(state))
    assert said
    size, number = (int(text.replace(",", "")) for text in said.groups())
    return number, size


@pytest.fixture
def state(trace_of: Make) -> State:
    return answered(opened(trace_of([*OPS, *EVENTS]), size=WIDE))


def cursor_has_the_totals(path: Path) -> None:
    """At every fourth event, which the ruler has at its own time."""
    text = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    raw: list[dict[str, Any]] = [
        one
        for one in text["traceEvents"]
        if one.get("name") == "[memory]" and one["args"]["Device Type"] == 1
    ]
    raw.sort(key=lambda one: one["ts"])
    trace = open_trace(str(path))
    state = answered(opened(trace, size=Size(140, 20), paths=(str(path),)))
    totals = [one["args"]["Total Allocated"] for one in raw]
    assert cursor(state) == (totals.index(max(totals)), max(totals))
    state = after(state, *do("memory-earlier") * cursor(state)[0])
    for number, one in [*enumerate(raw)][::4]:
        assert cursor(state) == (number, totals[number])
        place = int(here(state)[0].times[number]) - trace.epoch_ns
        assert place == int(one["ts"] * 1000)
        shown = window(state, 0)
        assert (shown.begin, shown.end) == (state.view.begin, state.view.end)
        assert shown.begin <= place - state.side.origin < shown.end
        rows = [row for row in PAGE.found(state) if not row.level]
        assert sum(row.bytes for row in rows) == totals[number]
        state = after(state, *do("memory-later") * 4)


def test_the_cursor_has_the_totals_of_a_trace() -> None:
    cursor_has_the_totals(corpus_path("lesson-mlp-eager"))


def test_memory_is_listed_by_op_and_by_annotation(state: State) -> None:
    """Opened rows add up; of what was there before, the number of blocks is not
    said."""

    def rows(now: State) -> dict[str, tuple[int, int]]:
        return {
            one.name: (one.bytes, one.allocations)
            for one in PAGE.found(now)
            if not one.level
        }

    before = {"before_recording": (200, 0)}
    want = before | {"aten::mm": (100, 1), "no op": (70, 1), "aten::relu": (50, 1)}
    assert (cursor(state), rows(state)) == ((2, 420), want)
    noted = after(state, *do("memory-by"))
    assert rows(noted) == before | {"step": (120, 2), "no annotation": (100, 1)}
    inside = after(noted, *do("row-down", "memory-turn"))
    found = [(one.level, one.bytes) for one in PAGE.found(inside)]
    assert found == [(0, 200), (0, 120), (1, 70), (1, 50), (0, 100)]
    assert rows(after(noted, *do("memory-by"))) == want
    lives = after(state, *do("row-down", "memory-turn", "row-down", "details"))
    said = laid_over(lives)
    assert "100 bytes (100 bytes) at 0x1, aten::mm" in said
    assert "from 5 us to 30 us, for 25 us" in said
    assert "freed in no op" in said
    assert "A memory snapshot also has stacks" in said
    assert "nothing to open" in after(state, *do("memory-turn")).hint


def test_a_slice_tells_what_was_allocated_to_the_nanosecond(state: State) -> None:
    """What came one before it began is not counted."""
    there = after(state, *do("timeline"), at("aten::relu"))
    assert (
        "1 allocation meanwhile (GPU 0, any thread): 50 bytes, 50 bytes left"
        in drawn(there)
    )


def test_zoom_is_that_of_the_timeline(state: State) -> None:
    zoomed = after(state, *do("memory-in", "memory-in"))
    assert (zoomed.view.span, state.view.span) == (
        state.view.span // 4,
        state.view.span,
    )
    assert "\ntimeline " in drawn(zoomed)
    assert "has no segments;" in after(zoomed, *do("memory-map")).hint


def test_memory_events_that_contradict_totals_are_reported(
    trace_of: Make, state: State
) -> None:
    lost = answered(opened(trace_of([*OPS, EVENTS[0], *EVENTS[2:]]), size=WIDE))
    said = "4 events, which differ from their last total by 70 bytes"
    assert (said in drawn(lost), "differ" in drawn(state)) == (True, False)


def memory_page(path: Path) -> str:
    """With a row open, and zoomed in."""
    trace = open_trace(str(path))
    shown = answered(opened(trace, size=Size(80, 24), paths=(str(path),)))
    keys = do("row-down", "memory-turn", "memory-in", "row-down")
    return drawn(after(shown, *keys))


def test_memory_page_of_a_trace_looks_as_kept(matches_screen: Matches) -> None:
    shown = memory_page(corpus_path("lesson-mlp-eager"))
    matches_screen("pages/memory-events-80x24", shown)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((), "no memory events (profile_memory=True records them)"),
        ([event(5, 8, 8, Addr=None)], "no memory events with addresses and totals"),
    ],
)
def test_a_trace_that_does_not_tell(
    trace_of: Make, events: list[Event], why: str
) -> None:
    """One sentence; the page stays where it was, and has no tab."""
    there = answered(opened(trace_of([*OPS, *events]), size=WIDE))
    assert (there.page, there.memory) == ("timeline", None)
    assert drawn(there).split("\n")[-1].strip().startswith(why)
    assert "9 Memory" not in drawn(there)


def test_the_page_is_offered_once_totals_are_known(trace_of: Make) -> None:
    trace = trace_of([*OPS, *EVENTS])
    first = opened(trace, size=WIDE)
    known = reading.accept_answer(first, trace, tuple(map(curve_of, counters(trace))))
    assert ["9 Memory" in drawn(one) for one in (first, known)] == [False, True]


def test_memory_read_late_does_not_replace_another_page(
    trace_of: Make, state: State
) -> None:
    """Nor for a trace that is no longer there; and it is gone with its trace."""
    first = opened(trace_of([*OPS, *EVENTS]), size=WIDE)
    now, effect = asked(first)
    posted: list[Any] = []
    load_memory(effect, posted.append, never, lambda: ALONE)
    other = after(now, *do("kernels"), *posted)
    assert (other.page, other.hint) == ("kernels", "the memory events are read")
    assert after(other, *do("memory")).page == "memory"
    elsewhere = opened(trace_of([*OPS]), size=WIDE)
    assert after(elsewhere, *posted) is elsewhere
    stale = replace(elsewhere, memory=state.memory)
    assert asked(stale)[1].trace is stale.side.trace
    assert "meanwhile" not in drawn(after(stale, at("aten::mm")))


def test_of_two_traces_it_is_the_one_that_has_the_keys(tmp_path: Path) -> None:
    """Where the other got them meanwhile, the axis of time is said to be its own."""
    traces = [written(tmp_path / name) for name in ("a.json", "b.json")]
    there = answered(opened(*traces, size=WIDE))
    assert (there.page, "its own" in drawn(there)) == ("memory", False)
    turned = replace(there, active=1)
    assert "it has its own time axis: it is of the other trace" in drawn(turned)
    assert answered(turned).memory is not there.memory
    assert "its own" not in drawn(answered(turned))


def test_another_process_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends the same."""
    path = tmp_path / "a.json"
    first = opened(written(path), size=WIDE, paths=(str(path),))
    want = drawn(answered(first))
    monkeypatch.setattr("fusetui.tui.loading.beside", lambda start, _: start())
    beside = partial(Beside, ())
    monkeypatch.setattr("fusetui.tui.helper_client.answers", None)  # not from this one
    assert drawn(answered(first, beside)) == want
