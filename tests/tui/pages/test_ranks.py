"""The ranks page: from the list of traces to a rank at its worst wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cli.test_ranks import job
from tests.tui.prepared import after, do, drawn, opened

from fusetui import sample_traces
from fusetui.analysis.ranks.answer import explained, make_strip
from fusetui.analysis.ranks.executors import summarize
from fusetui.gpu.kinds import is_collective
from fusetui.report.ranks_words import describe_clocks, describe_given
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Layer
from fusetui.tui.layout.lanes import find_lanes_to_hide
from fusetui.tui.layout.view import make_sides
from fusetui.tui.loading import rank
from fusetui.tui.pages import ranks
from fusetui.tui.pages.ranks import NO_JOB
from fusetui.tui.registry import arrived
from fusetui.tui.state import reading
from fusetui.tui.state.offers import RANK_SORTS, find_job, make_offers
from fusetui.tui.state.state import (
    OVERLAY,
    RANKS,
    Chooser,
    Read,
    ReadRanks,
    Size,
    State,
)

Screen = Callable[[str, str], None]


@pytest.fixture
def paths(tmp_path: Path) -> tuple[str, ...]:
    return tuple(sorted(map(str, job(tmp_path).iterdir())))


@pytest.fixture
def state(paths: tuple[str, ...]) -> State:
    """One rank is open, and the job was read."""
    found = explained(summarize(paths, cached=False))
    first = replace(opened(open_trace(paths[0]), paths=paths), job=find_job(paths))
    there = partial(
        ranks.known, paths=paths, answer=found.answer, strip=make_strip(found)
    )
    return after(first, *do("ranks"), there)


def test_the_key_asks_for_the_ranks_once(paths: tuple[str, ...]) -> None:
    first = replace(opened(open_trace(paths[0])), job=find_job(paths))
    outcome = do("ranks")[0](first)
    assert isinstance(outcome, tuple)
    assert outcome[1] == ReadRanks(paths)
    assert isinstance(do("ranks")[0](outcome[0]), State)


def test_ranks_page_names_the_straggler_and_its_reason(state: State) -> None:
    text = drawn(state)
    assert "The traces contain 4 of 4 ranks, 3 steps and 3 collectives." in text
    assert "Rank 2 arrives last in 3 of 3 collectives" in text
    first = next(line for line in text.splitlines() if line.startswith(">"))
    assert first.split()[1:3] == ["2", "3/3"]


@pytest.mark.parametrize("size", ["80x24", "120x35"])
def test_ranks_page_looks_as_kept(
    state: State, size: str, matches_screen: Screen
) -> None:
    width, height = map(int, size.split("x"))
    matches_screen(f"ranks-{size}", drawn(replace(state, size=Size(width, height))))


def test_enter_opens_a_rank_at_its_longest_wait(
    state: State, paths: tuple[str, ...]
) -> None:
    """Rank 1, third in the list, waits from 110 us, where its collective starts, to
    510."""
    outcome = after(state, *do("row-down", "row-down"))
    asked = do("show")[0](outcome)
    assert isinstance(asked, tuple)
    assert asked[1] == Read((paths[1],))
    sides = make_sides([open_trace(paths[1])], ["rank1"])
    there = after(asked[0], partial(arrived, sides=sides))
    view = there.view
    assert is_collective(there.side.trace.name_of(view.selected))
    assert (view.begin + view.end) // 2 == pytest.approx(310_000, abs=2_000)
    assert 400_000 < view.span < 1_200_000


def test_b_opens_it_beside_the_rank_that_it_waits_for(
    state: State, paths: tuple[str, ...]
) -> None:
    """Both windows show the same moments."""
    asked = do("ranks-beside")[0](after(state, *do("row-down", "row-down")))
    assert isinstance(asked, tuple)
    assert asked[1] == Read((paths[1], paths[2]))
    sides = make_sides(
        [open_trace(path) for path in (paths[1], paths[2])], ["rank1", "rank2"]
    )
    shown = after(asked[0], partial(arrived, sides=sides))
    assert shown.hint == "one time axis: ranks 1 and 2 share a clock"
    first, second = (
        (view.begin + side.origin, view.end + side.origin)
        for side, view in zip(shown.session.sides, shown.session.views, strict=True)
    )
    assert first == second
    view = shown.session.views[0]
    assert (view.begin + view.end) // 2 == pytest.approx(310_000, abs=2_000)


def test_times_of_clocks_that_are_apart_are_moved(
    state: State, paths: tuple[str, ...]
) -> None:
    """Rank 2's clock is 3 us ahead: the same moment is later there."""
    assert state.job.answer is not None
    rows = [
        replace(row, offset_ns=3_000 * (row.rank == 2))
        for row in state.job.answer.ranks
    ]
    clocks = replace(state.job.answer.clocks, shared="")
    answer = replace(state.job.answer, ranks=tuple(rows), clocks=clocks)
    moved = replace(state, job=replace(state.job, answer=answer))
    asked = do("ranks-beside")[0](after(moved, *do("row-down", "row-down")))
    assert isinstance(asked, tuple)
    sides = make_sides(
        [open_trace(path) for path in (paths[1], paths[2])], ["rank1", "rank2"]
    )
    shown = after(asked[0], partial(arrived, sides=sides))
    first, second = (
        view.begin + side.origin
        for side, view in zip(shown.session.sides, shown.session.views, strict=True)
    )
    assert second - first == 3_000
    assert shown.hint.startswith("one time axis: ")
    assert "share a clock" not in shown.hint


def test_tall_screen_shows_all_ranks_on_one_axis(
    state: State, paths: tuple[str, ...]
) -> None:
    """The rank that waits, the one that it waits for, then the others in the order of
    the list."""
    tall = replace(state, size=Size(200, 50))
    asked = do("ranks-others")[0](after(tall, *do("row-down", "row-down")))
    assert isinstance(asked, tuple)
    assert isinstance(asked[1], Read)
    assert asked[1].paths[:2] == (paths[1], paths[2])
    assert set(asked[1].paths) == set(paths)
    sides = make_sides(
        [open_trace(path) for path in asked[1].paths], ["1", "2", "a", "b"]
    )
    shown = after(asked[0], partial(arrived, sides=sides))
    windows = {
        (view.begin + side.origin, view.end + side.origin)
        for side, view in zip(shown.session.sides, shown.session.views, strict=True)
    }
    assert len(windows) == 1
    assert shown.hint.startswith("one time axis: ranks 1, 2, ")
    drawn(shown)


def test_of_several_gpus_the_streams_are_shown() -> None:
    lanes = make_sides([open_trace(str(lessons.path("mlp-eager")))], ["a"])[0].lanes
    shown = set(range(len(lanes))) - find_lanes_to_hide(lanes)
    assert {lanes[n].layer for n in shown} == {Layer.STREAM}
    cpu = make_sides([open_trace(str(sample_traces.path("mlp-eager")))], ["a"])[0].lanes
    assert find_lanes_to_hide(cpu) == frozenset()


def test_on_a_small_screen_there_is_room_for_two(
    state: State, paths: tuple[str, ...]
) -> None:
    small = replace(state, size=Size(80, 24))
    asked = do("ranks-others")[0](after(small, *do("row-down", "row-down")))
    assert isinstance(asked, tuple)
    assert asked[1] == Read((paths[1], paths[2]))


def test_a_rank_that_never_waits_is_shown_where_it_is_waited_for(
    state: State, paths: tuple[str, ...]
) -> None:
    late = state.job.rows()[0]
    assert late.worst_wait is None
    assert state.job.answer is not None
    asked = do("ranks-others")[0](state)
    assert isinstance(asked, tuple)
    assert isinstance(asked[1], Read)
    assert asked[1].paths[1] == late.path
    alone = replace(state.job, answer=replace(state.job.answer, ranks=(late,)))
    told = do("ranks-others")[0](replace(state, job=alone))
    assert isinstance(told, State)
    assert (
        told.hint
        == f"rank {late.rank} waits for nobody, and nobody waits longest for it"
    )


@pytest.mark.parametrize("asked", ["show", "ranks-beside", "ranks-others"])
def test_a_window_asked_of_ranks_does_not_hold_for_another_trace(
    state: State, paths: tuple[str, ...], asked: str
) -> None:
    """Reading them was stopped, and another trace is opened."""
    outcome = do(asked)[0](after(state, *do("row-down", "row-down")))
    assert isinstance(outcome, tuple)
    asking = replace(outcome[0], job=replace(outcome[0].job, window=(200_000, 210_000)))
    for others in ((paths[3],), paths[2:]):
        again = reading.read(asking, others)
        assert isinstance(again, tuple)
        sides = make_sides(
            [open_trace(path) for path in others], ["a", "b"][: len(others)]
        )
        plain = after(replace(again[0], job=state.job), partial(arrived, sides=sides))
        shown = after(again[0], partial(arrived, sides=sides))
        assert shown.session.views == plain.session.views
        assert (shown.page, shown.hint, shown.job.window) == (
            plain.page,
            plain.hint,
            None,
        )


def test_every_column_of_ranks_sorts(state: State) -> None:
    orders = set()
    for _ in RANK_SORTS:
        orders.add(tuple(row.rank for row in state.job.rows()))
        state = after(state, *do("ranks-sort-right"))
    assert (0, 1, 2, 3) in orders
    assert state.job.sort == next(iter(RANK_SORTS))


def test_start_list_of_rank_files_offers_the_job(paths: tuple[str, ...]) -> None:
    first = State(
        offers=make_offers(paths, are_job=True), job=find_job(paths), must_choose=True
    )
    choosing = after(first, reading.choose)
    assert isinstance(choosing.overlay, Chooser)
    assert choosing.overlay.summaries[0] == "4 traces: who waits for whom"
    assert choosing.list_of(OVERLAY).cursor == 0
    outcome = do("show")[0](choosing)
    assert isinstance(outcome, tuple)
    sides = make_sides([open_trace(paths[0])], ["rank0"])
    opened_now = arrived(outcome[0], sides)
    assert isinstance(opened_now, tuple)
    assert (opened_now[0].page, opened_now[1]) == (RANKS, ReadRanks(paths))


def test_files_that_are_no_ranks_are_not_offered() -> None:
    assert find_job(("eager.json", "compiled.json")).paths == ()
    assert find_job(("rank0.json",)).paths == ()
    assert find_job(("h_1.2.pt.trace.json", "h_2.3.pt.trace.json.gz")).paths


def test_the_thread_tells_of_each_rank(paths: tuple[str, ...]) -> None:
    posted: list[Any] = []
    rank(ReadRanks(paths), posted.append, lambda: False)
    assert [sorted(one.keywords) for one in posted[-2:]] == [
        ["done", "paths"],
        ["answer", "paths", "strip"],
    ]
    assert posted[-1].keywords["answer"].given == 4


def test_a_thread_that_is_cancelled_says_nothing(paths: tuple[str, ...]) -> None:
    posted: list[Any] = []
    rank(ReadRanks(paths), posted.append, lambda: True)
    assert posted == []


def test_the_ranks_page_without_a_job_fits_80_by_24(mlp: Trace) -> None:
    assert NO_JOB in drawn(after(opened(mlp, size=Size(80, 24)), *do("ranks")))


def test_one_trace_of_a_job_says_how_to_open_the_others(paths: tuple[str, ...]) -> None:
    state = after(opened(open_trace(paths[2]), size=Size(80, 24)), *do("ranks"))
    text = drawn(state)
    assert "This trace is rank 2 of 4." in text
    assert 'fusetui open FOLDER, then "all ranks"' in text
    assert NO_JOB not in text


def test_a_rank_without_a_number_is_one_of_its_job(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
) -> None:
    trace = trace_of(launched(1, 0, 10), distributedInfo={"world_size": 8})
    text = drawn(after(opened(trace, size=Size(80, 24)), *do("ranks")))
    assert "This trace is one rank of 8." in text


def test_a_job_of_one_rank_has_no_others(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
) -> None:
    info = {"rank": 0, "world_size": 1}
    trace = trace_of(launched(1, 0, 10), distributedInfo=info)
    assert NO_JOB in drawn(after(opened(trace, size=Size(80, 24)), *do("ranks")))


def test_the_headline_of_a_job_uses_the_lines_below_a_short_table(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.tui.pages.ranks.MIN_ABOVE_LINES", 1)
    answer = state.job.answer
    assert answer is not None
    said = " ".join([*describe_given(answer), describe_clocks(answer)])
    text = drawn(replace(state, size=Size(40, 40)))
    assert said in " ".join(text.split())
