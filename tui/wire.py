"""Records about a trace as bytes and back, between two processes that both have the trace: what
refers to it refers to that of the reader afterwards.

Only our own processes write to these pipes, so the bytes can be trusted.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import IO, Any

import msgspec

from fusetui.analysis.questions.kernel_groups import Keys
from fusetui.trace.model.columns import Trace

SIZE = struct.Struct("<Q")
THE_TRACE = "the trace"
Buffer = bytes | bytearray | memoryview
Take = Callable[[int], Buffer]
"""The next so many bytes. Raises EOFError."""


def ship(record: object, trace: Trace | None, out: IO[bytes]) -> None:
    """Writes a record; its columns are written as they are. Raises OSError."""
    columns: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    _Pickler(body, trace, columns.append).dump(record)
    parts = [body.getbuffer(), *(column.raw() for column in columns)]
    out.write(SIZE.pack(len(parts)) + b"".join(SIZE.pack(part.nbytes) for part in parts))
    out.writelines(parts)
    out.flush()


def unship(take: Take, trace: Trace) -> Any:
    """The next record. Raises EOFError, or what pickle does for bytes that are none."""
    (count,) = SIZE.unpack(take(SIZE.size))
    sizes = [SIZE.unpack(take(SIZE.size))[0] for _ in range(count)]
    body, *columns = [take(size) for size in sizes]
    return _Unpickler(body, trace, columns).load()


class _Pickler(pickle.Pickler):
    """Leaves the trace out; what a record has worked out on first use goes with it."""

    def __init__(
        self, out: IO[bytes], trace: Trace | None, keep: Callable[[pickle.PickleBuffer], Any]
    ) -> None:
        super().__init__(out, protocol=5, buffer_callback=keep)
        self._trace = trace

    def persistent_id(self, found: object) -> str | None:
        return THE_TRACE if isinstance(found, Trace) and found is self._trace else None

    def reducer_override(self, found: object) -> Any:
        if isinstance(found, Keys):
            fields = {number: found.fields(number) for number in set(found.number.tolist())}
            return Keys, (found.number, fields.__getitem__)
        if isinstance(found, msgspec.Struct) and getattr(found, "__dict__", None):
            own = tuple(getattr(found, name) for name in found.__struct_fields__)
            return _known, (type(found), own, found.__dict__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, body: Buffer, trace: Trace, columns: Sequence[Buffer]) -> None:
        super().__init__(io.BytesIO(body), buffers=columns)
        self._trace = trace

    def persistent_load(self, _: str) -> Trace:
        return self._trace


def _known(kind: type[msgspec.Struct], own: tuple[Any, ...], known: dict[str, Any]) -> Any:
    """A record, and what it had worked out on first use."""
    found = kind(*own)
    found.__dict__.update(known)
    return found
