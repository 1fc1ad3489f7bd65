"""The guided tour: what each step takes as done, and that it can be finished."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.tui.driving import screen, settled
from tests.tui.prepared import after, at, do, drawn, explained, opened

from fusetui.sample_traces import lessons
from fusetui.trace import Trace, open_trace
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.layout.text_layout import wrap_marked_text
from fusetui.tui.registry import action_for
from fusetui.tui.state.action import with_keys
from fusetui.tui.state.state import State
from fusetui.tui.state.tour import LESSONS, STEPS, TourStep

PATHS = tuple(str(lessons.path(name)) for name in LESSONS)
NUMBERS = {step.title: number for number, step in enumerate(STEPS)}


@pytest.fixture(scope="module")
def lesson() -> Trace:
    return open_trace(PATHS[0])


def toured(lesson: Trace, title: str, *kept: str) -> State:
    """The lesson open, with the tour at a step; `kept`: actions that were carried out
    before."""
    state = after(explained(opened(lesson)), *do(*kept))
    return replace(state, tour=NUMBERS[title])


@pytest.mark.parametrize(
    ("title", "before", "other", "wanted"),
    [
        ("Zoom", [], "zoom-out", ["zoom-in", "zoom-in"]),
        ("Walk through the lanes", [], "lane-down", ["lane-down"] * 5),
        ("The module", [], "tree", ["modules", "row-down"]),
        ("The longest gaps", [], "next-gap", ["next-gap", "next-gap"]),
        ("The tree", [], "modules", ["tree", "row-down"]),
        ("The kernels", [], "kernels", ["kernels", "show", "next-hit"]),
        ("Copy", ["down"], "down", ["copy"]),
    ],
)
def test_a_step_of_the_tour_is_done_by_its_own_key_alone(
    lesson: Trace, title: str, before: list[str], other: str, wanted: list[str]
) -> None:
    state = toured(lesson, title, *before)
    assert not after(state, *do(other)).is_tour_step_done
    done = after(state, *do(*wanted))
    assert done.is_tour_step_done
    assert done.tour == NUMBERS[title]
    assert after(done, *do("skip")).tour == NUMBERS[title] + 1


def test_tour_step_takes_the_kernel_of_another_launch(lesson: Trace) -> None:
    state = toured(lesson, "From kernel to kernel")
    at_kernel = after(state, at("ampere"))
    assert not at_kernel.is_tour_step_done
    assert not after(at_kernel, *do("to-launch")).is_tour_step_done
    assert after(at_kernel, *do("next")).is_tour_step_done


def test_details_are_read_when_they_are_closed(lesson: Trace) -> None:
    state = after(toured(lesson, "Read a kernel name"), at("ampere"), *do("details"))
    assert not state.is_tour_step_done
    assert after(state, *do("close")).is_tour_step_done


def test_the_call_is_on_the_way_to_the_op(lesson: Trace) -> None:
    at_call = after(
        toured(lesson, "Where a kernel comes from"), at("ampere"), *do("to-launch")
    )
    assert not at_call.is_tour_step_done
    assert after(at_call, *do("to-launch")).is_tour_step_done


@pytest.mark.parametrize("title", [step.title for step in STEPS[:-1]])
def test_a_step_that_is_done_can_still_be_read(lesson: Trace, title: str) -> None:
    """Until the user goes on, however many keys are pressed."""
    state = replace(toured(lesson, title), is_tour_step_done=True)
    for _ in range(3):
        state = after(state, *do("zoom-in", "lane-down", "modules", "tree", "timeline"))
    assert state.tour == NUMBERS[title]
    assert f"{title} " in drawn(state)
    assert "done: > next" in drawn(state)


def test_a_step_that_was_gone_back_to_stays(lesson: Trace) -> None:
    """Also where what it asks for is on the screen already."""
    state = after(toured(lesson, "Zoom"), *do("zoom-in", "zoom-in", "skip", "back"))
    assert state.tour == NUMBERS["Zoom"]
    assert not state.is_tour_step_done


def test_a_step_can_be_skipped_and_read_again(lesson: Trace) -> None:
    state = toured(lesson, "Zoom")
    assert after(state, *do("back")).tour == 0
    assert after(state, *do("skip", "skip", "back")).tour == 1
    assert after(state, *do(*["skip"] * 99)).tour == len(STEPS) - 1


@pytest.mark.parametrize("page", ["timeline", "kernels", "modules", "tree"])
def test_the_keys_of_the_tour_are_its_own_on_every_page(
    lesson: Trace, page: str
) -> None:
    state = after(toured(lesson, "Zoom"), *do(page))
    chosen = [action_for(key, state) for key in ("greater_than_sign", "less_than_sign")]
    assert [action and action.name for action in chosen] == ["skip", "back"]


def test_who_skips_the_second_trace_is_not_asked_to_read_a_diff(lesson: Trace) -> None:
    state = toured(lesson, "Side by side")
    assert after(state, *do("skip")).tour == NUMBERS["Search"]


def test_without_the_tour_its_keys_are_free(lesson: Trace) -> None:
    state = opened(lesson)
    assert after(state, *do("zoom-in", "zoom-in")).tour is None
    assert f"{len(STEPS)}: {STEPS[0].title}" not in drawn(state)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.title)
def test_keys_are_not_broken_over_two_lines(step: TourStep) -> None:
    for width in (40, 78, 118):
        assert all(
            line.count("`") % 2 == 0
            for line in wrap_marked_text(with_keys(step.text, State()), width)
        )


async def test_a_list_over_the_page_does_not_cover_what_is_asked() -> None:
    app = FusetuiApp(AppOptions(PATHS, opened=1, tour=True))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(app, pilot)
        app.do(lambda state: replace(state, tour=NUMBERS["Side by side"]))
        await pilot.press("o")
        assert "Enter open " in screen(app)
        assert "press o for the list of traces" in " ".join(screen(app).lower().split())


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_tour_can_be_finished_by_its_keys(size: tuple[int, int]) -> None:
    """Each step by the keys that it names; what it asks is on the screen."""
    app = FusetuiApp(AppOptions(PATHS, opened=1, tour=True))
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        for number, step in enumerate(STEPS):
            assert app.state.tour == number
            for line in wrap_marked_text(with_keys(step.text, State()), size[0] - 2):
                assert line.replace("`", "") in screen(app)
            await pilot.press(*step.keys)
            await settled(app, pilot)
            await settled(app, pilot)
            if number + 1 < len(STEPS):
                assert app.state.is_tour_step_done
                await pilot.press("greater_than_sign")
    assert app.return_value == 0
