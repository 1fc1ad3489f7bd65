"""A long run of equal kernels in a trace, one of which can be taken out again."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from tests.analysis.diff.planting import PLACES, Editor, Event, Planted, Subject, number
from tests.analysis.diff.plants import each, remove

from fusetui.analysis.diff.model import RowKind
from fusetui.trace import Trace

RUN = 300
"""Kernels of the run."""
PERIOD = 7
"""The durations of the run repeat after so many kernels: a prime, so that no pattern of
the trace fits it."""
OP_US = Decimal(4)
"""How long an op of the run takes on the CPU."""


def with_run(subject: Subject) -> list[Event] | None:
    """In every step, an op and its kernel `RUN` times more, right after themselves."""
    item = subject.chosen(
        PLACES[1], 0, lambda n: subject.items.op_names[n].startswith("aten::")
    )
    steps = subject.steps(PLACES[1])
    if item is None or not steps:
        return None
    editor, work = Editor(subject), subject.items.work
    for step in sorted(steps, reverse=True):
        _repeat(editor, int(work.row[work.slice_of_step(step)][item]))
    return editor.finished()


def _repeat(editor: Editor, row: int) -> None:
    """Puts ops with a kernel each behind the outermost op around the launch of a row,
    RUN times; what follows comes later."""
    trace = editor.subject.trace
    op_row = int(trace.op[row])
    kernel = editor.edit(row)
    call = editor.edit(int(trace.launch[row]))
    op = editor.edit(op_row)
    outermost = editor.edit(_outermost(trace, op_row))
    first_op_at = number(outermost["ts"]) + number(outermost["dur"])
    durations = [number(kernel["dur"]) + 2 * (5 * nth % PERIOD) for nth in range(RUN)]
    editor.make_room(first_op_at, OP_US * RUN)
    kernel_ends = number(editor.edit(row)["ts"]) + number(kernel["dur"])
    kernel_at = max(kernel_ends, first_op_at + OP_US)
    editor.make_room(kernel_at, OP_US * RUN + sum(durations))
    for nth, duration in enumerate(durations):
        op_at = first_op_at + OP_US * nth
        args = {"correlation": editor.next_id}
        again = {**op, "ts": op_at, "dur": OP_US - 1, "args": {}}
        launch = {**call, "ts": op_at + 1, "dur": Decimal(1)}
        launch["args"] = {**call["args"], **args}
        run = {**kernel, "ts": kernel_at, "dur": duration}
        run["args"] = {**kernel["args"], **args}
        for event in (launch, run):
            event["args"].pop("External id", None)
        editor.more += [again, launch, run]
        kernel_at += max(duration, OP_US)
        editor.next_id += 1


def _outermost(trace: Trace, row: int) -> int:
    """The outermost slice around a row, itself if there is none."""
    while trace.parent[row] >= 0:
        row = int(trace.parent[row])
    return row


def one_of_run(subject: Subject, nth: int) -> Planted | None:
    """The nth kernel of the longest run is gone, in every step."""
    keys = subject.items.exact_keys
    cuts = np.flatnonzero(np.diff(keys)) + 1
    bounds = np.concatenate([[0], cuts, [len(keys)]])
    longest = int(np.diff(bounds).argmax())
    item = int(bounds[longest]) + nth
    return each(subject, PLACES[1], item, remove, RowKind.REMOVED, lambda ns: -ns)
