"""The answer about a hang as text and as a JSON document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from fusetui.analysis.hang.in_trace import InTrace
from fusetui.analysis.hang.mismatches import read_operation_kind
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


def make_hang_document(
    answer: HangAnswer, traced: InTrace | None = None
) -> HangDocument:
    """Return the answer about a hang as a JSON document, with its sentences. `traced`
    is where a trace of the job has the collective, or None."""
    sentences = (*headline(answer), *describe_in_trace(traced))
    return printed(answer, HangDocument, text=sentences, in_trace=traced)


def format_hang(
    answer: HangAnswer, most: int, top: int, traced: InTrace | None = None
) -> str:
    """Return the answer about a hang as text: the reason, where a trace has the
    collective, how far each group came, and what is undecided.

    `most` is the width in cells, and `top` the number of rows of the table of groups.
    """
    sections = (
        _wrap_sentences(headline(answer), most),
        _wrap_sentences(describe_in_trace(traced), most),
        _format_groups(_sort_groups(answer), most, top),
        _wrap_sentences(_remark_sentences(answer), most),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def headline(answer: HangAnswer) -> list[str]:
    """Return sentences about the reason of a hang: which rank is missing, what it
    issued last, and where the others wait."""
    sentences: list[str] = []
    culprits_without_dump = [
        culprit for culprit in answer.culprits if not culprit.has_dump
    ]
    if culprits_without_dump:
        sentences.append(_describe_absent(answer, culprits_without_dump))
    if answer.verdict == "mismatch":
        sentences += map(describe_mismatch, answer.open_mismatches_first[:1])
    culprits_with_dump = [culprit for culprit in answer.culprits if culprit.has_dump]
    if answer.verdict != "unmatched":
        for culprit in culprits_with_dump[:MAX_CULPRITS]:
            sentences.append(_describe_missing(answer, culprit))
        if len(culprits_with_dump) > MAX_CULPRITS:
            more = plural(len(culprits_with_dump) - MAX_CULPRITS, "more rank")
            sentences.append(f"{more} are missing for the same reason.")
    if answer.cycle:
        sentences.append(_describe_deadlock(answer))
    if answer.verdict == "unmatched":
        sentences += map(describe_unmatched, answer.unmatched[:MAX_CULPRITS])
    if answer.verdict == "undecided" and not culprits_without_dump:
        sentences += _describe_undecided(answer)
    if answer.verdict == "none":
        sentences.append(NOBODY)
    return sentences


def describe_in_trace(traced: InTrace | None) -> list[str]:
    """Return a sentence about where a trace of the same job has the collective in which
    ranks wait, or why it has not. Empty without a trace, or if nobody waits."""
    if traced is None:
        return []
    collective_text = collective(traced.group, traced.sequence)
    if traced.reason:
        return [
            f"{traced.path} does not show {collective_text}: {_explain_not_in_trace(traced)}."
        ]
    assert traced.place is not None
    position_text = (
        f"collective {traced.place.number} of {traced.place.of} of this group"
    )
    step = f" in {traced.step}" if traced.step else ""
    where = f"{position_text}{step}: {traced.name}, row {traced.row}"
    sentence = f"In {traced.path}, {collective_text} is {where}."
    issuer_text = " < ".join(traced.issued_by[:MAX_AROUND])
    issuer_sentence = f"It is issued by {issuer_text}." if issuer_text else ""
    agreement_sentence = (
        f"{plural(traced.agreeing, 'collective')} in a row agree with the dumps there."
        if traced.agreeing > 1
        else "Only this collective agrees with the dumps there."
    )
    return [" ".join(filter(None, (sentence, issuer_sentence, agreement_sentence)))]


def _explain_not_in_trace(traced: InTrace) -> str:
    """Return why a trace does not show a collective, as the end of a sentence."""
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


def format_ranks(ranks: Iterable[int]) -> str:
    """Return ranks in words, such as `0 to 3, 7 and 9`. At most MAX_RANGES ranges are
    named."""
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


def name_ranks(ranks: Sequence[int]) -> str:
    """Return ranks in words with the noun, such as `rank 1` or `ranks 0 to 3`."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(ranks)}"


def name_group(group: GroupName) -> str:
    """Return the description of a process group, such as `default_pg`, or else its
    name."""
    return group.description or group.name or "the only group"


def format_frame(place: Frame | None) -> str:
    """Return a frame of Python code as text, such as `train, job.py:16`; "an unrecorded
    line" for None."""
    if place is None:
        return "an unrecorded line"
    return f"{place.function}, {place.file}:{place.line}"


def format_tensors(tensors: Tensors) -> str:
    """Return the dtypes and sizes of tensors as text, such as `Float [4, 32]`."""
    sizes = ", ".join(str(list(dimensions)) for dimensions in tensors.sizes)
    dtypes = ", ".join(sorted(set(tensors.dtypes)))
    return f"{dtypes} {sizes}".strip() or "no tensors"


def collective(group: GroupName, sequence: int) -> str:
    """Return a collective by its number in its group, such as `collective 8 of
    default_pg`."""
    return f"collective {count(sequence)} of {name_group(group)}"


def describe_mismatch(mismatch: Mismatch) -> str:
    """Return a sentence about ranks that issued different operations as the same
    collective, with what each of them issued."""
    sides = "; ".join(
        _describe_side(mismatch, side) for side in mismatch.sides[:MAX_REMARKS]
    )
    over = " It ended on all of them." if mismatch.is_over else ""
    return (
        f"Ranks issued {DIFFERENCES[mismatch.kind]} as "
        f"{collective(mismatch.group, mismatch.sequence)}: {sides}.{over}"
    )


def describe_unmatched(message: UnmatchedMessage) -> str:
    """Return a sentence about a rank that waits in a send or receive whose counterpart
    was not issued."""
    issued = message.issued
    is_send = read_operation_kind(issued.operation).startswith("send")
    counterpart = "receive" if is_send else "send"
    peer = "the other side" if message.peer == UNKNOWN else f"rank {message.peer}"
    last = ""
    if message.peer_last is not None:
        last = f" Last issued by {peer}: {_describe_issued(message.peer_last)}."
    return (
        f"Rank {issued.rank} waits in {read_operation_kind(issued.operation)} of "
        f"{name_group(issued.group)} ({format_frame(issued.place)}) for a {counterpart} "
        f"that {peer} did not issue.{last}"
    )


def describe_doubt(doubt: Doubt) -> str:
    """Return a sentence about something that the dumps do not settle."""
    where = ""
    if doubt.group is not None:
        where = collective(doubt.group, doubt.sequence)
    ranks_text = name_ranks(doubt.ranks) if doubt.ranks else ""
    if doubt.kind == "no_dump":
        return (
            f"No dump of {ranks_text} could be read. A rank without a dump may be dead."
        )
    if doubt.kind == "stuck":
        return (
            f"{ranks_text.capitalize()} did not leave {where}, although all members issued "
            "it alike and others left it. Different roots would cause this, but "
            "dumps do not record roots."
        )
    if doubt.kind == "lost":
        return (
            f"It is unknown whether {ranks_text} issued {where}: the ring buffer no longer "
            "has the entries of this group. To keep more, set a larger "
            "TORCH_FR_BUFFER_SIZE."
        )
    if doubt.kind == "members_unknown":
        assert doubt.group is not None
        return (
            f"{name_group(doubt.group)} has more members than the dumps show, judging by "
            "the sizes of its all_gathers."
        )
    if doubt.kind == "versions":
        return "The dumps have different format versions."
    return (
        "Waits in gloo sends and receives are not visible, because gloo does not "
        "record them."
    )


def describe_call(
    *,
    issued: Issued | None,
    wait: Wait | None,
    rank: int,
    is_known: bool,
    last: Issued | None,
) -> list[str]:
    """Return lines about what one rank did in one collective. `issued` is None if the
    rank did not issue it, or if that is unknown (`is_known` is False).

    `wait` is who waits in this collective, if anybody, and `last` the newest of all
    that the rank issued.
    """
    if issued is None:
        lines = [_describe_not_issued(wait, rank, is_known)]
    else:
        state = "over" if issued.is_over else issued.state
        lines = [
            f"{issued.operation}, {state}, at {format_frame(issued.place)}",
            f"inputs {format_tensors(issued.inputs)}; outputs {format_tensors(issued.outputs)}",
        ]
        if wait is not None and rank in wait.waiting:
            lines.append(f"It waits here for {name_ranks(_awaited_ranks(wait))}.")
    if last is not None and last != issued:
        lines.append(f"Last issued by rank {rank}: {_describe_issued(last)}.")
    return lines


def _describe_not_issued(wait: Wait | None, rank: int, is_known: bool) -> str:
    """Return a sentence about a rank that did not issue a collective, and who waits for
    it."""
    if wait is not None and rank in wait.without_dump:
        return f"Rank {rank} wrote no readable dump. {_describe_waiters(wait)}"
    if wait is not None and rank in wait.lacking:
        return f"Rank {rank} did not issue it. {_describe_waiters(wait)}"
    if is_known:
        return f"Rank {rank} did not issue it, and no rank waits for it here."
    return f"It is unknown whether rank {rank} issued it."


def _awaited_ranks(wait: Wait) -> tuple[int, ...]:
    """Return the ranks that have not reached a collective, as far as the dumps show."""
    return (*wait.without_dump, *wait.lacking, *wait.unknown)


def _describe_absent(answer: HangAnswer, culprits: Sequence[Culprit]) -> str:
    """Return a sentence about ranks that wrote no readable dump, so they may have died,
    and who waits for them."""
    ranks = [culprit.rank for culprit in culprits]
    first = culprits[0]
    wait = _find_wait(answer, first)
    guess_text = (
        "the rank may have died" if len(ranks) == 1 else "the ranks may have died"
    )
    return (
        f"{name_ranks(ranks).capitalize()} wrote no readable dump: {guess_text}. "
        f"{_describe_waiters(wait)}"
    )


def _describe_missing(answer: HangAnswer, culprit: Culprit) -> str:
    """Return sentences about a missing rank: which collective it did not issue, what it
    issued last, and who waits for it."""
    wait = _find_wait(answer, culprit)
    head = (
        f"Rank {culprit.rank} is missing: it did not issue "
        f"{read_operation_kind(wait.example.operation)}, {collective(wait.group, wait.sequence)}"
    )
    if culprit.sequence < wait.sequence:
        head += f", nor any after number {count(culprit.sequence)}"
    if culprit.last is None:
        last = "It issued nothing at all."
    else:
        last = f"Last issued: {_describe_issued(culprit.last)}."
    if culprit.now is not None:
        last += f" It was at {format_frame(culprit.now)} when the dumps were taken."
    later_waiters = culprit.waiting - len(wait.waiting)
    later_sentence = ""
    if later_waiters > 0:
        waits = "waits" if later_waiters == 1 else "wait"
        later_sentence = f" {plural(later_waiters, 'more rank')} {waits} for those."
    return f"{head}. {last} {_describe_waiters(wait)}{later_sentence}"


def _describe_waiters(wait: Wait) -> str:
    """Return a sentence about which ranks wait, in which operation, and at which line
    the first of them does."""
    waits = "waits" if len(wait.waiting) == 1 else "wait"
    waiting_place = wait.example.place or wait.now
    return (
        f"{name_ranks(wait.waiting).capitalize()} {waits} in "
        f"{read_operation_kind(wait.example.operation)} at {format_frame(waiting_place)}."
    )


def _describe_deadlock(answer: HangAnswer) -> str:
    """Return a sentence about ranks that wait for each other in a circle."""
    following = (*answer.cycle[1:], answer.cycle[0])
    steps = []
    for rank, awaited in zip(answer.cycle, following, strict=True):
        wait = next(
            wait
            for wait in answer.waits
            if rank in wait.waiting and awaited in (*wait.lacking, *wait.without_dump)
        )
        operation_name = read_operation_kind(wait.example.operation)
        where = collective(wait.group, wait.sequence)
        steps.append(
            f"rank {rank} waits for rank {awaited} in {operation_name}, {where}"
        )
    return f"Deadlock: {'; '.join(steps[:MAX_REMARKS])}."


def _describe_undecided(answer: HangAnswer) -> Iterator[str]:
    """Yield sentences about a hang whose reason the dumps do not settle: ranks that did
    not leave a collective, or else who waits."""
    stuck = [doubt for doubt in answer.doubts if doubt.kind == "stuck"]
    for doubt in stuck[:MAX_CULPRITS]:
        issued = doubt.issued
        place_clause = "" if issued is None else f" at {format_frame(issued.place)}"
        operation_name = (
            "a collective" if issued is None else read_operation_kind(issued.operation)
        )
        assert doubt.group is not None
        yield (
            f"Inconclusive: {name_ranks(doubt.ranks)} did not leave {operation_name}, "
            f"{collective(doubt.group, doubt.sequence)},{place_clause}, which all its members issued."
        )
    if not stuck and answer.waits:
        yield f"Inconclusive. {_describe_waiters(answer.waits[0])}"


def _find_wait(answer: HangAnswer, culprit: Culprit) -> Wait:
    """Return the first wait for a rank that is a culprit. There must be one."""
    return next(
        wait
        for wait in answer.waits
        if culprit.rank in wait.lacking or culprit.rank in wait.without_dump
    )


def _describe_issued(issued: Issued) -> str:
    """Return the operation that a rank issued, with its group and its line of code."""
    if read_operation_kind(issued.operation).startswith(("send ", "recv ")):
        operation_text = (
            f"{read_operation_kind(issued.operation)} of {name_group(issued.group)}"
        )
    else:
        name = read_operation_kind(issued.operation)
        operation_text = f"{name}, {collective(issued.group, issued.sequence)},"
    return f"{operation_text} at {format_frame(issued.place)}"


def _describe_side(mismatch: Mismatch, side: Side) -> str:
    """Return what some ranks issued, as one side of a mismatch, with the line of code."""
    first = side.issued[0]
    operation_text = " + ".join(
        read_operation_kind(issued.operation) for issued in side.issued
    )
    if mismatch.kind in ("sizes", "dtypes"):
        operation_text = f"{operation_text} of {format_tensors(first.inputs)}"
    return f"{name_ranks(side.ranks)} {operation_text} ({format_frame(first.place)})"


def _sort_groups(answer: HangAnswer) -> list[GroupProgress]:
    """Return the groups with those first in which a rank waits, or ranks issued
    different operations."""
    concerned = {wait.group for wait in answer.waits}
    concerned |= {mismatch.group for mismatch in answer.mismatches}
    return sorted(answer.groups, key=lambda progress: progress.group not in concerned)


def _format_groups(groups: Sequence[GroupProgress], most: int, top: int) -> list[str]:
    """Return the table of process groups and how far their ranks came, in a list; empty
    if there are none."""
    if not groups:
        return []
    columns = (
        Column("group", True, cell=lambda group: printable(name_group(group.group))),
        Column("members", cell=lambda group: count(len(group.members))),
        Column("newest collective of its ranks", True, cell=_format_progress),
    )
    return [
        top_table(columns, groups, top, most, "group", min_last_cells=12, blank="-")
    ]


def _format_progress(progress: GroupProgress) -> str:
    """Return how far the ranks of a group came, the newest collective first: `8: ranks
    0, 2 and 3; 7: rank 1`."""
    ranks_at: dict[int, list[int]] = defaultdict(list)
    for rank, newest in zip(progress.members, progress.newest, strict=True):
        ranks_at[newest].append(rank)
    parts = []
    for newest in sorted(ranks_at, reverse=True):
        number = "unknown" if newest == UNKNOWN else count(newest)
        parts.append(f"{number}: {name_ranks(ranks_at[newest])}")
    return "; ".join(parts[:MAX_REMARKS])


def _remark_sentences(answer: HangAnswer) -> Iterator[str]:
    """Yield sentences about what the headline does not say: further mismatches,
    unmatched messages, doubts, and files that could not be read."""
    mismatches = answer.open_mismatches_first
    if answer.verdict == "mismatch":
        mismatches = mismatches[1:]  # the headline has the first
    yield from map(describe_mismatch, mismatches[:MAX_REMARKS])
    if len(mismatches) > MAX_REMARKS:
        yield f"{plural(len(mismatches) - MAX_REMARKS, 'more mismatch')} (--json has all)."
    if answer.verdict != "unmatched":
        yield from map(describe_unmatched, answer.unmatched[:MAX_REMARKS])
    yield from map(describe_doubt, answer.doubts)
    if not all(group.members_are_listed for group in answer.groups):
        yield (
            "These dumps do not list group members, so fusetui treats each rank with "
            "entries for a group as a member of that group."
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


def _wrap_sentences(sentences: Iterable[str], most: int) -> list[str]:
    """Return the sentences as lines of at most `most` cells."""
    lines: list[str] = []
    for sentence in sentences:
        lines += wrapped_lines(printable(sentence), most, INDENT)
    return lines
