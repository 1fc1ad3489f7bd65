"""The hang page: from dumps of the flight recorder to the rank that is missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.flight_dumps import Job
from tests.tui.prepared import after, do, drawn, laid_over, opened

from fusetui import sample_traces
from fusetui.analysis.hang.grid import make_collective_grid
from fusetui.tables.files import tsv_lines
from fusetui.trace import open_trace
from fusetui.trace.flight.reading import read_dumps
from fusetui.tui.layout.hang import LEGEND, ruler
from fusetui.tui.loading import load_dumps
from fusetui.tui.state import hang
from fusetui.tui.state.hang import NO_DUMPS, cursor_rank
from fusetui.tui.state.state import (
    HANG,
    CopyText,
    ReadDumps,
    Reading,
    Refuse,
    Size,
    State,
)

Screen = Callable[[str, str], None]


def hanging_job() -> Job:
    """Four ranks; rank 2 does not come to the third collective of all of them."""
    job = Job(4)
    job.group("pair", 2, 3)
    job.everywhere()
    job.everywhere("all_gather")
    job.everywhere("broadcast", "pair")
    for rank in (0, 1, 3):
        job.issue(rank, "all_reduce", over=False, line=33)
    return job


def shown(paths: list[str], width: int = 80, height: int = 24) -> State:
    """The app with these dumps open, and nothing else."""
    outcome = hang.read(State(size=Size(width, height)), paths, alone=True)
    assert isinstance(outcome, tuple)
    grid = make_collective_grid(read_dumps(paths))
    return after(outcome[0], partial(hang.arrived, paths=paths, grid=grid))


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return hanging_job().write(tmp_path)


@pytest.fixture
def state(paths: list[str]) -> State:
    return shown(paths)


def row_of(state: State, rank: int) -> str:
    """What the grid shows of a rank."""
    lines = [line[1:].split() for line in drawn(state).splitlines()]
    return next(line[2] for line in lines if line[:1] == [str(rank)] and len(line) == 3)


@pytest.mark.parametrize("size", ["80x24", "120x35"])
def test_hang_page_looks_as_kept(
    paths: list[str], size: str, matches_screen: Screen
) -> None:
    width, height = map(int, size.split("x"))
    matches_screen(f"hang-{size}", drawn(shown(paths, width, height)))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_letter_of_the_grid_is_left_without_a_meaning(
    paths: list[str], width: int
) -> None:
    text = " ".join(drawn(shown(paths, width)).split())
    for meaning in LEGEND.split("  "):
        assert meaning in text


def test_the_answer_stands_above_the_grid(state: State) -> None:
    text = drawn(state)
    assert "Rank 2 is missing: it did not issue all_reduce, collective 3 of" in text
    assert text.index("Rank 2 is missing") < text.index("rank    newest")


def test_the_missing_call_is_selected(state: State) -> None:
    assert state.page == HANG
    assert cursor_rank(state) == 2
    assert hang.shown_hang(state).number == 3
    assert "─── rank 2, collective 3 ───" in drawn(state)


def test_each_collective_of_a_hang_is_a_letter_in_its_ranks_row(state: State) -> None:
    assert [row_of(state, rank) for rank in range(4)] == ["..r", "..r", "..!", "..r"]


def test_a_mismatch_is_drawn_by_its_sides(tmp_path: Path) -> None:
    job = Job(3)
    for rank in (0, 2):
        job.issue(rank, "all_gather", over=False)
    job.issue(1, "barrier", over=False)
    state = shown(job.write(tmp_path))
    assert [row_of(state, rank) for rank in range(3)] == ["A", "B", "A"]
    assert cursor_rank(state) == 1


def test_details_say_where_the_others_wait(state: State) -> None:
    waiting = drawn(after(state, *do("row-up")))
    assert "nccl:all_reduce, started, at train, /job/train.py:33" in waiting
    assert "inputs Float [64]; outputs Float [64]" in waiting
    assert "It waits here for rank 2." in waiting


def test_details_of_the_missing_rank_name_what_it_issued_last(state: State) -> None:
    assert "Last issued by rank 2: broadcast, collective 1 of pair, at train," in drawn(
        state
    )


def test_all_details_have_the_whole_stack(paths: list[str]) -> None:
    text = laid_over(after(shown(paths, 160, 45), *do("row-up", "details")))
    assert "distributed_c10d.py:1" in text
    assert "train, /job/train.py:33" in text


def test_keys_move_over_the_collectives(state: State) -> None:
    moved = after(state, *do("hang-before", "hang-before"))
    assert hang.shown_hang(moved).number == 1
    assert hang.shown_hang(after(moved, *do("hang-before"))).number == 1  # the first
    assert hang.shown_hang(after(moved, *do("hang-newest"))).number == 3
    assert hang.shown_hang(after(state, *do("hang-first"))).number == 1


def test_another_group_keeps_the_rank(state: State) -> None:
    pair = after(state, *do("hang-group"))
    assert "group pair (2 of 2), 2 members, collectives 1 to 1" in drawn(pair)
    assert cursor_rank(pair) == 2
    assert hang.shown_hang(after(pair, *do("hang-group-before"))).group == 0


def test_hang_reason_goes_back_to_the_rank_and_call_of_the_reason(state: State) -> None:
    away = after(state, *do("hang-group", "row-down"))
    back = after(away, *do("hang-reason"))
    assert (cursor_rank(back), hang.shown_hang(back).number) == (2, 3)


def test_a_wide_grid_scrolls_to_the_selected_collective(tmp_path: Path) -> None:
    job = Job(2)
    for _ in range(500):
        job.everywhere()
    job.issue(0, over=False)
    state = shown(job.write(tmp_path))
    assert row_of(state, 0).endswith("r")
    assert "501" in drawn(state)
    first = after(state, *do("hang-first"))
    assert set(row_of(first, 0)) == {"."}
    assert hang.shown_hang(first).left == 1


def test_the_ruler_always_names_the_selected_column() -> None:
    assert ruler(range(1, 31), 11) == "1         11       20        30"
    assert ruler(range(95, 101), 100) == "95   100"


def test_copy_takes_what_is_known_of_the_call(state: State) -> None:
    _, effect = do("copy")[0](after(state, *do("row-up")))  # type: ignore[misc]
    assert isinstance(effect, CopyText)
    assert effect.text.startswith("nccl:all_reduce, started, at train")


def test_the_table_has_a_row_for_each_rank(state: State) -> None:
    from fusetui.tui.pages.hang import PAGE

    table = PAGE.table(state)
    assert table is not None
    text = "".join(tsv_lines(table))
    lines = [line.split("\t") for line in text.splitlines()]
    assert lines[0] == ["group", "last_operation", "last_place", "rank", "newest"]
    assert lines[3][1] == "nccl:broadcast"
    assert [line[3:] for line in lines[1:]] == [
        ["0", "3"],
        ["1", "3"],
        ["2", "2"],
        ["3", "3"],
    ]


def test_dumps_beside_a_trace_leave_its_page_in_front(paths: list[str]) -> None:
    trace = opened(open_trace(str(sample_traces.path("mlp-eager"))))
    grid = make_collective_grid(read_dumps(paths))
    state = after(trace, partial(hang.arrived, paths=paths, grid=grid))
    assert state.page != HANG
    assert state.hint == "the dumps are read"
    assert "7 Hang" in drawn(state)
    assert "Rank 2 is missing" in drawn(after(state, *do("hang")))


def test_hang_key_without_dumps_says_so(paths: list[str]) -> None:
    trace = opened(open_trace(str(sample_traces.path("mlp-eager"))))
    assert "7 Ranks" in drawn(trace)
    assert "7 Hang" not in drawn(trace)
    told = after(trace, *do("hang"))
    assert told.hint == NO_DUMPS


def test_files_without_a_readable_dump_end_the_app(tmp_path: Path) -> None:
    broken = tmp_path / "rank_0"
    broken.write_bytes(b"\x80\x04")
    posted: list[Callable[[State], object]] = []
    load_dumps(ReadDumps((str(broken),)), posted.append, lambda: False)  # type: ignore[arg-type]
    outcome = posted[-1](State(reading=Reading(str(broken), is_whole=True)))
    assert isinstance(outcome, tuple)
    assert isinstance(outcome[1], Refuse)
    assert str(broken) in outcome[1].sentence


def test_reading_many_dumps_shows_how_far_it_is(paths: list[str]) -> None:
    state, _ = hang.read(State(size=Size(80, 24)), paths, alone=True)  # type: ignore[misc]
    state = hang.progressed(state, paths=tuple(paths), done=2)
    assert state.reading is not None
    assert (state.reading.done, state.reading.total) == (2, 4)


def test_dumps_without_a_collective_say_so(tmp_path: Path) -> None:
    job = Job(2)
    state = shown(job.write(tmp_path))
    assert "No rank is missing" in drawn(state)
