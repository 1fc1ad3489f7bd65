"""The texts of some args of many elements of one stretch, decoded in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec

from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import BETWEEN, Stretch, Text
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import list_text

Decode = Callable[[bytearray], list[Any]]


def texts_of_args(
    text: Text, stretch: Stretch, places: Sequence[int], names: tuple[str, ...]
) -> list[bytes] | None:
    """See `Events.args`; None if the stretch does not decode as a list of ordinary events."""
    if stretch.places is not None:
        return None
    try:
        listed = list_text(text, stretch)
        if not any(name.encode() in listed for name in names):
            return [BETWEEN * (len(names) - 1)] * len(places)
        events = _decoder(names)(listed)
    except (OSError, TraceError, *UNDECODABLE):
        return None
    nothing = _args_type(names)()
    found = (events[place].args or nothing for place in places)
    return [BETWEEN.join(msgspec.structs.astuple(args)) for args in found]


@cache
def _decoder(names: tuple[str, ...]) -> Decode:
    """A decoder for a list of events that extracts only these args, as their texts."""
    args = ("args", _args_type(names) | None, None)
    event = msgspec.defstruct("SomeEvent", [args], gc=False)
    return msgspec.json.Decoder(list[event]).decode  # type: ignore[valid-type]


@cache
def _args_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    fields = [
        (f"arg{n}", msgspec.Raw, msgspec.field(default=msgspec.Raw(b""), name=name))
        for n, name in enumerate(names)
    ]
    return msgspec.defstruct("SomeArgs", fields, gc=False)
