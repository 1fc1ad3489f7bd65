"""Overlays above the page: keys, details of a slice or a range, choices, search
results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.query import FIELDS
from fusetui.text.cutting import clip, joined
from fusetui.text.figures import Unit, count, duration, percent, plural, unit_of
from fusetui.text.printable import printable
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
from fusetui.tui.drawing.schemes import (
    TEXT,
    UNICODE,
    Glyphs,
    Styled,
    glyphs_for,
    share_bar,
)
from fusetui.tui.layout.kinds import kind_of, label_of, narrow
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.search_hits import NameHits, SearchHits, Trend, trend
from fusetui.tui.layout.text_layout import (
    ListColumn,
    SourceShown,
    shown,
    start_unit,
    titles,
)
from fusetui.tui.layout.view import GapAt, Side
from fusetui.tui.pages.page import ListPage, Pane, page_table
from fusetui.tui.state import hang, replays, search
from fusetui.tui.state.action import a_trace, action, hint_text, hints_text, nothing
from fusetui.tui.state.commands import is_choosing, recorded, shown_step
from fusetui.tui.state.offers import Offer, RankedJob
from fusetui.tui.state.reading import read
from fusetui.tui.state.screen import overlay_body, overlay_size
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
    Prompt,
    Replayed,
    ShownCommand,
    Size,
    State,
    overlaid,
)

if TYPE_CHECKING:
    from fusetui.analysis.replay.path import Path as CriticalPath
    from fusetui.analysis.replay.whatif import WhatIf
    from fusetui.tables.public import Table
    from fusetui.trace.program.functions import Functions

# overlays to read
Texts = Help | Details | Replayed | OverlayLines | ShownCommand
IN_ARGS = "in args of "
BAR_CELLS = 10
CELLS_BEFORE_NAME = 27 + BAR_CELLS
HELP = (
    "Words match names, kinds, libraries and decoded kernel names, then args.",
    'Several terms must all match: gemm (bf16 or fp8) not splitK   "two words"   /regular.*expr/',
    "kind:gemm dur>50us stream:7   step:2 library:cutlass   op:softmax   at>2ms",
    "shape:8192x768 and args:TEXT search args only; hits are counted while args are read.",
    "Fields: " + " ".join(FIELDS),
)


def found_picture(found: SearchHits | None, glyphs: Glyphs) -> TextPicture:
    """A rule with the count, then a row for each name that was found; None where
    nothing is typed: the language of queries."""

    def lines(width: int, height: int) -> list[Said | list[Styled]]:
        """The rule, and what fits below it."""
        heading = f"{glyphs.rule * 3} {hits_summary(found)} "
        rule = heading.ljust(width, glyphs.rule)
        shown: list[Said | list[Styled]] = [Said(rule, "title")]
        if found is None:
            help_lines = folded(HELP, width - 2, "plain", " ")
            shown += cut(help_lines, height - 1, glyphs.ellipsis)
        else:
            shown += _name_rows(found, width, height - 1, glyphs)
        return shown

    return TextPicture(found, lines)


def _name_rows(
    found: SearchHits, width: int, height: int, glyphs: Glyphs
) -> list[Said | list[Styled]]:
    """The titles of the columns, and a row for each name, as many as fit on `height`
    lines; nothing where nothing was found."""
    if not found.names:
        return []
    unit = unit_of(name.ns for name in found.names)
    no_title = " " * BAR_CELLS
    heading = f"{unit.name:>9}   share {no_title}   count name"
    rows: list[Said | list[Styled]] = [Said(heading, "title")]
    for name in found.names[: max(0, height - 1)]:
        rows.append(_name_row(name, found.ns, unit, width, glyphs))
    return rows


def _name_row(
    hits: NameHits, total_ns: int, unit: Unit, width: int, glyphs: Glyphs
) -> list[Styled]:
    """The time of the hits of one name, their share of all with its bar, their number,
    and the name, in `width` cells. Hits by args alone have no share."""
    if hits.in_args:
        share, bar, where = "", "", IN_ARGS
    else:
        share = percent(hits.ns, total_ns)
        bar = share_bar(hits.ns, total_ns, BAR_CELLS, glyphs)
        where = ""
    name_cells = max(1, width - CELLS_BEFORE_NAME - len(where))
    name = clip(label_of(hits.role, hits.name), name_cells, glyphs.ellipsis)
    return [
        (f"{unit.text(hits.ns):>9} ", "plain"),
        (f"{share:>7} ", "faint"),
        (f"{bar:{BAR_CELLS}} ", "busy"),
        (f"{count(hits.count):>7} ", "plain"),
        (where, "faint"),
        (name, kind_of(hits.role, hits.name).token + TEXT),
    ]


def hits_summary(found: SearchHits | None) -> str:
    """How many hits there are, in one line."""
    if found is None:
        return "search"
    if found.wrong:
        return narrow(found.wrong)
    texts = []
    by_name = len(found.rows)
    by_args = len(found.extra)
    if by_name:
        slices = plural(by_name, "slice")
        names = plural(found.names_count, "name")
        texts.append(f"{slices} of {names}, {duration(found.ns)}")
    if by_name and by_args:
        texts.append(f"{count(by_args)} more by args")
    elif by_args:
        texts.append(f"{plural(by_args, 'slice')} by args")
    if not texts:
        reason = f": {found.missing}" if found.missing else ""
        texts.append(narrow(f"nothing found{reason}"))
    if not found.is_done:
        texts.append(f"args read: {percent(found.share, 1)}")
    return "   ".join(texts)


FLAT_PART = 50  # durations that differ by at most 1 / FLAT_PART are drawn alike
MAX_TREND_CELLS = 60  # of the durations from step to step
BAR_COLUMN = ListColumn("", BAR_CELLS, left=True, from_width=70)
WHERE_COLUMN = ListColumn("where", 18, left=True, from_width=60)
MICROSECONDS = Unit(1000, "us", 1)
BEYOND_ANY_LINE = 1 << 30  # cells


def hit_rows(overlay: HitList, ascii_only: bool, notes: tuple[str, ...]) -> Rows:
    """A row for each hit of a search, or for each step: when it starts, how long it
    takes, where it is and what it is. `notes`: what keys do or did, beside the last
    title."""
    columns = (
        ListColumn(f"at {start_unit(overlay.side.trace).name}", 12),
        ListColumn(MICROSECONDS.name, 10),
        BAR_COLUMN,
        WHERE_COLUMN,
        ListColumn("hit", 0, left=True),
    )
    begins, dur = _times(overlay)
    longest = int(dur.max(initial=0))
    glyphs = glyphs_for(ascii_only)

    def formatted(index: int, width: int) -> list[Styled]:
        """The row of one hit."""
        ns = int(dur[index])
        bar = share_bar(ns, longest, BAR_CELLS, glyphs)
        texts = _hit_texts(overlay, index, int(begins[index]), ns, bar)
        return row_parts(columns, texts, width, last=_hit_token(overlay, index))

    return Rows(
        identity=(overlay, notes),
        count=len(overlay.hits.rows),
        titles=partial(_hit_titles, columns, notes),
        format=formatted,
    )


def _hit_titles(columns: Sequence[ListColumn], notes: Sequence[str], width: int) -> str:
    """The titles of the columns, in that of the last one as many notes as fit."""
    room = width
    for index in shown(columns, width - 1):
        room -= columns[index].width + 1
    title = joined(["hit", *notes[:1]], BEYOND_ANY_LINE)
    if len(notes) > 1:
        title = joined(["hit", *notes], room)
    last = replace(columns[-1], title=clip(title, room))
    return titles([*columns[:-1], last], width)


def _hit_texts(
    overlay: HitList, index: int, begin: int, ns: int, bar: str
) -> tuple[str, ...]:
    """What stands in the columns of the hit at `index`, which takes `ns`."""
    side = overlay.side
    row = int(overlay.hits.rows[index])
    return (
        start_unit(side.trace).text(begin - side.origin),
        MICROSECONDS.text(ns),
        bar,
        narrow(side.trace.track_of(row).label),
        _hit_name(overlay, index),
    )


def _hit_token(overlay: HitList, index: int) -> str:
    """The color of the name of the hit at `index`: that of its kind."""
    trace = overlay.side.trace
    row = int(overlay.hits.rows[index])
    kind = kind_of(int(trace.role[row]), trace.name_of(row))
    return kind.token + TEXT


def _hit_name(overlay: HitList, index: int) -> str:
    """What the hit at `index` is called; of one by its args, that it is."""
    if overlay.steps:
        return narrow(overlay.steps.names[index])
    trace = overlay.side.trace
    row = int(overlay.hits.rows[index])
    name = label_of(int(trace.role[row]), trace.name_of(row))
    return IN_ARGS + name if overlay.hits.is_by_args(row) else name


@lru_cache(maxsize=1)
def durations(overlay: HitList, width: int, ascii_only: bool) -> str:
    """`120 hits   median 24.1 us, 24.0 us to 39.2 us   over 5 steps ▂▂▃▂█`; the last is kept."""
    trace = overlay.side.trace
    rows = overlay.hits.rows
    _, dur = _times(overlay)
    cells = min(MAX_TREND_CELLS, width // 3)
    over_time = trend(trace, rows, dur, steps_of(trace), cells)
    if over_time is None:
        return f" {plural(len(rows), 'hit')}"
    bars = spark(over_time.medians, glyphs_for(ascii_only).levels)
    figures = f"{count(len(rows))} hits   {_trend_text(over_time)}"
    return f" {figures} {bars}"


def _trend_text(over_time: Trend) -> str:
    """The median of durations, the shortest and the longest, and over what they are
    drawn."""
    least = duration(over_time.least_ns)
    most = duration(over_time.most_ns)
    figures = f"median {duration(over_time.median_ns)}, {least} to {most}"
    if over_time.steps:
        return f"{figures}   over {plural(over_time.steps, 'step')}"
    return f"{figures}   in order of time"


def _times(overlay: HitList) -> tuple[Int64s, Int64s]:
    """The starts and the durations of the hits (ns). Those of steps are taken from the
    steps, because the annotation of a hit may only end its step."""
    if overlay.steps is not None:
        steps = overlay.steps
        return steps.start, step_wall(steps.start, steps.end)
    trace = overlay.side.trace
    rows = overlay.hits.rows
    return trace.start[rows], trace.dur[rows]


def _hits_table(overlay: HitList, indices: Int64s) -> Table:
    """The hits at these indices with their lanes, or the steps with their numbers, as
    the tables of slices and steps have them; in ns after the start of the trace."""
    trace = overlay.side.trace
    begins, dur = _times(overlay)
    start_ns = begins[indices] - trace.begin_ns
    steps = overlay.steps
    if steps is not None:
        return page_table(
            "steps",
            {"name": [steps.names[index] for index in indices.tolist()]},
            number=np.array(steps.numbers, dtype=np.int64)[indices],
            start_ns=start_ns,
            dur_ns=dur[indices],
        )
    rows = overlay.hits.rows[indices]
    texts = {
        "name": [trace.name_of(row) for row in rows.tolist()],
        "lane": [trace.track_of(row).label for row in rows.tolist()],
    }
    return page_table(
        "hits", texts, row=rows.astype(np.int64), start_ns=start_ns, dur_ns=dur[indices]
    )


def spark(values: Sequence[int], levels: str) -> str:
    """A level for each value, from the lowest for the least to the highest for the most
    of them; in the middle where they hardly differ, a blank where there is none (-1)."""
    known = [value for value in values if value >= 0]
    least = min(known)
    most = max(known)
    top = len(levels) - 1
    span = most - least
    is_flat = span * FLAT_PART <= most
    characters = []
    for value in values:
        if value < 0:
            level = 0
        elif is_flat:
            level = top // 2
        else:
            levels_above_lowest = (value - least) * (top - 1) // span
            level = 1 + levels_above_lowest
        characters.append(levels[level])
    return "".join(characters)


SECTION = "Over the page"
WORDS_SECTION = "Words on the screen"
CHOOSING = "show open", "command run a command", "leave close"
CHOOSING_B = "show open", "beside open as B beside this trace", "leave close"
RECORDING = "show record", "leave close"
RECORDING_B = "show record", "beside record as B", "leave close"
NEXT_PART = "source-part next part"
CLOSE, RAW = "close closes", "raw raw JSON and back"
NARROW = "help-filter narrow"
COPIES = "copy copies it"
HITS = "show shows it", CLOSE, "copy copies it"
SECOND = "second both timelines"
MAX_GAP_LINES = 50
KEYS_CELLS = 20
TITLE_CELLS = 22
MIN_HELP_CELLS = 16
"""The columns of the help: the keys of an action, its title, and its help."""
EDGE_CELLS = 4  # of an overlay, beside its text


class OverlayList(ListPage):
    """An overlay as a list, with the keys of all lists."""

    name = OVERLAY
    title = key = help = hints = ""

    def rows(self, state: State) -> Rows:
        """The choices, the hits, or the lines of a text."""
        overlay = state.overlay
        if overlay is None:
            return Rows(None, 0, lambda width: "", lambda index, width: ())
        if isinstance(overlay, Chooser):
            return _choices(state, offered(state), overlay.summaries)
        if isinstance(overlay, HitList):
            said = _said_over(state)
            notes = [said] if said else [hint_text(hint, state) for hint in HITS]
            return hit_rows(
                overlay, state.ascii_only, tuple(note for note in notes if note)
            )
        if isinstance(overlay, SourceShown):
            from fusetui.tui.drawing.source import source_rows  # rarely needed

            keys_text = hints_text((NEXT_PART, CLOSE), state)
            return source_rows(overlay, state.ascii_only, keys_text)
        hints = [CLOSE]
        if is_help(state):
            hints.append(NARROW)
        if replays.is_worth(state):
            hints.append(SECOND)
        if is_slice(state):
            hints.append(RAW)
        if isinstance(overlay, ShownCommand):
            hints.append(COPIES)
        # on a screen narrower than the edge nothing can be read, but nothing fails
        width = max(1, overlay_size(state).width - EDGE_CELLS)
        key_texts = [hint_text(hint, state) for hint in hints]
        if isinstance(overlay, ShownCommand) and _said_over(state):
            key_texts = [_said_over(state)]
        shown = _shown_text(overlay, width, state.ascii_only, state.unpacked)
        heading = self._heading(state, shown, key_texts, width)
        return Rows(
            identity=(overlay, width, state.unpacked, heading),
            count=len(shown.lines),
            titles=lambda width: heading,
            format=lambda index, width: [shown.lines[index]],
        )

    def _heading(
        self, state: State, shown: _Text, key_texts: Sequence[str], width: int
    ) -> str:
        """The title of a text, which of its lines are in sight, and what keys do: as
        much as fits in `width` cells."""
        place = self._place(state, shown)
        parts = [shown.title, place, *key_texts]
        if is_help(state):
            parts = [shown.title, key_texts[0], place, *key_texts[1:]]
        return " " + joined([part for part in parts if part], width)

    def paged(self, state: State, rows: int) -> State:
        """A text scrolls by a screen at once; the cursor stays on its line of the
        screen."""
        moved = super().paged(state, rows)
        if not isinstance(state.overlay, Texts):
            return moved
        before = state.list_of(self.name)
        after = moved.list_of(self.name)
        last_top = self.rows(state).count - self.room(state, overlay_body(state))
        top = max(0, min(before.top + rows, last_top))
        return moved.with_list(self.name, replace(after, top=top))

    def _place(self, state: State, shown: _Text) -> str:
        """Which lines of a text are in sight; "" if all are."""
        room = self.room(state, overlay_body(state))
        count = len(shown.lines)
        if count <= room:
            return ""
        top = state.list_of(self.name).top
        return f"lines {top + 1}-{min(count, top + room)} of {count}"

    def chosen(self, state: State, index: int) -> Outcome:
        """Enter: of hits, show the hit; of a choice, open the trace or record the
        program."""
        overlay = state.overlay
        if isinstance(overlay, HitList):
            if overlay.steps is not None and overlay.steps.are_iterations:
                return shown_step(closed(state), index)
            return search.shown(closed(state), replace(overlay.hits, at=index))
        if not isinstance(overlay, Chooser):
            return state
        offer = offered(state)[index]
        if offer.pid:
            return recorded(left_behind(state), offer.pid)
        now = closed(state)
        if offer.is_tour:
            now = replace(now, tour=0)
        if offer.are_dumps:
            return hang.read(now, offer.paths, alone=not now.is_open)
        if offer.is_job and len(offer.paths) > 1:
            job = RankedJob(offer.paths, comes_first=True)
            return read(replace(now, job=job), offer.paths[:1])
        now = replace(now, job=replace(now.job, comes_first=offer.is_job))
        return read(now, offer.paths[:TOGETHER])

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """The hits, or the steps; None where the overlay lists neither."""
        overlay = state.overlay
        if not isinstance(overlay, HitList):
            return None
        all_rows = np.arange(len(overlay.hits.rows))
        return _hits_table(overlay, all_rows if rows is None else all_rows[[*rows]])

    def copied(self, state: State) -> str:
        """The hit or the step under the cursor, or the command line."""
        if isinstance(state.overlay, ShownCommand):
            return state.overlay.line
        return super().copied(state)

    def table_name(self, state: State) -> str:
        is_steps = isinstance(state.overlay, HitList) and state.overlay.steps
        return "steps" if is_steps else "hits"

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Of hits, a line about their durations."""
        if not isinstance(state.overlay, HitList):
            return ()
        line = durations(state.overlay, size.width, state.ascii_only)
        return (Pane(1, text([Said(line)])),)


OVERLAYS = OverlayList()


def _said_over(state: State) -> str:
    """What was done over the page, because the last line of the screen is not drawn
    below an overlay. A sentence with keys is about what the page shows."""
    return "" if state.hint_keys else narrow(state.hint)


closed = partial(replace, overlay=None)


def left_behind(state: State) -> State:
    """Without the overlay; a list of programs that lies over the first list leads back
    to that, and the keys to what they were asked over."""
    overlay = state.overlay
    if not isinstance(overlay, Chooser | Help) or overlay.before is None:
        return closed(state)
    now = overlaid(state, overlay.before)
    if isinstance(overlay, Help):
        return now.with_list(OVERLAY, overlay.list_before)
    return now


def narrowed(state: State, words: str) -> State:
    """Of the keys that lie over the page those that have all of some words."""
    overlay = state.overlay
    if not isinstance(overlay, Help) or overlay.words == words:
        return state
    return overlaid(state, replace(overlay, words=words))


def close(state: State) -> Outcome:
    """Closes the overlay; closing the first choice of traces ends the app."""
    left = left_behind(state)
    if left.overlay is not None:
        return left
    return left if state.is_open or state.reading else (left, Order.QUIT)


def offered(state: State) -> tuple[Offer, ...]:
    """What the list of choices offers: programs, if these are listed, else traces."""
    chooser = state.overlay
    if not isinstance(chooser, Chooser):
        return state.offers
    if chooser.programs:
        return chooser.programs
    return chooser.recent if chooser.only_recent else (*state.offers, *chooser.recent)


def beside(state: State) -> Outcome:
    """Opens the trace under the cursor, or records the program, as B beside the trace
    that is open."""
    offer = offered(state)[state.list_of(OVERLAY).cursor]
    if offer.pid:
        return recorded(closed(state), offer.pid, state.paths[:1])
    if offer.are_dumps:
        return hang.read(closed(state), offer.paths, alone=False)
    return read(closed(state), (*state.paths[:1], offer.paths[0]))


def is_slice(state: State) -> bool:
    return isinstance(state.overlay, Details) and state.overlay.is_slice


def is_text(state: State) -> bool:
    """A text or a list to read, not a choice."""
    return state.overlay is not None and not is_choosing(state)


def is_help(state: State) -> bool:
    return isinstance(state.overlay, Help)


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
    """The slice as JSON, or back."""
    overlay = state.overlay
    if not isinstance(overlay, Details) or not overlay.is_slice:
        return state
    return overlaid(state, replace(overlay, raw=not overlay.raw))


class _Text(NamedTuple):
    """An overlay to read."""

    title: str
    lines: Sequence[Said]


@lru_cache(maxsize=1)
def _shown_text(overlay: Texts, width: int, ascii_only: bool, unpacked: int) -> _Text:
    """A text, made again only when an argument changes: `unpacked` says how often args
    became readable."""
    return _text_of(overlay, width, glyphs_for(ascii_only))


def _text_of(overlay: Texts, width: int, glyphs: Glyphs) -> _Text:
    """The title and the lines of an overlay, in `width` cells."""
    if isinstance(overlay, Help):
        return _help(overlay, width, glyphs)
    if isinstance(overlay, OverlayLines):
        return _Text(overlay.title, _wrapped(overlay.lines, width))
    if isinstance(overlay, ShownCommand):
        lines = [overlay.line, *(("", *overlay.notes) if overlay.notes else ())]
        return _Text("the same in a shell", _wrapped(lines, width))
    if isinstance(overlay, Replayed):
        return _replayed(overlay, width)
    return _details(overlay, width, glyphs)


def _details(overlay: Details, width: int, glyphs: Glyphs) -> _Text:
    """Everything about a slice, a gap or a range of time."""
    side = overlay.side
    about = overlay.about
    if isinstance(about, GapAt):
        lines = gap_lines(side, about, width, MAX_GAP_LINES, glyphs)
        return _Text("everything about this gap", lines)
    if isinstance(about, Range):
        return _Text("everything about this range", all_range_lines(side, about, width))
    if overlay.raw:
        lines = raw_lines(side.trace, about, width, glyphs)
        return _Text("this slice in the file", lines)
    return _Text(
        "everything about this slice", _slice_lines(side, about, width, glyphs)
    )


def _wrapped(lines: Iterable[str], width: int) -> list[Said]:
    """Lines of at most `width` cells; what follows the first part of a long line is
    indented."""
    wrapped: list[Said] = []
    for line in lines:
        parts = wrap(
            line, width, subsequent_indent="      ", break_on_hyphens=False
        ) or [""]
        wrapped += [Said(part, "plain") for part in parts]
    return wrapped


def _slice_lines(side: Side, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """Everything about a slice; below its title whether it is on the critical path,
    where that is known."""
    lines = all_details(side, row, width, glyphs)
    if side.critical is not None:
        on_path = on_path_text(side.critical, side.trace, row)
        if on_path:
            lines.insert(1, Said(on_path, "plain"))
    return lines


def _replayed(overlay: Replayed, width: int) -> _Text:
    """The answer of a replay as it is shown over the page."""
    shown = replayed_text(overlay.found, width, overlay.form)
    lines = [Said(line, "plain") for line in shown.text.split("\n")]
    return _Text(shown.title, lines)


class ReplayedText(NamedTuple):
    """The answer of a replay, with its line breaks."""

    title: str
    text: str


def replayed_text(
    answer: CriticalPath | WhatIf | Functions, width: int, form: str = ""
) -> ReplayedText:
    """The critical path, what a change is worth, or the time of the user's functions,
    as the commands write it; `form`: the format of the trace."""
    from fusetui.analysis.replay.whatif import WhatIf
    from fusetui.report.program import functions_text
    from fusetui.report.whatif import path_text, whatif_text
    from fusetui.trace.program.functions import Functions

    if isinstance(answer, WhatIf):
        return ReplayedText("what if", whatif_text(answer, width))
    if isinstance(answer, Functions):
        every_function = 0
        text = functions_text(answer, every_function, width, form)
        return ReplayedText("my functions", text)
    return ReplayedText("critical path", path_text(answer, width))


def _help(overlay: Help, width: int, glyphs: Glyphs) -> _Text:
    """The keys and the words on the screen, or those that have all of the words that
    were typed: in the name of the section, in the keys, the title or the help."""
    words = overlay.words.lower().split()
    if not words:
        lines = _sections(overlay.sections, width)
        return _Text("keys", [*lines, *_meanings(overlay.meanings, width, glyphs)])
    sections = []
    for section, actions in overlay.sections:
        matching = []
        for texts in actions:
            line = " ".join((section, *texts)).lower()
            if all(word in line for word in words):
                matching.append(texts)
        if matching:
            sections.append((section, matching))
    meanings = []
    for word, meaning in overlay.meanings:
        line = " ".join((WORDS_SECTION, word, meaning)).lower()
        if all(typed in line for typed in words):
            meanings.append((word, meaning))
    title = f"keys: {printable(overlay.words.strip())}"
    lines = [*_sections(sections, width), *_meanings(meanings, width, glyphs)]
    return _Text(title, lines or [Said("no key has these words")])


def _meanings(
    words: Sequence[tuple[str, str]], width: int, glyphs: Glyphs
) -> list[Said]:
    """A section with words on the screen, each followed by its meaning; no lines for
    none."""
    if not words:
        return []
    lines = [Said(""), Said(WORDS_SECTION, "title")]
    for word, meaning in words:
        text = f"  {word}: {meaning}".replace(UNICODE.folded, glyphs.folded)
        parts = wrap(text, width, subsequent_indent="      ")
        lines += [Said(part, "plain") for part in parts]
    return lines


def _sections(
    sections: Iterable[tuple[str, Iterable[tuple[str, str, str]]]], width: int
) -> list[Said]:
    """All keys, each section below its title and a blank line, but for the first."""
    lines: list[Said] = []
    for title, actions in sections:
        if lines:
            lines.append(Said(""))
        lines.append(Said(title, "title"))
        for keys, action_title, help_text in actions:
            lines += _action_lines(keys, action_title, help_text, width)
    return lines


def _action_lines(keys: str, title: str, help_text: str, width: int) -> list[Said]:
    """The keys of an action, its title and its help, on as many lines as that needs.
    The help stands beside the title, below it where the screen is too narrow or the
    title too long."""
    indent = KEYS_CELLS
    is_beside = width - KEYS_CELLS - TITLE_CELLS >= MIN_HELP_CELLS
    if is_beside:
        indent += TITLE_CELLS
    help_lines = wrap(help_text, max(MIN_HELP_CELLS, width - indent))
    first = ""
    if help_lines and is_beside and len(title) < TITLE_CELLS:
        first = help_lines.pop(0)
    indented_keys = f"  {keys}".ljust(KEYS_CELLS)
    heading = indented_keys + title.ljust(TITLE_CELLS) + first
    lines = [Said(heading, "plain")]
    for line in help_lines:
        lines.append(Said(" " * indent + line, "plain"))
    return lines


def _choices(state: State, offers: Sequence[Offer], summaries: Sequence[str]) -> Rows:
    """A row for each trace or program that can be chosen: its name and a summary."""
    names = [narrow(offer.label) for offer in offers]
    name_cells = max(map(len, names), default=0) + 2
    heading = "  " + _choosing_heading(state, offers)
    ellipsis = glyphs_for(state.ascii_only).ellipsis

    def formatted(index: int, width: int) -> list[Styled]:
        summary = clip(summaries[index], width - name_cells, ellipsis)
        return [(names[index].ljust(name_cells), "strong"), (summary, "plain")]

    return Rows(
        identity=(offers, summaries, heading),
        count=len(names),
        titles=lambda width: heading,
        format=formatted,
    )


def _choosing_heading(state: State, offers: Sequence[Offer]) -> str:
    """What keys do in a list of choices."""
    are_programs = bool(offers) and offers[0].pid > 0
    if are_programs:
        hints = RECORDING_B if state.sides else RECORDING
    else:
        hints = CHOOSING_B if state.sides else CHOOSING
    return hints_text(hints, state)


_over = partial(action, section=SECTION, needs=nothing)

ACTIONS = (
    _over(
        name="close",
        title="Close",
        written="escape q i",
        help="what is read",
        run=close,
        where=is_text,
    ),
    _over(
        name="help-filter",
        title="Narrow the keys",
        written="/",
        help="to those that have all words that are typed",
        run=partial(replace, prompt=Prompt.FILTER),
        where=is_help,
    ),
    _over(
        name="raw",
        title="Raw JSON",
        written="r",
        help="of the slice, as the file has it",
        run=turn_raw,
        where=is_slice,
    ),
    _over(
        name="source-part",
        title="Next part",
        written="V",
        help="of a source: lines, graph, generated code, call, wrapper",
        run=next_section,
        where=is_source,
    ),
    _over(
        name="leave",
        title="Leave",
        written="escape q",
        help="without a choice",
        run=close,
        where=is_choosing,
    ),
    action(
        name="beside",
        title="Open beside",
        written="b",
        help="the trace that is open: the two are compared",
        run=beside,
        section=SECTION,
        where=is_choosing,
        needs=a_trace,
    ),
)
