"""Draws the pictures of the README and the docs: pages of the app on the traces that
ship with it.

make pictures
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
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
    """A page that `fusetui picture` draws of these traces in so many columns and
    lines."""

    traces: tuple[str, ...]
    page: str
    size: tuple[int, int]


PAGES = {
    "timeline": Page((EAGER,), "timeline", (118, 30)),
    "diff": Page((EAGER, COMPILED), "diff", (118, 30)),
}


def pages() -> Iterator[tuple[str, str]]:
    """The names of the files, and what they hold: each page on black and on white."""
    for name, (traces, page, size) in PAGES.items():
        opened = [open_trace(one_trace(trace), cached=False) for trace in traces]
        state = shown(opened, traces, page, Size(*size))
        for theme in ("dark", "light"):
            yield (
                f"{name}-{theme}.svg",
                drawn(state, theme == "light", f"The {page} of a lesson"),
            )


async def tour(keys: list[str], title: str) -> str:
    """The screen after these keys."""
    paths = (one_trace(EAGER), one_trace(COMPILED))
    app = FusetuiApp(AppOptions(paths, 1))
    async with app.run_test(size=(118, 32)) as pilot:
        await _settled(app, pilot)
        for key in keys:
            await pilot.press(key)
            await _settled(app, pilot)
        return drawn(app.state, light=False, title=title, whole=True)


async def _settled(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Until no thread works any more: on the traces, then on their diff."""
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
    for number, step in enumerate(STEPS, 1):
        if step.picture:
            keys = [key for before in STEPS[:number] for key in before.keys]
            svg = asyncio.run(tour(keys, f"The guided tour: {step.title}"))
            (FOLDER / f"tour-{number}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
