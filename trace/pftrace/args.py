"""What one event says besides its name and time -> args as Kineto writes them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from fusetui.trace.model.ids import Id
from fusetui.trace.pftrace.tables import EXPORTER, Tables, key_and_text
from fusetui.trace.pftrace.wire import Repeated, decoded
from fusetui.trace.read.elements import DEEPEST, TOO_DEEP

Fields = list[tuple[int, int, bytes]]
KEPT, LONGEST = 1 << 15, 1 << 10  # args that are kept decoded, and bytes of the longest of them
OWN = {
    "device id": "device",
    "context id": "context",
    "stream id": "stream",
    **{
        key: key
        for key in (
            *("correlation", "priority", "queued", "channel", "channel_type"),
            *("graph id", "graph node id", "bytes", "value", "memory kind"),
        )
    },
}
"""What torch writes first of an event of a GPU, and what Kineto calls it: numbers, as text."""
ZEROS = {
    "kernel": ("correlation", "priority", "queued", "channel", "channel_type"),
    "gpu_memcpy": ("correlation", "bytes", "channel", "channel_type"),
    "gpu_memset": ("correlation", "bytes", "value", "memory kind", "channel", "channel_type"),
    "graph_event_node": ("correlation",),
    "graph_host_node": ("correlation",),
}
"""What torch leaves out where it is 0."""
OF_NCCL = ("count", "root", "n_channels", "n_warps", "seq", "rank")
"""Of a collective, these are numbers; torch writes all that it notes of an event as text."""
NOTE = "gpu_user_annotation"
LAUNCH = {
    "registers_per_thread": "registers per thread",
    "shared_mem_dynamic": "dynamic shared memory",
}
"""Kineto's `shared memory` also has the static part, which is not in the file."""


class SliceArgs(dict[bytes, bytes]):
    """Args of slices as JSON, by their bytes: equal ones are decoded once."""

    def __missing__(self, data: bytes) -> bytes:
        try:
            text = _member([*decoded(data)], DEEPEST)
        except ValueError:
            text = b'"unreadable":"a damaged arg"'
        if len(data) <= LONGEST:
            if len(self) >= KEPT:
                self.clear()
            self[data] = text
        return text

    def texts(self, data: bytes, args: Repeated, count: int) -> Iterator[bytes]:
        """The args of `count` slices."""
        return (b",".join([self[arg] for arg in some]) for some in grouped(data, args, count))


def grouped(data: bytes, found: Repeated, count: int) -> Iterator[list[bytes]]:
    """The fields of each of `count` messages."""
    ends = (found.at + found.value).tolist()
    parts = [data[at:end] for at, end in zip(found.at.tolist(), ends, strict=True)]
    bounds = np.searchsorted(found.message, np.arange(count + 1)).tolist()
    return (parts[first:last] for first, last in pairwise(bounds))


def gpu_args(
    kind: str, lane: tuple[Id, Id], launch: bytes, extras: Sequence[bytes], tables: Tables
) -> dict[str, Any]:
    """The args of an event of a GPU.

    What torch writes itself ends with the name of the process; the keys of an annotation or of a
    collective follow, which may be any, also one that torch has written before.
    """
    own: dict[str, Any] = dict.fromkeys(ZEROS.get(kind, ()), 0)
    noted: dict[str, Any] = {}
    is_own = True
    for key, text in map(key_and_text, extras):
        if is_own and key in OWN:
            own[OWN[key]] = _number(text)
        elif not is_own or tables.exporter.get(key) != text:
            noted[key] = text
        is_own = is_own and key != EXPORTER[-1]
    if "func" in noted:
        noted |= {key: _number(noted[key]) for key in OF_NCCL if key in noted}
    stream = own.get("stream", lane[1])
    own = {} if kind == NOTE else own | {"device": lane[0], "stream": lane[1]}
    if stream != lane[1]:  # the lane has a name of its own
        own["original_stream"] = stream
    own |= _launch(launch, tables.arg_names)
    return own | {f"{key} (annotation)" if key in own else key: noted[key] for key in noted}


def _launch(launch: bytes, names: Mapping[int, str]) -> dict[str, Any]:
    """Grid, block and so on; torch leaves out zeros."""
    found: dict[str, Any] = {}
    try:
        for number, _, part in decoded(launch):
            inner = {field: value for field, value, _ in decoded(part)}
            if number in (1, 2):
                axes = [inner.get(axis, 0) for axis in (1, 2, 3)]
                found["grid" if number == 1 else "block"] = axes
            elif number == 3 and (name := LAUNCH.get(names.get(inner.get(1, 0), ""))):
                found[name] = inner.get(4, 0)
    except ValueError:
        return {"unreadable": "launch"}
    return dict.fromkeys(LAUNCH.values(), 0) | found if found else {}


def _member(found: Fields, levels: int) -> bytes:
    """The name and the value of a debug annotation. Raises ValueError."""
    name = next((part for number, _, part in found if number == 10), b"")
    return b"%s:%s" % (orjson.dumps(_text(name)), _value(found, levels))


def _value(found: Fields, levels: int) -> bytes:
    """torch writes an empty list or dict as an annotation without a value."""
    if not levels:
        return orjson.dumps(TOO_DEEP)
    for number, value, part in found:
        if number in SCALARS:
            return SCALARS[number](value, part)
    inner = [(number, [*decoded(part)]) for number, _, part in found if number in (11, 12)]
    if any(number == 11 for number, _ in inner):
        members = (_member(each, levels - 1) for number, each in inner if number == 11)
        return b"{%s}" % b",".join(members)
    return b"[%s]" % b",".join(_value(each, levels - 1) for _, each in inner)


def json_float(value: float) -> bytes:
    """JSON has no numbers for what is not finite."""
    return orjson.dumps(value if math.isfinite(value) else str(value))


def _signed(value: int) -> bytes:
    return b"%d" % (value - (1 << 64) if value >> 63 else value)


def _double(part: bytes) -> bytes:
    return json_float(struct.unpack("<d", part)[0]) if len(part) == 8 else b"null"


SCALARS: dict[int, Callable[[int, bytes], bytes]] = {
    2: lambda value, part: b"true" if value else b"false",
    3: lambda value, part: b"%d" % value,
    4: lambda value, part: _signed(value),
    5: lambda value, part: _double(part),
    6: lambda value, part: orjson.dumps(_text(part)),
}
"""The value of a debug annotation, by the number of its field (debug_annotation.proto)."""


def _number(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(text) < 20 else text


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
