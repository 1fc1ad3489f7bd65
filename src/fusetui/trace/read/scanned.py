"""The columns of a chunk by the compiled scanner (scan.c), where it is and knows the
text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Floats, Int32s, Int64s
from fusetui.trace.model.categories import ROLES_ON_STREAMS, role
from fusetui.trace.model.events import EVERYWHERE, NOWHERE, Numbered, Stretch, Text
from fusetui.trace.model.ids import Id
from fusetui.trace.model.raw import Label
from fusetui.trace.read.events import decode_events
from fusetui.trace.read.gather import BESIDE_TIME, ChunkColumns, Labels, plain_id, reach

try:
    from fusetui.trace.read import scan as scan  # tests ask whether there is one
except ImportError:  # it could not be compiled where this was installed
    scan = None  # type: ignore[assignment]

decode_texts = msgspec.json.Decoder(list[str]).decode
decode_ids = msgspec.json.Decoder(list[Id]).decode


def scanned(text: bytes | memoryview) -> ChunkColumns | None:
    """The columns of elements; None if Python has to look at them."""
    found = None if scan is None else scan.events(text, _on_gpu)
    if found is None:
        return None
    phases, wide, narrow, names, categories, ids, lanes, labels, said, times = found
    start, dur, correlation, external_id, order = (
        np.frombuffer(part, np.int64) for part in wide
    )
    name, category, thread = (np.frombuffer(part, np.int32) for part in narrow)
    with suppress(msgspec.MsgspecError, ValueError):  # texts that are no UTF-8
        known = [plain_id(each) for each in decode_ids(_listed(ids))]
        return ChunkColumns(
            phases=Counter(phases),
            names=tuple(decode_texts(_listed(names, b'"'))),
            categories=tuple(decode_texts(_listed(categories, b'"'))),
            threads=tuple(
                (known[p], known[t], None if d < 0 else d) for p, t, d in lanes
            ),
            labels=_labels(labels, np.frombuffer(said, np.int32)),
            start=start,
            dur=dur,
            name=name,
            category=category,
            thread=thread,
            correlation=correlation,
            external_id=external_id,
            order=order,
            reach=_reach(phases, *times),
        )
    return None


def scanned_args(
    text: Text,
    stretch: Stretch,
    places: Sequence[int],
    names: tuple[str, ...],
    sequences: bool,
    totals: tuple[str, ...],
) -> tuple[Numbered, Int64s, Floats | None] | None:
    """As `args_in`, of memory events the args `totals`; None if Python has to look at
    the text."""
    most = 0 if scan is None else scan.MOST_ARGS - len(totals)
    if scan is None or not 0 < len(names) <= most:
        return None
    found = scan.arguments(
        text.part(stretch.start, stretch.end),
        np.array(places, dtype=np.int64),
        tuple(map(str.encode, (*names, *totals))),
        len(totals),
        sequences,
    )
    if found is None:
        return None
    number, texts, sequence, every = found
    rows = np.frombuffer(every).reshape(-1, len(totals)) if totals else None
    numbers = np.frombuffer(sequence, np.int64).reshape(-1, 3)
    return (np.frombuffer(number, np.int32), tuple(texts)), numbers, rows


def _listed(texts: Sequence[bytes], quote: bytes = b"") -> bytes:
    """A list of JSON from the texts of its elements."""
    between = quote + b"," + quote
    return b"[%b%b%b]" % (quote, between.join(texts), quote) if texts else b"[]"


def _on_gpu(category: bytes) -> bool:
    return role(category.decode("utf-8", "replace")) in ROLES_ON_STREAMS


def _labels(texts: Sequence[bytes], said: Int32s) -> tuple[Label, ...]:
    """What distinct events say of threads; `said` has them in the order of the file."""
    labels, events = Labels(), decode_events(_listed(texts))
    once = len({(event.pid, event.tid, event.name) for event in events}) == len(events)
    labels.add(events if once else (events[number] for number in said.tolist()))
    return tuple(labels.all)


def _reach(phases: Mapping[str, int], low: int, high: int) -> tuple[int, int]:
    """See Stretch; both times are in ns."""
    if BESIDE_TIME & phases.keys():
        return EVERYWHERE
    return NOWHERE if low > high else reach(low / 1000, high / 1000)
