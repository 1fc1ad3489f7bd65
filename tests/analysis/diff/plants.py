"""Changes that can be planted into any trace whose kernels have launch calls.

Each is made to the events of the file; what it must read as in a diff is known
beforehand.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
from tests.analysis.diff.planting import (
    GPU,
    PLACES,
    SEED,
    Editor,
    Event,
    Planted,
    Subject,
    number,
)

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import RowKind
from fusetui.trace.model.categories import Role

IDLE = 0.05
"""Idle time that is put in, as a share of the step."""


def drop(subject: Subject, place: str, nth: int) -> Planted | None:
    """A kernel is gone, and its launch."""
    item = subject.chosen(place, nth, lambda n: True)
    return each(subject, place, item, remove, RowKind.REMOVED, lambda ns: -ns)


def scale(subject: Subject, place: str, nth: int) -> Planted | None:
    """A kernel takes 1.3 times as long, and all after it is later."""
    item = subject.chosen(place, nth, lambda n: steady(subject, n))
    kind = subject.slower(len(subject.items))
    return each(subject, place, item, _scale, kind, lambda ns: 3 * ns // 10)


def fuse(subject: Subject, place: str, nth: int) -> Planted | None:
    """Two ops in a row become one compiled kernel that takes as long as the second."""
    found = subject.items
    single = set(subject.candidates())
    pointwise = re.compile(
        r"aten::(add|mul|gelu|relu|sub|div|silu|pow|tanh|sigmoid|copy)_?\Z"
    )

    def pair(n: int) -> bool:
        ops = found.op_names[n], found.op_names[n + 1] if n + 1 < len(found) else ""
        apart = len({op.rstrip("_") for op in ops}) == 2
        return (
            n + 1 in single
            and apart
            and all(pointwise.match(op) for op in ops)
            and _near(found, n)
        )

    item = subject.chosen(place, nth, pair)
    return each(subject, place, item, _fuse, RowKind.FUSED, lambda ns: -ns)


def split(subject: Subject, place: str, nth: int) -> Planted | None:
    """A kernel becomes two others under the same op."""
    item = subject.chosen(place, nth, lambda n: _part(subject, n))
    return each(subject, place, item, _split, RowKind.SPLIT, lambda ns: 0)


def retile(subject: Subject, place: str, nth: int) -> Planted | None:
    """A product in another tile, as fast."""
    item = subject.chosen(
        place, nth, lambda n: re.search(r"\d+x\d+", _name(subject, n)) is not None
    )
    return each(subject, place, item, _retile, RowKind.REPLACED, lambda ns: 0)


def idle(subject: Subject, place: str, nth: int) -> Planted | None:
    """Nothing happens for a while between two kernels."""
    item = subject.chosen(place, nth, lambda n: True)
    steps = subject.steps(place)
    if item is None or not steps or place == "nested":
        return None
    room = Decimal(
        int(IDLE * float(np.median(subject.items.work.steps.dur))) // 1000 + 1
    )
    editor = Editor(subject)
    moments = [_quiet(subject, item, step) for step in steps]
    if None in moments:
        return None
    for moment in sorted((m for m in moments if m is not None), reverse=True):
        editor.make_room(moment, room)
    return Planted(
        editor.finished(), None, idle_ns=int(room * 1000), once=place == PLACES[0]
    )


def copy(subject: Subject, place: str, nth: int) -> Planted | None:
    """A copy more, with its op and its launch."""
    item = subject.chosen(place, nth, lambda n: True)
    return each(
        subject, place, item, _copy, RowKind.ADDED, lambda ns: 5000, {"aten::copy_"}
    )


def duplicate(subject: Subject, place: str, nth: int) -> Planted | None:
    """An op and its kernel once more, right after."""
    item = subject.chosen(place, nth, lambda n: True)
    return each(subject, place, item, _duplicate, RowKind.ADDED, lambda ns: ns)


def drop_and_scale(subject: Subject, place: str, nth: int) -> Planted | None:
    """A kernel is gone, and another one takes 1.3 times as long in the same step."""
    dropped = subject.chosen(place, nth, lambda n: steady(subject, n))
    scaled = subject.chosen(place, nth + 1, lambda n: steady(subject, n))
    steps = subject.steps(place)
    if dropped is None or scaled is None or not steps or place == "nested":
        return None
    editor = Editor(subject)
    labels = {"launch calls"}
    work = subject.items.work
    changes = [(dropped, remove), (scaled, _scale)]
    changes.sort(key=lambda change: -change[0])  # the last one in time first
    ns_in_step: dict[int, int] = {}  # of the kernel of each item, in the last step
    for step in sorted(steps, reverse=True):
        for item, change in changes:
            row = int(work.row[work.slice_of_step(step)][item])
            labels |= change(editor, item, row, int(subject.trace.op[row]))
            ns_in_step[item] = int(subject.trace.dur[row])
    once = place == PLACES[0]
    ns_of_item = ns_in_step if once else subject.items.mean_times
    ops = subject.items.op_names
    slower = Planted(
        events=[],
        kind=subject.slower(len(ops) - 1),
        change_ns=3 * ns_of_item[scaled] // 10,
        op=ops[scaled],
        once=once,
    )
    return Planted(
        events=editor.finished(),
        kind=RowKind.REMOVED,
        change_ns=-ns_of_item[dropped],
        op=ops[dropped],
        once=once,
        dispatch=labels,
        also=slower,
    )


def reorder_streams(subject: Subject, place: str, nth: int) -> Planted | None:
    """Streams have other numbers, in another order."""

    def renumbered(event: Event) -> Event:
        if event.get("cat") not in GPU or not isinstance(event.get("tid"), int):
            return event
        args = dict(event.get("args") or {})
        if "stream" in args:
            args["stream"] = 500 - event["tid"]
        return {**event, "tid": 500 - event["tid"], "args": args}

    return _all_of_it(subject, place, nth, renumbered)


def renumber_processes(subject: Subject, place: str, nth: int) -> Planted | None:
    """Processes of the CPU have other numbers."""
    pids = {
        subject.trace.track_of(int(row)).pid
        for row in subject.trace.rows_of(Role.OP)[:1000]
    }

    def renumbered(event: Event) -> Event:
        return (
            {**event, "pid": event["pid"] + 7000}
            if event.get("pid") in pids and isinstance(event["pid"], int)
            else event
        )

    return _all_of_it(subject, place, nth, renumbered)


def shuffle(subject: Subject, place: str, nth: int) -> Planted | None:
    """The events of the file in another order."""
    planted = _all_of_it(subject, place, nth, lambda event: event)
    if planted is not None:
        random.Random(SEED).shuffle(planted.events)
    return planted


def shift(subject: Subject, place: str, nth: int) -> Planted | None:
    """All times later by a second and some ns."""
    by = Decimal("1000000.125")
    return _all_of_it(
        subject,
        place,
        nth,
        lambda e: (
            {**e, "ts": number(e["ts"]) + by} if "ts" in e and e.get("ph") != "M" else e
        ),
    )


Plant = Callable[[Subject, str, int], Planted | None]
PLANTS: dict[str, Plant] = {
    "a kernel dropped": drop,
    "a kernel x 1.3": scale,
    "two kernels fused": fuse,
    "a kernel split": split,
    "another tile": retile,
    "idle time": idle,
    "a copy": copy,
    "a kernel twice": duplicate,
    "a kernel dropped, another x 1.3": drop_and_scale,
    "streams reordered": reorder_streams,
    "processes renumbered": renumber_processes,
    "file shuffled": shuffle,
    "clock shifted": shift,
}

# (item, row, op row) -> labels of dispatch
Change = Callable[[Editor, int, int, int], set[str]]


def each(
    subject: Subject,
    place: str,
    item: int | None,
    change: Change,
    kind: RowKind,
    figure: Callable[[int], int],
    dispatch: set[str] | None = None,
) -> Planted | None:
    """The same change at one item in every step of a place, the last step first."""
    steps = subject.steps(place)
    if item is None or not steps:
        return None
    editor, labels = Editor(subject), {"launch calls", *(dispatch or ())}
    work, times = subject.items.work, []
    for step in sorted(steps, reverse=True):
        row = int(work.row[work.slice_of_step(step)][item])
        labels |= change(editor, item, row, int(subject.trace.op[row]))
        times.append(int(subject.trace.dur[row]))
    once = place == PLACES[0]
    mean = times[0] if once else subject.items.mean_times[item]
    return Planted(
        editor.finished(),
        kind,
        figure(mean),
        subject.items.op_names[item]
        if kind in (RowKind.REMOVED, RowKind.SLOWER, RowKind.SAME)
        else "",
        0,
        once,
        labels,
    )


def _all_of_it(
    subject: Subject, place: str, nth: int, change: Callable[[Event], Event]
) -> Planted | None:
    if place != "in all steps" or nth:
        return None
    return Planted([change(event) for event in subject.document["traceEvents"]], None)


def remove(editor: Editor, item: int, row: int, op: int) -> set[str]:
    trace = editor.subject.trace
    editor.drop(row)
    editor.drop(int(trace.launch[row]))
    return set()  # the op is called as often as before


def _scale(editor: Editor, item: int, row: int, op: int) -> set[str]:
    scale_kernel(editor, row)
    return set()


def scale_kernel(editor: Editor, row: int) -> int:
    """It takes 1.3 times as long, and all after it is later; its time before, in ns."""
    event = editor.edit(row)
    before = number(event["dur"])
    more = Decimal(3 * int(before * 1000) // 10) / 1000
    editor.make_room(number(event["ts"]) + before, more)
    editor.edit(row)["dur"] = before + more
    return int(before * 1000)


def _split(editor: Editor, item: int, row: int, op: int) -> set[str]:
    event, call = editor.edit(row), editor.edit(int(editor.subject.trace.launch[row]))
    whole = number(event["dur"])
    first = Decimal(int(whole * 1000) * 2 // 3) / 1000
    event["dur"] = first
    event["name"] = f"{event['name']}_part"
    again = {**event, "name": "void splitKreduce_kernel<32, 16, int>(int)"}
    again |= {"ts": number(event["ts"]) + first, "dur": whole - first}
    put_launch(editor, again, call)
    return set()


def _fuse(editor: Editor, item: int, row: int, op: int) -> set[str]:
    subject = editor.subject
    trace, found = subject.trace, subject.items
    step = found.work.steps.index_of(trace.start[[int(trace.launch[row])]])[0]
    second = int(found.work.row[found.work.slice_of_step(int(step))][item + 1])
    gone = {int(trace.op[second])}
    names = [
        trace.name_of(o).removeprefix("aten::").rstrip("_")
        for o in (op, int(trace.op[second]))
    ]
    name = f"triton_poi_fused_{'_'.join(sorted(names))}_0"
    editor.edit(second)["name"] = name
    editor.edit(int(trace.op[second]))["name"] = name
    for place in {row, int(trace.launch[row]), op}:
        editor.drop(place)
    inner = [
        r
        for o in (op, int(trace.op[second]))
        for r in range(o + 1, int(trace.end_row[o]))
    ]
    for r in inner:
        if trace.role[r] == Role.OP and r != int(trace.launch[second]):
            editor.drop(r)
    labels = (
        {trace.name_of(r) for r in inner}
        | {trace.name_of(o) for o in (op, *gone)}
        | {name}
    )
    return labels


def _retile(editor: Editor, item: int, row: int, op: int) -> set[str]:
    event = editor.edit(row)
    event["name"] = re.sub(r"\d+x\d+", "192x80", event["name"], count=1)
    return set()


def _copy(editor: Editor, item: int, row: int, op: int) -> set[str]:
    """After the kernel, and after the outermost op around its launch."""
    trace = editor.subject.trace
    kernel, call = editor.edit(row), editor.edit(int(trace.launch[row]))
    top = op
    while trace.parent[top] >= 0:
        top = int(trace.parent[top])
    outer = editor.edit(top)
    end = number(outer["ts"]) + number(outer["dur"])
    room = Decimal(12)
    editor.make_room(end, room)
    begin = end + 1
    new = {
        **outer,
        "cat": outer["cat"],
        "name": "aten::copy_",
        "ts": begin,
        "dur": Decimal(8),
    }
    new["args"] = {}
    editor.more.append(new)
    after = max(number(editor.edit(row)["ts"]) + number(kernel["dur"]), begin + 6)
    editor.make_room(after, Decimal(5))
    again = {
        **kernel,
        "name": "void at::native::my_copy_kernel<float>(int)",
        "ts": after,
        "dur": Decimal(5),
    }
    put_launch(editor, again, {**call, "ts": begin + 1, "dur": Decimal(2)}, keep=True)
    return set()


def _duplicate(editor: Editor, item: int, row: int, op: int) -> set[str]:
    """The second launch lies in the op itself, after the first."""
    trace = editor.subject.trace
    kernel, call = editor.edit(row), editor.edit(int(trace.launch[row]))
    after = number(kernel["ts"]) + number(kernel["dur"])
    room = number(kernel["dur"])
    editor.make_room(after, room)
    put_launch(editor, {**kernel, "ts": after}, call)
    return set()


def put_launch(editor: Editor, kernel: Event, call: Event, keep: bool = False) -> None:
    """Another launch call in the place of the second half of this one, and its
    kernel."""
    correlation = editor.next_id
    editor.next_id += 1
    start, dur = number(call["ts"]), number(call["dur"])
    again = dict(call)
    if not keep:
        half = dur / 2
        call["dur"] = half
        again |= {"ts": start + half, "dur": dur - half}
    for event in (kernel, again):
        event["args"] = {**event["args"], "correlation": correlation}
        editor.more.append(event)


def steady(subject: Subject, item: int) -> bool:
    """Does it vary so little that 30 % more are no noise."""
    times = subject.items.samples[:, item]
    return bool(int(np.ptp(times)) * 5 < int(times.min()))


def _part(subject: Subject, item: int) -> bool:
    """Is nothing else in a row with it that does the same."""
    found = subject.items
    near = range(max(0, item - 3), min(len(found), item + 4))
    return [int(found.exact_keys[n]) for n in near].count(
        int(found.exact_keys[item])
    ) == 1


def _near(found: WorkItems, item: int) -> bool:
    return bool(found.lane[item] == found.lane[item + 1])


def _name(subject: Subject, item: int) -> str:
    return (
        subject.items.names[item] if "gemm" in subject.items.names[item].lower() else ""
    )


def _quiet(subject: Subject, item: int, step: int) -> Decimal | None:
    """A moment in a step, near a kernel, at which no GPU event runs."""
    trace, work = subject.trace, subject.items.work
    row = int(work.row[work.slice_of_step(step)][item])
    begin, end = int(work.steps.start[step]), int(work.steps.end[step])
    gpu = trace.gpu_rows
    starts = trace.start[gpu]
    ends = np.sort(trace.end[gpu])
    after = int(trace.end[row])
    for moment in [after, *ends[(ends > begin) & (ends < end)].tolist()]:
        running = int(
            (starts < moment).sum() - (ends < moment).sum() - (ends == moment).sum()
        )
        if begin < moment < end and running == 0:
            event = subject.document["traceEvents"][int(trace.order[row])]
            return number(event["ts"]) + Decimal(moment - int(trace.start[row])) / 1000
    return None
