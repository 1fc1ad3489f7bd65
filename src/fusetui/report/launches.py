"""The tables of `launches`: launch calls of threads, replays of graphs, launch
queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fusetui.analysis.questions.launches import (
    Calls,
    GraphReplay,
    QueueLength,
    ThreadLaunches,
)
from fusetui.text.figures import count, duration, percent, significant
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, omitted_line, record_table, top_table
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.ids import device_label
from fusetui.trace.model.quantiles import median

MAX_THREADS = 12
MAX_REPLAY_KINDS = 12


class CallRow(NamedTuple):
    """Launch calls on a thread whose time is `span_ns`: all, or those of one name."""

    label: str
    calls: Calls | ThreadLaunches
    span_ns: int


class ReplayKind(NamedTuple):
    """Replays with the same call, device and number of kernels, as all replays of a
    graph have; at least one."""

    label: str
    replays: list[GraphReplay]


def _format_median_call(kind: ReplayKind) -> str:
    return duration(median([replay.call_ns for replay in kind.replays]))


def _format_median_span(kind: ReplayKind) -> str:
    return duration(median([replay.span_ns for replay in kind.replays]))


def _format_median_busy(kind: ReplayKind) -> str:
    return duration(median([replay.busy_ns for replay in kind.replays]))


CALL_COLUMNS = (
    Column("total", cell=lambda row: duration(row.calls.total_ns)),
    Column("share", spare=1, cell=lambda row: percent(row.calls.total_ns, row.span_ns)),
    Column("count", spare=2, cell=lambda row: count(row.calls.count)),
    Column("mean", spare=3, cell=lambda row: duration(row.calls.mean_ns)),
    Column("p99", spare=4, cell=lambda row: duration(row.calls.p99_ns)),
    Column("max", spare=5, cell=lambda row: duration(row.calls.max_ns)),
    Column("events", spare=6, cell=lambda row: count(row.calls.events)),
    Column(
        "launch calls of a thread", left=True, cell=lambda row: printable(row.label)
    ),
)
GRAPH_COLUMNS = (
    Column("replays", cell=lambda kind: count(len(kind.replays))),
    Column("call", spare=4, cell=_format_median_call),
    Column("kernels", cell=lambda kind: count(kind.replays[0].kernels)),
    Column("span", spare=1, cell=_format_median_span),
    Column("busy", spare=2, cell=_format_median_busy),
    Column(
        "graph launches of a device (medians)",
        left=True,
        cell=lambda kind: printable(kind.label),
    ),
)
QUEUE_COLUMNS = (
    Column("most", cell=lambda queue: count(queue.most)),
    Column("mean", spare=1, cell=lambda queue: significant(queue.mean, 3)),
    Column("empty", spare=2, cell=lambda queue: percent(queue.empty_ns, queue.span_ns)),
    Column("launch queue", left=True, cell=lambda queue: printable(queue.label)),
)


def format_launches(
    threads: Sequence[ThreadLaunches],
    graphs: Sequence[GraphReplay],
    queues: Sequence[QueueLength],
    width: int,
) -> str:
    """Return tables of the launch calls of the first threads, of the kinds of graph
    replays, and of launch queues. The last two are left out if there are none."""
    if not threads:
        return "no launch calls in this trace"
    paragraphs = [_format_calls(threads, width)]
    kinds = _group_replays(graphs)
    if kinds:
        paragraphs.append(
            top_table(GRAPH_COLUMNS, kinds, MAX_REPLAY_KINDS, width, "kind", JSON_ALL)
        )
    if queues:
        paragraphs.append(record_table(QUEUE_COLUMNS, queues, width))
    return "\n\n".join(paragraphs)


def _format_calls(threads: Sequence[ThreadLaunches], width: int) -> str:
    """Return a table with a row for each of the first MAX_THREADS threads. Below a
    thread that made several launch calls, each call has a row."""
    rows = []
    for thread in threads[:MAX_THREADS]:
        label = f"thread {thread.thread} of process {thread.process}"
        rows.append(CallRow(label=label, calls=thread, span_ns=thread.span_ns))
        if len(thread.calls) == 1:
            continue
        for calls in thread.calls:
            label = f"  {calls.name}"
            rows.append(CallRow(label=label, calls=calls, span_ns=thread.span_ns))
    omitted_lines = omitted_line(len(threads) - MAX_THREADS, "thread", JSON_ALL)
    return "\n".join([record_table(CALL_COLUMNS, rows, width), *omitted_lines])


def _group_replays(graphs: Sequence[GraphReplay]) -> list[ReplayKind]:
    """Return the replays grouped by call, device and number of kernels, in the order of
    their first replays."""
    replays_of_kind = by_key(
        graphs,
        lambda replay: (replay.call, device_label(replay.device), replay.kernels),
    )
    kinds = []
    for (call, device, _), replays in replays_of_kind.items():
        kinds.append(ReplayKind(label=f"{call} on {device}", replays=replays))
    return kinds
