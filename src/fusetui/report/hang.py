"""The answer about a hang as text and as a JSON document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from fusetui.analysis.hang.in_trace import InTrace
from fusetui.analysis.hang.mismatches import kind_of
from fusetui.analysis.hang.model import (
    Culprit,
    Doubt,
    GroupProgress,
    HangAnswer,
    Issued,
    Mismatch,
    Side,
    UnmatchedMessage,
    Wait,
)
from fusetui.report import printed
from fusetui.text.figures import count, plural
from fusetui.text.printable import printable
from fusetui.text.tables import Column, top_table, wrapped_lines
from fusetui.trace.flight.columns import UNKNOWN, Frame, GroupName, Tensors

MAX_CULPRITS = 3
"""That the headline names; the rest are counted."""

MAX_AROUND = 4
"""Slices around a collective in a trace that are named."""

MAX_RANGES = 8
"""Of ranks, in a sentence."""

MAX_REMARKS = 8
"""Mismatches, messages and files that are named; the rest are counted."""

INDENT = "  "
"""Of the lines of a sentence behind the first."""

NOBODY = (
    "No rank is missing: all members have reached every collective in which a rank "
    "waits."
)
DIFFERENCES = {
    "operation": "different operations",
    "sizes": "different sizes",
    "dtypes": "different dtypes",
    "coalesced": "different numbers of coalesced operations",
}


class HangDocument(HangAnswer, frozen=True):
    """`text`: the answer in sentences, the reason first. `in_trace`: where a trace of the
    same job has the collective, null if none was given."""

    text: tuple[str, ...]
    in_trace: InTrace | None


def hang_document(answer: HangAnswer, traced: InTrace | None = None) -> HangDocument:
    """The answer as a JSON document."""
    sentences = (*headline(answer), *in_trace_sentences(traced))
    return printed(answer, HangDocument, text=sentences, in_trace=traced)


def hang_text(
    answer: HangAnswer, most: int, top: int, traced: InTrace | None = None
) -> str:
    """The reason first, then where a trace has the collective, then how far each group
    came, then what could not be decided.

    `most`: columns of a line; `top`: rows of the table of groups."""
    sections = (
        _folded(headline(answer), most),
        _folded(in_trace_sentences(traced), most),
        _groups(_by_interest(answer), most, top),
        _folded(_remarks(answer), most),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def headline(answer: HangAnswer) -> list[str]:
    """Which rank is missing, what it issued last, and where the others wait."""
    sentences: list[str] = []
    absent = [culprit for culprit in answer.culprits if not culprit.has_dump]
    if absent:
        sentences.append(_absent(answer, absent))
    if answer.verdict == "mismatch":
        sentences += map(mismatch_sentence, answer.open_mismatches_first[:1])
    missing = [culprit for culprit in answer.culprits if culprit.has_dump]
    if answer.verdict != "unmatched":
        for culprit in missing[:MAX_CULPRITS]:
            sentences.append(_missing(answer, culprit))
        if len(missing) > MAX_CULPRITS:
            more = plural(len(missing) - MAX_CULPRITS, "more rank")
            sentences.append(f"{more} are missing for the same reason.")
    if answer.cycle:
        sentences.append(_deadlock(answer))
    if answer.verdict == "unmatched":
        sentences += map(unmatched_sentence, answer.unmatched[:MAX_CULPRITS])
    if answer.verdict == "undecided" and not absent:
        sentences += _undecided(answer)
    if answer.verdict == "none":
        sentences.append(NOBODY)
    return sentences


def in_trace_sentences(traced: InTrace | None) -> list[str]:
    """Where a trace of the same job has the collective in which ranks wait, or why it
    has not; [] without a trace, or if nobody waits."""
    if traced is None:
        return []
    what = collective(traced.group, traced.sequence)
    if traced.reason:
        return [f"{traced.path} does not show {what}: {_why_not_in_trace(traced)}."]
    assert traced.place is not None
    place = f"collective {traced.place.number} of {traced.place.of} of this group"
    step = f" in {traced.step}" if traced.step else ""
    sentence = (
        f"In {traced.path}, {what} is {place}{step}: {traced.name}, row {traced.row}."
    )
    around = " < ".join(traced.issued_by[:MAX_AROUND])
    issued = f"It is issued by {around}." if around else ""
    agreeing = (
        f"{plural(traced.agreeing, 'collective')} in a row agree with the dumps there."
        if traced.agreeing > 1
        else "Only this collective agrees with the dumps there."
    )
    return [" ".join(filter(None, (sentence, issued, agreeing)))]


def _why_not_in_trace(traced: InTrace) -> str:
    """The end of a sentence."""
    if traced.reason == "no_group":
        return "it has no collective of this group"
    if traced.reason == "not_recorded":
        return (
            "none of its steps has a collective of this group with this operation "
            "and size"
        )
    return (
        f"{count(traced.places)} collectives of a step are identical, and so are the "
        f"{count(traced.agreeing - 1)} before each"
    )


def rank_list(ranks: Iterable[int]) -> str:
    """0 to 3, 7 and 9; of very many ranges only the first."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    texts = []
    for first, last in ranges:
        if last == first:
            texts.append(str(first))
        elif last == first + 1:
            texts += [str(first), str(last)]
        else:
            texts.append(f"{first} to {last}")
    if len(texts) > MAX_RANGES:
        return f"{', '.join(texts[:MAX_RANGES])} and more"
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def ranks_named(ranks: Sequence[int]) -> str:
    """rank 1, ranks 0 to 3."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list(ranks)}"


def group_name(group: GroupName) -> str:
    """default_pg; the name itself where it has no description."""
    return group.description or group.name or "the only group"


def place_text(place: Frame | None) -> str:
    """train, job.py:16."""
    if place is None:
        return "an unrecorded line"
    return f"{place.function}, {place.file}:{place.line}"


def tensors_text(tensors: Tensors) -> str:
    """Float [4, 32]."""
    sizes = ", ".join(str(list(dimensions)) for dimensions in tensors.sizes)
    dtypes = ", ".join(sorted(set(tensors.dtypes)))
    return f"{dtypes} {sizes}".strip() or "no tensors"


def collective(group: GroupName, sequence: int) -> str:
    """collective 8 of default_pg."""
    return f"collective {count(sequence)} of {group_name(group)}"


def mismatch_sentence(mismatch: Mismatch) -> str:
    """Which ranks issued what as one and the same collective, each side in turn."""
    sides = "; ".join(_side(mismatch, side) for side in mismatch.sides[:MAX_REMARKS])
    over = " It ended on all of them." if mismatch.is_over else ""
    return (
        f"Ranks issued {DIFFERENCES[mismatch.kind]} as "
        f"{collective(mismatch.group, mismatch.sequence)}: {sides}.{over}"
    )


def unmatched_sentence(message: UnmatchedMessage) -> str:
    """Who waits for a counterpart that was not issued."""
    issued = message.issued
    is_send = kind_of(issued.operation).startswith("send")
    counterpart = "receive" if is_send else "send"
    peer = "the other side" if message.peer == UNKNOWN else f"rank {message.peer}"
    last = ""
    if message.peer_last is not None:
        last = f" Last issued by {peer}: {_issued(message.peer_last)}."
    return (
        f"Rank {issued.rank} waits in {kind_of(issued.operation)} of "
        f"{group_name(issued.group)} ({place_text(issued.place)}) for a {counterpart} "
        f"that {peer} did not issue.{last}"
    )


def doubt_sentence(doubt: Doubt) -> str:
    """An open question of the dumps."""
    where = ""
    if doubt.group is not None:
        where = collective(doubt.group, doubt.sequence)
    who = ranks_named(doubt.ranks) if doubt.ranks else ""
    if doubt.kind == "no_dump":
        return f"No readable dump of {who}: a rank without a dump may be dead."
    if doubt.kind == "stuck":
        return (
            f"{who.capitalize()} did not leave {where}, although all members issued "
            "it alike and others left it. Different roots would cause this, but "
            "dumps do not record roots."
        )
    if doubt.kind == "lost":
        return (
            f"It is unknown whether {who} issued {where}: the ring buffer no longer "
            "has the entries of this group. To keep more, set a larger "
            "TORCH_FR_BUFFER_SIZE."
        )
    if doubt.kind == "members_unknown":
        assert doubt.group is not None
        return (
            f"{group_name(doubt.group)} has more members than the dumps show, judging by "
            "the sizes of its all_gathers."
        )
    if doubt.kind == "versions":
        return "The dumps have different format versions."
    return (
        "Waits in gloo sends and receives are not visible, because gloo does not "
        "record them."
    )


def call_lines(
    *,
    issued: Issued | None,
    wait: Wait | None,
    rank: int,
    is_known: bool,
    last: Issued | None,
) -> list[str]:
    """What one rank did in one collective: `issued` is None if it did not issue it, or
    if that is not known. `last` is the newest of all that it issued."""
    if issued is None:
        lines = [_not_issued(wait, rank, is_known)]
    else:
        state = "over" if issued.is_over else issued.state
        lines = [
            f"{issued.operation}, {state}, at {place_text(issued.place)}",
            f"inputs {tensors_text(issued.inputs)}; outputs {tensors_text(issued.outputs)}",
        ]
        if wait is not None and rank in wait.waiting:
            lines.append(f"It waits here for {ranks_named(_awaited(wait))}.")
    if last is not None and last != issued:
        lines.append(f"Last issued by rank {rank}: {_issued(last)}.")
    return lines


def _not_issued(wait: Wait | None, rank: int, is_known: bool) -> str:
    if wait is not None and rank in wait.without_dump:
        return f"Rank {rank} wrote no readable dump. {_waiters(wait)}"
    if wait is not None and rank in wait.lacking:
        return f"Rank {rank} did not issue it. {_waiters(wait)}"
    if is_known:
        return f"Rank {rank} did not issue it, and no rank waits for it here."
    return f"It is unknown whether rank {rank} issued it."


def _awaited(wait: Wait) -> tuple[int, ...]:
    """The ranks that have not come, as far as the dumps show."""
    return (*wait.without_dump, *wait.lacking, *wait.unknown)


def _absent(answer: HangAnswer, culprits: Sequence[Culprit]) -> str:
    ranks = [culprit.rank for culprit in culprits]
    first = culprits[0]
    wait = _wait_for(answer, first)
    what = "the rank may have died" if len(ranks) == 1 else "the ranks may have died"
    return (
        f"{ranks_named(ranks).capitalize()} wrote no readable dump: {what}. "
        f"{_waiters(wait)}"
    )


def _missing(answer: HangAnswer, culprit: Culprit) -> str:
    wait = _wait_for(answer, culprit)
    head = (
        f"Rank {culprit.rank} is missing: it did not issue "
        f"{kind_of(wait.example.operation)}, {collective(wait.group, wait.sequence)}"
    )
    if culprit.sequence < wait.sequence:
        head += f", nor any after number {count(culprit.sequence)}"
    if culprit.last is None:
        last = "It issued nothing at all."
    else:
        last = f"Last issued: {_issued(culprit.last)}."
    if culprit.now is not None:
        last += f" It was at {place_text(culprit.now)} when the dumps were taken."
    others = culprit.waiting - len(wait.waiting)
    behind = ""
    if others > 0:
        waits = "waits" if others == 1 else "wait"
        behind = f" {plural(others, 'more rank')} {waits} for those."
    return f"{head}. {last} {_waiters(wait)}{behind}"


def _waiters(wait: Wait) -> str:
    """Which ranks wait, in which operation, and at which line the first of them does."""
    waits = "waits" if len(wait.waiting) == 1 else "wait"
    place = wait.example.place or wait.now
    return (
        f"{ranks_named(wait.waiting).capitalize()} {waits} in "
        f"{kind_of(wait.example.operation)} at {place_text(place)}."
    )


def _deadlock(answer: HangAnswer) -> str:
    following = (*answer.cycle[1:], answer.cycle[0])
    steps = []
    for rank, awaited in zip(answer.cycle, following, strict=True):
        wait = next(
            wait
            for wait in answer.waits
            if rank in wait.waiting and awaited in (*wait.lacking, *wait.without_dump)
        )
        what = kind_of(wait.example.operation)
        where = collective(wait.group, wait.sequence)
        steps.append(f"rank {rank} waits for rank {awaited} in {what}, {where}")
    return f"Deadlock: {'; '.join(steps[:MAX_REMARKS])}."


def _undecided(answer: HangAnswer) -> Iterator[str]:
    stuck = [doubt for doubt in answer.doubts if doubt.kind == "stuck"]
    for doubt in stuck[:MAX_CULPRITS]:
        issued = doubt.issued
        at = "" if issued is None else f" at {place_text(issued.place)}"
        what = "a collective" if issued is None else kind_of(issued.operation)
        assert doubt.group is not None
        yield (
            f"Inconclusive: {ranks_named(doubt.ranks)} did not leave {what}, "
            f"{collective(doubt.group, doubt.sequence)},{at}, which all its members issued."
        )
    if not stuck and answer.waits:
        yield f"Inconclusive. {_waiters(answer.waits[0])}"


def _wait_for(answer: HangAnswer, culprit: Culprit) -> Wait:
    """The first wait that lacks a rank."""
    return next(
        wait
        for wait in answer.waits
        if culprit.rank in wait.lacking or culprit.rank in wait.without_dump
    )


def _issued(issued: Issued) -> str:
    if kind_of(issued.operation).startswith(("send ", "recv ")):
        what = f"{kind_of(issued.operation)} of {group_name(issued.group)}"
    else:
        name = kind_of(issued.operation)
        what = f"{name}, {collective(issued.group, issued.sequence)},"
    return f"{what} at {place_text(issued.place)}"


def _side(mismatch: Mismatch, side: Side) -> str:
    first = side.issued[0]
    what = " + ".join(kind_of(issued.operation) for issued in side.issued)
    if mismatch.kind in ("sizes", "dtypes"):
        what = f"{what} of {tensors_text(first.inputs)}"
    return f"{ranks_named(side.ranks)} {what} ({place_text(first.place)})"


def _by_interest(answer: HangAnswer) -> list[GroupProgress]:
    """The groups in which a rank waits or that were called differently, then the others."""
    concerned = {wait.group for wait in answer.waits}
    concerned |= {mismatch.group for mismatch in answer.mismatches}
    return sorted(answer.groups, key=lambda progress: progress.group not in concerned)


def _groups(groups: Sequence[GroupProgress], most: int, top: int) -> list[str]:
    if not groups:
        return []
    columns = (
        Column("group", True, cell=lambda group: printable(group_name(group.group))),
        Column("members", cell=lambda group: count(len(group.members))),
        Column("newest collective of its ranks", True, cell=_progress_text),
    )
    return [
        top_table(columns, groups, top, most, "group", min_last_cells=12, blank="-")
    ]


def _progress_text(progress: GroupProgress) -> str:
    """8: ranks 0, 2 and 3; 7: rank 1."""
    ranks_at: dict[int, list[int]] = defaultdict(list)
    for rank, newest in zip(progress.members, progress.newest, strict=True):
        ranks_at[newest].append(rank)
    parts = []
    for newest in sorted(ranks_at, reverse=True):
        number = "unknown" if newest == UNKNOWN else count(newest)
        parts.append(f"{number}: {ranks_named(ranks_at[newest])}")
    return "; ".join(parts[:MAX_REMARKS])


def _remarks(answer: HangAnswer) -> Iterator[str]:
    mismatches = answer.open_mismatches_first
    if answer.verdict == "mismatch":
        mismatches = mismatches[1:]  # the headline has the first
    yield from map(mismatch_sentence, mismatches[:MAX_REMARKS])
    if len(mismatches) > MAX_REMARKS:
        yield f"{plural(len(mismatches) - MAX_REMARKS, 'more mismatch')} (--json has all)."
    if answer.verdict != "unmatched":
        yield from map(unmatched_sentence, answer.unmatched[:MAX_REMARKS])
    yield from map(doubt_sentence, answer.doubts)
    if not all(group.members_are_listed for group in answer.groups):
        yield (
            "These dumps do not list group members, so the members are the ranks "
            "with entries of the group."
        )
    if answer.ranks_from_order and answer.ranks:
        yield (
            "Ranks are numbered in file order, because the file names contain no rank."
        )
    yield from (file.reason for file in answer.unread[:MAX_REMARKS])
    if len(answer.unread) > MAX_REMARKS:
        yield (
            f"{plural(len(answer.unread) - MAX_REMARKS, 'more file')} could not be "
            "read."
        )


def _folded(sentences: Iterable[str], most: int) -> list[str]:
    lines: list[str] = []
    for sentence in sentences:
        lines += wrapped_lines(printable(sentence), most, INDENT)
    return lines
