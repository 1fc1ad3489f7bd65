"""The texts of `whatif`, `ranks --what-if` and `path`: the estimated gain of a change,
the bottleneck after it, which rank is last, the critical path, and the slack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from fusetui.analysis.replay.path import Path, PathRow
from fusetui.analysis.replay.whatif import Sweep, WhatIf
from fusetui.analysis.why.model import MIN_DOUBTFUL_SHARE
from fusetui.report.output import UNKNOWN_WIDTH
from fusetui.report.summary import label_kernel
from fusetui.report.worth import doubt
from fusetui.text.figures import (
    change,
    count,
    duration,
    percent,
    plural,
    several,
    significant,
)
from fusetui.text.printable import printable
from fusetui.text.tables import Column, record_table, top_table
from fusetui.trace.layout.steps import StepLength

if TYPE_CHECKING:
    from fusetui.analysis.ranks.rank_graphs import Why
    from fusetui.analysis.ranks.whatif import JobWhatIf


class KindOfTime(NamedTuple):
    """A kind of time on the critical path, in words; its key is its name in JSON."""

    name: str  # in a column
    limit: str  # the bottleneck where most of the time is of this kind
    time: str  # what the time is
    takes: str  # the same as the beginning of a clause


KINDS = {
    "host": KindOfTime("CPU", "the CPU", "CPU thread work", "CPU threads take"),
    "launch": KindOfTime(
        "launch",
        "launching",
        "launch calls and their latency",
        "launch calls and their latency take",
    ),
    "kernel": KindOfTime("kernel", "the GPU", "kernels", "kernels take"),
    "copy": KindOfTime("copy", "copying", "copies and fills", "copies and fills take"),
    "communication": KindOfTime(
        "communication", "communication", "communication", "it takes"
    ),
    "wait": KindOfTime(
        "wait",
        "waiting",
        "waits and switches between GPU events",
        "waits and switches between GPU events take",
    ),
    "residual": KindOfTime(
        "unexplained",
        "unexplained delay",
        "unexplained delays",
        "such delays take",
    ),
}

NAMELESS = {
    "host": "nothing was recorded",
    "launch": "latency from launch to start",
    "wait": "switches between GPU events",
}
"""What a row without a name is where it is the only one of its kind; of several, it is
the rest."""

NOTES = {
    "other_ranks_unchanged": "Other ranks are assumed unchanged: time spent waiting for them "
    "stays as recorded.",
    "waits_scaled": "Communication includes the time spent waiting for other ranks, which this "
    "change scales too. `fusetui ranks FOLDER --what-if` separates the two, given the traces of "
    "all ranks.",
    "no_gpu": "Only the CPU thread is replayed, because no GPU work was recorded.",
    "python_is_all_but_ops": "No Python frames were recorded, so Python is all time "
    "outside ops and calls, except on backward threads.",
    "some_bounds_unknown": (
        "Some kernels keep their recorded time, because their roofline bound is "
        "unknown."
    ),
    "unscaled": "Some kernels keep their recorded time, because their roofline bound "
    "is not known on both devices.",
    "some_runs_keep_their_time": "Some fusable runs save only their launches, because the bytes "
    "that they move are unknown.",
    "graph_launch_assumed": (
        "The duration of a graph launch is assumed, because the trace has no graph "
        "launches."
    ),
    "loader_beside": "The estimate excludes the time to receive a loaded batch.",
    "unrecorded_consumers": "Only recorded events show which kernels need the result of a collective.",
    "host_unchanged": "CPU times are assumed unchanged.",
    "events_unknown": "Work may start too early in this replay: the trace does not "
    "record which events the streams wait for.",
    "late_unexplained": "Some GPU events start late for no recorded reason. The replay keeps "
    "these delays, which is wrong if the events wait for work that the change affects.",
    "batches_unknown": "Workers load the batches, so it is unknown when each would "
    "be ready after the change. The best case assumes that calls "
    "that did not wait still do not, and that workers start a "
    "batch whenever one is taken.",
    "loader_never_waits": "This is an upper bound on the gain from faster loading: "
    "it assumes that no call waits for a batch. Workers "
    "already load the batches.",
    "same_work_later": "The work itself does not take longer: the last of these "
    "steps ends no later than before. The step only seems longer because the previous step ends earlier.",
    "no_waits": "The replay assumes that the CPU never waits for the GPU, because "
    "only launch calls were recorded.",
}
NOTES_WITH_THE_ANSWER = ("same_work_later",)
"""They stand beside the times."""

AFTER_THE_CHANGE = "After the change, "

NOTHING = 2000
"""A smaller part of the time is no change."""

BAR_CELLS = 30
MAX_RANKS_IN_SENTENCE = 4


def format_whatif(answer: WhatIf, width: int, every_step: bool = False) -> str:
    """Return the estimated gain of changes as text, then the bottleneck after them.
    With `every_step`, a table of all steps is in between."""
    doubts = doubt(answer.devices, answer.residual_share)
    blocks = [_wrap_sentences([*doubts, _describe_gain(answer)], width)]
    if every_step and answer.steps and answer.after_ns is not None:
        blocks.append(record_table(STEP_COLUMNS, answer.steps, width))
    if answer.after_ns is not None and answer.limit:
        limit = describe_bottleneck(
            answer.limit, AFTER_THE_CHANGE, _count_steps_on_path(answer)
        )
        blocks += [
            _wrap_sentences([limit], width),
            format_path_rows(answer.limit, width),
        ]
    return "\n\n".join([*blocks, *_format_remarks(answer, width)])


def _count_steps_on_path(answer: WhatIf) -> int:
    """Return how many steps the critical path covers: all steps of the median if they
    follow one another, else one."""
    median_indices = [
        step_index for step_index, step in enumerate(answer.steps) if step.in_median
    ]
    follow_one_another = not median_indices or median_indices[-1] - median_indices[
        0
    ] < len(median_indices)
    return _count_median_steps(answer) if follow_one_another else 1


def _format_remarks(answer: WhatIf | JobWhatIf | Path, width: int) -> Iterator[str]:
    """Yield the notes of an answer, and how many waits were inferred instead of
    recorded."""
    notes = () if isinstance(answer, Path) else answer.notes
    for note in notes:
        if note not in NOTES_WITH_THE_ANSWER:
            yield _wrap_sentences([NOTES[note]], width)
    if answer.inferred_waits:
        calls = plural(answer.inferred_waits, "call")
        remark = f"The waits in {calls} were inferred from timing, not recorded."
        yield _wrap_sentences([remark], width)


def format_sweep(sweep: Sweep, width: int) -> str:
    """Return a table with a row for each factor of a change, and below which factor
    there is no further gain."""
    before = duration(sweep.before_ns)
    is_now = "takes" if sweep.of == "step" else "is"
    head = f"{printable(sweep.change)}: {_whole(sweep.of)} {is_now} {before} now."
    sentences = [head, *doubt(sweep.devices, sweep.residual_share)]
    times_ns = {point.after_ns for point in sweep.points}
    if len(times_ns) == 1:
        sentences.append("No factor changes this time.")
    elif sweep.knee is not None:
        sentences.append(
            f"There is no further gain below x{significant(sweep.knee, 3)}."
        )
    elif sweep.points:
        sentences.append("The gain continues down to the smallest factor.")
    longest_ns = max(times_ns, default=1)
    columns = (
        Column("factor", cell=lambda point: f"x{significant(point.factor, 3)}"),
        Column(sweep.of, cell=lambda point: duration(point.after_ns)),
        Column("change", cell=lambda point: change(sweep.before_ns, point.after_ns)),
        Column("", left=True, cell=lambda point: _draw_bar(point.after_ns, longest_ns)),
    )
    table = record_table(columns, sweep.points, width)
    return "\n\n".join([_wrap_sentences(sentences, width), table])


def _draw_bar(ns: int, longest_ns: int) -> str:
    return "#" * round(BAR_CELLS * ns / longest_ns)


def format_path(path: Path, width: int) -> str:
    """Return the critical path as text, and the slack of work that is not on it. Slack
    is how much longer the work could take without delaying the end."""
    if path.rows:
        limit = describe_bottleneck(path.rows, "")
    else:
        limit = "No critical path: the trace has no slices."
    doubts = doubt(path.devices, path.residual_share)
    blocks = [
        _wrap_sentences([*doubts, limit], width),
        format_path_rows(path.rows, width),
    ]
    if path.slack:
        blocks.append(record_table(SLACK_COLUMNS, path.slack, width))
    elif path.slack_left_out:
        too_large = "Slack is not computed for traces of this size."
        blocks.append(_wrap_sentences([too_large], width))
    return "\n\n".join([*blocks, *_format_remarks(path, width)])


def format_path_rows(rows: Sequence[PathRow], width: int) -> str:
    """Return a table of the rows of a critical path."""
    rows_of_kind = Counter(row.kind for row in rows)
    alone: set[str] = {kind for kind, number in rows_of_kind.items() if number == 1}
    columns = (
        Column("time", cell=lambda row: duration(row.ns)),
        Column("share", cell=lambda row: percent(row.share, 1)),
        Column("count", spare=1, cell=lambda row: count(row.count)),
        Column("kind", left=True, cell=lambda row: KINDS[row.kind].name),
        Column(
            "on the critical path",
            left=True,
            cell=lambda row: describe_path_row(row, alone, width),
        ),
    )
    return record_table(columns, rows, width)


def describe_path_row(row: PathRow, alone: set[str], width: int) -> str:
    """Return what a row of a critical path is. `alone` has the kinds with a single row,
    for which a row without a name is not called "others"."""
    if row.kind in ("kernel", "communication") and row.what:
        return label_kernel(row.what, width)
    if row.what:
        return printable(row.what)
    if row.kind not in alone:
        return "others"
    return NAMELESS.get(row.kind, KINDS[row.kind].time)


def describe_bottleneck(rows: Sequence[PathRow], when: str, steps: int = 1) -> str:
    """Return sentences about the bottleneck of a critical path. `when` is how they
    begin, and `steps` is how many steps the path covers.

        After the change, the CPU is the bottleneck: CPU threads take 71 % of the critical path.
    """
    ns_by_kind = dict.fromkeys(KINDS, 0)
    for row in rows:
        ns_by_kind[row.kind] += row.ns
    kind = max(ns_by_kind, key=lambda kind: ns_by_kind[kind])
    kind_ns = ns_by_kind[kind]
    limit = KINDS[kind].limit

    share = percent(kind_ns, sum(ns_by_kind.values()))
    path = "the critical path"
    if steps > 1:
        path += f" of {plural(steps, 'step')}"
    largest = max((row for row in rows if row.kind == kind), key=lambda row: row.ns)
    most = ""
    if largest.what and 2 * largest.ns > kind_ns:
        most = f" Most of this time goes to {describe_path_row(largest, set(), UNKNOWN_WIDTH)}."
    text = f"{when}{limit} is the bottleneck: {KINDS[kind].takes} {share} of {path}"
    return f"{text[0].upper()}{text[1:]}.{most}"


def _describe_gain(answer: WhatIf) -> str:
    """Return the estimated gain of changes in sentences, or why there is no estimate."""
    changes_text = _name_changes(answer)
    whole = _whole(answer.of)
    if answer.between_ns is not None:
        least_ns, most_ns = answer.between_ns
        return _describe_range(answer, duration(least_ns), duration(most_ns))
    if answer.scales_little:
        share = percent(answer.scaled_share or 0.0, 1)
        return (
            f"Inconclusive: {changes_text} scales only kernels whose roofline bound is known "
            f"on both devices, {share} of the critical path. How long the rest of "
            f"{whole} would take there is unknown."
        )
    if answer.after_ns is None:
        return f"No estimate for {changes_text}, because the trace explains too little of the time."
    sentences = [_describe_new_time(answer, whole, answer.before_ns, answer.after_ns)]
    if answer.latest_ns is not None:
        latest = duration(answer.latest_ns)
        sentences.append(
            f"If no batch is ready earlier than recorded, it takes {latest}."
        )
    for note in NOTES_WITH_THE_ANSWER:
        if note in answer.notes:
            sentences.append(NOTES[note])
    if answer.certainty != "bound":
        sentences += _describe_median(answer)
    return " ".join(sentences)


def _describe_range(answer: WhatIf, least: str, most: str) -> str:
    """Return sentences about a change of which only a range of times is known, from
    `least` to `most`."""
    if least == most:
        times = f"{least} at both ends of the range"
    else:
        times = f"{least} to {most}"
    whole = _whole(answer.of)
    share = percent(answer.scaled_share or 0.0, 1)
    return (
        f"With {_name_changes(answer)}, {whole} would {_verb(whole)} an estimated {times} "
        f"instead of {duration(answer.before_ns)}."
        f" The scaled kernels take {share} of the critical path."
    )


def _describe_median(answer: WhatIf) -> Iterator[str]:
    """Yield a sentence about the steps whose median the estimated time is. Nothing if
    it is one step."""
    number = _count_median_steps(answer)
    if number <= 1 or not answer.after_range_ns:
        return
    low_ns, high_ns = answer.after_range_ns
    if number % 2:
        which = "median"
    elif number > 2:
        which = "lower median"
    else:
        which = "shorter"
    without_gpu = len(answer.steps) - 1 - number
    idle = " and steps without GPU work" if without_gpu > 0 else ""
    yield (
        f"This is the {which} of {plural(number, 'step')} ({duration(low_ns)} to"
        f" {duration(high_ns)} after the change), excluding the first{idle}."
    )


def _describe_new_time(
    answer: WhatIf | JobWhatIf, whole: str, before_ns: int, after_ns: int
) -> str:
    """Return a sentence about how long something would take with the changes, instead
    of before."""
    certainty = "at best" if answer.certainty == "bound" else "estimate"
    gain = format_gain(before_ns, after_ns)
    before = duration(before_ns)
    after = duration(after_ns)
    if before == after:
        return (
            f"With {_name_changes(answer)}, {whole} would still {_verb(whole)} {after} "
            f"({certainty}: {gain})."
        )
    return (
        f"With {_name_changes(answer)}, {whole} would {_verb(whole)} {after} instead of {before} "
        f"({certainty}: {gain})."
    )


def _name_changes(answer: WhatIf | JobWhatIf) -> str:
    """Return the changes in words, joined by "and"."""
    return printable(" and ".join(answer.changes))


def describe_replay(answer: WhatIf) -> str:
    """Return the line above a drawn replay: that it was not recorded, its times, and
    the changes."""
    after_ns = answer.after_ns or 0
    times = f"{duration(answer.before_ns)} -> {duration(after_ns)}"
    length_name = _step_length(answer.of).step
    gain = format_gain(answer.before_ns, after_ns)
    if answer.is_doubtful:
        gain += f", {percent(answer.residual_share, 1)} unexplained"
    certainty = "at best" if answer.certainty == "bound" else "estimate"
    return (
        f"replayed, not recorded: {length_name} {times} ({certainty}: {gain})"
        f" with {_name_changes(answer)}"
    )


def format_gain(before_ns: int, after_ns: int) -> str:
    """Return by how much a time changes, such as `11.8 % less`. A change that is too
    small to matter is given as a time: `714 us less, negligible`."""
    difference_ns = abs(after_ns - before_ns)
    if difference_ns * NOTHING > before_ns:
        return change(before_ns, after_ns)
    if not difference_ns:
        return "no change"
    direction = "less" if after_ns < before_ns else "more"
    return f"{duration(difference_ns)} {direction}, negligible"


def _count_median_steps(answer: WhatIf) -> int:
    """The steps of which the median is reported."""
    return max(1, sum(step.in_median for step in answer.steps))


def _whole(of: str) -> str:
    return _step_length(of).a_step


def _verb(whole: str) -> str:
    """Return the verb for the length of a step or span."""
    return "be" if whole.startswith(f"the {StepLength.SPAN}") else "take"


def _step_length(of: str) -> StepLength:
    """Return what the times of an answer are of: a step, or else the whole span."""
    return StepLength.LAUNCHED if of == "step" else StepLength.SPAN


def _wrap_sentences(sentences: Sequence[str], width: int) -> str:
    return "\n".join(wrap(" ".join(sentences), width))


STEP_COLUMNS = (
    Column("before", cell=lambda step: duration(step.before_ns)),
    Column("after", cell=lambda step: duration(step.after_ns)),
    Column("change", cell=lambda step: change(step.before_ns, step.after_ns)),
    Column("step", left=True, cell=lambda step: printable(step.name)),
)
SLACK_COLUMNS = (
    Column("slack", cell=lambda slack: duration(slack.ns)),
    Column("kind", left=True, cell=lambda slack: slack.kind),
    Column(
        "could take this much longer without delaying the end",
        left=True,
        cell=lambda slack: printable(slack.what),
    ),
)

WHY_UNKNOWN: dict[Why, str] = {
    "not_whole": "not all ranks of the job are given",
    "no_collectives": "no collective is common to these ranks",
    "unmatched": "not every collective could be matched",
    "clocks": "the times of these ranks cannot be compared",
    "uncertain": "the clocks of the machines are not known precisely enough",
    "steps": "the ranks do not have the same steps",
    "not_all_wait": "some collectives, such as broadcasts or sends, do not make all of their ranks "
    "wait for all",
    "on_cpu": (
        "some collectives run on the CPU, and the trace does not record what waits "
        "for them"
    ),
    "not_linked": (
        "the trace does not record what some collectives wait for, or what waits for "
        "them"
    ),
    "overlaps": (
        "some kernels start before the previous collective on their stream ends"
    ),
    "not_understood": "the traces of some ranks explain too little of their time",
    "not_replayed": (
        "replaying all ranks without a change does not reproduce the recorded times"
    ),
}
"""Why a change of a job has no estimate."""


def format_job_whatif(answer: JobWhatIf, width: int, top: int) -> str:
    """Return the estimated gain of changes to a whole job as text, then a table with at
    most `top` ranks (0: all)."""
    blocks = [_wrap_sentences([*_describe_job_gain(answer)], width)]
    if answer.after_ns is not None:
        steps = max(len(answer.steps), 1)
        columns = (
            Column("rank", cell=lambda row: str(row.rank)),
            Column("last", cell=lambda row: count(row.last_before)),
            Column("then last", cell=lambda row: count(row.last_after)),
            Column("waits", cell=lambda row: duration(row.waits_before_ns // steps)),
            Column(
                "then waits", cell=lambda row: duration(row.waits_after_ns // steps)
            ),
        )
        blocks.append(top_table(columns, answer.ranks, top, width, "rank"))
        blocks += _format_remarks(answer, width)
    return "\n\n".join(blocks)


def _describe_job_gain(answer: JobWhatIf) -> Iterator[str]:
    """Yield sentences about the estimated gain of changes to a job, or why there is no
    estimate."""
    if answer.before_ns is None or answer.after_ns is None:
        yield (
            f"No estimate of the job with {_name_changes(answer)}:"
            f" {WHY_UNKNOWN[answer.why_not]}."
        )
        return
    if answer.residual_share > MIN_DOUBTFUL_SHARE:
        share = percent(answer.residual_share, 1)
        yield f"Up to {share} of a rank's time is unexplained."
    whole = f"{_whole(answer.of)} of the job"
    yield _describe_new_time(answer, whole, answer.before_ns, answer.after_ns)
    yield from _describe_last_rank(answer)
    unchanged = [str(row.rank) for row in answer.ranks if not row.is_changed]
    if unchanged and len(unchanged) < len(answer.ranks):
        ranks = "rank" if len(unchanged) == 1 else "ranks"
        yield f"Unchanged: {ranks} {several(unchanged, MAX_RANKS_IN_SENTENCE)}."
    if answer.uncertainty_ns:
        uncertainty = duration(answer.uncertainty_ns)
        yield f"The clocks of the machines are known only to within {uncertainty}."


def _describe_last_rank(answer: JobWhatIf) -> Iterator[str]:
    """Yield sentences about which rank arrives last most often, before and after the
    change."""
    before = max(answer.ranks, key=lambda row: row.last_before)
    after = max(answer.ranks, key=lambda row: row.last_after)
    if before.last_before:
        yield (
            f"Rank {before.rank} arrives last in {count(before.last_before)} of"
            f" {count(answer.collectives)} collectives;"
        )
    else:
        yield "No rank arrives last;"
    if not after.last_after:
        yield "after the change, no rank does."
    elif after.rank == before.rank:
        yield f"after the change, it still does, in {count(after.last_after)}."
    else:
        yield f"after the change, rank {after.rank} does, in {count(after.last_after)}."
