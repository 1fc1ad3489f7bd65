"""The why page: where the time went, and what would help, with rows that lead to the
evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
from fusetui.tui.drawing.schemes import Styled, glyphs_for, share_bar
from fusetui.tui.layout.answer import WORTH, inside, working
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.layout.text_layout import ListColumn, titles
from fusetui.tui.layout.view import Side
from fusetui.tui.pages.page import MOST_COPIED, NO_MORE, ListPage, Pane
from fusetui.tui.state import jumping, search
from fusetui.tui.state.session import Hits
from fusetui.tui.state.state import Details, Overlay, Size, State, told

WIDEST = 110  # cells of a wrapped text
BAR = 10  # cells
WHOLE = 10**9  # that a share is of
ROWS, BELOW = 6, 7  # lines that the list and the pane below it have at least


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
        "help keys; row-down/row-up move; show show the evidence; next-gap next gap; "
        "copy copy all as Markdown"
    )

    def rows(self, state: State) -> Rows:
        if (found := _why(state.side)) is None:
            return no_rows(working(state.side.trace, "where the time went"))
        entries, glyphs = entries_of(found), glyphs_for(state.ascii_only)
        asked = (
            getattr(one, "at_stake_ns", getattr(one, "dur_ns", None)) for one in entries
        )
        unit = unit_of(stakes := [ns for ns in asked if ns is not None])
        worth = (ListColumn("est. gain", 10),) if found.worth_of else ()
        columns = (
            ListColumn(f"bound {unit.name}" if stakes else "bound", 11),
            ListColumn("share", 7),
            *worth,
            ListColumn("", BAR, left=True, from_width=110),
            ListColumn("finding, then the longest gaps", 0, left=True),
        )

        def row(index: int, width: int) -> list[Styled]:
            from fusetui.report.worth import worth_figure

            entry = entries[index]
            stake, share, part, said, token = _cells(found, entry, unit)
            bar = share_bar(*part, BAR, glyphs)
            gain = worth_figure(entry) if isinstance(entry, Finding) else ""
            gains = (gain,) if worth else ()
            return row_parts(
                columns, (stake, share, *gains, bar, narrow(said)), width, token
            )

        return Rows(found, len(entries), lambda width: titles(columns, width), row)

    def change(self, state: State) -> str:
        found, cursor = _why(state.side), state.list_of(self.name).cursor
        # gaps, and what is negligible
        if found is None or cursor >= len(considerable(found)):
            return ""
        wanted = found._wanted[cursor : cursor + 1]
        return next((one for one in wanted if isinstance(one, str)), "")

    def chosen(self, state: State, index: int) -> State:
        if (found := _why(state.side)) is None:
            return state
        match entries_of(found)[index]:
            case Finding(evidence=()):
                return told(state, "this finding has no slice to show")
            case Finding() as finding:  # if a row of it is shown, the next
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
        match self.under_cursor(state, _entries(state.side)):
            case Finding(evidence=(_, *_)) as finding:
                return Details(state.side, _evidence(state, finding).row)
            case Gap() as gap if at := jumping.place_of_gap(state.side, gap):
                return Details(state.side, at)
        return NO_MORE

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """The answer, and as much of the account as there is room for."""
        if (found := _why(state.side)) is None:
            return ()
        shown = _answer(found, size.width, max(1, size.height - ROWS - _below(size)))
        return (Pane(len(shown), text(shown)),)

    def copied(self, state: State) -> str:
        from fusetui.report.why import why_markdown  # rarely needed

        found = _why(state.side)
        return clip(why_markdown(found), MOST_COPIED) if found else ""

    def below(self, state: State, size: Size) -> Sequence[Pane]:
        side, glyphs, found = state.side, glyphs_for(state.ascii_only), _why(state.side)
        entry = self.under_cursor(state, _entries(side))

        def lines(width: int, height: int) -> Sequence[Said]:
            about: list[Said] = []
            match entry:
                case Finding() as finding if found:
                    about = _about_finding(
                        found, finding, width, height, glyphs.ellipsis
                    )
                case Gap() as gap if at := jumping.place_of_gap(side, gap):
                    about = gap_lines(side, at, width, height, glyphs)
                case Unknown(_, missing, how):
                    more = f" To record: {how}" if how else ""
                    about = _folded(f"Not recorded: {missing}.{more}", width, "plain")
            return cut(about, height, glyphs.ellipsis)

        return (
            Pane(_below(size), ruled((found, side, entry), "", glyphs.rule, lines)),
        )


def _below(size: Size) -> int:
    return max(BELOW, min(10, size.height // 4))


def entries_of(found: Why) -> tuple[Entry, ...]:
    """Findings, the longest gaps, once each what was not recorded, and last what is
    negligible, under a heading."""
    unknown = {(one.missing, one.record_with): one for one in found.cannot_tell}
    entries: tuple[Entry, ...] = (*considerable(found), *found.gaps, *unknown.values())
    some = negligible(found)
    return (*entries, Heading(say.NEGLIGIBLE_HEADING), *some) if some else entries


def _entries(side: Side) -> tuple[Entry, ...]:
    found = _why(side)
    return entries_of(found) if found else ()


def _why(side: Side) -> Why | None:
    """With what findings are worth, once that is known."""
    if side.insight.answer is None:
        return None
    found = kept_result(side.trace, WORTH)
    return found if isinstance(found, Why) else side.insight.answer.why


def _answer(found: Why, width: int, height: int) -> Sequence[Said]:
    """The first sentence, what is not understood of what findings are worth, the
    account, and if there is room the breakdown and the ceiling."""
    from fusetui.report.worth import doubt_text

    text, first = doubt_text(found), _folded(say.answer(found), width, "title", " ")
    doubt = _folded(text, width, "plain", " ") if text else []
    left = height - len(first) - len(doubt)
    if left <= 0:  # the doubt stands beside each worth, in the room of rows if it must
        return [*first[:height], *doubt]
    first += doubt
    rest = [Said(f" {text}", "plain") for text in _account(found, width - 2, left)]
    for text in (say.breakdown_text(found), say.ceiling_text(found)):
        more = _folded(text, width, before=" ")
        rest += more if len(rest) + len(more) <= left else []
    return [*first, *cut(rest, left)]


def _account(found: Why, width: int, height: int) -> list[str]:
    """A table, with fewer reasons on a low screen; on one that is lower still, a few
    lines."""
    if not found.devices:
        return []
    most, lines = say.REASON_ROWS, say.account_lines(found, width)
    while len(lines) > height and most > 1:
        most = max(1, most - (len(lines) - height))
        lines = say.account_lines(found, width, most)
    if len(lines) > height:
        lines = flow(say.account_parts(found), width)
    return lines if len(lines) <= height else [say.account_line(found, width)]


def _folded(text: str, width: int, look: str = "faint", before: str = "") -> list[Said]:
    return folded([printable(text)], max(20, min(width - 2, WIDEST)), look, before)


def _about_finding(
    found: Why, finding: Finding, width: int, height: int, ellipsis: str
) -> list[Said]:
    """Where there is little room, its text and the doubt are cut: what it is worth, and
    what to try stay."""
    from fusetui.report.worth import worth_text

    worth, tried = (
        worth_text(found, finding),
        f"Try: {finding.try_}" if finding.try_ else "",
    )
    likely = f"Likely, not certain: {finding.why_likely}" if finding.why_likely else ""
    parts = (
        (finding.text, "plain"),
        (worth, "strong"),
        (likely, "faint"),
        (tried, "good"),
    )
    lines, gain, doubt, way = (
        _folded(text, width, token) if text else [] for text, token in parts
    )
    if len([*lines, *gain, *doubt, *way]) > height:
        doubt = [*cut(doubt, 1, ellipsis)]
        lines = [*cut(lines, max(1, height - len([*gain, *doubt, *way])), ellipsis)]
    return [*lines, *gain, *doubt, *way]


def _cells(
    found: Why, entry: Entry, unit: Unit
) -> tuple[str, str, tuple[int, int], str, str]:
    """The upper bound, its share, that and its whole for the bar, the text of a row,
    its token."""
    match entry:
        case Finding(at_stake_ns=ns):
            part = round((entry.share or 0) * WHOLE), WHOLE
            share = percent(*part) if entry.share is not None else ""
            return (
                "note" if ns is None else unit.text(ns),
                share,
                part,
                entry.text,
                "plain",
            )
        case Gap(dur_ns=ns):
            spans = {one.device: one.span_ns for one in found.devices}
            part = ns, spans.get(entry.device, 0)
            start = duration(entry.start_ns)
            text = f"idle from {start}: {IDLE[say.main_reason(entry)].short}, {inside(entry)}"
            return unit.text(ns), percent(*part), part, text, "faint"
        case Unknown():
            how = f"; to record: {entry.record_with}" if entry.record_with else ""
            text = f"not recorded: {entry.missing}{how}"
            return "", "", (0, WHOLE), text, "faint"
        case Heading(text):
            return "", "", (0, WHOLE), text, "strong"


def _evidence(state: State, finding: Finding) -> Hits:
    """All of it, at the one that Enter shows next."""
    hits = state.session.hits
    if hits is None or hits.what != finding.text or hits.side != state.active:
        hits = Hits(finding.text, state.active, np.array(finding.evidence))
    return hits.step(1)
