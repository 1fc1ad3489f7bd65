"""Keys of every page act over what lies over it too, and a key that does nothing says
so; what is typed or pasted into a line never runs as keys."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace
from tests.cases import Cases
from tests.tui.driving import opened as running
from tests.tui.driving import screen
from tests.tui.prepared import after, at, do, drawn, explained, laid_over, opened
from tests.tui.test_palette import pressed_at_once
from textual.events import Paste
from textual.pilot import Pilot

from fusetui.trace import Trace
from fusetui.tui import screen_layout
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.pages import overlays
from fusetui.tui.pages.page import Page
from fusetui.tui.palette import Palette
from fusetui.tui.registry import ACTIONS, PAGES, action_for, help_sections, unused
from fusetui.tui.state import search
from fusetui.tui.state.action import Run, action_applies, perform
from fusetui.tui.state.state import Help, HitList, Prompt, Size, State

LINEAR = at("aten::linear")
OVER: dict[str, list[Run]] = {
    "help": do("help"),
    "details": [LINEAR, *do("details")],
    "hits": [partial(search.searched, text="linear"), *do("hits")],
    "steps": do("steps"),
    "choose": do("choose"),
}


def pressed(state: State, key: str) -> State:
    """After a key of the registry."""
    action = action_for(key, state)
    assert action is not None, key
    return after(state, partial(perform, action))


async def obeyed(app: FusetuiApp, pilot: Pilot[int], value: str | None = None) -> None:
    """Until keys that were sent at once are done with; `value`: of the line, if it is
    open then."""
    for _ in range(200):
        await pilot.pause(0.01)
        is_open = app.state.prompt is not None
        shown = app._page.input.value if is_open else None
        if not app._early and shown == value:
            return


@pytest.mark.parametrize("over", OVER)
def test_what_lies_over_a_page_takes_the_keys_of_all_pages(
    mlp: Trace, over: str
) -> None:
    state = after(opened(mlp, paths=("a.json", "b.json")), *OVER[over])
    assert state.overlay is not None
    kernels = pressed(state, "3")
    assert (kernels.page, kernels.overlay) == ("kernels", None)
    command = pressed(state, "colon")
    kept = state.overlay if isinstance(state.overlay, HitList) else None
    assert (command.prompt, command.overlay) == (Prompt.COMMAND, kept)
    narrowing = pressed(state, "slash")
    expected = Prompt.FILTER if over == "help" else Prompt.SEARCH
    assert narrowing.prompt is expected


def test_a_page_that_cannot_be_shown_leaves_what_lies_over(mlp: Trace) -> None:
    listed = after(opened(mlp), *OVER["hits"])
    state = pressed(listed, "4")
    assert state.overlay is listed.overlay
    assert "Diff needs two" in state.hint


@pytest.mark.parametrize("over", [name for name in OVER if name != "help"])
def test_the_keys_lead_back_to_what_they_were_asked_over(mlp: Trace, over: str) -> None:
    state = after(opened(mlp, paths=("a.json", "b.json")), *OVER[over])
    state = after(state, *do("row-down"))
    keys = pressed(state, "question_mark")
    assert isinstance(keys.overlay, Help)
    for back in ("question_mark", "escape"):
        again = pressed(keys, back)
        assert again.overlay is state.overlay
        assert again.list_of("overlay").cursor == state.list_of("overlay").cursor


def test_help_begins_with_the_keys_that_act_here(mlp: Trace) -> None:
    state = explained(opened(mlp, paths=("a.json",)))
    first_sections = {
        "timeline": "In the timeline",
        "kernels": "In the kernels",
        "why": "In the lists",
        "modules": "In the modules",
        "flame": "In the flame graph",
    }
    with Cases() as cases:
        for page, section in first_sections.items():
            with cases.case(page):
                there = after(state, *do(page))
                assert next(help_sections(there))[0] == section
    hits = after(state, *OVER["hits"])
    assert next(help_sections(hits))[0] == "In the lists"


def test_help_is_narrowed_by_words(mlp: Trace) -> None:
    state = after(opened(mlp), *do("help"))
    narrowed = after(state, partial(overlays.narrowed, words="HALF slice"))
    lines = [line.strip() for line in laid_over(narrowed).splitlines() if line.strip()]
    assert lines[0].startswith("help: HALF slice")
    assert lines[1] == ">In the timeline"
    assert "Zoom to the slice" in lines[2]
    assert len(lines) == 3
    nothing = after(state, partial(overlays.narrowed, words="zoom zebra"))
    assert "no key and no word match" in laid_over(nothing)
    hostile = after(state, partial(overlays.narrowed, words="\x1b[31m"))
    assert "\x1b" not in laid_over(hostile)


async def test_help_is_narrowed_while_one_types(path: str) -> None:
    async with running([path]) as (app, pilot):
        await pilot.press("question_mark", "slash", *"whole")
        await pilot.pause()
        assert "Whole trace" in screen(app)
        assert "Pan left" not in screen(app)
        await pilot.press("enter")
        assert app.state.prompt is None
        assert "Pan left" not in screen(app)
        await pilot.press("slash", "escape")
        await pilot.pause()
        assert "Pan left" in screen(app)


def test_a_key_that_does_nothing_says_where_it_does(mlp: Trace) -> None:
    state = after(opened(mlp), *do("kernels"))
    sentences = {
        "z": "z does nothing on page 3; in the timeline, page 1: zoom to the slice",
        "Q": "Q does nothing; ? shows all keys",
    }
    with Cases() as cases:
        for key, sentence in sentences.items():
            with cases.case(key):
                assert action_for(key, state) is None
                assert unused(key, key, state).hint == sentence
    assert "? shows all keys" in drawn(unused("Q", "Q", state)).splitlines()[-1]


def test_what_cannot_be_undone_says_so(mlp: Trace) -> None:
    state = opened(mlp)
    assert pressed(state, "u").hint == "nothing to undo"
    assert pressed(state, "ctrl+r").hint == "nothing to redo"
    moved = after(state, *do("zoom-in", "undo"))
    assert moved.hint == ""
    assert pressed(moved, "ctrl+r").hint == ""


async def test_a_line_that_lost_its_focus_is_left(path: str) -> None:
    async with running([path]) as (app, pilot):
        for key in ("escape", "enter"):
            await pilot.press("colon", "q")
            app.screen.set_focus(None)
            await pilot.press(key, "3", "1")
            assert app.is_running
            assert app.state.prompt is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_sentence_about_a_key_fits_on_its_line(mlp: Trace, page: Page) -> None:
    state = opened(mlp, size=Size(120, 30))
    there = replace(state, page=page.name)
    for name in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
        if action_for(name, there) is None:
            assert len(unused(name, name, there).hint) < 120, name


async def test_the_sentence_is_seen_below_what_lies_over(path: str) -> None:
    async with running([path], (80, 24)) as (app, pilot):
        await pilot.press("question_mark", "Q")
        await pilot.pause()
        assert screen(app).splitlines()[-1].strip().startswith("Q does nothing")
        await pilot.press("j")
        await pilot.pause()
        assert not screen(app).splitlines()[-1].strip()


async def test_keys_after_a_command_act_on_what_it_made(path: str) -> None:
    """All of them arrive at once, as from a paste."""
    async with running([path]) as (app, pilot):
        pressed_at_once(app, "colon", *"step 4", "enter", "3", "j")
        await obeyed(app, pilot)
        assert (app.state.page, app.state.list_of("kernels").cursor) == ("kernels", 1)
        assert app.state.prompt is None
        view = app.state.view
        assert view.span < app.state.side.end - app.state.side.begin


@pytest.mark.parametrize("over", [(), ("T",), ("question_mark",)])
async def test_a_command_typed_at_once_runs_no_key(
    path: str, over: tuple[str, ...]
) -> None:
    """Also where the line closes what lies over the page."""
    async with running([path]) as (app, pilot):
        await pilot.press("slash", *"linear", "enter", *over)
        before = app.state.view
        pressed_at_once(app, "colon", *"wwqq3", "escape")
        await obeyed(app, pilot)
        assert app.is_running
        assert app.state.prompt is None
        assert app.state.view == before
        assert app.state.page == "timeline"


async def test_of_a_line_that_is_left_nothing_is_typed_into_the_next(path: str) -> None:
    async with running([path]) as (app, pilot):
        pressed_at_once(app, "slash", *"gelu", "escape", "colon", "q", "3")
        await obeyed(app, pilot, value="q3")
        assert app.state.prompt is Prompt.COMMAND
        assert app._page.input.value == "q3"


async def test_a_paste_is_no_key(path: str) -> None:
    async with running([path]) as (app, pilot):
        before = app.state.view
        await app.on_event(Paste("wq\n3"))
        await pilot.pause()
        assert app.is_running
        assert (app.state.view, app.state.page) == (before, "timeline")
        assert "you can paste text only into" in screen(app).splitlines()[-1]


async def test_a_paste_into_a_line_stays_there(path: str) -> None:
    """Its first line alone, which is not obeyed before Enter."""
    async with running([path]) as (app, pilot):
        await pilot.press("colon")
        await app.on_event(Paste("step 4\nq\n\x1b[31m"))
        await pilot.pause()
        assert app.state.prompt is Prompt.COMMAND
        assert app._page.input.value == "step 4"
        assert app.is_running


async def test_more_of_a_trace_is_not_mixed_with_an_old_list(mlp: Trace) -> None:
    """The keys lie over a list of hits while the rest of the trace arrives."""
    state = after(opened(mlp), *OVER["hits"], *do("help"))
    assert isinstance(state.overlay, Help)
    assert isinstance(state.overlay.before, HitList)
    now = after(state, partial(search.again, state))
    assert isinstance(now.overlay, Help)
    assert now.overlay.before is None


def test_panes_of_what_lies_over_have_no_hint_of_the_page(mlp: Trace) -> None:
    state = after(opened(mlp), *do("help"))
    assert screen_layout.make_overlay_hint(state).line(0, 80, 1) == ()


FOR_A_WHILE = {"stop", "recorded", "into-answer"}
"""Actions that take a key from another one as long as they are there, and say so."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_key_is_taken_twice(mlp: Trace, page: Page) -> None:
    """A page may give a key that acts everywhere another meaning; two actions of one
    section never have one key."""
    state = explained(opened(mlp, mlp))
    for place in (state, after(state, *OVER["hits"]), after(state, *do("help"))):
        there = replace(place, page=page.name)
        name_of_key: dict[tuple[str, str], str] = {}
        for action in ACTIONS:
            if not action_applies(action, there) or action.name in FOR_A_WHILE:
                continue
            for key in action.keys:
                name = name_of_key.setdefault((action.section, key), action.name)
                assert name == action.name, key


@pytest.mark.parametrize("key", ["I", "ctrl+p"])
def test_the_keys_of_reset_and_palette_are_theirs_alone(key: str) -> None:
    assert len([action for action in ACTIONS if key in action.keys]) == 1


async def test_the_palette_is_named_and_opens(path: str) -> None:
    async with running([path], (80, 24)) as (app, pilot):
        assert "Ctrl+p palette" in screen(app).splitlines()[-1]
        await pilot.press("question_mark", "slash", *"palette")
        await pilot.pause()
        assert "all commands by name" in " ".join(screen(app).split())
        await pilot.press("escape", "escape", "ctrl+p", *"whole")
        await pilot.pause(0.3)
        assert isinstance(app.screen, Palette)
        assert "Whole trace" in screen(app)
        assert "every command" not in screen(app)


async def test_the_palette_has_the_key_of_the_user(path: str) -> None:
    app = FusetuiApp(AppOptions((path,), keymap={"palette": ("f2",)}))
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "F2 palette" in screen(app).splitlines()[-1]
        await pilot.press("f2")
        assert isinstance(app.screen, Palette)
