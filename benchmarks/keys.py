"""How long a key press takes in the timeline: the action, its frame, and the details below.

    python -P benchmarks/keys.py trace.json.gz [more traces]

Measured without a terminal: the time in Textual and on the way to the terminal is not included.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

from textual.geometry import Region

from fusetui.tui.app import FusetuiApp, Options
from fusetui.tui.drawing.canvas import Canvas
from fusetui.tui.registry import ACTIONS

SIZE = (200, 50)
BY_NAME = {action.name: action for action in ACTIONS}
WALK = {
    "zoom": ["zoom-in"] * 8 + ["zoom-out"] * 8,
    "pan": ["pan-right"] * 8 + ["pan-left"] * 8,
    "next slice": ["next"] * 12,
    "next line": ["down"] * 8 + ["up"] * 8,
}


async def walk(path: str) -> list[str]:
    """A row of the table for each kind of key."""
    app = FusetuiApp(Options((path,)))
    rows: list[str] = []
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        for kind, names in WALK.items():
            times = [press(app, name) for name in names]
            median, most = statistics.median(times), max(times)
            slices = len(app.state.side.trace)
            rows.append(f"| {Path(path).name} | {slices:,} | {kind} | {median:.1f} | {most:.1f} |")
    return rows


def press(app: FusetuiApp, name: str) -> float:
    """Milliseconds from the key to the last line on the screen."""
    canvas = app.query_one(Canvas)
    start = time.perf_counter()
    app.act(BY_NAME[name])
    canvas.render_lines(Region(0, 0, *SIZE))
    return (time.perf_counter() - start) * 1000


def main() -> None:
    print("| trace | slices | key | median ms | most ms |")
    print("|---|---:|---|---:|---:|")
    for path in sys.argv[1:]:
        print("\n".join(asyncio.run(walk(path))))


if __name__ == "__main__":
    main()
