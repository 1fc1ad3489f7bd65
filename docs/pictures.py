"""Draws the pictures of the README and the docs: the real app on the traces that ship with it.

make pictures
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from textual.pilot import Pilot

from fusetui.commands.sources import LESSON, one_trace
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.state.tour import LESSONS, STEPS

FOLDER = Path(__file__).parent / "pictures"
SIZE = (118, 32)
FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # removed: it loads fonts from the web

EAGER, COMPILED = (LESSON + name for name in LESSONS)


class Picture(NamedTuple):
    """What is opened, of these how many at once, and the keys that are pressed then."""

    traces: Sequence[str]
    keys: Sequence[str]
    opened: int = 2


PICTURES = {"diff": Picture([EAGER, COMPILED], ["g"])}


def tour() -> Iterator[tuple[str, Picture]]:
    """Where the steps of the guided tour lead to."""
    for number, step in enumerate(STEPS, 1):
        keys = [key for before in STEPS[:number] for key in before.keys]
        if step.picture:
            yield f"tour-{number}", Picture([EAGER, COMPILED], keys, opened=1)


async def draw(name: str, picture: Picture) -> None:
    """Opens traces, presses keys, and saves the screen as an SVG."""
    paths = tuple(map(one_trace, picture.traces))
    app = FusetuiApp(AppOptions(paths, picture.opened))
    async with app.run_test(size=SIZE) as pilot:
        await _settled(app, pilot)
        for key in picture.keys:
            await pilot.press(key)
            await _settled(app, pilot)
        opened = " ".join(picture.traces[: picture.opened])
        svg = app.export_screenshot(title=f"fusetui open {opened}")
    unique = re.search(r"terminal-(\d+)", svg)
    if unique:
        svg = svg.replace(unique[0], "terminal")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(FONT_FACE.sub("", svg), encoding="utf-8")


async def _settled(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Until no thread works any more: on the traces, then on their diff."""
    for _ in range(2):
        await app.workers.wait_for_complete()
        await pilot.pause()


def main() -> None:
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name, picture in {**PICTURES, **dict(tour())}.items():
        asyncio.run(draw(name, picture))
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
