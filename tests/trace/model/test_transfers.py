"""Copies and fills that say in args what older versions of torch wrote into names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


def moved(name: str, ts: float, **args: Any) -> dict[str, Any]:
    cat = "gpu_" + name.lower()
    return {
        "ph": "X",
        "cat": cat,
        "pid": 0,
        "tid": 7,
        "name": name,
        "ts": ts,
        "dur": 1,
        "args": args,
    }


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        (
            "Memcpy",
            {"copy kind": "HtoD", "src kind": "pinned", "dst kind": "device"},
            "Memcpy HtoD (Pinned -> Device)",
        ),
        ("Memcpy", {"copy kind": "PtoP"}, "Memcpy PtoP"),
        (
            "Memcpy",
            {"copy kind": 12, "src kind": "pinned", "dst kind": "device"},
            "Memcpy",
        ),
        ("Memcpy", {}, "Memcpy"),
        ("Memset", {"memory kind": 3}, "Memset (Device)"),
        ("Memset", {"memory kind": 99}, "Memset"),
        ("Memset", {"memory kind": True}, "Memset"),
    ],
)
def test_a_copy_is_called_what_its_args_say(
    trace_of: Make, name: str, args: dict[str, Any], expected: str
) -> None:
    trace = trace_of([moved(name, 1, **args)])
    assert trace.name_of(0) == expected


def test_each_copy_has_its_own_direction(trace_of: Make) -> None:
    kinds = ("HtoD", "DtoH", None, "HtoD")
    events = [
        moved("Memcpy", at, **{"copy kind": kind}) for at, kind in enumerate(kinds)
    ]
    trace = trace_of([*events, moved("Memset", 9), moved("kept", 10)])
    names = [
        trace.name_of(row) for row in range(len(trace)) if trace.name_of(row) != "kept"
    ]
    assert names == ["Memcpy HtoD", "Memcpy DtoH", "Memcpy", "Memcpy HtoD", "Memset"]


def test_nodes_of_a_graph_that_run_nothing_are_no_kernels(trace_of: Make) -> None:
    event = {**moved("EventRecord", 1), "cat": "graph_event_node", "dur": 0}
    host = {**moved("HostNode: f(void*)", 2), "cat": "graph_host_node"}
    trace = trace_of([event, host])
    assert not len(trace.gpu_rows)
    assert [str(track.layer) for track in trace.tracks] == ["gpu_sync"]
