"""Changes that can be planted into any trace whose kernels have launch calls.

A change is made to the events of the file; what it must read as in a diff is known beforehand.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fusetui.trace import Trace, open_trace
from fusetui.trace.diff import Diff, Kind, Row, diff
from fusetui.trace.diff.items import Items, Vocabulary, items, settled
from fusetui.trace.diff.pieces import work_of
from fusetui.trace.diff.where import places
from fusetui.trace.model.categories import Role

Event = dict[str, Any]
PLACES = ("in one step", "in all steps", "nested")
DECODE = msgspec.json.Decoder(float_hook=Decimal)
ENCODE = msgspec.json.Encoder(decimal_format="number")
GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "gpu_user_annotation")
SEED = 0
NOISE = 0.005
"""What rows that are the same may add up to, as a share of the step."""

IDLE = 0.05
"""Idle time that is put in, as a share of the step."""


@dataclass
class Subject:
    """A trace, its document, and the work of its usual steps."""

    path: Path
    trace: Trace
    document: dict[str, Any]
    items: Items
    depth: list[int]

    @classmethod
    def read(cls, path: Path) -> Subject | None:
        """None when no kernel has a launch in the file."""
        trace = open_trace(str(path))
        work = work_of(trace, path.name)
        found = items(work, Vocabulary())[0]
        if not work.gpu or not len(found) or not len(work.windows):
            return None
        raw = path.read_bytes()
        document = DECODE.decode(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        if isinstance(document, list):
            document = {"traceEvents": document}
        depth = [int(trace.depth[op]) if op >= 0 else 0 for op in found.op.tolist()]
        depth = [d + bool(where) for d, where in zip(depth, places(found), strict=True)]
        subject = cls(path, trace, document, settled(found, found)[0], depth)
        return subject if subject.candidates() else None

    def candidates(self) -> list[int]:
        """Items that can be changed: a kernel under a known op that launches nothing else."""
        trace, found = self.trace, self.items
        ops, counts = np.unique(found.op, return_counts=True)
        single = set(ops[(counts == 1) & (ops >= 0)].tolist())
        tick = 1000 if not (found.samples % 1000).any() else 1
        return [
            n
            for n, (row, op) in enumerate(zip(found.rows, found.op.tolist(), strict=True))
            if op in single
            and trace.launch[row] >= 0
            and trace.role[row] == Role.KERNEL
            and trace.role[op] == Role.OP
            and trace.name_of(op).startswith("aten::")
            and int(found.samples[:, n].min()) >= max(1000, 10 * tick)
            and "nccl" not in found.names[n].lower()
        ]

    def chosen(self, place: str, number: int, wanted: Callable[[int], bool]) -> int | None:
        """One of the candidates by chance, always the same; the deepest ones for a nested place."""
        found = [n for n in self.candidates() if wanted(n)]
        if place == "nested" and found:
            deepest = max(self.depth[n] for n in found)
            found = [n for n in found if self.depth[n] == deepest]
        random.Random(SEED).shuffle(found)
        return found[number] if number < len(found) else None

    def steps(self, place: str) -> list[int]:
        """The steps that a change is made in; none where there is no other step."""
        alike: list[int] = self.items.alike.tolist()
        if place == "in one step":
            return [alike[len(alike) // 2]] if len(alike) > 2 else []
        return alike if len(alike) == len(self.items.work.windows) else []


@dataclass
class Planted:
    """Events with a change, and what a diff must say: rows of work, and nothing else."""

    events: list[Event]
    kind: Kind | None  # None: no row at all
    change_ns: int = 0  # of that row
    op: str = ""
    idle_ns: int = 0
    once: bool = False  # in one step: no part of the usual one
    dispatch: set[str] = field(default_factory=set)  # labels that may change too


@dataclass
class Answer:
    right: bool
    said: str


class Editor:
    """A copy of the events of a subject, with their rows."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.events: list[Event] = list(subject.document["traceEvents"])
        self.gone: set[int] = set()
        self.more: list[Event] = []
        ids = [e.get("args", {}).get("correlation", 0) for e in self.events if e.get("args")]
        self.next_id = max((n for n in ids if isinstance(n, int)), default=0) + 1

    def edit(self, row: int) -> Event:
        """The event of a row, as a copy that may be changed."""
        place = int(self.subject.trace.order[row])
        event = dict(self.events[place])
        event["args"] = dict(event.get("args") or {})
        self.events[place] = event
        return event

    def drop(self, row: int) -> None:
        self.gone.add(int(self.subject.trace.order[row]))

    def make_room(self, at: Decimal, room: Decimal) -> None:
        """Everything from a time on is later; what lies around it on a CPU takes longer."""
        for place, event in enumerate(self.events):
            if "ts" not in event or event.get("ph") == "M":
                continue
            start, dur = _number(event["ts"]), _number(event.get("dur", 0))
            if start >= at:
                self.events[place] = {**event, "ts": start + room}
            elif start + dur > at and event.get("cat") not in GPU[:6]:
                self.events[place] = {**event, "dur": dur + room}
        for event in self.more:
            if event["ts"] >= at:
                event["ts"] += room

    def finished(self) -> list[Event]:
        return [e for n, e in enumerate(self.events) if n not in self.gone] + self.more


def judge(subject: Subject, planted: Planted, into: Path) -> Answer:
    """Is the change found, alone and with its figure."""
    into.write_bytes(ENCODE.encode({**subject.document, "traceEvents": planted.events}))
    found = diff(subject.trace, open_trace(str(into)))
    work = [r for r in found.rows if not r.on_cpu and _changed(r)]
    cpu = [r.op.removeprefix("CPU: ") for r in found.rows if r.on_cpu and _changed(r)]
    wrong = [f"dispatch {op}" for op in cpu if op not in planted.dispatch]
    if planted.kind is None:
        wrong += [_said(row) for row in work if planted.idle_ns == 0 or row.op != "idle"]
        wrong += _idle_wrong(found, work, planted)
    elif len(work) != 1:
        wrong += [f"{len(work)} rows", *map(_said, work[:4])]
    else:
        wrong += _wrong(work[0], planted)
    same = sum(row.change_ns for row in found.rows if row.kind is Kind.SAME)
    wrong += [f"same {same:+} ns"] if abs(same) > NOISE * (found.step.a_ns or 0) else []
    return Answer(not wrong, "; ".join(wrong))


def _changed(row: Row) -> bool:
    return row.kind is not Kind.SAME


def _wrong(row: Row, planted: Planted) -> list[str]:
    tolerance = max(2, abs(planted.change_ns) // 100)
    wrong = [] if row.kind is planted.kind else [f"kind {_said(row)}"]
    wrong += [] if row.counts != planted.once else [f"in the sum: {row.counts}"]
    wrong += [] if planted.op in row.op or not planted.op else [f"op {_said(row)}"]
    apart = abs(row.change_ns - planted.change_ns) > tolerance
    return [*wrong, *([f"figure {_said(row)}, not {planted.change_ns} ns"] if apart else [])]


def _idle_wrong(found: Diff, work: Sequence[Row], planted: Planted) -> list[str]:
    told = [row.change_ns for row in work if row.op == "idle"] if planted.once else []
    idle = told[0] if told else found.accounting.idle_ns
    apart = abs(idle - planted.idle_ns) > max(2, planted.idle_ns // 100)
    return [f"idle {idle} ns, not {planted.idle_ns} ns"] if apart else []


def _said(row: Row) -> str:
    return f"{row.kind} {row.op} {row.change_ns:+} ns {row.why}"


def drop(subject: Subject, place: str, number: int) -> Planted | None:
    """A kernel is gone, and its launch."""
    item = subject.chosen(place, number, lambda n: True)
    return _each(subject, place, item, _drop, Kind.REMOVED, lambda ns: -ns)


def scale(subject: Subject, place: str, number: int) -> Planted | None:
    """A kernel takes 1.3 times as long, and all after it is later."""
    item = subject.chosen(place, number, lambda n: _steady(subject, n))
    return _each(subject, place, item, _scale, Kind.SLOWER, lambda ns: 3 * ns // 10)


def fuse(subject: Subject, place: str, number: int) -> Planted | None:
    """Two ops in a row become one compiled kernel that takes as long as the second."""
    found = subject.items
    single = set(subject.candidates())
    pointwise = re.compile(r"aten::(add|mul|gelu|relu|sub|div|silu|pow|tanh|sigmoid|copy)_?\Z")

    def pair(n: int) -> bool:
        ops = found.op_names[n], found.op_names[n + 1] if n + 1 < len(found) else ""
        apart = len({op.rstrip("_") for op in ops}) == 2
        return (
            n + 1 in single and apart and all(pointwise.match(op) for op in ops) and _near(found, n)
        )

    item = subject.chosen(place, number, pair)
    planted = _each(subject, place, item, _fuse, Kind.FUSED, lambda ns: -ns)
    if planted is not None and item is not None and planted.once:
        return None  # one step that was compiled differs in several rows
    return planted


def split(subject: Subject, place: str, number: int) -> Planted | None:
    """A kernel becomes two others under the same op."""
    item = subject.chosen(place, number, lambda n: _part(subject, n))
    planted = _each(subject, place, item, _split, Kind.SPLIT, lambda ns: 0)
    return None if planted is not None and planted.once else planted


def retile(subject: Subject, place: str, number: int) -> Planted | None:
    """A product in another tile, as fast."""
    item = subject.chosen(
        place, number, lambda n: re.search(r"\d+x\d+", _name(subject, n)) is not None
    )
    planted = _each(subject, place, item, _retile, Kind.REPLACED, lambda ns: 0)
    return None if planted is not None and planted.once else planted


def idle(subject: Subject, place: str, number: int) -> Planted | None:
    """Nothing happens for a while between two kernels."""
    item = subject.chosen(place, number, lambda n: True)
    steps = subject.steps(place)
    if item is None or not steps or place == "nested":
        return None
    room = Decimal(int(IDLE * float(np.median(subject.items.work.windows.dur))) // 1000 + 1)
    editor = Editor(subject)
    moments = [_quiet(subject, item, step) for step in steps]
    if None in moments:
        return None
    for moment in sorted((m for m in moments if m is not None), reverse=True):
        editor.make_room(moment, room)
    return Planted(editor.finished(), None, idle_ns=int(room * 1000), once=place == PLACES[0])


def copy(subject: Subject, place: str, number: int) -> Planted | None:
    """A copy more, with its op and its launch."""
    item = subject.chosen(place, number, lambda n: True)
    return _each(subject, place, item, _copy, Kind.ADDED, lambda ns: 5000, {"aten::copy_"})


def duplicate(subject: Subject, place: str, number: int) -> Planted | None:
    """An op and its kernel once more, right after."""
    item = subject.chosen(place, number, lambda n: True)
    return _each(subject, place, item, _duplicate, Kind.ADDED, lambda ns: ns)


def reorder_streams(subject: Subject, place: str, number: int) -> Planted | None:
    """Streams have other numbers, in another order."""

    def renumbered(event: Event) -> Event:
        if event.get("cat") not in GPU or not isinstance(event.get("tid"), int):
            return event
        args = dict(event.get("args") or {})
        if "stream" in args:
            args["stream"] = 500 - event["tid"]
        return {**event, "tid": 500 - event["tid"], "args": args}

    return _all_of_it(subject, place, number, renumbered)


def renumber_processes(subject: Subject, place: str, number: int) -> Planted | None:
    """Processes of the CPU have other numbers."""
    pids = {subject.trace.track_of(int(row)).pid for row in subject.trace.rows_of(Role.OP)[:1000]}

    def renumbered(event: Event) -> Event:
        return (
            {**event, "pid": event["pid"] + 7000}
            if event.get("pid") in pids and isinstance(event["pid"], int)
            else event
        )

    return _all_of_it(subject, place, number, renumbered)


def shuffle(subject: Subject, place: str, number: int) -> Planted | None:
    """The events of the file in another order."""
    planted = _all_of_it(subject, place, number, lambda event: event)
    if planted is not None:
        random.Random(SEED).shuffle(planted.events)
    return planted


def shift(subject: Subject, place: str, number: int) -> Planted | None:
    """All times later by a second and some ns."""
    by = Decimal("1000000.125")
    return _all_of_it(
        subject,
        place,
        number,
        lambda e: {**e, "ts": _number(e["ts"]) + by} if "ts" in e and e.get("ph") != "M" else e,
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
    "streams reordered": reorder_streams,
    "processes renumbered": renumber_processes,
    "file shuffled": shuffle,
    "clock shifted": shift,
}

Change = Callable[[Editor, int, int, int], set[str]]  # (item, row, op row) -> labels of dispatch


def _each(
    subject: Subject,
    place: str,
    item: int | None,
    change: Change,
    kind: Kind,
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
        row = int(work.row[work.of_window(step)][item])
        labels |= change(editor, item, row, int(subject.trace.op[row]))
        times.append(int(subject.trace.dur[row]))
    once = place == PLACES[0]
    mean = times[0] if once else subject.items.times[item]
    if once and kind is Kind.REMOVED:  # nothing tells what it would have taken in that step
        mean = settled(subject.items, subject.items, steps)[0].times[item]
    return Planted(
        editor.finished(),
        kind,
        figure(mean),
        subject.items.op_names[item] if kind in (Kind.REMOVED, Kind.SLOWER) else "",
        0,
        once,
        labels,
    )


def _all_of_it(
    subject: Subject, place: str, number: int, change: Callable[[Event], Event]
) -> Planted | None:
    if place != "in all steps" or number:
        return None
    return Planted([change(event) for event in subject.document["traceEvents"]], None)


def _drop(editor: Editor, item: int, row: int, op: int) -> set[str]:
    trace = editor.subject.trace
    editor.drop(row)
    editor.drop(int(trace.launch[row]))
    return {trace.name_of(op), trace.name_of(int(trace.launch[row]))}


def _scale(editor: Editor, item: int, row: int, op: int) -> set[str]:
    event = editor.edit(row)
    before = _number(event["dur"])
    more = Decimal(3 * int(before * 1000) // 10) / 1000
    editor.make_room(_number(event["ts"]) + before, more)
    editor.edit(row)["dur"] = before + more
    return set()


def _split(editor: Editor, item: int, row: int, op: int) -> set[str]:
    event, call = editor.edit(row), editor.edit(int(editor.subject.trace.launch[row]))
    whole = _number(event["dur"])
    first = Decimal(int(whole * 1000) * 2 // 3) / 1000
    event["dur"] = first
    event["name"] = f"{event['name']}_part"
    again = {**event, "name": "void splitKreduce_kernel<32, 16, int>(int)"}
    again |= {"ts": _number(event["ts"]) + first, "dur": whole - first}
    _launch(editor, again, call)
    return set()


def _fuse(editor: Editor, item: int, row: int, op: int) -> set[str]:
    subject = editor.subject
    trace, found = subject.trace, subject.items
    step = found.work.windows.index_of(trace.start[[int(trace.launch[row])]])[0]
    second = int(found.work.row[found.work.of_window(int(step))][item + 1])
    gone = {int(trace.op[second])}
    names = [
        trace.name_of(o).removeprefix("aten::").rstrip("_") for o in (op, int(trace.op[second]))
    ]
    name = f"triton_poi_fused_{'_'.join(sorted(names))}_0"
    editor.edit(second)["name"] = name
    editor.edit(int(trace.op[second]))["name"] = name
    for place in {row, int(trace.launch[row]), op}:
        editor.drop(place)
    inner = [r for o in (op, int(trace.op[second])) for r in range(o + 1, int(trace.end_row[o]))]
    for r in inner:
        if trace.role[r] == Role.OP and r != int(trace.launch[second]):
            editor.drop(r)
    labels = {trace.name_of(r) for r in inner} | {trace.name_of(o) for o in (op, *gone)} | {name}
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
    end = _number(outer["ts"]) + _number(outer["dur"])
    room = Decimal(12)
    editor.make_room(end, room)
    begin = end + 1
    new = {**outer, "cat": outer["cat"], "name": "aten::copy_", "ts": begin, "dur": Decimal(8)}
    new["args"] = {}
    editor.more.append(new)
    after = max(_number(editor.edit(row)["ts"]) + _number(kernel["dur"]), begin + 6)
    editor.make_room(after, Decimal(5))
    again = {
        **kernel,
        "name": "void at::native::my_copy_kernel<float>(int)",
        "ts": after,
        "dur": Decimal(5),
    }
    _launch(editor, again, {**call, "ts": begin + 1, "dur": Decimal(2)}, keep=True)
    return set()


def _duplicate(editor: Editor, item: int, row: int, op: int) -> set[str]:
    """The second launch lies in the op itself, after the first."""
    trace = editor.subject.trace
    kernel, call = editor.edit(row), editor.edit(int(trace.launch[row]))
    after = _number(kernel["ts"]) + _number(kernel["dur"])
    room = _number(kernel["dur"])
    editor.make_room(after, room)
    _launch(editor, {**kernel, "ts": after}, call)
    return set()


def _launch(editor: Editor, kernel: Event, call: Event, keep: bool = False) -> None:
    """Another launch call in the place of the second half of this one, and its kernel."""
    number = editor.next_id
    editor.next_id += 1
    start, dur = _number(call["ts"]), _number(call["dur"])
    again = dict(call)
    if not keep:
        half = dur / 2
        call["dur"] = half
        again |= {"ts": start + half, "dur": dur - half}
    for event in (kernel, again):
        event["args"] = {**event["args"], "correlation": number}
        editor.more.append(event)


def _steady(subject: Subject, item: int) -> bool:
    """Does it vary so little that 30 % more are no noise."""
    times = subject.items.samples[:, item]
    return bool(int(np.ptp(times)) * 5 < int(times.min()))


def _part(subject: Subject, item: int) -> bool:
    """Is nothing else in a row with it that does the same."""
    found = subject.items
    near = range(max(0, item - 3), min(len(found), item + 4))
    return [int(found.exact[n]) for n in near].count(int(found.exact[item])) == 1


def _near(found: Items, item: int) -> bool:
    return bool(found.lane[item] == found.lane[item + 1])


def _name(subject: Subject, item: int) -> str:
    return subject.items.names[item] if "gemm" in subject.items.names[item].lower() else ""


def _quiet(subject: Subject, item: int, step: int) -> Decimal | None:
    """A moment in a step, near a kernel, at which no GPU event runs."""
    trace, work = subject.trace, subject.items.work
    row = int(work.row[work.of_window(step)][item])
    begin, end = int(work.windows.start[step]), int(work.windows.end[step])
    gpu = trace.gpu_rows
    starts = trace.start[gpu]
    ends = np.sort(trace.end[gpu])
    after = int(trace.end[row])
    for moment in [after, *ends[(ends > begin) & (ends < end)].tolist()]:
        running = int((starts < moment).sum() - (ends < moment).sum() - (ends == moment).sum())
        if begin < moment < end and running == 0:
            event = subject.document["traceEvents"][int(trace.order[row])]
            return _number(event["ts"]) + Decimal(moment - int(trace.start[row])) / 1000
    return None


def _number(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))
