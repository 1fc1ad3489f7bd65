"""A Trace, or a record that was worked out from one <-> one file: its arrays as columns, each
aligned for memory mapping, and the rest in a header.

bytes 0-7 magic, 8-11 CRC-32 of all that follows, 12-15 length of the header, header, columns
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import IO, Any, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np
from isal import isal_zlib
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from fusetui.trace.cache.folder import MAGIC
from fusetui.trace.model.arrays import Int64s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import Stretch, Text
from fusetui.trace.read.elements import Elements

VERSION = 9
"""Incremented with every change of the meaning of a Trace, of what is kept beside it, or of this
format."""

ALIGNED = 64  # bytes
APART = "elements"  # the field of a Trace in whose place its stretches are written
T = TypeVar("T")


class Origin(msgspec.Struct, frozen=True):
    """A state of the file that something was made from: enough to notice that it has changed."""

    path: str  # absolute, links resolved
    size: int  # bytes
    mtime_ns: int
    ends: bytes  # a hash of head and tail
    ctime_ns: int = 0  # no program can set it
    inode: int = 0


class ColumnForm(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]


class Header(msgspec.Struct, frozen=True):
    """Everything in a file except the columns."""

    version: int
    origin: Origin
    rest: msgspec.Raw  # the fields that are not columns
    columns: dict[str, ColumnForm]  # in file order


@lru_cache
def columns_of(record: type) -> tuple[str, ...]:
    """The fields of a record that are arrays, however their type is spelled."""
    return tuple(name for name, hint in get_type_hints(record).items() if _is_array(hint))


def _is_array(hint: Any) -> bool:
    """Also where NDArray is a `type` statement, as from numpy 2.5 on."""
    kind = get_origin(hint) or hint
    meant = getattr(kind, "__value__", kind)
    return (get_origin(meant) or meant) is np.ndarray


@lru_cache
def rest_of(record: type) -> type[msgspec.Struct]:
    """A record of the fields that the header holds."""
    left_out = {*columns_of(record), APART}
    rest = [(n, hint) for n, hint in get_type_hints(record).items() if n not in left_out]
    return msgspec.defstruct("Rest", rest, frozen=True)


def write(found: msgspec.Struct, origin: Origin, out: IO[bytes]) -> None:
    """Raises OSError, or ValueError for what cannot be stored."""
    kind = type(found)
    columns = {name: np.ascontiguousarray(getattr(found, name)) for name in columns_of(kind)}
    if isinstance(found, Trace):
        columns |= _columns_of_stretches(found.elements.stretches)
    forms = {name: ColumnForm(column.dtype.str, column.shape) for name, column in columns.items()}
    rest = {name: getattr(found, name) for name in rest_of(kind).__struct_fields__}
    packed = msgspec.Raw(msgspec.msgpack.encode(rest))
    header = msgspec.msgpack.encode(Header(VERSION, origin, packed, forms))
    body: list[bytes | memoryview] = [len(header).to_bytes(4, "little"), header]
    position = len(MAGIC) + 4 + 4 + len(header)
    for column in columns.values():
        body += [bytes(-position % ALIGNED), column.reshape(-1).view(np.uint8).data]
        position += -position % ALIGNED + column.nbytes
    crc = 0
    for part in body:
        crc = isal_zlib.crc32(part, crc)
    out.writelines([MAGIC, crc.to_bytes(4, "little"), *body])


def read(file: IO[bytes], origin: Origin, kind: type[T]) -> T:
    """The record; its columns are mapped. Raises an Exception if the file is damaged, or of
    another version, record or state of the origin."""
    return kind(**_fields(file, origin, kind))


def read_trace(file: IO[bytes], origin: Origin, path: str, text_of: Callable[[str], Text]) -> Trace:
    """As `read`, the Trace of the file at `path`; `text_of` gives its text for its format."""
    fields = _fields(file, origin, Trace)
    stretches = _stretches(fields.pop("stretches"), fields.pop("places"))
    fields["report"] = replace(fields["report"], path=path)
    text = text_of(fields["report"].format)
    return Trace(elements=Elements(text, stretches), **fields)


def _fields(file: IO[bytes], origin: Origin, kind: type) -> dict[str, Any]:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header, at = _checked(memoryview(data))
    if header.version != VERSION or header.origin != origin:
        raise ValueError("of another version, or of another state of the file")
    rest = msgspec.msgpack.decode(
        header.rest, type=rest_of(kind), dec_hook=lambda known, value: known(value)
    )  # the Counter of a report
    return asdict(rest) | dict(_columns(data, header.columns, at))


def _checked(data: memoryview) -> tuple[Header, int]:
    """The header, and where it ends."""
    at = len(MAGIC)
    if data[:at] != MAGIC:
        raise ValueError("no file of ours")
    if int.from_bytes(data[at : at + 4], "little") != isal_zlib.crc32(data[at + 4 :]):
        raise ValueError("damaged")
    end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    return msgspec.msgpack.decode(data[at + 8 : end], type=Header), end


def _columns(
    data: mmap.mmap, forms: Mapping[str, ColumnForm], at: int
) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, form in forms.items():
        at += -at % ALIGNED
        dtype = np.dtype(form.dtype)
        count = int(np.prod(form.shape))
        flat = np.frombuffer(data, dtype, count, at) if count else np.empty(0, dtype)
        yield name, flat.reshape(form.shape)
        at += count * dtype.itemsize


def _columns_of_stretches(stretches: Sequence[Stretch]) -> dict[str, NDArray[Any]]:
    """Stretches as [start, end, events, samples, number of places or -1, reach], and all their
    places."""
    places = [s.places for s in stretches if s.places is not None]
    numbers = (-1 if s.places is None else len(s.places) for s in stretches)
    rows = [(s.start, s.end, s.events, s.samples, next(numbers), *s.reach) for s in stretches]
    return {
        "stretches": np.array(rows, dtype=np.int64).reshape(-1, 7),
        "places": np.concatenate([np.empty((0, 3), dtype=np.int64), *places]),
    }


def _stretches(rows: Int64s, places: Int64s) -> Sequence[Stretch]:
    found: list[Stretch] = []
    first = 0
    for start, end, events, samples, count, *reach in rows.tolist():
        own = None if count < 0 else places[first : first + count]
        first += max(count, 0)
        found.append(Stretch(start, end, events, samples, own, (reach[0], reach[1])))
    return found
