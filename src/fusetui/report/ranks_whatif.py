"""What `ranks --what-if` says: what changes are worth to a job, and which rank is last then."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from fusetui.analysis.ranks.changing import Why
from fusetui.analysis.ranks.whatif import JobWhatIf
from fusetui.analysis.why.model import DOUBTFUL
from fusetui.report.whatif import NOTES, inferred_sentence, worth
from fusetui.text.figures import count, duration, percent, several
from fusetui.text.printable import printable
from fusetui.text.tables import TOP_ALL, Column, left_out, table_of

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
    blocks = [_wrapped(" ".join(_answer(found)), width)]
    if found.after_ns is not None:
        shown = found.ranks[:top] if top else found.ranks
        rest = left_out(len(found.ranks) - len(shown), "rank", TOP_ALL)
        blocks.append("\n".join([table_of(_columns(found), shown, width), *rest]))
        blocks += [_wrapped(NOTES[note], width) for note in found.notes]
        blocks += [_wrapped(text, width) for text in inferred_sentence(found.inferred_waits)]
    return "\n\n".join(blocks)


def no_answer(found: JobWhatIf) -> str:
    """Why there is none."""
    made = printable(" and ".join(found.changes))
    return f"What {made} would be worth to the job cannot be told: {WHY[found.why_not]}."


def _answer(found: JobWhatIf) -> Iterator[str]:
    if found.before_ns is None or found.after_ns is None:
        yield no_answer(found)
        return
    if found.residual_share > DOUBTFUL:
        share = percent(found.residual_share, 1)
        yield f"Not understood: up to {share} of the time of a rank."
    made = printable(" and ".join(found.changes))
    of = "a step" if found.of == "step" else "the span"
    before, after = map(duration, (found.before_ns, found.after_ns))
    told = worth(found.before_ns, found.after_ns)
    how = f"at best ({told})" if found.certainty == "bound" else f"({told}), an estimate"
    yield f"With {made}, {of} of the job of {before} would take {after} {how}."
    yield from _last(found)
    rest = [str(row.rank) for row in found.ranks if not row.is_changed]
    if rest and len(rest) < len(found.ranks):
        which = "rank is" if len(rest) == 1 else "ranks are"
        yield f"Unchanged {which} {several(rest, 4)}."
    if found.uncertainty_ns:
        clocks = duration(found.uncertainty_ns)
        yield f"The clocks of the hosts leave up to {clocks} of that open."


def _last(found: JobWhatIf) -> Iterator[str]:
    """Which rank arrives last most often, before and then."""
    was = max(found.ranks, key=lambda row: row.last_before)
    then = max(found.ranks, key=lambda row: row.last_after)
    of = count(found.collectives)
    if was.last_before:
        yield f"Rank {was.rank} arrives last in {count(was.last_before)} of {of} collectives;"
    else:
        yield "No rank arrives last;"
    if not then.last_after:
        yield "then no rank does."
    elif then.rank == was.rank:
        yield f"then it still does, in {count(then.last_after)}."
    else:
        yield f"then rank {then.rank} does, in {count(then.last_after)}."


def _columns(found: JobWhatIf) -> tuple[Column, ...]:
    each = max(len(found.steps), 1)
    return (
        Column("rank", cell=lambda row: str(row.rank)),
        Column("last", cell=lambda row: count(row.last_before)),
        Column("then last", cell=lambda row: count(row.last_after)),
        Column("waits", cell=lambda row: duration(row.waits_before_ns // each)),
        Column("then waits", cell=lambda row: duration(row.waits_after_ns // each)),
    )


def _wrapped(text: str, width: int) -> str:
    return "\n".join(wrap(text, width))
