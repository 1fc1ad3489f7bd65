"""What each finding of `why` is worth: the time that its own change saves when it is
replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.loaders import worker_rows
from fusetui.analysis.replay.apply import MAKERS, Draft
from fusetui.analysis.replay.build import graph_of
from fusetui.analysis.replay.changes import WrongChange, parse_change
from fusetui.analysis.replay.graph import NEVER, Graph, Node, Times
from fusetui.analysis.replay.path import residuals_of
from fusetui.analysis.replay.replay import late_share, replay, replay_late, route_to
from fusetui.analysis.replay.select import covers
from fusetui.analysis.replay.whatif import (
    LITTLE,
    UNKNOWN,
    differs,
    events_unknown,
    is_certain,
    leaves_waits_out,
    lengths_of,
    median,
    told_steps,
)
from fusetui.analysis.why.model import (
    DOUBTFUL,
    NOTHING,
    Finding,
    Hurried,
    Shorter,
    SomeSteps,
    Together,
    Unawaited,
    Unmade,
    Wanted,
    Why,
    WorthNote,
)
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover, common
from fusetui.trace.model.memo import once

MOST = 6_000_000
"""Nodes that are replayed for all findings of a trace, unless that is asked for: about
2 s."""
NODES = 3  # of a GPU event and its launch
HAPPEN_ONCE = ("warm-up", "recompilation", "first-compiled-kernels")
"""Rules about what happens once, however many steps were recorded."""
RANK_OF_GAINS, RANK_OF_NO_GAIN, RANK_OF_NOTES, RANK_OF_NEGLIGIBLE = range(4)
"""In which order findings come: those that save time, those that save none, notes,
negligible."""
RUNS = 4  # of one change as long as to make the graph, and what is known of it, takes


def with_worth(
    trace: Trace,
    found: Why,
    together: int = 0,
    *,
    by: str | None = None,
    asked: bool = False,
) -> Why:
    """The findings with their worth, by which they are sorted; and what the first
    `together` are worth at once. `by`: see steps_of. `asked`: however long it takes."""
    missing = _missing(trace, found, asked)
    wanted, notes = found.wanted, [*map(_note, found.findings, found.wanted)]
    if missing or not any(one is not None for one in wanted):
        every = zip(found.findings, wanted, notes, strict=True)
        findings = (
            replace(f, worth_note=missing if w and missing else n) for f, w, n in every
        )
        return replace(found, findings=tuple(findings))
    graph = once(trace, graph_of)
    has_workers = len(worker_rows(trace)) > 0
    before = _told(trace, graph, graph.recorded, graph.recorded, by)
    told, unknown = list[Finding](), [one.residual_share for one in residuals_of(trace)]
    for finding, change, note in zip(found.findings, wanted, notes, strict=True):
        after = _after(trace, graph, [change], by) if change is not None else note
        if isinstance(after, Then):
            own_note = _loader_note(has_workers) if change == LOADED else note
            told.append(_with(trace, finding, own_note, before, after))
            unknown.append(after.unknown)
        else:
            told.append(replace(finding, worth_note=after))
    steps = len(steps_of(trace, by))
    whole_ns = median(before.lengths)
    counts = max(steps, 1), max(len(found.devices), 1)
    order = sorted(range(len(told)), key=lambda n: _rank(told[n], *counts, whole_ns))
    first = [wanted[n] for n in order if _is_replayed(told[n])][:together]
    both, made = _after(trace, graph, first, by) if first else None, None
    if isinstance(both, Then):
        unknown.append(both.unknown)
        each = median(before.lengths), median(both.lengths)
        made = Together(len(first), *each, each[0] - each[1])
    return replace(
        found,
        findings=tuple(told[n] for n in order),
        wanted=tuple(wanted[n] for n in order),
        worth_of="step" if steps else "span",
        worth_before_ns=whole_ns,
        residuals=residuals_of(trace),
        residual_share=max(unknown),
        together=made,
    )


class Then(NamedTuple):
    lengths: Int64s  # without steps, that of all
    latest: Int64s  # the same, if batches come as late as the recording allows
    unknown: float  # the share of the critical path that is not understood
    is_late: bool  # of that, where more may wait for other work than is known


def _told(
    trace: Trace, graph: Graph, times: Times, late: Times, by: str | None
) -> Then:
    """`late`: the times if batches come as late as the recording allows."""
    places, route = told_steps(trace, by), route_to(graph, times)
    lengths = _lengths(trace, graph, times, by)[places]
    return Then(
        lengths=lengths,
        latest=lengths if late is times else _lengths(trace, graph, late, by)[places],
        unknown=route.unknown_share,
        is_late=late_share(graph, route) > LITTLE,
    )


def _lengths(trace: Trace, graph: Graph, times: Times, by: str | None) -> Int64s:
    """Of each step; without steps from the first start to the last end of GPU events:
    what the program does before and after that is no part of a GPU's span."""
    if len(steps_of(trace, by)):
        return lengths_of(trace, graph, times, by)
    items = graph.nodes(Node.ITEM)
    items = items[~graph.gone[items]]
    if not len(items):
        return lengths_of(trace, graph, times, by)
    return np.array([times.end[items].max() - times.begin[items].min()])


LOADED = "loader"
"""The change of data-loading."""


def _loader_note(has_workers: bool) -> WorthNote:
    """What the change assumes: see docs/whatif.md."""
    return "no_batch_waits" if has_workers else "one_worker"


def _is_replayed(finding: Finding) -> bool:
    return finding.worth_ns is not None or finding.worth_steps is not None


def _some_steps(before: Then, then: Then) -> SomeSteps:
    gains = before.lengths - then.lengths
    gaining = gains * NOTHING > before.lengths
    losing = -gains * NOTHING > before.lengths
    return SomeSteps(
        steps=int(np.count_nonzero(gaining)),
        of=len(gains),
        saved_ns=int(gains[gaining].sum()),
        longer=int(np.count_nonzero(losing)),
        lost_ns=-int(gains[losing].sum()),
    )


def _with(
    trace: Trace, finding: Finding, note: WorthNote | None, before: Then, then: Then
) -> Finding:
    whole, mean = median(before.lengths), int((before.lengths - then.lengths).mean())
    saved = max(0, whole - median(then.lengths))
    some = _some_steps(before, then)
    saves_in_few = 0 < 2 * some.steps < some.of
    if saved * NOTHING <= whole or saves_in_few:
        unsaid = before.is_late or then.is_late or events_unknown(trace)
        if unsaid or then.unknown > min(DOUBTFUL, before.unknown + 1 / NOTHING):
            return replace(finding, worth_note="limit_unknown")
        if some.steps and mean * NOTHING > whole:
            return replace(finding, worth_note="some_steps", worth_steps=some)
        saved = 0 if saves_in_few else saved  # else it is that of another phase
    elif note == "at_most" and not is_certain(trace, before.unknown, then.unknown):
        note = None
    if note is None and differs(median(then.lengths), median(then.latest)):
        note = "at_most"
    return replace(
        finding, worth_ns=saved, worth_share=saved / max(whole, 1), worth_note=note
    )


def _rank(
    finding: Finding, steps: int, devices: int, whole_ns: int
) -> tuple[int, int, int]:
    """The key by which findings are sorted: the largest estimated gain first; where
    that is unknown, the upper bound counts in its place, as the part of one step and
    one device, and no more than that step or span (`whole_ns`). Then come those that
    gain nothing, then notes, and negligible ones last.

    A CPU that takes no time at all also hides what other findings are about: such a
    gain counts with no more than its upper bound.
    """
    bound_ns = min((finding.at_stake_ns or 0) // (steps * devices), whole_ns)
    if finding.at_stake_ns is None:
        return RANK_OF_NOTES, 0, 0
    if finding.negligible:
        return RANK_OF_NEGLIGIBLE, 0, -finding.at_stake_ns
    if finding.worth_steps is not None:
        return (
            RANK_OF_GAINS,
            -(finding.worth_steps.net_ns // finding.worth_steps.of),
            -finding.at_stake_ns,
        )
    if finding.worth_ns is None:
        return RANK_OF_GAINS, -bound_ns, -finding.at_stake_ns
    if (finding.worth_share or 0.0) * NOTHING <= 1:
        return RANK_OF_NO_GAIN, 0, -finding.at_stake_ns
    gain_ns = finding.worth_ns
    if finding.worth_note == "own_time":
        gain_ns = min(gain_ns, finding.at_stake_ns // steps)
    return RANK_OF_GAINS, -gain_ns, -finding.at_stake_ns


def _note(finding: Finding, wanted: Wanted | None) -> WorthNote | None:
    """What has to be said of a finding whose change can be replayed, or why it has
    none."""
    if finding.at_stake_ns is None:
        return "note"
    if wanted is None:
        return "warm_up" if finding.rule in HAPPEN_ONCE else "no_change"
    told: dict[type[Any], WorthNote] = {Hurried: "own_time", Unawaited: "at_most"}
    return told.get(type(wanted))


def _missing(trace: Trace, found: Why, asked: bool) -> WorthNote | None:
    if found.modules is None:
        return "part"
    if leaves_waits_out(trace):
        return "no_waits"
    runs = RUNS + sum(one is not None for one in found.wanted)
    if not asked and NODES * len(trace.gpu_rows) * runs > MOST:
        return "large"
    share = max((one.residual_share for one in residuals_of(trace)), default=0.0)
    return "residual" if share > UNKNOWN else None


def _after(
    trace: Trace, graph: Graph, wanted: Sequence[Wanted | None], by: str | None
) -> Then | WorthNote:
    """The steps with some changes, or why there are none."""
    draft = Draft(trace, graph, latest=False)
    for one in wanted:
        change: Any = parse_change(one) if isinstance(one, str) else one
        try:
            _MAKERS[type(change)](change, draft)
        except WrongChange:
            return "not_found"
    made = draft.finished()
    early = replay(made)
    then = _told(trace, made, early, replay_late(made, early), by)
    return then if then.unknown <= UNKNOWN else "unclear"


def _shorter(wanted: Shorter, draft: Draft) -> None:
    less = np.zeros(len(draft.trace), dtype=np.int64)
    less[wanted.rows] = wanted.ns
    items = draft.graph.nodes(Node.ITEM, rows=wanted.rows)
    saved = less[draft.graph.row[items]]
    draft.scale(items, lambda own: np.maximum(own - saved, 0))
    calls = draft.graph.nodes(Node.LAUNCH, rows=wanted.rows)
    draft.dur[calls] = np.maximum(draft.dur[calls] - less[draft.graph.row[calls]], 0)
    if not len(items) and not len(calls):
        raise WrongChange("Nothing to shorten.")


def _unmade(wanted: Unmade, draft: Draft) -> None:
    draft.hurry(covers(draft.trace, draft.graph, wanted.rows), 0.0)
    waits = draft.graph.nodes(Node.WAIT, rows=wanted.rows)
    draft.unlink(1, waits)
    draft.dur[waits] = draft.unexplained[waits] = 0


def _unawaited(wanted: Unawaited, draft: Draft) -> None:
    trace, row = draft.trace, draft.graph.row
    calls = draft.graph.nodes(Node.WAIT, rows=wanted.rows)
    does_wait = draft.graph.lag[1, calls] != NEVER
    waits = calls[does_wait]
    copies = draft.graph.nodes(
        Node.ITEM, rows=wanted.rows[trace.role[wanted.rows] == Role.MEMCPY]
    )
    if not len(waits) and not len(copies):
        raise WrongChange("Nothing is known to wait.")
    draft.scale(copies, np.zeros_like)
    draft.dur[calls[~does_wait & np.isin(row[calls], trace.launch[trace.gpu_rows])]] = 0
    draft.release(waits)


def _hurried(wanted: Hurried, draft: Draft) -> None:
    trace, origin = draft.trace, draft.graph.origin_ns
    whole = Cover(np.array([trace.begin_ns]), np.array([trace.end_ns]))
    cover = common(whole, wanted.cover)
    cover = Cover(cover.start - origin, cover.end - origin)
    draft.hurry(dict.fromkeys(range(len(draft.paces)), cover), 0.0)


_MAKERS: dict[type[Any], Callable[[Any, Draft], None]] = {
    **MAKERS,
    Shorter: _shorter,
    Unmade: _unmade,
    Unawaited: _unawaited,
    Hurried: _hurried,
}
