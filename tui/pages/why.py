"""The why page: where the time went, and suggested remedies, with rows that lead to the
evidence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fusetui.analysis.why.model import (
    IDLE,
    Finding,
    Gap,
    Unknown,
    Why,
    considerable,
    negligible,
)
from fusetui.report import why_answer as say
from fusetui.text.cutting import clip
from fusetui.text.figures import Unit, duration, percent, unit_of
from fusetui.text.printable import printable
from fusetui.trace.model.memo import kept_result
from fusetui.tui.drawing.details import flow
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    cut,
    folded,
    no_rows,
    row_parts,
    ruled,
    text,
)
from fusetui.tui.drawing.range_lines import gap_lines
from fusetui.tui.drawing.schemes import Glyphs, Styled, glyphs_for, share_bar
from fusetui.tui.layout.answer import WORTH, inside, working
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import (
    MAX_COPIED_CHARS,
    NO_MORE,
    ListPage,
    Pane,
    page_table,
)
from fusetui.tui.state import jumping, search
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Details, Overlay, Size, State, told

if TYPE_CHECKING:
    from fusetui.tables.public import Table

MAX_TEXT_CELLS = 110  # of a wrapped text
BAR_CELLS = 10
SHARE_PARTS = 10**9  # a share from 0 to 1 is drawn as so many parts of this
MIN_LIST_LINES = 6
LEAST_LIST_LINES = 4  # where the lines are needed below the list
MIN_BELOW_LINES = 7  # of the pane below the list
MAX_THREADS = 5  # that the page names
LIST_TITLE = "finding, then the longest gaps"


class Heading(NamedTuple):
    """A row that names what follows."""

    text: str


Entry = Finding | Gap | Unknown | Heading


class WhyPage(ListPage):
    """Enter shows the evidence of a finding, repeated the next; for a gap, the gap."""

    name, title, key = "why", "Why", "5"
    copies = "line"
    help = "where the time went, and what would help"
    hints = (
        "help keys; row-down/row-up move; show show the evidence; details info; "
        "next-gap next gap; copy copy all as Markdown"
    )

    def rows(self, state: State) -> Rows:
        """The findings, the longest gaps, and what was not recorded."""
        why = _why(state.side)
        if why is None:
            return no_rows(working(state.side.trace, "where the time went"))
        entries = entries_of(why)
        times = _times_of(entries)
        unit = unit_of(times)
        columns = _columns(why, unit.name if times else "")
        glyphs = glyphs_for(state.ascii_only)

        def formatted(index: int, width: int) -> list[Styled]:
            """The row of one entry."""
            cells = _cells(why, entries[index], unit)
            texts = _texts(why, entries[index], cells, glyphs)
            return row_parts(columns, texts, width, cells.token)

        return Rows(
            identity=why,
            count=len(entries),
            titles=partial(titles, columns),
            format=formatted,
        )

    def change(self, state: State) -> str:
        """The change of `whatif` that the finding under the cursor is about; "" for
        gaps, for what is negligible, and for findings of which none is known."""
        why = _why(state.side)
        cursor = state.list_of(self.name).cursor
        if why is None or cursor >= len(considerable(why)):
            return ""
        if cursor >= len(why._wanted):
            return ""
        change = why._wanted[cursor]
        return change if isinstance(change, str) else ""

    def chosen(self, state: State, index: int) -> State:
        """Enter: the evidence of a finding, if a row of it is shown the next one; a
        gap; or a sentence."""
        why = _why(state.side)
        if why is None:
            return state
        match entries_of(why)[index]:
            case Finding(evidence=()):
                return told(state, "this finding has no slice to show")
            case Finding() as finding:
                return search.shown(state, _evidence(state, finding))
            case Gap() as gap:
                at = jumping.place_of_gap(state.side, gap)
                return jumping.at_gap(state, at) if at else state
            case Unknown(_, missing, record_with):
                how = f"; {record_with} does" if record_with else ""
                return told(state, printable(f"not recorded: {missing}{how}"))
            case Heading():
                return told(state, "this row is a heading")

    def described(self, state: State) -> Overlay | str:
        """The next slice of the evidence of a finding, or, where it has none, all of its
        text; a gap; a sentence for other rows."""
        entry = self.under_cursor(state, _entries(state.side))
        if isinstance(entry, Finding):
            if not entry.evidence:
                return _whole_finding(state, entry)
            return Details(state.side, _evidence(state, entry).row)
        if isinstance(entry, Gap):
            at = jumping.place_of_gap(state.side, entry)
            if at:
                return Details(state.side, at)
        return NO_MORE

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The answer, and as much of the account as there is room for."""
        why = _why(state.side)
        if why is None:
            return ()
        room = max(1, size.height - _list_lines(why, size) - _below(why, size))
        lines = _answer(why, size.width, room)
        return (Pane(len(lines), text(lines)),)

    def copied(self, state: State) -> str:
        """The whole answer as Markdown; "" until it is known."""
        from fusetui.report.why import why_markdown  # rarely needed

        why = _why(state.side)
        return clip(why_markdown(why), MAX_COPIED_CHARS) if why else ""

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """The findings, the longest gaps, and what was not recorded."""
        entries = _entries(state.side)
        if not entries:
            return None
        records = []
        for index in range(len(entries)) if rows is None else rows:
            entry = entries[index]
            if not isinstance(entry, Heading):
                records.append(_record(entry))
        return page_table(
            self.name,
            {
                "what": [record.what for record in records],
                "name": [record.name for record in records],
                "text": [record.text for record in records],
                "try": [record.remedy for record in records],
            },
            bound_ns=[record.bound_ns for record in records],
            estimated_gain_ns=[record.gain_ns for record in records],
            start_ns=[record.start_ns for record in records],
        )

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        """A few lines about the entry under the cursor."""
        side = state.side
        why = _why(side)
        glyphs = glyphs_for(state.ascii_only)
        entry = self.under_cursor(state, _entries(side))

        def lines(width: int, height: int) -> Sequence[Said]:
            about = _about(side, why, entry, width, height, glyphs)
            return cut(about, height, glyphs.ellipsis)

        picture = ruled((why, side, entry), "", glyphs.rule, lines)
        return (Pane(_below(why, size), picture),)


def _below(why: Why | None, size: Size) -> int:
    """How many lines the pane below the list has: enough for the longest finding, so
    that it need not be cut, where the answer in its shortest form and some rows have
    room beside it; at most half of the page."""
    usual = _usual_below(size)
    if why is None:
        return usual
    rule = 1
    needed = rule + _longest_finding(why, size.width)
    room = size.height - LEAST_LIST_LINES - _shortest_answer(why, size.width)
    return max(usual, min(needed, room, size.height // 2))


def _usual_below(size: Size) -> int:
    return max(MIN_BELOW_LINES, min(10, size.height // 4))


def _list_lines(why: Why, size: Size) -> int:
    """How many lines of the list the answer above it leaves at least."""
    above = size.height - MIN_LIST_LINES - _below(why, size)
    has_room = above >= _shortest_answer(why, size.width)
    is_usual = _below(why, size) == _usual_below(size)
    return MIN_LIST_LINES if has_room or is_usual else LEAST_LIST_LINES


def _shortest_answer(why: Why, width: int) -> int:
    """The lines of the answer with the account in its shortest form."""
    heading = _verdict(why, width)
    if not why.devices:
        titles_and_a_thread_and_last_line = 3
        return len(heading) + titles_and_a_thread_and_last_line
    return len(heading) + len(flow(say.account_parts(why), width - 2))


def _longest_finding(why: Why, width: int) -> int:
    """The lines of the longest finding of the list."""
    heights = []
    for finding in considerable(why):
        blocks = _paragraph_lines(_paragraphs(why, finding), width)
        heights.append(sum(map(len, blocks)))
    return max(heights, default=0)


def _times_of(entries: Sequence[Entry]) -> list[int]:
    """The upper bound of each finding, and how long each gap is (ns); nothing for
    entries without a time."""
    times = []
    for entry in entries:
        if isinstance(entry, Gap):
            times.append(entry.dur_ns)
        elif isinstance(entry, Finding) and entry.at_stake_ns is not None:
            times.append(entry.at_stake_ns)
    return times


def _columns(why: Why, unit: str) -> tuple[ListColumn, ...]:
    """The columns of the list; that of what findings are worth once that is known.
    `unit`: that of the times, "" where there are none."""
    bound = f"bound {unit}" if unit else "bound"
    worth = (ListColumn("est. gain", 10),) if why.worth_of else ()
    return (
        ListColumn(bound, 11),
        ListColumn("share", 7),
        *worth,
        ListColumn("", BAR_CELLS, left=True, from_width=110),
        ListColumn(LIST_TITLE, 0, left=True),
    )


def _about(
    side: Side,
    why: Why | None,
    entry: Entry | None,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Said]:
    """Lines about an entry of the list; no lines about a heading."""
    if isinstance(entry, Finding) and why:
        return _about_finding(why, entry, width, height, glyphs.ellipsis)
    if isinstance(entry, Gap):
        at = jumping.place_of_gap(side, entry)
        return gap_lines(side, at, width, height, glyphs) if at else []
    if isinstance(entry, Unknown):
        how = f" To record: {entry.record_with}" if entry.record_with else ""
        return _folded(f"Not recorded: {entry.missing}.{how}", width, "plain")
    return []


def entries_of(why: Why) -> tuple[Entry, ...]:
    """Findings, the longest gaps, once each what was not recorded, and last what is
    negligible, under a heading."""
    not_recorded: dict[tuple[str, str], Unknown] = {}
    for unknown in why.cannot_tell:
        not_recorded[unknown.missing, unknown.record_with] = unknown
    entries: list[Entry] = [*considerable(why), *why.gaps, *not_recorded.values()]
    small = negligible(why)
    if small:
        entries += [Heading(say.NEGLIGIBLE_HEADING), *small]
    return tuple(entries)


def _entries(side: Side) -> tuple[Entry, ...]:
    """The rows of the list; none until the answer is known."""
    why = _why(side)
    return entries_of(why) if why else ()


def _why(side: Side) -> Why | None:
    """The answer, with what findings are worth once that is known; None until it is
    known."""
    if side.insight.answer is None:
        return None
    with_worth = kept_result(side.trace, WORTH)
    return with_worth if isinstance(with_worth, Why) else side.insight.answer.why


def _answer(why: Why, width: int, height: int) -> Sequence[Said]:
    """The first sentence, what is not understood of what findings are worth, the
    account, and if there is room the breakdown and the ceiling."""
    verdict = _folded(say.answer(why), width, "title", " ")
    doubt = _verdict(why, width)[len(verdict) :]
    room = height - len(verdict) - len(doubt)
    if room <= 0:  # the doubt stands beside each worth, in the room of rows if it must
        return [*verdict[:height], *doubt]
    account = _account(why, width - 2, room)
    rest = [Said(f" {line}", "plain") for line in account]
    for sentence in (say.breakdown_text(why), say.ceiling_text(why)):
        more = _folded(sentence, width, before=" ")
        if len(rest) + len(more) <= room or not rest:
            rest += more  # cut below, if nothing else says where the time went
    return [*verdict, *doubt, *cut(rest, room)]


def _verdict(why: Why, width: int) -> list[Said]:
    """The first sentence, and what is not understood of what findings are worth."""
    from fusetui.report.worth import doubt_text

    verdict = _folded(say.answer(why), width, "title", " ")
    doubt = doubt_text(why)
    return [*verdict, *(_folded(doubt, width, "plain", " ") if doubt else [])]


def _account(why: Why, width: int, height: int) -> list[str]:
    """Where the time of the devices went: a table, with fewer reasons on a low screen;
    on one that is lower still, a few lines, else one. Without a device the busiest
    threads."""
    if not why.devices:
        return _threads(why, width, height)
    reasons = say.REASON_ROWS
    table = say.account_lines(why, width)
    while len(table) > height and reasons > 1:
        reasons = max(1, reasons - (len(table) - height))
        table = say.account_lines(why, width, reasons)
    if len(table) <= height:
        return table
    lines = flow(say.account_parts(why), width)
    if len(lines) <= height:
        return lines
    return [say.account_line(why, width)]


def _threads(why: Why, width: int, height: int) -> list[str]:
    """What the busiest CPU threads did, at most MAX_THREADS of them, in so many lines;
    nothing where not even one of them has room."""
    titles_and_last_line = 2
    most = min(MAX_THREADS, height - titles_and_last_line)
    return say.thread_lines(why, width, most) if most > 0 else []


def _folded(
    sentence: str, width: int, token: str = "faint", before: str = ""
) -> list[Said]:
    """A sentence on lines of at most MAX_TEXT_CELLS, each after the text `before`."""
    text_width = max(20, min(width - 2, MAX_TEXT_CELLS))
    return folded([printable(sentence)], text_width, token, before)


def _about_finding(
    why: Why, finding: Finding, width: int, height: int, ellipsis: str
) -> list[Said]:
    """A finding: its text, what it is worth, why it is only likely, and what to try.
    Where there is little room, its text and the doubt are cut; the rest stays."""

    blocks = _paragraph_lines(_paragraphs(why, finding), width)
    all_lines = [*chain.from_iterable(blocks)]
    if len(all_lines) <= height:
        return all_lines
    text_lines, worth, doubt, remedy = blocks
    short_doubt = cut(doubt, 1, ellipsis)
    room = height - len(worth) - len(short_doubt) - len(remedy)
    short_text = cut(text_lines, max(1, room), ellipsis)
    return [*short_text, *worth, *short_doubt, *remedy]


@lru_cache(maxsize=256)  # every frame asks for those of all findings
def _paragraph_lines(paragraphs: _Paragraphs, width: int) -> tuple[list[Said], ...]:
    """The lines of each paragraph about a finding."""
    blocks = []
    tokens = ("plain", "strong", "faint", "good")
    for sentence, token in zip(paragraphs, tokens, strict=True):
        blocks.append(_folded(sentence, width, token) if sentence else [])
    return tuple(blocks)


class _Paragraphs(NamedTuple):
    """All that is said about a finding; "" for what is not."""

    text: str
    worth: str
    doubt: str  # why it is only likely
    remedy: str


def _paragraphs(why: Why, finding: Finding) -> _Paragraphs:
    """What is said about a finding, each part in one line."""
    from fusetui.report.worth import worth_text

    return _Paragraphs(
        text=finding.text,
        worth=worth_text(why, finding),
        doubt=f"Likely, not certain: {finding.why_likely}"
        if finding.why_likely
        else "",
        remedy=f"Try: {finding.try_}" if finding.try_ else "",
    )


def _whole_finding(state: State, finding: Finding) -> OverlayLines | str:
    """All that is said about a finding, to read over the page."""
    why = _why(state.side)
    if why is None:
        return NO_MORE
    lines = tuple(printable(part) for part in _paragraphs(why, finding) if part)
    return OverlayLines("finding", lines)


class _Cells(NamedTuple):
    """What a row of the list shows; `part` of `whole` is drawn as its bar."""

    at_stake: str
    share: str
    part: int
    whole: int
    text: str
    token: str


def _cells(why: Why, entry: Entry, unit: Unit) -> _Cells:
    """The texts of a row; times in `unit`."""
    if isinstance(entry, Finding):
        return _finding_cells(entry, unit)
    if isinstance(entry, Gap):
        return _gap_cells(why, entry, unit)
    if isinstance(entry, Unknown):
        how = f"; to record: {entry.record_with}" if entry.record_with else ""
        return _text_cells(f"not recorded: {entry.missing}{how}", "faint")
    return _text_cells(entry.text, "strong")


def _texts(why: Why, entry: Entry, cells: _Cells, glyphs: Glyphs) -> list[str]:
    """What stands in the columns of a row; what a finding is worth once that is
    known."""
    from fusetui.report.worth import worth_figure

    texts = [cells.at_stake, cells.share]
    if why.worth_of:
        texts.append(worth_figure(entry) if isinstance(entry, Finding) else "")
    texts.append(share_bar(cells.part, cells.whole, BAR_CELLS, glyphs))
    texts.append(narrow(cells.text))
    return texts


def _finding_cells(finding: Finding, unit: Unit) -> _Cells:
    """The row of a finding; one without a time is a note."""
    part = round((finding.share or 0) * SHARE_PARTS)
    ns = finding.at_stake_ns
    return _Cells(
        at_stake="note" if ns is None else unit.text(ns),
        share="" if finding.share is None else percent(part, SHARE_PARTS),
        part=part,
        whole=SHARE_PARTS,
        text=finding.text,
        token="plain",
    )


def _gap_cells(why: Why, gap: Gap, unit: Unit) -> _Cells:
    """The row of a gap; its share is that of the time of its device."""
    device_ns = 0
    for device in why.devices:
        if device.device == gap.device:
            device_ns = device.span_ns
    reason = IDLE[say.main_reason(gap)].short
    return _Cells(
        at_stake=unit.text(gap.dur_ns),
        share=percent(gap.dur_ns, device_ns),
        part=gap.dur_ns,
        whole=device_ns,
        text=f"idle from {duration(gap.start_ns)}: {reason}, {inside(gap)}",
        token="faint",
    )


def _text_cells(sentence: str, token: str) -> _Cells:
    """A row of text without figures."""
    return _Cells(
        at_stake="", share="", part=0, whole=SHARE_PARTS, text=sentence, token=token
    )


class _Record(NamedTuple):
    """A row of the saved table; a gap has a start."""

    what: str
    name: str
    text: str
    remedy: str = ""
    bound_ns: int | None = None
    gain_ns: int | None = None
    start_ns: int | None = None


def _record(entry: Finding | Gap | Unknown) -> _Record:
    """What a saved table has of an entry."""
    if isinstance(entry, Finding):
        return _Record(
            what="finding",
            name=entry.rule,
            text=entry.text,
            remedy=entry.try_ or "",
            bound_ns=entry.at_stake_ns,
            gain_ns=entry.worth_ns,
        )
    if isinstance(entry, Gap):
        return _Record(
            what="gap",
            name=say.main_reason(entry),
            text=inside(entry),
            bound_ns=entry.dur_ns,
            start_ns=entry.start_ns,
        )
    return _Record(
        what="not recorded",
        name=entry.rule,
        text=entry.missing,
        remedy=entry.record_with,
    )


def _evidence(state: State, finding: Finding) -> Hits:
    """All slices of the evidence, at the one that Enter shows next."""
    hits = state.session.hits
    if hits is None or hits.what != finding.text or hits.side != state.active:
        hits = Hits(finding.text, state.active, np.array(finding.evidence))
    return hits.step(1)
