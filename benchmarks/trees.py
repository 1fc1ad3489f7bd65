"""How long a key takes in the op tree of a large trace, every node of it open.

    python -P benchmarks/generate.py trace.json.gz big.json --megabytes 800
    python -P benchmarks/trees.py big.json [--write docs/benchmarks.md]

Of each key: the change of the state and all lines of the new screen, of 200x50 cells,
without a terminal. The tree itself is made once, beside the app.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from benchmarks.pages import put

from fusetui.text.figures import count
from fusetui.trace import open_trace
from fusetui.tui import screen_layout
from fusetui.tui.layout.op_tree import build_op_tree
from fusetui.tui.layout.view import make_sides
from fusetui.tui.pages.tree import MAKERS, TREE
from fusetui.tui.registry import BY_ACTION, arrived, settle_state
from fusetui.tui.state.action import perform
from fusetui.tui.state.state import Outcome, Size, State

SIZE = Size(200, 50)
TIMES = 9
KEYS = {
    "next row": ("row-down",),
    "next page of rows": ("rows-down",),
    "last row, first row": ("last", "first"),
    "close a thread, open it": ("first", "turn"),
    "close an op, open it": ("row-down", "turn"),
    "merge by call path, from the ops up, not at all": ("tree-mode",),
    "sort what is merged": ("tree-sort-right",),
}


def after(state: State, *names: str) -> State:
    """Return the state of the app after these actions, one after the other."""
    for name in names:
        outcome: Outcome = perform(BY_ACTION[name], state)
        state = settle_state(
            state, outcome[0] if isinstance(outcome, tuple) else outcome
        )
    return state


def draw(state: State) -> None:
    """Draw all lines of the screen, and drop them."""
    picture = screen_layout.stack(screen_layout.panes(state))
    for y in range(SIZE.height):
        picture.line(y, SIZE.width, SIZE.height)


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def opened(path: str) -> State:
    """Return the state of the app with the op tree in front, where nothing is merged
    and everything is open."""
    sides = make_sides([open_trace(path)], ["trace"])
    for make in MAKERS.values():
        make(sides[0].trace)
    state = arrived(State(size=SIZE, paths=(path,), wanted=(path,)), sides)
    state = state[0] if isinstance(state, tuple) else state
    state = after(state, "tree", "tree-mode", "tree-mode")
    return TREE.with_nodes(
        state, np.ones(len(build_op_tree(sides[0].trace)), dtype=np.bool_)
    )


def measured(state: State, keys: Sequence[str]) -> list[float]:
    """Return the seconds of the last of the keys with its new screen, TIMES times. The
    keys before it are pressed each time, but not measured."""
    *before, last = keys
    found = []
    for _ in range(TIMES):
        state = after(state, *before)

        def press() -> None:
            nonlocal state
            state = after(state, last)
            draw(state)

        found.append(seconds(press))

    return found


def table(path: str) -> str:
    """Return the Markdown table of all keys, with the number of nodes above it."""
    start = opened(path)
    tree = build_op_tree(start.side.trace)
    lines = [f"{count(len(tree))} nodes, all open; {TIMES} times each", ""]
    lines += ["| key | median ms | most ms |", "|---|---:|---:|"]
    for what, keys in KEYS.items():
        ms = [1000 * one for one in measured(start, keys)]
        lines.append(f"| {what} | {statistics.median(ms):.1f} | {max(ms):.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all keys in the op tree of a trace, and print the table; with --write it
    is put into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    parser.add_argument("--write", type=Path, help="the page that has the table")
    args = parser.parse_args()
    text = table(args.trace)
    print(text)
    if args.write:
        put(args.write, "trees", text, __file__)


if __name__ == "__main__":
    main()
