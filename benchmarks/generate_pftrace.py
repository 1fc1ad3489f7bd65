"""Makes a .pftrace of any size from a real one by repeating its events later, with new
ids.

    python -P benchmarks/generate_pftrace.py trace.pftrace.gz big.pftrace --copies 7

The counterpart of generate.py, for the protobuf that torch's monitor of CUPTI writes;
with as many copies of its JSON twin as generate.py made, both hold the same events.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from fusetui.trace.pftrace.wire import BYTES, VARINT, one_varint
from fusetui.trace.read.source import open_source

GAP = 10_000  # ns between copies
COPIED = {11, 52, 53}  # events of the CPU, values of counters, events of GPUs
IDS = (b"correlation", b"External id", b"Ev Idx")
Field = tuple[int, int, int, bytes]
"""Number, type, value and bytes, of a field."""


def generate(source: Path, target: Path, copies: int) -> None:
    document = open_source(str(source)).document
    packets = [part for _, _, _, part in fields(document[:])]
    events = [
        found for found in map(fields_of, packets) if COPIED & {f[0] for f in found}
    ]
    times = [value for event in events for number, _, value, _ in event if number == 8]
    span = max(times) - min(times) + GAP
    ids = 1 + max(value for event in events for value in _ids(event))
    with target.open("wb") as out:
        out.write(document[:])
        for copy in range(1, copies):
            for event in events:
                out.write(field(1, BYTES, 0, _shifted(event, copy * span, copy * ids)))


def fields(data: bytes) -> Iterator[Field]:
    at = 0
    while at < len(data):
        tag, at = one_varint(data, at)
        value, part = 0, b""
        if tag & 7 == VARINT:
            value, at = one_varint(data, at)
        else:
            size, at = (
                one_varint(data, at)
                if tag & 7 == BYTES
                else ({1: 8, 5: 4}[tag & 7], at)
            )
            part, at = data[at : at + size], at + size
        yield tag >> 3, tag & 7, value, part


def fields_of(data: bytes) -> list[Field]:
    return [*fields(data)]


def field(number: int, kind: int, value: int, part: bytes) -> bytes:
    tag = varint(number << 3 | kind)
    if kind == VARINT:
        return tag + varint(value)
    return tag + (varint(len(part)) if kind == BYTES else b"") + part


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _ids(event: list[Field]) -> Iterator[int]:
    for number, _, _, part in event:
        if number == 53:
            yield from (value for inner, _, value, _ in fields(part) if inner == 1)
        if number == 11:
            args = [fields_of(arg) for inner, _, _, arg in fields(part) if inner == 4]
            yield from (arg[1][2] for arg in args if arg and arg[0][3] in IDS)


def _shifted(event: list[Field], time: int, ids: int) -> bytes:
    return b"".join(_packet(each, time, ids) for each in event)


def _packet(each: Field, time: int, ids: int) -> bytes:
    number, kind, value, part = each
    if number == 8:
        return field(number, kind, value + time, part)
    if number in (11, 53):
        inner = (_event(number, one, ids) for one in fields(part))
        return field(number, kind, value, b"".join(inner))
    return field(*each)


def _event(of: int, each: Field, ids: int) -> bytes:
    number, kind, value, part = each
    if (of, number) in ((53, 1), (53, 18)):
        return field(number, kind, value + ids, part)
    if (of, number) == (11, 3000):
        part = b"".join(field(n, k, v + ids, p) for n, k, v, p in fields(part))
    elif (of, number) in ((11, 4), (53, 6)):
        key, *rest = fields(part)
        if rest and key[3] in IDS:
            n, k, v, p = rest[0]
            new = (
                (n, k, v + ids, p) if k == VARINT else (n, k, v, b"%d" % (int(p) + ids))
            )
            part = field(*key) + field(*new)
    return field(number, kind, value, part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--copies", type=int, default=7)
    args = parser.parse_args()
    generate(args.source, args.target, args.copies)
    print(f"{args.target}: {args.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
