"""Some args of many slices at once, against each of them decoded on its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusetui.trace import Trace, open_trace
from fusetui.trace.model.events import arguments, parsed

Make = Callable[..., Any]
NAMES = ("Input Dims", "Input type")


def values(trace: Trace, names: tuple[str, ...] = NAMES) -> list[tuple[Any, ...]]:
    """Of each row, in the order of the rows."""
    found = arguments(trace.elements, trace.order, names)
    texts = [found.distinct[n] if n >= 0 else (b"",) * len(names) for n in found.number]
    return [tuple(map(parsed, row)) for row in texts]


def test_equal_args_are_one(trace_of: Make, event: Make) -> None:
    shapes = {"Input Dims": [[2, 3], []], "Input type": ["float", ""]}
    args = [
        {**shapes, "External id": 1},
        {},
        {"External id": 3, **shapes},
        {"Input Dims": [[7]]},
    ]
    trace = trace_of([event("op", 10 * n, 5, args=a) for n, a in enumerate(args)])
    found = arguments(trace.elements, trace.order, NAMES)
    assert found.number.tolist() == [0, -1, 0, 1]
    assert values(trace)[0] == ([[2, 3], []], ["float", ""])
    assert values(trace)[3] == ([[7]], None)


@pytest.mark.parametrize(
    "odd", ['"args":null', '"args":[1]', '"args":{"bw":inf}', '"name":"a"b"']
)
def test_one_odd_event_costs_the_others_nothing(trace_of: Make, odd: str) -> None:
    good = '{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":%d,"dur":1,%s}'
    dims = '"args":{"Input Dims":[[8]]}'
    trace = trace_of(f"[{good % (1, dims)},{good % (2, odd)},{good % (3, dims)}]")
    assert {row[0] == [[8]] for row in values(trace)[:: len(trace) - 1]} == {True}
    assert values(trace) == [
        tuple(trace.args_of(n).get(k) for k in NAMES) for n in range(len(trace))
    ]


def test_arguments_of_no_slices_are_empty(trace_of: Make) -> None:
    trace = trace_of([])
    assert arguments(trace.elements, trace.order, NAMES).distinct == ()


def test_arguments_of_many_slices_equal_each_alone(any_trace: Path) -> None:
    trace = open_trace(str(any_trace))
    found = values(trace)
    for row in np.linspace(0, len(trace) - 1, 200).astype(int).tolist():
        args = trace.args_of(row)
        assert found[row] == tuple(args.get(name) for name in NAMES)
