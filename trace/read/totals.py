"""The totals in torch's memory events of one stretch, decoded in one call."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.events import Stretch, Text
from fusetui.trace.read.chunks import UNDECODABLE
from fusetui.trace.read.document_text import list_text
from fusetui.trace.read.samples import MEMORY

Rows = NDArray[np.float64]

PLACE = ("Device Type", "Device Id")


class Args(msgspec.Struct, gc=False):
    kind: int | None = msgspec.field(default=None, name=PLACE[0])
    device: int | None = msgspec.field(default=None, name=PLACE[1])
    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    reserved: int | None = msgspec.field(default=None, name="Total Reserved")


class Event(msgspec.Struct, gc=False):
    """Any event."""

    ph: str = ""
    name: str = ""
    ts: int | float = 0
    args: Args | None = None


NOTHING = Args()
decode = msgspec.json.Decoder(list[Event]).decode


def totals_in(text: Text, stretch: Stretch) -> Rows | None:
    """A row per memory event: device type, device, and the bytes allocated and reserved in total;
    nan for what is missing. None if the stretch cannot be read so."""
    if stretch.places is not None:
        return None
    try:
        events = decode(list_text(text, stretch))
    except (OSError, TraceError, *UNDECODABLE):
        return None
    known = [event.args or NOTHING for event in events if _is_memory(event)]
    rows = [msgspec.structs.astuple(args) for args in known]
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def _is_memory(event: Event) -> bool:
    return event.name == MEMORY and event.ph in ("i", "I")
