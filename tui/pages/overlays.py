"""The overlays over a page: the keys, everything about a slice or a range, a choice of traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from textwrap import wrap

from msgspec.structs import replace

from fusetui.text.cutting import clip
from fusetui.tui.drawing.details import all_details
from fusetui.tui.drawing.glyphs import glyphs_for
from fusetui.tui.drawing.picture import Rows, Said, text
from fusetui.tui.drawing.range_lines import all_range_lines, gap_lines
from fusetui.tui.drawing.schemes import Styled
from fusetui.tui.drawing.values import raw_lines
from fusetui.tui.layout.kinds import narrow
from fusetui.tui.pages.hits import durations, hit_rows
from fusetui.tui.pages.page import ListPage, Pane
from fusetui.tui.state import search
from fusetui.tui.state.action import a_trace, action, hint_text, hints_text, nothing
from fusetui.tui.state.commands import shown_step
from fusetui.tui.state.reading import read
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import (
    OVERLAY,
    TOGETHER,
    Chooser,
    GapDetails,
    Help,
    HitList,
    ListState,
    Order,
    Outcome,
    Overlay,
    RangeFigures,
    Size,
    SliceDetails,
    State,
)

SECTION = "Over the page"
CHOOSING = "show opens", "leave leaves"
CHOOSING_B = "show opens", "beside opens as B beside the present trace", "leave leaves"
CLOSE = "close closes"
RAW = "raw raw JSON and back"
MOST_GAP_LINES = 50
KEYS, WHAT, LEAST_HELP = 20, 22, 16  # cells of the columns of the help
EDGE = 4  # cells of an overlay beside its text


class OverlayList(ListPage):
    """An overlay as a list, with the keys of all lists."""

    name = OVERLAY
    title = key = help = hints = ""

    def rows(self, state: State) -> Rows:
        if state.overlay is None:
            return Rows(None, 0, lambda width: "", lambda index, width: ())
        if isinstance(state.overlay, Chooser):
            return _choices(state, state.overlay.summaries)
        if isinstance(state.overlay, HitList):
            said = [hint_text(hint, state) for hint in ("show shows it", CLOSE)]
            return hit_rows(state.overlay, state.ascii_only, [*filter(None, said)])
        hints = (RAW, CLOSE) if is_slice(state) else (CLOSE,)
        width, keys = overlay_size(state).width - EDGE, hints_text(hints, state)
        return _texts(state.overlay, width, state.ascii_only, state.unpacked, keys)

    def chosen(self, state: State, index: int) -> Outcome:
        """Of a choice: open the trace; of hits: show the hit."""
        if isinstance(state.overlay, HitList):
            if state.overlay.steps is not None and state.overlay.steps.are_iterations:
                return shown_step(closed(state), index)
            return search.shown(closed(state), replace(state.overlay.hits, at=index))
        if not isinstance(state.overlay, Chooser):
            return state
        offer = state.offers[index]
        now = replace(closed(state), tour=0) if offer.is_tour else closed(state)
        now = replace(now, job=replace(now.job, comes_first=offer.is_job))
        return read(now, offer.paths[:TOGETHER])

    def above(self, state: State, size: Size) -> Sequence[Pane]:
        """Of hits, how long they took from step to step."""
        if not isinstance(state.overlay, HitList):
            return ()
        return (Pane(1, text([Said(durations(state.overlay, size.width, state.ascii_only))])),)


OVERLAYS = OverlayList()


closed = partial(replace, overlay=None)


def close(state: State) -> Outcome:
    """Closes the overlay; closing the first choice of traces ends the app."""
    left = closed(state)
    return left if state.sides or state.reading else (left, Order.QUIT)


def beside(state: State) -> Outcome:
    """Opens the trace under the cursor beside the first one that is open."""
    offer = state.offers[state.list_of(OVERLAY).cursor]
    return read(closed(state), (*state.paths[:1], offer.paths[0]))


def is_slice(state: State) -> bool:
    return isinstance(state.overlay, SliceDetails)


def is_choosing(state: State) -> bool:
    return isinstance(state.overlay, Chooser)


def is_text(state: State) -> bool:
    """A text or a list to read, not a choice."""
    return state.overlay is not None and not is_choosing(state)


def turn_raw(state: State) -> State:
    """From all about a slice to the JSON of its event, and back."""
    shown = state.overlay
    if not isinstance(shown, SliceDetails):
        return state
    return laid_over(state, replace(shown, raw=not shown.raw))


def laid_over(state: State, overlay: Overlay) -> State:
    """Shows an overlay, at its first line."""
    return replace(state, overlay=overlay).with_list(OVERLAY, ListState())


@lru_cache(maxsize=1)
def _texts(
    overlay: Help | SliceDetails | GapDetails | RangeFigures,
    width: int,
    ascii_only: bool,
    unpacked: int,
    keys: str,
) -> Rows:
    """The rows of a text, made again only when an argument changes."""
    match overlay:
        case Help(sections):
            title, lines = "keys", _sections(sections, width)
        case SliceDetails(side, slice_row, True):
            title = "this slice in the file"
            lines = raw_lines(side.trace, slice_row, width, glyphs_for(ascii_only))
        case SliceDetails(side, slice_row):
            title = "everything about this slice"
            glyphs, origins = glyphs_for(ascii_only), side.insight.origins
            lines = all_details(side.trace, slice_row, width, glyphs, origins)
        case GapDetails(side, gap):
            title = "everything about this gap"
            lines = gap_lines(side, gap, width, MOST_GAP_LINES, glyphs_for(ascii_only))
        case RangeFigures(side, found):
            title = "everything about this range"
            lines = all_range_lines(side, found, width)

    identity, heading = (overlay, width, unpacked, keys), f" {title}   {keys}"
    return Rows(identity, len(lines), lambda width: heading, lambda index, width: [lines[index]])


def _sections(
    sections: Iterable[tuple[str, Iterable[tuple[str, str, str]]]], width: int
) -> list[Said]:
    """The help of each action on as many lines as it needs; on a narrow screen below its title."""
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


def _choices(state: State, summaries: Sequence[str]) -> Rows:
    names = [narrow(offer.label) for offer in state.offers]
    widest = max(map(len, names), default=0) + 2
    heading = "  " + hints_text(CHOOSING_B if state.sides else CHOOSING, state)

    def row(index: int, width: int) -> list[Styled]:
        shown = clip(summaries[index], width - widest, glyphs_for(state.ascii_only).ellipsis)
        return [(names[index].ljust(widest), "strong"), (shown, "plain")]

    return Rows((state.offers, summaries), len(names), lambda width: heading, row)


_over = partial(action, section=SECTION, needs=nothing)
_BESIDE = "the trace that is open: the two are compared"
ACTIONS = (
    _over("close", "Close", "escape q i question_mark", "what is read", close, where=is_text),
    _over("raw", "Raw JSON", "r", "of the slice, as the file has it", turn_raw, where=is_slice),
    _over("leave", "Leave", "escape q", "without a choice", close, where=is_choosing),
    action("beside", "Open beside", "b", _BESIDE, beside, SECTION, is_choosing, a_trace),
)
