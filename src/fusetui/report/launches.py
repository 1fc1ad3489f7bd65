"""The text of `launches`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fusetui.analysis.questions.launches import Calls, QueueLength, Replay, ThreadLaunches
from fusetui.text.figures import count, duration, percent, significant
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, left_out, table_of
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.ids import device_label

MOST = 12  # threads, or kinds of replays; --json has all
CALL_COLUMNS = (
    Column("total", cell=lambda row: duration(row.calls.total_ns)),
    Column("share", spare=1, cell=lambda row: percent(row.calls.total_ns, row.span_ns)),
    Column("count", spare=2, cell=lambda row: count(row.calls.count)),
    Column("mean", spare=3, cell=lambda row: duration(row.calls.mean_ns)),
    Column("p99", spare=4, cell=lambda row: duration(row.calls.p99_ns)),
    Column("max", spare=5, cell=lambda row: duration(row.calls.max_ns)),
    Column("events", spare=6, cell=lambda row: count(row.calls.events)),
    Column("launch calls of a thread", left=True, cell=lambda row: printable(row.label)),
)
GRAPH_COLUMNS = (
    Column("replays", cell=lambda kind: count(len(kind.same))),
    Column("call", spare=4, cell=lambda kind: kind.median("call_ns")),
    Column("kernels", cell=lambda kind: count(kind.same[0].kernels)),
    Column("span", spare=1, cell=lambda kind: kind.median("span_ns")),
    Column("busy", spare=2, cell=lambda kind: kind.median("busy_ns")),
    Column("graph launches of a device (medians)", True, cell=lambda kind: printable(kind.label)),
)
QUEUE_COLUMNS = (
    Column("most", cell=lambda queue: count(queue.most)),
    Column("mean", spare=1, cell=lambda queue: significant(queue.mean, 3)),
    Column("empty", spare=2, cell=lambda queue: percent(queue.empty_ns, queue.span_ns)),
    Column("launch queue", left=True, cell=lambda queue: printable(queue.label)),
)


class CallRow(NamedTuple):
    """Launch calls on a thread whose time is `span_ns`."""

    calls: Calls | ThreadLaunches
    span_ns: int
    label: str


class ReplayKind(NamedTuple):
    """Replays with the same call, device and number of kernels, as all replays of a graph have."""

    label: str
    same: list[Replay]

    def median(self, name: str) -> str:
        """Of an even number, the mean of the middle two, rounded down."""
        ordered = sorted(getattr(replay, name) for replay in self.same)
        return duration((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2)


def launches_text(
    threads: Sequence[ThreadLaunches],
    graphs: Sequence[Replay],
    queues: Sequence[QueueLength],
    width: int,
) -> str:
    if not threads:
        return "no launch calls in this trace"
    rows = [row for thread in threads[:MOST] for row in _thread(thread)]
    paragraphs = [table_of(CALL_COLUMNS, rows, width) + _more(len(threads), "thread")]
    by_graph = by_key(graphs, lambda r: (r.call, device_label(r.device), r.kernels))
    kinds = [ReplayKind(f"{name} on {gpu}", same) for (name, gpu, _), same in by_graph.items()]
    if kinds:
        shown = table_of(GRAPH_COLUMNS, kinds[:MOST], width)
        paragraphs.append(shown + _more(len(kinds), "kind"))
    if queues:
        paragraphs.append(table_of(QUEUE_COLUMNS, queues, width))
    return "\n\n".join(paragraphs)


def _thread(thread: ThreadLaunches) -> Iterator[CallRow]:
    """The thread, followed by its calls by name."""
    yield CallRow(thread, thread.span_ns, f"thread {thread.thread} of process {thread.process}")
    if len(thread.calls) > 1:
        for calls in thread.calls:
            yield CallRow(calls, thread.span_ns, f"  {calls.name}")


def _more(number: int, noun: str) -> str:
    return "".join(f"\n{line}" for line in left_out(number - MOST, noun, JSON_ALL))
