"""Makes a trace of any size from a real one by repeating its events later, with new
ids.

    python -P benchmarks/generate.py trace.json.gz big.json --megabytes 1000

The text of the events is kept as the profiler wrote it, digit for digit, except for the
integer part of the microseconds of each start, and for the ids.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fusetui.trace.read.body import find_body
from fusetui.trace.read.damaged import ChunkStitcher
from fusetui.trace.read.source import open_source

NUMBER = re.compile(rb'"(ts|correlation|External id|id|Ev Idx)": ?(\d+)')
GAP_US = 10  # between copies


class _Template(NamedTuple):
    """The text of the events, divided at the numbers that a copy changes: a literal, a
    number, a literal ... and a literal at the end. Each copy adds to a number what it
    `grows` by."""

    literals: list[bytes]
    numbers: list[int]
    grows: list[int]


def generate(source: Path, target: Path, size: int) -> int:
    """Write a trace of at least `size` bytes that repeats the events of `source`, and
    return the number of copies."""
    opened = open_source(str(source))
    document = opened.document
    body = find_body(opened)
    *_, last_chunk = ChunkStitcher().ordered(document, body.start)
    events_end = last_chunk.after - 1  # where the bracket of the list is
    events = document[body.start : events_end].rstrip(b" \r\n\t,")

    template = _make_template(events)
    copies = 0
    with target.open("wb") as out:
        out.write(document[: body.start])
        while out.tell() < size:
            if copies:
                out.write(b",")
            out.writelines(_make_copy(template, copies))
            copies += 1
        out.write(document[events_end:])

    return copies


def _make_template(events: bytes) -> _Template:
    """Return the text of the events, divided at the numbers that a copy changes. Times
    grow by the span of the trace and GAP_US, and ids by the largest id and 1."""
    literals: list[bytes] = []
    numbers: list[int] = []

    is_time: list[bool] = []
    literal_begin = 0
    for match in NUMBER.finditer(events):
        literals.append(events[literal_begin : match.start(2)])
        numbers.append(int(match[2]))
        is_time.append(match[1] == b"ts")
        literal_begin = match.end()

    literals.append(events[literal_begin:])
    times = [number for number, time in zip(numbers, is_time, strict=True) if time]
    ids = [number for number, time in zip(numbers, is_time, strict=True) if not time]
    times_grow = max(times) - min(times) + GAP_US
    ids_grow = max(ids, default=0) + 1

    return _Template(
        literals=literals,
        numbers=numbers,
        grows=[times_grow if time else ids_grow for time in is_time],
    )


def _make_copy(template: _Template, copy: int) -> Iterator[bytes]:
    """Yield the text of copy number `copy`, counted from 0, in pieces."""
    *literals, last_literal = template.literals
    for literal, number, grows in zip(
        literals, template.numbers, template.grows, strict=True
    ):
        yield literal
        yield b"%d" % (number + grows * copy)
    yield last_literal


def main() -> None:
    """Write the larger trace that the command line asks for, and print its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--megabytes", type=int, default=250)
    args = parser.parse_args()
    copies = generate(args.source, args.target, args.megabytes * 1_000_000)
    print(f"{args.target}: {copies} copies, {args.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
