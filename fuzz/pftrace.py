"""The kind of inputs that are .pftrace files: as torch writes them, hostile ones, and
damaged."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from fuzz.campaign import Kind
from fuzz.checks import check, check_trace
from fuzz.commands import answer
from fuzz.damage import cut
from fuzz.limits import check_memory, limited
from fuzz.packing import packed
from fuzz.zip import opened
from tests import pftraces
from tests.hostile import PAYLOADS
from tests.pftraces import NAMES, Field, arg, at, packet, varint

from fusetui.trace import Trace
from fusetui.trace.convert import convert_file
from fusetui.trace.formats import format_of

COMMANDS = ("summary", "why", "kernels", "ops", "gaps", "modules", "launches")
HUGE = (1 << 63, (1 << 64) - 1, 1 << 40, 1 << 31, 1 << 61, 0)
TEXTS = tuple(text.encode("utf-8", "replace").decode() for text in PAYLOADS.values())
LATEST = 2**61  # ns since the epoch


def trace(seed: int, number: int) -> bytes:
    """Always the same for the same numbers."""
    rnd = Random(f"pftrace {seed}/{number}")
    parts = [*pftraces.head(), *_groups(rnd), *_gpu(rnd)]
    if rnd.random() < 0.3:
        for _ in range(rnd.choice((1, 1, 3))):
            parts.insert(rnd.randrange(1, len(parts) + 1), rnd.choice(HOSTILE)(rnd))
    data = b"".join(parts)
    for _ in range(rnd.choice((0, 1, 1, 1, 2, 4))):
        data = data[:60] + rnd.choice(CHANGES)(data[60:], rnd)
    return packed(data, rnd) if rnd.random() < 0.2 else data


def _groups(rnd: Random) -> Iterator[bytes]:
    for kind in rnd.sample(
        (pftraces.OP, pftraces.CALL, pftraces.NOTE), rnd.randrange(4)
    ):
        yield from pftraces.group(
            [_slice(rnd, kind) for _ in range(rnd.choice((1, 2, 5, 30)))]
        )


def _slice(rnd: Random, kind: list[Field]) -> pftraces.Slice:
    begin, number = rnd.randrange(1000) * 100, rnd.randrange(9)
    args: list[Field] = [
        arg("External id", (4, number)),
        arg("Input Dims", (12, [(12, [(4, 2)])]), (12, [])),
        arg("correlation", (4, number)),
        arg(
            "x",
            rnd.choice(((5, 0.5), (5, float("nan")), (6, rnd.choice(TEXTS)), (2, 1))),
        ),
    ]
    chosen = rnd.sample(args, rnd.randrange(4))
    track = rnd.choice((pftraces.THREAD, pftraces.THREAD, pftraces.OTHER, 99))
    return begin, begin + rnd.choice((0, 100, 1000, -5)), track, [*kind, *chosen]


def _gpu(rnd: Random) -> Iterator[bytes]:
    for number in range(rnd.choice((0, 1, 5, 30))):
        extras = [("correlation", str(rnd.randrange(9))), ("device id", "0")][
            : rnd.randrange(3)
        ]
        if rnd.random() < 0.2:
            extras.append(
                (rnd.choice(("correlation", "stream id", "x")), rnd.choice(TEXTS))
            )
        launch: Field = (21, [(1, [(1, 8), (2, 1), (3, 1)]), (3, [(1, 1), (4, 32)])])
        more = [(20, rnd.choice((*NAMES, 77))), launch, (18, rnd.randrange(9))][
            : rnd.randrange(4)
        ]
        begin, dur = rnd.randrange(1000) * 100, rnd.choice((0, 50, 300))
        queue = rnd.choice((100, 101, 55))
        yield pftraces.stage(
            begin,
            dur,
            rnd.choice((1, 1, 1, 2, 3, 4, 5, 6, 9)),
            *more,
            number=number,
            queue=queue,
            extras=extras,
        )
    for number in range(rnd.choice((0, 3))):
        value = rnd.choice((1, 0.5, float("inf"), -3))
        yield pftraces.counter(number, value, rnd.randrange(3))


def _deep(rnd: Random) -> bytes:
    inner = b""
    for _ in range(rnd.choice((70, 3000))):
        inner = pftraces.message([(12, inner)])
    return at(5, (11, [(9, 1), (11, 2), (4, b"\x52\x01x" + inner)]))


HOSTILE: tuple[Callable[[Random], bytes], ...] = (
    _deep,
    lambda rnd: b"\x0a" + varint(rnd.choice(HUGE)) + b"x",
    lambda rnd: b"\x0a" + b"\xff" * rnd.choice((9, 10, 11, 40)),
    lambda rnd: packet((8, rnd.choice(HUGE)), (11, [(9, 1), (11, rnd.choice(HUGE))])),
    lambda rnd: pftraces.stage(0, rnd.choice(HUGE)),
    lambda rnd: packet((8, 1), (11, b"\x48" + b"\x80" * 11 + b"\x01")),
    lambda rnd: at(1, (11, b"\x08\x01" * rnd.choice((500, 2000)))),
    lambda rnd: packet((rnd.randrange(1, 3000), b"unknown")),
    lambda rnd: packet(
        (12, b"".join(b"\x12\x02\x08" + bytes([n % 128]) for n in range(3000)))
    ),
    lambda rnd: packet(
        (60, [(1, rnd.choice(HUGE)), (4, [(1, rnd.choice(HUGE)), (2, 7)])])
    ),
    lambda rnd: b"\x0a\x00" * rnd.choice((1, 5000)),
    lambda rnd: at(1, (52, [(4, 9), (2, [(1, 1)]), (2, [(1, 7), (3, 1.5)])])),
)


def _flipped(data: bytes, rnd: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rnd.choice((1, 1, 3, 20)) if data else 0):
        found[rnd.randrange(len(found))] ^= 1 << rnd.randrange(8)
    return bytes(found)


def _without(data: bytes, rnd: Random) -> bytes:
    begin = rnd.randint(0, len(data))
    return data[:begin] + data[begin + rnd.choice((1, 4, 50)) :]


def _inserted(data: bytes, rnd: Random) -> bytes:
    begin = rnd.randint(0, len(data))
    more = rnd.choice(
        (
            b"\x0a",
            b"\xff" * 11,
            rnd.randbytes(5),
            b"\x0a\x02\x40\x01",
            data[begin:][:99],
        )
    )
    return data[:begin] + more + data[begin:]


CHANGES = (_flipped, _flipped, _without, _inserted, cut)


def attempt(seed: int, number: int) -> str:
    data = trace(seed, number)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.pftrace"
        path.write_bytes(data)
        with limited("open"):
            found = opened(path)
        with limited("a command"):
            answer([Random(number).choice(COMMANDS), str(path)])
        check_memory()
        if isinstance(found, str):
            return "refused"
        check_trace(found)
        with limited("its events"):
            check_events(found)
        if not data.startswith(b"\x0a"):
            return "packed"
        if format_of(data) != "pftrace":
            return "another format"
        check_counts(found, data)
        check_converted(found, path)
    return (
        "damaged" if found.report.unreadable or not found.report.complete else "whole"
    )


def check_events(found: Trace) -> None:
    """Each row has the event that it was made of."""
    for row in range(len(found)):
        event = found.elements.element(int(found.order[row]))
        check(event.get("ph") == "X", "a row without its event", event)
        check(event["name"] == found.name_of(row), "the name of an event", (row, event))
        off = abs(event["dur"] * 1000 - int(found.dur[row]))
        check(off <= 1e-12 * int(found.dur[row]) + 0.1, "its duration", (row, event))


def check_counts(found: Trace, data: bytes) -> None:
    """Every packet is an event, an end, a table, or counted as lost; beside a plain
    decoder."""
    counts = expected(data)
    report = found.report
    slices = report.phases["X"] + report.phases["i"]
    check(slices == counts["slice"], "slices", (slices, counts))
    check(report.phases["C"] == counts["value"], "values", (report.phases, counts))
    ends = report.unmatched_ends + counts["begin"] - report.unfinished
    check(ends == counts["end"], "ends", (ends, counts))
    check(report.unreadable >= counts["lost"], "lost", (report.unreadable, counts))


def check_converted(found: Trace, path: Path) -> None:
    if not found.report.events - found.report.unreadable:
        return
    out = path.with_name("out.json")
    convert_file(str(path), str(out))
    again = opened(out)
    if isinstance(again, str):
        raise AssertionError(again)
    for name in ("start", "dur", "order", "role", "track", "depth"):
        check(
            (getattr(found, name) == getattr(again, name)).all(), f"converted: {name}"
        )


def expected(data: bytes) -> Counter[str]:
    counts: Counter[str] = Counter()
    place = 0
    while data[place : place + 1] == b"\x0a":
        try:
            _, value, place = _field(data, place)
        except ValueError:
            break
        counts.update(_kinds(value))
    return counts


def _kinds(data: bytes) -> Iterator[str]:
    try:
        inner = dict(_fields(data))
        time = inner.get((8, 0), -1)
        kind = next((key for key in KNOWN if key in inner), None)
        if kind in KNOWN[3:] or kind is None:
            yield "table" if kind else "lost"
            return
        content = _fields(inner[kind])
        found = dict(content)
    except ValueError:
        yield "lost"
        return
    dur = found.get((2, 0), 0) if kind == (53, 2) else 0
    form = found.get((9, 0), -1)
    if (
        not 0 <= time <= LATEST
        or time + dur > LATEST
        or (kind == (11, 2) and form not in (1, 2))
    ):
        yield "lost"
    elif kind == (52, 2):
        yield from (
            "value" if _is_value(part) else "lost"
            for key, part in content
            if key == (2, 2)
        )
    elif kind == (53, 2):
        yield "slice"
    else:
        yield from ("slice", "begin") if form == 1 else ("end",)


KNOWN = ((11, 2), (53, 2), (52, 2), (12, 2), (60, 2), (6, 2))


def _is_value(data: bytes) -> bool:
    try:
        return bool({(2, 0), (3, 1)} & dict(_fields(data)).keys())
    except ValueError:
        return False


def _fields(data: bytes) -> list[tuple[tuple[int, int], Any]]:
    found: list[tuple[tuple[int, int], Any]] = []
    place = 0
    while place < len(data):
        if len(found) == 1000:
            raise ValueError("too many")
        key, value, place = _field(data, place)
        found.append((key, value))
    return found


def _field(data: bytes, place: int) -> tuple[tuple[int, int], Any, int]:
    tag, place = _varint(data, place)
    if tag & 7 == 0:
        value, place = _varint(data, place)
        return (tag >> 3, 0), value, place
    sizes = {1: 8, 5: 4}
    size, place = (
        _varint(data, place) if tag & 7 == 2 else (sizes.get(tag & 7, 1 << 62), place)
    )
    if place + size > len(data):
        raise ValueError("beyond the end")
    return (tag >> 3, tag & 7), data[place : place + size], place + size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    found = 0
    for shift, byte in enumerate(data[place : place + 10]):
        found |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return found & (1 << 64) - 1, place + shift + 1
    raise ValueError("a number without an end")


def save(seed: int, number: int, what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.pftrace")
    path.write_bytes(trace(seed, number))
    return path


KIND = Kind("pftrace", attempt, save)
