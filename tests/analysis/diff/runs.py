"""A long run of equal kernels in a trace, one of which can be taken out again."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
from tests.analysis.diff.planting import PLACES, Editor, Event, Planted, Subject, number
from tests.analysis.diff.plants import each, remove

from fusetui.analysis.diff.model import RowKind

RUN = 300
# what takes how long repeats after so many: a prime, so that no pattern fits it
TIMES = 7
HOST = Decimal(4)  # us of an op on the CPU


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
        _repeat(editor, int(work.row[work.of_window(step)][item]))
    return editor.finished()


def _repeat(editor: Editor, row: int) -> None:
    trace = editor.subject.trace
    kernel, call = editor.edit(row), editor.edit(int(trace.launch[row]))
    op, top = editor.edit(int(trace.op[row])), int(trace.op[row])
    while trace.parent[top] >= 0:
        top = int(trace.parent[top])
    outer = editor.edit(top)
    begin = number(outer["ts"]) + number(outer["dur"])
    times = [number(kernel["dur"]) + 2 * (5 * n % TIMES) for n in range(RUN)]
    editor.make_room(begin, HOST * RUN)
    after = max(number(editor.edit(row)["ts"]) + number(kernel["dur"]), begin + HOST)
    editor.make_room(after, HOST * RUN + sum(times))
    for n, dur in enumerate(times):
        begins = begin + HOST * n
        plain: dict[str, Any] = {**op, "ts": begins, "dur": HOST - 1, "args": {}}
        args = {"correlation": editor.next_id}
        launch = {
            **call,
            "ts": begins + 1,
            "dur": Decimal(1),
            "args": {**call["args"], **args},
        }
        run = {**kernel, "ts": after, "dur": dur, "args": {**kernel["args"], **args}}
        for event in (launch, run):
            event["args"].pop("External id", None)
        editor.more += [plain, launch, run]
        after += max(dur, HOST)
        editor.next_id += 1


def one_of_run(subject: Subject, nth: int) -> Planted | None:
    """The nth kernel of the longest run is gone, in every step."""
    keys = subject.items.exact
    cuts = np.flatnonzero(np.diff(keys)) + 1
    bounds = np.concatenate([[0], cuts, [len(keys)]])
    longest = int(np.diff(bounds).argmax())
    item = int(bounds[longest]) + nth
    return each(subject, PLACES[1], item, remove, RowKind.REMOVED, lambda ns: -ns)
