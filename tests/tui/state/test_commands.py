"""The commands after `:`: what a line means, and what it does."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tui.driving import opened as app_opened
from tests.tui.driving import screen, settled
from tests.tui.prepared import after, laid_over, opened

from fusetui.sample_traces import lessons
from fusetui.text.figures import NS_PER_UNIT, parse_time
from fusetui.trace import Trace, open_trace
from fusetui.tui.app import PromptInput
from fusetui.tui.layout.moves import over, show_time, zoom
from fusetui.tui.layout.view import Side, View
from fusetui.tui.pages import overlays
from fusetui.tui.state.commands import obeyed
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.state import TIMELINE, Chooser, Order, Read, Record, open_overlay


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (":goto  -3 us ", "the trace goes from"),
        ("step 4", "ProfilerStep#4, 2 of 2 steps"),
        ("mark a", "mark a is set"),
        ("mark a slow  step ", "mark a is set: slow  step"),
    ],
)
def test_command_lines_answer_with_their_hint(mlp: Trace, line: str, said: str) -> None:
    assert after(opened(mlp), partial(obeyed, line=line)).hint.startswith(said)


def test_open_diff_record_again_and_quit_return_their_effect(
    mlp: Trace, path: str
) -> None:
    state = replace(opened(mlp), paths=("first_12.json",))
    for line, effect in {
        f"open {path}": Read((path,)),
        f"diff {path}": Read(("first_12.json", path)),
        "record": Record(),
        "record 7": Record(7),
        "again": Record(12, ("first_12.json",)),
        "q": Order.QUIT,
    }.items():
        outcome = obeyed(state, line)
        assert isinstance(outcome, tuple)
        assert outcome[1] == effect


def test_a_program_that_is_chosen_is_recorded(mlp: Trace) -> None:
    """Beside the trace that is open, where that is asked for; `o` still offers the
    traces."""
    state = replace(opened(mlp), paths=("a.json",))
    programs = (Offer("train.py 7", (), "door open", pid=7),)
    choosing = open_overlay(state, Chooser(("door open",), programs))
    assert "Enter record" in laid_over(choosing)
    assert "train.py 7  door open" in laid_over(choosing)
    for outcome, beside in (
        (overlays.OVERLAYS.chosen(choosing, 0), ()),
        (overlays.beside(choosing), ("a.json",)),
    ):
        assert isinstance(outcome, tuple)
        assert outcome[1] == Record(7, beside)
        assert outcome[0].overlay is None
        assert outcome[0].offers == state.offers


@pytest.mark.parametrize(
    "line",
    [
        "record first",
        "again",
        ":",
        "go 3ms",
        "goto 3",
        "goto ms",
        "goto 1e3ms",
        "step",
        "step two",
        "mark ab",
        "open",
        "q x",
    ],
)
def test_wrong_commands_are_answered_with_the_right_form(mlp: Trace, line: str) -> None:
    state = opened(mlp)
    found = after(state, partial(obeyed, line=line))
    assert found.hint
    assert (found.session, found.reading) == (state.session, None)


def test_a_wrong_word_is_shown_escaped_and_cut(mlp: Trace) -> None:
    found = after(opened(mlp), partial(obeyed, line="\x1b[31m" + "x" * 99))
    assert found.hint.startswith(r"\x1b[31mxxx")
    assert len(found.hint) < 130


LESSON = opened(open_trace(str(lessons.path("mlp-eager"))))


@given(st.text())
def test_any_line_is_a_command_or_a_printable_sentence(line: str) -> None:
    outcome = obeyed(LESSON, line)
    assert isinstance(outcome, tuple) or outcome.hint.isprintable()


@given(
    st.integers(-(10**17), 10**17), st.sampled_from(sorted(NS_PER_UNIT)), st.booleans()
)
def test_a_time_is_read_to_the_last_digit(ns: int, unit: str, blank: bool) -> None:
    text = f"{Decimal(ns) / NS_PER_UNIT[unit]:f}{' ' * blank}{unit}"
    assert parse_time(text) == ns


def test_goto_keeps_the_zoom_and_from_the_whole_trace_shows_a_tenth(
    side: Side, view: View
) -> None:
    close = zoom(side, view, 1, 4)
    assert show_time(side, close, 700_000).span == close.span
    tenth = show_time(side, view, 700_000)
    assert tenth.span == view.span // 10
    assert (tenth.begin + tenth.end) // 2 == 700_000


def test_a_stretch_of_time_gets_a_little_around_it(side: Side, view: View) -> None:
    window = over(side, view, 200_000, 400_000)
    assert (window.begin, window.end) == (190_000, 410_000)


async def test_a_step_fills_the_window(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("2", "colon", *"step 4", "enter")
        view = app.state.view
        assert view.begin < 700_000 < view.end
        assert app.state.page == TIMELINE
        assert "ProfilerStep#4, 2 of 2 steps" in screen(app)
        await pilot.press("u")
        assert app.state.view.begin == 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("goto 3s", "the trace goes from 0 ns to 1.39 ms"),
        ("step 2", "this trace has the steps 3 to 4"),
        ("nonsense", "nonsense is not a command"),
        ("open /nowhere", "/nowhere does not exist"),
        ("diff /", "/ is a folder, not a trace"),
    ],
)
async def test_a_command_that_cannot_be_done_changes_nothing(
    path: str, line: str, sentence: str
) -> None:
    async with app_opened([path]) as (app, pilot):
        before = app.state.view
        app.do(partial(obeyed, line=line))
        await settled(app, pilot)
        assert sentence in screen(app)
        assert app.state.view == before


async def test_the_empty_line_shows_what_can_be_typed(path: str) -> None:
    async with app_opened([path], (80, 24)) as (app, pilot):
        await pilot.press("colon")
        last = screen(app).splitlines()[-1].strip()
        assert last == (
            "goto 9ms  step 2  mark a  only gpu  open FILE  diff FILE  save FILE  cut FILE"
        )


async def test_tab_completes_the_command(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("colon", "g")
        await settled(app, pilot)
        await pilot.press("tab", *"700us", "enter")
        view = app.state.view
        assert (view.begin + view.end) // 2 == 700_000


async def test_tab_completes_what_a_change_is_about(path: str) -> None:
    async with app_opened([str(lessons.path("mlp-eager"))]) as (app, pilot):
        for typed, whole in (
            ("kind:g", "kind:gemm x0.5"),
            ("op:aten::l", "op:aten::linear x0.5"),
        ):
            await pilot.press("colon", *f"whatif {typed}")
            await settled(app, pilot)
            await pilot.press("tab")
            assert app.query_one(PromptInput).value == f"whatif {whole}"
            await pilot.press("escape")


async def test_escape_closes_the_line_and_the_keys_work_again(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("colon", "q", "escape", "w")
        assert app.is_running
        assert app.state.view.begin > 0


async def test_another_trace_is_opened_beside(path: str) -> None:
    async with app_opened([path]) as (app, pilot):
        await pilot.press("colon", *"diff ")
        app.query_one(PromptInput).value = f"diff {path}"
        await pilot.press("enter")
        for _ in range(2):
            await settled(app, pilot)
        assert len(app.state.sides) == 2


async def test_a_file_that_is_no_trace_leaves_what_is_open(
    path: str, tmp_path: Path
) -> None:
    broken = tmp_path / "notes.txt"
    broken.write_text("no JSON at all")
    async with app_opened([path]) as (app, pilot):
        app.do(partial(obeyed, line=f"open {broken}"))
        for _ in range(2):
            await settled(app, pilot)
        assert app.is_running
        assert screen(app).splitlines()[1].startswith(" mlp   NVIDIA")
        assert "notes.txt" in screen(app).splitlines()[-1]


async def test_ctrl_z_suspends_the_app(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_opened([path]) as (app, pilot):
        pressed: list[str] = []
        monkeypatch.setattr(
            app, "action_suspend_process", lambda: pressed.append("ctrl+z")
        )
        await pilot.press("ctrl+z")
        assert pressed == ["ctrl+z"]
