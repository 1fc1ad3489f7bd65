"""The answers about a job in words: each function writes one or several sentences about
one subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fusetui.analysis.ranks.caused import MIN_STEP_SHARE
from fusetui.analysis.ranks.model import (
    ClockAnswer,
    Excess,
    HostClock,
    JobAnswer,
    JobVerdict,
    JointStepChange,
    MeanStepChange,
    RankRow,
    Reason,
    Slow,
    Straggler,
)
from fusetui.analysis.why.model import IDLE
from fusetui.text.figures import count, duration, percent, plural, several
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import StepLength

MEANWHILE = {
    "compute": "kernels ran",
    "exposed_comm": "other communication ran",
    "exposed_copy": "copies ran",
    **{key: reason.meanwhile for key, reason in IDLE.items() if reason.meanwhile},
}
"""What happened on a rank during each class of time, where that is worth a sentence."""

INNERMOST_FIRST = ("frame", "annotation", "op")
"""The kinds of places where a thread can be; see Excess."""

MIN_PLACE_SHARE = 0.5
"""Of a delay: a place that explains less of it is not named."""

MIN_SLOWDOWN = 0.01
"""A smaller difference between the same kernels of two ranks is none."""

MIN_SAVED_SHARE = 0.01
"""Of a step: a rank that saves less if it alone is fixed saves nothing."""

MAX_RANGES_NAMED = 6
STEP = StepLength.WALL.a_step
"""The step whose length is reported."""
A_STEP = f"{STEP[0].upper()}{STEP[1:]}"
MAX_STEPS_NAMED = 6
MAX_MACHINES_NAMED = 3


def describe_straggler(answer: JobAnswer, straggler: Straggler) -> str:
    """Return sentences about a late rank: in how many collectives it is last, what that
    costs, and why. For a pipeline they say which stage takes longer than the others."""
    if straggler.slow is not None:
        return _describe_slow_stage(answer, straggler.rank, straggler.slow)
    steps = _count_steps(answer, straggler.rank)
    late_steps = len(straggler.late_steps)
    arrival = _describe_arrival(answer, straggler, steps)
    if 0 < late_steps < steps:
        sentences = [f"{arrival} on average.", _describe_late_steps(straggler, steps)]
        sentences += _explain_lateness(straggler, late_steps, "per late step")
    else:
        sentences = [f"{arrival}."]
        sentences += _explain_lateness(straggler, steps, "per step")
    if straggler.what_if is not None:
        sentences += _describe_gain_alone(answer, straggler.rank, straggler.what_if)
    return " ".join(sentences)


def _count_steps(answer: JobAnswer, rank: int) -> int:
    """Return the number of steps that were recorded of a rank, which must have a row in
    the answer."""
    for row in answer.ranks:
        if row.rank == rank:
            return row.steps
    raise AssertionError(f"every straggler has a row, but rank {rank} has none")


def _describe_arrival(answer: JobAnswer, straggler: Straggler, steps: int) -> str:
    """Return how often a rank is last and how long others wait for it, without the full
    stop.

        Rank 3 arrives last in 40 of 96 collectives; the others wait 1.2 ms per step for it
    """
    of_given = "" if answer.is_whole else f" of the {count(answer.given)} ranks given"
    if straggler.last_count:
        last_in = (
            f"{count(straggler.last_count)} of {plural(straggler.of, 'collective')}"
        )
        arrives = f"arrives last{of_given} in {last_in}"
    else:
        arrives = f"arrives late, but never last{of_given}"
    if straggler.waiters == answer.given - 1:
        who_waits = (
            "the other rank waits" if straggler.waiters == 1 else "the others wait"
        )
    elif straggler.waiters == 1:
        who_waits = "1 other rank waits"
    else:
        who_waits = f"{count(straggler.waiters)} other ranks wait"
    waited = _format_mean(straggler.caused_ns, steps, "per step")
    return f"Rank {straggler.rank} {arrives}; {who_waits} {waited} for it"


def _describe_late_steps(straggler: Straggler, steps: int) -> str:
    """Return a sentence about in which of its `steps` steps a rank is late, and by how
    much."""
    late_ns = [step.caused_ns for step in straggler.late_steps]
    step_names = [printable(step.name) for step in straggler.late_steps]
    named_steps = several(step_names, MAX_STEPS_NAMED)
    shortest = duration(min(late_ns))
    longest = duration(max(late_ns))
    how_late = shortest if shortest == longest else f"{shortest} to {longest}"
    return (
        f"It is late in only {len(late_ns)} of {plural(steps, 'step')}: "
        f"{named_steps} ({how_late})."
    )


def _explain_lateness(straggler: Straggler, steps: int, per: str) -> Iterator[str]:
    """Yield sentences about the cause of a delay that is spread over `steps` steps.
    `per` is what one of them is called, such as `per late step`. Nothing if no cause is
    known."""
    reason = straggler.reason
    if straggler.cause == "outside" and reason.begins_after_ns is not None:
        begins = "Its step begins" if reason.has_step else "Its trace begins"
        yield (
            f"{begins} {duration(reason.begins_after_ns)} after the step of rank "
            f"{reason.begins_after_rank}: the cause predates the recording."
        )
    elif straggler.cause == "untold":
        yield "Inconclusive: its recorded work does not explain the delay."
    elif straggler.cause == "inside":
        yield from _describe_excess(straggler, steps, per)


def _describe_excess(straggler: Straggler, steps: int, per: str) -> Iterator[str]:
    """Yield sentences about what a rank did longer than the median rank, and in which
    function or op its thread was then. `steps` is by how many steps the delay is
    divided, and `per` what one is called."""
    largest = straggler.reason.excess[0]
    is_class = largest.kind == "class"
    meanwhile = MEANWHILE.get(largest.name, "") if is_class else ""
    if meanwhile:
        longer = _format_mean(largest.ns, steps, per)
        yield f"On this rank, {meanwhile} for {longer} longer than on the median rank."
        slowdown = straggler.slower or 0.0
        if largest.name == "compute" and slowdown >= MIN_SLOWDOWN:
            yield (
                f"The same number of the same kernels takes {percent(slowdown, 1)} longer: "
                "a lower clock, or larger work."
            )
    is_gpu_class = is_class and not largest.name.startswith("host")
    innermost_place = None if is_gpu_class else _find_innermost_place(straggler.reason)
    if innermost_place is not None:
        longer = _format_mean(innermost_place.ns, steps, per)
        name = printable(innermost_place.name)
        yield f"It spends {longer} more than the median rank in {name}."


def _find_innermost_place(reason: Reason) -> Excess | None:
    """Return the innermost function, annotation or op that explains at least half of a
    delay; None if there is none."""
    for kind in INNERMOST_FIRST:
        for excess in reason.excess:
            is_enough = excess.ns >= MIN_PLACE_SHARE * reason.inside_ns
            if excess.kind == kind and is_enough:
                return excess
    return None


def _describe_gain_alone(
    answer: JobAnswer, rank: int, replayed: MeanStepChange
) -> Iterator[str]:
    """Yield a sentence about how long a step would be if only this rank were as fast as
    the others. Nothing if it would not be shorter."""
    if_all = answer.verdict.if_all
    change = _describe_shorter_step(replayed.step_ns, replayed.would_be_ns)
    if if_all is not None and not _is_saving(replayed):
        others = [other for other in if_all.ranks if other != rank]
        are = "is" if len(others) == 1 else "are"
        yield (
            f"{A_STEP} would take as long as before if it alone were as fast as the "
            f"others, because {ranks_named(others)} {are} late too."
        )
    elif replayed.would_be_ns >= replayed.step_ns:
        return
    elif if_all is None:
        yield f"{A_STEP} would take {change} if it were as fast as the others."
    else:
        yield f"{A_STEP} would take {change} if it alone were as fast as the others."


def _describe_joint_gain(
    stragglers: Sequence[Straggler], if_all: JointStepChange
) -> str:
    """Return a sentence about how long a step would be if all late ranks were as fast
    as the others."""
    ranks = ranks_named(if_all.ranks)
    both = "both" if len(if_all.ranks) == 2 else "all"
    change = _describe_shorter_step(if_all.step_ns, if_all.would_be_ns)
    some_saves_alone = any(
        straggler.what_if is not None and _is_saving(straggler.what_if)
        for straggler in stragglers
    )
    if some_saves_alone:
        return f"{A_STEP} would take {change} if {ranks} were {both} as fast as the others."
    return (
        f"{ranks.capitalize()} must {both} be fixed: {STEP} would then take {change}."
    )


def _is_saving(change: MeanStepChange) -> bool:
    """Return whether a step gets noticeably shorter if a rank alone is fixed."""
    saved_ns = change.step_ns - change.would_be_ns
    return saved_ns >= MIN_SAVED_SHARE * change.step_ns


def _describe_shorter_step(step_ns: int, would_be_ns: int) -> str:
    """Return how long a step would be instead, such as `9 ms instead of 12 ms (25 %
    less)`."""
    share = percent(step_ns - would_be_ns, step_ns)
    return f"{duration(would_be_ns)} instead of {duration(step_ns)} ({share} less)"


def _describe_slow_stage(answer: JobAnswer, rank: int, slow: Slow) -> str:
    """Return a sentence about a stage of a pipeline that takes longer than the other
    stages. It may also be about a rank that takes longer than the others of its stage.
    """
    per_step = " per step" if answer.steps else ""
    longer = f"{duration(slow.excess_ns)}{per_step}"
    share = percent(slow.excess_ns, slow.others_ns)
    stage = f"{slow.stage} (of 0 to {slow.stages - 1})"
    if slow.like:
        ranks = ranks_named(slow.like).capitalize()
        compute = "computes" if len(slow.like) == 1 else "compute"
        return (
            f"{ranks}, stage {stage}, {compute} {longer} longer than the median of the "
            f"other stages ({share})."
        )
    if slow.stages:
        others = f"the other ranks of its stage, {stage}"
    else:
        others = "the other ranks"
    return (
        f"Rank {rank} takes {longer} longer than the median of {others} ({share}): "
        f"{MEANWHILE[slow.what]} longer."
    )


def describe_verdict(answer: JobAnswer) -> Iterator[str]:
    """Yield the rest of the verdict on a job. It has the gain of fixing all late ranks,
    the bubble of a pipeline, and why no rank is named."""
    verdict = answer.verdict
    of_what = "a step" if answer.steps else "the recorded time"
    if verdict.if_all is not None:
        yield _describe_joint_gain(answer.stragglers, verdict.if_all)
    if verdict.stages is not None and answer.bubble is None:
        yield (
            "It is unclear whether a stage is slow: the ranks send to each other "
            "like pipeline stages, but their compute was not recorded."
        )
    elif verdict.stages is not None and answer.bubble is not None:
        bubble = _describe_bubble(verdict.stages, answer.bubble, of_what)
        if answer.stragglers:
            yield bubble
        else:
            yield f"{bubble} No stage stands out: all compute for about as long."
    if verdict.kind == "in turn":
        yield _describe_changing_ranks(verdict, of_what)
    elif verdict.kind == "untold":
        waits = duration(round(verdict.waits_ns[0]))
        if answer.steps:
            waits += " per step"
        yield (f"Ranks wait {waits}, but it is unclear for which rank: {verdict.why}.")
    elif verdict.kind == "nobody":
        share = percent(MIN_STEP_SHARE, 1)
        nobody = "None of the given ranks" if answer.missing else "No rank"
        yield f"{nobody} holds up the others by {share} of {of_what}."


def _describe_bubble(stages: int, bubble: float, of_what: str) -> str:
    """Return a sentence about the bubble of a pipeline, the share of the time that no
    work covers. `stages` is 0 if unknown."""
    of_stages = f"of {stages} stages" if stages else "with unknown stages"
    return (
        f"The bubble of this pipeline {of_stages} is {percent(bubble, 1)} of {of_what}: "
        "sends and receives with no work beside them."
    )


def _describe_changing_ranks(verdict: JobVerdict, of_what: str) -> str:
    """Return a sentence that no rank stands out: another rank is late in each step, or
    none by much."""
    waits_ns = verdict.waits_ns
    waited = duration(round(sum(waits_ns) / len(waits_ns)))
    is_one_step = len(waits_ns) == 1
    if not is_one_step:
        shortest = duration(round(min(waits_ns)))
        longest = duration(round(max(waits_ns)))
        waited += f" per step ({shortest} to {longest})"
    if not verdict.in_turn:
        return (
            f"No rank stands out: ranks wait {waited}, but no single rank causes "
            f"{percent(MIN_STEP_SHARE, 1)} of {of_what}."
        )
    late = plural(verdict.in_turn, "rank")
    if is_one_step:
        return f"No rank stands out: ranks wait {waited}, for {late} in turn."
    are = "is" if verdict.in_turn == 1 else "are"
    return (
        f"No rank stands out: ranks wait {waited}, and the late rank changes: "
        f"{late} {are} late in turn."
    )


def _format_mean(total_ns: int, steps: int, per: str) -> str:
    """Return the mean time of several steps, such as `1.2 ms per step`. With a single
    step it is the time alone."""
    if steps > 1:
        return f"{duration(total_ns // steps)} {per}"
    return duration(total_ns)


def describe_given(answer: JobAnswer) -> Iterator[str]:
    """Yield sentences about the traces that were given: their number, missing ranks,
    damage, and collectives without a match."""
    yield _describe_size(answer)
    if answer.missing:
        yield _describe_missing(answer.missing)
    for left_out in answer.left_out:
        yield printable(left_out.reason)
    for row in answer.ranks:
        for damage in row.damage:
            yield f"Rank {row.rank}: {printable(damage)}."
    if answer.one_given:
        alone_text = plural(answer.one_given, "collective")
        their = "its group" if answer.one_given == 1 else "each group"
        yield f"{alone_text} could not be matched, because only one rank of {their} is given."
    disagreeing = answer.unmatched - answer.no_group - answer.one_given
    if disagreeing:
        yield (
            f"{plural(disagreeing, 'collective')} could not be matched, because the "
            "ranks disagree on their number."
        )
    if answer.cut:
        yield _describe_cut_collectives(answer.cut)
    yield from answer.notes


def _describe_size(answer: JobAnswer) -> str:
    """Return the numbers of ranks, steps and collectives, such as `The traces
    contain 4 of 8 ranks, 10 steps and 120 collectives.`"""
    if answer.world_size:
        ranks = f"{count(answer.given)} of {plural(answer.world_size, 'rank')}"
    else:
        ranks = plural(answer.given, "rank")
    steps = plural(answer.steps, "step")
    collectives = plural(answer.collectives, "collective")
    return f"The traces contain {ranks}, {steps} and {collectives}."


def _describe_missing(ranks: Sequence[int]) -> str:
    """Return sentences about ranks of the job that were not given, and that they may be
    the late ones."""
    named = ranks_named(ranks).capitalize()
    if len(ranks) == 1:
        return f"{named} is not given and may have arrived later than the given ranks."
    return f"{named} are not given; one of them may have arrived later than the given ranks."


def _describe_cut_collectives(number: int) -> str:
    """Return a sentence about collectives that the start or end of a recording cuts
    off."""
    if number == 1:
        return (
            "1 collective is cut off at the start or end of a recording and is "
            "excluded from clocks and lateness."
        )
    return (
        f"{count(number)} collectives are cut off at the start or end of a recording "
        "and are excluded from clocks and lateness."
    )


def describe_longest_wait(row: RankRow) -> Iterator[str]:
    """Yield a sentence about the collective in which a rank waits longest, and for
    whom. Nothing if it never waits."""
    wait = row.worst_wait
    if wait is None:
        return
    if wait.for_rank is None:
        awaited = "a rank that the clocks do not determine"
    else:
        awaited = f"rank {wait.for_rank}"
    yield (
        f"Its longest wait is {duration(wait.wait_ns)} for {awaited}, in "
        f"{printable(wait.name)}, {duration(wait.start_ns)} after its trace begins."
    )


def describe_clocks(answer: JobAnswer) -> str:
    """Return sentences about how far the times of different ranks can be compared."""
    clocks = answer.clocks
    if clocks.refused:
        return (
            "It is unclear which rank waits for which, because "
            f"{printable(clocks.refused)}."
        )
    if not answer.collectives:
        return (
            "It is unclear which rank waits for which, because these ranks have no "
            "collective in common."
        )
    sentences = _describe_alignment(clocks)
    if clocks.on_one_host_ns is not None:
        limit = duration(clocks.on_one_host_ns)
        where = "" if clocks.shared else " on one machine"
        sentences.append(
            f"Differences of up to {limit}{where} are too small to show which rank "
            "arrives last."
        )
    if clocks.guessed:
        sentences.append(
            f"Machines were not recorded and are inferred: {clocks.guessed}."
        )
    contradicted = [
        printable(clock.host) for clock in clocks.hosts if clock.contradicted
    ]
    if contradicted:
        sentences.append(
            f"Collective end times on {several(contradicted, MAX_MACHINES_NAMED)} "
            "contradict the bounds from start times; only the bounds are used."
        )
    if answer.untold:
        untold = plural(answer.untold, "collective")
        sentences.append(f"The rank that arrives last in {untold} is unknown.")
    return " ".join(sentences)


def _describe_alignment(clocks: ClockAnswer) -> list[str]:
    """Return sentences about whether all ranks have one clock, how well the clocks are
    aligned, and which of them drift."""
    if clocks.shared:
        return [
            (
                f"Times are compared without clock alignment, because {printable(clocks.shared)}."
            )
        ]
    if clocks.uncertainty_ns is None:
        return [
            "For some ranks, it is unknown which arrives last, because nothing bounds their "
            "clocks."
        ]
    sentences = [_describe_precision(clocks, clocks.uncertainty_ns)]
    drifting = [clock for clock in clocks.hosts if round(clock.drift_ns_per_s) != 0]
    if drifting:
        sentences.append(_describe_drift(drifting))
    return sentences


def _describe_precision(clocks: ClockAnswer, uncertainty_ns: int) -> str:
    """Return a sentence about how the clocks are aligned, and to within which time.
    `uncertainty_ns` is that of the worst clock."""
    within = duration(uncertainty_ns)
    by_ends = sum(clock.by == "ends" for clock in clocks.hosts)
    all_by_ends = by_ends == len(clocks.hosts) - 1
    by_what = ", by the ends of collectives," if all_by_ends else ""
    if all(clock.ranks == 1 for clock in clocks.hosts):
        return (
            f"Clocks are aligned to rank {clocks.reference_rank}{by_what} to within {within}, "
            "which limits the precision of waits."
        )
    machines = plural(len(clocks.hosts), "machine")
    return (
        f"The clocks of {machines} are aligned{by_what} to within {within}, which limits the "
        "precision of waits between machines."
    )


def _describe_drift(drifting: Sequence[HostClock]) -> str:
    """Return a sentence about the machines whose clocks drift, at least one, and by how
    much at most."""
    names = several([printable(clock.host) for clock in drifting], MAX_MACHINES_NAMED)
    largest = duration(max(abs(round(clock.drift_ns_per_s)) for clock in drifting))
    if len(drifting) == 1:
        return (
            f"Times are corrected for clock drift on {names}, by {largest} per second: no "
            "constant offset explains all collectives."
        )
    return (
        f"Times are corrected for clock drift on {names}, by up to {largest} per second: no "
        "constant offsets explain all collectives."
    )


class _Range(NamedTuple):
    """Consecutive ranks, the last one included."""

    first: int
    last: int


def ranks_named(ranks: Sequence[int]) -> str:
    """Return ranks in words; they are in ascending order, at least one. Consecutive
    ranks are joined, and of many ranges only the first are named.

        >>> ranks_named([4]), ranks_named([4, 5, 6, 7, 9])
        ('rank 4', 'ranks 4 to 7 and 9')
    """
    ranges = _join_ranges(ranks)
    texts = []
    for part in ranges[:MAX_RANGES_NAMED]:
        if part.first == part.last:
            texts.append(str(part.first))
        else:
            between = ", " if part.last == part.first + 1 else " to "
            texts.append(f"{part.first}{between}{part.last}")
    *before, last = texts
    listed_ranges = f"{', '.join(before)} and {last}" if before else last
    more = len(ranges) - MAX_RANGES_NAMED
    if more > 0:
        listed_ranges += f", and {count(more)} more ranges"
    noun = "rank" if len(ranks) == 1 else "ranks"
    return f"{noun} {listed_ranges}"


def _join_ranges(ranks: Sequence[int]) -> list[_Range]:
    """Return ranks as ranges of consecutive ones; `ranks` are in ascending order."""
    ranges: list[_Range] = []
    for rank in ranks:
        if ranges and rank == ranges[-1].last + 1:
            ranges[-1] = ranges[-1]._replace(last=rank)
        else:
            ranges.append(_Range(first=rank, last=rank))
    return ranges
