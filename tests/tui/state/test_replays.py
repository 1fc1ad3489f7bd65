"""The critical path and changes in the app: what is asked for, what is shown when it
arrives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace
from tests.tui.driving import opened as app_opened
from tests.tui.driving import screen, settled
from tests.tui.prepared import after, at, do, explained, laid_over, opened

from fusetui.analysis.replay.marks import compute_marks
from fusetui.analysis.replay.whatif import whatif
from fusetui.analysis.why.causes import find_idle_causes
from fusetui.report.program import format_functions
from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.memo import keep_result, kept_result
from fusetui.trace.model.report import never
from fusetui.trace.program.functions import function_times
from fusetui.trace.program.origin import origins
from fusetui.tui.background_results import answers
from fusetui.tui.layout.answer import WORTH
from fusetui.tui.layout.kernel_table import BYS
from fusetui.tui.loading import named
from fusetui.tui.state import replays
from fusetui.tui.state.action import Run
from fusetui.tui.state.commands import asked, obeyed
from fusetui.tui.state.state import FUNCTIONS, MARKS, Prompt, Replay, Replayed, State

PATH = str(lessons.path("mlp-eager"))
CHANGE = "family:gemm x0.5"


@pytest.fixture(scope="module")
def lesson() -> State:
    return opened(open_trace(PATH))


def with_marks(state: State) -> State:
    trace = state.side.trace
    return replays.arrived(
        after(state, *do("path")), trace, MARKS, compute_marks(trace)
    )


def with_answer(state: State, asked: str = CHANGE) -> State:
    trace = state.side.trace
    return after(replays.arrived(state, trace, asked, whatif(trace, [CHANGE])))


def test_the_path_is_asked_for_once(lesson: State) -> None:
    first = replays.mark(lesson)
    assert isinstance(first, tuple)
    assert isinstance(first[1], Replay)
    assert first[1].asked == MARKS
    assert first[0].on_path
    again = after(with_marks(lesson), *do("path"))
    assert not again.on_path
    assert isinstance(replays.mark(again), State)


def test_keys_go_along_the_path_and_back(lesson: State) -> None:
    known = with_marks(lesson)
    assert known.side.critical is not None
    stops = known.side.critical.stops.tolist()
    there = after(known, *do("path-next"))
    assert there.view.selected == stops[0]
    assert after(there, *do("path-next", "path-next")).view.selected == stops[2]
    assert after(there, *do("path-next", "path-previous")).view.selected == stops[0]
    assert after(there, *do("path-previous")).view.selected == stops[-1]


def test_path_key_beside_the_path_goes_to_the_next_slice_on_it(lesson: State) -> None:
    known = with_marks(lesson)
    marks = known.side.critical
    assert marks is not None
    trace = known.side.trace
    beside = next(
        row for row in range(len(trace)) if row not in set(marks.stops.tolist())
    )
    state = replace(known, session=known.session.selected(0, beside))
    found = after(state, *do("path-next")).view.selected
    begin = marks.begin[marks.stops.tolist().index(found)]
    assert begin >= trace.start[beside]


def test_critical_path_of_a_partly_read_trace_is_not_marked(lesson: State) -> None:
    trace = open_trace(PATH)
    trace = replace(trace, report=replace(trace.report, prefix=1000))
    part = opened(trace)
    found = replays.mark(part)
    assert isinstance(found, State)
    assert "whole trace" in found.hint


def test_a_wrong_change_is_one_sentence(lesson: State) -> None:
    asked = replace(lesson, replayed="nothing")
    found = after(
        replays.arrived(asked, lesson.side.trace, "nothing", "nothing is no change.")
    )
    assert found.hint == "nothing is no change."
    assert found.overlay is None


def test_an_answer_waits_until_a_person_has_typed(lesson: State) -> None:
    typing = replace(lesson, replayed=CHANGE, prompt=Prompt.COMMAND)
    found = with_answer(typing)
    assert found.overlay is None
    shown = after(found, partial(replace, prompt=None))
    assert isinstance(shown.overlay, Replayed)
    assert f"With {CHANGE}" in laid_over(shown)


def test_an_answer_that_nobody_waits_for_is_dropped(lesson: State) -> None:
    assert with_answer(replace(lesson, replayed="loader")).overlay is None
    assert with_answer(lesson).overlay is None


def test_an_amount_is_about_what_is_selected(lesson: State) -> None:
    assert named(lesson, "x0.5") == ""
    assert named(after(lesson, at("aten::gelu")), "x0") == "op:aten::gelu x0"
    kernel = after(lesson, at("ampere"))
    name = kernel.side.trace.name_of(kernel.view.selected)
    assert named(kernel, "40us") == f"kernel:{name} 40us"
    assert named(kernel, "loader") == "loader"


def test_an_amount_is_about_the_group_of_kernels_under_the_cursor(
    lesson: State,
) -> None:
    page = after(lesson, *do("kernels"))
    of_kind = after(page, *do(*["group-by"] * BYS.index("kind")))
    assert named(of_kind, "x0.5") == "kind:gemm x0.5"
    of_library = after(page, *do(*["group-by"] * BYS.index("library")))
    assert named(of_library, "x0.5").startswith("library:")
    assert named(page, "x0.5").startswith("kernel:")


def test_an_amount_is_no_change_of_a_group_that_none_names(lesson: State) -> None:
    of_stream = after(lesson, *do("kernels", *["group-by"] * BYS.index("stream")))
    assert named(of_stream, "x0.5") == ""


def test_a_finding_has_its_own_change() -> None:
    state = after(explained(opened(open_trace(PATH))), *do("why"))
    trace = state.side.trace
    for wanted, change in ((None, ""), ("loader", "loader")):
        why = replace(kept_result(trace, WORTH), _wanted=(wanted,))
        keep_result(trace, WORTH, why)
        assert named(state, "x0.5") == change
        assert named(after(state, *do("row-down")), "x0.5") == ""  # a gap


@pytest.mark.parametrize(
    ("line", "said"), [("whatif", "takes a change"), ("path x", "no argument")]
)
def test_replay_commands_name_what_they_need(
    line: str, said: str, lesson: State
) -> None:
    found = obeyed(lesson, line)
    assert isinstance(found, State)
    assert said in found.hint


@pytest.mark.asyncio
async def test_from_the_key_to_the_answer() -> None:
    async with app_opened([PATH]) as (app, pilot):
        await pilot.press("P")
        await settled(app, pilot)
        assert app.state.side.critical is not None
        await pilot.press("greater_than_sign")
        assert "on the critical path" in screen(app)
        app.do(partial(obeyed, line="whatif family:nonsense x0.5"))
        await settled(app, pilot)
        assert app.state.hint == "No kernel matches family:nonsense."
        app.do(partial(obeyed, line=f"whatif {CHANGE}"))
        await settled(app, pilot)
        assert f"With {CHANGE}" in screen(app)


def test_where_there_is_no_time_there_is_no_second_timeline(lesson: State) -> None:
    found = replace(whatif(lesson.side.trace, [CHANGE]), after_ns=None)
    for between, said in ((None, "too little"), ((1, 2), "range of times")):
        shown = replace(lesson, overlay=Replayed(replace(found, between_ns=between)))
        refused = replays.beside(shown)
        assert isinstance(refused, State)
        assert said in refused.hint


@pytest.mark.asyncio
async def test_the_replay_beside_the_recording_and_back() -> None:
    async with app_opened([PATH]) as (app, pilot):
        await pilot.press("0")
        app.do(partial(obeyed, line=f"whatif {CHANGE}"))
        await settled(app, pilot)
        await pilot.press("b")
        await settled(app, pilot)
        assert (
            "replayed, not recorded: step (launched) 767.5 us -> 492.5 us (estimate: 35.8 % less)"
            in screen(app)
        )
        second, state = app.state.second, app.state
        assert second is not None
        gemm = after(state, at("ampere")).view.selected
        view = replace(state.view, selected=gemm)
        side, own = second.seen(state.side, view)
        assert (own.begin, own.end) == (view.begin, view.end)
        assert side.trace.name_of(own.selected) == state.side.trace.name_of(gemm)
        await pilot.press("3")
        assert "replayed" not in screen(app)
        await pilot.press("1", "escape")
        assert app.state.second is None
        assert "replayed" not in screen(app)


@pytest.mark.asyncio
async def test_the_amount_of_the_key_can_be_edited() -> None:
    async with app_opened([PATH]) as (app, pilot):
        app.do(partial(asked, typed="whatif x0.5"))
        await pilot.pause()
        await pilot.press("backspace", "8")
        assert "whatif x0.8" in screen(app)


def with_functions(trace: Trace, found: object) -> Run:
    return partial(replays.arrived, trace=trace, asked=FUNCTIONS, found=found)


def test_my_functions_are_those_of_the_command(lesson: State) -> None:
    trace = lesson.side.trace
    outcome = replays.functions(lesson)
    assert isinstance(outcome, tuple)
    assert isinstance(outcome[1], Replay)
    assert outcome[1].asked == FUNCTIONS
    (found,) = answers(trace, never, None, replayed=FUNCTIONS)
    assert len(found.functions) > 1
    state = after(outcome[0], with_functions(trace, found))
    times = function_times(origins(trace), idle=find_idle_causes(trace))
    lines = format_functions(times, 0, 86, trace.report.format).split("\n")
    shown = laid_over(state)
    assert "my functions" in shown
    for line in lines[:4]:
        assert line.rstrip() in shown


def test_without_python_stacks_my_functions_says_what_records_them(
    trace_of: Callable[..., Trace], event: Callable[..., object]
) -> None:
    state = opened(trace_of([event("aten::mm", 0, 10)]))
    (found,) = answers(state.side.trace, never, None, replayed=FUNCTIONS)
    waiting = after(state, *do("my-functions"))
    there = after(waiting, with_functions(state.side.trace, found))
    assert "with_stack=True records functions" in laid_over(there)
