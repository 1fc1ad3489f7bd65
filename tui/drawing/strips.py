"""From runs and texts to styled strips of the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from fusetui.text.cutting import clip, word_clip
from fusetui.tui.drawing import palette
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.runs import Look, Run
from fusetui.tui.drawing.segments import line, narrow_line, segment, segments_of
from fusetui.tui.layout.kinds import Kind
from fusetui.tui.layout.view import Place


def labeled(
    label: str, segments: Sequence[Segment], gutter: int, width: int, bar: str = " "
) -> Strip:
    """A line with a label at its left; `bar` stands between both."""
    shown = label if len(label) < gutter else word_clip(label, gutter - 1)
    text = segment(shown.ljust(gutter - 1) + bar, palette.DIM)
    return narrow_line([text, *segments], width)


def group_line(text: str, gutter: int, width: int, bar: str = " ") -> Strip:
    """A line that names a thread or a device."""
    return _across(text, palette.TITLE, gutter, width, bar)


def hidden_line(text: str, gutter: int, width: int, glyphs: Glyphs, bar: str = " ") -> Strip:
    """A line that names what is hidden."""
    return _across(clip(text, width, glyphs.ellipsis), palette.DIM, gutter, width, bar)


def _across(text: str, style: Style, gutter: int, width: int, bar: str) -> Strip:
    """A text over the whole width; the bar where it leaves room."""
    segments = [segment(text[:width], style)]
    if bar != " " and len(text) < gutter:
        segments.append(segment(bar.rjust(gutter - len(text)), palette.DIM))
    return line(segments, width)


def plain(text: str) -> Segment:
    return segment(text, palette.DIM)


def minimap_segments(text: str, window: range) -> list[Segment]:
    """The busy levels, brighter inside the window."""
    return [
        segment(text[: window.start], palette.BUSY),
        segment(text[window.start : window.stop], palette.WINDOW),
        segment(text[window.stop :], palette.BUSY),
    ]


def ruler_segments(text: str, chosen: range) -> list[Segment]:
    """The ticks, brighter in the selected range of time."""
    return [
        segment(text[: chosen.start], palette.DIM),
        segment(text[chosen.start : chosen.stop], palette.WINDOW),
        segment(text[chosen.stop :], palette.DIM),
    ]


def counter_segments(levels: str, largest: str) -> list[Segment]:
    """The levels of a counter, and a value at their right end."""
    return [segment(levels, palette.BUSY), segment(largest, palette.PLAIN)]


def lane_segments(runs: Sequence[Run]) -> list[Segment]:
    """The slices of one line."""
    return segments_of([(run.text, STYLES[run.look, run.kind]) for run in runs])


def gutter_text(place: Place, gutter: int, glyphs: Glyphs) -> str:
    """The label of a line; the last line of a lane that hides some says how many."""
    more = f"{glyphs.folded}{place.more}" if place.more else ""
    if not more:
        return word_clip(place.label, gutter - 1, glyphs.ellipsis)
    room = gutter - 2 - len(more)
    return f"{word_clip(place.label, room, glyphs.ellipsis).ljust(room)} {more}"


def _style(look: Look, kind: Kind) -> Style:
    if look == "selected":
        return palette.SELECTED
    if look == "marked":
        return palette.MARKED
    if look == "block":
        return palette.fill(kind)
    return palette.bar(kind) if look == "bar" else palette.PLAIN


STYLES = {(look, kind): _style(look, kind) for look in get_args(Look) for kind in Kind}
