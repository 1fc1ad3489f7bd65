"""A trace whose events can be changed, and what a diff must say of the change."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.analysis.diff.blocks import Cut

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.items import (
    Vocabulary,
    WorkItems,
    choose_usual_steps,
    make_items,
)
from fusetui.analysis.diff.model import REPEATED, Diff, Row, RowKind
from fusetui.analysis.diff.noise import MIN_ROWS
from fusetui.analysis.diff.program_places import ProgramPlaces
from fusetui.analysis.diff.work import collect_work
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role

Event = dict[str, Any]
PLACES = ("in one step", "in all steps", "nested")
DECODE = msgspec.json.Decoder(float_hook=Decimal)
ENCODE = msgspec.json.Encoder(decimal_format="number")
GPU = (
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "Kernel",
    "Memcpy",
    "Memset",
    "gpu_user_annotation",
)
SEED = 0
ROUNDING_NS = 2
NOISE = 0.005
"""What rows that are the same may add up to, as a share of the step."""


@dataclass
class Subject:
    """A trace, its document, and the work of its usual steps."""

    path: Path
    trace: Trace
    document: dict[str, Any]
    items: WorkItems
    depth: list[int]

    @classmethod
    def read(cls, path: Path) -> Subject | None:
        """None when no kernel has a launch in the file."""
        trace = open_trace(str(path))
        work = collect_work(trace, path.name)
        found = make_items(work, Vocabulary())
        if not work.gpu or not len(found) or not len(work.steps):
            return None
        raw = path.read_bytes()
        document = DECODE.decode(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        if isinstance(document, list):
            document = {"traceEvents": document}
        depth = [int(trace.depth[op]) if op >= 0 else 0 for op in found.op.tolist()]
        places = ProgramPlaces(found).places
        depth = [d + bool(where) for d, where in zip(depth, places, strict=True)]
        subject = cls(path, trace, document, choose_usual_steps(found, found)[0], depth)
        return subject if subject.candidates() else None

    def candidates(self) -> list[int]:
        """Items that can be changed: a kernel under a known op that launches nothing
        else."""
        trace, found = self.trace, self.items
        ops, counts = np.unique(found.op, return_counts=True)
        single = set(ops[(counts == 1) & (ops >= 0)].tolist())
        tick = 1000 if not (found.samples % 1000).any() else 1
        return [
            n
            for n, (row, op) in enumerate(
                np.stack((found.row, found.op), axis=1).tolist()
            )
            if op in single
            and trace.launch[row] >= 0
            and trace.role[row] == Role.KERNEL
            and trace.role[op] == Role.OP
            and trace.name_of(op).startswith("aten::")
            and int(found.samples[:, n].min()) >= max(1000, 10 * tick)
            and "nccl" not in found.names[n].lower()
        ]

    def chosen(
        self, place: str, number: int, wanted: Callable[[int], bool]
    ) -> int | None:
        """One of the candidates by chance, always the same; the deepest ones for a
        nested place."""
        found = [n for n in self.candidates() if wanted(n)]
        if place == "nested" and found:
            deepest = max(self.depth[n] for n in found)
            found = [n for n in found if self.depth[n] == deepest]
        random.Random(SEED).shuffle(found)
        return found[number] if number < len(found) else None

    def slower(self, pairs: int) -> RowKind:
        """What a kernel that takes longer is called, among so many that are on both
        sides: with one step, some others have to say what times vary by."""
        told = len(self.items.same_work_steps) > 1 or pairs >= MIN_ROWS
        return RowKind.SLOWER if told else RowKind.SAME

    def steps(self, place: str) -> list[int]:
        """The steps that a change is made in; none where there is no other step."""
        alike: list[int] = self.items.same_work_steps.tolist()
        if place == "in one step":
            return [alike[len(alike) // 2]] if len(alike) > 2 else []
        return alike if len(alike) == len(self.items.work.steps) else []


@dataclass
class Planted:
    """Events with a change, and what a diff must say: rows of work, and nothing else.
    `also` is a second change in the same steps."""

    events: list[Event]
    kind: RowKind | None  # None: no row at all; the same: a row that may be noise
    change_ns: int = 0  # of that row
    op: str = ""
    idle_ns: int = 0
    once: bool = False  # in one step: no part of the usual one
    dispatch: set[str] = field(default_factory=set)  # labels that may change too
    also: Planted | None = None
    # may be told as work on another stream, with no change of its time
    moved: bool = False
    # not one row of the GPU's work has any change, and no step another one
    same_work: bool = False
    note: str = ""  # what a note says, in part
    # the change of each step, where they differ
    by_step: list[int] = field(default_factory=list)
    base: list[Event] | None = None  # of A, where it is not the trace as it is
    gone: bool = False  # what `dispatch` names may occur less often, and not more often


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
        ids = [
            e.get("args", {}).get("correlation", 0)
            for e in self.events
            if e.get("args")
        ]
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
        """Everything from a time on is later; what lies around it on a CPU takes
        longer."""
        for place, event in enumerate(self.events):
            if "ts" not in event or event.get("ph") == "M":
                continue
            start, dur = number(event["ts"]), number(event.get("dur", 0))
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
    before = subject.trace
    if planted.base is not None:
        base = into.with_name("base.json")
        before = _opened(subject.document, planted.base, base)
    found = diff(before, _opened(subject.document, planted.events, into))
    if planted.by_step:
        usual = [planted.by_step[step] for step in found.side_a.usual]
        planted.change_ns = round(sum(usual) / len(usual))
    work = _reported_work(found, planted)
    wrong = [
        f"dispatch {_said(row)}" for row in found.rows if _wrong_dispatch(row, planted)
    ]
    if not any(planted.note in note for note in found.notes) and planted.note:
        wrong.append(f"no note on {planted.note}")
    if not is_exact(found):
        wrong.append("the sum does not close")
    if planted.kind is None:
        wrong += _wrong_without_row(found, work, planted)
    elif planted.also is not None:
        wrong += _both_wrong(work, planted, planted.also)
    elif len(work) != 1:
        wrong += [f"{len(work)} rows", *map(_said, work[:4])]
    else:
        wrong += _wrong(work[0], planted)
    same_ns = sum(
        row.change_ns
        for row in found.rows
        if row.kind is RowKind.SAME and row not in work
    )
    if abs(same_ns) > NOISE * (found.step.a_ns or 0):
        wrong.append(f"same {same_ns:+} ns")
    return Answer(right=not wrong, said="; ".join(wrong))


def _opened(document: dict[str, Any], events: list[Event], path: Path) -> Trace:
    """The trace of a document with these events, which is written to `path`."""
    path.write_bytes(ENCODE.encode({**document, "traceEvents": events}))
    return open_trace(str(path))


def _reported_work(found: Diff, planted: Planted) -> list[Row]:
    """The rows of work that a diff reports as changed; of a change that may be called
    noise, also those that may be noise."""
    kinds = [planted.kind, planted.also.kind if planted.also else None]
    may_be_noise = RowKind.SAME in kinds
    work = []
    for row in found.rows:
        is_reported = _changed(row) or (may_be_noise and _may_be(row))
        is_moved_alone = row.kind is RowKind.MOVED and not row.change_ns
        if row.on_cpu or not is_reported or (planted.moved and is_moved_alone):
            continue
        work.append(row)
    return work


def _wrong_without_row(found: Diff, work: Sequence[Row], planted: Planted) -> list[str]:
    """What is wrong with a diff that should have no row but perhaps one of idle
    time."""
    wrong = []
    for row in work:
        if planted.idle_ns == 0 or row.op != "idle":
            wrong.append(_said(row))
    wrong += _idle_wrong(found, work, planted)
    if planted.same_work:
        wrong += _work_wrong(found)
    return wrong


def is_exact(found: Diff) -> bool:
    """Do the sums of the diff and of both sides close."""
    sums = found.accounting
    parts = sums.rows_ns, sums.idle_ns, sums.not_explained_ns, sums.overlap_ns
    borders = sums.later_ns, sums.earlier_ns, sums.odd_ns
    rows = sum(row.change_ns for row in found.rows if row.counts)
    return sum((*parts, *borders)) == sums.step_ns and rows == sums.rows_ns


def judge_block(
    path: Path, document: dict[str, Any], cut: Cut, sign: int, into: Path
) -> Answer:
    """Is a block that is gone (`sign` is -1), or there once more, with what it launched
    on other streams, one row with its time, and no other row. Each piece of it may be
    off by the rounding to ns."""
    found = diff(open_trace(str(path)), _opened(document, cut.events, into))
    rows = [row for row in found.rows if _changed(row)]
    side = found.side_a if sign < 0 else found.side_b
    ns_of_steps = cut.ns
    if side.steps == len(cut.ns):
        ns_of_steps = [cut.ns[step] for step in side.usual]
    expected_ns = sign * round(sum(ns_of_steps) / len(ns_of_steps))
    is_right = False
    if len(rows) == 1:
        (row,) = rows
        is_block = row.work == REPEATED and row.counts
        has_its_pieces = row.a_count + row.b_count == cut.pieces
        has_its_time = abs(row.change_ns - expected_ns) <= cut.pieces
        is_right = bool(is_block and has_its_pieces and has_its_time)
    said = [f"{len(rows)} rows for {expected_ns:+} ns", *map(_said, rows[:4])]
    return Answer(right=is_right, said="; ".join(said))


def _changed(row: Row) -> bool:
    return row.kind is not RowKind.SAME


def _may_be(row: Row) -> bool:
    return "may be noise" in row.why


def _both_wrong(work: Sequence[Row], one: Planted, other: Planted) -> list[str]:
    """Two rows, one for each change."""
    orders = [(one, other), (other, one)] if len(work) == 2 else []
    if any(not _wrong(work[0], x) and not _wrong(work[1], y) for x, y in orders):
        return []
    return [f"{len(work)} rows for two changes", *map(_said, work[:4])]


def _wrong(row: Row, planted: Planted) -> list[str]:
    """What of a row is not that of the change: its kind, whether it is in the sum, its
    op, its time (within 1 %)."""
    wrong = []
    if row.kind is not planted.kind:
        wrong.append(f"kind {_said(row)}")
    if row.counts == planted.once:
        wrong.append(f"in the sum: {row.counts}")
    if planted.op and planted.op not in row.op:
        wrong.append(f"op {_said(row)}")
    tolerance_ns = max(2, abs(planted.change_ns) // 100)
    if abs(row.change_ns - planted.change_ns) > tolerance_ns:
        wrong.append(f"figure {_said(row)}, not {planted.change_ns} ns")
    return wrong


def _wrong_dispatch(row: Row, planted: Planted) -> bool:
    if not row.on_cpu or not _changed(row):
        return False
    expected = row.op.removeprefix("CPU: ") in planted.dispatch
    return not expected or (planted.gone and row.kind is not RowKind.REMOVED)


def _work_wrong(found: Diff) -> list[str]:
    """Where the GPU does the same at the same times, but for the rounding of a mean:
    two kernels that were taken for one another have other times, even if each
    difference is called noise."""
    rows = [
        row for row in found.rows if not row.on_cpu and abs(row.change_ns) > ROUNDING_NS
    ]
    step = found.step.change_ns
    return [
        *map(_said, rows),
        *([f"step {step:+} ns"] if abs(step) > ROUNDING_NS else []),
    ]


def _idle_wrong(found: Diff, work: Sequence[Row], planted: Planted) -> list[str]:
    told = [row.change_ns for row in work if row.op == "idle"] if planted.once else []
    idle = told[0] if told else found.accounting.idle_ns
    apart = abs(idle - planted.idle_ns) > max(2, planted.idle_ns // 100)
    return [f"idle {idle} ns, not {planted.idle_ns} ns"] if apart else []


def _said(row: Row) -> str:
    return f"{row.kind} {row.op} {row.change_ns:+} ns {row.why}"


def number(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))
