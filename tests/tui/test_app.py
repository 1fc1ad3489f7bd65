"""The main ways through the app, driven by keys alone, and what the screen then looks
like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.tui.conftest import mlp_events
from tests.tui.driving import LARGE, SMALL, opened, screen, selected, settled
from textual.css.query import NoMatches
from textual.events import Key
from textual.widgets import OptionList

from fusetui.trace import CannotReadError
from fusetui.trace.model.report import never
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.loading import compare
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.reading import compare_again
from fusetui.tui.state.state import DIFF, TIMELINE, Compare, State

Write = Callable[[str], Path]

Matches = Callable[[str, str], None]


async def test_bracket_keys_go_from_launch_to_kernel_and_back(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"gelu", "enter", "right_square_bracket")
        assert "GeluCUDAKernelImpl" in selected(app)
        await pilot.press("left_square_bracket")
        assert selected(app) == "cudaLaunchKernel"
        await pilot.press("left_square_bracket")
        assert selected(app) == "aten::gelu"


async def test_search_goes_through_the_hits(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"linear", "enter", "n", "n")
        assert "3 of 4: linear" in screen(app)
        await pilot.press("N", "N", "N")
        assert "4 of 4: linear" in screen(app)


async def test_a_search_is_seen_in_the_last_line_while_it_is_typed(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"gel")
        assert screen(app).splitlines()[-1].strip() == "gel"


async def test_a_search_without_a_hit_says_so(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"nowhere", "enter")
        assert "nothing found for nowhere" in screen(app)


async def test_a_kernel_of_the_table_is_shown_in_the_timeline(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("3", "j", "enter")
        assert "GeluCUDAKernelImpl" in selected(app)
        assert app.state.page == TIMELINE


async def test_undo_brings_back_the_view_before(path: str) -> None:
    async with opened([path]) as (app, pilot):
        before = app.state.view
        await pilot.press("w", "d", "u", "u")
        assert app.state.view == before
        await pilot.press("ctrl+r")
        assert app.state.view.span == before.span // 2


async def test_keys_that_come_at_once_are_all_obeyed(path: str) -> None:
    async with opened([path]) as (app, pilot):
        whole = app.state.view.span
        for _ in range(4):
            app.post_message(Key("w", "w"))
        await pilot.pause()
        assert app.state.view.span == whole // 16


async def test_two_traces_move_in_one_window(path: str) -> None:
    async with opened([path, path]) as (app, pilot):
        await pilot.press("1", "w", "d")
        windows = {(view.begin, view.end) for view in app.state.session.views}
        assert len(windows) == 1


async def test_two_traces_can_move_apart(path: str) -> None:
    async with opened([path, path]) as (app, pilot):
        await pilot.press("1", "b", "w")
        first, second = app.state.session.views
        assert first.span == second.span // 2
        await pilot.press("b", "w")
        first, second = app.state.session.views
        assert first.span == second.span


async def test_a_folder_of_ranks_is_a_list_to_choose_from(path: str) -> None:
    app = FusetuiApp(AppOptions((path, path), opened=0))
    async with app.run_test(size=SMALL) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("j")
        assert ">mlp.json  NVIDIA A100-SXM4-80GB   2 steps" in screen(app)
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert len(app.state.sides) == 1


async def test_another_trace_is_opened_beside_the_first(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("o", "b")
        for _ in range(2):
            await app.workers.wait_for_complete()
            await pilot.pause()
        assert len(app.state.sides) == 2
        assert app.state.page == DIFF


async def test_a_file_that_is_no_trace_ends_with_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "notes.txt"
    broken.write_text("no JSON at all")
    app = FusetuiApp(AppOptions((str(broken),)))
    async with app.run_test() as pilot:
        while app.is_running and app.return_value is None:
            await pilot.pause(0.01)
    assert app.return_value == 2
    with pytest.raises(CannotReadError, match=r"notes\.txt"):
        app.outcome()


@pytest.mark.parametrize(
    "keys", [[], ["colon"], ["question_mark"], ["m"], ["o"], ["ctrl+p"]]
)
async def test_control_c_quits_from_anywhere(path: str, keys: list[str]) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press(*keys, "ctrl+c")
    assert app.outcome() == 130


async def test_a_bug_is_raised_when_the_app_has_ended(path: str) -> None:
    app = FusetuiApp(AppOptions((path,)))

    async def ran() -> None:
        async with app.run_test() as pilot:
            app.call_later(lambda: 1 // 0)
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await ran()
    with pytest.raises(ZeroDivisionError):
        app.outcome()


async def test_a_part_of_the_screen_that_is_gone_is_no_bug_once_the_app_ends(
    path: str,
) -> None:
    """As of the palette, which still looks for commands when the terminal is closed."""
    app = FusetuiApp(AppOptions((path,)))
    async with app.run_test():
        app.exit(129)
        app._handle_exception(NoMatches("CommandList"))
    assert app.outcome() == 129


async def test_a_palette_that_was_given_no_room_yet_is_not_paged(path: str) -> None:
    """As when PageDown follows Ctrl+p at once."""
    async with opened([path]) as (app, pilot):
        await pilot.press("ctrl+p")
        found = app.screen.query_one(OptionList)
        found.styles.max_height = 0
        await pilot.pause()
        found.clear_options().add_option("one")
        await pilot.press("pagedown", "pageup", "escape")
        assert app.is_running


async def test_kernel_without_a_name_is_shown_as_no_name(
    launched: Callable[..., list[dict[str, object]]], write: Write
) -> None:
    file = write(json.dumps(launched(1, 0, 10, name="")))
    async with opened([str(file)]) as (app, pilot):
        await pilot.press("j", "right_square_bracket")
        assert "(no name)   10 us" in screen(app)
        await pilot.press("i", "escape", "3")
        await pilot.pause()
        assert "(no name)   10 us" in screen(app)


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_timeline_page_looks_as_kept(
    path: str, size: tuple[int, int], matches_screen: Matches
) -> None:
    async with opened([path], size) as (app, pilot):
        await pilot.press("slash", *"gemm", "enter")
        matches_screen(f"timeline-{size[0]}x{size[1]}", screen(app))


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_kernels_page_looks_as_kept(
    path: str, size: tuple[int, int], matches_screen: Matches
) -> None:
    async with opened([path], size) as (app, pilot):
        await pilot.press("3")
        await pilot.pause()
        matches_screen(f"kernels-{size[0]}x{size[1]}", screen(app))


async def test_op_tree_page_looks_as_kept(path: str, matches_screen: Matches) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("2", "j", "space", "j", "space")
        matches_screen("tree-100x30", screen(app))


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_diff_page_looks_as_kept(
    path: str, size: tuple[int, int], matches_screen: Matches
) -> None:
    async with opened([path, path], size) as (app, pilot):
        await pilot.pause()
        matches_screen(f"diff-{size[0]}x{size[1]}", screen(app))


async def test_keys_overlay_looks_as_kept(path: str, matches_screen: Matches) -> None:
    async with opened([path], (100, 94)) as (app, pilot):
        await pilot.press("question_mark")
        await pilot.pause()
        matches_screen("keys-100x94", screen(app))


async def test_details_overlay_looks_as_kept(
    path: str, matches_screen: Matches
) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("slash", *"gemm", "enter", "i")
        await pilot.pause()
        matches_screen("details-100x30", screen(app))


async def test_the_size_of_the_terminal_may_change(path: str) -> None:
    """Every line is then that of an app that was opened with this size."""
    async with opened([path], LARGE) as (app, pilot):
        for size in ((20, 5), (300, 80), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        resized = screen(app)
    async with opened([path], (80, 24)) as (app, _):
        assert resized == screen(app)


async def test_a_terminal_that_is_too_small_is_told_so(path: str) -> None:
    async with opened([path], (30, 8)) as (app, pilot):
        said = " ".join(screen(app).split())
        assert said == "fusetui needs 40 columns and 10 lines; this terminal has 30x8."
        await pilot.resize_terminal(40, 10)
        await pilot.pause()
        assert "GPU busy" in screen(app)


@pytest.mark.parametrize("height", [1, 2, 3, 4])
async def test_the_palette_of_a_terminal_that_is_too_small(
    path: str, height: int
) -> None:
    """Its list has no line there."""
    async with opened([path], (80, height)) as (app, pilot):
        await pilot.press("ctrl+p", *"why")
        await pilot.pause()
        await pilot.press("down", "pagedown", "pageup", "escape")
        await pilot.resize_terminal(*SMALL)
        await pilot.pause()
        assert "GPU busy" in screen(app)


@pytest.mark.parametrize("key", ["question_mark", "i"])
async def test_an_overlay_gives_way_to_the_sentence_of_a_terminal_too_small(
    path: str, key: str
) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("j", key)
        before = screen(app)
        await pilot.resize_terminal(30, 9)
        await pilot.pause()
        assert "fusetui needs 40 columns" in " ".join(screen(app).split())
        await pilot.resize_terminal(*SMALL)
        await pilot.pause()
        assert screen(app) == before


async def test_nothing_is_left_of_a_diff_that_is_made_anew(
    path: str, tmp_path: Path
) -> None:
    """Its lines are of the traces as they were; a key may still be on its way to
    them."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps(mlp_events(3)))
    async with opened([path, str(other)]) as (app, pilot):
        app.do(lambda state: cast(tuple[State, Compare], compare_again(state))[0])
        await pilot.press("enter")
        assert app.state.page == DIFF
        assert "Comparing A and B" in screen(app)
        await pilot.press("y")
        assert "the list is being computed; then: Enter y" in screen(app)


async def test_a_diff_of_other_sides_is_dropped(path: str, tmp_path: Path) -> None:
    """It was under way when they were swapped: its rows are those of the other side."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps(mlp_events(40)))
    async with opened([path, str(other)]) as (app, pilot):
        a, b = app.state.sides
        posted: list[Any] = []
        compare(Compare(a, b, app.state.paths), posted.append, never)
        await pilot.press("x")
        await settled(app, pilot)
        before = app.state
        app.do(posted[0])
        assert app.state is before


async def test_swapping_makes_b_the_first(path: str, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"traceEvents": mlp_events(1)}))
    async with opened([path, str(other)]) as (app, pilot):
        await pilot.press("x")
        for _ in range(2):
            await app.workers.wait_for_complete()
            await pilot.pause()
        assert screen(app).splitlines()[1].startswith(" A other")
        assert any(line.startswith("A other") for line in screen(app).splitlines()[3:9])


@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"ph": "X", "name": "alone", "ts": 5, "dur": 0}],
        [
            {"ph": "X", "name": f"[bold]{n}\x1b[31m", "ts": n, "dur": 9, "tid": n}
            for n in range(60)
        ],
    ],
    ids=["no events", "one empty slice", "hostile names on many lanes"],
)
async def test_no_key_crashes_on_an_odd_trace(
    tmp_path: Path, events: list[dict[str, object]]
) -> None:
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"traceEvents": events}))
    async with opened([str(file)], (80, 24)) as (app, pilot):
        await pilot.press(*"jJkwzGfu i", "escape", ".", ",", "]", "[")
        for page in ("2", "3", "4"):
            await pilot.press(page, "j", "y", "space", "enter")
        await pilot.press(
            "1", "v", "j", "v", "i", "escape", "y", *"ma", "apostrophe", "a", "escape"
        )
        await pilot.press("colon", *"goto 5us", "enter", "colon", *"step 1", "enter")
        await pilot.press("1", "slash", *"1", "enter", "n", "N", "escape")
        assert app.is_running
        assert "\x1b" not in screen(app)


async def test_a_run_that_is_chosen_opens_two_of_its_variants(path: str) -> None:
    run = Offer("runs/demo/", (path, path, path), "run: a, b, c")
    app = FusetuiApp(AppOptions((), opened=0, offers=(run,)))
    async with app.run_test(size=SMALL) as pilot:
        await settled(app, pilot)
        assert "runs/demo/" in screen(app)
        assert "run: a, b, c" in screen(app)
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.state.paths == (path, path)


async def test_the_tutor_that_is_chosen_starts_the_tour(path: str) -> None:
    app = FusetuiApp(
        AppOptions((), opened=0, offers=(Offer("tutor", (path,), "a tour", True),))
    )
    async with app.run_test(size=SMALL) as pilot:
        await settled(app, pilot)
        await pilot.press("enter")
        await settled(app, pilot)
        assert app.state.tour == 0
