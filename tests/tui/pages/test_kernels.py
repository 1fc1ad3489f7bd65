"""The kernels page: groups, the kernels of one group, any order, instances."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.tui.conftest import GELU, GEMM, mlp_events
from tests.tui.driving import named
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.analysis.questions.groups import kernel_groups
from fusetui.analysis.questions.totals import Spread
from fusetui.gpu.roofline.many import jobs
from fusetui.trace import Trace
from fusetui.tui.layout.kernel_table import BYS, SORTS
from fusetui.tui.pages.kernels import KernelsPage, shown_table
from fusetui.tui.state.state import Details, HitList, Size, State

Make = Callable[..., Trace]
PAGE = KernelsPage()


def by(state: State, what: str) -> State:
    return after(state, *do(*("group-by",) * BYS.index(what)))


def labels(state: State) -> list[str]:
    table = shown_table(state)
    return [table.label(int(n)) for n in table.order(state.kernels.sort)]


@pytest.mark.parametrize("what", [what for what in BYS if what != "kind"])
def test_the_groups_are_those_of_the_command_line(trace_of: Make, what: str) -> None:
    trace = trace_of(training())
    table = shown_table(by(after(opened(trace), explained, *do("kernels")), what))
    groups = kernel_groups(trace, jobs(trace), what)
    spreads = [msgspec.convert(one, Spread, from_attributes=True) for one in groups]
    assert spreads == [table.spreads[n] for n in table.order("total")]


def test_kernels_by_module_say_that_they_wait_for_the_answer(mlp: Trace) -> None:
    state = by(after(opened(mlp), *do("kernels")), "module")
    assert state.hint.startswith("Computing kernels by module")


def test_narrowing_shows_the_kernels_of_a_group_and_back(mlp: Trace) -> None:
    kinds = by(after(opened(mlp), *do("kernels")), "kind")
    assert labels(kinds) == ["gemm", "pointwise", "fused"]
    only = after(kinds, *do("row-down", "narrow"))
    assert [named(PAGE, only)] == [GELU]
    assert "only kind pointwise" in drawn(only)
    assert labels(after(only, *do("widen"))) == labels(kinds)


@pytest.mark.parametrize("sort", SORTS)
def test_every_column_of_kernels_sorts(mlp: Trace, sort: str) -> None:
    state = after(opened(mlp), *do("kernels", *("sort-right",) * SORTS.index(sort)))
    table = shown_table(state)
    order = table.order(sort)
    if sort == "name":
        assert labels(state) == sorted(labels(state))
    elif sort == "total":
        assert labels(state)[0].startswith("gemm")
    else:
        figure = sort if sort == "count" else f"{sort}_ns"
        figures = [getattr(table.spreads[n], figure) for n in order]
        assert figures == sorted(figures, reverse=True)


def test_enter_and_i_show_the_kernel_that_the_panel_describes(mlp: Trace) -> None:
    state = after(opened(mlp), *do("kernels"))
    longest = PAGE.subject(state)
    assert mlp.dur[longest] == 182_000
    assert after(state, *do("show")).view.selected == longest
    overlay = after(state, *do("details")).overlay
    assert isinstance(overlay, Details)
    assert overlay.about == longest


def test_instances_are_a_list(mlp: Trace) -> None:
    state = after(opened(mlp), *do("kernels", "instances"))
    assert isinstance(state.overlay, HitList)
    there = after(state, *do("first", "show"))
    assert mlp.name_of(there.view.selected) == GEMM
    assert there.view.selected == min(state.overlay.hits.rows)


def test_shares_add_up_and_decimals_are_aligned(mlp: Trace) -> None:
    lines = drawn(after(opened(mlp, size=Size(120, 35)), *do("kernels"))).split("\n")
    rows = [line for line in lines if " % " in line and "█" in line]
    assert len({line.index(".") for line in rows}) == 1


def test_kernels_page_without_kernels_lists_cpu_ops(
    trace_of: Make, event: Callable[..., object]
) -> None:
    state = after(opened(trace_of([event("aten::add", 5)])), *do("kernels"))
    assert labels(state) == ["aten::add"]
    assert "CPU op" in drawn(state)


@pytest.mark.parametrize("key", ["group-by", "narrow"])
def test_ops_of_a_trace_without_kernels_have_no_groups(
    trace_of: Make, key: str
) -> None:
    ops = [event for event in mlp_events() if event["cat"] == "cpu_op"]
    state = after(opened(trace_of(ops)), *do("kernels", key))
    assert state.hint == "this trace has no kernels: its CPU ops are shown by name"
    assert state.kernels.by == "name"


def test_the_heading_says_what_shares_are_of(mlp: Trace, trace_of: Make) -> None:
    state = after(opened(mlp), *do("kernels"))
    assert (
        "3 distinct kernels, 8 launches   share of the 1.112 ms of kernel time"
        in drawn(state)
    )
    narrowed = after(state, *do("group-by", "narrow"))
    assert "only kind gemm   share of the 724 us of kernel time" in drawn(narrowed)
    ops = [event for event in mlp_events() if event["cat"] == "cpu_op"]
    on_cpu = after(opened(trace_of(ops)), *do("kernels"))
    assert "4 distinct CPU ops, 12 calls   share of the 240 us of self time" in drawn(
        on_cpu
    )
