"""Which lanes are shown, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.tui.mixed import mixed
from tests.tui.prepared import after, at, do, drawn, opened

from fusetui.analysis.questions.query import match_names
from fusetui.trace import Trace
from fusetui.tui import loading, screen_layout
from fusetui.tui.drawing.canvas import Click
from fusetui.tui.layout.places import places
from fusetui.tui.layout.view import HIDDEN
from fusetui.tui.loading import post_matching_lanes
from fusetui.tui.state import commands
from fusetui.tui.state.state import MatchLanes, Size, State

Make = Callable[..., Trace]
NCCL, OP, WAIT = at("nccl"), at("aten::op"), at("wait")


@pytest.fixture
def state(trace_of: Make) -> State:
    return opened(trace_of(mixed()), size=Size(120, 40))


def labels(state: State) -> list[str]:
    """The labels of the lines, without those that belong to the line above."""
    return [p.label.strip() for p in places(state.side, state.view) if p.label]


def hidden(state: State) -> str:
    """The line that names what is hidden."""
    return next(
        (p.label for p in places(state.side, state.view) if p.depth == HIDDEN), ""
    )


def typed(line: str) -> Callable[[State], State]:
    return lambda state: after(state, partial(commands.obeyed, line=line))


def test_threads_without_an_op_and_the_profiler_are_in_one_line(state: State) -> None:
    assert hidden(state) == "folded: thread 101   PyTorch Profiler"
    assert "thread 101" not in labels(state)


def test_a_slice_in_a_hidden_lane_brings_it_back_while_it_is_selected(
    state: State,
) -> None:
    found = after(state, WAIT)
    assert "thread 101" in labels(found)
    assert hidden(found) == "folded: PyTorch Profiler"
    assert hidden(after(found, *do("deselect"))) == hidden(state)


def test_a_pinned_lane_is_the_first(state: State) -> None:
    pinned = after(state, NCCL, *do("pin"))
    assert labels(pinned)[0] == "GPU 0 stream 9"
    assert labels(pinned).count("stream 9") == 0
    assert labels(after(pinned, *do("pin"))) == labels(state)


def test_a_hidden_lane_is_named_in_the_last_line(state: State) -> None:
    after_hiding = after(state, NCCL, *do("hide"))
    assert "GPU 0 stream 9" in hidden(after_hiding)
    assert labels(after(after_hiding, *do("undo"))) == labels(after(state, NCCL))


def test_isolate_shows_the_device_of_the_selection_alone(state: State) -> None:
    alone = after(state, NCCL, *do("isolate"))
    assert labels(alone)[0] == "GPU 0"
    assert hidden(alone).startswith("folded: thread 100")
    assert labels(after(alone, *do("isolate"))) == labels(state)


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("stream 9", ["GPU 0 stream 9"]),
        ("STREAM", ["GPU 0", "stream 7", "stream 9"]),
        ("annotations | stream 9", ["thread 100", "GPU 0 stream 9"]),
    ],
)
def test_only_command_shows_lanes_by_part_of_their_name(
    state: State, pattern: str, shown: list[str]
) -> None:
    found = after(state, typed(f"only {pattern}"))
    assert [
        text for text in labels(found) if "folded" not in text and "idle" not in text
    ] == shown
    assert labels(after(found, typed("only"))) == labels(state)


@pytest.mark.parametrize(
    "pattern", ["/stream [89]/", "/str?eam 9$/", "-/stream 7|thread|other/"]
)
def test_only_command_shows_lanes_by_a_regular_expression(
    state: State, pattern: str
) -> None:
    found = after(state, *expressed(state, pattern))
    shown = [
        text for text in labels(found) if "folded" not in text and "idle" not in text
    ]
    assert shown == ["GPU 0 stream 9"]


def test_an_expression_that_no_lane_matches_changes_nothing(state: State) -> None:
    found = after(state, *expressed(state, "/^STREAM/"))
    assert labels(found) == labels(state)
    assert found.hint == "no lane is called /^STREAM/"


def test_an_expression_that_takes_too_long_is_given_up(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "match_names", partial(match_names, seconds=0))
    found = after(state, *expressed(state, "/(a+)+b/"))
    assert "takes longer than 0 s" in found.hint
    assert labels(found) == labels(state)


def test_invalid_lane_expression_is_one_sentence(state: State) -> None:
    assert "is not a valid regular expression" in after(state, typed("only /(/")).hint


def expressed(state: State, pattern: str) -> list[Any]:
    """The command, then what a thread posts."""
    outcome = commands.obeyed(state, f"only {pattern}")
    assert isinstance(outcome, tuple)
    assert isinstance(outcome[1], MatchLanes)
    posted: list[Any] = []
    post_matching_lanes(outcome[1], posted.append)
    return posted


def test_a_pattern_that_no_lane_has_changes_nothing(state: State) -> None:
    found = after(state, typed("only nowhere"))
    assert labels(found) == labels(state)
    assert found.hint == "no lane is called nowhere"


def test_the_busiest_lanes_come_first(state: State) -> None:
    """The stream of the collective is busier than the other one."""
    found = labels(after(state, *do("sort")))
    assert found.index("stream 9") < found.index("stream 7")
    assert labels(after(state, *do("sort", "sort"))) == labels(state)


def test_unfold_all_shows_every_line(state: State) -> None:
    every = after(state, *do("unfold-all"))
    lines = sum(lane.height for lane in state.side.lanes)
    shown = [p for p in places(every.side, every.view) if p.line is not None]
    assert len(shown) + sum(p.around for p in shown) == lines
    assert hidden(every) == ""
    assert labels(after(every, *do("unfold-all"))) == labels(state)


def test_unfold_all_twice_after_a_swap_folds_each_side_as_first_shown(
    trace_of: Make, mlp: Trace
) -> None:
    first = after(opened(trace_of(mixed()), mlp), *do("timeline"))
    swapped = after(first, *do("swap"))
    now = after(swapped, *do("unfold-all", "unfold-all"))
    assert now.view.folds == first.session.views[1].folds


def test_a_click_on_what_is_hidden_shows_it(state: State) -> None:
    (y,) = [y for y, line in enumerate(drawn(state).splitlines()) if "folded:" in line]
    assert "thread 101" in labels(
        after(state, partial(screen_layout.moused, y=y, done=Click(3)))
    )
