"""The heading of the screen: the open traces, or the progress of reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fusetui.analysis.questions.busy import measure_gpu_times
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
from fusetui.tui.drawing.picture import TextPicture
from fusetui.tui.drawing.schemes import Glyphs, Styled
from fusetui.tui.layout.text_layout import wrap_marked_text
from fusetui.tui.layout.view import Side
from fusetui.tui.state.state import Reading
from fusetui.tui.state.tour import MARGIN

BAR_CELLS = 30
SHORT_BAR_CELLS = 10
MIN_CELLS_FOR_LONG_BAR = 110  # of a screen
MAX_DEVICES_CELLS = 60
"""Of the names of devices, which a file may make as long as it likes."""


def head(side: Side, width: int) -> str:
    """Return the line that names an open trace and its main facts: as many as fit in
    `width` cells."""
    return joined([printable(side.label), *parts(side.trace)], width)


@memo()
def parts(trace: Trace) -> list[str]:
    """Return short facts about a trace, the most important first.

    First comes what makes the picture unreliable, then the devices, steps and times.
    Possible secrets in the file and the numbers of events come last. If only a part of
    the trace has been read, facts that the rest could change are left out.
    """
    from fusetui.trace.scrub.detect import secrets_of  # not before a trace is there

    is_whole = trace.report.prefix is None
    gpu_events = len(trace.gpu_rows)
    steps = len(steps_of(trace))
    secrets = secrets_of(trace)
    facts = [*_list_doubts(trace), _name_devices(trace)]
    if steps:
        facts.append(plural(steps, "step"))
    facts.append(duration(trace.span_ns))
    if gpu_events and is_whole:
        facts.append(_describe_busy_time(trace))
    if secrets:
        facts.append(f"looks like a secret: {printable(several(secrets, 2))}")
    facts.append(plural(trace.recorded(), "slice"))
    if gpu_events:
        facts.append(plural(gpu_events, "GPU event"))
    elif is_whole:
        facts.append("no GPU events")
    return [text for text in facts if text]


def _name_devices(trace: Trace) -> str:
    """Return the names of the devices of a trace, each once, cut to MAX_DEVICES_CELLS.
    "" if none is recorded."""
    names = dict.fromkeys(printable(name) for name in device_names(trace))
    return clip(", ".join(names), MAX_DEVICES_CELLS, "...")


def _describe_busy_time(trace: Trace) -> str:
    """Return how long the GPUs of a trace were busy. No percentage is given, because
    other pages give that of a single step, and the two would differ."""
    devices = {track.pid for track in trace.tracks if track.layer is Layer.STREAM}
    busy = duration(measure_gpu_times(trace).busy_ns)
    return f"GPU busy {busy}" if len(devices) < 2 else f"GPUs busy {busy} in all"


JOINED_BY = {
    CAPTURE: "kernels of graphs as captured",
    ANNOTATIONS: "modules of graph kernels from annotations",
}


def _list_doubts(trace: Trace) -> list[str]:
    """Return short warnings about a trace, such as missing or unreadable events. Texts
    may be "", which callers leave out."""
    report = trace.report
    doubts = []
    if note_of(trace):
        doubts.append("reconstructed, not recorded")
    doubts += _describe_joins(trace)
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


def _describe_joins(trace: Trace) -> list[str]:
    """Return how the kernels of replayed CUDA graphs got their names, each way once.
    The list is empty if nothing was joined with the trace."""
    if not isinstance(trace, Joined):
        return []
    ways = [JOINED_BY[join.joined_by] for join in trace.joins if join.replays]
    return list(dict.fromkeys(ways))


def format_progress(reading: Reading, width: int, glyphs: Glyphs) -> str:
    """Return one line with the progress of reading a file.

        reading big.json  ###.......  34 % of 1.007 GB

    It also says whether the part read so far is on the screen. The name is cut to leave
    room for the rest, but not below 8 cells. While a person stops the reading, it says
    that what was read is kept.
    """
    if reading.stopping:
        return "stopping; what was read is kept"
    bar_cells = BAR_CELLS if width >= MIN_CELLS_FOR_LONG_BAR else SHORT_BAR_CELLS
    full_cells = bar_cells * reading.done // max(1, reading.total)
    figures = ""
    if reading.total:
        figures = f"{percent(reading.done, reading.total)} of {size(reading.total)}"
    if reading.shown:
        figures += ", shown: what was read so far"
    bar = glyphs.full * full_cells + "." * (bar_cells - full_cells)
    after_name = f"  {bar}  {figures}".rstrip()
    name = printable(Path(without_credentials(reading.path)).name)
    # 8 cells for the word `reading` and the blank after it
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


def make_tab_bar(tabs: tuple[Tab, ...]) -> TextPicture:
    """Return the bar with the names of all pages, that of the current page highlighted.
    Names are shortened, or replaced by their keys, if they do not all fit."""

    def lines(width: int, height: int) -> list[list[Styled]]:
        parts: list[Styled] = []
        end_of_last = 0
        for place in _lay_out_tabs(tabs, width):
            parts.append((" " * (place.cells.start - end_of_last), "plain"))
            parts.append((place.text, _choose_tab_style(place.tab)))
            end_of_last = place.cells.stop
        return [parts]

    return TextPicture(tabs, lines)


def _choose_tab_style(tab: Tab) -> str:
    """Return the style of a tab: highlighted for the current page, faint for a page
    that cannot be shown now."""
    if tab.is_here:
        return "front"
    return "faint" if tab.is_missing else "plain"


def find_tab(tabs: tuple[Tab, ...], x: int, width: int) -> str:
    """Return the name of the page whose tab is at column `x` of a bar of `width` cells;
    "" if there is none."""
    for place in _lay_out_tabs(tabs, width):
        if x in place.cells:
            return place.tab.name
    return ""


class _TabPlace(NamedTuple):
    """What the bar of pages shows of a page, and in which cells."""

    tab: Tab
    text: str
    cells: range


def _lay_out_tabs(tabs: tuple[Tab, ...], width: int) -> Iterator[_TabPlace]:
    """Generate the position and text of each tab in a bar of `width` cells, from left
    to right. Tabs are BETWEEN_CELLS apart if that fits, else directly beside each
    other."""
    texts = _choose_tab_texts(tabs, width)
    gap_cells = BETWEEN_CELLS * (len(texts) - 1)
    has_room = sum(map(len, texts)) + gap_cells <= width
    cells_between = BETWEEN_CELLS if has_room else 0
    begin = 0
    for tab, text in zip(tabs, texts, strict=True):
        end = begin + len(text)
        yield _TabPlace(tab, text, range(begin, end))
        begin = end + cells_between


def _choose_tab_texts(tabs: tuple[Tab, ...], width: int) -> list[str]:
    """Return the texts of all tabs, in the longest form that fits in `width` cells
    together.

    These are tried in turn: titles with more space, titles, short titles except for the
    current page, and short titles. If none fits, only the current page keeps its title,
    and the others are shown by their keys.
    """
    spacious = []
    close = []
    short_beside_current = []
    short = []
    keys_beside_current = []
    for tab in tabs:
        title = f"{tab.key} {tab.title}".strip()
        short_title = f"{tab.key} {tab.short}".strip()
        spacious.append(f" {title} ")
        close.append(f" {title}")
        short_beside_current.append(f" {title if tab.is_here else short_title}")
        short.append(f" {short_title}")
        # a page without a key keeps its title, too
        keeps_title = tab.is_here or not tab.key
        keys_beside_current.append(f" {title if keeps_title else tab.key} ")
    for texts in (spacious, close, short_beside_current, short):
        if sum(map(len, texts)) <= width:
            return texts
    return keys_beside_current


def make_tour_picture(title: str, text: str, keys: str, rule: str) -> TextPicture:
    """Make the picture of a step of the guided tour: a rule with its title and keys,
    and its text below.

    Args:
        title: The title of the step.
        text: The text, which is wrapped; parts between backticks are emphasized.
        keys: The keys that can be pressed, at the right end of the rule.
        rule: The character of the rule.
    """

    def lines(width: int, height: int) -> Sequence[Sequence[Styled]]:
        """The rule, and the text on as many lines as it needs."""
        # 5 cells for the rule before the title and the blanks around it
        room = width - len(title) - 5
        after_title = f"  {keys} ".rjust(room, rule)
        tour_lines: list[Sequence[Styled]] = [
            [(rule * 3, "faint"), (f" {title} ", "title"), (after_title, "faint")]
        ]
        for line in wrap_marked_text(text, width - MARGIN):
            tour_lines.append(_emphasize_keys(f" {line}"))
        return tour_lines

    return TextPicture((title, text, keys, rule), lines)


def _emphasize_keys(line: str) -> list[Styled]:
    """Return a line as texts with styles, in which the parts between backticks are
    strong. The backticks themselves are left out."""
    parts: list[Styled] = []
    for number, part in enumerate(line.split("`")):
        is_between = number % 2 == 1
        parts.append((part, "strong" if is_between else "plain"))
    return parts
