"""The answers about a job in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetui.trace.ranks.job import Job
from fusetui.trace.ranks.model import RankSummary
from fusetui.trace.ranks.reasons import ENOUGH, Excess, Reason
from fusetui.trace.ranks.records import JobAnswer, RankRow
from fusetui.trace.ranks.replay import WhatIf
from fusetui.trace.text.figures import count, duration, percent, plural
from fusetui.trace.text.printable import printable

CLASSES_SAID = {
    "compute": "kernels ran",
    "exposed_comm": "other communication ran",
    "exposed_copy": "copies ran",
    "host_sync": "the GPU was idle while the launching thread waited in a synchronization",
    "host_alloc": "the GPU was idle while memory was allocated",
    "host_call": "the GPU was idle during runtime calls",
    "host_op": "the GPU was idle while ops ran on the CPU",
    "host_python": "the GPU was idle while Python ran",
    "host_annotation": "the GPU was idle in annotated code",
    "host_nothing": "the GPU was idle and nothing was recorded on the launching thread",
    "launch_call": "the GPU was idle during launch calls",
    "queued": "the GPU was idle though work had been launched",
}
PLACES = ("frame", "annotation", "op")
MOST_RANGES = 6


def straggler_text(
    job: Job,
    one: RankSummary,
    counts: tuple[int, int],
    caused: int,
    cause: str,
    reason: Reason,
    slower: float | None,
    replayed: WhatIf | None,
) -> str:
    """Who is last, what that costs, and why as far as that was recorded."""
    of_given = "" if job.is_whole else f" of the {count(len(job.ranks))} ranks given"
    waited = _each(caused, len(one.steps))
    sentences = [
        f"Rank {one.rank} arrives last{of_given} in {count(counts[0])} of "
        f"{plural(counts[1], 'collective')}; the others wait {waited} for it."
    ]
    if cause == "outside":
        sentences += _outside(reason)
    elif cause == "untold":
        sentences.append("What it did meanwhile does not explain it: cannot tell.")
    else:
        sentences += _inside(reason, slower, len(one.steps))
    if replayed is not None and replayed.would_be_ns < replayed.step_ns:
        saved = replayed.step_ns - replayed.would_be_ns
        sentences.append(
            f"If it were as fast as the others, a step would take {duration(replayed.would_be_ns)} "
            f"instead of {duration(replayed.step_ns)} ({percent(saved, replayed.step_ns)} less)."
        )
    return " ".join(sentences)


def _each(caused: int, steps: int) -> str:
    if steps > 1:
        return f"{duration(caused // steps)} a step"
    return duration(caused)


def _outside(reason: Reason) -> Iterator[str]:
    what = "Its step begins" if reason.has_step else "Its trace begins"
    if reason.begins_after_ns is not None:
        yield (
            f"{what} {duration(reason.begins_after_ns)} after that of rank "
            f"{reason.begins_after_rank}: the cause lies before the window that was recorded."
        )


def _inside(reason: Reason, slower: float | None, steps: int) -> Iterator[str]:
    largest = reason.excess[0]
    if largest.kind == "wait":
        yield (
            f"It comes late out of the collectives before, in which it waits "
            f"{_each(largest.ns, steps)} for {largest.name}."
        )
        return
    where = _place(reason)
    said = CLASSES_SAID.get(largest.name) if largest.kind == "class" else None
    if said:
        yield f"Meanwhile {said} {_each(largest.ns, steps)} longer than on the median rank."
        if largest.name == "compute" and slower is not None and slower >= 0.01:
            yield (
                f"The same kernels, as many of them, take {percent(slower, 1)} longer: a lower "
                "clock, or larger work."
            )
    if where is not None and (largest.kind != "class" or largest.name.startswith("host")):
        more = _each(where.ns, steps)
        yield f"It spends {more} more than the median rank in {printable(where.name)}."


def _place(reason: Reason) -> Excess | None:
    """The innermost kind of place that explains most of the delay."""
    for kind in PLACES:
        for one in reason.excess:
            if one.kind == kind and one.ns >= ENOUGH * reason.inside_ns:
                return one
    return None


def headline(answer: JobAnswer) -> Iterator[str]:
    """What was given, and what of it takes part."""
    size = answer.world_size
    ranks = (
        f"{count(answer.given)} of {plural(size, 'rank')}" if size else plural(answer.given, "rank")
    )
    yield f"{ranks}, {plural(answer.steps, 'step')}, {plural(answer.collectives, 'collective')}."
    if answer.missing:
        which = "It" if len(answer.missing) == 1 else "One of them"
        yield (
            f"Not given: {numbers(answer.missing)}. {which} may have arrived later than those that "
            "are given."
        )
    for one in answer.left_out:
        yield printable(one.reason)
    for row in answer.ranks:
        for damage in row.damage:
            yield f"Rank {row.rank}: {printable(damage)}."
    if answer.unmatched:
        yield f"{plural(answer.unmatched, 'collective')} could not be matched: counts disagree."
    yield from answer.notes


def wait_text(row: RankRow) -> Iterator[str]:
    """The longest wait of a rank."""
    worst = row.worst_wait
    if worst is not None:
        by = (
            "a rank that clocks do not tell" if worst.for_rank is None else f"rank {worst.for_rank}"
        )
        yield (
            f"It waits longest in {printable(worst.name)} at {duration(worst.start_ns)}: "
            f"{duration(worst.wait_ns)} for {by}."
        )


def clocks_text(answer: JobAnswer) -> str:
    clocks = answer.clocks
    if not answer.collectives:
        return "No collective is common to two of these ranks, so nothing is known of who waits."
    if clocks.shared:
        text = f"Times are compared as recorded: {clocks.shared}."
    elif clocks.uncertainty_ns is None:
        text = "Nothing bounds the clocks of some ranks: who arrives last is not told of these."
    else:
        text = (
            f"Clocks are aligned to rank {clocks.reference_rank} to within "
            f"{duration(clocks.uncertainty_ns)}; waits are known no better than that."
        )
    if not clocks.feasible:
        text += " No offsets explain all collectives: some times are wrong."
    if answer.untold:
        text += f" For {plural(answer.untold, 'collective')} they do not tell which rank was last."
    return text


def numbers(ranks: Sequence[int]) -> str:
    """`rank 4`, `ranks 4 to 7 and 9`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs[:MOST_RANGES]]
    more = len(runs) - MOST_RANGES
    text = ", ".join(texts[:-1]) + (" and " if texts[1:] else "") + texts[-1]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}" + (
        f", and {count(more)} more ranges" if more > 0 else ""
    )
