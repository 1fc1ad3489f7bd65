"""A trace that is large compared with the extents of the fixture `small_extents`."""

from __future__ import annotations

import json

import numpy as np

from fusetui.trace import Trace

EVENTS = [
    {"ph": "X", "cat": "cpu_op" if n % 3 else "kernel", "name": f"op{n % 97}", "pid": 1,
     "tid": n % 5, "ts": 10 * n, "dur": 25 if n % 7 else 5, "args": {"correlation": n // 2}}
    for n in range(6_000)
]  # fmt: skip
TEXT = (
    '{"traceEvents": [\n' + ",\n".join(map(json.dumps, EVENTS)) + '\n], "after": 1}'
).encode()


def same_start(part: Trace, whole: Trace) -> None:
    """The slices of a part are all those of the whole up to some place in
    traceEvents."""
    places = np.sort(part.order)
    assert len(places)
    assert (places == np.sort(whole.order)[: len(places)]).all()
    mine, theirs = part.order.argsort(), whole.order.argsort()[: len(places)]
    for column in ("start", "dur", "role", "correlation", "external_id"):
        assert (getattr(part, column)[mine] == getattr(whole, column)[theirs]).all(), (
            column
        )
    names = [part.name_of(row) for row in mine.tolist()]
    assert names == [whole.name_of(row) for row in theirs.tolist()]
