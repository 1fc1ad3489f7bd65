"""The answers about a job in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetui.analysis.ranks.job import Job
from fusetui.analysis.ranks.model import RankSummary
from fusetui.analysis.ranks.pipeline import Pipeline, Slow
from fusetui.analysis.ranks.reasons import ENOUGH, Excess, Reason
from fusetui.analysis.ranks.records import ClockAnswer, JobAnswer, RankRow
from fusetui.analysis.ranks.replay import WhatIf
from fusetui.analysis.why.idle_reasons import IDLE
from fusetui.text.figures import count, duration, percent, plural, several
from fusetui.text.printable import printable

CLASSES_SAID = {
    "compute": "kernels ran",
    "exposed_comm": "other communication ran",
    "exposed_copy": "copies ran",
    **{key: reason.meanwhile for key, reason in IDLE.items() if reason.meanwhile},
}
PLACES = ("frame", "annotation", "op")
MOST_RANGES = 6


def straggler_text(
    job: Job,
    one: RankSummary,
    counts: tuple[int, int],
    caused: tuple[int, int],
    cause: str,
    reason: Reason,
    slower: float | None,
    replayed: WhatIf | None,
) -> str:
    """Who is last, what that costs, and why as far as that was recorded. `caused`: how long others
    wait, and how many do."""
    of_given = "" if job.is_whole else f" of the {count(len(job.ranks))} ranks given"
    others = "the others" if caused[1] == len(job.ranks) - 1 else f"{plural(caused[1], 'other')}"
    waits = "waits" if caused[1] == 1 < len(job.ranks) - 1 else "wait"
    sentences = [
        f"Rank {one.rank} arrives last{of_given} in {count(counts[0])} of "
        f"{plural(counts[1], 'collective')}; {others} {waits} {_each(caused[0], len(one.steps))} "
        "for it."
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


def slow_text(one: RankSummary, slow: Slow) -> str:
    """A rank or a stage of a pipeline that takes longer than its like."""
    more, share = duration(slow.excess_ns), percent(slow.excess_ns, slow.others_ns)
    if slow.whole:
        whom = numbers(slow.like).capitalize()
        compute = "computes" if len(slow.like) == 1 else "compute"
        return (
            f"{whom}, stage {slow.stage} (of 0 to {slow.stages - 1}), {compute} {more} a step more "
            f"than the median of the other stages ({share})."
        )
    like = (
        f"the other ranks of its stage, {slow.stage} (of 0 to {slow.stages - 1})"
        if slow.stages
        else "the other ranks"
    )
    return (
        f"Rank {one.rank} takes {more} a step more than the median of {like} ({share}): "
        f"{CLASSES_SAID[slow.what]} longer."
    )


def pipeline_text(pipeline: Pipeline, step_ns: float, anyone: bool) -> Iterator[str]:
    """The bubble, and that no stage stands out."""
    if not pipeline.known or pipeline.bubble is None:
        yield (
            "Ranks send to one another, as the stages of a pipeline do; what they compute is not "
            "recorded, so whether one is slow cannot be told."
        )
        return
    stages = f"of {pipeline.stages} stages" if pipeline.stages else "whose stages are not known"
    alike = "" if anyone else " The stages compute alike: none stands out."
    yield (
        f"In a pipeline {stages}, sends and receives that nothing else covers take "
        f"{percent(pipeline.bubble, 1)} of a step: its bubble.{alike}"
    )


def flips_text(every: Sequence[float], ranks: int) -> str:
    """Another rank is late in each step."""
    mean, late = duration(round(sum(every) / len(every))), plural(ranks, "rank")
    if len(every) == 1:
        return f"No rank stands out: the others wait {mean}, for {late} in turn."
    least, most = duration(round(min(every))), duration(round(max(every)))
    return (
        f"No rank stands out: the others wait {mean} a step ({least} to {most}), but not always "
        f"for the same one: {late} are late in turn."
    )


def of_no_group(many: int) -> str:
    return (
        f"of {plural(many, 'collective')} it is not recorded of which of several process groups "
        "they are"
    )


def none_text(waits_ns: float, why: str) -> str:
    """Ranks wait long enough to matter, and for whom is not known."""
    return f"For whom the ranks wait, {duration(round(waits_ns))} a step, cannot be told: {why}."


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
    if answer.one_given:
        yield (
            f"{plural(answer.one_given, 'collective')} could not be matched: of their groups one "
            "rank alone is given."
        )
    disagree = answer.unmatched - answer.no_group - answer.one_given
    if disagree:
        yield f"{plural(disagree, 'collective')} could not be matched: counts disagree."
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
    if clocks.refused:
        return f"Who waits for whom cannot be told: {printable(clocks.refused)}."
    if not answer.collectives:
        return "No collective is common to two of these ranks, so nothing is known of who waits."
    if clocks.shared:
        text = f"Times are compared as recorded: {printable(clocks.shared)}."
    elif clocks.uncertainty_ns is None:
        text = "Nothing bounds the clocks of some ranks: who arrives last is not told of these."
    else:
        text = _aligned(clocks, duration(clocks.uncertainty_ns))
    if clocks.guessed:
        text += f" Hosts were not recorded, and are guessed: {clocks.guessed}."
    apart = [printable(one.host) for one in clocks.hosts if one.contradicted]
    if apart:
        text += (
            f" On {several(apart, 3)} the ends of collectives contradict the bounds that their "
            "starts set; only the bounds are used."
        )
    if answer.untold:
        text += f" For {plural(answer.untold, 'collective')} they do not tell which rank was last."
    return text


def _aligned(clocks: ClockAnswer, within: str) -> str:
    by_ends = sum(one.by == "ends" for one in clocks.hosts)
    how = " by the ends of collectives," if by_ends == len(clocks.hosts) - 1 else ""
    if all(one.ranks == 1 for one in clocks.hosts):
        whom = f"Clocks are aligned to rank {clocks.reference_rank}{how and ','}{how}"
        return f"{whom} to within {within}; waits are known no better than that."
    return (
        f"The clocks of {plural(len(clocks.hosts), 'host')} are aligned{how and ','}{how} to "
        f"within {within}; waits between ranks of different hosts are known no better than that."
    )


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
