"""Which steps took much longer than others of their phase, and what explains that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusetui.trace.insights.account import Device
from fusetui.trace.insights.facts import COMPILER
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.serving.passes import Mode, Pass, interval_of
from fusetui.trace.serving.requests import Phase
from fusetui.trace.text.figures import duration

FEWEST = 4  # steps of a phase, of which one can be an outlier
LONGER = 1.5  # times the median
WORTH = 0.1  # of the excess, which an explanation must reach if it has a time
LONGEST_NAME = 400


def outliers(
    trace: Trace, steps: Sequence[Pass], devices: Sequence[Device]
) -> dict[int, tuple[str, ...]]:
    """By the index of each outlier, what explains it; () if nothing that was recorded does."""
    spans = [interval_of(trace, step.rows).span_ns for step in steps]
    found = {}
    for phase in dict.fromkeys(step.asked.phase for step in steps):
        own = [n for n, step in enumerate(steps) if step.asked.phase is phase and len(step.rows)]
        if len(own) < FEWEST:
            continue
        median = int(np.median([spans[n] for n in own]))
        usual = max((steps[n].mode for n in own), key=[steps[n].mode for n in own].count)
        for n in own:
            if spans[n] > LONGER * median:
                found[n] = tuple(_reasons(trace, steps, n, spans[n] - median, usual, devices))
    return found


def _reasons(
    trace: Trace,
    steps: Sequence[Pass],
    n: int,
    excess: int,
    usual: Mode,
    devices: Sequence[Device],
) -> list[str]:
    step = steps[n]
    begin, end = step.start_ns, step.start_ns + step.dur_ns
    found = []
    if _compiles(trace, begin, end):
        found.append("torch.compile or Triton compiles in it")
    if step.mode is Mode.EAGER and usual is not Mode.EAGER:
        found.append(f"it runs eagerly, where the others replay {usual}")
    if n and steps[n - 1].asked.phase in (Phase.PREFILL, Phase.MIXED):
        before, own = interval_of(trace, steps[n - 1].rows), interval_of(trace, step.rows)
        if before.end_ns > begin and own.end_ns > before.end_ns > own.begin_ns - excess:
            found.append("the prefill before it was still running")
    waited = sum(
        account.idle.get("host_alloc", 0)
        for device in devices
        for account in device.over(np.array([begin]), np.array([max(begin, end)]))
    )
    if waited > WORTH * excess:
        found.append(f"the GPU waits {duration(waited)} for memory to be allocated or freed")
    return found


def _compiles(trace: Trace, begin: int, end: int) -> bool:
    named = [COMPILER.search(name[:LONGEST_NAME]) is not None for name in trace.names]
    flags = np.array(named or [False])[trace.name]
    flags &= np.isin(trace.role, (Role.ANNOTATION, Role.OP, Role.PYTHON))
    rows = np.flatnonzero(flags)
    return bool(((trace.start[rows] < end) & (trace.end[rows] > begin)).any())
