"""The tables of an export that hold events: the meaning of their columns, and the names
of events. Names are those that torch.profiler gives (libkineto, CuptiActivity.cpp).

Each is divided into batches by rowids, so that where a batch is follows from the file
alone.

Source: NVIDIA, Nsight Systems User Guide, "SQLite Schema Reference".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fusetui.trace.model.categories import GPU_ROLES, role
from fusetui.trace.nsys.database import NONE, Export, ExportFile
from fusetui.trace.nsys.nvtx import NVTX, SHOWN, nvtx_fields
from fusetui.trace.read.document_text import MAX_SHARED_NAME, shorten_shared_name
from fusetui.trace.read.times import LIMIT_NS

CUPTI = "CUPTI_ACTIVITY_KIND_"
METRICS = "GPU_METRICS"
GRAPHS = "cuda_graph"  # the category of GRAPH_TRACE


class EventFields(NamedTuple):
    """What is read of every event, as integers, NONE where it is missing."""

    row: int  # its rowid
    start: int
    end: int  # NONE if a range was not closed
    owner: int  # of GPU work a globalPid, else a globalTid; of metrics their type
    device: int
    context: int
    stream: int
    correlation: int
    external: int
    name: int  # a number whose meaning the table has; see EventTable.name_of
    kind: int  # which of the categories of its table it has; see also nvtx.category


FIELDS = EventFields._fields

PID_MASK = 0xFFFFFF
"""A globalPid is the number of a machine above 48 bits, then that of the process above
24; in a globalTid the lowest bits are the number of the thread."""
VERSION = re.compile(r"_v[0-9]{4,5}\Z")
"""What CUPTI appends to the name of a runtime call; the reports of nsys leave it out
too."""

KINDS_OF_MEMORY = (
    "Pageable",
    "Pinned",
    "Device",
    "Array",
    "Managed",
    "Device Static",
    "Managed Static",
    "Unknown",
)
KINDS_OF_COPY = (
    "Unknown",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    "UVM_HtoD",
    "UVM_DtoH",
    "UVM_DtoD",
)
KINDS_OF_SYNC = {
    "UNKNOWN": "Unknown Sync",
    "EVENT_SYNCHRONIZE": "Event Sync",
    "STREAM_WAIT_EVENT": "Stream Wait Event",
    "STREAM_SYNCHRONIZE": "Stream Sync",
    "CONTEXT_SYNCHRONIZE": "Context Sync",
}
NO_MEMORY = 255  # a kind of memory or of copy that is missing, in a packed name


class Words(msgspec.Struct, frozen=True):
    """What the numbers of an export stand for."""

    strings: Mapping[int, str]
    copies: Mapping[int, str]
    memories: Mapping[int, str]
    syncs: Mapping[int, str]


def read_words(db: Export) -> Words:
    """The texts that the numbers of an export stand for, from its tables StringIds and
    ENUM_*. Where it lacks the latter, numbers mean what they mean to nsys."""
    copy_names = {kind.upper(): kind for kind in KINDS_OF_COPY}
    copies = _read_enumeration(
        db,
        "ENUM_CUDA_MEMCPY_OPER",
        column="name",
        prefix="CUDA_MEMCPY_KIND_",
        defaults=copy_names,
    )
    syncs = _read_enumeration(
        db,
        "ENUM_CUPTI_SYNC_TYPE",
        column="name",
        prefix="CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        defaults=KINDS_OF_SYNC,
    )
    return Words(
        strings=_read_texts(db, "StringIds", "value"),
        copies={number: copy_names.get(name, name) for number, name in copies.items()},
        memories=_read_enumeration(
            db,
            "ENUM_CUDA_MEM_KIND",
            column="label",
            prefix="",
            defaults=KINDS_OF_MEMORY,
        ),
        syncs={number: KINDS_OF_SYNC.get(name, name) for number, name in syncs.items()},
    )


def _read_enumeration(
    db: Export, table: str, column: str, prefix: str, defaults: Iterable[str]
) -> dict[int, str]:
    """The texts of a table by their numbers, without the prefix. Numbers that the table
    lacks stand for the defaults, which are numbered from 0 on."""
    names = dict(enumerate(defaults))
    for number, name in _read_texts(db, table, column).items():
        names[number] = name.removeprefix(prefix)
    return names


class EventTable(msgspec.Struct, frozen=True, eq=False):
    """A table of events. What ends in `_by` names columns."""

    table: str
    categories: tuple[str, ...]
    name_of: Callable[[Words, int], str]  # of EventFields.name
    # the first that it has; or if `packed` all, 8 bits each, NO_MEMORY for none
    name_by: tuple[str, ...]
    owner_by: str = "globalPid"
    times_by: tuple[str, str] = ("start", "end")
    kind: str = "0"  # an expression
    args: tuple[str, ...] = ()  # columns that are read only to be written
    packed: bool = False

    @property
    def is_nvtx(self) -> bool:
        """Whether this is the table of NVTX ranges and marks."""
        return self.table == NVTX

    @property
    def is_metrics(self) -> bool:
        """Whether this is the table of GPU counters."""
        return self.table == METRICS

    @property
    def has_names_in_strings(self) -> bool:
        """Whether the names of its events are texts of StringIds."""
        return self.name_of in (string, _name_call)

    @property
    def on_gpu(self) -> bool:
        """Whether its events are on the lanes of a GPU."""
        return self.owner_by == "globalPid"

    @property
    def is_gpu_work(self) -> bool:
        """Whether its events are work of a GPU."""
        return any(role(category) in GPU_ROLES for category in self.categories)


def string(words: Words, number: int) -> str:
    """The text of StringIds with this number. An event without a text is called
    `unnamed`, with the number if there is one."""
    text = words.strings.get(number)
    if text:
        return text
    return "unnamed" if number == NONE else f"unnamed {number}"


def _name_call(words: Words, number: int) -> str:
    """The name of a CUDA call, without the version that CUPTI appends."""
    return VERSION.sub("", string(words, number))


def _name_copy(words: Words, number: int) -> str:
    """The name of a copy, from a number that packs kind, source and target: `Memcpy
    HtoD (Pinned -> Device)`."""
    kind = (number >> 16) & 0xFF
    source = words.memories.get((number >> 8) & 0xFF, "Unknown")
    target = words.memories.get(number & 0xFF, "Unknown")
    return f"Memcpy {words.copies.get(kind, 'Unknown')} ({source} -> {target})"


def _name_fill(words: Words, number: int) -> str:
    """The name of a memory fill, from the number of its kind of memory."""
    return f"Memset ({words.memories.get(number, 'Unknown')})"


def _name_sync(words: Words, number: int) -> str:
    """The name of a synchronization, from the number of its type."""
    return words.syncs.get(number, "Unknown Sync")


def _name_graph(_: Words, number: int) -> str:
    """The name of a launch of a CUDA graph, from the number of the graph."""
    return "CUDA graph" if number == NONE else f"CUDA graph {number}"


def _name_cuda_event(_words: Words, _number: int) -> str:
    """The name of a CUDA event; all are called the same."""
    return "CUDA event"


NO_STREAM = 0xFFFFFFFF  # CUPTI_SYNCHRONIZATION_INVALID_VALUE; torch writes -1
CALLS = ("cuda_runtime", "cuda_driver")
INSTANT = ("timestamp", "timestamp")
SOURCES = (
    EventTable(
        table=f"{CUPTI}KERNEL",
        categories=("kernel",),
        name_of=string,
        name_by=("demangledName", "shortName", "mangledName"),
        args=(
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "clusterX",
            "clusterY",
            "clusterZ",
            "localMemoryPerThread",
            "graphNodeId",
            "graphId",
        ),
    ),
    EventTable(
        table=f"{CUPTI}GRAPH_TRACE",
        categories=(GRAPHS,),
        name_of=_name_graph,
        name_by=("graphId",),
        args=("graphId",),
    ),
    EventTable(
        table=f"{CUPTI}MEMCPY",
        categories=("gpu_memcpy",),
        name_of=_name_copy,
        name_by=("copyKind", "srcKind", "dstKind"),
        packed=True,
        args=("bytes", "srcDeviceId", "dstDeviceId", "graphNodeId"),
    ),
    EventTable(
        table=f"{CUPTI}MEMSET",
        categories=("gpu_memset",),
        name_of=_name_fill,
        name_by=("memKind",),
        args=("bytes", "value", "graphNodeId"),
    ),
    EventTable(
        table=f"{CUPTI}SYNCHRONIZATION",
        categories=("cuda_sync",),
        name_of=_name_sync,
        name_by=("syncType",),
        args=("eventId", "eventSyncId"),
    ),
    EventTable(
        table=f"{CUPTI}CUDA_EVENT",
        categories=("cuda_event",),
        name_of=_name_cuda_event,
        name_by=(),
        times_by=INSTANT,
        args=("eventId", "eventSyncId"),
    ),
    EventTable(
        table=f"{CUPTI}RUNTIME",
        categories=CALLS,
        name_of=_name_call,
        name_by=("nameId",),
        owner_by="globalTid",
        kind="eventClass",
        args=("returnValue",),
    ),
    EventTable(
        table=f"{CUPTI}DRIVER",
        categories=CALLS,
        name_of=_name_call,
        name_by=("nameId",),
        owner_by="globalTid",
        kind="1",
        args=("returnValue",),
    ),
    EventTable(
        table=NVTX,
        categories=(),  # nvtx.category names them
        name_of=string,
        name_by=("textId",),
        owner_by="globalTid",
    ),
    EventTable(
        table=f"{CUPTI}OVERHEAD",
        categories=("overhead",),
        name_of=string,
        name_by=("nameId",),
        owner_by="globalTid",
    ),
    EventTable(
        table="PROFILER_OVERHEAD",
        categories=("overhead",),
        name_of=string,
        name_by=("nameId",),
        owner_by="globalTid",
    ),
    EventTable(
        table=METRICS,
        categories=(),
        name_of=_name_graph,  # not used: writing.py names them
        name_by=("metricId",),
        times_by=INSTANT,
    ),
)
NEEDED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    METRICS: ("typeId", "metricId", "value"),
}
"""Columns without which a table is not read, beside those of times."""


def fields(db: Export, source: EventTable) -> dict[str, str]:
    """Return an SQL expression for each of FIELDS, for a table of events.

    For kernels, "device" is the integer in the column deviceId, or NONE where it has
    none. "external" is NONE for every table: there are no External ids.

    Args:
        db: The database.
        source: One of its tables. A column that the table lacks gives NONE.
    """
    table = source.table
    integer = partial(db.integer, table)
    begin_by, end_by = source.times_by
    no_owner = db.owner if source.on_gpu else NONE
    name_columns = [name for name in source.name_by if name in db.tables[table]]
    first_name_column = name_columns[0] if name_columns else ""
    expressions = {
        "row": "rowid",
        "start": integer(begin_by),
        "end": integer(end_by),
        "owner": db.typed(table, source.owner_by, "'integer'", no_owner),
        "device": integer("deviceId"),
        "context": integer("contextId"),
        "stream": integer("streamId"),
        "correlation": integer("correlationId"),
        "external": str(NONE),
        "name": integer(first_name_column),
        "kind": source.kind,
    }
    if source.packed:
        expressions["name"] = _pack_expression(
            [integer(name) for name in source.name_by]
        )
    if source.on_gpu and not source.is_gpu_work:
        stream = expressions["stream"]
        expressions["stream"] = f"iif(({stream}) = {NO_STREAM}, -1, {stream})"
    if source.kind == "eventClass":
        expressions["kind"] = f"({integer('eventClass')}) = 1"
    if source.is_nvtx:
        expressions |= nvtx_fields(db)
    if source.is_metrics:
        expressions["owner"] = integer("typeId")
    return expressions


def _pack_expression(columns: Sequence[str]) -> str:
    """Return an SQL expression that packs three small numbers into one.

    A copy of kind 1 from memory 2 to memory 3 is 0x010203. A number that is not from 0
    to NO_MEMORY - 1 becomes NO_MEMORY.

    Args:
        columns: The expressions of the kind of the copy, its source and its target.
    """
    copy_kind, source, target = (
        f"iif(({column}) between 0 and {NO_MEMORY - 1}, {column}, {NO_MEMORY})"
        for column in columns
    )
    return f"({copy_kind} << 16) | ({source} << 8) | ({target} << 0)"


def _sound_condition(source: EventTable) -> str:
    """The SQL condition for a row to be an event that can be read: its times, and the
    value of a counter, are in range."""
    begin, end = source.times_by
    has_begin = _time_condition(begin)
    if source.is_nvtx:
        return f'{has_begin} and ("{end}" is null or ({_time_condition(end)}))'
    if source.is_metrics:
        is_number = "typeof(value) in ('integer', 'real')"
        return f"{has_begin} and {is_number} and value between -1e300 and 1e300"
    return f"{has_begin} and {_time_condition(end)}"


def _time_condition(column: str) -> str:
    """The SQL condition for a column to hold a time in range."""
    is_in_range = f'"{column}" between {-LIMIT_NS} and {LIMIT_NS}'
    return f"""typeof("{column}") = 'integer' and {is_in_range}"""


def shown_condition(db: Export, source: EventTable) -> str:
    """The SQL condition for a row to be an event that is read: of the wanted process,
    and of NVTX a mark or a range."""
    is_of_process = "1"
    if db.process is not None and not source.is_metrics:
        owner = fields(db, source)["owner"]
        is_of_process = f"(({owner}) >> 24) & {PID_MASK} = {db.process}"
    if source.is_nvtx and db.has(NVTX, "eventType"):
        return f"{SHOWN} and {is_of_process}"
    return is_of_process


def present_tables(db: Export) -> list[EventTable]:
    """The tables of events that an export has with all columns that they need."""
    return [
        source
        for source in SOURCES
        if db.has(source.table, *source.times_by, *NEEDED_COLUMNS.get(source.table, ()))
    ]


def with_owner(place: ExportFile) -> ExportFile:
    """The export with the process of those GPU events that name none. It is the only
    process that called CUDA, or unknown. Raises CannotReadError."""
    with closing(Export(place)) as db:
        return replace(place, owner=_only_process(db))


def _only_process(db: Export) -> int:
    """Return the globalPid of the one process that called CUDA.

    It owns the GPU events that name no process. It is NONE if all tables of GPU events
    name their processes, so that nobody has to be found; and if several processes
    called CUDA, or none.
    """
    sources = [source for source in present_tables(db) if not source.is_metrics]
    of_gpu = [source for source in sources if source.on_gpu]
    if all(_names_owner(db, source) for source in of_gpu):
        return NONE
    processes: set[int] = set()
    for source in sources:
        if source.table.startswith(CUPTI) and _names_owner(db, source):
            owner = db.integer(source.table, source.owner_by)
            rows = db.rows(source.table, (f"distinct ({owner}) >> 24",))
            processes.update(process for (process,) in rows)
    processes.discard(NONE >> 24)
    if len(processes) != 1:
        return NONE
    (process,) = processes
    return process << 24


def _names_owner(db: Export, source: EventTable) -> bool:
    """Whether a table has the column that says which process or thread its events
    belong to."""
    return db.has(source.table, source.owner_by)


def _read_texts(db: Export, table: str, column: str) -> dict[int, str]:
    """Return the texts of a table by their ids: {5: "aten::mm"}; {} without the table.

    Of a very long text SQLite reads no more than `shorten_shared_name` keeps.

    Args:
        db: The database.
        table: The table.
        column: The column with the texts; the ids are in the column `id`.
    """
    if not db.has(table, "id", column):
        return {}
    number = db.integer(table, "id")
    text = db.typed(table, column, "'text'", "NULL")
    beginning = f"substr({text}, 1, {MAX_SHARED_NAME + 1})"
    return {
        number: shorten_shared_name(text, number)
        for number, text in db.rows(table, (number, beginning))
        if number != NONE and text is not None
    }


MIN_BATCH_ROWS = 1 << 12  # where rowids have no gaps
MAX_BATCHES = 1 << 16  # of a table
LAST_ROWID = 2**63 - 1


class Batches(msgspec.Struct, frozen=True):
    """The batches of one table: the rowids from `first` on, `rows` in each but the
    last, which has all further ones."""

    source: EventTable
    first: int
    rows: int
    count: int
    shown_condition: str  # the condition for a row to be an event of what is read
    sound_condition: str  # and for such an event to have times that can be

    def bounds(self, number: int) -> tuple[int, int]:
        """The first and the last rowid of the batch with this number."""
        begin = self.first + number * self.rows
        is_last_batch = number == self.count - 1
        return begin, LAST_ROWID if is_last_batch else begin + self.rows - 1

    def number_of(self, rowid: int) -> int:
        """The number of the batch that has a rowid."""
        return min((rowid - self.first) // self.rows, self.count - 1)

    @property
    def condition(self) -> str:
        """The part of a query behind its columns that selects the events of one batch,
        in order. Its values are `bounds`."""
        readable = f"{self.shown_condition} and {self.sound_condition}"
        return f"where rowid between ? and ? and {readable} order by rowid"


def plan_batches(db: Export, sources: Sequence[EventTable]) -> list[Batches]:
    """Divide the tables that have rows into batches by rowids."""
    plans = []
    for source in sources:
        first = _extreme_rowid(db, source, "min")
        last = _extreme_rowid(db, source, "max")
        if first is None:
            continue
        if last is None:
            # the end of the table cannot be read
            last = LAST_ROWID
        span = max(last - first, 0)
        rows_per_batch = max(MIN_BATCH_ROWS, span // MAX_BATCHES + 1)
        batches = Batches(
            source=source,
            first=first,
            rows=rows_per_batch,
            count=span // rows_per_batch + 1,
            shown_condition=shown_condition(db, source),
            sound_condition=_sound_condition(source),
        )
        plans.append(batches)
    return plans


def _extreme_rowid(db: Export, source: EventTable, which: str) -> int | None:
    """The smallest or largest rowid of a table; `which` is min or max. None if there
    are no rows, or they cannot be read."""
    rowid: int | None
    (rowid,) = next(db.rows(source.table, (f"{which}(rowid)",)), (None,))
    return rowid
