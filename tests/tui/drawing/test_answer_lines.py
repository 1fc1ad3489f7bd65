"""The answer stands below the lanes while nothing is selected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.hostile import WORST, obeyed
from tests.tui.driving import named
from tests.tui.explainable import GEMM, slice_, training
from tests.tui.prepared import BY_NAME, after, at, do, drawn, explained, opened

from fusetui.analysis.why.answer import why
from fusetui.report.why_answer import answer, format_brief_answer
from fusetui.trace import Trace
from fusetui.tui import screen_layout
from fusetui.tui.drawing.canvas import Click
from fusetui.tui.layout.answer import BETWEEN_CELLS, AnswerAt, AnswerList
from fusetui.tui.pages.answer import divide_width
from fusetui.tui.registry import action_for, page_of
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]


@pytest.mark.parametrize("size", [Size(80, 24), Size(120, 35)], ids=str)
def test_summary_below_the_lanes_looks_as_kept(
    trace_of: Make, size: Size, matches_screen: Callable[[str, str], None]
) -> None:
    state = after(opened(trace_of(training()), size=size), explained)
    matches_screen(f"answer-{size.width}x{size.height}", drawn(state))


def test_the_verdict_is_that_of_why(trace_of: Make) -> None:
    trace = trace_of(training())
    state = after(opened(trace, size=Size(200, 50)), explained)
    assert answer(why(trace)) in drawn(state)


def test_a_selection_takes_its_place(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained)
    assert "longest gaps" in drawn(state)
    assert "longest gaps" not in drawn(after(state, at("aten::mm")))
    assert "longest gaps" in drawn(after(state, at("aten::mm"), *do("deselect")))


@pytest.mark.parametrize(
    ("text", "page"), [("540.0   100 %", "kernels"), ("300.0    56 %", "modules")]
)
def test_a_click_on_a_row_leads_to_its_page(
    trace_of: Make, text: str, page: str
) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    assert clicked(state, text).page == page


def test_a_click_on_a_gap_selects_it(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    assert clicked(state, "770.0   0.890").view.gap is not None
    assert clicked(state, "A step takes 990 us").page == "why"


def clicked(state: State, text: str) -> State:
    lines = drawn(state).split("\n")
    y = max(n for n, line in enumerate(lines) if text in line)
    return after(
        state, lambda now: screen_layout.moused(now, y, Click(lines[y].index(text)))
    )


def test_names_stay_printable(trace_of: Make) -> None:
    events = [{**event, "name": event["name"] + WORST} for event in training()]
    state = after(opened(trace_of(events), size=Size(200, 50)), explained)
    assert obeyed(drawn(state)) == set()


def test_a_row_can_be_reached_and_left_by_keys(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(120, 35)), explained)
    gap = after(
        state, *do("into-answer", "answer-right", "answer-right", "answer-show")
    )
    assert gap.view.gap is not None
    back = after(gap, *do("deselect"))
    assert back.answer_at == AnswerAt(2, 0)
    assert after(back, *do("answer-leave")).answer_at is None


def test_keys_pressed_before_the_answer_is_known_act_on_it(trace_of: Make) -> None:
    state = opened(trace_of(training()), size=Size(120, 35))
    assert action_for("enter", state) is BY_NAME["into-answer"]
    assert action_for("tab", state) is BY_NAME["next-pane"]
    inside = after(state, *do("into-answer"))
    assert action_for("j", inside) is BY_NAME["answer-down"]
    assert "Computing where the time went" in drawn(inside)
    early = after(inside, *do("answer-down", "answer-right", "answer-show"))
    assert early.page == "timeline"
    assert early.hint.startswith("Computing")
    known = after(early, explained)
    assert known.answer_at == AnswerAt(1, 1)
    assert known.view.selected == -1


def test_escape_leaves_an_answer_that_is_not_known_yet(trace_of: Make) -> None:
    inside = after(opened(trace_of(training())), *do("into-answer"))
    assert action_for("escape", inside) is BY_NAME["answer-leave"]
    assert after(inside, *do("answer-leave")).answer_at is None


def test_a_module_and_a_kernel_lead_to_their_rows(trace_of: Make) -> None:
    state = after(
        opened(trace_of(training()), size=Size(120, 35)), explained, *do("into-answer")
    )
    module = after(state, *do("answer-down", "answer-show"))
    assert named(page_of(module), module).endswith("Attention_*")
    kernel = after(state, *do("answer-right", "answer-show"))
    assert named(page_of(kernel), kernel) == GEMM


def test_the_verdict_leads_to_why(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained)
    assert after(state, *do("into-answer", "answer-up", "answer-show")).page == "why"


def test_a_list_is_scrolled_to_its_cursor(trace_of: Make) -> None:
    """At 80x24 three of five gaps are seen."""
    state = after(opened(trace_of(training()), size=Size(80, 24)), explained)
    right = do("into-answer", "answer-right", "answer-right")
    last = after(state, *right, *do(*("answer-down",) * 9))
    assert last.answer_at == AnswerAt(2, 4)
    assert "2.740 forward my" in drawn(last)
    assert "2.740 forward my" not in drawn(state)


def test_of_two_traces_tab_goes_through_lanes_and_answers(trace_of: Make) -> None:
    trace = trace_of(training())
    state = after(opened(trace, trace), *do("timeline"), explained)
    first = after(state, *do("into-answer"))
    second = after(first, *do("next-pane"))
    assert (second.active, second.answer_at) == (1, None)


def test_a_list_that_does_not_fit_is_counted_and_can_be_reached(trace_of: Make) -> None:
    state = after(opened(trace_of(training()), size=Size(60, 18)), explained)
    assert "GPU time by module or annotation ▸2" in drawn(state)
    kernels = after(state, *do("into-answer", "answer-right"))
    assert "by event" in drawn(kernels)
    assert after(kernels, *do("answer-show")).page == "kernels"


@pytest.mark.parametrize("size", [Size(80, 24), Size(200, 50)], ids=str)
def test_the_verdict_is_not_cut(trace_of: Make, size: Size) -> None:
    trace = trace_of(training())
    state = after(opened(trace, size=size), explained)
    assert answer(why(trace)) in " ".join(drawn(state).split())


def test_a_verdict_that_does_not_fit_is_said_in_fewer_words(trace_of: Make) -> None:
    trace = trace_of(training())
    state = after(opened(trace, size=Size(60, 18)), explained)
    assert format_brief_answer(why(trace)) in " ".join(drawn(state).split())
    least = after(opened(trace, size=Size(40, 12)), explained)
    assert format_brief_answer(why(trace), with_reason=False) in " ".join(
        drawn(least).split()
    )


def test_shares_of_modules_and_kernels_add_up(trace_of: Make) -> None:
    """Also of copies, and of what was launched outside all modules."""
    copied = {"correlation": 99}
    events = [
        *training(),
        slice_("cudaMemcpyAsync", "cuda_runtime", 2994, 2, 1, 1, copied),
        slice_("Memcpy DtoH", "gpu_memcpy", 2995, 20, 0, 7, copied),
    ]
    modules, kernels, _ = lists(trace_of(events))
    for one in (modules, kernels):
        assert (
            sum(entry.ns for entry in one.entries) == one.entries[0].whole_ns == 560_000
        )
    assert [entry.text for entry in modules.entries] == [
        "MLP",
        "Attention",
        "(outside modules)",
    ]
    assert "memcpy DtoH" in [entry.text for entry in kernels.entries]


def test_a_copy_leads_to_the_longest_of_its_name(trace_of: Make) -> None:
    copies = [
        slice_("Memcpy DtoH", "gpu_memcpy", 2995 + 9 * n, n + 1, 0, 7) for n in range(3)
    ]
    state = after(
        opened(trace_of([*training(), *copies]), size=Size(120, 35)), explained
    )
    row = clicked(state, "memcpy DtoH").view.selected
    assert int(state.side.trace.dur[row]) == 3000


def test_names_cut_to_the_same_are_told_apart(trace_of: Make) -> None:
    events = [
        {
            **event,
            "name": f"{'my_very_long_kernel_' * 9}{event['name'] == GEMM}_{n % 2}",
        }
        if event["cat"] == "kernel"
        else event
        for n, event in enumerate(training())
    ]
    state = after(opened(trace_of(events), size=Size(120, 35)), explained)
    found = [line for line in drawn(state).split("\n") if "my_very" in line]
    assert len(found) == len({line.split("%")[-1] for line in found}) == 2


def test_a_trace_without_gpu_events_has_lists_too(trace_of: Make) -> None:
    """Enter leads to the longest slice of a row."""
    on_cpu = [event for event in training() if event["cat"] != "kernel"]
    long = slice_("aten::mm", "cpu_op", 5000, 500, 1, 1)
    trace = trace_of([*on_cpu, long])
    titles = ["self time by CPU op", "time in annotations", "time by CPU thread"]
    assert [one.title for one in lists(trace)] == titles
    state = after(
        opened(trace, size=Size(120, 35)), explained, *do("into-answer", "answer-show")
    )
    assert int(state.side.trace.dur[state.view.selected]) == 500_000


def test_annotations_are_shares_of_the_time_in_any_of_them(trace_of: Make) -> None:
    """On each thread, however they lie inside each other."""
    times = [
        ("epoch", 0, 100, 1),
        ("step", 0, 50, 1),
        ("load", 0, 20, 1),
        ("other", 0, 100, 2),
    ]
    events = [
        slice_(name, "user_annotation", ts, dur, 1, tid) for name, ts, dur, tid in times
    ]
    found = {one.title: one for one in lists(trace_of(events))}["time in annotations"]
    shares = {entry.text: entry.aside for entry in found.entries}
    assert shares == {"epoch": "50 %", "step": "25 %", "load": "10 %", "other": "50 %"}


def test_n_goes_from_the_longest_of_a_row_to_the_next_in_time(trace_of: Make) -> None:
    """Also where those of other threads come between."""
    starts = ((1, 0, 10), (1, 200, 10), (2, 100, 50))
    events = [slice_("aten::mm", "cpu_op", ts, dur, 1, tid) for tid, ts, dur in starts]
    state = after(
        opened(trace_of(events)), explained, *do("into-answer", "answer-show")
    )
    assert int(state.side.trace.start[state.view.selected]) == 100_000
    now = after(state, *do("next-hit"))
    assert int(state.side.trace.start[now.view.selected]) == 200_000


@pytest.mark.parametrize("width", [60, 80, 118, 200])
def test_lists_fill_the_width(trace_of: Make, width: int) -> None:
    found = lists(trace_of(training()))
    for count in (1, 2, 3):
        cells = divide_width(found[:count], width)
        assert sum(cells) == width - 1 - BETWEEN_CELLS * (count - 1)


def lists(trace: Trace) -> tuple[AnswerList, ...]:
    found = after(opened(trace), explained).side.insight.answer
    assert found is not None
    return found.lists


def test_an_answer_that_is_being_worked_out_is_announced(trace_of: Make) -> None:
    said = "Computing where the time went..."
    state = opened(trace_of(training()))
    assert said in drawn(state)
    assert said not in drawn(after(state, explained))
