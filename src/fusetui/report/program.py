"""The tables of `modules`, `lines` and `launches`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import fill
from typing import NamedTuple

from fusetui.analysis.questions.launches import (
    Calls,
    GraphReplay,
    QueueLength,
    ThreadLaunches,
)
from fusetui.text.figures import count, duration, percent, plural, significant
from fusetui.text.printable import printable
from fusetui.text.tables import (
    JSON_ALL,
    TOP_ALL,
    Column,
    omitted_line,
    record_table,
    top_table,
)
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.ids import device_label
from fusetui.trace.model.quantiles import median
from fusetui.trace.model.report import recorded_with
from fusetui.trace.program.functions import Functions, FunctionTime
from fusetui.trace.program.modules import MODULE, Modules, ModuleTime, Unclaimed
from fusetui.trace.program.origin import Nowhere, PhaseTime

PASSES = (
    Column("backward", spare=4, cell=lambda time: _figure(time.gpu_backward_ns)),
    Column("recompute", spare=4, cell=lambda time: _figure(time.gpu_recompute_ns)),
    Column(
        "kernels",
        spare=5,
        cell=lambda time: count(time.kernels) if time.kernels else "",
    ),
)
FUNCTION_COLUMNS = (
    Column("GPU self", cell=lambda time: _figure(time.gpu_self_ns)),
    Column("GPU", spare=1, cell=lambda time: _figure(time.gpu_ns)),
    *PASSES,
    Column("idle", spare=3, cell=lambda time: _figure(time.idle_self_ns or 0)),
    Column("CPU self", cell=lambda time: duration(time.cpu_self_ns)),
    Column("CPU", spare=2, cell=lambda time: duration(time.cpu_ns)),
    Column("calls", spare=6, cell=lambda time: count(time.count)),
    Column(
        "function",  # and the names of its file and of the folder of that
        left=True,
        cell=lambda t: printable(
            f"{t.function}  {'/'.join(t.file.split('/')[-2:])}:{t.line}"
        ),
    ),
)
NO_MODULES = (
    "nothing in this trace names a part of the program",
    "{} records the calls of modules, {} names any other part",
)
NO_CALLS = "the calls of modules are not in this trace: {} records them"
NO_CALLS_IN_STACKS = "Python stacks were recorded, but no call of a module: record_function names other parts"
NO_FUNCTIONS = (
    "no such Python functions in this trace",
    "{} records functions, --file PATH shows those of a library",
)
INDENT = "  "


def modules_text(
    times: Modules,
    phases: Sequence[PhaseTime],
    top: int,
    width: int,
    *,
    stacks: bool,
    form: str,
) -> str:
    """The tree with its `top` largest paths (0: all), unclaimed GPU time, and the
    phases. `stacks`: whether Python frames were recorded; `form`: the format of the
    trace."""
    said = (
        NO_CALLS_IN_STACKS
        if stacks
        else NO_CALLS.format(recorded_with("with_stack=True", form))
    )
    tree = list(_module_table(times, top, width, said))
    shares = ((one, percent(one.gpu_ns, times.gpu_ns)) for one in phases)
    parts = [f"{one.phase} {duration(one.gpu_ns)} ({share})" for one, share in shares]
    by_phase = [f"GPU time by phase: {', '.join(parts)}"] if parts else []
    none = outside_modules(times)
    missing = _told(NO_MODULES, form, "with_stack=True", "record_function")
    return _text([tree if times.modules else missing, list(none), by_phase], width)


def functions_text(times: Functions, top: int, width: int, form: str) -> str:
    """The first `top` functions (0: all), and unclaimed GPU time; `form`: as above."""
    missing = _told(NO_FUNCTIONS, form, "with_stack=True")
    hidden = _blank(times.functions)
    hidden |= (
        {"idle"} if all(time.idle_ns is None for time in times.functions) else set()
    )
    columns = [column for column in FUNCTION_COLUMNS if column.title not in hidden]
    none = outside_functions(times)
    shown = [top_table(columns, times.functions, top, width, "function")]
    return _text([shown if times.functions else missing, list(none)], width)


def outside_modules(times: Modules) -> tuple[str, ...]:
    """Why GPU time belongs to no path of the tree, with how much: a sentence for each
    reason."""
    return tuple(_unclaimed(times.none, times.gpu_ns, "in no module or annotation"))


def outside_functions(times: Functions) -> tuple[str, ...]:
    """The same of functions."""
    return tuple(_unclaimed(times.none, times.gpu_ns, "in none of these functions"))


def _told(sentences: Sequence[str], form: str, *options: str) -> list[str]:
    said = [recorded_with(option, form) for option in options]
    return [sentence.format(*said) for sentence in sentences]


def _text(paragraphs: Iterable[Sequence[str]], width: int) -> str:
    """Folds sentences to the width, but not tables, which already fit."""

    def folded(line: str) -> str:
        return line if "\n" in line else fill(line, width, break_on_hyphens=False)

    return "\n\n".join("\n".join(map(folded, lines)) for lines in paragraphs if lines)


def _module_table(times: Modules, top: int, width: int, no_calls: str) -> Iterator[str]:
    largest = sorted(
        times.modules, key=lambda time: (-time.gpu_ns, -time.cpu_ns, time.level)
    )
    chosen = set(map(id, largest[:top] if top else largest))
    shown = [time for time in times.modules if id(time) in chosen]
    hidden, whole = _blank(times.modules), times.gpu_ns
    columns = (
        Column("GPU", cell=lambda time: _figure(time.gpu_ns)),
        Column(
            "share",
            False,
            1,
            lambda time: percent(time.gpu_ns, whole) if time.gpu_ns else "",
        ),
        Column("self", spare=2, cell=lambda time: _figure(time.gpu_self_ns)),
        *PASSES,
        Column("CPU", spare=6, cell=lambda time: _figure(time.cpu_ns)),
        Column(
            "calls", spare=7, cell=lambda time: count(time.count) if time.count else ""
        ),
        Column(
            "module",
            True,
            cell=lambda time: INDENT * time.level + printable(time.module),
        ),
    )
    yield record_table(
        [column for column in columns if column.title not in hidden], shown, width
    )
    yield from omitted_line(len(times.modules) - len(shown), "path", TOP_ALL)
    if all(time.kind != MODULE for time in times.modules):
        yield no_calls


def _blank(times: Sequence[ModuleTime | FunctionTime]) -> set[str]:
    """The columns of passes of which there is no GPU work."""
    hidden = set() if any(time.gpu_backward_ns for time in times) else {"backward"}
    return (
        hidden
        if any(time.gpu_recompute_ns for time in times)
        else {*hidden, "recompute"}
    )


def _unclaimed(none: Sequence[Unclaimed], whole: int, outside: str) -> Iterator[str]:
    """A line for each reason why GPU time belongs to none of the rows."""
    words = {
        Nowhere.NOT_LAUNCHED: "without a recorded launch",
        Nowhere.NO_FORWARD: "backward, of no recorded forward op",
        Nowhere.OUTSIDE: outside,
    }
    for one in none:
        share = percent(one.gpu_ns, whole)
        kernels = plural(one.kernels, "kernel")
        yield f"{duration(one.gpu_ns)} of GPU time ({share}, {kernels}) {words[one.why]}"


def _figure(ns: int) -> str:
    return duration(ns) if ns else ""


MOST = 12  # threads, or kinds of replays; --json has all
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
    Column("replays", cell=lambda kind: count(len(kind.same))),
    Column("call", spare=4, cell=lambda kind: kind.median("call_ns")),
    Column("kernels", cell=lambda kind: count(kind.same[0].kernels)),
    Column("span", spare=1, cell=lambda kind: kind.median("span_ns")),
    Column("busy", spare=2, cell=lambda kind: kind.median("busy_ns")),
    Column(
        "graph launches of a device (medians)",
        True,
        cell=lambda kind: printable(kind.label),
    ),
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
    """Replays with the same call, device and number of kernels, as all replays of a
    graph have."""

    label: str
    same: list[GraphReplay]

    def median(self, name: str) -> str:
        """Of a field in ns."""
        return duration(median([getattr(replay, name) for replay in self.same]))


def launches_text(
    threads: Sequence[ThreadLaunches],
    graphs: Sequence[GraphReplay],
    queues: Sequence[QueueLength],
    width: int,
) -> str:
    if not threads:
        return "no launch calls in this trace"
    rows: list[CallRow] = []
    for one in threads[:MOST]:
        each = one.calls if len(one.calls) > 1 else ()
        rows.append(
            CallRow(one, one.span_ns, f"thread {one.thread} of process {one.process}")
        )
        rows += (CallRow(calls, one.span_ns, f"  {calls.name}") for calls in each)
    more = omitted_line(len(threads) - MOST, "thread", JSON_ALL)
    paragraphs = ["\n".join([record_table(CALL_COLUMNS, rows, width), *more])]
    by_graph = by_key(graphs, lambda r: (r.call, device_label(r.device), r.kernels))
    kinds = [
        ReplayKind(f"{name} on {gpu}", same)
        for (name, gpu, _), same in by_graph.items()
    ]
    if kinds:
        paragraphs.append(
            top_table(GRAPH_COLUMNS, kinds, MOST, width, "kind", JSON_ALL)
        )
    if queues:
        paragraphs.append(record_table(QUEUE_COLUMNS, queues, width))
    return "\n\n".join(paragraphs)
