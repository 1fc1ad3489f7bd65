"""The memory page: what it shows of made snapshots, beside an independent replay of
them."""

from __future__ import annotations

import gzip
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.hostile import PAYLOADS
from tests.snapshots import MB, Machine, backward, failed, forward, train, trained
from tests.tui.prepared import SIZE, after, at, do, drawn, laid_over, remembered
from tests.tui.prepared import opened as with_trace

from fusetui.analysis.memory import moments
from fusetui.analysis.memory.moments import locate_blocks
from fusetui.text.figures import size as size_text
from fusetui.trace import Trace
from fusetui.trace.model.report import never
from fusetui.tui import loading
from fusetui.tui.background_results import opened
from fusetui.tui.drawing.canvas import Click
from fusetui.tui.helper_client import Beside, HelperUnavailableError
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.loading import load_memory
from fusetui.tui.pages.memory import PAGE
from fusetui.tui.registry import ACTIONS, action_for
from fusetui.tui.screen_layout import moused
from fusetui.tui.state.action import perform
from fusetui.tui.state.commands import EXAMPLES, WITHOUT_TRACE, obeyed
from fusetui.tui.state.memory import here, memory_of, why_apart
from fusetui.tui.state.memory import window as window_of
from fusetui.tui.state.state import ReadMemory, Size, State

Make = Callable[..., Trace]
Matches = Callable[[str, str], None]
EPOCH_US = 1_700_000_000_000_000  # at which Machine begins


def replayed(path: Path, event: int) -> int:
    """What is allocated after an event, by the entries of the file alone."""
    found = pickle.loads(path.read_bytes())
    sizes = {"alloc": 1, "free_requested": -1}
    entries = found["device_traces"][0][: event + 1]
    start = sum(
        block["requested_size"]
        for segment in found["segments"]
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    ) - sum(
        sizes.get(one["action"], 0) * one["size"] for one in found["device_traces"][0]
    )
    return int(
        start + sum(sizes.get(one["action"], 0) * one["size"] for one in entries)
    )


def cursor(state: State) -> tuple[int, int]:
    """The event under the cursor, and the bytes that the screen says."""
    shown = drawn(replace(state, size=Size(200, 50)))
    found = re.search(r"([0-9,]+) bytes allocated.* event ([0-9,]+):", shown)
    assert found
    size, event = (int(text.replace(",", "")) for text in found.groups())
    return event, size


@pytest.fixture
def state(tmp_path: Path) -> State:
    return remembered(State(size=SIZE), trained(tmp_path))


@pytest.mark.parametrize("size", [Size(80, 24), Size(200, 50)], ids=str)
def test_memory_page_looks_as_kept(
    size: Size, tmp_path: Path, matches_screen: Matches
) -> None:
    first = remembered(State(size=size), failed(tmp_path))
    opened_rows = do("memory-turn", "row-down", "memory-turn", "row-down")
    shown = drawn(after(first, *opened_rows))
    matches_screen(f"pages/memory-{size.width}x{size.height}", shown)
    plain = after(replace(first, colorless=True), *do("memory-in", "memory-by-last"))
    matches_screen(f"pages/memory-{size.width}x{size.height}-colorless", drawn(plain))


def test_bytes_at_the_cursor_are_those_of_a_replay(tmp_path: Path) -> None:
    machine = Machine()
    train(machine, 3, leaking=3 * MB)
    path = machine.write(tmp_path / "lost.pickle", lost=30)
    state = remembered(State(size=SIZE), path)
    walk = ("memory-before",) * 9 + (
        "memory-in",
        "memory-later",
        "memory-left",
        "memory-earlier",
    )
    peak = max(range(len(machine.events) - 30), key=partial(replayed, path))
    assert cursor(state) == (peak, replayed(path, peak))
    for name in (*walk, "memory-peak"):
        state = after(state, *do(name))
        event, size = cursor(state)
        assert size == replayed(path, event)
        rows = PAGE.found(state)
        assert sum(row.bytes for row in rows if not row.level) == size


@pytest.mark.parametrize("page", ["timeline", "kernels", "why"])
def test_a_snapshot_alone_says_how_to_open_a_trace_beside_it(
    tmp_path: Path, page: str
) -> None:
    state = after(remembered(State(size=SIZE), trained(tmp_path)), *do(page))
    assert state.hint == (
        "This needs a trace: fusetui open TRACE --memory SNAPSHOT opens both"
    )
    assert state.page == "memory"


def test_the_legend_names_the_categories_of_the_picture_wherever_the_cursor_is(
    tmp_path: Path,
) -> None:
    """At the first event there are no activations, but they are in the picture."""

    def categories(state: State) -> list[str]:
        (line,) = [line for line in drawn(state).split("\n") if "■" in line]
        return re.findall(r"■ ([a-z ]+) [0-9]", line)

    path = trained(tmp_path)
    at_peak = remembered(State(size=Size(200, 40)), path)
    before = at_peak
    for _ in range(500):
        before = after(before, *do("memory-earlier"))
    assert here(before)[1].at < here(at_peak)[1].at
    assert len(categories(at_peak)) > 2
    assert categories(before) == categories(at_peak)
    moments, view = here(before)
    amounts = moments.sum_by_category(np.array([view.at]))[:, 0]
    assert np.count_nonzero(amounts) < len(categories(before))


def test_the_cursor_stands_in_no_label_of_the_ruler(state: State) -> None:
    state = after(state, *do(*["memory-before"] * 200))
    for _ in range(100):
        (ruler,) = [line for line in drawn(state).splitlines() if "◆" in line]
        labels = ruler.partition("time")[2]
        assert re.fullmatch(r"( *[0-9.,]+ (ns|us|ms|s)| *◆)* *", labels), ruler
        state = after(state, *do("memory-after"))


def test_no_peak_is_lost_in_a_cell(tmp_path: Path) -> None:
    """A moment between two others in a window of a thousand events."""
    machine = Machine()
    machine.alloc(10 * MB, forward())
    for number in range(500):
        machine.free(machine.alloc(90 * MB if number == 321 else MB, forward()))
    state = remembered(State(size=SIZE), machine.write(tmp_path / "a.pickle"))
    area = drawn(state).split("\n")[3:9]
    assert area[0].count("█") == 1
    assert cursor(after(state, *do("memory-before", "memory-peak")))[1] == 100 * MB


def test_rows_open_into_stacks_and_allocations(state: State) -> None:
    rows = after(state, *do("memory-turn", "row-down", "memory-turn", "row-down"))
    found = PAGE.found(rows)
    assert [row.level for row in found[:3]] == [0, 1, 2]
    assert sum(row.bytes for row in found if row.level == 1) == found[0].bytes
    assert sum(row.bytes for row in found if row.level == 2) == found[1].bytes
    there = after(rows, *do("show"))
    assert isinstance(there.overlay, OverlayLines)
    shown = laid_over(there)
    assert "model.py" in shown or "train.py" in shown or "adamw.py" in shown


def test_a_life_is_told(tmp_path: Path) -> None:
    machine = Machine()
    kept = machine.alloc(5 * MB, forward(11))
    machine.alloc(MB, forward(12))
    machine.free(kept, backward())
    state = remembered(State(size=SIZE), machine.write(tmp_path / "a.pickle"))
    opens = do("memory-turn", "row-down", "memory-turn", "row-down", "show")
    said = laid_over(after(state, *opens))
    assert "5.243 MB (5,242,880 bytes) at 0x7f0000000000, unknown" not in said
    assert "5,242,880 bytes" in said
    assert "from 10 us to 40 us, for 30 us" in said
    assert "freed in backward of MmBackward0" in said
    assert "/home/a/model.py:11 forward" in said


def test_no_key_needs_a_trace(state: State) -> None:
    """Where only a snapshot is open, in every view of it."""
    for first in (do("memory"), do("memory-map"), do("details"), do("command")):
        there = after(state, *first)
        for key in {key for action in ACTIONS for key in action.keys}:
            if found := action_for(key, there):
                now = after(there, partial(perform, found))
                assert now.page == "memory"
                assert drawn(now)
    obeyed_verbs = set()
    for line in EXAMPLES:
        if "needs a trace" not in after(state, partial(obeyed, line=line)).hint:
            obeyed_verbs.add(line.partition(" ")[0])
    assert obeyed_verbs == {*WITHOUT_TRACE, "save", "picture", "shell"}  # of the page


def test_another_process_reads_it(tmp_path: Path) -> None:
    """It sends the same, or why not; nobody reads it once it is no longer wanted."""
    path, wrong = trained(tmp_path), tmp_path / "wrong.pickle"
    wrong.write_bytes(pickle.dumps({"segments": [Path]}))
    posted: list[Any] = []
    load_memory(ReadMemory((str(path),), False), posted.append, never, Beside)
    load_memory(ReadMemory((str(path),), False), posted.append, lambda: True, Beside)
    load_memory(ReadMemory((str(wrong),), False), posted.append, never, Beside)
    here_, failed_ = (after(State(size=SIZE), run) for run in posted)
    assert drawn(here_) == drawn(remembered(State(size=SIZE), path))
    assert "asks Python to import" in failed_.hint


def test_where_no_other_process_can_read_it_the_thread_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(start: str) -> Any:
        raise HelperUnavailableError

    monkeypatch.setattr(loading, "Beside", refused)
    path = trained(tmp_path)
    posted: list[Any] = []
    load_memory(ReadMemory((str(path),), False), posted.append, never, Beside)
    assert drawn(after(State(size=SIZE), posted[0])) == drawn(
        remembered(State(size=SIZE), path)
    )


def test_click_on_the_memory_curve_moves_the_cursor(state: State) -> None:
    before = cursor(state)
    assert cursor(after(state, partial(moused, y=6, done=Click(30)))) != before


def test_two_snapshots_are_compared_row_by_row(tmp_path: Path) -> None:
    state = remembered(State(size=Size(120, 40)), trained(tmp_path), failed(tmp_path))
    a, b = (one.moments[0] for one in memory_of(state).sides)
    rows = [row for row in PAGE.found(state) if not row.level]
    assert sum(row.bytes for row in rows) == int(a.history.allocated.max())
    assert sum(row.other for row in rows) == int(b.history.allocated.max())
    shown = drawn(state)
    assert " A trained " in shown
    assert " B failed " in shown
    assert "B - A" in shown


def beside(
    trace_of: Make, tmp_path: Path, epoch_us: int
) -> tuple[State, list[dict[str, Any]]]:
    """A trace of two ops, the inner one selected, and a snapshot of the same
    process."""
    machine = Machine()
    kept = [machine.alloc(MB * n, forward()) for n in range(1, 9)]
    for address in kept[1::2]:
        machine.free(address, backward())
    ops = [
        {"name": name, "ts": at, "dur": dur}
        for name, at, dur in (("outer", 0, 900), ("a", 35, 75))
    ]
    common = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    base = {"baseTimeNanoseconds": epoch_us * 1000} if epoch_us else {}
    trace = trace_of([{**common, **op} for op in ops], **base)
    state = remembered(with_trace(trace), machine.write(tmp_path / "a.pickle"))
    return after(state, at("a")), machine.events


def test_a_slice_tells_what_was_allocated_meanwhile(
    trace_of: Make, tmp_path: Path
) -> None:
    state, events = beside(trace_of, tmp_path, EPOCH_US)
    within = [one for one in events if 35 <= one["time_us"] - EPOCH_US <= 110]
    born = [one for one in within if one["action"] == "alloc"]
    freed = {one["addr"] for one in within if one["action"] == "free_requested"}
    kept = sum(one["size"] for one in born if one["addr"] not in freed)
    wanted = sum(one["size"] for one in born)
    said = f"{len(born)} allocations meanwhile (device 0, any thread): {size_text(wanted)}, "
    assert f"slice   {said}{size_text(kept)} left" in drawn(state)


def test_beside_a_trace_both_have_one_window(trace_of: Make, tmp_path: Path) -> None:
    state, events = beside(trace_of, tmp_path, EPOCH_US)
    there = after(state, *do("memory", "memory-in", "memory-in"))
    assert "\ntimeline " in drawn(there)
    highest = [one for one in events if one["action"] == "alloc"][-1][
        "time_us"
    ] - EPOCH_US
    # counted as on the ruler
    assert f" bytes allocated   {highest} us   " in drawn(there)
    window = there.view
    assert window.span == state.view.span // 4
    moments, view = here(there)
    place = int(moments.times[view.at]) - EPOCH_US * 1000 - there.side.origin
    assert window.begin <= place < window.end
    back = after(there, *do("timeline", "zoom-out", "memory"))
    assert window_of(back, 0)[1:3] == (back.view.begin, back.view.end)
    whole = after(back, *do("memory-whole"))
    assert whole.view.begin <= 0 <= 900_000 <= whole.view.end


@pytest.mark.parametrize(
    ("epoch_us", "why"),
    [(0, "does not say when its clock began"), (5_000_000, "at another time")],
)
def test_times_that_cannot_be_related_are_told(
    trace_of: Make, tmp_path: Path, epoch_us: int, why: str
) -> None:
    state, _ = beside(trace_of, tmp_path, epoch_us)
    assert "meanwhile" not in drawn(state)
    there = after(state, *do("memory", "memory-in"))
    assert why in drawn(there)
    assert there.view == state.view


def test_a_snapshot_that_begins_when_the_trace_ends_shares_its_axis(
    trace_of: Make, tmp_path: Path
) -> None:
    machine = Machine()
    machine.alloc(MB, forward())
    first_event_ns = machine.events[0]["time_us"] * 1000
    epoch_ns = first_event_ns - 900_000
    op = {
        "ph": "X",
        "cat": "cpu_op",
        "pid": 1,
        "tid": 1,
        "name": "a",
        "ts": 0,
        "dur": 900,
    }
    trace = trace_of([op], baseTimeNanoseconds=epoch_ns)
    state = remembered(with_trace(trace), machine.write(tmp_path / "a.pickle"))
    assert why_apart(state) == ""


def test_the_map_has_every_byte_of_every_segment(tmp_path: Path) -> None:
    machine = Machine()
    train(machine, 2)
    path = machine.write(tmp_path / "a.pickle")
    (found,) = opened(str(path)).moments
    last = len(machine.events) - 1
    there = locate_blocks(found, last)
    raw = {one["address"]: one for one in pickle.loads(path.read_bytes())["segments"]}
    for number, one in enumerate(there.segments):
        held = [
            block
            for block in raw[one.address]["blocks"]
            if block["state"] != "inactive"
        ]
        free = sum(block["size"] for block in raw[one.address]["blocks"]) - sum(
            block["size"] for block in held
        )
        asked = sum(block["requested_size"] for block in held)
        assert (int(there.used_bytes[number]), int(there.hole_bytes[number])) == (
            asked,
            free,
        )
        borders = np.linspace(one.address, one.address + one.size, 50).astype(np.int64)
        assert int(there.sum_by_category(number, borders).sum()) == asked
    shown = after(remembered(State(size=SIZE), path), *do("memory-map"))
    assert "in use" in drawn(shown)
    assert "the blocks in this segment" in laid_over(after(shown, *do("show")))
    kinds = {int(kind) for kind in there.category_numbers}
    amounts = found.sum_by_category(np.array([last]))[:, 0]
    assert kinds == set(np.flatnonzero(amounts).tolist())


def test_a_snapshot_without_events_has_no_empty_curve(tmp_path: Path) -> None:
    machine = Machine()
    machine.alloc(MB, (("step", "/home/a/model.py", 3),))
    machine.events.clear()
    shown = drawn(remembered(State(size=SIZE), machine.write(tmp_path / "a.pickle")))
    assert "No events in this file" in shown
    assert "◆" not in shown


def test_the_line_about_a_segment_is_wrapped_not_cut(tmp_path: Path) -> None:
    machine = Machine()
    train(machine, 2)
    path = machine.write(tmp_path / "a.pickle")
    shown = drawn(after(remembered(State(size=Size(60, 18)), path), *do("memory-map")))
    about = " ".join(shown.split("──")[-1].split())
    assert re.search(
        r"stream 0: .* in [0-9]+ allocations?, (no holes|[0-9]+ holes?)", about
    )


def test_a_kind_of_memory_is_explained_on_its_row(tmp_path: Path) -> None:
    machine = Machine()
    machine.alloc(MB, ())
    machine.events.clear()
    shown = drawn(remembered(State(size=SIZE), machine.write(tmp_path / "a.pickle")))
    assert "(allocated before the recording began" in shown


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
def test_hostile_names_do_no_harm(text: str, tmp_path: Path) -> None:
    machine = Machine()
    machine.alloc(MB, ((text, "/home/a/model.py", 3), (text, text, 4)))
    packed = tmp_path / "a.pickle.gz"
    packed.write_bytes(gzip.compress(machine.write(tmp_path / "a").read_bytes()))
    state = remembered(State(size=SIZE), packed)
    shown = drawn(after(state, *do("memory-turn"))) + laid_over(
        after(state, *do("details"))
    )
    assert all(line.isprintable() for line in shown.split("\n"))
    assert after(state, *do("copy")).hint.startswith("copied")


def test_living_blocks_at_a_moment_are_found_without_going_through_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "MIN_EVENTS_BETWEEN_KEPT", 7)
    machine = Machine()
    train(machine, 2, leaking=MB)
    (found,) = opened(str(machine.write(tmp_path / "a.pickle", lost=20))).moments
    lives, events = found.history.allocations, len(found.history.events)
    assert sum(map(len, found.kept_moments.live)) <= events + len(lives)
    for event in range(-1, events):
        living = np.flatnonzero(lives.mark_live_after(event))
        assert sorted(found.find_live(event).tolist()) == living.tolist()
        amounts = found.sum_by_category(np.array([event]))[:, 0]
        assert int(amounts.sum()) == int(found.history.allocated[event + 1])
    first, last = np.array([-1, 3, 9]), np.array([5, 3, events - 1])
    highest = found.find_highest_events(first, last).tolist()
    for event, begin, end in zip(highest, first.tolist(), last.tolist(), strict=True):
        most = found.history.allocated[begin + 1 : end + 2].max()
        assert found.history.allocated[event + 1] == most
