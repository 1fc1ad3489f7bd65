"""The answers about a job in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetui.analysis.ranks.caused import MIN_STEP_SHARE
from fusetui.analysis.ranks.model import (
    JobAnswer,
    JobVerdict,
    JointStepChange,
    MeanStepChange,
    RankRow,
    Slow,
    Straggler,
)
from fusetui.analysis.why.model import IDLE
from fusetui.text.figures import count, duration, percent, plural, several
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import StepLength

CLASSES_SAID = {
    "compute": "kernels ran",
    "exposed_comm": "other communication ran",
    "exposed_copy": "copies ran",
    **{key: reason.meanwhile for key, reason in IDLE.items() if reason.meanwhile},
}
PLACES = ("frame", "annotation", "op")
STEP = StepLength.WALL.a_step
"""That whose length is reported."""
MOST_RANGES = 6
MAX_STEPS_NAMED = 6
ENOUGH = 0.5  # of a delay: a place that explains so much of it is named
SLOWER = 0.01  # a smaller difference between kernels is none
# of a step: a rank that saves less if it alone is fixed saves nothing
LEAST_SAVED = 0.01


def straggler_text(answer: JobAnswer, one: Straggler) -> str:
    """Who is last, what that costs, and why as far as that was recorded; or which stage
    of a pipeline takes longer than its like."""
    if one.slow:
        return _slow_text(one.rank, one.slow, " a step" if answer.steps else "")
    steps = next(row.steps for row in answer.ranks if row.rank == one.rank)
    others = answer.given - 1
    of_given = "" if answer.is_whole else f" of the {count(answer.given)} ranks given"
    whom = "the others" if one.waiters == others else plural(one.waiters, "other")
    waits = "waits" if one.waiters == 1 < others else "wait"
    if one.last_count:
        how_often = f"{count(one.last_count)} of {plural(one.of, 'collective')}"
        arrives = f"arrives last{of_given} in {how_often}"
    else:
        arrives = f"arrives late, but never last{of_given}"
    last = f"Rank {one.rank} {arrives}; {whom} {waits} {_each(one.caused_ns, steps)} for it"
    late = len(one.late_steps)
    if 0 < late < steps:
        sentences = [f"{last} on average.", _late_steps(one, steps)]
        sentences += _why(one, late, "a late step")
    else:
        sentences = [f"{last}.", *_why(one, steps, "a step")]
    return " ".join([*sentences, *_if_fixed(answer, one)])


def _if_fixed(answer: JobAnswer, one: Straggler) -> Iterator[str]:
    """How long a step would be if this rank, and no other, were as fast as the
    others."""
    replayed, if_all = one.what_if, answer.verdict.if_all
    if replayed is None:
        return
    if if_all is not None and not _saves(replayed):
        yield (
            f"If it alone were as fast as the others, {STEP} would take as long as now, because "
            f"{_other_late(if_all, one.rank)} late too."
        )
    elif replayed.would_be_ns < replayed.step_ns:
        alone = "" if if_all is None else " alone"
        yield (
            f"If it{alone} were as fast as the others, {STEP} would take "
            f"{_less(replayed.step_ns, replayed.would_be_ns)}."
        )


def _if_all_fixed(stragglers: Sequence[Straggler], if_all: JointStepChange) -> str:
    """How long a step would be if all late ranks were as fast as the others."""
    every = "both" if len(if_all.ranks) == 2 else "all"
    step = f"{STEP} would take {_less(if_all.step_ns, if_all.would_be_ns)}"
    some_saves_alone = any(one.what_if and _saves(one.what_if) for one in stragglers)
    if some_saves_alone:
        return f"If {numbers(if_all.ranks)} were {every} as fast as the others, {step}."
    must = f"{numbers(if_all.ranks).capitalize()} must {every} be fixed"
    return f"{must}: if {every} were as fast as the others, {step}."


def _saves(change: MeanStepChange) -> bool:
    """Whether a rank saves anything if it alone is fixed."""
    return change.step_ns - change.would_be_ns >= LEAST_SAVED * change.step_ns


def _other_late(if_all: JointStepChange, rank: int) -> str:
    others = [other for other in if_all.ranks if other != rank]
    return f"{numbers(others)} {'is' if len(others) == 1 else 'are'}"


def _less(step_ns: int, would_be_ns: int) -> str:
    share = percent(step_ns - would_be_ns, step_ns)
    return f"{duration(would_be_ns)} instead of {duration(step_ns)} ({share} less)"


def _late_steps(one: Straggler, steps: int) -> str:
    """In which of its steps a rank is late, and by how much."""
    every = [step.caused_ns for step in one.late_steps]
    named = several([printable(step.name) for step in one.late_steps], MAX_STEPS_NAMED)
    least, most = duration(min(every)), duration(max(every))
    long = least if least == most else f"{least} to {most}"
    return (
        f"It is late in only {len(every)} of {plural(steps, 'step')}: {named} ({long})."
    )


def _slow_text(rank: int, slow: Slow, each: str) -> str:
    more, share = (
        f"{duration(slow.excess_ns)}{each}",
        percent(slow.excess_ns, slow.others_ns),
    )
    place = f"{slow.stage} (of 0 to {slow.stages - 1})"
    if slow.like:
        compute = "computes" if len(slow.like) == 1 else "compute"
        return (
            f"{numbers(slow.like).capitalize()}, stage {place}, {compute} {more} more "
            f"than the median of the other stages ({share})."
        )
    like = (
        f"the other ranks of its stage, {place}" if slow.stages else "the other ranks"
    )
    return (
        f"Rank {rank} takes {more} more than the median of {like} ({share}): "
        f"{CLASSES_SAID[slow.what]} longer."
    )


def verdict_lines(answer: JobAnswer) -> Iterator[str]:
    """What else is to say of who is late: the bubble of a pipeline, and why nobody is
    named."""
    found, of_what = answer.verdict, "a step" if answer.steps else "the time recorded"
    if found.if_all is not None:
        yield _if_all_fixed(answer.stragglers, found.if_all)
    if found.stages is not None and answer.bubble is None:
        yield (
            "Ranks send to one another, as the stages of a pipeline do; what they compute is not "
            "recorded, so whether one is slow cannot be told."
        )
    elif found.stages is not None and answer.bubble is not None:
        stages = (
            f"of {found.stages} stages"
            if found.stages
            else "whose stages are not known"
        )
        alike = (
            "" if answer.stragglers else " The stages compute alike: none stands out."
        )
        yield (
            f"In a pipeline {stages}, sends and receives that nothing else covers take "
            f"{percent(answer.bubble, 1)} of {of_what}: its bubble.{alike}"
        )
    if found.kind == "in turn":
        yield _in_turn(found, of_what)
    elif found.kind == "untold":
        waits = duration(round(found.waits_ns[0])) + (" a step" if answer.steps else "")
        yield f"For whom the ranks wait, {waits}, cannot be told: {found.why}."
    elif found.kind == "nobody":
        nobody = "None of the ranks that are given" if answer.missing else "No rank"
        yield f"{nobody} holds up the others by {percent(MIN_STEP_SHARE, 1)} of {of_what}."


def _in_turn(found: JobVerdict, of_what: str) -> str:
    waits_ns = found.waits_ns
    mean = duration(round(sum(waits_ns) / len(waits_ns)))
    least = duration(round(min(waits_ns)))
    most = duration(round(max(waits_ns)))
    if len(waits_ns) == 1:
        waited = mean
    else:
        waited = f"{mean} a step ({least} to {most})"
    if not found.in_turn:
        return (
            f"No rank stands out: the others wait {waited}, and none of those they wait for holds "
            f"them up by {percent(MIN_STEP_SHARE, 1)} of {of_what}."
        )
    late = plural(found.in_turn, "rank")
    if len(waits_ns) == 1:
        return f"No rank stands out: the others wait {waited}, for {late} in turn."
    verb = "is" if found.in_turn == 1 else "are"
    return (
        f"No rank stands out: the others wait {waited}, but not always for the same one: "
        f"{late} {verb} late in turn."
    )


def _each(ns: int, steps: int, each: str = "a step") -> str:
    return f"{duration(ns // steps)} {each}" if steps > 1 else duration(ns)


def _why(one: Straggler, steps: int, each: str) -> Iterator[str]:
    if one.cause == "outside" and one.reason.begins_after_ns is not None:
        what = "Its step begins" if one.reason.has_step else "Its trace begins"
        yield (
            f"{what} {duration(one.reason.begins_after_ns)} after that of rank "
            f"{one.reason.begins_after_rank}: the cause lies before the window that was recorded."
        )
    if one.cause == "untold":
        yield "What it did meanwhile does not explain it: cannot tell."
    if one.cause != "inside":
        return
    excess, slower = one.reason.excess, one.slower or 0
    largest = excess[0]
    if largest.kind == "class" and (said := CLASSES_SAID.get(largest.name)):
        yield f"Meanwhile {said} {_each(largest.ns, steps, each)} longer than on the median rank."
        if largest.name == "compute" and slower >= SLOWER:
            yield (
                f"The same kernels, as many of them, take {percent(slower, 1)} longer: a lower "
                "clock, or larger work."
            )
    if largest.kind == "class" and not largest.name.startswith("host"):
        return
    enough = [place for place in excess if place.ns >= ENOUGH * one.reason.inside_ns]
    by_kind = [place for kind in PLACES for place in enough if place.kind == kind]
    for place in by_kind[:1]:  # the innermost that explains most of the delay
        more = _each(place.ns, steps, each)
        yield f"It spends {more} more than the median rank in {printable(place.name)}."


def headline(answer: JobAnswer) -> Iterator[str]:
    """What was given, and what of it takes part."""
    size, given = answer.world_size, answer.given
    ranks = (
        f"{count(given)} of {plural(size, 'rank')}" if size else plural(given, "rank")
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
    if answer.cut:
        are, prove = ("is", "proves") if answer.cut == 1 else ("are", "prove")
        yield (
            f"{plural(answer.cut, 'collective')} {are} cut by the beginning or the end of a "
            f"recording: {'it' if answer.cut == 1 else 'they'} {prove} nothing about clocks or "
            "lateness."
        )
    yield from answer.notes


def wait_text(row: RankRow) -> Iterator[str]:
    if (worst := row.worst_wait) is not None:
        unknown = "a rank that clocks do not tell"
        by = unknown if worst.for_rank is None else f"rank {worst.for_rank}"
        yield (
            f"It waits longest in {printable(worst.name)}, {duration(worst.start_ns)} after its "
            f"trace begins: {duration(worst.wait_ns)} for {by}."
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
        text = _aligned(answer, duration(clocks.uncertainty_ns)) + _drifts(answer)
    if clocks.on_one_host_ns is not None:
        limit = duration(clocks.on_one_host_ns)
        differences = "Differences" if clocks.shared else "On one host, differences"
        text += f" {differences} of up to {limit} do not decide who arrives last."
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


def _aligned(answer: JobAnswer, within: str) -> str:
    clocks = answer.clocks
    by_ends = sum(one.by == "ends" for one in clocks.hosts)
    how = " by the ends of collectives," if by_ends == len(clocks.hosts) - 1 else ""
    if all(one.ranks == 1 for one in clocks.hosts):
        whom = f"Clocks are aligned to rank {clocks.reference_rank}{how and ','}{how}"
        return f"{whom} to within {within}; waits are known no better than that."
    return (
        f"The clocks of {plural(len(clocks.hosts), 'host')} are aligned{how and ','}{how} to "
        f"within {within}; waits between ranks of different hosts are known no better than that."
    )


def _drifts(answer: JobAnswer) -> str:
    """A sentence that begins with a space; "" where no clock drifts."""
    drifting = [one for one in answer.clocks.hosts if round(one.drift_ns_per_s)]
    if not drifting:
        return ""
    names = several([printable(one.host) for one in drifting], 3)
    most_ns = max(abs(round(one.drift_ns_per_s)) for one in drifting)
    how_much = f"{'up to ' if len(drifting) > 1 else ''}{duration(most_ns)}"
    drift = "clock drifts" if len(drifting) == 1 else "clocks drift"
    return (
        f" No constant offsets explain all collectives: the {drift} on {names}, by {how_much} a "
        "second, and times are corrected for that."
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
    text = ", ".join(texts[:-1]) + (" and " if texts[1:] else "") + texts[-1]
    if (more := len(runs) - MOST_RANGES) > 0:
        text += f", and {count(more)} more ranges"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"
