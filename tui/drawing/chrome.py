"""The heading of the screen: the open traces, or the progress of reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fusetui.analysis.questions.busy import gpu_times
from fusetui.analysis.questions.note import note_of
from fusetui.text.cutting import clip, joined
from fusetui.text.figures import duration, percent, plural, several, size
from fusetui.text.printable import printable, without_credentials
from fusetui.trace.layout.devices import device_names
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.categories import Layer
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import ANNOTATIONS, CAPTURE, Joined
from fusetui.trace.model.memo import memo
from fusetui.trace.scrub.detect import secrets_of
from fusetui.tui.drawing.picture import TextPicture
from fusetui.tui.drawing.schemes import Glyphs, Styled
from fusetui.tui.layout.text_layout import wrapped
from fusetui.tui.layout.view import Side
from fusetui.tui.state.state import Reading
from fusetui.tui.state.tour import MARGIN

BAR_CELLS = 30
SHORT_BAR_CELLS = 10
MIN_CELLS_FOR_LONG_BAR = 110  # of a screen
MAX_DEVICES_CELLS = 60
"""Of the names of devices, which a file may make as long as it likes."""


def head(side: Side, width: int) -> str:
    """One line that says what is open: as many parts as fit."""
    return joined([printable(side.label), *parts(side.trace)], width)


@memo()
def parts(trace: Trace) -> list[str]:
    """About a trace, each in a few words: what makes the picture doubtful, the device,
    steps and times, and only then what is secret in the file, which changes nothing of
    the picture. About a part of a trace, says nothing that the rest could reverse."""
    is_whole = trace.report.prefix is None
    gpu_events = len(trace.gpu_rows)
    steps = len(steps_of(trace))
    secrets = secrets_of(trace)
    texts = [*_doubts(trace), _devices(trace)]
    if steps:
        texts.append(plural(steps, "step"))
    texts.append(duration(trace.span_ns))
    if gpu_events and is_whole:
        texts.append(_busy(trace))
    if secrets:
        texts.append(f"looks like a secret: {printable(several(secrets, 2))}")
    texts.append(plural(trace.recorded(), "slice"))
    if gpu_events:
        texts.append(plural(gpu_events, "GPU event"))
    elif is_whole:
        texts.append("no GPU events")
    return [text for text in texts if text]


def _devices(trace: Trace) -> str:
    """The names of the devices, each once; "" where none is known."""
    names = dict.fromkeys(printable(name) for name in device_names(trace))
    return clip(", ".join(names), MAX_DEVICES_CELLS, "...")


def _busy(trace: Trace) -> str:
    """How long the GPUs were busy. Without a share: the verdict and the diff tell that
    of a step, this is about all events."""
    devices = {track.pid for track in trace.tracks if track.layer is Layer.STREAM}
    busy = duration(gpu_times(trace).busy_ns)
    return f"GPU busy {busy}" if len(devices) < 2 else f"GPUs busy {busy} in all"


JOINED_BY = {
    CAPTURE: "replayed kernels as they were captured",
    ANNOTATIONS: "modules of replayed kernels by annotations",
}


def _doubts(trace: Trace) -> list[str]:
    """What to know before trusting the picture; "" where there is nothing to say."""
    report = trace.report
    doubts = []
    if note_of(trace):
        doubts.append("reconstructed, not recorded")
    doubts += _joins(trace)
    doubts.append(report.missing)
    if report.unreadable:
        doubts.append(f"{plural(report.unreadable, 'event')} unreadable")
    if report.left_out:
        rows = plural(sum(report.left_out.values()), "row")
        doubts.append(f"{rows} of other tables not shown")
    if report.remarks:
        doubts.append(report.remarks[0].rstrip("."))
    if report.negative_delays:
        kernels = plural(report.negative_delays, "kernel")
        doubts.append(f"{kernels} before the launch: clocks differ")
    return doubts


def _joins(trace: Trace) -> list[str]:
    """How names were given to kernels that graphs replay, each way once."""
    if not isinstance(trace, Joined):
        return []
    ways = [JOINED_BY[join.joined_by] for join in trace.joins if join.replays]
    return list(dict.fromkeys(ways))


def reading_line(reading: Reading, width: int, glyphs: Glyphs) -> str:
    """`reading big.json  ###.......  34 % of 1.007 GB`; and what is shown, once there
    are lanes."""
    if reading.stopping:
        return "stopping; what was read is kept"
    cells = BAR_CELLS if width >= MIN_CELLS_FOR_LONG_BAR else SHORT_BAR_CELLS
    full = cells * reading.done // max(1, reading.total)
    figures = ""
    if reading.total:
        figures = f"{percent(reading.done, reading.total)} of {size(reading.total)}"
    if reading.shown:
        figures += ", shown: what was read so far"
    bar = glyphs.full * full + "." * (cells - full)
    after_name = f"  {bar}  {figures}".rstrip()
    name = printable(Path(without_credentials(reading.path)).name)
    name_cells = max(8, width - len(after_name) - 8)
    return f"reading {clip(name, name_cells, glyphs.ellipsis)}{after_name}"


BETWEEN_CELLS = 1  # two tabs


class Tab(msgspec.Struct, frozen=True):
    """A page; `is_missing`: it cannot be shown now."""

    name: str
    key: str  # "" where the user took it away
    title: str
    short: str  # the title where there is little room
    is_here: bool
    is_missing: bool


def tabs_picture(tabs: tuple[Tab, ...]) -> TextPicture:
    """The names of all pages; where they do not fit, short ones, and at last of those
    not in front the keys alone."""

    def lines(width: int, height: int) -> list[list[Styled]]:
        parts: list[Styled] = []
        end_of_last = 0
        for place in _places(tabs, width):
            parts.append((" " * (place.cells.start - end_of_last), "plain"))
            parts.append((place.text, _token(place.tab)))
            end_of_last = place.cells.stop
        return [parts]

    return TextPicture(tabs, lines)


def _token(tab: Tab) -> str:
    """The style of a tab."""
    if tab.is_here:
        return "front"
    return "faint" if tab.is_missing else "plain"


def tab_at(tabs: tuple[Tab, ...], x: int, width: int) -> str:
    """The name of the page at a cell; "" beside them."""
    for place in _places(tabs, width):
        if x in place.cells:
            return place.tab.name
    return ""


class _TabPlace(NamedTuple):
    """What the bar of pages shows of a page, and in which cells."""

    tab: Tab
    text: str
    cells: range


def _places(tabs: tuple[Tab, ...], width: int) -> Iterator[_TabPlace]:
    """The tabs in `width` cells: in the longest form in which all of them fit."""
    texts = _texts(tabs, width)
    all_between = BETWEEN_CELLS * (len(texts) - 1)
    has_room = sum(map(len, texts)) + all_between <= width
    between = BETWEEN_CELLS if has_room else 0
    begin = 0
    for tab, text in zip(tabs, texts, strict=True):
        end = begin + len(text)
        yield _TabPlace(tab, text, range(begin, end))
        begin = end + between


def _texts(tabs: tuple[Tab, ...], width: int) -> list[str]:
    """The keys and titles of all pages, closer together or shorter where they would not
    fit; at last the keys alone, but for the page in front."""
    titles = [f"{tab.key} {tab.title}".strip() for tab in tabs]
    short_titles = [f"{tab.key} {tab.short}".strip() for tab in tabs]
    spacious = [f" {title} " for title in titles]
    close = [f" {title}" for title in titles]
    short = [f" {title}" for title in short_titles]
    short_beside_front = []
    for tab, long_text, short_text in zip(tabs, close, short, strict=True):
        short_beside_front.append(long_text if tab.is_here else short_text)
    for texts in (spacious, close, short_beside_front, short):
        if sum(map(len, texts)) <= width:
            return texts
    keys = []
    for tab, title in zip(tabs, titles, strict=True):
        keys.append(f" {title if tab.is_here or not tab.key else tab.key} ")
    return keys


def tour_picture(title: str, text: str, keys: str, rule: str) -> TextPicture:
    """A rule with the title of a step, and its text; `keys`: what else can be done."""

    def lines(width: int, height: int) -> Sequence[Sequence[Styled]]:
        """The rule, and the text on as many lines as it needs."""
        room = width - len(title) - 5
        after_title = f"  {keys} ".rjust(room, rule)
        shown: list[Sequence[Styled]] = [
            [(rule * 3, "faint"), (f" {title} ", "title"), (after_title, "faint")]
        ]
        for line in wrapped(text, width - MARGIN):
            shown.append(_with_keys_strong(f" {line}"))
        return shown

    return TextPicture((title, text, keys, rule), lines)


def _with_keys_strong(line: str) -> list[Styled]:
    """A line whose parts between backticks are strong."""
    parts: list[Styled] = []
    for number, part in enumerate(line.split("`")):
        is_between = number % 2 == 1
        parts.append((part, "strong" if is_between else "plain"))
    return parts
