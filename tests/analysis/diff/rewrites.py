"""Changes to how a program launches its work, which leave the work as it is: its step
as a CUDA graph, ops under other names, streams that take turns; and kernels cut in two
under one name.

Each is made to the events of the file, as those of `plants.py`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal

import numpy as np
from tests.analysis.diff.planting import PLACES, Editor, Event, Planted, Subject, number
from tests.analysis.diff.plants import Plant, each, put_launch, scale_kernel, steady

from fusetui.analysis.diff.dispatch import LAUNCH_CALLS
from fusetui.analysis.diff.model import RowKind
from fusetui.analysis.diff.names import make_dispatch_label
from fusetui.analysis.diff.streams import MIN_COMMON_KERNELS
from fusetui.trace.model.arrays import Int32s, Rows
from fusetui.trace.model.categories import Role

PART = 40  # kernels in a row that are moved into a graph of their own
RENAMED = "_renamed"
SLOW = 5  # times as long as usual is a kernel in the step in which it is slow
OTHER_STREAM = 7777
OPS = ("cpu_op", "Operator")
POINTWISE = re.compile(r"elementwise_kernel|multi_tensor_apply_kernel")
MOVES = re.compile("fill|copy", re.IGNORECASE)


def whole_graph(subject: Subject, place: str, nth: int) -> Planted | None:
    """All kernels of a step are launched by one graph: no op and no other launch call
    is left."""
    if place != PLACES[1] or nth or not _all_launched(subject):
        return None
    editor, work = Editor(subject), subject.items.work
    for step in range(len(work.steps)):
        _into_graph(editor, work.row[work.slice_of_step(step)], everything=True)
    return _only_launched(editor, note="with 1 CUDA graph")


def part_graph(subject: Subject, place: str, nth: int) -> Planted | None:
    """40 kernels that are launched in a row are launched by one graph instead."""
    steps = subject.steps(place)
    count = len(subject.items)
    if (
        place == PLACES[2]
        or not steps
        or count < 2 * PART
        or not _all_launched(subject)
    ):
        return None
    editor, work, trace = Editor(subject), subject.items.work, subject.trace
    begin = (nth + 1) * (count - PART) // 4
    order = np.argsort(trace.start[trace.launch[subject.items.row]], kind="stable")
    members = order[begin : begin + PART]
    if len(np.unique(trace.launch[subject.items.row[members]])) < PART:
        return None  # some of them are in a graph already
    for step in steps:
        _into_graph(
            editor, work.row[work.slice_of_step(step)][members], everything=False
        )
    once = place == PLACES[0]
    return _only_launched(editor, note="" if once else "with 1 CUDA graph", once=once)


def _all_launched(subject: Subject) -> bool:
    work = subject.items.work
    return (
        bool((subject.trace.launch[work.row] >= 0).all()) and not work.steps.is_gpu_time
    )


def _only_launched(editor: Editor, note: str, once: bool = False) -> Planted:
    """The GPU does the same at the same times. Of dispatch, nothing may change but what
    is gone: launch calls, and what the CPU did between them."""
    trace = editor.subject.trace
    place_of_row = {int(place): row for row, place in enumerate(trace.order.tolist())}
    names = {trace.name_of(place_of_row[place]) for place in editor.gone}
    labels = {make_dispatch_label(name) for name in names} | {
        re.sub(r"\Ahip", "cuda", n) for n in names
    }
    return Planted(
        editor.finished(),
        None,
        once=once,
        dispatch={*labels, LAUNCH_CALLS},
        gone=True,
        same_work=True,
        note=note,
    )


def _into_graph(editor: Editor, rows: Rows, *, everything: bool) -> None:
    """One call in the place of these launches; the ops that do nothing else are
    gone."""
    trace = editor.subject.trace
    calls = np.unique(trace.launch[rows])
    first = int(calls[trace.start[calls].argmin()])
    number_of_graph = editor.next_id
    editor.next_id += 1
    ops = _ops_of(editor.subject, calls, everything)
    call = editor.edit(first)
    outermost = min([first, *ops], key=lambda row: (int(trace.start[row]), row))
    begins = editor.edit(outermost)["ts"]
    args = {**call["args"], "correlation": number_of_graph}
    args.pop("External id", None)
    graph = {**call, "name": "cudaGraphLaunch", "ts": begins, "args": args}
    for row in {*calls.tolist(), *ops}:
        editor.drop(int(row))
    editor.more.append(graph)
    for row in rows.tolist():
        kernel = editor.edit(row)
        kernel["args"]["correlation"] = number_of_graph
        kernel["args"].pop("External id", None)


def _ops_of(subject: Subject, calls: Int32s | Rows, everything: bool) -> list[int]:
    """Ops, and frames of Python, all of whose launches are among these calls; with
    `everything`, all that begin between the first and the last of them too."""
    trace = subject.trace
    others = np.setdiff1d(np.unique(trace.launch[trace.launch >= 0]), calls)
    ops = trace.rows_of(Role.OP)
    inside = np.searchsorted(np.sort(calls), trace.end_row[ops]) > np.searchsorted(
        np.sort(calls), ops
    )
    foreign = np.searchsorted(others, trace.end_row[ops]) > np.searchsorted(others, ops)
    found = ops[inside & ~foreign].tolist()
    if everything:
        begin, end = trace.start[calls].min(), trace.end[calls].max()
        between = (trace.start[ops] >= begin) & (trace.end[ops] <= end) & ~foreign
        found += ops[between].tolist()
    gone = np.zeros(len(trace), dtype=np.bool_)
    for op in found:
        gone[op : int(trace.end_row[op])] = True
    return [
        int(row)
        for row in np.flatnonzero(gone)
        if trace.role[row] in (Role.OP, Role.CALL)
    ]


def _other_name(name: str) -> str:
    """An op that works in place stays one."""
    base = name.rstrip("_")
    return f"{base}{RENAMED}{name[len(base) :]}"


def renamed(subject: Subject, place: str, nth: int) -> Planted | None:
    """All ops of PyTorch have another name, as if of another version."""

    def other_name(event: Event) -> Event:
        if event.get("cat") in OPS and str(event.get("name")).startswith("aten::"):
            return {**event, "name": _other_name(event["name"])}
        return event

    if place != PLACES[1] or nth:
        return None
    events = [other_name(event) for event in subject.document["traceEvents"]]
    return Planted(events, None, same_work=True, note="renamed")


def one_op_renamed(subject: Subject, place: str, nth: int) -> Planted | None:
    """One op has another name, wherever it runs."""
    item = subject.chosen(PLACES[1], nth, lambda n: True)
    if place != PLACES[1] or item is None:
        return None
    name = subject.items.op_names[item]
    events = [
        {**event, "name": _other_name(name)}
        if event.get("cat") in OPS and event.get("name") == name
        else event
        for event in subject.document["traceEvents"]
    ]
    return Planted(events, None, same_work=True, note="an op was renamed")


def swapped_names(subject: Subject, place: str, nth: int) -> Planted | None:
    """Ops that launch pointwise kernels which no other op launches, no copies and no
    sets, have each other's names: each that of the next one in their order."""
    if place != PLACES[1] or nth:
        return None
    launched: defaultdict[str, set[str]] = defaultdict(set)
    by: defaultdict[str, set[str]] = defaultdict(set)
    found = subject.items
    trace, work = subject.trace, found.work
    for row, op in zip(work.row.tolist(), work.op.tolist(), strict=True):
        name = trace.name_of(op) if op >= 0 else ""
        launched[name].add(trace.name_of(row))
        by[trace.name_of(row)].add(name)
    names = sorted(
        op
        for op, kernels in launched.items()
        if op.startswith("aten::")
        and all(len(by[kernel]) == 1 for kernel in kernels)
        and all(POINTWISE.search(kernel) for kernel in kernels)
        and not any(MOVES.search(kernel) for kernel in kernels)
    )
    if len(names) < 2:
        return None
    other = dict(zip(names, [*names[1:], names[0]], strict=True))
    editor = Editor(subject)
    for op in np.unique(work.op[work.op >= 0]).tolist():
        if trace.name_of(op) in other:
            editor.edit(op)["name"] = other[trace.name_of(op)]
    return Planted(editor.finished(), None, same_work=True, note="renamed")


def alternating_kernels(subject: Subject, place: str, nth: int) -> Planted | None:
    """Every second kernel of the busiest stream runs on another one."""
    if place != PLACES[1] or nth:
        return None
    editor, trace, work = Editor(subject), subject.trace, subject.items.work
    busiest = int(np.bincount(work.lane).argmax())
    rows = work.row[work.lane == busiest]
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    moved = rows[1::2]
    for row in moved.tolist():
        _to_other_stream(editor, row)
    return _on_streams(editor, pieces=len(moved))


def alternating_steps(subject: Subject, place: str, nth: int) -> Planted | None:
    """In every second step, the busiest stream is another one."""
    work = subject.items.work
    if place != PLACES[1] or nth or len(work.steps) < 2:
        return None
    editor = Editor(subject)
    busiest = int(np.bincount(work.lane).argmax())
    moved = work.row[(work.lane == busiest) & (work.step_of_piece % 2 == 1)]
    for row in moved.tolist():
        _to_other_stream(editor, row)
    return _on_streams(editor, pieces=len(moved))


def _on_streams(editor: Editor, pieces: int) -> Planted:
    """The streams are one; where so little work changed that each piece may have moved,
    that it did is right too."""
    few = pieces < MIN_COMMON_KERNELS
    note = "" if few else f"and {OTHER_STREAM} are compared"
    return Planted(editor.finished(), None, moved=few, same_work=True, note=note)


def _to_other_stream(editor: Editor, row: int) -> None:
    event = editor.edit(row)
    event["tid"] = OTHER_STREAM
    if "stream" in event["args"]:
        event["args"]["stream"] = OTHER_STREAM


def split_alike(subject: Subject, place: str, nth: int) -> Planted | None:
    """A kernel becomes two of the same name, under the same op, that take as long
    together."""
    item = subject.chosen(place, nth, lambda n: True)
    return each(subject, place, item, _in_two, RowKind.SPLIT, lambda ns: 0)


def _in_two(editor: Editor, item: int, row: int, op: int) -> set[str]:
    event, call = editor.edit(row), editor.edit(int(editor.subject.trace.launch[row]))
    whole = number(event["dur"])
    first = Decimal(int(whole * 1000) * 3 // 5) / 1000
    event["dur"] = first
    again = {**event, "ts": number(event["ts"]) + first, "dur": whole - first}
    put_launch(editor, again, call)
    return set()


def slow_in_one_step(subject: Subject, place: str, nth: int) -> Planted | None:
    """On both sides a kernel is slow in one step; B's takes 1.3 times as long in every
    step."""
    item = subject.chosen(place, nth, lambda n: steady(subject, n))
    alone, steps = subject.steps(PLACES[0]), subject.steps(place)
    if place == PLACES[0] or item is None or not alone or not steps:
        return None
    work, before = subject.items.work, Editor(subject)
    row = int(work.row[work.slice_of_step(alone[0])][item])
    kernel = before.edit(row)
    whole = number(kernel["dur"])
    before.make_room(number(kernel["ts"]) + whole, (SLOW - 1) * whole)
    before.edit(row)["dur"] = SLOW * whole
    base = before.finished()
    after = Editor(subject)
    after.events = [*base]
    times = []
    for step in sorted(steps, reverse=True):
        row = int(work.row[work.slice_of_step(step)][item])
        times.append(scale_kernel(after, row))
    by_step = [3 * ns // 10 for ns in reversed(times)]
    op = subject.items.op_names[item]
    return Planted(after.finished(), RowKind.SLOWER, 0, op, base=base, by_step=by_step)


REWRITES: dict[str, Plant] = {
    "a step as one graph": whole_graph,
    "40 launches as one graph": part_graph,
    "all ops renamed": renamed,
    "one op renamed": one_op_renamed,
    "ops with swapped names": swapped_names,
    "every second kernel on another stream": alternating_kernels,
    "every second step on another stream": alternating_steps,
    "a kernel split under one name": split_alike,
    "a kernel x 1.3 that is slow in one step": slow_in_one_step,
}
