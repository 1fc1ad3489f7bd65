"""The kernels page: groups, the kernels of one group, any order, instances."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, nan
from pathlib import Path

import msgspec
import pytest
from tests.tui.conftest import GELU, GEMM, mlp_events
from tests.tui.driving import named, settled
from tests.tui.driving import opened as running
from tests.tui.explainable import training
from tests.tui.prepared import SIZE, after, do, drawn, explained, opened

from fusetui import sample_traces
from fusetui.analysis.questions.groups import group_kernels, name_missing_group
from fusetui.analysis.questions.totals import Spread
from fusetui.gpu.kinds import legend_kind
from fusetui.gpu.roofline.many import jobs
from fusetui.trace import Trace, open_trace
from fusetui.tui.layout.kernel_table import BYS, SORTS, WORK, describe_kernel_name
from fusetui.tui.pages.kernels import KernelsPage, filter_by_words, shown_table
from fusetui.tui.state.state import Details, HitList, Prompt, Size, State

Make = Callable[..., Trace]
PAGE = KernelsPage()
SAMPLE = Path(sample_traces.__file__).parent / "lessons" / "mlp-eager.json.gz"


def by(state: State, what: str) -> State:
    return after(state, *do(*("group-by",) * BYS.index(what)))


def labels(state: State) -> list[str]:
    table = shown_table(state)
    return [table.label(int(n)) for n in table.order(state.kernels.sort)]


@pytest.mark.parametrize("what", [what for what in BYS if what != "kind"])
def test_the_groups_are_those_of_the_command_line(trace_of: Make, what: str) -> None:
    trace = trace_of(training())
    table = shown_table(by(after(opened(trace), explained, *do("kernels")), what))
    groups = group_kernels(trace, jobs(trace), what)
    spreads = [msgspec.convert(one, Spread, from_attributes=True) for one in groups]
    assert spreads == [table.spreads[n] for n in table.order("total")]


def test_kernels_of_no_module_have_the_words_of_the_page_of_modules(
    mlp: Trace,
) -> None:
    state = by(after(opened(mlp), explained, *do("kernels")), "module")
    assert "(outside modules)" in labels(state)


def test_kernels_whose_launch_is_not_recorded_are_told_from_those_of_no_module(
    trace_of: Make,
) -> None:
    events = mlp_events()
    launches = [event for event in events if event.get("cat") == "cuda_runtime"]
    without_a_launch = [event for event in events if event is not launches[0]]
    trace = trace_of(without_a_launch)
    state = by(after(opened(trace), explained, *do("kernels")), "module")
    assert {"(launch not recorded)", "(outside modules)"} <= {*labels(state)}


@pytest.mark.parametrize("what", ["op", "step"])
def test_kernels_of_no_group_are_called_as_on_the_command_line(
    trace_of: Make, what: str
) -> None:
    alone = {"ph": "X", "cat": "kernel", "name": GELU, "pid": 0, "tid": 7}
    trace = trace_of([{**alone, "ts": 1, "dur": 2}])
    state = by(after(opened(trace), *do("kernels")), what)
    assert labels(state) == [f"({name_missing_group(what)})"]


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


def test_rows_with_words_are_listed_and_all_rows_again(mlp: Trace) -> None:
    every = after(opened(mlp), *do("kernels"))
    asked = after(every, *do("filter-rows"))
    assert asked.prompt is Prompt.ROWS
    few = filter_by_words(asked, "GELU")
    assert [named(PAGE, few)] == [GELU]
    assert PAGE.rows(few).count == 1
    assert f"1 of {PAGE.rows(every).count} with GELU" in drawn(few)
    assert PAGE.rows(after(few, *do("widen"))).count == PAGE.rows(every).count


def test_words_that_no_row_has_leave_an_empty_list(mlp: Trace) -> None:
    state = filter_by_words(after(opened(mlp), *do("kernels")), "gelu nowhere")
    assert PAGE.rows(state).count == 0
    assert "no row contains these words" in drawn(state)
    assert after(state, *do("show")).hint == "the list is empty"
    table = PAGE.table(state)
    assert table is not None
    assert len(table) == 0


@pytest.mark.parametrize("key", ["slash", "ampersand"])
async def test_rows_are_filtered_while_words_are_typed(key: str) -> None:
    async with running([str(SAMPLE)], (100, 30)) as (app, pilot):
        await pilot.press("3", key, *"gelu")
        await settled(app, pilot)
        rows_with_words = PAGE.rows(app.state).count
        assert app.state.kernels.words == "gelu"
        await pilot.press("escape")
        assert app.state.prompt is None
        assert 0 < rows_with_words < PAGE.rows(app.state).count
        assert app.state.page == "kernels"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("kind:gemm", [GEMM]),
        ("library:cublas", [GEMM]),
        ("kind:copy", []),
        ("kind:fused library:inductor", ["triton_poi_fused_mul_0"]),
        ("kind:pointwise", [GELU, "triton_poi_fused_mul_0"]),
        ("kind:elementwise", [GELU, "triton_poi_fused_mul_0"]),
    ],
)
def test_rows_are_filtered_by_kind_and_library(
    mlp: Trace, words: str, names: list[str]
) -> None:
    state = filter_by_words(after(opened(mlp), *do("kernels")), words)
    rows = range(PAGE.rows(state).count)
    found = [named(PAGE, PAGE.at_row(state, row)) for row in rows]
    assert found == names


@pytest.mark.parametrize("sort", [sort for sort in SORTS if sort not in WORK])
def test_every_column_of_kernels_sorts(mlp: Trace, sort: str) -> None:
    sorts = [sort for sort in SORTS if sort not in WORK]  # nothing of WORK is known
    state = after(opened(mlp), *do("kernels", *("sort-right",) * sorts.index(sort)))
    assert state.kernels.sort == sort
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


def in_the_kernels(path: Path, *names: str, size: Size = SIZE) -> State:
    """The page of a trace that ships with the package, after these actions."""
    trace = open_trace(str(path))
    return after(opened(trace, size=size), explained, *do("kernels", *names))


@pytest.mark.parametrize("what", ["name", "kind", "module"])
def test_work_and_share_of_peak_are_those_of_the_command_line(what: str) -> None:
    state = by(in_the_kernels(SAMPLE), what)
    table = shown_table(state)
    groups = group_kernels(table.trace, jobs(table.trace), what)
    order = table.order("total")
    assert any(group.share_of_peak is not None for group in groups)
    assert any(group.flop for group in groups)
    for group, row in zip(groups, order.tolist(), strict=True):
        shown = [float(table.figures(name)[row]) for name in WORK]
        flops = group.flop / group.flop_ns / 1e3 if group.flop else None
        moved = group.bytes / group.bytes_ns if group.bytes else None
        expected = [group.share_of_peak, flops, moved]
        assert shown == pytest.approx(
            [nan if figure is None else figure for figure in expected], nan_ok=True
        )


def test_the_columns_of_work_take_the_place_of_durations_and_back() -> None:
    durations = in_the_kernels(SAMPLE)
    assert "median" in drawn(durations)
    assert "of peak" not in drawn(durations).split("───")[0]
    work = after(durations, *do("kernel-columns"))
    assert "median" not in drawn(work)
    titles = next(line for line in drawn(work).split("\n") if "of peak" in line)
    assert "TFLOP/s" in titles
    assert "GB/s" in titles
    assert drawn(after(work, *do("kernel-columns"))) == drawn(durations)
    wide = drawn(in_the_kernels(SAMPLE, size=Size(200, 40)))
    assert "median" in wide
    assert "GB/s" in wide


@pytest.mark.parametrize("sort", WORK)
def test_sorting_by_work_shows_its_columns_and_puts_the_unknown_last(sort: str) -> None:
    presses = ("sort-right",) * SORTS.index(sort)
    state = in_the_kernels(SAMPLE, *presses)
    assert f"{sort}*" in drawn(state)
    table = shown_table(state)
    figures = [float(table.figures(sort)[row]) for row in table.order(sort)]
    known = [figure for figure in figures if not isnan(figure)]
    assert known == sorted(known, reverse=True)
    assert all(isnan(figure) for figure in figures[len(known) :])


def test_nothing_is_claimed_where_the_work_is_not_known(mlp: Trace) -> None:
    state = after(opened(mlp), explained, *do("kernels", "kernel-columns"))
    assert state.hint.startswith("FLOP and bytes of these kernels are unknown")
    assert not state.kernels.shows_work
    early = after(opened(mlp), *do("kernels", "kernel-columns"))
    assert early.hint == "Computing the work of kernels..."


def test_a_saved_table_has_the_work_as_the_command_line_names_it() -> None:
    state = in_the_kernels(SAMPLE)
    table = PAGE.table(state)
    columns = {column.name: column.values for column in table.columns}
    group = group_kernels(state.side.trace, jobs(state.side.trace), "name")[0]
    assert columns["flop"][0] == group.flop
    assert columns["flop_ns"][0] == group.flop_ns
    assert columns["share_of_peak"][0] == pytest.approx(group.share_of_peak)


def test_events_of_an_accelerator_that_is_no_gpu_are_listed_by_name(
    trace_of: Make, event: Callable[..., object]
) -> None:
    device = {"cat": "mtia_ccp_events", "pid": 9}
    events = [
        event("aten::mm", 0, 10),
        event("merge", 0, 30, **device),
        event("pe_exe", 40, 10, **device),
        event("pe_exe", 50, 10, **device),
    ]
    state = after(opened(trace_of(events)), *do("kernels"))
    assert labels(state) == ["merge", "pe_exe"]
    assert "2 distinct device events, 3 events   share of the 50 us of device time" in (
        drawn(state)
    )
    for key in ("group-by", "narrow", "kernel-columns"):
        hint = after(state, *do(key)).hint
        assert hint == (
            "this trace has no GPU kernels: its device events are shown by name"
        )


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
    assert state.hint == "this trace has no GPU kernels: its CPU ops are shown by name"
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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "gemm"),
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8>(int)",
            "reduction: softmax",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor"
            "<float>, at::detail::Array<char*, 1> >(int)",
            "copy: fill",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, "
            "at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)",
            "pointwise",
        ),
        ("triton_poi_fused_add_mul_0", "fused: pointwise"),
        ("my_kernel", "other"),
    ],
)
def test_the_column_of_kinds_has_the_words_of_the_legend(name: str, kind: str) -> None:
    shown = describe_kernel_name(name)[0]
    assert shown == kind
    assert shown.partition(":")[0] == legend_kind(name)
