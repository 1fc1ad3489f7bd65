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
    list_considerable,
    list_negligible,
)
from fusetui.report import why_answer as say
from fusetui.text.cutting import clip
from fusetui.text.figures import Unit, duration, percent, unit_of
from fusetui.text.printable import printable
from fusetui.trace.model.memo import kept_result
from fusetui.tui.drawing.details import flow_texts
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    cut,
    folded,
    make_empty_list,
    make_ruled_picture,
    style_row,
    text,
)
from fusetui.tui.drawing.range_lines import describe_gap
from fusetui.tui.drawing.schemes import Glyphs, Styled, choose_glyphs, draw_share_bar
from fusetui.tui.layout.answer import WORTH, explain_missing_result, inside
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import (
    MAX_COPIED_CHARS,
    NO_MORE,
    ListPage,
    Pane,
    make_page_table,
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
OF_ALL_STEPS = ", all"  # after the title of times of all steps together
LIST_TITLE = "finding, then the longest gaps"


class Heading(NamedTuple):
    """A row that names what follows."""

    text: str


Entry = Finding | Gap | Unknown | Heading


class WhyPage(ListPage):
    """Enter shows the evidence of a finding, repeated the next; for a gap, the gap."""

    name, title, key = "why", "Why", "5"
    copies = "line"
    help = "where the time went, and what to change"
    hints = (
        "help help; row-down/row-up move; show show the evidence; details info; "
        "next-gap next gap; copy copy all as Markdown"
    )

    def rows(self, state: State) -> Rows:
        """Return a row for each finding, each of the longest gaps, and each thing that
        was not recorded. Times share one unit, and their bound is an upper limit of
        what a remedy could gain."""
        why = _find_answer(state.side)
        if why is None:
            return make_empty_list(
                explain_missing_result(state.side.trace, "where the time went")
            )
        entries = list_entries(why)
        times = _collect_times(entries)
        unit = unit_of(times)
        columns = _make_columns(why, unit.name if times else "")
        glyphs = choose_glyphs(state.ascii_only)

        def format_row(index: int, width: int) -> list[Styled]:
            """The row of one entry."""
            entry = entries[index]
            cells = _make_cells(why, entry, unit)
            texts = _format_cells(why, entry, cells, glyphs)
            return style_row(columns, texts, width, cells.token)

        return Rows(
            identity=why,
            count=len(entries),
            titles=partial(titles, columns),
            format=format_row,
        )

    def awaits(self, state: State) -> bool:
        """Return whether the answer is being computed. A part of a trace has none."""
        trace = state.side.trace
        return _find_answer(state.side) is None and trace.report.prefix is None

    def change(self, state: State) -> str:
        """Return the what-if change that the finding under the cursor is about, such as
        `kind:gemm x0.8`. It is "" for gaps, negligible findings, and findings without a
        known change."""
        why = _find_answer(state.side)
        cursor = state.list_of(self.name).cursor
        if why is None or cursor >= len(list_considerable(why)):
            return ""
        if cursor >= len(why._wanted):
            return ""
        change = why._wanted[cursor]
        return change if isinstance(change, str) else ""

    def chosen(self, state: State, index: int) -> State:
        """Carry out Enter: show the next slice of a finding's evidence in the timeline,
        or the gap. Other rows give a message."""
        why = _find_answer(state.side)
        if why is None:
            return state
        match list_entries(why)[index]:
            case Finding(evidence=()):
                return told(state, "this finding has no slice to show")
            case Finding() as finding:
                return search.shown(state, _next_evidence(state, finding))
            case Gap() as gap:
                gap_place = jumping.find_gap(state.side, gap)
                return jumping.show_gap(state, gap_place) if gap_place else state
            case Unknown() as unknown:
                sentence = f"not recorded: {unknown.missing}"
                if unknown.record_with:
                    sentence += f"; {unknown.record_with} does"
                return told(state, printable(sentence))
            case Heading():
                return told(state, "this row is a heading")

    def described(self, state: State) -> Overlay | str:
        """Return the overlay about the row under the cursor. Of a finding it is all of
        its text, with the details of the next slice of evidence below it; of a gap its
        details. Other rows give a sentence."""
        entry = self.under_cursor(state, _known_entries(state.side))
        if isinstance(entry, Finding):
            overlay = _make_finding_overlay(state, entry)
            if not entry.evidence or isinstance(overlay, str):
                return overlay
            evidence_row = _next_evidence(state, entry).row
            return Details(
                state.side,
                evidence_row,
                before=overlay.lines,
                title="finding, then its evidence",
            )
        if isinstance(entry, Gap):
            gap_place = jumping.find_gap(state.side, entry)
            if gap_place:
                return Details(state.side, gap_place)
        return NO_MORE

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the pane above the list: the answer to why the time was spent, and as
        much of the account of time as there is room for."""
        why = _find_answer(state.side)
        if why is None:
            return ()
        list_lines = _least_list_height(why, size)
        lines_below = _details_height(why, size)
        free_lines = max(1, size.height - list_lines - lines_below)
        lines = _draw_answer(why, size.width, free_lines)
        return (Pane(len(lines), text(lines)),)

    def copied(self, state: State) -> str:
        """Return the whole answer as Markdown, cut to what a clipboard takes; "" until
        it is known."""
        from fusetui.report.why import why_markdown  # rarely needed

        why = _find_answer(state.side)
        return clip(why_markdown(why), MAX_COPIED_CHARS) if why else ""

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the findings, gaps and unrecorded facts as a table to save; None until
        the answer is known. `rows` selects rows of the list; None takes all. Headings
        are left out."""
        entries = _known_entries(state.side)
        if not entries:
            return None
        if rows is not None:
            entries = tuple(entries[row] for row in rows)
        records = []
        for entry in entries:
            if not isinstance(entry, Heading):
                records.append(_make_record(entry))
        return make_page_table(
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
        """Return the pane below the list, with a few lines about the row under the
        cursor."""
        side = state.side
        why = _find_answer(side)
        glyphs = choose_glyphs(state.ascii_only)
        entry = self.under_cursor(state, _known_entries(side))

        def lines(width: int, height: int) -> Sequence[Said]:
            about = _describe_entry(side, why, entry, width, height, glyphs)
            return cut(about, height, glyphs.ellipsis)

        picture = make_ruled_picture((why, side, entry), "", glyphs.rule, lines)
        return (Pane(_details_height(why, size), picture),)


def _details_height(why: Why | None, size: Size) -> int:
    """Return how many lines the pane below the list gets.

    It is high enough for the longest finding, if the shortest answer and some rows then
    still fit. It takes at most half of the page; `why` is None until the answer is
    known.
    """
    usual_height = _usual_details_height(size)
    if why is None:
        return usual_height
    rule_lines = 1
    needed_height = rule_lines + _longest_finding_height(why, size.width)
    free_lines = (
        size.height - LEAST_LIST_LINES - _shortest_answer_height(why, size.width)
    )
    return max(usual_height, min(needed_height, free_lines, size.height // 2))


def _usual_details_height(size: Size) -> int:
    """Return how many lines the pane below the list usually gets: a quarter of the
    page, from MIN_BELOW_LINES to 10."""
    return max(MIN_BELOW_LINES, min(10, size.height // 4))


def _least_list_height(why: Why, size: Size) -> int:
    """Return how many lines the list keeps at least. They are fewer where the answer
    above it and a long finding below it would else not fit."""
    answer_room = size.height - MIN_LIST_LINES - _details_height(why, size)
    has_room = answer_room >= _shortest_answer_height(why, size.width)
    is_usual = _details_height(why, size) == _usual_details_height(size)
    return MIN_LIST_LINES if has_room or is_usual else LEAST_LIST_LINES


def _shortest_answer_height(why: Why, width: int) -> int:
    """Return how many lines the answer takes with its account of time in the shortest
    form."""
    heading = _draw_verdict(why, width)
    if not why.devices:
        titles_and_a_thread_and_last_line = 3
        return len(heading) + titles_and_a_thread_and_last_line
    return len(heading) + len(flow_texts(say.make_account_parts(why), width - 2))


def _longest_finding_height(why: Why, width: int) -> int:
    """Return how many lines the longest finding of the list takes; 0 without findings."""
    heights = []
    for finding in list_considerable(why):
        paragraph_lines = _wrap_paragraphs(_write_paragraphs(why, finding), width)
        heights.append(sum(map(len, paragraph_lines)))
    return max(heights, default=0)


def _collect_times(entries: Sequence[Entry]) -> list[int]:
    """Return the times of all rows that have one (ns): the upper bound of each finding,
    and the duration of each gap. The unit of the list is chosen by them."""
    times = []
    for entry in entries:
        if isinstance(entry, Gap):
            times.append(entry.dur_ns)
        elif isinstance(entry, Finding) and entry.at_stake_ns is not None:
            times.append(entry.at_stake_ns)
    return times


def _make_columns(why: Why, unit: str) -> tuple[ListColumn, ...]:
    """Return the columns of the list. Estimated gains get a column once they are known.
    `unit` is that of the times, "" where no row has a time.

    In a trace with several steps, the bound is of all of them together and the gain of
    one, and the titles say so.
    """
    bound_title = f"bound {unit}" if unit else "bound"
    bound_cells = 11
    gain_title = "est. gain"
    if why.worth_of == "step" and len(why.steps) > 1:
        bound_title += OF_ALL_STEPS
        bound_cells += 2
        gain_title = "gain/step"
    gain_columns = (ListColumn(gain_title, 10),) if why.worth_of else ()
    return (
        ListColumn(bound_title, bound_cells),
        ListColumn("share", 7),
        *gain_columns,
        ListColumn("", BAR_CELLS, left=True, from_width=110),
        ListColumn(LIST_TITLE, 0, left=True),
    )


def _describe_entry(
    side: Side,
    why: Why | None,
    entry: Entry | None,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[Said]:
    """Return the lines below the list about one of its rows: a finding, a gap, or a
    fact that was not recorded. Headings have none."""
    if isinstance(entry, Finding) and why:
        return _describe_finding(why, entry, width, height, glyphs.ellipsis)
    if isinstance(entry, Gap):
        gap_place = jumping.find_gap(side, entry)
        return describe_gap(side, gap_place, width, height, glyphs) if gap_place else []
    if isinstance(entry, Unknown):
        sentence = f"Not recorded: {entry.missing}."
        if entry.record_with:
            sentence += f" To record: {entry.record_with}"
        return _wrap_sentence(sentence, width, "plain")
    return []


def list_entries(why: Why) -> tuple[Entry, ...]:
    """Return the rows of the list: findings, the longest gaps, what was not recorded
    (each once), then negligible findings under a heading."""
    not_recorded: dict[tuple[str, str], Unknown] = {}
    for unknown in why.cannot_tell:
        not_recorded[unknown.missing, unknown.record_with] = unknown
    entries: list[Entry] = [*list_considerable(why), *why.gaps, *not_recorded.values()]
    negligible_findings = list_negligible(why)
    if negligible_findings:
        entries += [Heading(say.NEGLIGIBLE_HEADING), *negligible_findings]
    return tuple(entries)


def _known_entries(side: Side) -> tuple[Entry, ...]:
    """Return the rows of the list for one side; none until its answer is known."""
    why = _find_answer(side)
    return list_entries(why) if why else ()


def _find_answer(side: Side) -> Why | None:
    """Return the answer to where the time of a side went, or None until it is known. It
    has the estimated gains of findings as soon as these are known."""
    if side.insight.answer is None:
        return None
    with_worth = kept_result(side.trace, WORTH)
    return with_worth if isinstance(with_worth, Why) else side.insight.answer.why


def _draw_answer(why: Why, width: int, height: int) -> Sequence[Said]:
    """Return the lines above the list, at most `height`.

    They are the verdict, a doubt about the estimated gains, and the account of time. If
    there is room, the breakdown and the ceiling follow.
    """
    verdict = _wrap_sentence(say.answer(why), width, "title", " ")
    doubt = _draw_verdict(why, width)[len(verdict) :]
    free_lines = height - len(verdict) - len(doubt)
    if free_lines <= 0:
        # the doubt stands beside each gain, in the room of rows if it must
        return [*_draw_short_verdict(why, width, height), *doubt]
    account = _draw_account(why, width - 2, free_lines)
    account_lines = [Said(f" {line}", "plain") for line in account]
    for sentence in (say.breakdown_text(why), say.describe_ceiling(why)):
        sentence_lines = _wrap_sentence(sentence, width, before=" ")
        fits = len(account_lines) + len(sentence_lines) <= free_lines
        # where nothing else says where the time went, it is cut below
        if fits or not account_lines:
            account_lines += sentence_lines
    return [*verdict, *doubt, *cut(account_lines, free_lines)]


def _draw_short_verdict(why: Why, width: int, height: int) -> Sequence[Said]:
    """Return the verdict on at most `height` lines: in fewer words where these fit
    better, and with an ellipsis where even they do not fit."""
    verdict = _wrap_sentence(say.answer(why), width, "title", " ")
    if len(verdict) <= height:
        return verdict
    brief = _wrap_sentence(say.format_brief_answer(why), width, "title", " ")
    return cut(min(verdict, brief, key=len), height)


def _draw_verdict(why: Why, width: int) -> list[Said]:
    """Return the lines of the verdict, and below it the doubt about the estimated gains
    of findings if there is one."""
    from fusetui.report.worth import describe_all_doubts

    lines = _wrap_sentence(say.answer(why), width, "title", " ")
    doubt = describe_all_doubts(why)
    if doubt:
        lines += _wrap_sentence(doubt, width, "plain", " ")
    return lines


def _draw_account(why: Why, width: int, height: int) -> list[str]:
    """Return lines that say where the time of the devices went, or of the busiest
    threads where there is no device.

    A table is used if it fits in `height` lines, with fewer reasons if need be. Else it
    is a few lines, or a single one.
    """
    if not why.devices:
        return _draw_threads(why, width, height)
    reason_count = say.REASON_ROWS
    table = say.account_lines(why, width)
    while len(table) > height and reason_count > 1:
        reason_count = max(1, reason_count - (len(table) - height))
        table = say.account_lines(why, width, reason_count)
    if len(table) <= height:
        return table
    lines = flow_texts(say.make_account_parts(why), width)
    if len(lines) <= height:
        return lines
    return [say.format_account_line(why, width)]


def _draw_threads(why: Why, width: int, height: int) -> list[str]:
    """Return lines about what the busiest CPU threads did, for at most MAX_THREADS of
    them. They are empty where `height` leaves room for none."""
    titles_and_last_line = 2
    thread_limit = min(MAX_THREADS, height - titles_and_last_line)
    return say.format_threads(why, width, thread_limit) if thread_limit > 0 else []


def _wrap_sentence(
    sentence: str, width: int, token: str = "faint", before: str = ""
) -> list[Said]:
    """Return a sentence wrapped to lines of at most MAX_TEXT_CELLS cells, each after
    the text `before`."""
    # at least 20: a narrower text could not be read
    text_width = max(20, min(width - 2, MAX_TEXT_CELLS))
    return folded([printable(sentence)], text_width, token, before)


def _describe_finding(
    why: Why, finding: Finding, width: int, height: int, ellipsis: str
) -> list[Said]:
    """Return the lines about a finding: its text, its estimated gain, why it is only
    likely, and what to try.

    Where they are more than `height`, the text and the doubt are cut; the gain and the
    remedy stay whole.
    """

    line_blocks = _wrap_paragraphs(_write_paragraphs(why, finding), width)
    all_lines = [*chain.from_iterable(line_blocks)]
    if len(all_lines) <= height:
        return all_lines
    text_lines, gain_lines, doubt_lines, remedy_lines = line_blocks
    short_doubt = cut(doubt_lines, 1, ellipsis)
    text_room = height - len(gain_lines) - len(short_doubt) - len(remedy_lines)
    short_text = cut(text_lines, max(1, text_room), ellipsis)
    return [*short_text, *gain_lines, *short_doubt, *remedy_lines]


@lru_cache(maxsize=256)  # every frame asks for those of all findings
def _wrap_paragraphs(paragraphs: _Paragraphs, width: int) -> tuple[list[Said], ...]:
    """Return the lines of each paragraph about a finding, each in its style: text,
    estimated gain, doubt, remedy. A paragraph that is missing has no lines."""
    line_blocks = []
    tokens = ("plain", "strong", "faint", "good")
    for sentence, token in zip(paragraphs, tokens, strict=True):
        line_blocks.append(_wrap_sentence(sentence, width, token) if sentence else [])
    return tuple(line_blocks)


class _Paragraphs(NamedTuple):
    """All that is said about a finding; "" for what is not."""

    text: str
    worth: str
    doubt: str  # why it is only likely
    remedy: str


def _write_paragraphs(why: Why, finding: Finding) -> _Paragraphs:
    """Return all that is said about a finding, each part as one line of text; "" for a
    part that it lacks."""
    from fusetui.report.worth import describe_worth

    doubt = ""
    if finding.why_likely:
        doubt = f"Likely, not certain: {finding.why_likely}"
    remedy = f"Try: {finding.try_}" if finding.try_ else ""
    return _Paragraphs(
        text=finding.text,
        worth=describe_worth(why, finding),
        doubt=doubt,
        remedy=remedy,
    )


def _make_finding_overlay(state: State, finding: Finding) -> OverlayLines | str:
    """Return an overlay with the whole text about a finding, or a sentence where its
    answer is not known."""
    why = _find_answer(state.side)
    if why is None:
        return NO_MORE
    lines = tuple(printable(part) for part in _write_paragraphs(why, finding) if part)
    return OverlayLines("finding", lines)


class _Cells(NamedTuple):
    """What a row of the list shows; `part` of `whole` is drawn as its bar."""

    at_stake: str
    share: str
    part: int
    whole: int
    text: str
    token: str


def _make_cells(why: Why, entry: Entry, unit: Unit) -> _Cells:
    """Return what the columns of a row show: of a finding, a gap, an unrecorded fact or
    a heading. Times are in `unit`."""
    if isinstance(entry, Finding):
        return _make_finding_cells(entry, unit)
    if isinstance(entry, Gap):
        return _make_gap_cells(why, entry, unit)
    if isinstance(entry, Unknown):
        recording_advice = (
            f"; to record: {entry.record_with}" if entry.record_with else ""
        )
        return _make_text_cells(
            f"not recorded: {entry.missing}{recording_advice}", "faint"
        )
    return _make_text_cells(entry.text, "strong")


def _format_cells(why: Why, entry: Entry, cells: _Cells, glyphs: Glyphs) -> list[str]:
    """Return the texts of a row, one for each column. The estimated gain is among them
    once it is known."""
    from fusetui.report.worth import format_worth

    texts = [cells.at_stake, cells.share]
    if why.worth_of:
        texts.append(format_worth(entry) if isinstance(entry, Finding) else "")
    texts.append(draw_share_bar(cells.part, cells.whole, BAR_CELLS, glyphs))
    texts.append(narrow(cells.text))
    return texts


def _make_finding_cells(finding: Finding, unit: Unit) -> _Cells:
    """Return what the columns show of a finding. A finding without a time is called a
    note."""
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


def _make_gap_cells(why: Why, gap: Gap, unit: Unit) -> _Cells:
    """Return what the columns show of a gap, a stretch of time in which a device was
    idle. Its share is that of the time span of its device."""
    device_ns = 0
    for device in why.devices:
        if device.device == gap.device:
            device_ns = device.span_ns
    reason = IDLE[say.find_main_reason(gap)].short
    return _Cells(
        at_stake=unit.text(gap.dur_ns),
        share=percent(gap.dur_ns, device_ns),
        part=gap.dur_ns,
        whole=device_ns,
        text=f"idle from {duration(gap.start_ns)}: {reason}, {inside(gap)}",
        token="faint",
    )


def _make_text_cells(sentence: str, token: str) -> _Cells:
    """Return what the columns show of a row that has text but no figures."""
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


def _make_record(entry: Finding | Gap | Unknown) -> _Record:
    """Return the row of a saved table for a finding, a gap, or a fact that was not
    recorded."""
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
            name=say.find_main_reason(entry),
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


def _next_evidence(state: State, finding: Finding) -> Hits:
    """Return all slices of a finding's evidence as hits, at the one that Enter shows
    next. Each call on the same finding moves on by one."""
    hits = state.session.hits
    if hits is None or hits.what != finding.text or hits.side != state.active:
        hits = Hits(finding.text, state.active, np.array(finding.evidence))
    return hits.step(1)
