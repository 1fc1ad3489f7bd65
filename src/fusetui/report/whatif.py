"""What `whatif`, `ranks --what-if` and `path` say: what a change would be worth, what
limits the steps then, which rank is last, the critical path, and what has time to
spare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from fusetui.analysis.replay.path import Path, PathRow
from fusetui.analysis.replay.whatif import Sweep, WhatIf
from fusetui.analysis.why.model import DOUBTFUL
from fusetui.report.output import UNKNOWN_WIDTH
from fusetui.report.summary import kernel_label
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
from fusetui.text.tables import Column, first_of, table_of

if TYPE_CHECKING:
    from fusetui.analysis.ranks.whatif import JobWhatIf, Why

KINDS = {
    "host": ("the host", "what CPU threads do"),
    "launch": ("launching", "launch calls and their latency"),
    "kernel": ("the kernels", "kernels"),
    "copy": ("copies", "copies and fills"),
    "communication": ("communication", "communication"),
    "wait": ("waiting", "waits, and switches from one GPU event to the next"),
    "residual": ("what is not understood", "delays that nothing recorded explains"),
}
"""Of each kind of time on the critical path: what limits the steps, and what the time
is."""

NAMELESS = {
    "host": "nothing was recorded",
    "launch": "latency from launch to start",
    "wait": "switches from one GPU event to the next",
}
"""What a row without a name is where it is the only one of its kind; of several, it is
the rest."""

NOTES = {
    "other_ranks_unchanged": "Other ranks are taken as unchanged: time spent waiting for them "
    "stays as it was recorded.",
    "waits_scaled": "Communication includes the time spent waiting for other ranks, which this "
    "change scales too. With the traces of all ranks, `fusetui ranks FOLDER --what-if` tells the "
    "two apart.",
    "no_gpu": "No GPU work was recorded: only the CPU thread is replayed.",
    "python_is_all_but_ops": "No Python frames were recorded: all that threads do outside of ops "
    "and calls counts as Python, but not on threads that run backward.",
    "some_bounds_unknown": "The least time of some kernels is not known: they take as long as "
    "before.",
    "unscaled": "Of some kernels the least time is not known on both devices: they take as long as "
    "before.",
    "some_runs_keep_their_time": "Of some fusable runs only the launches are saved, because the "
    "bytes that they move are not known.",
    "graph_launch_assumed": "The trace has no launch of a graph: what one takes is assumed.",
    "loader_beside": "What taking over a loaded batch costs the thread is not counted.",
    "unrecorded_consumers": "Which kernels need the result of a collective is known only from "
    "recorded events.",
    "host_unchanged": "The CPU is taken as unchanged.",
    "events_unknown": "The trace does not say which events streams wait for: a wait that was over "
    "in time is not known, and what follows it may start too early in the replay.",
    "late_unexplained": "Some GPU events begin late, and nothing recorded explains why: they are "
    "taken to begin as late after the change, which is wrong if they wait for what it changes.",
    "batches_unknown": "Workers load the batches, and the recording does not show when each batch "
    "would be ready after the change. At best, a call that returned at once never waits, and the "
    "workers begin a batch as soon as the thread takes an earlier one.",
    "loader_never_waits": "Workers load the batches: this is an upper bound of what faster loading "
    "can gain, because no call waits for a batch.",
    "same_work_later": "The work does not take longer: the last of these steps ends no later than "
    "before. The steps before it end earlier, so that it begins earlier.",
    "no_waits": "Only calls that launch were recorded: the CPU is taken never to wait for the GPU, "
    "which may be wrong.",
}
WITH_THE_ANSWER = ("same_work_later",)  # notes that stand beside the times
NOTHING = 2000  # a smaller part of the time is no change


def whatif_text(found: WhatIf, width: int, every_step: bool = False) -> str:
    """The answer, then what limits the steps; with `every_step` all steps, not only the
    median."""
    blocks = [
        _wrapped([*doubt(found.devices, found.residual_share), _answer(found)], width)
    ]
    if every_step and found.steps and found.after_ns is not None:
        columns = (
            Column("before", cell=lambda step: duration(step.before_ns)),
            Column("after", cell=lambda step: duration(step.after_ns)),
            Column("change", cell=lambda step: change(step.before_ns, step.after_ns)),
            Column("step", True, cell=lambda step: printable(step.name)),
        )
        blocks.append(table_of(columns, found.steps, width))
    if found.after_ns is not None and found.limit:
        marks = "".join("x" if step.in_median else " " for step in found.steps).strip()
        in_a_row = 1 if " " in marks else _counted(found)
        limit = limit_sentence(found.limit, "Then ", in_a_row)
        blocks += [_wrapped([limit], width), rows_text(found.limit, width)]
    return "\n\n".join([*blocks, *_remarks(found, width)])


def _remarks(found: WhatIf | JobWhatIf | Path, width: int) -> Iterator[str]:
    for note in () if isinstance(found, Path) else found.notes:
        if note not in WITH_THE_ANSWER:
            yield _wrapped([NOTES[note]], width)
    if found.inferred_waits:
        calls = plural(found.inferred_waits, "waiting call")
        told = f"Of {calls} the trace does not say what for: that was inferred from the times."
        yield _wrapped([told], width)


def sweep_text(found: Sweep, width: int) -> str:
    """A row for each factor, and from where on less no longer helps."""
    said = [*doubt(found.devices, found.residual_share)]
    if len({point.after_ns for point in found.points}) == 1:
        said.append("It makes no difference.")
    elif found.points:
        far = "It helps all the way."
        knee = found.knee
        said.append(
            far
            if knee is None
            else f"Below x{significant(knee, 3)} it no longer helps."
        )
    longest = max((point.after_ns for point in found.points), default=1)
    columns = (
        Column("factor", cell=lambda point: f"x{significant(point.factor, 3)}"),
        Column(found.of, cell=lambda point: duration(point.after_ns)),
        Column("change", cell=lambda point: change(found.before_ns, point.after_ns)),
        Column("", True, cell=lambda point: "#" * round(30 * point.after_ns / longest)),
    )
    head = f"{printable(found.change)}: {_of(found.of)} takes {duration(found.before_ns)} now."
    return "\n\n".join(
        [_wrapped([head, *said], width), table_of(columns, found.points, width)]
    )


def path_text(found: Path, width: int) -> str:
    """The critical path, and what has time to spare."""
    limit = "There is no critical path: the trace has no slices."
    if found.rows:
        limit = limit_sentence(found.rows, "")
    said = [*doubt(found.devices, found.residual_share), limit]
    blocks = [_wrapped(said, width), rows_text(found.rows, width)]
    if found.slack:
        blocks.append(table_of(SLACK_COLUMNS, found.slack, width))
    elif found.slack_left_out:
        blocks.append(
            _wrapped(["The trace is too large to tell what has time to spare."], width)
        )
    return "\n\n".join([*blocks, *_remarks(found, width)])


def rows_text(rows: Sequence[PathRow], width: int) -> str:
    """The rows of a critical path."""
    alone = {kind for kind in KINDS if sum(row.kind == kind for row in rows) == 1}
    columns = (
        Column("time", cell=lambda row: duration(row.ns)),
        Column("share", cell=lambda row: percent(row.share, 1)),
        Column("count", spare=1, cell=lambda row: count(row.count)),
        Column("kind", True, cell=lambda row: row.kind),
        Column(
            "on the critical path", True, cell=lambda row: called(row, alone, width)
        ),
    )
    return table_of(columns, rows, width)


def called(row: PathRow, alone: set[str], width: int) -> str:
    """What a row is. `alone`: the kinds that have one row."""
    if row.kind in ("kernel", "communication") and row.what:
        return kernel_label(row.what, width)
    if row.what:
        return printable(row.what)
    return NAMELESS.get(row.kind, KINDS[row.kind][1]) if row.kind in alone else "others"


def limit_sentence(rows: Sequence[PathRow], then: str = "Then ", steps: int = 1) -> str:
    """`Then the host limits it: 71 % of the critical path is what CPU threads do, most
    of it zoom_shift.` `steps`: of how many it is."""
    by_kind = {kind: sum(row.ns for row in rows if row.kind == kind) for kind in KINDS}
    kind = max(by_kind, key=lambda one: by_kind[one])
    whole = sum(by_kind.values())
    first, what = KINDS[kind]
    limits = "limit it" if first.endswith("s") else "limits it"
    largest = max((row for row in rows if row.kind == kind), key=lambda row: row.ns)
    is_most = largest.what and 2 * largest.ns > by_kind[kind]
    most = f", most of it {called(largest, set(), UNKNOWN_WIDTH)}" if is_most else ""
    path = "the critical path" + (f" of {plural(steps, 'step')}" if steps > 1 else "")
    text = (
        f"{then}{first} {limits}: {percent(by_kind[kind], whole)} of {path} is {what}"
    )
    return f"{text[0].upper()}{text[1:]}{most}."


def _answer(found: WhatIf) -> str:
    made = _made(found)
    of, before = _of(found.of), duration(found.before_ns)
    if found.between_ns is not None:
        least, most = map(duration, found.between_ns)
        times = (
            f"{least} to {most}"
            if least != most
            else f"{least} at both ends of the range"
        )
        share = percent(found.scaled_share or 0.0, 1)
        scaled = f"Kernels that are scaled take {share} of the critical path."
        return f"With {made}, {of} of {before} would take {times}. {scaled}"
    if found.scales_little:
        share = percent(found.scaled_share or 0.0, 1)
        known = "those whose least time is known on both devices"
        rest = f"The rest decides how long {of} takes, and how long that takes there is not known."
        return (
            f"Inconclusive: {made} scales only kernels, and {known} take {share} of the critical "
            f"path. {rest}"
        )
    if found.after_ns is None:
        return f"What {made} would be worth cannot be told: too little of the time is understood."
    text = _would_take(found, of, found.before_ns, found.after_ns)
    if found.latest_ns is not None:
        text += f" If no batch is ready earlier than recorded, it takes {duration(found.latest_ns)}."
    for note in WITH_THE_ANSWER:
        text += f" {NOTES[note]}" * (note in found.notes)
    number = _counted(found)
    if found.certainty != "bound" and number > 1 and found.after_range_ns:
        low, high = map(duration, found.after_range_ns)
        idle = " and those without GPU work" if number < len(found.steps) - 1 else ""
        which = "median" if number % 2 else "lower median" if number > 2 else "shorter"
        text += f" It is the {which} of {plural(number, 'step')}, the first{idle} left out, "
        text += f"of which each takes {low} to {high} then."
    return text


def _would_take(
    found: WhatIf | JobWhatIf, of: str, before_ns: int, after_ns: int
) -> str:
    told = worth(before_ns, after_ns)
    how = (
        f"at best ({told})" if found.certainty == "bound" else f"({told}), an estimate"
    )
    before, after = duration(before_ns), duration(after_ns)
    return f"With {_made(found)}, {of} of {before} would take {after} {how}."


def _made(found: WhatIf | JobWhatIf) -> str:
    return printable(" and ".join(found.changes))


def replayed_sentence(found: WhatIf) -> str:
    """What stands above a replay that is drawn, what matters most first."""
    before, after = found.before_ns, found.after_ns or 0
    how = "at best" if found.certainty == "bound" else "an estimate"
    unsure = f", {percent(found.residual_share, 1)} not understood" * found.is_doubtful
    told = f"{duration(before)} -> {duration(after)} ({worth(before, after)}{unsure}), {how}"
    return f"replayed, not recorded: {found.of} {told}, with {_made(found)}"


def worth(before: int, after: int) -> str:
    """`11.8 % less`; of a change that is too small to matter, the time: `714 us less,
    next to nothing`."""
    difference = abs(after - before)
    if difference * NOTHING > before:
        return change(before, after)
    if not difference:
        return "no change"
    direction = "less" if after < before else "more"
    return f"{duration(difference)} {direction}, next to nothing"


def _counted(found: WhatIf) -> int:
    """The steps of which the median is told."""
    return max(1, sum(step.in_median for step in found.steps))


def _of(of: str) -> str:
    return "a step" if of == "step" else "the span"


def _wrapped(sentences: Sequence[str], width: int) -> str:
    return "\n".join(wrap(" ".join(sentences), width))


SLACK_COLUMNS = (
    Column("to spare", cell=lambda slack: duration(slack.ns)),
    Column("kind", True, cell=lambda slack: slack.kind),
    Column(
        "could take so much longer and not move the end",
        True,
        0,
        lambda s: printable(s.what),
    ),
)

WHY: dict[Why, str] = {
    "not_whole": "not all ranks of the job are given",
    "no_collectives": "no collective is common to these ranks",
    "unmatched": "not every collective could be matched",
    "clocks": "the times of these ranks cannot be compared",
    "uncertain": "the clocks of the hosts are not known well enough",
    "steps": "the ranks do not have the same steps",
    "not_all_wait": "some collectives, such as broadcasts or sends, do not make all of their ranks "
    "wait for all",
    "on_cpu": "some collectives run on the CPU, where what waits for them is not recorded",
    "not_linked": "it is not recorded what some collectives wait for, or what waits for them",
    "overlaps": "some kernels begin before a collective that they follow on a stream has ended",
    "not_understood": "too little of the time of some ranks is understood",
    "not_replayed": "a replay of all ranks without a change does not give what was recorded",
}


def job_whatif_text(found: JobWhatIf, width: int, top: int) -> str:
    """The answer, then a row for each rank."""
    blocks = [_wrapped([*_job_answer(found)], width)]
    if found.after_ns is not None:
        each = max(len(found.steps), 1)
        columns = (
            Column("rank", cell=lambda row: str(row.rank)),
            Column("last", cell=lambda row: count(row.last_before)),
            Column("then last", cell=lambda row: count(row.last_after)),
            Column("waits", cell=lambda row: duration(row.waits_before_ns // each)),
            Column("then waits", cell=lambda row: duration(row.waits_after_ns // each)),
        )
        blocks.append(first_of(columns, found.ranks, top, width, "rank"))
        blocks += _remarks(found, width)
    return "\n\n".join(blocks)


def _job_answer(found: JobWhatIf) -> Iterator[str]:
    if found.before_ns is None or found.after_ns is None:
        told = f"What {_made(found)} would be worth to the job cannot be told"
        yield f"{told}: {WHY[found.why_not]}."
        return
    if found.residual_share > DOUBTFUL:
        yield f"Not understood: up to {percent(found.residual_share, 1)} of the time of a rank."
    yield _would_take(
        found, f"{_of(found.of)} of the job", found.before_ns, found.after_ns
    )
    was = max(found.ranks, key=lambda row: row.last_before)
    then = max(found.ranks, key=lambda row: row.last_after)
    of = count(found.collectives)
    some = (
        f"Rank {was.rank} arrives last in {count(was.last_before)} of {of} collectives;"
    )
    yield some if was.last_before else "No rank arrives last;"
    if not then.last_after:
        yield "then no rank does."
    else:
        who = "it still does" if then.rank == was.rank else f"rank {then.rank} does"
        yield f"then {who}, in {count(then.last_after)}."
    rest = [str(row.rank) for row in found.ranks if not row.is_changed]
    if rest and len(rest) < len(found.ranks):
        which = "rank is" if len(rest) == 1 else "ranks are"
        yield f"Unchanged {which} {several(rest, 4)}."
    if found.uncertainty_ns:
        yield f"The clocks of the hosts leave up to {duration(found.uncertainty_ns)} of that open."
