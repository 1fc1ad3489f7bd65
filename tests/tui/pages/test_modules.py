"""The modules page: what each module cost, and the way to a call of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.tui.driving import named
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.text.figures import percent
from fusetui.trace import Trace
from fusetui.tui.layout.figure_trees import ModuleTree
from fusetui.tui.pages.tree import ModulesPage
from fusetui.tui.state.state import TIMELINE, Size, State

Make = Callable[..., Trace]
PAGE = ModulesPage()


def tree_of(state: State) -> ModuleTree:
    answer = state.side.insight.answer
    assert answer is not None
    return answer.modules


@pytest.mark.parametrize("size", [Size(80, 24), Size(120, 35)], ids=str)
def test_modules_page_looks_as_kept(
    trace_of: Make, size: Size, matches_screen: Callable[[str, str], None]
) -> None:
    state = after(opened(trace_of(training()), size=size), explained, *do("modules"))
    matches_screen(f"modules-{size.width}x{size.height}", drawn(state))


def test_space_closes_a_module_and_opens_it_again(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("modules"))
    closed = after(state, *do("first", "row-down", "turn"))
    while tree_of(state).size[PAGE.node(state)] == 1:
        state = after(state, *do("row-down"))
    closed = after(state, *do("turn"))
    assert PAGE.rows(closed).count < PAGE.rows(state).count
    assert PAGE.rows(after(closed, *do("turn"))).count == PAGE.rows(state).count


def test_enter_shows_the_longest_call(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained, *do("modules"))
    while not named(PAGE, state).endswith("Net_*"):
        state = after(state, *do("row-down"))
    there = after(state, *do("show"))
    assert there.page == TIMELINE
    assert there.side.trace.name_of(there.view.selected) == "nn.Module: Net_0"


def test_work_outside_of_modules_has_a_row(mlp: Trace) -> None:
    """The annotations of steps are no part of the program."""
    state = after(opened(mlp), explained, *do("modules"))
    assert "outside modules" in drawn(state)
    assert named(PAGE, after(state, *do("last"))) == "(outside modules)"
    assert after(state, *do("last", "show")).hint.startswith(
        "Outside modules: there is no call to show"
    )


def test_annotations_of_collectives_alone_are_told_from_none(trace_of: Make) -> None:
    on_cpu = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 9}
    send = {**on_cpu, "cat": "user_annotation", "name": "gloo:send"}
    op = {**on_cpu, "cat": "cpu_op", "name": "aten::add", "ts": 20}
    alone = after(opened(trace_of([op])), explained, *do("modules"))
    assert "none was recorded" in drawn(alone)
    beside = after(opened(trace_of([op, send])), explained, *do("modules"))
    assert "are of steps and collectives" in " ".join(drawn(beside).split())


def test_modules_page_takes_keys_before_modules_are_known(mlp: Trace) -> None:
    state = after(
        opened(mlp), *do("modules", "turn", "unfold", "fold-node", "row-down", "show")
    )
    assert "Computing" in drawn(state)


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("sort", ["GPU", "self", "kernels", "calls", "CPU", "name"])
def test_sorted_by_any_column(trace_of: Make, sort: str, on_gpu: bool) -> None:
    """The shares are those of what the heading says, and what is open stays open."""
    events = [event for event in training() if on_gpu or event["cat"] != "kernel"]
    state = after(
        opened(trace_of(events), size=Size(120, 35)), explained, *do("modules")
    )
    tree = tree_of(state)
    state = after(state, *do("last", "fold-node", "turn"))
    cursor, rows = named(PAGE, state), PAGE.rows(state).count
    while (state.modules_sort or tree.measure()) != sort:
        state = after(state, *do("modules-sort-right"))
    assert (named(PAGE, state), PAGE.rows(state).count) == (cursor, rows)
    order, measure = tree.preorder(sort), tree.measure(sort)
    assert sorted(order.nodes.tolist()) == list(range(len(tree)))
    outermost = [
        n for n in order.nodes.tolist() if n < len(tree.times) and tree.parent[n] < 0
    ]
    figures = [
        tree.times[n].module.lower() if sort == "name" else -int(tree.figures[sort][n])
        for n in outermost
    ]
    assert figures == sorted(figures)
    assert "share of the " in drawn(state).split("\n")[2]
    figure, whole = int(tree.figures[measure][outermost[0]]), tree.whole(measure)
    assert not figure or f" {percent(figure, whole)} " in drawn(state).split("\n")[4]


def test_every_measure_of_modules_adds_up(trace_of: Make) -> None:
    state = after(opened(trace_of(training())), explained)
    tree = tree_of(state)
    outermost = tree.parent < 0
    for measure in ("GPU", "kernels", "CPU"):
        assert int(tree.figures[measure][outermost].sum()) == tree.whole(measure)
    assert int(tree.figures["self"].sum()) == tree.whole("self") == tree.gpu_ns


def test_why_there_are_none_is_told_to_the_end(
    trace_of: Make, event: Callable[..., dict[str, object]]
) -> None:
    state = opened(trace_of([event("aten::a", 0, 5)]), size=Size(60, 18))
    text = " ".join(drawn(after(state, explained, *do("modules"))).split())
    assert "No modules or annotations in this trace: none was recorded." in text
    assert "with_stack=True records modules; record_function adds annotations." in text


@pytest.fixture
def both_passes(trace_of: Make) -> State:
    """A module whose forward takes 20 us on the GPU and its backward 30 us, and one
    without backward work."""
    launch = {"cat": "cuda_runtime", "tid": 1}
    kernel = {"cat": "kernel", "pid": 0, "tid": 7}
    python = {"cat": "python_function"}

    def slice_(
        name: str, ts: int, dur: int, args: object = None, **more: object
    ) -> dict[str, object]:
        place = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "args": args or {}}
        return {**place, "name": name, "ts": ts, "dur": dur, **more}

    def launched(number: int, ts: int, dur: int, tid: int) -> list[dict[str, object]]:
        ids = {"correlation": number}
        return [
            slice_("cudaLaunchKernel", ts + 1, 1, ids, **{**launch, "tid": tid}),
            slice_("gemm", ts + 5, dur, {**ids, "stream": 7, "device": 0}, **kernel),
        ]

    sequence = {"Sequence number": 5, "Fwd thread id": 0}
    events = [
        slice_("nn.Module: Linear_0", 0, 20, {"Python id": 1}, **python),
        slice_("aten::addmm", 1, 10, sequence),
        *launched(1, 2, 20, 1),
        slice_("nn.Module: Dropout_0", 30, 20, {"Python id": 2}, **python),
        slice_("aten::dropout", 31, 10),
        *launched(2, 32, 8, 1),
        slice_(
            "autograd::engine::evaluate_function: AddmmBackward0",
            100,
            30,
            {"Sequence number": 5, "Fwd thread id": 1},
            tid=2,
        ),
        slice_(
            "AddmmBackward0", 101, 20, {"Sequence number": 5, "Fwd thread id": 1}, tid=2
        ),
        *launched(3, 102, 30, 2),
    ]
    state = opened(trace_of(events), size=Size(120, 35))
    return after(state, explained, *do("modules"))


def test_modules_have_columns_of_both_passes(both_passes: State) -> None:
    tree = tree_of(both_passes)
    by_module = {
        time.module: (int(tree.figures["forward"][n]), int(tree.figures["backward"][n]))
        for n, time in enumerate(tree.times)
    }
    assert by_module == {"Linear_*": (20_000, 30_000), "Dropout_*": (8_000, 0)}
    lines = drawn(both_passes).split("\n")
    titles = next(line for line in lines if "backward us" in line)
    row = next(line for line in lines if "Linear_*" in line)
    for title, figure in (("forward us", "20"), ("backward us", "30")):
        end = titles.index(title) + len(title)
        assert row[:end].split()[-1].startswith(figure)
    table = PAGE.table(both_passes)
    assert table is not None
    names = [column.name for column in table.columns]
    assert "gpu_forward_ns" in names
    assert "gpu_backward_ns" in names


def test_modules_without_backward_work_have_no_column_of_passes(mlp: Trace) -> None:
    state = after(opened(mlp, size=Size(200, 40)), explained, *do("modules"))
    assert "forward" not in drawn(state)
    assert "backward" not in tree_of(state).sorts


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_modules_are_sorted_by_the_time_of_a_pass(
    both_passes: State, name: str
) -> None:
    state = both_passes
    while state.modules_sort != name:
        state = after(state, *do("modules-sort-right"))
    assert f"of GPU time of the {name} pass" in drawn(state)
    assert named(PAGE, after(state, *do("first"))).strip().endswith("Linear_*")
