"""The breakdown of a trace without GPU events: ops, functions and waits by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.why.answer import why
from fusetui.analysis.why.selection import Selection
from fusetui.report.why import format_why, why_markdown
from fusetui.report.why_answer import breakdown_text
from fusetui.trace import Trace

Make = Callable[..., Any]


def events(event: Make) -> list[Any]:
    """A frame 0-80 with an op 10-40, another op within it 20-30, and a wait 50-70; an
    op 80-100."""
    return [
        event("/a.py(3): work", 0, 80, cat="python_function"),
        event("aten::linear", 10, 30),
        event("aten::mm", 20, 10),
        event("<built-in method sleep of module>", 50, 20, cat="python_function"),
        event("aten::mm", 80, 20),
    ]


def test_own_times_add_up(trace_of: Make, event: Make) -> None:
    work = why(trace_of(events(event))).cpu_work
    assert work is not None
    assert [(one.name, one.count, one.ns) for one in work.ops] == [
        ("aten::mm", 2, 30_000),
        ("aten::linear", 1, 20_000),
    ]
    assert [(one.name, one.ns) for one in work.functions] == [("work (a.py:3)", 30_000)]
    assert [(one.name, one.ns) for one in work.waits] == [
        ("sleep in work (a.py:3)", 20_000)
    ]
    assert work.whole_ns == 100_000


def test_cpu_work_adds_up_to_the_account_of_its_thread(
    trace_of: Make, event: Make
) -> None:
    found = why(trace_of(events(event)))
    (thread,) = found.cpu
    assert found.cpu_work is not None
    assert found.cpu_work.whole_ns == thread.op_ns + thread.python_ns + thread.wait_ns


def test_cpu_work_is_printed_by_op_function_and_wait(
    trace_of: Make, event: Make
) -> None:
    found = why(trace_of(events(event)))
    text = (
        "CPU thread time by op or runtime call: aten::mm 30 %, aten::linear 20 %; by "
        "function: work (a.py:3) 30 %; by wait: sleep in work (a.py:3) 20 %."
    )
    assert breakdown_text(found) == text
    assert text in " ".join(format_why(found, 80).split())
    assert "| aten::mm | 30 us | 30 % | 2 |" in why_markdown(found).split("\n")
    assert "30 us   30 %      2  aten::mm" in format_why(found, 80, everything=True)


def test_a_window_has_its_part(trace_of: Make, event: Make) -> None:
    work = why(
        trace_of(events(event)), Selection(from_ns=25_000, to_ns=45_000)
    ).cpu_work
    assert work is not None
    assert [(one.name, one.ns) for one in work.ops] == [
        ("aten::linear", 10_000),
        ("aten::mm", 5_000),
    ]
    assert work.whole_ns == 20_000


def test_threads_without_ops_do_not_count_beside_others(
    trace_of: Make, event: Make
) -> None:
    idle = event("/pool.py(1): _worker", 0, 100, cat="python_function") | {"tid": 9}
    work = why(trace_of([*events(event), idle])).cpu_work
    assert work is not None
    assert work.whole_ns == 100_000
    alone = why(trace_of([idle])).cpu_work
    assert alone is not None
    assert [one.name for one in alone.functions] == ["_worker (pool.py:1)"]


def test_with_a_gpu_there_is_none(trace_of: Make, launched: Make) -> None:
    assert why(trace_of(launched(1, 0, 5))).cpu_work is None


def test_hostile_names_are_shown_printable(trace_of: Make, event: Make) -> None:
    trace: Trace = trace_of([event("\x1b[31maten::mm", 0, 100)])
    assert "\x1b" not in format_why(why(trace), 80)
