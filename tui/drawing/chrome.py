"""The head of the screen: what is open, or how much of it has been read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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

BAR = 30  # cells of the progress bar
DEVICES = 60  # cells of the names of devices, which a file may make as long as it likes
ROOMY = 110  # cells of a screen; with fewer, the bar is short


def head(side: Side, width: int) -> str:
    """One line that says what is open: as many parts as fit."""
    return joined([printable(side.label), *parts(side.trace)], width)


@memo()
def parts(trace: Trace) -> list[str]:
    """About a trace, each in a few words: what makes the picture doubtful, the device,
    steps and times, and only then what is secret in the file, which changes nothing of
    the picture. About a part of a trace, says nothing that the rest could reverse."""
    whole, on_gpu, found = (
        trace.report.prefix is None,
        len(trace.gpu_rows),
        steps_of(trace),
    )
    names = ", ".join(dict.fromkeys(printable(name) for name in device_names(trace)))
    secrets = secrets_of(trace)
    told = [
        *_doubts(trace),
        clip(names, DEVICES, "..."),
        plural(len(found), "step") if len(found) else "",
        duration(trace.span_ns),
        _busy(trace) if on_gpu and whole else "",
        f"looks like a secret: {printable(several(secrets, 2))}" if secrets else "",
        plural(trace.recorded(), "slice"),
        plural(on_gpu, "GPU event") if on_gpu else "no GPU events" * whole,
    ]
    return [part for part in told if part]


def _busy(trace: Trace) -> str:
    """Without a share: the verdict and the diff tell that of a step, this is about all
    events."""
    devices = {track.pid for track in trace.tracks if track.layer is Layer.STREAM}
    busy = duration(gpu_times(trace).busy_ns)
    return f"GPU busy {busy}" if len(devices) < 2 else f"GPUs busy {busy} in all"


JOINED_BY = {
    CAPTURE: "replayed kernels as they were captured",
    ANNOTATIONS: "modules of replayed kernels by annotations",
}


def _doubts(trace: Trace) -> list[str]:
    """What to know before trusting the picture."""
    report = trace.report
    joins = trace.joins if isinstance(trace, Joined) else ()
    early = plural(report.negative_delays, "kernel")
    others = plural(sum(report.left_out.values()), "row")
    return [
        "reconstructed, not recorded" if note_of(trace) else "",
        *dict.fromkeys(JOINED_BY[join.joined_by] for join in joins if join.replays),
        report.missing,
        f"{plural(report.unreadable, 'event')} unreadable" if report.unreadable else "",
        f"{others} of other tables not shown" if report.left_out else "",
        *(remark.rstrip(".") for remark in report.remarks[:1]),
        f"{early} before the launch: clocks differ" if report.negative_delays else "",
    ]


def reading_line(reading: Reading, width: int, glyphs: Glyphs) -> str:
    """`reading big.json  ###.......  34 % of 1.007 GB`; and what is shown, once there
    are lanes."""
    if reading.stopping:
        return "stopping; what was read is kept"
    done, total, cells = (
        reading.done,
        reading.total,
        BAR if width >= ROOMY else BAR // 3,
    )
    full = cells * done // max(1, total)
    figures = f"{percent(done, total)} of {size(total)}" if total else ""
    said = f"{figures}, shown: what was read so far" if reading.shown else figures
    bar = f"  {glyphs.full * full}{'.' * (cells - full)}  {said}".rstrip()
    name = printable(Path(without_credentials(reading.path)).name)
    return f"reading {clip(name, max(8, width - len(bar) - 8), glyphs.ellipsis)}{bar}"


BETWEEN = 1  # cells


class Tab(msgspec.Struct, frozen=True):
    """A page; `is_missing`: it cannot be shown now."""

    name: str
    text: str
    is_here: bool
    is_missing: bool


def tabs_picture(tabs: tuple[Tab, ...]) -> TextPicture:
    """The names of all pages; where they do not fit, of those not in front the keys
    alone."""

    def lines(width: int, height: int) -> list[list[Styled]]:
        parts: list[Styled] = []
        used = 0
        for tab, text, cells in _places(tabs, width):
            token = "front" if tab.is_here else "faint" if tab.is_missing else "plain"
            parts += [(" " * (cells.start - used), "plain"), (text, token)]
            used = cells.stop
        return [parts]

    return TextPicture(tabs, lines)


def tab_at(tabs: tuple[Tab, ...], x: int, width: int) -> str:
    """The name of the page at a cell; "" beside them."""
    return next((tab.name for tab, _, cells in _places(tabs, width) if x in cells), "")


def _places(tabs: tuple[Tab, ...], width: int) -> Iterator[tuple[Tab, str, range]]:
    """Without room between them where they would not fit."""
    texts = [f" {tab.text} " for tab in tabs]
    if len("".join(texts)) > width:
        texts = [
            f" {tab.text if tab.is_here else tab.text.split()[0]} " for tab in tabs
        ]
    begin, between = 0, BETWEEN * (len("".join(texts)) + len(texts) - 1 <= width)
    for tab, text in zip(tabs, texts, strict=True):
        yield tab, text, range(begin, begin + len(text))
        begin += len(text) + between


def tour_picture(title: str, text: str, keys: str, rule: str) -> TextPicture:
    """A rule with the title of a step, and its text; `keys`: what else can be done."""

    def lines(width: int, height: int) -> Iterator[Sequence[Styled]]:
        after = f"  {keys} ".rjust(width - len(title) - 5, rule)
        yield [(rule * 3, "faint"), (f" {title} ", "title"), (after, "faint")]
        for line in wrapped(text, width - MARGIN):
            texts = f" {line}".split("`")
            yield [
                (part, "strong" if at % 2 else "plain") for at, part in enumerate(texts)
            ]

    return TextPicture((title, text, keys, rule), lambda *size: [*lines(*size)])
