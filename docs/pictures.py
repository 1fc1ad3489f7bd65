"""Draws the pictures of the README and the docs: pages of the app on the traces that
ship with it.

make pictures
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from fusetui.commands.sources import LESSON, one_trace
from fusetui.trace import open_trace
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.pictures import drawn, shown
from fusetui.tui.state.state import Size
from fusetui.tui.state.tour import LESSONS, STEPS

FOLDER = Path(__file__).parent / "pictures"
EAGER, COMPILED = (LESSON + name for name in LESSONS)


class Page(NamedTuple):
    """A page of the app, as `fusetui picture` draws it; `size` is in columns and
    lines."""

    traces: tuple[str, ...]
    page: str
    size: tuple[int, int]


PAGE_SIZE = (118, 30)
TOUR_SIZE = (118, 32)  # two lines more, for the instruction
PAGES = {
    "timeline": Page(traces=(EAGER,), page="timeline", size=PAGE_SIZE),
    "diff": Page(traces=(EAGER, COMPILED), page="diff", size=PAGE_SIZE),
}
"""By the first part of the file's name."""


def pages() -> Iterator[tuple[str, str]]:
    """(name of the file, SVG) of each page, on black and on white."""
    for name, (traces, page, size) in PAGES.items():
        opened = [open_trace(one_trace(trace), cached=False) for trace in traces]
        state = shown(opened, traces, page, Size(*size))
        title = f"The {page} of a lesson"
        yield f"{name}-dark.svg", drawn(state, light=False, title=title)
        yield f"{name}-light.svg", drawn(state, light=True, title=title)


async def tour(keys: Sequence[str], title: str) -> str:
    """The SVG of the whole screen after these keys, on the traces of the tour."""
    paths = (one_trace(EAGER), one_trace(COMPILED))
    app = FusetuiApp(AppOptions(paths, 1))
    async with app.run_test(size=TOUR_SIZE) as pilot:
        await _wait_for_workers(app, pilot)
        for key in keys:
            await pilot.press(key)
            await _wait_for_workers(app, pilot)
        return drawn(app.state, light=False, title=title, whole=True)


async def _wait_for_workers(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Twice, because the diff begins when the traces have been read."""
    for _ in range(2):
        await app.workers.wait_for_complete()
        await pilot.pause()


def main() -> None:
    os.environ |= {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "FUSETUI_KEPT": "off",
    }
    FOLDER.mkdir(exist_ok=True)

    for name, svg in pages():
        (FOLDER / name).write_text(svg, encoding="utf-8")

    keys: list[str] = []  # of all steps so far
    for number, step in enumerate(STEPS, 1):
        keys += step.keys
        if step.picture:
            svg = asyncio.run(tour(keys, f"The guided tour: {step.title}"))
            (FOLDER / f"tour-{number}.svg").write_text(svg, encoding="utf-8")
        keys.append("greater_than_sign")


if __name__ == "__main__":
    main()
