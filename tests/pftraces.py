"""Writes .pftrace files as torch's monitor of CUPTI does, field by field."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

BASE = 1_790_000_000_000_000_000  # ns since the epoch
BEGIN, END = 1, 2
Value = int | float | bytes | str | list[Any]
Field = tuple[int, Value]
Slice = tuple[int, int, int, Sequence[Field]]
"""Begin and end in ns after BASE, the track, and more fields of the begin."""

NAMES = {1: "aten::mm", 2: "cudaLaunchKernel", 3: "sgemm", 4: "reduce", 5: "forward"}
CATEGORIES = {1: "cpu_op", 2: "cuda_runtime", 3: "user_annotation"}
QUEUES = {
    **{
        n: name
        for n, name in enumerate(("Kernel", "Memcpy", "Memset", "Annotation"), 1)
    },
    **{5: "EventRecord", 6: "HostNode", 100: "[07] stream 7", 101: "[20] stream 20"},
}
OP: list[Field] = [(10, 1), (3, 1)]
CALL: list[Field] = [(10, 2), (3, 2)]
NOTE: list[Field] = [(10, 5), (3, 3)]
THREAD, OTHER = 2, 3
"""Tracks."""


def varint(value: int) -> bytes:
    found, value = bytearray(), value & (1 << 64) - 1
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def message(fields: Iterable[Field]) -> bytes:
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: Value) -> bytes:
    match value:
        case int():
            return varint(number << 3) + varint(value)
        case float():
            return varint(number << 3 | 1) + struct.pack("<d", value)
        case str():
            data = value.encode()
        case list():
            data = message(value)
        case bytes():
            data = value
    return varint(number << 3 | 2) + varint(len(data)) + data


def packet(*fields: Field) -> bytes:
    return message([(1, list(fields))])


def at(time: int, *fields: Field) -> bytes:
    """A packet with this time in ns after BASE."""
    return packet((8, BASE + time), (10, 1), *fields)


def head() -> list[bytes]:
    """The packets before the events."""
    clocks: list[Field] = [(1, [(1, number), (2, BASE)]) for number in (6, 1)]
    names: list[Field] = [
        (field, [(1, number), (2, name)])
        for field, table in (
            (1, CATEGORIES),
            (2, NAMES),
            (24, QUEUES),
            (1001, ARG_NAMES),
        )
        for number, name in table.items()
    ]
    specs: list[Field] = [
        (1, [(1, n), (2, name)]) for n, name in enumerate(("Power (W)", "Clock"))
    ]
    return [
        packet((8, BASE), (10, 1), (6, clocks)),
        packet((60, [(1, 1), (3, [(1, 42), (6, "python")])])),
        packet(
            (60, [(1, 2), (5, 1), (4, [(1, 42), (2, 42), (5, "thread 42 (python)")])])
        ),
        packet(
            (
                60,
                [
                    (1, 3),
                    (5, 1),
                    (4, [(1, 42), (2, 43), (5, "thread 43 (pt_autograd_0)")]),
                ],
            )
        ),
        packet((10, 1), (13, 1), (12, [*names, (47, [(1, 1), (3, 0), (2, specs)])])),
    ]


ARG_NAMES = {1: "registers_per_thread", 2: "shared_mem_dynamic", 3: "thread_count"}


def arg(name: str, *value: Field) -> Field:
    """A debug annotation, (4, 7) is the integer 7."""
    return 4, [(10, name), *value]


def group(slices: Sequence[Slice]) -> list[bytes]:
    """All begins, then all ends in the same order."""
    begins = [
        at(begin, (13, 2), (11, [(9, BEGIN), (11, track), *more]))
        for begin, _, track, more in slices
    ]
    return [
        *begins,
        *(at(end, (11, [(9, END), (11, track)])) for _, end, track, _ in slices),
    ]


def stage(
    begin: int,
    dur: int,
    kind: int = 1,
    *more: Field,
    number: int = 1,
    queue: int = 100,
    extras: Sequence[tuple[str, str]] = (),
    noted: Sequence[Field] = (),
) -> bytes:
    """An event of GPU 0."""
    texts = [
        *extras,
        ("arch", "sm_90"),
        ("process_id", "42"),
        ("process_name", "python"),
    ]
    fields = [(1, number), (2, dur), (11, 0), (13, queue), (14, kind), *more]
    return at(
        begin,
        (13, 2),
        (53, [*fields, *((6, [(1, k), (2, v)]) for k, v in texts), *noted]),
    )


def counter(time: int, value: float, number: int = 0) -> bytes:
    inner: list[Field] = [(1, number), (2 if isinstance(value, int) else 3, value)]
    return at(time, (13, 2), (52, [(4, 1), (2, inner)]))
