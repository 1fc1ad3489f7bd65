"""Draws the pictures of the README and the docs: the real app on the traces that ship with it.

make pictures
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path

from fusetui.sample_traces import path
from fusetui.tui.app import FusetuiApp, Options

FOLDER = Path(__file__).parent / "pictures"
SIZE = (118, 32)
FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # removed: it loads fonts from the web

PICTURES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "timeline": (["mlp-eager"], ["slash", *"gelu", "enter", "z", "s"]),
    "diff": (["mlp-eager", "mlp-compiled"], ["g"]),
    "tree": (["mlp-eager"], ["2", "j", "space", "j", "j", "space"]),
}


async def draw(name: str, samples: Sequence[str], keys: Sequence[str]) -> None:
    """Opens samples, presses keys, and saves the screen as an SVG."""
    app = FusetuiApp(Options(tuple(str(path(sample)) for sample in samples)))
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(2):  # the traces, then their diff
            await app.workers.wait_for_complete()
            await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        opened = " ".join(f"sample:{sample}" for sample in samples)
        svg = app.export_screenshot(title=f"fusetui open {opened}")
    unique = re.search(r"terminal-(\d+)", svg)
    if unique:
        svg = svg.replace(unique[0], "terminal")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.svg").write_text(FONT_FACE.sub("", svg), encoding="utf-8")


def main() -> None:
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name, (samples, keys) in PICTURES.items():
        asyncio.run(draw(name, samples, keys))
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
