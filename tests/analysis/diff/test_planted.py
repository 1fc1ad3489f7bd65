"""Changes planted into the events of a trace: exactly these are reported."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.files import corpus_path

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, Row, RowKind
from fusetui.trace import open_trace

Event = dict[str, Any]
Work = Callable[[Diff], list[Row]]


@dataclass(frozen=True)
class Plan:
    """A trace, and the two kernels in a row that are changed: the nth of the first
    one's op."""

    trace: str
    first: str
    second: str
    nth: int
    fused: str
    sync: str


PLAN = Plan(
    "one-step",
    "aten::add",
    "aten::native_layer_norm",
    1,
    "triton_per_fused_add_native_layer_norm_0",
    "cudaDeviceSynchronize",
)


class Editor:
    """The events of a trace, and the changes that the tests make to them."""

    def __init__(self, plan: Plan, path: Path) -> None:
        self.plan = plan
        self.path = path
        self.document = json.loads(gzip.decompress(path.read_bytes()))
        self.events: list[Event] = self.document["traceEvents"]
        self.first, self.second = self._chosen()
        self.launch_thread = self.launch_of(self.second)["tid"]

    def compared(self, folder: Path) -> Diff:
        """The trace as it was against the edited one."""
        edited = self.written(folder / "edited.json")
        return diff(open_trace(str(self.path)), open_trace(str(edited)))

    def written(self, path: Path) -> Path:
        """Writes the trace as it is edited up to now."""
        self.document["traceEvents"] = self.events
        path.write_text(json.dumps(self.document))
        return path

    def launch_of(self, kernel: Event) -> Event:
        number = kernel["args"]["correlation"]
        calls = self.of("cuda_runtime", "cuda_driver")
        return next(call for call in calls if call["args"].get("correlation") == number)

    def around(self, kernel: Event) -> Event:
        """The outermost op around the launch of a kernel."""
        launch = self.launch_of(kernel)
        return max(
            (op for op in self.of("cpu_op") if inside(launch, op)),
            key=lambda op: float(op["dur"]),
        )

    def take_out_kernel(self, kernel: Event) -> None:
        """Removes a kernel and its launch call; the op around the call stays."""
        launch = self.launch_of(kernel)
        self.events = [
            event
            for event in self.events
            if event is not kernel and event is not launch
        ]

    def take_out(self, begin: float, end: float) -> list[Event]:
        """Removes the ops and calls that lie in this stretch of the thread that
        launches."""
        thread = self.launch_thread
        gone = [
            event
            for event in self.of("cpu_op", "cuda_runtime", "cuda_driver")
            if event["tid"] == thread
            and begin <= float(event["ts"])
            and float(event["ts"]) + float(event["dur"]) <= end
        ]
        left_out = {id(event) for event in gone}
        self.events = [event for event in self.events if id(event) not in left_out]
        return gone

    def put_in(self, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        place = {key: self.step[key] for key in ("pid", "tid")}
        timed = {"ts": round(ts, 3), "dur": round(dur, 3)}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, **place, **timed, "args": args}
        )

    @property
    def step(self) -> Event:
        steps = self.of("user_annotation")
        return next(
            event for event in steps if event["name"].startswith("ProfilerStep")
        )

    def of(self, *categories: str) -> Iterator[Event]:
        return (
            e for e in self.events if e.get("ph") == "X" and e.get("cat") in categories
        )

    def _chosen(self) -> tuple[Event, Event]:
        """Two kernels, one after the other, launched in the step under the ops of the
        plan."""
        ids = {op["args"].get("External id"): op["name"] for op in self.of("cpu_op")}
        kernels = sorted(self.of("kernel"), key=lambda event: float(event["ts"]))
        ops = [ids.get(kernel["args"].get("External id")) for kernel in kernels]
        wanted = (self.plan.first, self.plan.second)
        places = [n for n in range(len(ops) - 1) if (ops[n], ops[n + 1]) == wanted]
        place = places[self.plan.nth]
        return kernels[place], kernels[place + 1]


def inside(inner: Event, outer: Event) -> bool:
    begin, end = (float(inner["ts"]), float(inner["ts"]) + float(inner["dur"]))
    last = float(outer["ts"]) + float(outer["dur"])
    return bool(
        inner["tid"] == outer["tid"] and float(outer["ts"]) <= begin and end <= last
    )


def ends(event: Event) -> tuple[float, float]:
    begin = float(event["ts"])
    return begin, begin + float(event["dur"])


def changed(found: Diff) -> list[Row]:
    return [row for row in found.rows if row.kind is not RowKind.SAME]


@pytest.fixture
def editor() -> Editor:
    return Editor(PLAN, corpus_path(PLAN.trace))


def test_one_kernel_made_slower_is_the_only_change(
    editor: Editor, tmp_path: Path
) -> None:
    before = float(editor.second["dur"])
    editor.second["dur"] = round(1.2 * before, 3)
    found = editor.compared(tmp_path)
    (row,) = changed(found)
    assert (row.kind, row.op) == (RowKind.SLOWER, editor.plan.second)
    assert "20.0 % more time" in row.why
    assert found.accounting.rows_ns == row.change_ns == round(200 * before)


def test_one_kernel_taken_out_is_the_only_change(
    editor: Editor, tmp_path: Path
) -> None:
    editor.take_out_kernel(editor.second)
    work, calls = split(changed(editor.compared(tmp_path)))
    assert [(row.kind, row.op) for row in work] == [
        (RowKind.REMOVED, editor.plan.second)
    ]
    assert removed(calls) == {"CPU: launch calls": 1}


def test_an_op_taken_out_with_its_kernel_takes_out_what_it_calls(
    editor: Editor, tmp_path: Path
) -> None:
    """The op itself is told as work, and as nothing else."""
    gone = editor.take_out(*ends(editor.around(editor.second)))
    editor.events = [event for event in editor.events if event is not editor.second]
    work, calls = split(changed(editor.compared(tmp_path)))
    assert [(row.kind, row.op) for row in work] == [
        (RowKind.REMOVED, editor.plan.second)
    ]
    ops = ops_of(gone)
    del ops[f"CPU: {editor.plan.second}"]
    assert removed(calls) == {**ops, "CPU: launch calls": 1}


def test_an_op_without_its_kernel_taken_out_is_dispatch(
    editor: Editor, tmp_path: Path
) -> None:
    """Its other calls launch a kernel each, which are as many on both sides."""
    outermost = editor.around(editor.second)
    editor.take_out_kernel(editor.second)
    without_kernel = editor.written(tmp_path / "without_kernel.json")
    gone = editor.take_out(*ends(outermost))
    without_op = editor.written(tmp_path / "without_op.json")
    found = diff(open_trace(str(without_kernel)), open_trace(str(without_op)))
    work, calls = split(changed(found))
    assert not work
    assert f"CPU: {editor.plan.second}" in removed(calls)
    assert removed(calls) == ops_of(gone)


def test_two_kernels_made_one_are_fused(editor: Editor, tmp_path: Path) -> None:
    outer = [editor.around(kernel) for kernel in (editor.first, editor.second)]
    launch = editor.launch_of(editor.second)
    begin, end = float(outer[0]["ts"]), float(outer[1]["ts"]) + float(outer[1]["dur"])
    working = {id(editor.launch_of(kernel)) for kernel in (editor.first, editor.second)}
    gone = editor.take_out(begin, end)
    compile_both(editor, begin, end, launch)
    work, calls = split(changed(editor.compared(tmp_path)))
    (row,) = work
    assert (row.kind, row.op) == (
        RowKind.FUSED,
        f"{editor.plan.first} + {editor.plan.second}",
    )
    assert row.b == (editor.plan.fused,)
    assert (row.a_count, row.b_count) == (2, 1)
    dispatched = {f"CPU: {event['name']}" for event in gone if id(event) not in working}
    wrappers = {"CPU: Torch-Compiled Region", "CPU: TorchDynamo Cache Lookup"}
    assert {row.op for row in calls if row.kind is RowKind.ADDED} == wrappers
    ops = {f"CPU: {editor.plan.first}", f"CPU: {editor.plan.second}"}
    assert labels(calls) - wrappers == dispatched - ops | {"CPU: launch calls"}


def test_a_sync_put_in_is_the_only_change(editor: Editor, tmp_path: Path) -> None:
    editor.put_in("cuda_runtime", editor.plan.sync, quiet(editor), 1.0)
    (row,) = changed(editor.compared(tmp_path))
    assert (row.kind, row.op) == (RowKind.ADDED, "CPU: cudaDeviceSynchronize")
    assert row.b_count == row.a_count + 1


def compile_both(editor: Editor, begin: float, end: float, launch: Event) -> None:
    """What torch.compile would have left in the place of both ops."""
    name, number = editor.plan.fused, launch["args"]["correlation"]
    editor.put_in("cpu_op", "TorchDynamo Cache Lookup", begin, 1.0)
    editor.put_in("cpu_op", "Torch-Compiled Region: 0/0", begin + 1, end - begin - 1)
    editor.put_in("cpu_op", name, begin + 2, end - begin - 4)
    call = (
        "cuLaunchKernel" if launch["name"].startswith("cu") else "hipModuleLaunchKernel"
    )
    editor.put_in("cuda_driver", call, begin + 3, 2.0, correlation=number)
    editor.second["name"] = name
    editor.events = [event for event in editor.events if event is not editor.first]


def quiet(editor: Editor) -> float:
    """A moment in the step at which its thread runs no op and no call."""
    step = editor.step
    busy = sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        for e in editor.of("cpu_op", "cuda_runtime", "cuda_driver")
        if inside(e, step)
    )
    until = busy[0][0]
    for begin, end in busy:
        if begin - until > 3:
            return until + 1
        until = max(until, end)
    raise AssertionError("no quiet moment in the step")


def split(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Work, and dispatch."""
    return [row for row in rows if not row.on_cpu], [row for row in rows if row.on_cpu]


def ops_of(events: list[Event]) -> Counter[str]:
    """How many of each op there are, by the label of its row of dispatch."""
    return Counter(
        f"CPU: {event['name']}" for event in events if event["cat"] == "cpu_op"
    )


def removed(rows: list[Row]) -> dict[str, int]:
    """By label, how many fewer there are in a step."""
    assert all(row.kind is RowKind.REMOVED for row in rows)
    return {row.op: row.a_count - row.b_count for row in rows}


def labels(rows: list[Row]) -> set[str]:
    return {row.op for row in rows}
