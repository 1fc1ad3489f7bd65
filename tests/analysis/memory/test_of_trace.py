"""What the [memory] events of a trace tell is what a replay in plain Python over its
JSON finds, to the byte, and every table adds up to the events' own totals."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.files import WITH_MODULES
from tests.corpus.fixtures import any_of

from fusetui.analysis.memory.answer import NoMomentError
from fusetui.analysis.memory.of_trace import TracedMemory, report_memory_of_trace
from fusetui.trace import Trace, open_trace

any_trace = any_of(*WITH_MODULES)
ALLOCATORS = (
    "empty",
    "empty_like",
    "empty_strided",
    "resize_",
    "new_empty",
    "new_empty_strided",
)
Event = dict[str, Any]


@cache
def events_of(path: Path) -> list[Event]:
    text = gzip.decompress(path.read_bytes())
    found: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return found


@cache
def read(path: Path) -> Trace:
    return open_trace(str(path))


def by_device(path: Path) -> dict[tuple[int, int], list[Event]]:
    found: dict[tuple[int, int], list[Event]] = {}
    for event in events_of(path):
        if event.get("name") == "[memory]":
            place = event["args"]["Device Type"], event["args"]["Device Id"]
            found.setdefault(place, []).append(event)
    return {
        place: sorted(every, key=lambda one: one["ts"])
        for place, every in found.items()
    }


def op_at(path: Path, event: Event) -> str:
    """The shortest op around it on its thread that does more than allocate, else the
    shortest."""
    around = [
        one
        for one in events_of(path)
        if one.get("cat") == "cpu_op"
        and (one["pid"], one["tid"]) == (event["pid"], event["tid"])
        and one["ts"] <= event["ts"] <= one["ts"] + one["dur"]
    ]
    around.sort(key=lambda one: (-one["ts"], one["dur"]))
    names = [str(one["name"]) for one in around]
    working = [name for name in names if name.removeprefix("aten::") not in ALLOCATORS]
    return (working or names or ["no op"])[0]


def test_totals_of_memory_events_equal_a_plain_replay(any_trace: Path) -> None:
    """Those of the events, at each of them, and the addresses that live add up to the
    last."""
    found = {
        (one.kind == "GPU", one.device): one
        for one in report_memory_of_trace(read(any_trace))
    }
    want = by_device(any_trace)
    assert found.keys() == {(kind != 0, device) for kind, device in want}
    for (kind, device), events in want.items():
        one = found[kind != 0, device]
        totals = [event["args"]["Total Allocated"] for event in events]
        reserved = [event["args"]["Total Reserved"] for event in events]
        start = totals[0] - events[0]["args"]["Bytes"]
        assert one.allocated_start_bytes == start
        assert one.peak_allocated_bytes == max(start, *totals)
        assert one.peak_index == [start, *totals].index(max(start, *totals)) - 1
        assert (one.allocated_end_bytes, one.difference_end_bytes) == (totals[-1], 0)
        assert (one.peak_reserved_bytes, one.reserved_end_bytes) == (
            max(reserved),
            reserved[-1],
        )


def test_peak_is_held_by_ops_and_annotations(any_trace: Path) -> None:
    for one in report_memory_of_trace(read(any_trace)):
        place = next(k for k in by_device(any_trace) if k[1] == one.device)
        live: dict[int, tuple[int, Event]] = {}
        for event in by_device(any_trace)[place][: one.peak_index + 1]:
            live.pop(event["args"]["Addr"], None)
            if event["args"]["Bytes"] > 0:
                live[event["args"]["Addr"]] = event["args"]["Bytes"], event
        sizes: Counter[str] = Counter()
        for size, event in live.values():
            sizes[op_at(any_trace, event)] += size
        sizes["before_recording"] = one.peak_allocated_bytes - sum(sizes.values())
        assert {row.place: row.bytes for row in one.by_op} == {
            k: v for k, v in sizes.items() if v
        }
        assert one.place in (op_at(any_trace, event), None)


def event(at: float, change: int, total: int, address: int = 1, **more: Any) -> Event:
    args = {"Device Type": 1, "Device Id": 0, "Addr": address, "Bytes": change}
    args |= {"Total Allocated": total, "Total Reserved": 4 * total}
    place = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "s": "t"}
    return place | {"args": args | more}


def op(name: str, at: float, dur: float) -> Event:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": at,
        "dur": dur,
    }


OPS = (op("aten::mm", 0, 10), op("aten::empty", 4, 2), op("aten::empty", 20, 9))
PLANTED = (
    event(5, 100, 300),
    event(25, 50, 350, 2),
    event(30, -100, 250),
    event(31, -7, 243, 3),
)


def told(
    make: Callable[..., Trace], events: Any, at: str | int = "peak"
) -> TracedMemory:
    (found,) = report_memory_of_trace(make([*OPS, *events]), at)
    return found


def test_an_op_that_only_allocates_is_not_who_holds_it(
    trace_of: Callable[..., Trace],
) -> None:
    """Unless nothing is around it."""
    found = told(trace_of, PLANTED)
    rows = {one.place: (one.bytes, one.blocks) for one in found.by_op}
    want = {"before_recording": (200, 0), "aten::mm": (100, 1), "aten::empty": (50, 1)}
    assert (rows, found.place) == (want, "aten::empty")


@pytest.mark.parametrize(("at", "held"), [("end", 243), (5, 300), (29, 350), (30, 250)])
def test_moment_at_peak_end_or_time_has_its_held_bytes(
    trace_of: Callable[..., Trace], at: str | int, held: int
) -> None:
    found = told(trace_of, PLANTED, at)
    assert found.at_allocated_bytes == sum(one.bytes for one in found.by_op) == held


def test_an_event_that_is_lost_is_a_contradiction(
    trace_of: Callable[..., Trace],
) -> None:
    assert told(trace_of, PLANTED).difference_end_bytes == 0
    assert told(trace_of, (PLANTED[0], *PLANTED[2:])).difference_end_bytes == -50


def test_processes_have_memories_of_their_own(trace_of: Callable[..., Trace]) -> None:
    other = [one | {"pid": 2} for one in PLANTED]
    found = report_memory_of_trace(trace_of([*OPS, *PLANTED, *other]))
    assert [(one.process, one.peak_allocated_bytes) for one in found] == [
        (1, 350),
        (2, 350),
    ]
    assert [one.place for one in found] == ["aten::empty", None]


@pytest.mark.parametrize(
    "odd",
    [{"Addr": None}, {"Bytes": 1e300}, {"Bytes": 1 << 60}, {"Total Allocated": "N/A"}],
)
def test_memory_events_without_numbers_are_left_out(
    trace_of: Callable[..., Trace], odd: Event
) -> None:
    assert told(trace_of, [*PLANTED, event(40, 9, 9, 9, **odd)]).events == len(PLANTED)
    assert report_memory_of_trace(trace_of([event(40, 9, 9, 9, **odd)])) == ()


def test_addresses_may_be_large(trace_of: Callable[..., Trace]) -> None:
    at = 0xFF00_0000_1234_5000
    found = told(trace_of, [event(5, 8, 8, at), event(6, -8, 0, at)])
    assert (found.events, found.difference_end_bytes) == (2, 0)


def test_where_memory_ran_out_is_not_told(trace_of: Callable[..., Trace]) -> None:
    with pytest.raises(NoMomentError):
        told(trace_of, PLANTED, "oom")
