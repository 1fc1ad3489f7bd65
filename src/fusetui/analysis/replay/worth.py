"""Estimates the gain of each finding of `why`.

A finding names a cause of lost time, and the *change* that would remove it. Its *worth*
or *gain* is what the median step (without steps, the whole span) becomes shorter by if
the trace is replayed with that change. Each rule of `why` says which change that is:
`wanted` of its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.loaders import find_worker_loader_calls
from fusetui.analysis.replay.apply import EDITS
from fusetui.analysis.replay.build import build_graph
from fusetui.analysis.replay.changes import WrongChangeError, parse_change
from fusetui.analysis.replay.draft import Draft
from fusetui.analysis.replay.graph import OTHER_LANE, Graph, Node, Times
from fusetui.analysis.replay.path import measure_residuals
from fusetui.analysis.replay.replay import replay, replay_late
from fusetui.analysis.replay.route import find_critical_path, measure_late_share
from fusetui.analysis.replay.select import find_intervals
from fusetui.analysis.replay.times import measure_lengths
from fusetui.analysis.replay.whatif import (
    MAX_LATE_SHARE,
    UNKNOWN,
    differ_notably,
    is_certain,
    lacks_awaited_events,
    leaves_waits_out,
    select_steps_of_median,
)
from fusetui.analysis.why.model import (
    MIN_DOUBTFUL_SHARE,
    MIN_GAIN_DIVISOR,
    AsyncCalls,
    CombinedWorth,
    Finding,
    FreeThreadTime,
    ReducedDurations,
    RemovedCalls,
    SomeSteps,
    Wanted,
    Why,
    WorthNote,
)
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Floats, Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, common
from fusetui.trace.model.quantiles import lower_median

MAX_REPLAYED_NODES = 6_000_000
"""How many nodes the replays for all findings of a trace may have together, unless a
user requests them. They take about 2 s."""
NODES_OF_GPU_EVENT = 3
"""How many nodes of a graph a GPU event with its launch has, roughly."""
RUNS_OF_GRAPH = 4
"""How many replays take as long as making the graph and its recorded answer."""
HAPPEN_ONCE = ("warm-up", "recompilation", "first-compiled-kernels")
"""Rules about what happens once, however many steps were recorded."""


class _Rank(IntEnum):
    """The order of findings."""

    GAIN = 0  # their change saves time
    NO_GAIN = 1
    NOTE = 2
    NEGLIGIBLE = 3  # they cost next to no time


class _SortKey(NamedTuple):
    """What findings are sorted by, ascending; so that more comes first, it is negated."""

    rank: _Rank
    minus_gain_ns: int
    minus_bound_ns: int


def with_worth(
    trace: Trace,
    why: Why,
    together: int = 0,
    *,
    by: str | None = None,
    asked: bool = False,
) -> Why:
    """Add the gains of findings to an answer, and sort the findings by them.

    Args:
        trace: The trace.
        why: The answer.
        together: For how many of the first findings to estimate what their changes
            gain if they are all made.
        by: What counts as a step; see `steps_of`.
        asked: Whether a user requested the gains, however long they take. Otherwise
            they are left out of large traces.

    Returns:
        The answer with its findings sorted, the best first. If nothing is replayed, the
        findings stay in their order, and have a note why their gain is not known.
    """
    changes = why._wanted  # one for each finding, None for a finding without a change
    notes = []
    for finding, change in zip(why.findings, changes, strict=True):
        notes.append(_note_assumption(finding, change))
    refusal = _explain_not_replayed(trace, why, asked)
    has_changes = any(change is not None for change in changes)
    if refusal or not has_changes:
        return replace(why, findings=_add_notes(why, notes, refusal))

    gains = _Gains(trace, by)
    findings = []
    for finding, change, note in zip(why.findings, changes, notes, strict=True):
        findings.append(gains.add_gain_to(finding, change, note))

    best_first = _rank_findings(trace, why, findings, gains.usual_ns, by)
    changes_with_gain = []
    for index in best_first:
        change = changes[index]
        if change is not None and _has_gain(findings[index]):
            changes_with_gain.append(change)
    combined = gains.estimate_combined_gain(changes_with_gain[:together])
    return replace(
        why,
        findings=tuple(findings[index] for index in best_first),
        _wanted=tuple(changes[index] for index in best_first),
        worth_of="step" if len(steps_of(trace, by)) else "span",
        worth_before_ns=gains.usual_ns,
        residuals=measure_residuals(trace),
        residual_share=max(gains.unknown_shares),
        together=combined,
    )


class _Gains:
    """Replays one trace with the changes of its findings, and tells what they save."""

    def __init__(self, trace: Trace, by: str | None) -> None:
        """Measure the steps as recorded, with which the replays are compared.

        Args:
            trace: The trace.
            by: What counts as a step; see `steps_of`.
        """
        self._trace = trace
        self._by = by
        self._graph = build_graph(trace)
        recorded = self._graph.recorded
        self._before = _measure_result(trace, self._graph, recorded, recorded, by)
        residuals = measure_residuals(trace)
        self.unknown_shares = [device.residual_share for device in residuals]
        """Which shares of critical paths are not understood: first that of each device
        as recorded, then that of each replay so far."""

    @property
    def usual_ns(self) -> int:
        """The median length of the steps as recorded."""
        return lower_median(self._before.lengths)

    def add_gain_to(
        self, finding: Finding, change: Wanted | None, note: WorthNote | None
    ) -> Finding:
        """Add to a finding its gain, or a note why the gain is not known.

        Args:
            finding: The finding.
            change: Its change; None if it has none.
            note: What the change assumes. Without a change, why there is none.
        """
        if change is None:
            return replace(finding, worth_note=note)

        result_after = _replay_changes(self._trace, self._graph, [change], self._by)
        if not isinstance(result_after, ReplayResult):
            reason_why_unknown = result_after
            return replace(finding, worth_note=reason_why_unknown)

        if change == LOADER_CHANGE:
            has_workers = len(find_worker_loader_calls(self._trace)) > 0
            note = "no_batch_waits" if has_workers else "one_worker"
        self.unknown_shares.append(result_after.unknown_share)
        return _add_gain(self._trace, finding, note, self._before, result_after)

    def estimate_combined_gain(self, changes: Sequence[Wanted]) -> CombinedWorth | None:
        """Estimate what some changes save of the median step if they are all made.

        Returns:
            The gain; None without changes, or if it is not known.
        """
        if not changes:
            return None
        result_after = _replay_changes(self._trace, self._graph, changes, self._by)
        if not isinstance(result_after, ReplayResult):
            return None
        self.unknown_shares.append(result_after.unknown_share)
        return _combine_gains(self._before, result_after, findings=len(changes))


def _rank_findings(
    trace: Trace,
    why: Why,
    findings: Sequence[Finding],
    usual_ns: int,
    by: str | None,
) -> list[int]:
    """Rank findings by their gains: return their indices in `findings`, the best first.

    Args:
        trace: The trace.
        why: The answer that the findings are from.
        findings: The findings, with their gains.
        usual_ns: The median length of the steps as recorded.
        by: What counts as a step; see `steps_of`.
    """
    steps = max(len(steps_of(trace, by)), 1)
    devices = max(len(why.devices), 1)

    def sort_key(index: int) -> _SortKey:
        return _make_sort_key(
            findings[index], steps=steps, devices=devices, usual_ns=usual_ns
        )

    return sorted(range(len(findings)), key=sort_key)


def _add_notes(
    why: Why, notes: Sequence[WorthNote | None], refusal: WorthNote | None
) -> tuple[Finding, ...]:
    """Add to each finding of an answer a note why it has no gain.

    Args:
        why: The answer.
        notes: The note of each finding about its own change, or why it has none.
        refusal: Why nothing is replayed at all. It replaces the note of the findings
            that have a change.
    """
    findings = []
    for finding, change, note in zip(why.findings, why._wanted, notes, strict=True):
        is_refused = change is not None and refusal is not None
        findings.append(replace(finding, worth_note=refusal if is_refused else note))
    return tuple(findings)


class ReplayResult(NamedTuple):
    """How long the steps that count (select_steps_of_median) take in a replay.

    In a trace without steps, the whole span counts as its only step.
    """

    lengths: Int64s  # ns per step
    # ns per step, if batches come as late as the recording allows.
    latest: Int64s
    unknown_share: float  # how much of the critical path is not understood
    # Whether much of the path begins late for no known reason: it may wait for more
    # than was recorded.
    may_wait_for_more: bool


def _measure_result(
    trace: Trace, graph: Graph, times: Times, late_times: Times, by: str | None
) -> ReplayResult:
    """Measure how long the steps that count take in a replay.

    Args:
        trace: The trace.
        graph: The replayed work as nodes, with what each of them waits for.
        times: The times of its nodes.
        late_times: The same, if batches come as late as the recording allows; the very
            object `times` if no batches are waited for.
        by: What counts as a step; see `steps_of`.
    """
    counted_steps = select_steps_of_median(trace, by)
    lengths = _measure_lengths(trace, graph, times, by)[counted_steps]
    latest = lengths
    if late_times is not times:
        latest = _measure_lengths(trace, graph, late_times, by)[counted_steps]
    critical_path = find_critical_path(graph, times)
    return ReplayResult(
        lengths=lengths,
        latest=latest,
        unknown_share=critical_path.unknown_share,
        may_wait_for_more=measure_late_share(graph, critical_path) > MAX_LATE_SHARE,
    )


def _combine_gains(
    before: ReplayResult, after: ReplayResult, findings: int
) -> CombinedWorth:
    """Compute what the changes of several findings save if they are all made.

    Args:
        before: The steps as recorded.
        after: The steps with all the changes.
        findings: How many findings these changes are of.
    """
    before_ns = lower_median(before.lengths)
    after_ns = lower_median(after.lengths)
    return CombinedWorth(findings, before_ns, after_ns, before_ns - after_ns)


def _measure_lengths(
    trace: Trace, graph: Graph, times: Times, by: str | None
) -> Int64s:
    """Measure the length of each step in a replay, in ns.

    Without steps there is one length: from the first start to the last end of GPU
    events. What the program does before and after is no part of a GPU's span. Without
    GPU events either, it is the length of the whole replay.

    Args:
        trace: The trace.
        graph: The replayed work as nodes, with what each of them waits for.
        times: The times of its nodes.
        by: What counts as a step; see `steps_of`.
    """
    all_tasks = graph.gpu_tasks
    is_removed = graph.is_removed[all_tasks]
    gpu_tasks = all_tasks[~is_removed]
    if len(steps_of(trace, by)) or not len(gpu_tasks):
        return measure_lengths(trace, graph, times, by)
    first_start = times.begin[gpu_tasks].min()
    last_end = times.end[gpu_tasks].max()
    return np.array([last_end - first_start])


LOADER_CHANGE = "loader"
"""The change of the rule data-loading. What it assumes depends on whether there are
workers already; see docs/whatif.md."""


def _has_gain(finding: Finding) -> bool:
    """Return whether it is known what the change of a finding saves."""
    return finding.worth_ns is not None or finding.worth_steps is not None


T = TypeVar("T", int, float, Int64s)


def _is_notable(gain: T, *, of: T) -> Any:
    """Return whether a gain is more than one part in MIN_GAIN_DIVISOR (2000) of a time.

    E.g. 6 us of 10 ms, but not 5 us.

    Args:
        gain: The gain, or an array of gains.
        of: The time, or an array of times, in the same unit.

    Returns:
        A bool, or one flag per gain.
    """
    return gain * MIN_GAIN_DIVISOR > of


def _count_changed_steps(before: ReplayResult, after: ReplayResult) -> SomeSteps:
    """Count the steps that become shorter with a change, and those that become longer.

    A difference counts if it is notable: more than one part in 2000 of the step. E.g.
    if steps of 10 ms each become 8, 10 and 11 ms, one step saves 2 ms and one loses 1
    ms.

    Args:
        before: The steps as recorded.
        after: The steps with the change.
    """
    gains = before.lengths - after.lengths
    is_shorter = _is_notable(gains, of=before.lengths)
    is_longer = _is_notable(-gains, of=before.lengths)
    return SomeSteps(
        steps=int(np.count_nonzero(is_shorter)),
        of=len(gains),
        saved_ns=int(gains[is_shorter].sum()),
        longer=int(np.count_nonzero(is_longer)),
        lost_ns=-int(gains[is_longer].sum()),
    )


def _add_gain(
    trace: Trace,
    finding: Finding,
    note: WorthNote | None,
    before: ReplayResult,
    after: ReplayResult,
) -> Finding:
    """Add to a finding what its change saves of the median step.

    If the median step gains next to nothing, or less than half of the steps gain, there
    are three cases: what limits the steps may not be known, so the gain is not either;
    the few steps that gain may gain so much that they are reported instead; otherwise
    the gain is next to nothing.

    Args:
        trace: The trace.
        finding: The finding.
        note: What its change assumes.
        before: The steps as recorded.
        after: The steps with the change.
    """
    usual_ns = lower_median(before.lengths)
    after_ns = lower_median(after.lengths)
    mean_gain_ns = int((before.lengths - after.lengths).mean())
    gain_ns = max(0, usual_ns - after_ns)
    some_steps = _count_changed_steps(before, after)
    few_steps_gain = 0 < 2 * some_steps.steps < some_steps.of
    median_step_gains = _is_notable(gain_ns, of=usual_ns) and not few_steps_gain

    if not median_step_gains:
        if _is_limit_unknown(trace, before, after):
            return replace(finding, worth_note="limit_unknown")
        if some_steps.steps and _is_notable(mean_gain_ns, of=usual_ns):
            return replace(finding, worth_note="some_steps", worth_steps=some_steps)
        if few_steps_gain:
            # The medians before and after are steps of different phases of the program,
            # so their difference is no gain of either.
            gain_ns = 0

    return replace(
        finding,
        worth_ns=gain_ns,
        worth_share=gain_ns / max(usual_ns, 1),
        worth_note=_choose_note(
            trace, note, before, after, median_step_gains=median_step_gains
        ),
    )


def _choose_note(
    trace: Trace,
    note: WorthNote | None,
    before: ReplayResult,
    after: ReplayResult,
    *,
    median_step_gains: bool,
) -> WorthNote | None:
    """Choose the assumption or doubt that a gain is reported with; None for neither.

    It is "at_most" if no program with this change can save more than the gain, or if
    the change would save less with batches of data loaders that come later.

    Args:
        trace: The trace.
        note: What the change assumes. "at_most" says that no program with this change
            can save more; it is dropped if something in the replay is not certain.
        before: The steps as recorded.
        after: The steps with the change.
        median_step_gains: Whether the median step gains more than next to nothing.
    """
    is_bound = note == "at_most" and median_step_gains
    if is_bound and not is_certain(trace, before.unknown_share, after.unknown_share):
        note = None
    # If batches come later than in the replay, the change saves less.
    after_ns = lower_median(after.lengths)
    latest_ns = lower_median(after.latest)
    if note is None and differ_notably(after_ns, latest_ns):
        return "at_most"
    return note


def _is_limit_unknown(trace: Trace, before: ReplayResult, after: ReplayResult) -> bool:
    """Return whether something unrecorded may be the reason why a change saves nothing.

    That is so if work may wait for more than was recorded, or if more of the critical
    path is not understood than before the change, or than is tolerated at all.

    Args:
        trace: The trace.
        before: The steps as recorded.
        after: The steps with the change.
    """
    may_wait_for_more = before.may_wait_for_more or after.may_wait_for_more
    if may_wait_for_more or lacks_awaited_events(trace):
        return True
    hardly_more_share = before.unknown_share + 1 / MIN_GAIN_DIVISOR
    tolerated_share = min(MIN_DOUBTFUL_SHARE, hardly_more_share)
    return after.unknown_share > tolerated_share


def _make_sort_key(
    finding: Finding, *, steps: int, devices: int, usual_ns: int
) -> _SortKey:
    """Make the key by which findings are sorted.

    The largest estimated gain comes first. If the gain is unknown, the upper bound
    counts in its place: its part for one step and one device, but no more than that
    step or span. Then come findings that gain nothing, then notes, and negligible
    findings last. Of findings with equal gains, the larger upper bound comes first.

    Args:
        finding: The finding.
        steps: How many steps were recorded, at least 1.
        devices: How many devices there are, at least 1.
        usual_ns: The median length of a step, or the span.
    """
    bound_ns = finding.at_stake_ns
    if bound_ns is None:
        return _SortKey(_Rank.NOTE, minus_gain_ns=0, minus_bound_ns=0)
    if finding.negligible:
        return _SortKey(_Rank.NEGLIGIBLE, minus_gain_ns=0, minus_bound_ns=-bound_ns)

    if finding.worth_steps is not None:
        gain_ns = finding.worth_steps.net_ns // finding.worth_steps.of
    elif finding.worth_ns is None:
        gain_ns = min(bound_ns // (steps * devices), usual_ns)
    elif not _is_notable(finding.worth_share or 0.0, of=1):
        return _SortKey(_Rank.NO_GAIN, minus_gain_ns=0, minus_bound_ns=-bound_ns)
    elif finding.worth_note == "own_time":
        # A CPU that takes no time at all would also solve what other findings are
        # about, so its gain counts with no more than its own upper bound.
        gain_ns = min(finding.worth_ns, bound_ns // steps)
    else:
        gain_ns = finding.worth_ns
    return _SortKey(_Rank.GAIN, minus_gain_ns=-gain_ns, minus_bound_ns=-bound_ns)


NOTES_OF_CHANGES: dict[type[Any], WorthNote] = {
    FreeThreadTime: "own_time",
    AsyncCalls: "at_most",
}
"""What changes of a type assume; the other types assume nothing."""


def _note_assumption(finding: Finding, wanted: Wanted | None) -> WorthNote | None:
    """Return what the change of a finding assumes, or why the finding has no change.

    None if the change assumes nothing that has to be said.

    Args:
        finding: The finding.
        wanted: Its change, None if it has none.
    """
    if finding.at_stake_ns is None:
        return "note"
    if wanted is None:
        return "warm_up" if finding.rule in HAPPEN_ONCE else "no_change"
    return NOTES_OF_CHANGES.get(type(wanted))


def _explain_not_replayed(trace: Trace, why: Why, asked: bool) -> WorthNote | None:
    """Explain why the changes of findings are not replayed; None if they are.

    Args:
        trace: The trace.
        why: The answer with the findings.
        asked: Whether a user requested the gains, however long they take.
    """
    is_about_part_of_trace = why.modules is None
    if is_about_part_of_trace:
        return "part"
    if leaves_waits_out(trace):
        return "no_waits"

    nodes_of_graph = NODES_OF_GPU_EVENT * len(trace.gpu_rows)
    replays = sum(change is not None for change in why._wanted)
    nodes = nodes_of_graph * (RUNS_OF_GRAPH + replays)
    if nodes > MAX_REPLAYED_NODES and not asked:
        return "large"

    for device in measure_residuals(trace):
        if device.residual_share > UNKNOWN:
            return "residual"
    return None


def _replay_changes(
    trace: Trace, graph: Graph, changes: Sequence[Wanted], by: str | None
) -> ReplayResult | WorthNote:
    """Replay a trace with some changes, and return how long its steps then take.

    Args:
        trace: The trace.
        graph: Its work as nodes, with what each of them waits for.
        changes: The changes, which are made one after the other.
        by: What counts as a step; see `steps_of`.

    Returns:
        The steps, or a note why they are not known.
    """
    draft = Draft(trace, graph, latest=False)
    for wanted in changes:
        change: Any = parse_change(wanted) if isinstance(wanted, str) else wanted
        edit = _EDITS[type(change)]
        try:
            edit(change, draft)
        except WrongChangeError:
            return "not_found"
    changed = draft.make_changed_graph()
    times = replay(changed)
    result = _measure_result(trace, changed, times, replay_late(changed, times), by)
    is_understood = result.unknown_share <= UNKNOWN
    return result if is_understood else "unclear"


def _shorten_durations(wanted: ReducedDurations, draft: Draft) -> None:
    """Make GPU events and launch calls take less time, but never less than none.

    Raises:
        WrongChangeError: If none of the rows is a GPU event or a launch call.
    """
    graph = draft.graph
    tasks = graph.nodes(Node.GPU_TASK, rows=wanted.rows)
    calls = graph.nodes(Node.LAUNCH, rows=wanted.rows)
    if not len(tasks) and not len(calls):
        raise WrongChangeError("Nothing to shorten.")

    saved_of_row = np.zeros(len(draft.trace), dtype=np.int64)
    saved_of_row[wanted.rows] = wanted.ns
    saved_of_task = saved_of_row[graph.row[tasks]]
    saved_of_call = saved_of_row[graph.row[calls]]

    def shorten_tasks(current_ns: Floats) -> Floats:
        """Return how long each task still takes, in ns."""
        return np.maximum(current_ns - saved_of_task, 0)

    draft.scale_gpu_tasks(tasks, shorten_tasks)
    draft.dur[calls] = np.maximum(draft.dur[calls] - saved_of_call, 0)


def _remove_calls(wanted: RemovedCalls, draft: Draft) -> None:
    """Make calls take no time and wait for nothing, as if they were not made.

    Args:
        wanted: The change, which has the rows of the calls.
        draft: The graph that is changed in place.
    """
    in_calls = find_intervals(draft.trace, draft.graph, wanted.rows)
    draft.scale_threads(in_calls, 0.0)
    waits = draft.graph.nodes(Node.WAIT, rows=wanted.rows)
    draft.remove_edges(OTHER_LANE, waits)
    draft.dur[waits] = 0
    draft.unexplained[waits] = 0


def _make_calls_asynchronous(wanted: AsyncCalls, draft: Draft) -> None:
    """Make calls that are known to wait return at once, and copies take no time.

    Calls that launch GPU work and are not known to wait take no time either.

    Raises:
        WrongChangeError: If nothing waits and nothing is copied.
    """
    trace = draft.trace
    graph = draft.graph
    calls = graph.nodes(Node.WAIT, rows=wanted.rows)
    does_wait = graph.has_edge(OTHER_LANE, calls)
    is_copy = trace.role[wanted.rows] == Role.MEMCPY
    copies = graph.nodes(Node.GPU_TASK, rows=wanted.rows[is_copy])
    if not does_wait.any() and not len(copies):
        raise WrongChangeError("Nothing is known to wait.")

    takes_no_time = np.zeros_like
    draft.scale_gpu_tasks(copies, takes_no_time)
    launching_rows = trace.launch[trace.gpu_rows]
    does_launch = np.isin(graph.row[calls], launching_rows)
    draft.dur[calls[~does_wait & does_launch]] = 0
    draft.return_at_once(calls[does_wait])


def _free_threads(wanted: FreeThreadTime, draft: Draft) -> None:
    """Make the own time of all threads take no time during some intervals.

    The own time is what they do besides calls of CUDA and waits.

    Args:
        wanted: The change, which has the intervals.
        draft: The graph that is changed in place.
    """
    trace = draft.trace
    # The intervals may be open-ended, as the complement of others is.
    span = Cover(np.array([trace.begin_ns]), np.array([trace.end_ns]))
    within_span = common(span, wanted.cover)
    intervals = within_span.shifted(-draft.graph.origin_ns)
    threads = range(len(draft.time_scales))
    draft.scale_threads(dict.fromkeys(threads, intervals), 0.0)


_EDITS: dict[type[Any], Callable[[Any, Draft], None]] = {
    **EDITS,
    ReducedDurations: _shorten_durations,
    RemovedCalls: _remove_calls,
    AsyncCalls: _make_calls_asynchronous,
    FreeThreadTime: _free_threads,
}
"""What each type of change does to a graph: those of `fusetui whatif`, and those that
only findings have. Each may raise WrongChangeError."""
