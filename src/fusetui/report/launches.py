"""The text and the document of `launches`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict, astuple

from fusetui.analysis.questions.launches import Calls, QueueLength, Replay, ThreadLaunches
from fusetui.report.documents import (
    CallsDocument,
    LaunchesDocument,
    QueueDocument,
    ReplayDocument,
    ThreadDocument,
)
from fusetui.text.figures import count, duration, percent, significant
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, left_out, table
from fusetui.trace import Trace
from fusetui.trace.model.ids import device_label, exact_id

MOST = 12  # threads, or kinds of replays; --json has all
CALL_COLUMNS = (
    Column("total"),
    Column("share", spare=1),
    Column("count", spare=2),
    Column("mean", spare=3),
    Column("p99", spare=4),
    Column("max", spare=5),
    Column("events", spare=6),
    Column("launch calls of a thread", left=True),
)
GRAPH_COLUMNS = (
    Column("replays"),
    Column("call", spare=4),
    Column("kernels"),
    Column("span", spare=1),
    Column("busy", spare=2),
    Column("graph launches of a device (medians)", left=True),
)
QUEUE_COLUMNS = (
    Column("most"),
    Column("mean", spare=1),
    Column("empty", spare=2),
    Column("launch queue", left=True),
)


def launches_text(
    trace: Trace,
    threads: Sequence[ThreadLaunches],
    graphs: Sequence[Replay],
    queues: Sequence[QueueLength],
    width: int,
) -> str:
    if not threads:
        return "no launch calls in this trace"
    rows = [row for thread in threads[:MOST] for row in _thread(thread)]
    paragraphs = [table(CALL_COLUMNS, rows, width) + _more(len(threads), "thread")]
    kinds = _kinds(trace, graphs)
    if kinds:
        shown = [_kind(label, same) for label, same in kinds[:MOST]]
        paragraphs.append(table(GRAPH_COLUMNS, shown, width) + _more(len(kinds), "kind"))
    if queues:
        paragraphs.append(table(QUEUE_COLUMNS, [_queue(queue) for queue in queues], width))
    return "\n\n".join(paragraphs)


def launches_json(
    trace: Trace,
    threads: Sequence[ThreadLaunches],
    graphs: Sequence[Replay],
    queues: Sequence[QueueLength],
) -> LaunchesDocument:
    """The document of `launches --json`."""
    return LaunchesDocument(
        base_ns=str(trace.begin_ns),
        threads=[_thread_json(thread) for thread in threads],
        graphs=[_replay_json(trace, replay) for replay in graphs],
        queues=[QueueDocument(*astuple(queue)) for queue in queues],
    )


def _thread(thread: ThreadLaunches) -> Iterator[tuple[str, ...]]:
    """The thread, followed by its calls by name."""
    named = f"thread {thread.thread} of process {thread.process}"
    yield _calls(thread.all, thread.span_ns, printable(named))
    if len(thread.names) > 1:
        for calls in thread.names:
            yield _calls(calls, thread.span_ns, f"  {printable(calls.name or '')}")


def _calls(calls: Calls, span_ns: int, label: str) -> tuple[str, ...]:
    return (
        duration(calls.total_ns),
        percent(calls.total_ns, span_ns),
        count(calls.count),
        duration(calls.mean_ns),
        duration(calls.p99_ns),
        duration(calls.max_ns),
        count(calls.events),
        label,
    )


def _kinds(trace: Trace, graphs: Sequence[Replay]) -> list[tuple[str, list[Replay]]]:
    """Replays by call, device and number of kernels, which all replays of a graph share."""
    kinds: dict[tuple[str, str, int], list[Replay]] = {}
    for replay in graphs:
        key = (trace.name_of(replay.row), device_label(replay.device), replay.kernels)
        kinds.setdefault(key, []).append(replay)
    return [(f"{name} on {device}", same) for (name, device, _), same in kinds.items()]


def _kind(label: str, same: Sequence[Replay]) -> tuple[str, ...]:
    return (
        count(len(same)),
        duration(_median([replay.call_ns for replay in same])),
        count(same[0].kernels),
        duration(_median([replay.span_ns for replay in same])),
        duration(_median([replay.busy_ns for replay in same])),
        printable(label),
    )


def _median(values: Sequence[int]) -> int:
    """The median; of an even number, the mean of the middle two, rounded down."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def _queue(queue: QueueLength) -> tuple[str, ...]:
    return (
        count(queue.most),
        significant(queue.mean, 3),
        percent(queue.empty_ns, queue.span_ns),
        printable(queue.label),
    )


def _thread_json(thread: ThreadLaunches) -> ThreadDocument:
    span_ns = thread.span_ns
    return ThreadDocument(
        process=exact_id(thread.process),
        thread=exact_id(thread.thread),
        span_ns=span_ns,
        **_calls_json(thread.all, span_ns),
        calls=[CallsDocument(calls.name, **_calls_json(calls, span_ns)) for calls in thread.names],
    )


def _calls_json(calls: Calls, span_ns: int) -> dict[str, Any]:
    figures = asdict(calls)
    del figures["name"]
    return figures | {"share": calls.total_ns / span_ns if span_ns else None}


def _replay_json(trace: Trace, replay: Replay) -> ReplayDocument:
    return ReplayDocument(
        call=trace.name_of(replay.row),
        call_start_ns=int(trace.start[replay.row]) - trace.begin_ns,
        call_ns=replay.call_ns,
        device=exact_id(replay.device),
        events=replay.events,
        kernels=replay.kernels,
        start_ns=replay.start_ns - trace.begin_ns,
        span_ns=replay.span_ns,
        busy_ns=replay.busy_ns,
    )


def _more(number: int, noun: str) -> str:
    return "".join(f"\n{line}" for line in left_out(number - MOST, noun, JSON_ALL))
