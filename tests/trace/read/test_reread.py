"""Args and sequence numbers in one pass, against each read on its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.fixtures import any_of

from fusetui.trace import Trace, open_trace
from fusetui.trace.model.events import arguments
from fusetui.trace.read.autograd import read_autograd
from fusetui.trace.read.reread import Reread

Make = Callable[..., Any]
NAMES = ("Input Dims", "Input type")


def is_as_alone(trace: Trace) -> None:
    orders = trace.order[::-2]  # some events, in any order
    again = Reread(trace.elements, orders, NAMES)
    parts = [again.part(number) for number in reversed(range(again.stretches))][::-1]
    args, autograd = again.args(parts), again.autograd(parts)
    alone = arguments(trace.elements, orders, NAMES)
    texts = [text.split(b"\0") for text in args.texts]
    assert [list(text) for text in alone.distinct] == texts
    assert args.number.tolist() == alone.number.tolist()
    told = read_autograd(trace.elements)
    for column in ("order", "number", "thread"):
        assert getattr(autograd, column).tolist() == getattr(told, column).tolist()
    assert autograd.flows == told.flows


OP = '{"ph":"X","cat":"cpu_op","name":"x","pid":1,"tid":1,"ts":%d,"dur":1,"args":{%s}}'
DIMS, FORWARD = '"Input Dims":[[8]]', '"Sequence number":7,"Fwd thread id":0'
BACKWARD = '"Sequence number":7,"Fwd thread id":2'


@pytest.mark.parametrize(
    "args",
    [
        [DIMS, FORWARD, f"{BACKWARD},{DIMS}"],
        [DIMS, '"other":1', DIMS],
        [FORWARD, '"Sequence number":"7"', '"Sequence number":1e400', BACKWARD],
        [DIMS, f"{BACKWARD},}}", FORWARD],  # does not decode
        [DIMS, '"Sequence number":-1', f"{DIMS},{FORWARD}"],
        ["", ""],
    ],
)
def test_args_and_sequence_numbers_in_one_pass_equal_each_alone(
    trace_of: Make, args: list[str]
) -> None:
    events = ",".join(OP % (10 * n, text) for n, text in enumerate(args, 1))
    is_as_alone(trace_of(f'{{"traceEvents": [{events}]}}'))


any_trace = any_of("training", "lesson-mlp-eager")


def test_args_and_sequence_numbers_of_traces_equal_each_alone(
    any_trace: Path, small_extents: None
) -> None:
    trace = open_trace(str(any_trace), cached=False)
    assert len(trace.elements.stretches) > 1
    is_as_alone(trace)
