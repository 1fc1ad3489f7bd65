"""Makes a .pftrace of any size from a real one by repeating its events later, with new
ids.

    python -P benchmarks/generate_pftrace.py trace.pftrace.gz big.pftrace --copies 7

The counterpart of generate.py, for the protobuf that torch's monitor of CUPTI writes;
with as many copies of its JSON twin as generate.py made, both hold the same events.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fusetui.trace.pftrace.wire import BYTES, VARINT, decode_varint
from fusetui.trace.read.source import open_source

GAP_NS = 10_000  # between copies
# Numbers of the fields of a packet.
TIME = 8
CPU_EVENT = 11
COUNTER = 52
GPU_EVENT = 53
EVENTS = {CPU_EVENT, COUNTER, GPU_EVENT}
"""A packet with one of these is an event, which is repeated."""
# Numbers of the fields of an event.
GPU_EVENT_ID = 1
GPU_EVENT_CORRELATION = 18
GPU_EVENT_ARG = 6
CPU_EVENT_ARG = 4
CPU_EVENT_EXTENSION = 3000
"""All of its fields are ids."""
ID_NAMES = (b"correlation", b"External id", b"Ev Idx")
"""The names of args that are ids."""
FIXED_BYTES = {1: 8, 5: 4}
"""The size of a field by its type, except for VARINT and BYTES."""


class Field(NamedTuple):
    """A field of a message; `value` is that of a VARINT, `data` that of other types."""

    number: int
    type: int
    value: int
    data: bytes


def generate(source: Path, target: Path, copies: int) -> None:
    """Write a trace, then its events again `copies - 1` times, later and with new ids."""
    document = open_source(str(source)).document
    events = []
    for packet in fields(document[:]):
        event = list(fields(packet.data))
        if any(field.number in EVENTS for field in event):
            events.append(event)

    times = [field.value for event in events for field in event if field.number == TIME]

    span_ns = max(times) - min(times) + GAP_NS
    id_step = 1 + max(number for event in events for number in _find_ids(event))
    with target.open("wb") as out:
        out.write(document[:])
        for copy in range(1, copies):
            for event in events:
                data = b"".join(
                    _shift_field(field, copy * span_ns, copy * id_step)
                    for field in event
                )
                out.write(encoded(Field(number=1, type=BYTES, value=0, data=data)))


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message, in order."""
    at = 0
    while at < len(message):
        tag, at = decode_varint(message, at)

        number = tag >> 3
        wire_type = tag & 7
        if wire_type == VARINT:
            value, at = decode_varint(message, at)
            yield Field(number, wire_type, value=value, data=b"")
            continue

        if wire_type == BYTES:
            size, at = decode_varint(message, at)
        else:
            size = FIXED_BYTES[wire_type]

        yield Field(number, wire_type, value=0, data=message[at : at + size])
        at += size


def encoded(field: Field) -> bytes:
    """Return the bytes of a field, with its tag."""
    tag = encode_varint(field.number << 3 | field.type)
    if field.type == VARINT:
        return tag + encode_varint(field.value)
    if field.type == BYTES:
        return tag + encode_varint(len(field.data)) + field.data
    return tag + field.data


def encode_varint(value: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first. All groups but the
    last have the eighth bit set."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _find_ids(event: Sequence[Field]) -> Iterator[int]:
    """Yield the numbers in an event that a copy must not repeat."""
    for field in event:
        if field.number == GPU_EVENT:
            for inner in fields(field.data):
                if inner.number == GPU_EVENT_ID:
                    yield inner.value
        elif field.number == CPU_EVENT:
            for inner in fields(field.data):
                arg = list(fields(inner.data)) if inner.number == CPU_EVENT_ARG else []
                if arg and arg[0].data in ID_NAMES:
                    yield arg[1].value


def _shift_field(field: Field, ns: int, ids: int) -> bytes:
    """Return the bytes of a field of a packet in a copy. A time is later by `ns`, and
    in an event all ids are larger by `ids`."""
    if field.number == TIME:
        return encoded(field._replace(value=field.value + ns))
    if field.number in (CPU_EVENT, GPU_EVENT):
        inner = [_shift_ids(field.number, inner, ids) for inner in fields(field.data)]
        return encoded(field._replace(data=b"".join(inner)))
    return encoded(field)


def _shift_ids(event: int, field: Field, ids: int) -> bytes:
    """Return the bytes of a field of an event in which all ids are larger by `ids`.
    `event` is CPU_EVENT or GPU_EVENT."""
    is_gpu = event == GPU_EVENT
    if is_gpu and field.number in (GPU_EVENT_ID, GPU_EVENT_CORRELATION):
        return encoded(field._replace(value=field.value + ids))
    if field.number == (GPU_EVENT_ARG if is_gpu else CPU_EVENT_ARG):
        return encoded(field._replace(data=_shift_arg(field.data, ids)))

    if not is_gpu and field.number == CPU_EVENT_EXTENSION:
        data = b"".join(
            encoded(inner._replace(value=inner.value + ids))
            for inner in fields(field.data)
        )
        return encoded(field._replace(data=data))

    return encoded(field)


def _shift_arg(arg: bytes, ids: int) -> bytes:
    """Return an arg of an event, a message of its name and its value. If it is an id,
    as a number or as digits, it is larger by `ids`."""
    name, *values = fields(arg)
    if not values or name.data not in ID_NAMES:
        return arg
    value = values[0]
    if value.type == VARINT:
        value = value._replace(value=value.value + ids)
    else:
        value = value._replace(data=b"%d" % (int(value.data) + ids))
    return encoded(name) + encoded(value)


def main() -> None:
    """Write the larger trace that the command line asks for, and print its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--copies", type=int, default=7)
    args = parser.parse_args()
    generate(args.source, args.target, args.copies)
    print(f"{args.target}: {args.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
