"""Every page at the four sizes, with colors and without: what a person sees is looked
at in the diff of these files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cli.test_ranks import job
from tests.finding import find
from tests.tui.prepared import after, at, do, drawn, explained, line, opened

from fusetui.analysis.ranks.answer import explained as ranked
from fusetui.analysis.ranks.answer import make_strip
from fusetui.analysis.ranks.executors import summarize
from fusetui.analysis.replay.marks import compute_marks
from fusetui.analysis.replay.path import path
from fusetui.analysis.replay.whatif import whatif
from fusetui.report.why_answer import account_lines
from fusetui.sample_traces import lessons
from fusetui.trace import open_trace
from fusetui.tui import registry, screen_layout
from fusetui.tui.drawing.canvas import Click
from fusetui.tui.drawing.schemes import choose_glyphs
from fusetui.tui.layout.search_hits import group_hits
from fusetui.tui.pages import ranks
from fusetui.tui.pages.overlays import make_hits_picture
from fusetui.tui.pages.page import ListPage
from fusetui.tui.state import replays
from fusetui.tui.state.action import Run
from fusetui.tui.state.offers import find_job
from fusetui.tui.state.screen import overlay_size, page_size
from fusetui.tui.state.state import MARKS, ROWS, Size, State

Matches = Callable[[str, str], None]
SIZES = (Size(60, 18), Size(80, 24), Size(120, 35), Size(200, 50))


def with_path(state: State) -> State:
    """The critical path is marked."""
    marked, trace = after(state, *do("timeline", "path")), state.side.trace
    return replays.arrived(marked, trace, MARKS, compute_marks(trace))


def answered(asked: str) -> Run:
    """A replay, laid over the page."""

    def run(state: State) -> State:
        trace = state.side.trace
        found = path(trace) if asked == ROWS else whatif(trace, [asked])
        return after(
            replays.arrived(replace(state, replayed=asked), trace, asked, found)
        )

    return run


STEP, KERNEL = "ProfilerStep", "ampere"
SCREENS: dict[str, list[Run]] = {
    "timeline": do("timeline"),
    "timeline-slice": [*do("timeline"), at(KERNEL)],
    "timeline-gap": do("timeline", "next-gap"),
    "tree": do("tree", "turn", "row-down", "unfold"),
    "kernels": do("kernels"),
    "why": do("why"),
    "modules": do("modules"),
    "flame": do("flame"),
    "help": do("help"),
    "path": [with_path, at(KERNEL)],
    "path-rows": [answered("path")],
    "what-if": [answered("family:gemm x0.5")],
    "hits": [at(KERNEL), *do("next-alike", "hits")],
}


@pytest.fixture(scope="module")
def lesson() -> State:
    """A trace whose answer is known."""
    return explained(opened(open_trace(str(lessons.path("mlp-eager")))))


@pytest.fixture(scope="module")
def both() -> State:
    """The same, and a faster one, compared."""
    traces = (
        open_trace(str(lessons.path(name))) for name in ("mlp-eager", "mlp-compiled")
    )
    return explained(opened(*traces))


@pytest.fixture(scope="module")
def ranked_job(tmp_path_factory: pytest.TempPathFactory) -> State:
    """One rank of a job, all of which was read."""
    paths = tuple(sorted(map(str, job(Path(tmp_path_factory.mktemp("job"))).iterdir())))
    found = ranked(summarize(paths, cached=False))
    first = replace(opened(open_trace(paths[0]), paths=paths), job=find_job(paths))
    there = partial(
        ranks.known, paths=paths, answer=found.answer, strip=make_strip(found)
    )
    return after(first, *do("ranks"), there)


def resized(size: Size, colorless: bool) -> Run:
    return lambda state: replace(state, size=size, colorless=colorless)


def seen(state: State) -> str:
    """The lines of the screen, or those of what lies over it."""
    if state.overlay is None:
        return drawn(state)
    picture, box = (
        screen_layout.stack(screen_layout.overlay_panes(state)),
        overlay_size(state),
    )
    inner = Size(box.width - 2, box.height - 2)
    return "\n".join(line(picture, y, inner) for y in range(inner.height))


def compare(
    name: str, state: State, size: Size, steps: list[Run], matches: Matches
) -> None:
    for mode, colorless in (("", False), ("-colorless", True)):
        shown = seen(after(state, resized(size, colorless), *steps))
        lines = shown.split("\n")
        assert {len(line) for line in lines} <= {
            size.width,
            overlay_size(replace(state, size=size)).width - 2,
        }
        matches(f"pages/{name}-{size.width}x{size.height}{mode}", shown)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", SCREENS)
def test_every_page_of_a_trace_looks_as_kept(
    name: str, size: Size, lesson: State, matches_screen: Matches
) -> None:
    compare(name, lesson, size, SCREENS[name], matches_screen)


def test_critical_path_in_ascii_looks_as_kept(
    lesson: State, matches_screen: Matches
) -> None:
    plain = replace(lesson, ascii_only=True, size=SIZES[1])
    matches_screen("pages/path-80x24-ascii", seen(after(plain, with_path)))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_diff_of_two_lessons_looks_as_kept(
    size: Size, both: State, matches_screen: Matches
) -> None:
    compare("diff", both, size, do("diff"), matches_screen)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_ranks_of_a_job_look_as_kept(
    size: Size, ranked_job: State, matches_screen: Matches
) -> None:
    compare("ranks", ranked_job, size, do("ranks"), matches_screen)


def test_a_low_screen_shows_the_rows_of_the_diff(both: State) -> None:
    shown = drawn(after(both, resized(Size(60, 18), False), *do("diff")))
    assert "fused" in shown
    assert "GPU busy" not in shown


@pytest.mark.parametrize("page", ["tree", "kernels", "diff", "why", "modules"])
def test_every_list_can_be_used_on_a_low_screen(page: str, both: State) -> None:
    """Its cursor is in sight from the first row to the last, with the keys below."""
    state = after(both, resized(Size(60, 18), False), *do(page))
    for move in ("first", "row-down", "rows-down", "last", "row-up"):
        state = after(state, *do(move))
        lines = drawn(state).splitlines()
        assert len([line for line in lines if line.startswith(">")]) == 1
        assert lines[-1].startswith(" ? help")
        listed = registry.BY_NAME[page]
        assert isinstance(listed, ListPage)
        assert listed.room(state, page_size(state)) >= 2


def test_the_timelines_of_the_diff_say_why_the_gpu_was_idle(both: State) -> None:
    lines = drawn(after(both, resized(Size(200, 50), False), *do("diff"))).splitlines()
    idle = [line for line in lines if line.startswith("idle reason")]
    assert len(idle) == 2
    assert all("CPU op" in line or "ooo" in line for line in idle)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_no_hint_is_cut(size: Size, lesson: State) -> None:
    last = drawn(after(lesson, resized(size, False), *do("next-gap"))).splitlines()[-1]
    shown = tuple(last.strip().split("   "))
    hints = ("gap 1 of the 14 longest", "e the next longest", "E back", "u undo")
    assert shown == hints[: len(shown)]


def test_the_help_needs_no_width(lesson: State) -> None:
    shown = seen(after(lesson, resized(Size(60, 18), False), *do("help")))
    assert "around the selection" in shown


def test_no_figure_of_the_account_is_cut(lesson: State) -> None:
    found = lesson.side.insight.answer
    assert found is not None
    whole_lines, narrow_lines = (
        account_lines(found.why, 200),
        account_lines(found.why, 60),
    )
    assert max(map(len, whole_lines)) > 60 >= max(map(len, narrow_lines))
    for full, cut in zip(whole_lines, narrow_lines, strict=True):
        assert cut.split()[-2:] == full.split()[-2:]


def test_a_finding_that_does_not_fit_says_so(lesson: State) -> None:
    lines = drawn(after(lesson, resized(Size(60, 18), False), *do("why"))).splitlines()
    assert lines[-2].rstrip().endswith("…")


def test_all_about_a_gap_is_shown_where_there_is_room(lesson: State) -> None:
    shown = drawn(after(lesson, resized(Size(80, 60), False), *do("next-gap")))
    for text in (
        "after gemm bf16 128x256x64 tn sm80 s3",
        "before gemm bf16 128x128x32 tn sm80 s5",
    ):
        assert text in shown


def test_a_name_that_is_cut_shows_it(lesson: State) -> None:
    searched = group_hits(lesson.side.trace, "gemm", find(lesson.side.trace, "gemm"))
    picture = make_hits_picture(searched, choose_glyphs(False))
    shown = "".join(text for text, _ in picture.line(2, 50, 7))
    assert shown.endswith("…")
    assert len(shown) == 50


@pytest.mark.parametrize("width", [40, 60, 68, 80])
def test_every_page_is_in_the_bar(width: int, lesson: State) -> None:
    """By its key alone where there is little room; a click there brings it to the
    front."""
    state = after(lesson, resized(Size(width, 30), False), *do("modules"))
    bar = drawn(state).splitlines()[0]
    assert "6 Modules" in bar
    assert bar.rstrip()[-1] in ("8", "e")
    clicked = after(
        state, lambda now: screen_layout.moused(now, 0, Click(bar.rindex("8")))
    )
    assert clicked.page == "flame"


def test_a_reason_that_does_not_fit_says_so(both: State) -> None:
    low = drawn(after(both, resized(Size(60, 18), False), *do("diff"))).splitlines()
    assert low[-2].rstrip().endswith("…")
    high = drawn(after(both, resized(Size(60, 50), False), *do("diff")))
    assert "may stay in registers" in " ".join(high.split())
