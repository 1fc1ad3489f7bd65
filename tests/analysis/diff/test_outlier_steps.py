"""What only one step does: told of by itself, and kept out of the usual step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.report.diff_lines import lines
from fusetui.trace import Trace

Build = Callable[..., Trace]

MM = ("aten::mm", "gemm_kernel", 200.0)
ADD = ("aten::add", "add_kernel", 40.0)
COPY = ("aten::copy_", "copy_kernel", 25.0)
USUAL = [MM, ADD, ("aten::relu", "relu_kernel", 30.0)]
FACTORS = (1.0, 1.02, 1.01, 1.03, 1.0, 1.04)


def changed(found: Diff) -> list[Row]:
    return [
        row for row in found.rows if row.kind is not RowKind.SAME and not row.on_cpu
    ]


def planted(build: Build, *step: Any) -> Diff:
    """The usual steps on both sides, but for the fourth one of B."""
    return diff(build(USUAL, FACTORS), build(USUAL, FACTORS, odd={3: list(step)}))


def test_a_copy_in_one_step_is_a_row_that_names_the_step(build: Build) -> None:
    found = planted(build, *USUAL, COPY)
    (row,) = changed(found)
    assert (row.kind, row.op, row.why) == (
        RowKind.ADDED,
        "aten::copy_",
        "only in step 3 of B",
    )
    assert (row.b_ns, row.counts) == (25_750, False)
    assert found.accounting.rows_ns == 0


def test_kernel_missing_in_one_step_is_a_row_that_names_the_step(build: Build) -> None:
    (row,) = changed(planted(build, MM, USUAL[2]))
    assert (row.kind, row.op) == (RowKind.REMOVED, "aten::add")
    assert row.why == "missing only in step 3 of B"


def test_kernel_missing_in_one_step_is_one_row_where_other_steps_vary(
    build: Build,
) -> None:
    varied = (1.0, 1.0, 1.0, 1.5, 1.5, 1.5)  # the usual time of five of them is another
    a, b = build(USUAL, varied), build(USUAL, varied, odd={0: [MM, USUAL[2]]})
    (row,) = changed(diff(a, b))
    assert (row.kind, row.op, row.why) == (
        RowKind.REMOVED,
        "aten::add",
        "missing only in step 0 of B",
    )


def test_a_kernel_missing_in_an_odd_step_is_shown_in_a_usual_step_of_its_side(
    build: Build,
) -> None:
    usual, odd = build(USUAL, FACTORS), build(USUAL, FACTORS, odd={3: [MM, USUAL[2]]})
    (row,) = changed(diff(odd, usual))
    assert row.why == "missing only in step 3 of A"
    assert [odd.name_of(each) for each in row.a_rows] == list(row.b)
    assert row.b_rows == ()


def test_a_step_that_does_much_else_is_one_row(build: Build) -> None:
    compiled = [(f"aten::op{n}", f"kernel_{n}", 5.0) for n in range(20)]
    (row,) = changed(planted(build, *USUAL, *compiled))
    assert (row.op, row.b_count) == ("20 pieces of work", 20)


FUSED = ("aten::add_relu", "triton_poi_fused_add_relu_0", 40.0)


def test_two_kernels_that_one_step_fuses_are_one_row(build: Build) -> None:
    (row,) = changed(planted(build, MM, FUSED))
    assert (row.kind, row.a, row.b) == (
        RowKind.FUSED,
        ("add_kernel", "relu_kernel"),
        (FUSED[1],),
    )
    assert (row.why, row.counts) == ("only in step 3 of B", False)
    assert row.change_ns == 40_000 * 103 // 100 - 70_000 * 103 // 100


def test_a_fused_kernel_without_an_op_has_no_name_of_another_slice(
    build: Build,
) -> None:
    (row,) = changed(planted(build, MM, ("", *FUSED[1:])))
    assert (row.kind, row.op, row.b) == (RowKind.FUSED, "", (FUSED[1],))


def test_a_fused_kernel_that_one_step_lacks_is_split(build: Build) -> None:
    found = diff(
        build([MM, FUSED], FACTORS), build([MM, FUSED], FACTORS, odd={3: USUAL})
    )
    (row,) = changed(found)
    assert (row.kind, row.a, row.b) == (
        RowKind.SPLIT,
        (FUSED[1],),
        ("add_kernel", "relu_kernel"),
    )


def test_a_kernel_that_lists_other_ops_is_no_fusion(build: Build) -> None:
    other = ("aten::mul", "triton_poi_fused_cos_mul_0", 40.0)
    found = changed(planted(build, MM, other))
    assert sorted(row.kind for row in found) == [
        RowKind.ADDED,
        RowKind.REMOVED,
        RowKind.REMOVED,
    ]


def test_kernel_slow_in_one_step_is_a_row_that_names_the_step(build: Build) -> None:
    (row,) = changed(planted(build, MM, (*ADD[:2], 52.0), USUAL[2]))
    assert (row.kind, row.op) == (RowKind.SLOWER, "aten::add")
    assert row.why == "only in step 3: 30.0 % more time"


def test_the_other_steps_are_the_same_ones_on_both_sides(build: Build) -> None:
    found = planted(build, *USUAL, *[COPY] * 9)
    assert found.side_a.usual == found.side_b.usual
    assert 3 not in found.side_b.usual


def test_odd_alike_on_both_sides_is_no_change(build: Build) -> None:
    odd = {3: [*USUAL, COPY]}
    a, b = build(USUAL, FACTORS, odd=odd), build(USUAL, FACTORS, odd=odd)
    assert changed(diff(a, b)) == []


def test_steps_of_other_numbers_are_compared_all_the_same(build: Build) -> None:
    a = build(USUAL, FACTORS)
    b = build(USUAL, FACTORS[:5], odd={1: [*USUAL, COPY]})
    (row,) = changed(diff(a, b))
    assert row.why == "only in step 1 of B"


def test_op_of_one_step_is_a_dispatch_row_that_names_the_step(build: Build) -> None:
    view = ("aten::view", None, 3.0)
    found = diff(
        build([*USUAL, MM], FACTORS),
        build([*USUAL, MM], FACTORS, odd={3: [*USUAL, view, MM]}),
    )
    (row,) = [row for row in found.rows if row.kind is not RowKind.SAME]
    assert (row.kind, row.op, row.why) == (
        RowKind.ADDED,
        "CPU: aten::view",
        "only in step 3",
    )
    (line,) = [line for line in lines(found) if line.kind == "added"]
    assert (line.what, line.why) == ("CPU: aten::view", "only in step 3")


def test_a_slow_kernel_is_told_beside_one_that_is_missing_in_the_same_step(
    build: Build,
) -> None:
    found = planted(build, (*MM[:2], 400.0), USUAL[2])
    told = {(row.kind, row.op, row.change_ns) for row in changed(found)}
    assert told == {
        (RowKind.REMOVED, "aten::add", -41_200),
        (RowKind.SLOWER, "aten::mm", 206_000),
    }


def test_one_kernel_missing_and_another_like_it_more_are_two_changes(
    build: Build,
) -> None:
    short, long = (("aten::fill_", "fill_kernel", us) for us in (10.0, 50.0))
    usual = [short, *USUAL, long, *USUAL]
    b = build(usual, FACTORS, odd={3: [*USUAL, long, *USUAL, long]})
    found = changed(diff(build(usual, FACTORS), b))
    assert sorted(row.change_ns for row in found) == [-10_300, 51_500]


def test_a_repeated_kernel_is_missing_where_the_others_around_it_say(
    build: Build,
) -> None:
    """Though the first one takes as long, in this step, as the missing one did."""
    usual = [ADD, USUAL[2], (*ADD[:2], 60.0), MM, (*ADD[:2], 80.0)]
    odd = [(*ADD[:2], 60.0), USUAL[2], MM, (*ADD[:2], 80.0)]
    found = changed(diff(build(usual, FACTORS), build(usual, FACTORS, odd={3: odd})))
    assert {(row.kind, row.a_ns) for row in found} == {
        (RowKind.REMOVED, 61_800),
        (RowKind.SLOWER, 41_200),
    }


def test_two_runs_whose_steps_vary_each_for_itself_are_not_compared_step_by_step(
    build: Build,
) -> None:
    a = build(USUAL, (1.0, 1.02, 1.01, 1.03, 1.0, 1.04))
    b = build(
        USUAL,
        (1.03, 1.0, 1.02, 1.0, 1.04, 1.01),
        odd={3: [MM, (*ADD[:2], 90.0), USUAL[2]]},
    )
    assert changed(diff(a, b)) == []


STEP_US, WAIT_US, AHEAD_US = 1000, 150, 100


def behind(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[Any]],
    *,
    gone: int = -1,
    longer: int = -1,
) -> Trace:
    """Steps whose kernels run in the next step but for the begin of the first one, as
    where the CPU is far ahead. In the
    step `gone` no call launches the second kernel; the step `longer` waits at its
    end."""
    events: list[Any] = []
    begin = 0
    for step in range(6):
        name, length = f"ProfilerStep#{step}", STEP_US
        if step == longer:
            length += WAIT_US
        plain = {"ph": "X", "pid": 1, "tid": 1, "ts": begin, "dur": length}
        events.append({**plain, "cat": "user_annotation", "name": name})
        runs = begin + length - AHEAD_US
        for n, us in enumerate((300 + step, 200 + step, 100 + step)):
            if n != 1 or step != gone:
                number = 10 * step + n + 1
                events += launched(number, begin + 5 * n, runs, us, f"kernel_{n}")
            runs += us
        begin += length
    return trace_of(events)


def test_idle_time_in_the_step_that_runs_a_missing_kernel_is_no_change_of_its_own(
    trace_of: Callable[..., Trace], launched: Callable[..., list[Any]]
) -> None:
    a = behind(trace_of, launched)
    b = behind(trace_of, launched, gone=3)
    (row,) = changed(diff(a, b))
    assert (row.kind, row.a, row.why) == (
        RowKind.REMOVED,
        ("kernel_1",),
        "missing only in step 3 of B",
    )


def test_other_idle_time_in_such_a_step_is_told(
    trace_of: Callable[..., Trace], launched: Callable[..., list[Any]]
) -> None:
    a = behind(trace_of, launched)
    b = behind(trace_of, launched, longer=3)
    (row,) = changed(diff(a, b))
    assert (row.op, row.change_ns, row.why) == (
        "idle",
        1000 * WAIT_US,
        "only in step 3",
    )
