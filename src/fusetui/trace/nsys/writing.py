"""Writes the events of an export as elements of traceEvents on demand: args as in
torch.profiler, and exact times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from fusetui.trace.nsys import nvtx
from fusetui.trace.nsys.database import NONE, Export, ExportFile
from fusetui.trace.nsys.processes import NUMBERS_A_PROCESS, Processes
from fusetui.trace.nsys.tables import (
    CUPTI,
    FIELDS,
    NO_STREAM,
    Batches,
    EventFields,
    EventTable,
    fields,
    plan_batches,
    present_tables,
    read_words,
    with_owner,
)
from fusetui.trace.read.document_text import label_text, micros, shorten_shared_name

MAX_KEPT_HEADS = 1 << 16
encode = msgspec.json.encode


class Batch(NamedTuple):
    """One batch of a table."""

    batches: Batches
    number: int


class WrittenLane(NamedTuple):
    """A lane as it is written."""

    text: bytes  # members of a JSON object
    offset: int  # is added to numbers of its process
    gpu: int | None


class BatchContext:
    """What every batch needs; worked out once."""

    def __init__(self, place: ExportFile) -> None:
        """Read everything that writing a batch of events needs. Raises CannotReadError
        if the database cannot be read."""
        self.place = place if place.owner != NONE else with_owner(place)
        with closing(Export(self.place)) as db:
            sources = present_tables(db)
            self.batches: list[Batch] = []
            for batches in plan_batches(db, sources):
                numbers = range(batches.count)
                self.batches += [Batch(batches, number) for number in numbers]
            self.words = read_words(db)
            self._processes = Processes(db, sources)
            labels = self._processes.labels(self.words.strings)
            self.labels = [label_text(label) for label in labels]
            self.domains = nvtx.domains_of(db)
            self.metrics = _read_metric_names(db)
        self.lane = cache(self._lane)
        self.head = lru_cache(MAX_KEPT_HEADS)(self._head)

    def _lane(
        self, source: EventTable, owner: int, device: int, stream: int, context: int
    ) -> WrittenLane:
        """The lane of an event, given its owner, device, stream and CUDA context: pid
        and tid as JSON, and the number of its GPU."""
        pid, tid, gpu = self._processes.lane(source, owner, device, stream, context)
        members = encode({"pid": pid, "tid": tid})[1:-1]  # without the braces
        process_number = self._processes.number(owner >> 24)
        return WrittenLane(
            text=members, offset=process_number * NUMBERS_A_PROCESS, gpu=gpu
        )

    def _head(
        self, source: EventTable, kind: int, number: int, title: str | None
    ) -> bytes:
        """The category and the name of an event as members of a JSON object. The name
        is `title` if there is one, else what `number` stands for."""
        name = title or source.name_of(self.words, number)
        if source.is_nvtx:
            category = nvtx.category(kind, name)
        else:
            category = source.categories[kind]
        return encode({"cat": category, "name": name})[1:-1]


def _read_metric_names(db: Export) -> dict[tuple[int, int], str]:
    """Return the name of each counter by its type and number: {(1, 3): "SM Active"}."""
    names: dict[tuple[int, int], str] = {}
    columns = ("typeId", "metricId", "metricName")
    for kind, number, name in db.records("TARGET_INFO_GPU_METRICS", *columns):
        if isinstance(name, str):
            names[kind, number] = shorten_shared_name(name, number)
    return names


def make_writer(place: ExportFile) -> Callable[[int], Iterable[bytes]]:
    """A function that gives the JSON texts of the events in one stretch, a range of the
    document. It may be called in any process and thread. It raises TraceError."""
    context_of_place = cache(lambda: BatchContext(place))

    def write(number: int) -> Iterable[bytes]:
        context = context_of_place()
        if number == 0:
            return context.labels
        return _write_batch(context, context.batches[number - 1])

    return write


def _write_batch(context: BatchContext, batch: Batch) -> Iterator[bytes]:
    """Yield the JSON of each event of a batch."""
    source = batch.batches.source
    write = _write_metric if source.is_metrics else _write_slice
    with closing(Export(context.place)) as db:
        for row in _read_rows(db, batch):
            event = EventFields._make(row[: len(FIELDS)])
            more = row[len(FIELDS) :]
            yield write(event, more, source, context)


def _read_rows(db: Export, batch: Batch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch of events.

    A row has FIELDS first, and then what only the text of the event needs: of NVTX
    ranges `nvtx.more_fields`, of counters the value, else the columns `source.args`.
    """
    batches = batch.batches
    source = batches.source
    if source.is_nvtx:
        more = nvtx.more_fields(db)
    elif source.is_metrics:
        more = ("value",)
    else:
        more = tuple(db.integer(source.table, column) for column in source.args)
    expressions = fields(db, source)
    columns = [*(expressions[name] for name in FIELDS), *more]
    bounds = batches.bounds(batch.number)
    return db.rows(source.table, columns, batches.condition, bounds)


def _write_slice(
    event: EventFields, more: tuple[Any, ...], source: EventTable, context: BatchContext
) -> bytes:
    """The JSON of a slice. `more` has the fields of MoreOfRange for an NVTX range, else
    the values of `source.args`. A range that was never closed becomes a begin event."""
    lane = context.lane(source, event.owner, event.device, event.stream, event.context)
    args: dict[str, Any] = {}
    if 0 < event.external < NUMBERS_A_PROCESS:
        args["External id"] = event.external + lane.offset
    title = None
    if source.is_nvtx:
        more_of_range = nvtx.MoreOfRange._make(more)
        title = more_of_range.name
        args |= nvtx.args_of(
            more_of_range,
            external=event.external,
            process=event.owner >> 24,
            strings=context.words.strings,
            domains=context.domains,
        )
    else:
        args |= _lane_args(event, lane)
        args |= _table_args(source, more)
    head = context.head(source, event.kind, event.name, title)
    place = b'%b,%b,"ts":%b' % (head, lane.text, micros(event.start))
    if event.end == NONE:
        return b'{"ph":"B",%b,"args":%b}' % (place, encode(args))
    dur = micros(event.end - event.start)
    return b'{"ph":"X",%b,"dur":%b,"args":%b}' % (place, dur, encode(args))


def _table_args(source: EventTable, values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the args of an event that are in columns of its table.

    Args:
        source: The table.
        values: The values of its columns `source.args`, NONE for those without one.
    """
    present_values = {
        column: value
        for column, value in zip(source.args, values, strict=True)
        if value != NONE
    }
    args_of_table = ARGS_OF_TABLES.get(source.table, _other_args)
    return args_of_table(present_values)


def _lane_args(event: EventFields, lane: WrittenLane) -> dict[str, int]:
    """Return the args that say where an event is, and of which launch call.

    {"device": 0, "context": 1, "stream": 7, "correlation": 812}, without those that the
    event has not.
    """
    args: dict[str, int] = {}
    if lane.gpu is not None:
        args["device"] = lane.gpu
    if event.context != NONE:
        args["context"] = event.context
    if event.stream != NONE:
        args["stream"] = event.stream
    if 0 < event.correlation < NUMBERS_A_PROCESS:
        args["correlation"] = event.correlation + lane.offset
    return args


def _kernel_args(values: dict[str, int]) -> dict[str, Any]:
    """Return the args of a kernel as Kineto names them.

    {"registersPerThread": 32, "gridX": 8, "gridY": 1, "gridZ": 1} gives {"registers per
    thread": 32, "grid": [8, 1, 1]}. Static and dynamic shared memory are one sum.

    Args:
        values: The values of the columns of the table that are not NONE.
    """
    args: dict[str, Any] = {}
    if "registersPerThread" in values:
        args["registers per thread"] = values["registersPerThread"]
    shared_bytes = [
        values[column]
        for column in ("staticSharedMemory", "dynamicSharedMemory")
        if column in values
    ]
    if shared_bytes:
        args["shared memory"] = sum(shared_bytes)
    for key in ("grid", "block", "cluster"):
        sizes = [values.get(f"{key}{axis}", 0) for axis in "XYZ"]
        if all(sizes):
            args[key] = sizes
    local_bytes = values.get("localMemoryPerThread", 0)
    if local_bytes:
        args["local memory per thread"] = local_bytes
    return args | _other_args(values)


ARG_OF_COLUMN = {
    "graphId": "graph id",
    "graphNodeId": "graph node id",
    "returnValue": "result",
    "eventId": "event id",
    "eventSyncId": "event sync id",
}
ARG_OF_COPY_COLUMN = {
    "srcDeviceId": "fromDevice",
    "dstDeviceId": "toDevice",
}
"""Other columns of copies have the names of their args."""
MEANINGLESS_VALUES = {
    "eventId": (0, NO_STREAM),
    "eventSyncId": (0, NO_STREAM),
}
"""Of other columns, 0."""


def _other_args(values: dict[str, int]) -> dict[str, Any]:
    """Return the args ARG_OF_COLUMN: {"graphNodeId": 5, "graphId": 0} gives {"graph node
    id": 5}. Values that mean nothing, such as 0, are left out."""
    args: dict[str, Any] = {}
    for column, name in ARG_OF_COLUMN.items():
        if column in values:
            value = values[column]
            if value not in MEANINGLESS_VALUES.get(column, (0,)):
                args[name] = value
    return args


def _copy_args(values: dict[str, int]) -> dict[str, Any]:
    """The args of a memory copy or fill, named as in torch. {"srcDeviceId": 1} gives
    {"fromDevice": 1}."""
    args: dict[str, Any] = {}
    for column, value in values.items():
        if column not in ARG_OF_COLUMN:
            args[ARG_OF_COPY_COLUMN.get(column, column)] = value
    return args | _other_args(values)


ARGS_OF_TABLES = {
    f"{CUPTI}KERNEL": _kernel_args,
    f"{CUPTI}MEMCPY": _copy_args,
    f"{CUPTI}MEMSET": _copy_args,
}
"""Of other tables, what is `_other_args`."""


def _write_metric(
    event: EventFields,
    more: tuple[Any, ...],
    _source: EventTable,
    context: BatchContext,
) -> bytes:
    """The JSON of a value of a GPU counter. The owner of the event is the type of the
    counter, whose lowest byte is the number of the GPU."""
    (value,) = more
    gpu = event.owner & 0xFF
    unnamed = f"metric {event.name}"
    name = context.metrics.get((event.owner, event.name), unnamed)
    head = {"ph": "C", "name": name, "pid": gpu, "tid": 0, "id": f"GPU {gpu}"}
    return b'%b,"ts":%b,"args":%b}' % (
        encode(head)[:-1],
        micros(event.start),
        encode({"value": value}),
    )
