"""A Trace <-> one file: a header, then the columns, each aligned for memory mapping.

bytes 0-7 magic, 8-11 CRC-32 of all that follows, 12-15 length of the header, header, columns
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import IO, Any, get_origin, get_type_hints

import msgspec
import numpy as np
from isal import isal_zlib
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.trace.cache.origin import Origin
from fusetui.trace.cache.own import MAGIC
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Stretch, Text
from fusetui.trace.read.elements import Elements

VERSION = 7
"""Incremented with every change of the meaning of a Trace, of what is kept beside it, or of this
format."""

ALIGNED = 64  # bytes


class Column(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]


class Header(msgspec.Struct, frozen=True):
    """Everything in an entry except the columns."""

    version: int
    origin: Origin
    rest: msgspec.Raw  # the fields that are not columns
    columns: dict[str, Column]  # in file order


@lru_cache
def columns_of(record: type) -> tuple[str, ...]:
    """The fields of a record that are arrays, however their type is spelled."""
    hints = get_type_hints(record)
    return tuple(name for name, hint in hints.items() if (get_origin(hint) or hint) is np.ndarray)


@lru_cache
def rest_of(record: type, apart: str = "") -> type[msgspec.Struct]:
    """A record of the fields that are neither arrays nor the one that is stored separately."""
    left_out = {*columns_of(record), apart}
    rest = [(n, hint) for n, hint in get_type_hints(record).items() if n not in left_out]
    return msgspec.defstruct("Rest", rest, frozen=True)


COLUMNS = columns_of(Trace)
Rest = rest_of(Trace, apart="elements")


class Unusable(Exception):  # noqa: N818
    """These bytes are not a complete file of this version."""


def write(trace: Trace, origin: Origin, out: IO[bytes]) -> None:
    """Writes an entry. Raises OSError, or ValueError for a Trace that cannot be stored."""
    columns = {name: np.ascontiguousarray(getattr(trace, name)) for name in COLUMNS}
    columns |= _places(trace.elements.stretches)
    rest = {name: getattr(trace, name) for name in Rest.__struct_fields__}
    put(rest, columns, origin, out)


def put(
    rest: dict[str, Any], columns: dict[str, NDArray[Any]], origin: Origin, out: IO[bytes]
) -> None:
    """Writes a file of ours: contiguous columns, and what msgpack can hold of the rest."""
    header = _header(rest, origin, columns)
    body: list[bytes | memoryview] = [len(header).to_bytes(4, "little"), header]
    position = len(MAGIC) + 4 + 4 + len(header)
    for column in columns.values():
        body += [bytes(-position % ALIGNED), column.reshape(-1).view(np.uint8).data]
        position += -position % ALIGNED + column.nbytes
    crc = 0
    for part in body:
        crc = isal_zlib.crc32(part, crc)
    out.writelines([MAGIC, crc.to_bytes(4, "little"), *body])


def read(file: IO[bytes], origin: Origin, path: str, text: Text) -> Trace:
    """The Trace of the file at `path`, whose bytes are `text`; its columns are mapped.

    Raises Unusable, also if the entry is for another state of the file, and OSError.
    """
    rest, columns = get(file, origin)
    try:
        return _trace(rest, columns, path, text)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise Unusable(str(error)) from None


def get(file: IO[bytes], origin: Origin) -> tuple[msgspec.Raw, dict[str, NDArray[Any]]]:
    """What `put` wrote: the rest, and the mapped columns. Raises Unusable and OSError."""
    try:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header, at = _checked(memoryview(data))
        columns = dict(_columns(data, header.columns, at))
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise Unusable(str(error)) from None
    if header.version != VERSION or header.origin != origin:
        raise Unusable("of another version, or of another state of the file")
    return header.rest, columns


def _header(rest: dict[str, Any], origin: Origin, columns: dict[str, NDArray[Any]]) -> bytes:
    return msgspec.msgpack.encode(
        Header(
            version=VERSION,
            origin=origin,
            rest=msgspec.Raw(msgspec.msgpack.encode(rest)),
            columns={n: Column(c.dtype.str, c.shape) for n, c in columns.items()},
        )
    )


def _checked(data: memoryview) -> tuple[Header, int]:
    """The header, and where it ends."""
    if data[: len(MAGIC)] != MAGIC:
        raise Unusable("no entry")
    at = len(MAGIC)
    if int.from_bytes(data[at : at + 4], "little") != isal_zlib.crc32(data[at + 4 :]):
        raise Unusable("damaged")
    end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    return msgspec.msgpack.decode(data[at + 8 : end], type=Header), end


def _columns(
    data: mmap.mmap, columns: dict[str, Column], at: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, column in columns.items():
        at += -at % ALIGNED
        dtype = np.dtype(column.dtype)
        count = int(np.prod(column.shape))
        flat = np.frombuffer(data, dtype, count, at) if count else np.empty(0, dtype)
        yield name, flat.reshape(column.shape)
        at += count * dtype.itemsize


def _trace(raw: msgspec.Raw, columns: dict[str, NDArray[Any]], path: str, text: Text) -> Trace:
    rest: dict[str, Any] = asdict(msgspec.msgpack.decode(raw, type=Rest, dec_hook=_decoded))
    rest["report"] = replace(rest["report"], path=path)
    stretches = _stretches(columns.pop("stretches"), columns.pop("places"))
    return Trace(elements=Elements(text, stretches), **(rest | columns))


def _decoded(kind: Any, value: Any) -> Any:
    """Decodes a type that msgspec does not know: the Counter of a report."""
    return kind(value)


def _places(stretches: Sequence[Stretch]) -> dict[str, NDArray[np.int64]]:
    """Stretches as [start, end, events, samples, number of places or -1], and all their places."""
    rows = [(s.start, s.end, s.events, s.samples, _count(s.places)) for s in stretches]
    places = [s.places for s in stretches if s.places is not None]
    return {
        "stretches": np.array(rows, dtype=np.int64).reshape(-1, 5),
        "places": np.concatenate([np.empty((0, 3), dtype=np.int64), *places]),
    }


def _count(places: NDArray[np.int64] | None) -> int:
    return -1 if places is None else len(places)


def _stretches(rows: NDArray[np.int64], places: NDArray[np.int64]) -> Sequence[Stretch]:
    found: list[Stretch] = []
    first = 0
    for start, end, events, samples, count in rows.tolist():
        own = None if count < 0 else places[first : first + count]
        first += max(count, 0)
        found.append(Stretch(start, end, events, samples, own))
    return found
