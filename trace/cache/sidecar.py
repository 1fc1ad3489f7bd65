"""What was worked out from a document <-> one file beside the entry of its trace.

Such a record is kept as a Trace is: its arrays as columns, the rest in the header (see `pack`).
"""

from __future__ import annotations

from typing import IO, TypeVar

import msgspec
import numpy as np
from msgspec.structs import asdict

from fusetui.trace.cache.origin import Origin
from fusetui.trace.cache.pack import Unusable, columns_of, get, put, rest_of

T = TypeVar("T")


def write(found: msgspec.Struct, origin: Origin, out: IO[bytes]) -> None:
    """Raises OSError, or ValueError for what cannot be stored."""
    fields = asdict(found)
    columns = {name: np.ascontiguousarray(fields.pop(name)) for name in columns_of(type(found))}
    put(fields, columns, origin, out)


def read(file: IO[bytes], origin: Origin, kind: type[T]) -> T:
    """The record; its columns are mapped. Raises Unusable and OSError."""
    raw, columns = get(file, origin)
    try:
        rest = msgspec.msgpack.decode(raw, type=rest_of(kind))  # type: ignore[arg-type]
        return kind(**asdict(rest), **columns)
    except (ValueError, TypeError, msgspec.MsgspecError) as error:
        raise Unusable(str(error)) from None
