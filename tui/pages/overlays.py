"""Overlays above the page: keys, details of a slice or a range, choices, search
results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.query import FIELDS
from fusetui.text.cutting import clip, joined, middle_clip
from fusetui.text.cutting import width as count_cells
from fusetui.text.figures import Unit, count, duration, percent, plural, unit_of
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import step_wall, steps_of
from fusetui.trace.model.arrays import Int64s
from fusetui.tui.drawing.details import (
    describe_path_position,
    format_event_as_json,
    list_all_details,
)
from fusetui.tui.drawing.picture import (
    Rows,
    Said,
    TextPicture,
    cut,
    folded,
    style_row,
    text,
)
from fusetui.tui.drawing.range_lines import list_gap_lines, list_range_figures
from fusetui.tui.drawing.schemes import (
    TEXT,
    Glyphs,
    Styled,
    choose_glyphs,
    draw_share_bar,
    spell_sign,
)
from fusetui.tui.layout.kinds import classify_slice, label_of, narrow
from fusetui.tui.layout.memory import OverlayLines
from fusetui.tui.layout.search_hits import NameHits, SearchHits, Trend, compute_trend
from fusetui.tui.layout.text_layout import (
    ListColumn,
    SourceShown,
    choose_start_unit,
    shown,
    titles,
)
from fusetui.tui.layout.view import GapAt, Side
from fusetui.tui.pages.page import ListPage, Pane, make_page_table
from fusetui.tui.state import hang, replays, search
from fusetui.tui.state.action import (
    action,
    format_hint,
    format_hints,
    nothing,
    why_no_trace,
)
from fusetui.tui.state.commands import is_choosing, recorded, shown_step
from fusetui.tui.state.offers import Offer, RankedJob
from fusetui.tui.state.reading import read
from fusetui.tui.state.screen import overlay_size, overlay_text_size
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
    open_overlay,
)
from fusetui.tui.state.words import ScreenWord

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


def make_hits_picture(found: SearchHits | None, glyphs: Glyphs) -> TextPicture:
    """Return a picture of what a search has found so far.

    It has a rule with the number of hits, then a row for each name that was found.
    Where nothing is typed yet (`found` is None), it explains the query language
    instead.
    """

    def draw_lines(width: int, height: int) -> list[Said | list[Styled]]:
        """The rule, and what fits below it."""
        heading = f"{glyphs.rule * 3} {summarize_hits(found)} "
        rule = heading.ljust(width, glyphs.rule)
        lines: list[Said | list[Styled]] = [Said(rule, "title")]
        height_below_rule = height - 1
        if found is None:
            help_lines = folded(HELP, width - 2, "plain", " ")
            lines += cut(help_lines, height_below_rule, glyphs.ellipsis)
        else:
            lines += _draw_name_rows(found, width, height_below_rule, glyphs)
        return lines

    return TextPicture(found, draw_lines)


def _draw_name_rows(
    found: SearchHits, width: int, height: int, glyphs: Glyphs
) -> list[Said | list[Styled]]:
    """Return a row with the titles of the columns, then a row for each name that a
    search found. At most `height` lines are returned; none where no name was found."""
    if not found.names:
        return []
    unit = unit_of(name.ns for name in found.names)
    no_title = " " * BAR_CELLS
    heading = f"{unit.name:>9}   share {no_title}   count name"
    rows_below_heading = max(0, height - 1)
    shown_names = found.names[:rows_below_heading]
    name_count = max(found.names_count, len(found.names))
    if len(shown_names) < name_count:
        names_in_sight = f"1-{len(shown_names)} of {count(name_count)}"
        heading = heading.ljust(width - 1 - len(names_in_sight)) + names_in_sight
    rows: list[Said | list[Styled]] = [Said(heading, "title")]
    for name in shown_names:
        rows.append(_draw_name_row(name, found.ns, unit, width, glyphs))
    return rows


def _draw_name_row(
    hits: NameHits, total_ns: int, unit: Unit, width: int, glyphs: Glyphs
) -> list[Styled]:
    """Return one row of search results, `width` cells wide.

    It shows the time of all hits of one name, its share of `total_ns` (also as a bar),
    their number, and the name. Names that match by their args alone have no share.
    """
    if hits.in_args:
        share = ""
        bar = ""
        before_name = IN_ARGS
    else:
        share = percent(hits.ns, total_ns)
        bar = draw_share_bar(hits.ns, total_ns, BAR_CELLS, glyphs)
        before_name = ""
    name_cells = max(1, width - CELLS_BEFORE_NAME - len(before_name))
    name = clip(label_of(hits.role, hits.name), name_cells, glyphs.ellipsis)
    return [
        (f"{unit.text(hits.ns):>9} ", "plain"),
        (f"{share:>7} ", "faint"),
        (f"{bar:{BAR_CELLS}} ", "busy"),
        (f"{count(hits.count):>7} ", "plain"),
        (before_name, "faint"),
        (name, classify_slice(hits.role, hits.name).token + TEXT),
    ]


def summarize_hits(found: SearchHits | None) -> str:
    """Return one line that says how many hits a search has.

        12 slices of 3 names, 4.1 ms   5 more by args   args read: 40 %

    For None (nothing typed) it is "search"; for a wrong query it is what is wrong.
    """
    if found is None:
        return "search"
    if found.wrong:
        return narrow(found.wrong)
    hits_by_name = len(found.rows)
    hits_by_args = len(found.extra)
    parts = []
    if hits_by_name:
        slices = plural(hits_by_name, "slice")
        names = plural(found.names_count, "name")
        parts.append(f"{slices} of {names}, {duration(found.ns)}")
    if hits_by_name and hits_by_args:
        parts.append(f"{count(hits_by_args)} more by args")
    elif hits_by_args:
        parts.append(f"{plural(hits_by_args, 'slice')} by args")
    elif not hits_by_name:
        reason = f": {found.missing}" if found.missing else ""
        parts.append(narrow(f"nothing found{reason}"))
    if not found.is_done:
        # args are read in the background, so there may be more hits to come
        parts.append(f"args read: {percent(found.share, 1)}")
    return "   ".join(parts)


FLAT_PART = 50  # durations that differ by at most 1 / FLAT_PART are drawn alike
MAX_TREND_CELLS = 60  # of the durations from step to step
BAR_COLUMN = ListColumn("", BAR_CELLS, left=True, from_width=70)
WHERE_COLUMN = ListColumn("where", 18, left=True, from_width=60)
MICROSECONDS = Unit(1000, "us", 1)
BEYOND_ANY_LINE = 1 << 30  # cells


def hit_rows(overlay: HitList, ascii_only: bool, notes: tuple[str, ...]) -> Rows:
    """Return the rows of a list of search hits, or of steps: when each begins, how long
    it takes, its lane and its name.

    The bar of a row compares its duration to the longest one. `notes` (such as the keys
    of the list) stand beside the title of the last column.
    """
    columns = (
        ListColumn(f"at {choose_start_unit(overlay.side.trace).name}", 12),
        ListColumn(MICROSECONDS.name, 10),
        BAR_COLUMN,
        WHERE_COLUMN,
        ListColumn("hit", 0, left=True),
    )
    hit_starts, hit_durations = _find_hit_times(overlay)
    longest_ns = int(hit_durations.max(initial=0))
    glyphs = choose_glyphs(ascii_only)

    def format_row(index: int, width: int) -> list[Styled]:
        """The row of one hit."""
        duration_ns = int(hit_durations[index])
        bar = draw_share_bar(duration_ns, longest_ns, BAR_CELLS, glyphs)
        texts = _format_hit(overlay, index, int(hit_starts[index]), duration_ns, bar)
        return style_row(columns, texts, width, last=_choose_hit_color(overlay, index))

    return Rows(
        identity=(overlay, notes),
        count=len(overlay.hits.rows),
        titles=partial(_format_hit_titles, columns, notes),
        format=format_row,
        are_counted=False,  # the line above them has their number
    )


def _format_hit_titles(
    columns: Sequence[ListColumn], notes: Sequence[str], width: int
) -> str:
    """Return the line of column titles, with the notes beside the last title.

    Of several notes, as many as fit in the last column are shown; a single note is cut.
    `width` is in cells.
    """
    last_column_cells = width
    for index in shown(columns, width - 1):
        last_column_cells -= columns[index].width + 1
    title = joined(["hit", *notes[:1]], BEYOND_ANY_LINE)
    if len(notes) > 1:
        title = joined(["hit", *notes], last_column_cells)
    last = replace(columns[-1], title=clip(title, last_column_cells))
    return titles([*columns[:-1], last], width)


def _format_hit(
    overlay: HitList, index: int, begin: int, ns: int, bar: str
) -> tuple[str, ...]:
    """Return the texts of the columns for one hit: its start after the start of the
    side, its duration, its bar, its lane and its name. `begin` and `ns` (the duration)
    are in ns, `index` counts the hits of the list."""
    side = overlay.side
    row = int(overlay.hits.rows[index])
    return (
        choose_start_unit(side.trace).text(begin - side.origin),
        MICROSECONDS.text(ns),
        bar,
        narrow(side.trace.track_of(row).label),
        _name_hit(overlay, index),
    )


def _choose_hit_color(overlay: HitList, index: int) -> str:
    """Return the color token for the name of the hit at `index`. It is the color of its
    kind, such as kernels or copies."""
    trace = overlay.side.trace
    row = int(overlay.hits.rows[index])
    kind = classify_slice(int(trace.role[row]), trace.name_of(row))
    return kind.token + TEXT


def _name_hit(overlay: HitList, index: int) -> str:
    """Return the name of the hit at `index`: of a step its name, of a slice its label.
    A slice that matches by its args alone is marked as such."""
    if overlay.steps:
        return narrow(overlay.steps.names[index])
    trace = overlay.side.trace
    row = int(overlay.hits.rows[index])
    name = label_of(int(trace.role[row]), trace.name_of(row))
    return IN_ARGS + name if overlay.hits.is_by_args(row) else name


@lru_cache(maxsize=1)
def summarize_durations(overlay: HitList, width: int, ascii_only: bool) -> str:
    """Return one line about the durations of all listed hits, with small bars that show
    their course over time.

    The last result is kept, because every redraw asks for it.

        120 hits   median 24.1 us, 24.0 us to 39.2 us   over 5 steps ▂▂▃▂█
    """
    trace = overlay.side.trace
    rows = overlay.hits.rows
    _, hit_durations = _find_hit_times(overlay)
    # two thirds of the line are for the figures
    trend_cells = min(MAX_TREND_CELLS, width // 3)
    over_time = compute_trend(trace, rows, hit_durations, steps_of(trace), trend_cells)
    if over_time is None:
        return f" {plural(len(rows), 'hit')}"
    glyphs = choose_glyphs(ascii_only)
    bars = draw_spark_line(over_time.medians, glyphs.levels)
    figures = f"{count(len(rows))} hits   {_format_trend(over_time)}"
    return clip(f" {figures} {bars}", width, glyphs.ellipsis)


def _format_trend(over_time: Trend) -> str:
    """Return the median, the least and the greatest duration, and whether the bars
    beside them stand for steps or for the order of time."""
    least = duration(over_time.least_ns)
    most = duration(over_time.most_ns)
    figures = f"median {duration(over_time.median_ns)}, {least} to {most}"
    if over_time.steps:
        return f"{figures}   over {plural(over_time.steps, 'step')}"
    return f"{figures}   in order of time"


def _find_hit_times(overlay: HitList) -> tuple[Int64s, Int64s]:
    """Return the starts and the durations of the listed hits (ns), two arrays of shape
    [hits].

    For steps they are the bounds of the steps themselves, because the annotation of a
    hit may only end its step.
    """
    if overlay.steps is not None:
        steps = overlay.steps
        return steps.start, step_wall(steps.start, steps.end)
    trace = overlay.side.trace
    rows = overlay.hits.rows
    return trace.start[rows], trace.dur[rows]


def _make_hits_table(overlay: HitList, indices: Int64s) -> Table:
    """Return the listed hits at `indices` as a table to save, with their lanes; of a
    list of steps, their names and numbers. Times are in ns after the start of the
    trace."""
    trace = overlay.side.trace
    hit_starts, hit_durations = _find_hit_times(overlay)
    start_ns = hit_starts[indices] - trace.begin_ns
    steps = overlay.steps
    if steps is not None:
        return make_page_table(
            "steps",
            {"name": [steps.names[index] for index in indices.tolist()]},
            number=np.array(steps.numbers, dtype=np.int64)[indices],
            start_ns=start_ns,
            dur_ns=hit_durations[indices],
        )
    rows = overlay.hits.rows[indices]
    texts = {
        "name": [trace.name_of(row) for row in rows.tolist()],
        "lane": [trace.track_of(row).label for row in rows.tolist()],
    }
    return make_page_table(
        "hits",
        texts,
        row=rows.astype(np.int64),
        start_ns=start_ns,
        dur_ns=hit_durations[indices],
    )


def draw_spark_line(values: Sequence[int], levels: str) -> str:
    """Return one character for each value: higher for greater values, by the characters
    in `levels` from lowest to highest.

    The least known value gets level 1 and the greatest the last level. Values that
    hardly differ all get the middle level. A value of -1 is unknown and gets level 0, a
    blank. At least one value must be known.
    """
    known = [value for value in values if value >= 0]
    least = min(known)
    most = max(known)
    top_level = len(levels) - 1
    span = most - least
    is_flat = span * FLAT_PART <= most
    characters = []
    for value in values:
        if value < 0:
            level = 0
        elif is_flat:
            level = top_level // 2
        else:
            levels_above_lowest = (value - least) * (top_level - 1) // span
            level = 1 + levels_above_lowest
        characters.append(levels[level])
    return "".join(characters)


SECTION = "Over the page"
WORDS_HERE = "Words and signs on this page"
WORDS_ELSEWHERE = "Words on other pages, and libraries of kernels"
ABOUT_HELP = (
    "The keys of this page come first, then the words and signs on it, then all others. "
    "To take a guided tour of five minutes, run fusetui tutor in a shell."
)
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
# the columns of the help: the keys of an action, its title, and its help
KEYS_CELLS = 20
TITLE_CELLS = 22
MIN_HELP_CELLS = 16
MEANING_INDENT = 6  # of the second line of a word's meaning
HELP_TITLE = "help"
EDGE_CELLS = 4  # of an overlay, beside its text
MAX_SHARE_OF_NAMES = 0.6  # of the width of a list of choices, so that summaries fit
CONTINUED_CELLS = (
    4  # that the second line of a wide one is indented more than the first
)


class OverlayList(ListPage):
    """An overlay as a list, with the keys of all lists."""

    name = OVERLAY
    title = key = help = hints = ""

    def rows(self, state: State) -> Rows:
        """Return the rows of what lies over the page: choices, search hits, source
        code, or the lines of a text.

        The heading of a text names it, says which lines are in sight, and lists the
        keys that apply.
        """
        overlay = state.overlay
        if overlay is None:
            return Rows(None, 0, lambda width: "", lambda index, width: ())
        if isinstance(overlay, Chooser):
            return _choice_rows(state, offers_in_list(state), overlay.summaries)
        if isinstance(overlay, HitList):
            notes = _describe_hit_keys(state)
            return hit_rows(overlay, state.ascii_only, notes)
        if isinstance(overlay, SourceShown):
            from fusetui.tui.drawing.source import make_source_rows  # rarely needed

            keys_text = format_hints((NEXT_PART, CLOSE), state)
            return make_source_rows(overlay, state.ascii_only, keys_text)
        return self._text_rows(state, overlay)

    def _text_rows(self, state: State, overlay: Texts) -> Rows:
        """Return a row for each line of an overlay that is a text, such as the help."""
        shown = _text_of_overlay(state, overlay)
        width = _text_width(state)
        heading = self._heading(state, shown, _describe_text_keys(state), width)
        return Rows(
            identity=(overlay, width, state.unpacked, heading),
            count=len(shown.lines),
            titles=lambda width: heading,
            format=lambda index, width: [shown.lines[index]],
            are_counted=False,  # the heading says which lines are in sight
        )

    def _heading(
        self, state: State, shown: _Text, key_texts: Sequence[str], width: int
    ) -> str:
        """Return the heading of a text: its title, which lines are in sight, and what
        keys do. Only as many of these parts are there as fit in `width` cells."""
        visible_lines = self._place(state, shown)
        if is_help(state):
            # how to close comes first: who opens the help may know no key yet
            close_text, *other_keys = key_texts
            parts = [shown.title, close_text, visible_lines, *other_keys]
        else:
            parts = [shown.title, visible_lines, *key_texts]
        return " " + joined([part for part in parts if part], width)

    def paged(self, state: State, rows: int) -> State:
        """Return the state scrolled down by so many rows, up where negative. A text
        scrolls as a whole, so that the cursor stays on its line of the screen."""
        moved = super().paged(state, rows)
        if not isinstance(state.overlay, Texts):
            return moved
        old_list = state.list_of(self.name)
        new_list = moved.list_of(self.name)
        last_top = self.rows(state).count - self.room(state, overlay_text_size(state))
        first_line = max(0, min(old_list.top + rows, last_top))
        return moved.with_list(self.name, replace(new_list, top=first_line))

    def _place(self, state: State, shown: _Text) -> str:
        """Return which lines of a text are on the screen, such as "lines 3-20 of 45".
        It is empty where all lines fit."""
        visible_lines = self.room(state, overlay_text_size(state))
        line_count = len(shown.lines)
        if line_count <= visible_lines:
            return ""
        first_line = state.list_of(self.name).top
        return f"lines {first_line + 1}-{min(line_count, first_line + visible_lines)} of {line_count}"

    def chosen(self, state: State, index: int) -> Outcome:
        """Carry out Enter on the row at `index`.

        A search hit is shown in the timeline. A choice opens its trace, starts the
        tour, reads flight-recorder dumps, or records the program with this process id.
        Other overlays ignore it.
        """
        overlay = state.overlay
        if isinstance(overlay, HitList):
            return _show_hit(state, overlay, index)
        if isinstance(overlay, Chooser):
            return _open_offer(state, offers_in_list(state)[index])
        return state

    def table(self, state: State, rows: Sequence[int] | None = None) -> Table | None:
        """Return the listed hits or steps at `rows` as a table to save, all of them for
        None. The result is None where the overlay lists neither."""
        overlay = state.overlay
        if not isinstance(overlay, HitList):
            return None
        indices = np.arange(len(overlay.hits.rows))
        if rows is not None:
            indices = indices[[*rows]]
        return _make_hits_table(overlay, indices)

    def copied(self, state: State) -> str:
        """Return what a copy takes: the hit or step under the cursor, or the command
        line that is shown."""
        if isinstance(state.overlay, ShownCommand):
            return state.overlay.line
        return super().copied(state)

    def table_name(self, state: State) -> str:
        """Return what a saved table of this overlay is called: "steps" or "hits"."""
        is_steps = isinstance(state.overlay, HitList) and state.overlay.steps
        return "steps" if is_steps else "hits"

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Return the panes above the list: for hits one line about their durations,
        else none."""
        if not isinstance(state.overlay, HitList):
            return ()
        line = summarize_durations(state.overlay, size.width, state.ascii_only)
        return (Pane(1, text([Said(line)])),)


OVERLAYS = OverlayList()


def _show_hit(state: State, overlay: HitList, index: int) -> State:
    """Close the list of hits, and show the hit or step at `index` in the timeline."""
    if overlay.steps is not None and overlay.steps.are_iterations:
        return shown_step(closed(state), index)
    return search.shown(closed(state), replace(overlay.hits, at=index))


def _open_offer(state: State, offer: Offer) -> Outcome:
    """Close the list of choices, and open what was chosen: record a running program,
    read flight-recorder dumps, or read traces."""
    if offer.pid:
        return recorded(leave_overlay(state), offer.pid)
    closed_state = closed(state)
    if offer.is_tour:
        closed_state = replace(closed_state, tour=0)
    if offer.are_dumps:
        return hang.read(closed_state, offer.paths, alone=not closed_state.is_open)
    has_many_ranks = offer.is_job and len(offer.paths) > 1
    if has_many_ranks:
        # only the first trace of the job is opened; the others are summarized
        first_path = offer.paths[:1]
        job = RankedJob(offer.paths, comes_first=True)
        return read(replace(closed_state, job=job), first_path)
    job = replace(closed_state.job, comes_first=offer.is_job)
    return read(replace(closed_state, job=job), offer.paths[:TOGETHER])


def _describe_hit_keys(state: State) -> tuple[str, ...]:
    """Return what keys do in a list of hits, or in their place the message of the app."""
    message = _message_over_page(state)
    if message:
        return (message,)
    key_texts = [format_hint(hint, state) for hint in HITS]
    return tuple(key_text for key_text in key_texts if key_text)


def _describe_text_keys(state: State) -> list[str]:
    """Return what keys do in an overlay that is a text; how to close it comes first.
    Over a command line, the message of the app takes their place, because it says
    whether the line was copied."""
    shows_command = isinstance(state.overlay, ShownCommand)
    message = _message_over_page(state)
    if shows_command and message:
        return [message]
    hints = [CLOSE]
    if is_help(state):
        hints += [NEXT_PART, NARROW]
    if replays.is_worth(state):
        hints.append(SECOND)
    if is_slice(state):
        hints.append(RAW)
    if shows_command:
        hints.append(COPIES)
    return [format_hint(hint, state) for hint in hints]


def _message_over_page(state: State) -> str:
    """Return the last message of the app, to be shown in the heading of an overlay.

    The usual place of messages, the last line of the screen, is not drawn below an
    overlay. A message that lists keys is about the page below, so it gives "".
    """
    return "" if state.hint_keys else narrow(state.hint)


closed = partial(replace, overlay=None)


def leave_overlay(state: State) -> State:
    """Return the state without its overlay, or with the overlay below it.

    A list of programs that was opened from the first list leads back to that list. The
    list of keys leads back to what it was opened over, with its cursor.
    """
    overlay = state.overlay
    if not isinstance(overlay, Chooser | Help) or overlay.before is None:
        return closed(state)
    state_before = open_overlay(state, overlay.before)
    if isinstance(overlay, Help):
        return state_before.with_list(OVERLAY, overlay.list_before)
    return state_before


def narrowed(state: State, words: str) -> State:
    """Return the state with the list of keys narrowed to those that contain all of
    `words`. The state is unchanged where no list of keys is open or the words are the
    same."""
    overlay = state.overlay
    if not isinstance(overlay, Help) or overlay.words == words:
        return state
    return open_overlay(state, replace(overlay, words=words))


def close(state: State) -> Outcome:
    """Close the overlay. Closing the first choice of traces, with nothing open or being
    read, quits the app."""
    state_after = leave_overlay(state)
    if state_after.overlay is not None or state.is_open or state.reading:
        return state_after
    return state_after, Order.QUIT


def offers_in_list(state: State) -> tuple[Offer, ...]:
    """Return what the list of choices offers: running programs where these are listed,
    else traces. Without a list of choices, they are the traces that the app was started
    with."""
    chooser = state.overlay
    if not isinstance(chooser, Chooser):
        return state.offers
    if chooser.programs:
        return chooser.programs
    return chooser.recent if chooser.only_recent else (*state.offers, *chooser.recent)


def beside(state: State) -> Outcome:
    """Open the trace under the cursor as B, to be compared with the trace that is open.
    A program is recorded as B; flight-recorder dumps are read beside the trace."""
    offer = offers_in_list(state)[state.list_of(OVERLAY).cursor]
    if offer.pid:
        return recorded(closed(state), offer.pid, state.paths[:1])
    if offer.are_dumps:
        return hang.read(closed(state), offer.paths, alone=False)
    return read(closed(state), (*state.paths[:1], offer.paths[0]))


def is_slice(state: State) -> bool:
    """Return whether the overlay shows the details of one slice."""
    return isinstance(state.overlay, Details) and state.overlay.is_slice


def is_text(state: State) -> bool:
    """Return whether the overlay is a text or list to read, not a choice of what to
    open."""
    return state.overlay is not None and not is_choosing(state)


def is_help(state: State) -> bool:
    """Return whether the list of keys is open."""
    return isinstance(state.overlay, Help)


def is_source(state: State) -> bool:
    """Return whether the source code of a slice is open."""
    return isinstance(state.overlay, SourceShown)


def has_parts(state: State) -> bool:
    """Return whether the overlay has parts to go through: a source, or the help."""
    return is_source(state) or is_help(state)


def next_section(state: State) -> State:
    """Move the cursor to the next part of what is shown. After the last part comes the
    first. Nothing changes where the overlay has no parts.

    The parts of a source are lines, nodes, code, call, the whole wrapper; those of the
    help are its sections.
    """
    overlay = state.overlay
    cursor = state.list_of(OVERLAY).cursor
    if isinstance(overlay, SourceShown):
        section_line = overlay.next_section(cursor)
    elif isinstance(overlay, Help):
        section_line = _find_next_title(_text_of_overlay(state, overlay), cursor)
    else:
        return state
    return state.with_list(OVERLAY, ListState(cursor=section_line, top=section_line))


def _find_next_title(shown: _Text, cursor: int) -> int:
    """Return the first line with a title below the line `cursor`, or the first of all
    where none is below it; 0 for a text without titles."""
    title_lines = [
        index for index, line in enumerate(shown.lines) if line.token == "title"
    ]
    for title_line in title_lines:
        if title_line > cursor:
            return title_line
    return title_lines[0] if title_lines else 0


def _text_of_overlay(state: State, overlay: Texts) -> _Text:
    """Return the title and the lines of an overlay to read, wrapped to its width."""
    return _cached_text(overlay, _text_width(state), state.ascii_only, state.unpacked)


def _text_width(state: State) -> int:
    """Return the cells of a line of text in an overlay, which is the overlay without
    its edge."""
    # on a screen narrower than the edge nothing can be read, but nothing fails
    return max(1, overlay_size(state).width - EDGE_CELLS)


def toggle_raw_slice(state: State) -> State:
    """Show the details of the slice as raw JSON, or as text again. Nothing changes
    where the overlay is not about a slice."""
    overlay = state.overlay
    if not isinstance(overlay, Details) or not overlay.is_slice:
        return state
    return open_overlay(state, replace(overlay, raw=not overlay.raw))


class _Text(NamedTuple):
    """An overlay to read."""

    title: str
    lines: Sequence[Said]


@lru_cache(maxsize=1)
def _cached_text(overlay: Texts, width: int, ascii_only: bool, unpacked: int) -> _Text:
    """Return the title and lines of an overlay, made anew only when an argument
    changes.

    `unpacked` counts how often args became readable; it is part of the key of the
    cache, because the text may then say more.
    """
    return _make_text(overlay, width, choose_glyphs(ascii_only))


def _make_text(overlay: Texts, width: int, glyphs: Glyphs) -> _Text:
    """Return the title and the lines of an overlay that is a text, wrapped to `width`
    cells."""
    if isinstance(overlay, Help):
        return _make_help(overlay, width, glyphs)
    if isinstance(overlay, OverlayLines):
        return _Text(overlay.title, _wrap_lines(overlay.lines, width))
    if isinstance(overlay, ShownCommand):
        lines = [overlay.line]
        if overlay.notes:
            lines += ["", *overlay.notes]
        return _Text("the same in a shell", _wrap_lines(lines, width))
    if isinstance(overlay, Replayed):
        return _make_replay_text(overlay, width)
    return _make_details(overlay, width, glyphs)


def _make_details(overlay: Details, width: int, glyphs: Glyphs) -> _Text:
    """Return the title and lines with everything about a slice, a gap (idle time of a
    device) or a range of time. A slice can be shown as raw JSON instead."""
    side = overlay.side
    about = overlay.about
    if isinstance(about, GapAt):
        lines = list_gap_lines(side, about, width)
        return _Text("everything about this gap", _wrap_wide_lines(lines, width))
    if isinstance(about, Range):
        lines = list_range_figures(side, about, width)
        return _Text("everything about this range", _wrap_wide_lines(lines, width))
    if overlay.raw:
        lines = format_event_as_json(side.trace, about, width, glyphs)
        return _Text("this slice in the file", lines)
    lines = _wrap_wide_lines(_describe_slice(side, about, width, glyphs), width)
    if overlay.before:
        before = _wrap_lines(overlay.before, width)
        lines = [*before, Said(""), *lines]
    return _Text(overlay.title, lines)


def _wrap_lines(lines: Iterable[str], width: int) -> list[Said]:
    """Return the lines broken so that none is wider than `width` cells. The
    continuation of a long line is indented; an empty line stays."""
    wrapped: list[Said] = []
    for line in lines:
        parts = wrap(line, width, subsequent_indent="      ", break_on_hyphens=False)
        if not parts:
            parts = [""]  # wrap gives no line for an empty one
        wrapped += [Said(part, "plain") for part in parts]
    return wrapped


def _wrap_wide_lines(lines: Iterable[Said], width: int) -> list[Said]:
    """Return the lines, of which those that are wider than `width` cells are broken.
    The continuation of a line is indented more than its beginning. Others stay as they
    are, so that marks stay below the parts of a name."""
    wrapped: list[Said] = []
    for line in lines:
        if len(line.text) <= width:
            wrapped.append(line)
            continue
        indent = " " * (len(line.text) - len(line.text.lstrip()) + CONTINUED_CELLS)
        # on a narrow screen the words need the room of the indent
        subsequent_indent = indent if 2 * len(indent) < width else ""
        parts = wrap(
            line.text,
            width,
            subsequent_indent=subsequent_indent,
            break_on_hyphens=False,
        )
        wrapped += [line._replace(text=part) for part in parts]
    return wrapped


def _describe_slice(side: Side, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """Return the lines with everything about the slice in `row`. Below its title they
    say whether it is on the critical path, where that is known."""
    lines = list_all_details(side, row, width, glyphs)
    if side.critical is not None:
        on_path = describe_path_position(side.critical, side.trace, row)
        if on_path:
            lines.insert(1, Said(on_path, "plain"))
    return lines


def _make_replay_text(overlay: Replayed, width: int) -> _Text:
    """Return the answer of a replay (critical path, what-if, or time of functions) as a
    title and lines for an overlay."""
    shown = format_replay_answer(overlay.found, width, overlay.form)
    lines = [Said(line, "plain") for line in shown.text.split("\n")]
    return _Text(shown.title, lines)


class ReplayedText(NamedTuple):
    """The answer of a replay, with its line breaks."""

    title: str
    text: str


def format_replay_answer(
    answer: CriticalPath | WhatIf | Functions, width: int, form: str = ""
) -> ReplayedText:
    """Return the title and text of a replay's answer: the critical path, the gain of a
    change, or the time of the user's functions.

    The text is as the commands write it, with line breaks, for `width` cells. `form` is
    the format of the trace.
    """
    from fusetui.analysis.replay.whatif import WhatIf
    from fusetui.report.program import format_functions
    from fusetui.report.whatif import format_path, format_whatif
    from fusetui.trace.program.functions import Functions

    if isinstance(answer, WhatIf):
        return ReplayedText("what if", format_whatif(answer, width))
    if isinstance(answer, Functions):
        every_function = 0
        text = format_functions(answer, every_function, width, form)
        return ReplayedText("my functions", text)
    return ReplayedText("critical path", format_path(answer, width))


def _make_help(overlay: Help, width: int, glyphs: Glyphs) -> _Text:
    """Return the list of keys with the meanings of words on the screen, narrowed to
    those that contain all typed words.

    A word may be in the section's name, the keys, the title or the help, in any case of
    letters. Where nothing has them, one line says so.
    """
    typed = overlay.words.lower().split()
    here = overlay.sections_here
    parts = [
        _draw_sections(overlay.sections[:here], typed, width),
        _draw_meanings(WORDS_HERE, overlay.explained.here, typed, width, glyphs),
        _draw_sections(overlay.sections[here:], typed, width),
        _draw_meanings(
            WORDS_ELSEWHERE, overlay.explained.elsewhere, typed, width, glyphs
        ),
    ]
    lines = [*chain.from_iterable(parts)]
    if typed:
        title = f"{HELP_TITLE}: {printable(overlay.words.strip())}"
        # without the blank line above the first section
        return _Text(title, lines[1:] or [Said("no key and no word matches")])
    about = [Said(line, "plain") for line in wrap(ABOUT_HELP, width)]
    return _Text(HELP_TITLE, [*about, *lines])


def _draw_meanings(
    title: str,
    words: Iterable[ScreenWord],
    typed: Sequence[str],
    width: int,
    glyphs: Glyphs,
) -> list[Said]:
    """Return a section of the help with words and signs that stand on the screen, each
    with its meaning, below a blank line and a title.

    Only those that contain all words in `typed` are listed. Without any there are no
    lines.
    """
    lines = []
    for screen_word in words:
        text = f"{spell_sign(screen_word.word, glyphs)}: {screen_word.meaning}"
        text = text.replace("`", "")
        if not _has_words(f"{title} {text}", typed):
            continue
        parts = wrap(
            text, width, initial_indent="  ", subsequent_indent=" " * MEANING_INDENT
        )
        lines += [Said(part, "plain") for part in parts]
    return [Said(""), Said(title, "title"), *lines] if lines else []


def _draw_sections(
    sections: Iterable[tuple[str, Iterable[tuple[str, str, str]]]],
    typed: Sequence[str],
    width: int,
) -> list[Said]:
    """Return sections of the help: a blank line, a title, then the actions. Each action
    is given as (keys, title, help). Only those that contain all words in `typed` are
    listed, and sections without any are left out."""
    lines: list[Said] = []
    for title, actions in sections:
        lines_of_section = []
        for keys, action_title, help_text in actions:
            if _has_words(" ".join((title, keys, action_title, help_text)), typed):
                lines_of_section += _draw_action(keys, action_title, help_text, width)
        if lines_of_section:
            lines += [Said(""), Said(title, "title"), *lines_of_section]
    return lines


def _has_words(text: str, typed: Sequence[str]) -> bool:
    """Return whether a text contains all words in `typed`, in any case of letters.
    `typed` is in lower case."""
    lower_text = text.lower()
    return all(word in lower_text for word in typed)


def _draw_action(keys: str, title: str, help_text: str, width: int) -> list[Said]:
    """Return the lines of one action in the help: its keys, its title and its help
    text.

    The help stands beside the title. On a narrow screen, or after a long title, it
    stands below.
    """
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


def _choice_rows(
    state: State, offers: Sequence[Offer], summaries: Sequence[str]
) -> Rows:
    """Return a row for each trace or program that can be chosen: its name, then its
    summary. `summaries` has one text for each offer."""
    names = [narrow(offer.label) for offer in offers]
    longest_name = max(map(len, names), default=0)
    has_summaries = any(summaries)
    heading = "  " + _format_choice_keys(state, offers)
    ellipsis = choose_glyphs(state.ascii_only).ellipsis

    def formatted(index: int, width: int) -> list[Styled]:
        max_name_cells = int(width * MAX_SHARE_OF_NAMES) if has_summaries else width
        name_cells = min(longest_name, max_name_cells)
        name = _clip_path(names[index], name_cells, ellipsis)
        between = "  "
        summary_cells = width - name_cells - len(between)
        summary = clip(summaries[index], summary_cells, ellipsis)
        return [(name.ljust(name_cells) + between, "strong"), (summary, "plain")]

    return Rows(
        identity=(offers, summaries, heading),
        count=len(names),
        titles=lambda width: heading,
        format=formatted,
    )


def _clip_path(path: str, max_cells: int, ellipsis: str) -> str:
    """Cut a path before the name of its file, which tells traces apart. The name itself
    is cut only if it is too long on its own: `/data/ru…/rank0.json`."""
    _, slash, file_name = path.rpartition("/")
    end = slash + file_name
    folder_cells = max_cells - count_cells(ellipsis) - len(end)
    is_one_cell_per_char = len(path) == count_cells(path)
    if len(path) <= max_cells or folder_cells < 0 or not is_one_cell_per_char:
        return middle_clip(path, max_cells, ellipsis)
    return path[:folder_cells] + ellipsis + end


def _format_choice_keys(state: State, offers: Sequence[Offer]) -> str:
    """Return the heading of a list of choices, which lists its keys. They differ for
    traces and programs, and where a trace is open already."""
    are_programs = bool(offers) and offers[0].pid > 0
    if are_programs:
        hints = RECORDING_B if state.sides else RECORDING
    else:
        hints = CHOOSING_B if state.sides else CHOOSING
    return format_hints(hints, state)


_over = partial(action, section=SECTION, needs=nothing)

ACTIONS = (
    _over(
        name="close",
        title="Close",
        written="escape q i",
        help="the open overlay",
        run=close,
        where=is_text,
    ),
    _over(
        name="help-filter",
        title="Narrow the keys",
        written="/",
        help="to those that contain all the words",
        run=partial(replace, prompt=Prompt.FILTER),
        where=is_help,
    ),
    _over(
        name="raw",
        title="Raw JSON",
        written="r",
        help="of the slice, as in the file",
        run=toggle_raw_slice,
        where=is_slice,
    ),
    _over(
        name="source-part",
        title="Next part",
        written="V",
        help="of this list; of a source: lines, graph, generated code, call, wrapper",
        run=next_section,
        where=has_parts,
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
        help="the open trace, to compare the two",
        run=beside,
        section=SECTION,
        where=is_choosing,
        needs=why_no_trace,
    ),
)
