"""From a slice to the others of its name, from step to step, from forward to backward
work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.tui.conftest import mlp_events
from tests.tui.prepared import after, at, do, explained, opened

from fusetui.trace import Trace
from fusetui.tui.pages.overlays import OVERLAYS
from fusetui.tui.state.state import HitList, State

Make = Callable[..., Trace]


def name_of(state: State) -> str:
    return state.side.trace.name_of(state.view.selected)


def test_next_alike_goes_to_the_next_slice_of_the_name(mlp: Trace) -> None:
    first = after(opened(mlp), at("aten::gelu"))
    second = after(first, *do("next-alike"))
    assert name_of(second) == "aten::gelu"
    assert second.view.selected > first.view.selected
    assert after(second, *do("previous-alike")).view.selected == first.view.selected


def test_names_that_only_contain_it_are_others(
    trace_of: Make, event: Callable[..., Any]
) -> None:
    names = ("aten::add", "aten::add_", "aten::add")
    events = [event(name, ts=10 * n, dur=5) for n, name in enumerate(names)]
    state = after(opened(trace_of(events)), at("aten::add"), *do("next-alike"))
    assert state.session.hits is not None
    assert len(state.session.hits.rows) == 2


def test_next_step_goes_from_step_to_step(trace_of: Make) -> None:
    state = opened(trace_of(mlp_events(3)))
    first = after(state, *do("next-step"))
    assert first.hint.endswith(", 1 of 3 steps")
    second = after(first, *do("next-step"))
    assert second.hint.endswith(", 2 of 3 steps")
    assert after(second, *do("previous-step")).hint.endswith(", 1 of 3 steps")
    assert after(state, *do("previous-step")).hint.endswith(", 3 of 3 steps")


def test_iterations_are_listed_with_their_own_times(
    trace_of: Make, event: Callable[..., Any]
) -> None:
    """Not with those of the optimizer steps that end them."""
    ends = [
        event("Optimizer.step#SGD.step", 100 * n + 80, 10, cat="user_annotation")
        for n in range(3)
    ]
    state = after(opened(trace_of([event("aten::mm", 0, 70), *ends])), *do("steps"))
    assert isinstance(state.overlay, HitList)
    texts = [
        "".join(text for text, _ in OVERLAYS.rows(state).format(n, 100))
        for n in range(3)
    ]
    assert [text.split()[1] for text in texts] == ["90.0", "100.0", "100.0"]
    assert [text.split()[-1] for text in texts] == ["#1", "#2", "#3"]
    third = OVERLAYS.chosen(state, 2)
    assert isinstance(third, State)
    assert third.hint == "step #3 of 3: up to the end of Optimizer.step#SGD.step"


def test_the_last_step_has_no_next(trace_of: Make) -> None:
    last = after(opened(trace_of(mlp_events(2))), *do("previous-step"))
    assert after(last, *do("next-step")).view == last.view


FORWARD = {"Sequence number": 7, "Fwd thread id": 0}
BACKWARD = {"Sequence number": 7, "Fwd thread id": 1}


def passes() -> list[dict[str, Any]]:
    def op(
        name: str, ts: int, dur: int, tid: int, args: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": "cpu_op",
            "name": name,
            "pid": 1,
            "tid": tid,
            "ts": ts,
            "dur": dur,
            "args": args,
        }

    return [
        op("aten::linear", 0, 30, 1, {}),
        op("aten::addmm", 5, 20, 1, FORWARD),
        op("AddmmBackward0", 100, 40, 2, BACKWARD),
        op("aten::mm", 110, 20, 2, {}),
        {**op("gemm", 120, 9, 3, {"correlation": 5}), "cat": "kernel", "pid": 0},
        {
            **op("cudaLaunchKernel", 112, 4, 2, {"correlation": 5}),
            "cat": "cuda_runtime",
        },
    ]


def test_other_pass_goes_from_forward_to_backward_and_back(trace_of: Make) -> None:
    state = after(opened(trace_of(passes())), explained)
    backward = after(state, at("aten::linear"), *do("other-pass"))
    assert name_of(backward) == "AddmmBackward0"
    assert name_of(after(backward, *do("other-pass"))) == "aten::addmm"
    from_kernel = after(state, at("gemm"), *do("other-pass"))
    assert name_of(from_kernel) == "aten::addmm"


def test_recomputed_work_is_not_of_the_op_whose_backward_runs_it(
    trace_of: Make,
) -> None:
    call = {
        **passes()[3],
        "cat": "python_function",
        "name": "nn.Module: Conv2d_0",
        "ts": 105,
    }
    state = after(opened(trace_of([*passes(), {**call, "dur": 30}])), explained)
    assert "No op of the other pass" in after(state, at("gemm"), *do("other-pass")).hint


def test_other_pass_without_a_partner_says_so(mlp: Trace) -> None:
    state = after(opened(mlp), explained, at("aten::gelu"), *do("other-pass"))
    assert "No op of the other pass" in state.hint


def test_jump_that_leads_nowhere_says_so(mlp: Trace) -> None:
    state = opened(mlp)
    assert after(state, *do("to-launch")).hint == "nothing is selected"
    kernel = after(state, at("gemm"))
    assert "No GPU event was launched" in after(kernel, *do("to-kernel")).hint
    assert not after(kernel, *do("to-launch")).hint


def test_a_message_goes_with_the_next_key_that_changes_something(mlp: Trace) -> None:
    told = after(opened(mlp), at("gemm"), *do("copy"))
    assert told.hint.startswith("copied")
    assert after(told, *do("end", "next")).hint == ""
    ranged = after(told, *do("range"))
    # its keys do something now
    assert after(ranged, *do("pan-right")).hint == ranged.hint != ""


def test_the_slices_of_a_row_are_listed(mlp: Trace) -> None:
    """As Enter would lead to them, on the page of the table."""
    tree = after(opened(mlp), *do("tree", "last"))
    state, shown = after(tree, *do("instances")), after(tree, *do("show")).session.hits
    assert isinstance(state.overlay, HitList)
    assert state.page == "tree"
    assert shown is not None
    assert state.overlay.hits.rows.tolist() == shown.rows.tolist()
