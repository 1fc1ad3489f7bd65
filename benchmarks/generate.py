"""Makes a trace of any size from a real one by repeating its events later, with new
ids.

    python -P benchmarks/generate.py trace.json.gz big.json --megabytes 1000

The text of the events is kept as the profiler wrote it, digit for digit, except for the
integer part of the microseconds of each start, and for the ids.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from fusetui.trace.read.body import find_body
from fusetui.trace.read.mend import Joiner
from fusetui.trace.read.source import open_source

NUMBER = re.compile(rb'"(ts|correlation|External id|id|Ev Idx)": ?(\d+)')
PLENTY = 10  # the gap between copies, in us


def generate(source: Path, target: Path, size: int) -> int:
    """Writes at least `size` bytes; returns the number of copies."""
    opened = open_source(str(source))
    body = find_body(opened)
    *_, last = Joiner().ordered(opened.document, body.start)
    after = last.after
    events = opened.document[body.start : after - 1].rstrip(b" \r\n\t,")
    literals, numbers, steps = _template(events)
    copies = 0
    with target.open("wb") as out:
        out.write(opened.document[: body.start])
        while out.tell() < size:
            out.write(b"," * bool(copies))
            out.writelines(_copy(literals, numbers, steps, copies))
            copies += 1
        out.write(opened.document[after - 1 :])
    return copies


def _template(events: bytes) -> tuple[list[bytes], list[int], list[int]]:
    """The text between the numbers, the numbers, and how much each grows per copy."""
    literals: list[bytes] = []
    numbers: list[int] = []
    keys: list[bytes] = []
    at = 0
    for found in NUMBER.finditer(events):
        literals.append(events[at : found.start(2)])
        numbers.append(int(found[2]))
        keys.append(found[1])
        at = found.end()
    literals.append(events[at:])
    times = [n for n, key in zip(numbers, keys, strict=True) if key == b"ts"]
    span = max(times) - min(times) + PLENTY
    ids = (
        max(
            (n for n, key in zip(numbers, keys, strict=True) if key != b"ts"), default=0
        )
        + 1
    )
    return literals, numbers, [span if key == b"ts" else ids for key in keys]


def _copy(
    literals: Sequence[bytes], numbers: Sequence[int], steps: Sequence[int], copy: int
) -> Iterator[bytes]:
    for literal, number, step in zip(literals, numbers, steps, strict=False):
        yield literal
        yield b"%d" % (number + step * copy)
    yield literals[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=int, default=250)
    args = parser.parse_args()
    copies = generate(args.source, args.target, args.megabytes * 1_000_000)
    print(f"{args.target}: {copies} copies, {args.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
