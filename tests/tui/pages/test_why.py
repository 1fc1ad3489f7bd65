"""The why page: the answer, and rows that lead to the evidence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from tests.hostile import WORST, obeyed
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, laid_over, opened

from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import list_considerable
from fusetui.report.why_answer import answer, format_brief_answer
from fusetui.trace import Trace
from fusetui.trace.model.memo import keep_result
from fusetui.trace.model.report import never
from fusetui.tui.background_results import compute_pieces
from fusetui.tui.layout.answer import WORTH, Insight
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.pages.why import WhyPage, list_entries
from fusetui.tui.state import reading
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import TIMELINE, Details, Size, State

Make = Callable[..., Trace]
SIZES = [Size(80, 24), Size(120, 35)]


@pytest.fixture
def waiting(trace_of: Make) -> Trace:
    """A trace whose GPU waits for a data loader."""
    return trace_of(training())


def hits_of(state: State) -> Hits:
    assert state.session.hits is not None
    return state.session.hits


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size.width}x{size.height}")
def test_why_page_looks_as_kept(
    waiting: Trace, size: Size, matches_screen: Callable[[str, str], None]
) -> None:
    state = after(opened(waiting, size=size), explained, *do("why"))
    matches_screen(f"why-{size.width}x{size.height}", drawn(state))


def test_why_page_takes_keys_before_the_answer(waiting: Trace) -> None:
    state = after(opened(waiting), *do("why"))
    assert "Computing" in drawn(state)
    assert after(state, *do("row-down", "show")).page == "why"
    assert "for the data loader" in drawn(after(state, explained))


def test_all_of_a_finding_without_evidence_is_read_over_the_page(
    waiting: Trace,
) -> None:
    state = after(opened(waiting, size=Size(80, 24)), explained, *do("why"))
    answer = with_worth(waiting, why(waiting))
    finding = replace(answer.findings[0], evidence=())
    keep_result(waiting, WORTH, replace(answer, findings=(finding,)))
    overlay = after(state, *do("details")).overlay
    assert isinstance(overlay, OverlayLines)
    assert overlay.lines[0] == finding.text
    assert overlay.lines[-1] == f"Try: {finding.try_}"


@pytest.mark.parametrize("size", [Size(60, 18), Size(80, 24)], ids=str)
def test_all_of_a_finding_is_read_above_its_evidence(
    waiting: Trace, size: Size
) -> None:
    state = after(opened(waiting, size=size), explained, *do("why"))
    finding = list_considerable(why(waiting))[0]
    overlay = after(state, *do("details")).overlay
    assert isinstance(overlay, Details)
    assert overlay.about == finding.evidence[0]
    assert overlay.before[0] == finding.text
    assert overlay.before[-1] == f"Try: {finding.try_}"
    words = " ".join(laid_over(after(state, *do("details"))).split())
    assert finding.text.split(",")[0] in words


def test_no_finding_is_cut_below_the_list(waiting: Trace) -> None:
    state = after(opened(waiting, size=Size(80, 34)), explained, *do("why"))
    for finding in list_considerable(why(waiting)):
        words = " ".join(drawn(state).split())
        assert finding.text in words
        assert (finding.try_ or "") in words
        state = after(state, *do("row-down"))


def test_enter_goes_from_one_row_of_the_evidence_to_the_next(waiting: Trace) -> None:
    state = after(opened(waiting), explained, *do("why"))
    evidence = with_worth(waiting, why(waiting)).findings[0].evidence
    assert len(evidence) > 1
    for row in (*evidence, evidence[0]):
        state = after(state, *do("why", "show"))
        assert (state.page, state.view.selected) == (TIMELINE, row)


def test_another_finding_has_evidence_of_its_own(waiting: Trace) -> None:
    state = after(opened(waiting), explained, *do("why", "show", "why"))
    assert len(why(waiting).findings) > 1
    other = after(state, *do("row-down", "show"))
    assert hits_of(other).at == 0
    assert hits_of(other).what != hits_of(state).what


def test_enter_on_a_gap_selects_it(waiting: Trace) -> None:
    state = after(opened(waiting), explained, *do("why"))
    found = why(waiting)
    index = next(
        n for n, entry in enumerate(list_entries(found)) if entry == found.gaps[0]
    )
    there = after(state, partial(WhyPage().chosen, index=index))
    assert there.page == TIMELINE
    assert "idle for " in drawn(there)
    assert "scipy" in drawn(there) or "zoom_shift" in drawn(there)


def test_y_copies_the_whole_answer_as_markdown(waiting: Trace) -> None:
    text = WhyPage().copied(after(opened(waiting), explained, *do("why")))
    assert text.startswith("**")
    assert "| compute |" in text
    assert "Try: " in text


def test_missing_recordings_are_a_row_of_the_why_page(mlp: Trace) -> None:
    state = after(opened(mlp), explained, *do("why", "last"))
    assert "not recorded: " in drawn(state)
    assert after(state, *do("show")).hint.startswith("not recorded: ")


def test_why_page_without_a_gpu_says_so(
    trace_of: Make, event: Callable[..., dict[str, Any]]
) -> None:
    state = after(opened(trace_of([event("aten::mm", 0, 10)])), explained, *do("why"))
    assert "No GPU events were recorded" in drawn(state)


def test_without_a_gpu_the_page_shows_the_breakdown_of_threads_and_ops(
    trace_of: Make, event: Callable[..., dict[str, Any]]
) -> None:
    ops = [event("aten::mm", 0, 30, tid=tid) for tid in range(1, 9)]
    state = after(opened(trace_of(ops)), explained, *do("why"))
    lines = drawn(state).split("\n")
    (titles,) = [line for line in lines if line.split()[-1:] == ["thread"]]
    threads = lines[lines.index(titles) + 1 :][:6]
    assert all("30 us" in line for line in threads[:5])
    assert threads[5].strip() == "... and 3 more threads"
    assert "CPU thread time by op or runtime call: aten::mm 100 %." in drawn(state)
    low = after(opened(trace_of(ops), size=Size(80, 20)), explained, *do("why"))
    assert "... and 7 more threads" in drawn(low)


def test_events_of_another_accelerator_are_part_of_the_breakdown(
    trace_of: Make, event: Callable[..., dict[str, Any]]
) -> None:
    device = {"cat": "mtia_ccp_events", "pid": 9}
    events = [
        event("aten::mm", 0, 10),
        event("merge", 0, 30, **device),
        event("merge", 10, 5, **device),  # inside one of its name
        event("wait", 40, 10, **device),
    ]
    state = after(opened(trace_of(events)), explained, *do("why"))
    assert "MTIA time by event: merge 75 %, wait 25 %." in drawn(state)
    assert "(the 4 MTIA events are listed by name)" not in drawn(state)
    assert "(the 3 MTIA events are listed by name)" in drawn(state)


def test_names_of_a_trace_stay_printable(trace_of: Make) -> None:
    events = [{**event, "name": event["name"] + WORST} for event in training()]
    state = after(opened(trace_of(events)), explained, *do("why"))
    for _ in range(8):
        state = after(state, *do("row-down"))
        assert obeyed(drawn(state)) == set()
    assert obeyed(drawn(after(state, *do("show")))) == set()
    assert obeyed(drawn(after(state, *do("modules")))) == set()
    assert obeyed(WhyPage().copied(state)) == set()


@pytest.mark.parametrize("height", [22, 24, 30])
def test_the_account_is_whole_on_a_low_screen(waiting: Trace, height: int) -> None:
    """The reasons that have no row of their own are counted, or named on a few
    lines."""
    text = drawn(after(opened(waiting, size=Size(100, height)), explained, *do("why")))
    account = text.partition("bound ms")[0]
    assert "compute" in account
    assert " idle " in account.replace("is idle", "")
    assert any(said in account for said in ("other reason", "queued"))


@pytest.mark.parametrize("size", [*SIZES, Size(60, 18)])
def test_the_share_not_understood_stands_beside_the_worth(
    waiting: Trace, size: Size
) -> None:
    state = after(opened(waiting, size=size), explained, *do("why"))
    assert "Unexplained" not in drawn(state)
    found = with_worth(waiting, why(waiting))
    keep_result(waiting, WORTH, replace(found, residual_share=0.07))
    text = " ".join(drawn(state).split())
    assert "Unexplained delays: 7.0 % of the time after a change." in text
    assert "gain/step" in text.partition("Unexplained")[2]


def test_the_worth_comes_when_it_is_known(waiting: Trace) -> None:
    """Without a wait for it: before that, findings are sorted by what is at stake."""
    state = opened(waiting)
    for piece in compute_pieces(waiting, never):
        if isinstance(piece, Insight):
            state = reading.accept_answer(state, waiting, piece)
    before = drawn(after(state, *do("why")))
    assert "bound ms" in before
    assert "gain/step" not in before
    known = drawn(after(state, explained, *do("why")))
    assert "gain/step" in known


@pytest.mark.parametrize(
    ("steps", "titles"),
    [(1, ["bound us", "est. gain"]), (3, ["bound ms, all", "gain/step"])],
)
def test_the_columns_say_of_which_time_they_are(
    trace_of: Make, steps: int, titles: list[str]
) -> None:
    """The bound is of all steps, the gain of one: side by side they must say so."""
    trace = trace_of(training(steps))
    keep_result(trace, WORTH, with_worth(trace, why(trace)))
    text = drawn(after(opened(trace), explained, *do("why")))
    (heading,) = (
        line for line in text.splitlines() if "bound" in line and "share" in line
    )
    assert all(title in heading for title in titles)


@pytest.mark.parametrize("width", [40, 60])
def test_a_verdict_that_does_not_fit_says_so(waiting: Trace, width: int) -> None:
    """On a low screen it is in fewer words, or ends with an ellipsis."""
    state = after(opened(waiting, size=Size(width, 18)), explained, *do("why"))
    lines = drawn(state).splitlines()
    titles = next(number for number, line in enumerate(lines) if "bound" in line)
    verdict = " ".join(" ".join(lines[2:titles]).split())
    whole = (answer(why(waiting)), format_brief_answer(why(waiting)))
    assert verdict
    assert verdict.startswith(whole) or verdict.endswith("…")
