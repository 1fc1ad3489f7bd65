"""How long a key press takes in the timeline: the movement, its frame, and the details beneath.

    python -P benchmarks/keys.py trace.json.gz [more traces]

Measured without a terminal: what Textual and the line to the terminal add is not in it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

from fusetui.tui.details import details, details_height
from fusetui.tui.glyphs import UNICODE
from fusetui.tui.moves import MOVES
from fusetui.tui.timeline import Timeline

from fusetui.tui.app import FusetuiApp, Options

SIZE = (200, 50)
LINES = details_height(SIZE[1]) - 1
WALK = {
    "zoom": [("zoom", (1, 2))] * 8 + [("zoom", (2, 1))] * 8,
    "pan": [("pan", (10,))] * 8 + [("pan", (-10,))] * 8,
    "next slice": [("next_slice", (1,))] * 12,
    "next line": [("next_line", (1,))] * 8 + [("next_line", (-1,))] * 8,
}


async def walk(path: str) -> list[str]:
    """A row of the table for each kind of key."""
    app = FusetuiApp(Options((path,)))
    rows: list[str] = []
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        timeline = app.query(Timeline).first()
        for kind, moves in WALK.items():
            times = [press(timeline, name, numbers) for name, numbers in moves]
            median, most = statistics.median(times), max(times)
            slices = len(timeline.side.trace)
            rows.append(f"| {Path(path).name} | {slices:,} | {kind} | {median:.1f} | {most:.1f} |")
    return rows


def press(timeline: Timeline, name: str, numbers: tuple[int, ...]) -> float:
    """Milliseconds from the key to the last line on the screen."""
    start = time.perf_counter()
    timeline.show(MOVES[name](timeline.side, timeline.view, *numbers))
    for y in range(timeline.size.height):
        timeline.render_line(y)
    if timeline.view.selected >= 0:
        details(timeline.side.trace, timeline.view.selected, SIZE[0], LINES, UNICODE)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    print("| trace | slices | key | median ms | most ms |")
    print("|---|---:|---|---:|---:|")
    for path in sys.argv[1:]:
        print("\n".join(asyncio.run(walk(path))))


if __name__ == "__main__":
    main()
