"""How long a key press takes in the timeline, or on the page of a memory snapshot: the
action, its frame, and the details below.

    python -P benchmarks/keys.py [--put] trace.json.gz [more traces] [snapshot.pickle]

Measured without a terminal: the time in Textual and on the way to the terminal is not
included.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path

from textual.geometry import Region

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.drawing.canvas import Canvas
from fusetui.tui.registry import ACTIONS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SIZE = (200, 50)
BY_NAME = {action.name: action for action in ACTIONS}
WALK = {
    "zoom": ["zoom-in"] * 8 + ["zoom-out"] * 8,
    "pan": ["pan-right"] * 8 + ["pan-left"] * 8,
    "next slice": ["next"] * 12,
    "next line": ["down"] * 8 + ["up"] * 8,
}
OF_MEMORY = {
    "zoom": ["memory-in"] * 8 + ["memory-out"] * 8,
    "pan": ["memory-in"] * 2 + ["memory-right"] * 8 + ["memory-left"] * 8,
    "next moment": ["memory-before"] * 12,
    "next event": ["memory-later"] * 12,
    "next row": ["row-down"] * 8 + ["row-up"] * 8,
    "open a row": ["memory-turn", "row-down"] * 4,
    "map, next event": ["memory-map"] + ["memory-later"] * 12,
}


async def walk(path: str) -> list[str]:
    """Return a row of the table for each kind of key, measured in the app with one
    file."""
    is_trace = not path.endswith(".pickle")

    app = FusetuiApp(
        AppOptions((path,) if is_trace else (), memory=() if is_trace else (path,))
    )
    rows: list[str] = []
    async with app.run_test(size=SIZE) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        for kind, names in (WALK if is_trace else OF_MEMORY).items():
            times = [press(app, name) for name in names]
            median, most = statistics.median(times), max(times)
            rows.append(
                f"| {Path(path).name} | {size(app):,} | {kind} | {median:.1f} | {most:.1f} |"
            )

    return rows


def size(app: FusetuiApp) -> int:
    """Return the number of slices of the trace, or of events of the memory snapshot."""
    if memory := app.state.memory:
        return len(memory.moments(0).history.events)
    return len(app.state.side.trace)


def press(app: FusetuiApp, name: str) -> float:
    """Return the milliseconds from a key to the last line on the screen, without the
    terminal."""
    canvas = app.query_one(Canvas)
    start = time.perf_counter()
    app.act(BY_NAME[name])
    canvas.render_lines(Region(0, 0, *SIZE))
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Measure all kinds of keys in each file, and print the table; with --put it is put
    into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+")
    parser.add_argument(
        "--put", action="store_true", help="put the table into docs/benchmarks.md"
    )

    args = parser.parse_args()
    lines = [
        "| file | slices or events | key | median ms | most ms |",
        "|---|---:|---|---:|---:|",
    ]
    for path in args.traces:
        lines += asyncio.run(walk(path))

    text = "\n".join(lines)
    print(text)

    if args.put:
        put(PAGE, "keys", text, __file__)


if __name__ == "__main__":
    main()
