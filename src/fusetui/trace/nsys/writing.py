"""The events of an export as elements of traceEvents, written when somebody looks at
them: args as torch.profiler writes them, times exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache, lru_cache
from typing import Any

import msgspec

from fusetui.trace.nsys import nvtx
from fusetui.trace.nsys.database import NONE, Export, ExportFile
from fusetui.trace.nsys.processes import OWN, Processes
from fusetui.trace.nsys.tables import (
    CUPTI,
    FIELDS,
    NO_STREAM,
    Batches,
    EventTable,
    fields,
    plan,
    present,
    with_owner,
    words_of,
)
from fusetui.trace.read.document_text import label_text, micros, shared_name

MOST_HEADS = 1 << 16
Row = tuple[Any, ...]
encode = msgspec.json.encode


class BatchContext:
    """What every batch needs; worked out once."""

    def __init__(self, place: ExportFile) -> None:
        self.place = place if place.owner != NONE else with_owner(place)
        with closing(Export(self.place)) as db:
            sources = present(db)
            metrics = db.records(
                "TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName"
            )
            # Of each stretch but the first, which has the metadata events.
            self.batches = [
                (one, n) for one in plan(db, sources) for n in range(one.count)
            ]
            self.words, self.who = words_of(db), Processes(db, sources)
            self.labels = list(map(label_text, self.who.labels(self.words.strings)))
            self.domains = nvtx.domains_of(db)
            self.metrics = {
                (kind, number): shared_name(name, number)
                for kind, number, name in metrics
                if isinstance(name, str)
            }
        self.lane, self.head = cache(self._lane), lru_cache(MOST_HEADS)(self._head)

    def _lane(
        self, source: EventTable, owner: int, *where: int
    ) -> tuple[bytes, int, int | None]:
        """The text of a lane, what is added to numbers of its process, and its
        device."""
        pid, tid, gpu = self.who.lane(source, owner, *where)
        return (
            encode({"pid": pid, "tid": tid})[1:-1],
            self.who.number(owner >> 24) * OWN,
            gpu,
        )

    def _head(
        self, source: EventTable, kind: int, number: int, title: str | None
    ) -> bytes:
        """The text of a category and a name."""
        name = title or source.named(self.words, number)
        category = (
            nvtx.category(kind, name) if source.is_nvtx else source.categories[kind]
        )
        return encode({"cat": category, "name": name})[1:-1]


def writer(place: ExportFile) -> Callable[[int], Iterable[bytes]]:
    """Writes stretch after stretch, each from a connection of its own: in any process
    and thread. Raises TraceError."""
    once = cache(lambda: BatchContext(place))

    def write(number: int) -> Iterable[bytes]:
        known = once()
        if number == 0:
            return known.labels
        batches, batch = known.batches[number - 1]
        return _elements(known, batches, batch)

    return write


def _elements(known: BatchContext, batches: Batches, number: int) -> Iterator[bytes]:
    source = batches.source
    one = _metric if source.is_metrics else _slice
    with closing(Export(known.place)) as db:
        for row in _rows(db, batches, number):
            yield one(row, source, known)


def _rows(db: Export, batches: Batches, number: int) -> Iterator[Row]:
    source = batches.source
    asked = fields(db, source)
    if source.is_nvtx:
        more = nvtx.more_fields(db)
    elif source.is_metrics:
        more = ("value",)
    else:
        more = tuple(db.integer(source.table, column) for column in source.args)
    columns = (*(asked[name] for name in FIELDS), *more)
    return db.rows(source.table, columns, batches.condition, batches.bounds(number))


def _slice(row: Row, source: EventTable, known: BatchContext) -> bytes:
    (
        _,
        start,
        end,
        owner,
        device,
        context,
        stream,
        correlation,
        external,
        number,
        kind,
        *more,
    ) = row
    lane, offset, gpu = known.lane(source, owner, device, stream, context)
    args: dict[str, Any] = {}
    if 0 < external < OWN:
        args["External id"] = external + offset
    if source.is_nvtx:
        title, *said = more
        head = known.head(source, kind, number, title)
        args |= nvtx.args_of(
            said, external, owner >> 24, known.words.strings, known.domains
        )
    else:
        head = known.head(source, kind, number, None)
        if gpu is not None:
            args["device"] = gpu
        if context != NONE:
            args["context"] = context
        if stream != NONE:
            args["stream"] = stream
        if 0 < correlation < OWN:
            args["correlation"] = correlation + offset
        values = {c: v for c, v in zip(source.args, more, strict=True) if v != NONE}
        args |= ARGS.get(source.table, _named)(values)
    phase, dur = (
        (b"X", b',"dur":%b' % micros(end - start)) if end != NONE else (b"B", b"")
    )
    return b'{"ph":"%b",%b,%b,"ts":%b%b,"args":%b}' % (
        *(phase, head, lane, micros(start), dur),
        encode(args),
    )


def _kernel(values: dict[str, int]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if (registers := values.get("registersPerThread")) is not None:
        args["registers per thread"] = registers
    shared = [
        values[c] for c in ("staticSharedMemory", "dynamicSharedMemory") if c in values
    ]
    if shared:
        args["shared memory"] = sum(shared)
    for key in ("grid", "block", "cluster"):
        sizes = [values.get(f"{key}{axis}", 0) for axis in "XYZ"]
        if all(sizes):
            args[key] = sizes
    if local := values.get("localMemoryPerThread"):
        args["local memory per thread"] = local
    return args | _named(values)


NAMES = {
    **{"graphId": "graph id", "graphNodeId": "graph node id", "returnValue": "result"},
    **{"eventId": "event id", "eventSyncId": "event sync id"},
}
COPIED = {"srcDeviceId": "fromDevice", "dstDeviceId": "toDevice"}
NOTHING = {"eventId": (0, NO_STREAM), "eventSyncId": (0, NO_STREAM)}


def _named(values: dict[str, int]) -> dict[str, Any]:
    """Ids and results, without those that say nothing."""
    known = {
        c: value for c, value in values.items() if value not in NOTHING.get(c, (0,))
    }
    return {name: known[column] for column, name in NAMES.items() if column in known}


def _copy(values: dict[str, int]) -> dict[str, Any]:
    known = {COPIED.get(c, c): value for c, value in values.items() if c not in NAMES}
    return known | _named(values)


ARGS = {f"{CUPTI}KERNEL": _kernel, f"{CUPTI}MEMCPY": _copy, f"{CUPTI}MEMSET": _copy}
"""Of other tables, what is `_named`."""


def _metric(row: Row, source: EventTable, known: BatchContext) -> bytes:
    """A counter; the lowest byte of its type is the number of the GPU."""
    kind, number, value = row[FIELDS.index("owner")], row[FIELDS.index("name")], row[-1]
    name, gpu = known.metrics.get((kind, number), f"metric {number}"), kind & 255
    head = {"ph": "C", "name": name, "pid": gpu, "tid": 0, "id": f"GPU {gpu}"}
    return b'%b,"ts":%b,"args":%b}' % (
        encode(head)[:-1],
        micros(row[1]),
        encode({"value": value}),
    )
