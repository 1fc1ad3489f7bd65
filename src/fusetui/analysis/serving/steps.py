"""The steps of a server, and what each was asked to do."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.serving.requests import Asked, asked_by, merged
from fusetui.trace.layout.steps import SERVER, Steps, annotations_like, steps_of
from fusetui.trace.model.columns import Trace


class ServerSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a server, and what each was asked to do; shape [steps]."""

    steps: Steps
    asked: tuple[Asked | None, ...]  # None: the annotation has a form that is not known

    def __len__(self) -> int:
        return len(self.steps)


def server_steps(trace: Trace) -> ServerSteps:
    """The steps of the server; none if no annotation has the name of one. The annotations inside
    them add to what is known."""
    steps = steps_of(trace, SERVER)
    asked: list[Asked | None] = [None] * len(steps)
    rows = annotations_like(trace, SERVER)
    number = np.searchsorted(steps.start, trace.start[rows], side="right") - 1
    for row, step in zip(rows.tolist(), number.tolist(), strict=True):
        inner, before = asked_by(trace.name_of(row)), asked[step]
        asked[step] = merged(before, inner) if before and inner else before or inner
    return ServerSteps(steps, tuple(asked))
