"""The tables of an export that hold events: which of their columns say what, and what
an event is called. Names are those that torch.profiler gives (libkineto,
CuptiActivity.cpp).

Each is divided into batches by rowids, so that where a batch is follows from the file
alone.

Source: NVIDIA, Nsight Systems User Guide, "SQLite Schema Reference".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial

import msgspec
from msgspec.structs import replace

from fusetui.trace.model.categories import GPU_ROLES, role
from fusetui.trace.nsys.database import NONE, Export, ExportFile
from fusetui.trace.nsys.nvtx import NVTX, SHOWN, nvtx_fields
from fusetui.trace.read.document_text import MAX_SHARED_NAME, shared_name
from fusetui.trace.read.times import LIMIT_NS

CUPTI, METRICS, GRAPHS = "CUPTI_ACTIVITY_KIND_", "GPU_METRICS", "cuda_graph"
FIELDS = (
    *("row", "start", "end", "owner", "device", "context", "stream", "correlation"),
    *("external", "name", "kind"),
)
"""What is read of every event, as integers. `end` is NONE if a range was not closed.
`owner` is a globalPid of GPU work, else a globalTid; `kind` says which of its source's
categories it has."""

PID = 0xFFFFFF
"""A globalPid is the number of a machine above 48 bits, then that of the process above
24; in a globalTid the lowest bits are the number of the thread."""
VERSION = re.compile(r"_v[0-9]{4,5}\Z")
"""What CUPTI appends to the name of a runtime call; the reports of nsys leave it out
too."""

KINDS_OF_MEMORY = (
    *(
        "Pageable",
        "Pinned",
        "Device",
        "Array",
        "Managed",
        "Device Static",
        "Managed Static",
    ),
    "Unknown",
)
KINDS_OF_COPY = (
    *(
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
    ),
    *("UVM_HtoD", "UVM_DtoH", "UVM_DtoD"),
)
KINDS_OF_SYNC = {
    "UNKNOWN": "Unknown Sync",
    "EVENT_SYNCHRONIZE": "Event Sync",
    "STREAM_WAIT_EVENT": "Stream Wait Event",
    "STREAM_SYNCHRONIZE": "Stream Sync",
    "CONTEXT_SYNCHRONIZE": "Context Sync",
}


class Words(msgspec.Struct, frozen=True):
    """What the numbers of an export stand for."""

    strings: Mapping[int, str]
    copies: Mapping[int, str]
    memories: Mapping[int, str]
    syncs: Mapping[int, str]


Named = Callable[[Words, int], str]


def words_of(db: Export) -> Words:
    """By the tables StringIds and ENUM_*; without the latter, as nsys numbers them."""

    def enum(
        known: Iterable[str], table: str, column: str, prefix: str = ""
    ) -> dict[int, str]:
        found = _texts(db, table, column).items()
        return dict(enumerate(known)) | {
            n: text.removeprefix(prefix) for n, text in found
        }

    kinds = {kind.upper(): kind for kind in KINDS_OF_COPY}
    copies = enum(kinds, "ENUM_CUDA_MEMCPY_OPER", "name", "CUDA_MEMCPY_KIND_")
    prefix = "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_"
    syncs = enum(KINDS_OF_SYNC, "ENUM_CUPTI_SYNC_TYPE", "name", prefix)
    return Words(
        _texts(db, "StringIds", "value"),
        {number: kinds.get(name, name) for number, name in copies.items()},
        enum(KINDS_OF_MEMORY, "ENUM_CUDA_MEM_KIND", "label"),
        {number: KINDS_OF_SYNC.get(name, name) for number, name in syncs.items()},
    )


class EventTable(msgspec.Struct, frozen=True, eq=False):
    """A table of events. What ends in `_by` names columns."""

    table: str
    categories: tuple[str, ...]
    named: Named
    # the first that it has; or if `packed` all, 8 bits each, 255 for none
    name_by: tuple[str, ...]
    owner_by: str = "globalPid"
    times_by: tuple[str, str] = ("start", "end")
    kind: str = "0"  # an expression
    args: tuple[str, ...] = ()  # columns that are read only to be written
    packed: bool = False

    @property
    def is_nvtx(self) -> bool:
        return self.table == NVTX

    @property
    def is_metrics(self) -> bool:
        return self.table == METRICS

    @property
    def by_string(self) -> bool:
        """Whether its names are in StringIds."""
        return self.named in (string, _call)

    @property
    def on_gpu(self) -> bool:
        return self.owner_by == "globalPid"

    @property
    def works(self) -> bool:
        """Whether its events are work of a GPU."""
        return any(role(category) in GPU_ROLES for category in self.categories)


def string(words: Words, number: int) -> str:
    return words.strings.get(number) or (
        "unnamed" if number == NONE else f"unnamed {number}"
    )


def _call(words: Words, number: int) -> str:
    return VERSION.sub("", string(words, number))


def _copy(words: Words, number: int) -> str:
    kind, source, target = (number >> 16) & 255, (number >> 8) & 255, number & 255
    memories = " -> ".join(words.memories.get(n, "Unknown") for n in (source, target))
    return f"Memcpy {words.copies.get(kind, 'Unknown')} ({memories})"


def _set(words: Words, number: int) -> str:
    return f"Memset ({words.memories.get(number, 'Unknown')})"


def _sync(words: Words, number: int) -> str:
    return words.syncs.get(number, "Unknown Sync")


def _graph(_: Words, number: int) -> str:
    return "CUDA graph" if number == NONE else f"CUDA graph {number}"


def _gpu(
    table: str, category: str, named: Named, name_by: tuple[str, ...], *args: str
) -> EventTable:
    return EventTable(f"{CUPTI}{table}", (category,), named, name_by, args=args)


def _host(
    table: str, categories: tuple[str, ...], named: Named, kind: str, *args: str
) -> EventTable:
    return EventTable(
        table, categories, named, ("nameId",), "globalTid", kind=kind, args=args
    )


NO_STREAM = 0xFFFFFFFF  # CUPTI_SYNCHRONIZATION_INVALID_VALUE; torch writes -1
CALLS = ("cuda_runtime", "cuda_driver")
INSTANT = ("timestamp", "timestamp")
SOURCES = (
    _gpu(
        *("KERNEL", "kernel", string, ("demangledName", "shortName", "mangledName")),
        *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
        *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
        *(
            "clusterX",
            "clusterY",
            "clusterZ",
            "localMemoryPerThread",
            "graphNodeId",
            "graphId",
        ),
    ),
    _gpu("GRAPH_TRACE", GRAPHS, _graph, ("graphId",), "graphId"),
    EventTable(
        *(f"{CUPTI}MEMCPY", ("gpu_memcpy",), _copy, ("copyKind", "srcKind", "dstKind")),
        args=("bytes", "srcDeviceId", "dstDeviceId", "graphNodeId"),
        packed=True,
    ),
    _gpu("MEMSET", "gpu_memset", _set, ("memKind",), "bytes", "value", "graphNodeId"),
    _gpu(
        "SYNCHRONIZATION", "cuda_sync", _sync, ("syncType",), "eventId", "eventSyncId"
    ),
    EventTable(
        *(f"{CUPTI}CUDA_EVENT", ("cuda_event",), lambda *_: "CUDA event", ()),
        times_by=INSTANT,
        args=("eventId", "eventSyncId"),
    ),
    _host(f"{CUPTI}RUNTIME", CALLS, _call, "eventClass", "returnValue"),
    _host(f"{CUPTI}DRIVER", CALLS, _call, "1", "returnValue"),
    EventTable(NVTX, (), string, ("textId",), "globalTid"),
    _host(f"{CUPTI}OVERHEAD", ("overhead",), string, "0"),
    _host("PROFILER_OVERHEAD", ("overhead",), string, "0"),
    # is named in writing.py
    EventTable(METRICS, (), _graph, ("metricId",), times_by=INSTANT),
)


def fields(db: Export, source: EventTable) -> dict[str, str]:
    """The expression of each of FIELDS, of a table that is there."""
    table, known = source.table, db.tables[source.table]
    integer = partial(db.integer, table)
    found = {
        "row": "rowid",
        "start": integer(source.times_by[0]),
        "end": integer(source.times_by[1]),
        "owner": db.typed(
            table, source.owner_by, "'integer'", db.owner if source.on_gpu else NONE
        ),
        **{
            name: integer(f"{name}Id")
            for name in ("device", "context", "stream", "correlation")
        },
        "external": str(NONE),
        "name": integer(next((c for c in source.name_by if c in known), "")),
        "kind": source.kind,
    }
    if source.packed:
        parts = (
            (bits, integer(c))
            for bits, c in zip((16, 8, 0), source.name_by, strict=True)
        )
        found["name"] = " | ".join(
            f"(iif(({part}) between 0 and 254, {part}, 255) << {bits})"
            for bits, part in parts
        )
    if source.on_gpu and not source.works:
        found["stream"] = (
            f"iif(({found['stream']}) = {NO_STREAM}, -1, {found['stream']})"
        )
    if source.kind == "eventClass":
        found["kind"] = f"({integer('eventClass')}) = 1"
    if source.is_nvtx:
        found |= nvtx_fields(db)
    if source.is_metrics:
        found["owner"] = integer("typeId")
    return found


def _sound(source: EventTable) -> str:
    """The condition for a row to be an event that can be read."""
    begin, end = source.times_by
    first, last = (
        f"""typeof("{c}") = 'integer' and "{c}" between {-LIMIT_NS} and {LIMIT_NS}"""
        for c in (begin, end)
    )
    if source.is_nvtx:
        return f'{first} and ("{end}" is null or ({last}))'
    if source.is_metrics:
        last = "typeof(value) in ('integer', 'real') and value between -1e300 and 1e300"
    return f"{first} and {last}"


def shown(db: Export, source: EventTable) -> str:
    """The condition for a row to be an event of what is read."""
    own = "1"
    if db.process is not None and not source.is_metrics:
        own = f"(({fields(db, source)['owner']}) >> 24) & {PID} = {db.process}"
    return f"{SHOWN} and {own}" if source.is_nvtx and db.has(NVTX, "eventType") else own


def present(db: Export) -> list[EventTable]:
    """The tables of events that this export has, with the columns that they need."""
    needs = {NVTX: (), METRICS: ("typeId", "metricId", "value")}
    return [
        one
        for one in SOURCES
        if db.has(one.table, *one.times_by, *needs.get(one.table, ()))
    ]


def with_owner(place: ExportFile) -> ExportFile:
    """The same place, with the process of GPU events that name none: the only one of
    the file, if a table of them has no globalPid. Raises CannotReadError."""
    with closing(Export(place)) as db:
        return replace(place, owner=_only_process(db))


def _only_process(db: Export) -> int:
    """The globalPid of the process that called CUDA, if there is one only; NONE
    otherwise, and if every table names the processes of its events."""
    tables = [source for source in present(db) if not source.is_metrics]
    if all(db.has(source.table, source.owner_by) for source in tables if source.on_gpu):
        return NONE
    keys: set[int] = set()
    for source in tables:
        if source.table.startswith(CUPTI) and db.has(source.table, source.owner_by):
            key = f"distinct ({db.integer(source.table, source.owner_by)}) >> 24"
            keys.update(number for (number,) in db.rows(source.table, (key,)))
    keys.discard(NONE >> 24)
    return keys.pop() << 24 if len(keys) == 1 else NONE


def _texts(db: Export, table: str, column: str) -> dict[int, str]:
    """The texts of a table by their numbers, each decoded once. Of a very long one
    SQLite gives the beginning only, see `shared_name`."""
    if not db.has(table, "id", column):
        return {}
    text = db.typed(table, column, "'text'", "NULL")
    columns = (db.integer(table, "id"), f"substr({text}, 1, {MAX_SHARED_NAME + 1})")
    rows = db.rows(table, columns)
    return {
        n: shared_name(text, n) for n, text in rows if n != NONE and text is not None
    }


# of a batch, where rowids have no gaps; batches of a table
ROWS, MOST = 1 << 12, 1 << 16
LAST = 2**63 - 1


class Batches(msgspec.Struct, frozen=True):
    """The batches of one table: the rowids from `first` on, `rows` in each but the
    last, which has all further ones."""

    source: EventTable
    first: int
    rows: int
    count: int
    is_shown: str  # the condition for a row to be an event of what is read
    is_sound: str  # and for such an event to have times that can be

    @property
    def readable(self) -> str:
        return f"{self.is_shown} and {self.is_sound}"

    def bounds(self, number: int) -> tuple[int, int]:
        """The first and the last rowid."""
        begin = self.first + number * self.rows
        return begin, LAST if number == self.count - 1 else begin + self.rows - 1

    def number_of(self, rowid: int) -> int:
        """The batch that has this row."""
        return min((rowid - self.first) // self.rows, self.count - 1)

    @property
    def condition(self) -> str:
        """What follows the columns of a query for one batch; its values are
        `bounds`."""
        return f"where rowid between ? and ? and {self.readable} order by rowid"


def plan(db: Export, sources: Sequence[EventTable]) -> list[Batches]:
    """The tables that have rows."""
    found = []
    for source in sources:
        ends = (db.rows(source.table, (f"{end}(rowid)",)) for end in ("min", "max"))
        (first,), (last,) = (next(end, (None,)) for end in ends)
        if first is not None:
            span = max((LAST if last is None else last) - first, 0)
            rows = max(ROWS, span // MOST + 1)
            found.append(
                Batches(
                    source=source,
                    first=first,
                    rows=rows,
                    count=span // rows + 1,
                    is_shown=shown(db, source),
                    is_sound=_sound(source),
                )
            )
    return found
