"""What lies over the page: keys, all about a slice or a range, choices, what a search
finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fusetui.analysis.questions.query import FIELDS
from fusetui.text.cutting import clip, joined
from fusetui.text.figures import Unit, count, duration, percent, plural, unit_of
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.arrays import Int64s
from fusetui.tui.drawing.details import all_details, on_path_text, raw_lines
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    cut,
    folded,
    row_parts,
    text,
)
from fusetui.tui.drawing.range_lines import all_range_lines, gap_lines
from fusetui.tui.drawing.schemes import TEXT, Glyphs, Styled, glyphs_for, share_bar
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.search_hits import SearchHits, trend
from fusetui.tui.layout.text_layout import (
    ListColumn,
    SourceShown,
    shown,
    start_unit,
    titles,
)
from fusetui.tui.layout.view import GapAt
from fusetui.tui.pages.page import ListPage, Pane
from fusetui.tui.state import replays, search
from fusetui.tui.state.action import a_trace, action, hint_text, hints_text, nothing
from fusetui.tui.state.commands import is_choosing, recorded, shown_step
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.reading import read
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.session import Range
from fusetui.tui.state.state import (
    OVERLAY,
    TOGETHER,
    Chooser,
    Details,
    Help,
    HitList,
    ListState,
    Order,
    Outcome,
    Replayed,
    Size,
    State,
    overlaid,
)

if TYPE_CHECKING:
    from fusetui.analysis.replay.path import Path as CriticalPath
    from fusetui.analysis.replay.whatif import WhatIf

Texts = Help | Details | Replayed | OverlayLines  # overlays to read
IN_ARGS = "in args of "
BAR = 10  # cells
BEFORE = 27 + BAR  # cells before a name
HELP = (
    "A word is looked for in names, families and what a kernel's name says, then in args.",
    'All of several must hold: gemm (bf16 or fp8) not splitK   "two words"   /regular.*expression/',
    "family:gemm dur>50us stream:7   step:2 kind:kernel   op:softmax   at>2ms",
    "shape:8192x768 and args:TEXT look into args alone, which are counted as they are read.",
    "Fields: " + " ".join(FIELDS),
)


def found_picture(found: SearchHits | None, glyphs: Glyphs) -> TextPicture:
    """A rule with the count, then a row for each name; the language where nothing is
    typed."""

    def lines(width: int, height: int) -> list[Said | list[Styled]]:
        title = f"{glyphs.rule * 3} {said(found)} ".ljust(width, glyphs.rule)
        if found is None:
            told = folded(HELP, width - 2, "plain", " ")
            return [Said(title, "title"), *cut(told, height - 1, glyphs.ellipsis)]
        shown: list[Said | list[Styled]] = [Said(title, "title")]
        unit = unit_of(one.ns for one in found.names)
        if found.names:
            shown.append(
                Said(
                    f"{unit.name:>9} {'share':>7} {'':{BAR}} {'count':>7} name", "title"
                )
            )
        for one in found.names[: max(0, height - 2)]:
            part, bar, where = "", "", IN_ARGS
            if not one.in_args:
                part, where = percent(one.ns, found.ns), ""
                bar = share_bar(one.ns, found.ns, BAR, glyphs)
            left = max(1, width - BEFORE - len(where))
            name = clip(label_of(one.role, one.name), left, glyphs.ellipsis)
            figures = (f"{unit.text(one.ns):>9} ", "plain"), (f"{part:>7} ", "faint")
            bars = (f"{bar:{BAR}} ", "busy"), (f"{count(one.count):>7} ", "plain")
            kind = kind_of(one.role, one.name).token + TEXT
            shown.append([*figures, *bars, (where, "faint"), (name, kind)])
        return shown

    return TextPicture(found, lines)


def said(found: SearchHits | None) -> str:
    """How many hits there are, in one line."""
    if found is None:
        return "search"
    if found.wrong:
        return narrow(found.wrong)
    hits = f"{plural(len(found.rows), 'slice')} of {plural(found.names_count, 'name')}"
    texts = [f"{hits}, {duration(found.ns)}"] if len(found.rows) else []
    if len(found.extra):
        by_args = (
            count(len(found.extra)) + " more"
            if texts
            else plural(len(found.extra), "slice")
        )
        texts.append(f"{by_args} by args")
    texts = texts or [
        narrow(f"nothing found{': ' * bool(found.missing)}{found.missing}")
    ]
    return "   ".join(
        texts if found.is_done else [*texts, f"args read: {percent(found.share, 1)}"]
    )


NOTICED = 50  # durations that differ by less than 1 / NOTICED are drawn alike
MOST_CELLS = 60  # of the durations from step to step
BAR_COLUMN = ListColumn("", BAR, left=True, from_width=70)
WHERE_COLUMN = ListColumn("where", 18, left=True, from_width=60)


def hit_rows(overlay: HitList, ascii_only: bool, keys: Sequence[str]) -> Rows:
    side, rows, trace = overlay.side, overlay.hits.rows, overlay.side.trace
    start, unit = start_unit(trace), Unit(1000, "us", 1)
    begins, dur = _times(overlay)
    longest, glyphs = int(dur.max(initial=0)), glyphs_for(ascii_only)
    figures = ListColumn(f"at {start.name}", 12), ListColumn(unit.name, 10)
    columns = [*figures, BAR_COLUMN, WHERE_COLUMN, ListColumn("hit", 0, left=True)]

    def row(index: int, width: int) -> list[Styled]:
        at, ns = int(rows[index]), int(dur[index])
        where = IN_ARGS if overlay.hits.is_by_args(at) else ""
        role, name = int(trace.role[at]), trace.name_of(at)
        texts = (
            start.text(int(begins[index]) - side.origin),
            unit.text(ns),
            share_bar(ns, longest, BAR, glyphs),
            narrow(trace.track_of(at).label),
            narrow(overlay.steps.names[index])
            if overlay.steps
            else where + label_of(role, name),
        )
        return row_parts(columns, texts, width, last=kind_of(role, name).token + TEXT)

    def heading(width: int) -> str:
        left = width - sum(columns[n].width + 1 for n in shown(columns, width - 1))
        last = replace(columns[-1], title=joined(["hit", *keys], left))
        return titles([*columns[:-1], last], width)

    return Rows(overlay, len(rows), heading, row)


@lru_cache(maxsize=1)
def durations(overlay: HitList, width: int, ascii_only: bool) -> str:
    """`120 hits   median 24.1 us, 24.0 us to 39.2 us   over 5 steps ▂▂▃▂█`; the last is kept."""
    side, rows = overlay.side, overlay.hits.rows
    cells, (_, dur) = min(MOST_CELLS, width // 3), _times(overlay)
    if (found := trend(side.trace, rows, dur, steps_of(side.trace), cells)) is None:
        return f" {plural(len(rows), 'hit')}"
    bars = spark(found.medians, glyphs_for(ascii_only).levels)
    span = f"over {plural(found.steps, 'step')}" if found.steps else "in order of time"
    extent = f"{duration(found.least_ns)} to {duration(found.most_ns)}"
    figures = f"median {duration(found.median_ns)}, {extent}"
    return f" {count(len(rows))} hits   {figures}   {span} {bars}"


def _times(overlay: HitList) -> tuple[Int64s, Int64s]:
    """Starts and durations (ns); of steps theirs, which their annotations may only
    end."""
    if overlay.steps is not None:
        steps = overlay.steps
        return steps.start, step_wall(steps.start, steps.end)
    trace, rows = overlay.side.trace, overlay.hits.rows
    return trace.start[rows], trace.dur[rows]


def spark(values: Sequence[int], levels: str) -> str:
    """A level for each value, from the least to the most of them; in the middle where
    they hardly differ, a blank where there is none (-1)."""
    known = [value for value in values if value >= 0]
    least, most, top = min(known), max(known), len(levels) - 1
    span = 0 if (most - least) * NOTICED <= most else most - least
    found = (
        1 + (value - least) * (top - 1) // span if span else top // 2
        for value in values
    )
    return "".join(
        levels[n if v >= 0 else 0] for n, v in zip(found, values, strict=True)
    )


SECTION = "Over the page"
CHOOSING = "show opens", "command runs a command", "leave leaves"
CHOOSING_B = "show opens", "beside opens as B beside the present trace", "leave leaves"
RECORDING = "show records it", "leave leaves"
RECORDING_B = "show records it", "beside records it as B", "leave leaves"
NEXT_PART = "source-part next part"
CLOSE, RAW = "close closes", "raw raw JSON and back"
SECOND = "second shows the replay beside the recording"
MOST_GAP_LINES = 50
KEYS, WHAT, LEAST_HELP = 20, 22, 16  # cells of the columns of the help
WHOLE: Any = {"subsequent_indent": "      ", "break_on_hyphens": False}
EDGE = 4  # cells of an overlay beside its text


class OverlayList(ListPage):
    """An overlay as a list, with the keys of all lists."""

    name = OVERLAY
    title = key = help = hints = ""

    def rows(self, state: State) -> Rows:
        if state.overlay is None:
            return Rows(None, 0, lambda width: "", lambda index, width: ())
        if isinstance(state.overlay, Chooser):
            return _choices(state, offered(state), state.overlay.summaries)
        if isinstance(state.overlay, HitList):
            said = [hint_text(hint, state) for hint in ("show shows it", CLOSE)]
            return hit_rows(state.overlay, state.ascii_only, [*filter(None, said)])
        if isinstance(state.overlay, SourceShown):
            from fusetui.tui.drawing.source import source_rows  # rarely needed

            keys = hints_text((NEXT_PART, CLOSE), state)
            return source_rows(state.overlay, state.ascii_only, keys)
        hints = (*[RAW] * is_slice(state), *[SECOND] * replays.is_worth(state), CLOSE)
        width, keys = overlay_size(state).width - EDGE, hints_text(hints, state)
        return _texts(state.overlay, width, state.ascii_only, state.unpacked, keys)

    def chosen(self, state: State, index: int) -> Outcome:
        """Of a choice: open the trace; of hits: show the hit."""
        if isinstance(found := state.overlay, HitList):
            if found.steps is not None and found.steps.are_iterations:
                return shown_step(closed(state), index)
            return search.shown(closed(state), replace(found.hits, at=index))
        if not isinstance(found, Chooser):
            return state
        offer = offered(state)[index]
        if offer.pid:
            return recorded(left_behind(state), offer.pid)
        now = replace(closed(state), tour=0) if offer.is_tour else closed(state)
        now = replace(now, job=replace(now.job, comes_first=offer.is_job))
        return read(now, offer.paths[:TOGETHER])

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        if not isinstance(state.overlay, HitList):
            return ()
        return (
            Pane(
                1, text([Said(durations(state.overlay, size.width, state.ascii_only))])
            ),
        )


OVERLAYS = OverlayList()


closed = partial(replace, overlay=None)


def left_behind(state: State) -> State:
    """Without the overlay; a list of programs that lies over the first list leads back
    to that."""
    before = state.overlay.before if isinstance(state.overlay, Chooser) else None
    return closed(state) if before is None else overlaid(state, before)


def close(state: State) -> Outcome:
    """Closes the overlay; closing the first choice of traces ends the app."""
    left = left_behind(state)
    if left.overlay is not None:
        return left
    return left if state.is_open or state.reading else (left, Order.QUIT)


def offered(state: State) -> tuple[Offer, ...]:
    return getattr(state.overlay, "programs", ()) or tuple(state.offers)


def beside(state: State) -> Outcome:
    offer = offered(state)[state.list_of(OVERLAY).cursor]
    if offer.pid:
        return recorded(closed(state), offer.pid, state.paths[:1])
    return read(closed(state), (*state.paths[:1], offer.paths[0]))


def is_slice(state: State) -> bool:
    return isinstance(state.overlay, Details) and state.overlay.is_slice


def is_text(state: State) -> bool:
    """A text or a list to read, not a choice."""
    return state.overlay is not None and not is_choosing(state)


def is_source(state: State) -> bool:
    return isinstance(state.overlay, SourceShown)


def next_section(state: State) -> State:
    """The cursor on the next part: lines, nodes, code, call, the whole wrapper."""
    overlay = state.overlay
    if not isinstance(overlay, SourceShown):
        return state
    line = overlay.next_section(state.list_of(OVERLAY).cursor)
    return state.with_list(OVERLAY, ListState(cursor=line, top=line))


def turn_raw(state: State) -> State:
    shown: Any = state.overlay
    return (
        overlaid(state, replace(shown, raw=not shown.raw)) if is_slice(state) else state
    )


@lru_cache(maxsize=1)
def _texts(
    overlay: Texts, width: int, ascii_only: bool, unpacked: int, keys: str
) -> Rows:
    """The rows of a text, made again only when an argument changes."""
    glyphs = glyphs_for(ascii_only)
    match overlay:
        case Help(sections):
            title, lines = "keys", _sections(sections, width)
        case OverlayLines(title, said_lines):
            parts = (wrap(line, width, **WHOLE) or [""] for line in said_lines)
            lines = [Said(line, "plain") for some in parts for line in some]
        case Details(side, int(slice_row), True):
            title = "this slice in the file"
            lines = raw_lines(side.trace, slice_row, width, glyphs)
        case Details(side, int(slice_row)):
            title = "everything about this slice"
            lines = all_details(side, slice_row, width, glyphs)
            path = side.critical
            on = on_path_text(path, side.trace, slice_row) if path is not None else ""
            lines[1:1] = [Said(on, "plain")] if on else []
        case Replayed(found):
            title, said = replayed_text(found, width)
            lines = [Said(line, "plain") for line in said.split("\n")]
        case Details(side, GapAt() as gap):
            title = "everything about this gap"
            lines = gap_lines(side, gap, width, MOST_GAP_LINES, glyphs)
        case Details(side, Range() as part):
            title = "everything about this range"
            lines = all_range_lines(side, part, width)

    identity, heading = (overlay, width, unpacked, keys), f" {title}   {keys}"
    return Rows(
        identity, len(lines), lambda width: heading, lambda index, width: [lines[index]]
    )


def replayed_text(found: CriticalPath | WhatIf, width: int) -> tuple[str, str]:
    from fusetui.analysis.replay.whatif import WhatIf
    from fusetui.report.whatif import path_text, whatif_text

    if isinstance(found, WhatIf):
        return "what if", whatif_text(found, width)
    return "critical path", path_text(found, width)


def _sections(
    sections: Iterable[tuple[str, Iterable[tuple[str, str, str]]]], width: int
) -> list[Said]:
    """The help of each action on as many lines as it needs; on a narrow screen below
    its title."""
    lines: list[Said] = []
    place = KEYS + WHAT if width - KEYS - WHAT >= LEAST_HELP else KEYS
    for title, actions in sections:
        lines += [Said(""), Said(title, "title")]
        for keys, what, about in actions:
            texts = wrap(about, max(LEAST_HELP, width - place))
            beside = texts.pop(0) if texts and place > KEYS and len(what) < WHAT else ""
            lines.append(Said(f"{'  ' + keys:<{KEYS}}{what:<{WHAT}}{beside}", "plain"))
            lines += [Said(" " * place + text, "plain") for text in texts]
    return lines[1:]


def _choices(state: State, offers: Sequence[Offer], summaries: Sequence[str]) -> Rows:
    names = [narrow(offer.label) for offer in offers]
    widest = max(map(len, names), default=0) + 2
    are_programs = bool(offers) and offers[0].pid > 0
    if are_programs:
        hints = RECORDING_B if state.sides else RECORDING
    else:
        hints = CHOOSING_B if state.sides else CHOOSING
    said = "" if state.is_open else state.hint  # the last line of the screen is covered
    heading = "  " + (narrow(said) or hints_text(hints, state))

    def row(index: int, width: int) -> list[Styled]:
        shown = clip(
            summaries[index], width - widest, glyphs_for(state.ascii_only).ellipsis
        )
        return [(names[index].ljust(widest), "strong"), (shown, "plain")]

    return Rows((offers, summaries, heading), len(names), lambda width: heading, row)


_over = partial(action, section=SECTION, needs=nothing)
_BESIDE = "the trace that is open: the two are compared"
ACTIONS = (
    _over(
        "close",
        "Close",
        "escape q i question_mark",
        "what is read",
        close,
        where=is_text,
    ),
    _over(
        "raw",
        "Raw JSON",
        "r",
        "of the slice, as the file has it",
        turn_raw,
        where=is_slice,
    ),
    _over(
        "source-part",
        "Next part",
        "V",
        "of a source: lines, graph, generated code, call, wrapper",
        next_section,
        where=is_source,
    ),
    _over("leave", "Leave", "escape q", "without a choice", close, where=is_choosing),
    action(
        "beside", "Open beside", "b", _BESIDE, beside, SECTION, is_choosing, a_trace
    ),
)
