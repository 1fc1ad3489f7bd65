"""What became of findings: gone, new, or there on both sides; silence where nothing
changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.analysis.replay.simulator import Residuals, simulate
from tests.corpus.recorded import recorded
from tests.corpus.training import training

from fusetui.analysis.why.answer import why
from fusetui.analysis.why.engine import RULES
from fusetui.analysis.why.model import DeviceAccount, Finding, StepAccount, Unknown, Why
from fusetui.analysis.why.selection import Selection
from fusetui.analysis.why.versus import Compared, Versus, versus
from fusetui.report.versus import describe_doubts, make_finding_rows
from fusetui.trace import open_trace

LENGTH = 1_000_000  # ns of a step
STACKS = "Python frames and modules"


def account(span: int, idle: int) -> DeviceAccount:
    return DeviceAccount(0, "", span, span - idle, 0, 0, idle, 0, 0, 0, {})


def side(
    idle: Sequence[int],
    *findings: tuple[str, int | None],
    below: dict[str, int] | None = None,
    lacks: dict[str, str] | None = None,
    cannot_tell: tuple[Unknown, ...] = (),
) -> Why:
    """One step of LENGTH for each idle time, and findings: rule, and ns at stake in all
    steps."""
    steps = tuple(
        StepAccount(f"ProfilerStep#{n}", n * LENGTH, LENGTH, (account(LENGTH, each),))
        for n, each in enumerate(idle)
    )
    return Why(
        file="",
        base_ns="0",
        about=None,
        devices=(account(len(steps) * LENGTH, sum(idle)),),
        steps=steps,
        steps_by=None,
        gaps=(),
        gaps_count=0,
        _ends_early=False,
        cpu=(),
        cannot_tell=cannot_tell,
        findings=tuple(
            Finding(rule=rule, text="", certainty="certain", at_stake_ns=ns)
            for rule, ns in findings
        ),
        _below=below or {},
        _lacks=lacks or {},
    )


def only(found: Versus) -> Compared:
    (one,) = found.findings
    return one


LATE = [300_000] * 4
WAITS = ("host-bound", 4 * 300_000)


def test_a_finding_that_is_gone() -> None:
    one = only(versus(side(LATE, WAITS), side([0] * 4)))
    assert (one.status, one.a_ns, one.b_ns) == ("gone", 300_000, 0)
    assert make_finding_rows([one]) == [
        ("host-bound", "gone", "300 us", "0 ns", "-300 us")
    ]


def test_finding_only_in_b_is_new() -> None:
    one = only(versus(side([0] * 4), side(LATE, WAITS)))
    assert make_finding_rows([one]) == [
        ("host-bound", "new", "0 ns", "300 us", "+300 us")
    ]


def test_a_finding_that_stays_and_costs_less_is_told_as_less() -> None:
    one = only(versus(side(LATE, WAITS), side([200_000] * 4, ("host-bound", 800_000))))
    assert (one.status, make_finding_rows([one])[0][1]) == ("stays", "less")


def test_the_same_twice_is_silent() -> None:
    found = versus(side(LATE, WAITS, ("recording", None)), side(LATE, WAITS))
    assert (only(found).status, make_finding_rows(found.findings)) == ("stays", [])
    assert describe_doubts(found.findings, found.is_sure) == []


def test_as_many_steps_again_are_no_change() -> None:
    twice = side([*LATE, *LATE], ("host-bound", 8 * 300_000))
    assert not only(versus(side(LATE, WAITS), twice)).differs


def test_one_time_finding_is_not_divided_by_steps() -> None:
    one = only(versus(side(LATE, ("warm-up", 9)), side([*LATE, *LATE], ("warm-up", 9))))
    assert (one.a_ns, one.b_ns, one.per_step, one.differs) == (9, 9, False, False)


def test_rules_about_kernels_may_leave_out_a_slow_first_step() -> None:
    """Three steps with 0.3 ms each, beside a slow one."""
    a = replace(side([0] * 4, ("no-tensor-cores", 900_000)), _left_out=1)
    assert only(versus(a, side([0] * 4))).a_ns == 300_000


def test_just_below_the_threshold_is_not_gone() -> None:
    """102 us of a step are a finding, 98 us are none."""
    b = side([98_000] * 4, below={"host-bound": 4 * 98_000})
    one = only(versus(side([102_000] * 4, ("host-bound", 4 * 102_000)), b))
    assert (one.status, one.b_ns, one.differs) == ("stays", 98_000, False)


def test_steps_that_differ_as_much_by_themselves() -> None:
    """100 us more, where steps of one run are idle for 200 to 400 us."""
    restless = [200_000, 300_000, 400_000]
    b = side([400_000] * 3, ("host-bound", 3 * 400_000))
    assert not only(versus(side(restless, ("host-bound", 3 * 300_000)), b)).differs


@pytest.mark.parametrize(("after", "differs"), [(80_000, False), (70_000, True)])
def test_few_steps_tell_only_a_change_to_a_quarter(after: int, differs: bool) -> None:
    a, b = (
        side([300_000], ("host-bound", 300_000)),
        side([after], ("host-bound", after)),
    )
    found = versus(a, b)
    assert only(found).differs == differs
    assert bool(describe_doubts(found.findings, found.is_sure)) == differs


def test_notes_are_left_out() -> None:
    assert versus(side(LATE, ("small-kernels", None)), side(LATE)).findings == ()


def test_a_note_on_the_other_side_has_no_time() -> None:
    one = only(
        versus(side(LATE, ("fusable-run", 400_000)), side(LATE, ("fusable-run", None)))
    )
    assert (one.status, one.b_ns, one.missing, one.differs) == (
        "stays",
        None,
        None,
        False,
    )


def test_a_rule_that_cannot_tell() -> None:
    lack = Unknown("host-bound", "launch calls", "ProfilerActivity.CUDA")
    found = versus(side(LATE, WAITS), side([0] * 4, cannot_tell=(lack,)))
    assert (only(found).status, only(found).b_ns) == ("unknown", None)
    assert describe_doubts(found.findings, True) == [
        (
            "B lacks launch calls (add ProfilerActivity.CUDA), so this rule is inconclusive: host-bound."
        )
    ]


def test_a_rule_that_is_silent_for_want_of_what_it_needs() -> None:
    """Without frames, the loader of B may have no name."""
    loads = ("data-loading", 4 * 300_000)
    one = only(
        versus(side([0] * 4, lacks={STACKS: "with_stack=True"}), side(LATE, loads))
    )
    assert (one.status, one.a_ns, one.missing) == ("unknown", None, STACKS)


def test_a_finding_is_gone_although_both_sides_lack_stacks() -> None:
    lacks = {STACKS: "with_stack=True"}
    a = side(LATE, ("data-loading", 4 * 300_000), lacks=lacks)
    assert only(versus(a, side([0] * 4, lacks=lacks))).status == "gone"


def test_host_bound_is_gone_although_one_side_lacks_stacks() -> None:
    """host-bound names frames where there are any, and speaks without them."""
    b = side([0] * 4, lacks={STACKS: "with_stack=True"})
    assert only(versus(side(LATE, WAITS), b)).status == "gone"


@pytest.mark.parametrize(
    ("rule", "needs"),
    [
        ("host-bound", {"launch calls"}),
        ("far-from-peak", {"input shapes", "a device with known peak rates"}),
        ("overlap-tax", {"input shapes"}),
        ("unfused-attention", {"CPU ops"}),
        ("recompute", {STACKS}),
        ("few-blocks", {"launch configurations", "the number of multiprocessors"}),
        ("recording", set()),
    ],
)
def test_rules_name_what_they_need(rule: str, needs: set[str]) -> None:
    (found,) = (one for one in RULES if one.id == rule)
    assert set(found.needs) - {"GPU events"} == needs


def test_a_trace_twice_is_silent(any_trace: Path) -> None:
    found = why(open_trace(str(any_trace)))
    twice = versus(found, found)
    assert not make_finding_rows(twice.findings)
    assert not describe_doubts(twice.findings, twice.is_sure)


def halves_do_not_differ(path: Path, first_steps: int) -> None:
    """The findings of a run of equal steps, before and after one of them."""
    trace = open_trace(str(path))
    middle = why(trace).steps[first_steps].start_ns
    halves = (
        why(trace, selection)
        for selection in (Selection(to_ns=middle), Selection(from_ns=middle))
    )
    found = versus(*(replace(half, about=None) for half in halves))
    assert found.is_sure
    assert make_finding_rows(found.findings) == []


def test_findings_of_two_halves_of_a_run_do_not_differ(tmp_path: Path) -> None:
    run = simulate(training(12), Residuals(seed=3, launch=900, switch=300))
    path = tmp_path / "long.json"
    path.write_text(json.dumps(recorded(run)))
    halves_do_not_differ(path, first_steps=6)
