"""What makes the trace itself misleading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, of_span, rule
from fusetui.analysis.why.warming import FEWEST, GRAPH_LAUNCH, captures, first_step
from fusetui.text.figures import duration, percent, plural, quantity
from fusetui.text.printable import printable
from fusetui.trace.layout.steps import PROFILED, Steps
from fusetui.trace.model.categories import Role
from fusetui.trace.model.intervals import union

SLOW_FIRST = 1.5  # times the median of the other steps
UNLINKED = 0.05  # of the GPU time
REPLAYS = 0.05  # of the span
CAPTURED = 0.5  # of the steps


class Note(NamedTuple):
    text: str
    rows: tuple[int, ...]
    remedy: str


@rule(
    without_gpu=True,
    remedy="Record again.",
    thresholds={
        "slow_first": SLOW_FIRST,
        "fewest": FEWEST,
        "unlinked": UNLINKED,
        "replays": REPLAYS,
        "captured": CAPTURED,
    },
)
def recording(facts: Facts) -> Iterator[Claim]:
    """All notes as one."""
    found = facts.spans
    captures = list(_captures(facts, found))
    notes = [
        *_unlinked(facts),
        *_first_step(facts, found),
        *(captures or _few_steps(facts, found)),
        *_stacks(facts),
        *_graphs(facts),
    ]
    if notes:
        yield Claim(
            text=" ".join(note.text for note in notes),
            at_stake_ns=None,
            rows=tuple(row for note in notes for row in note.rows),
            remedy=" ".join(note.remedy for note in notes),
        )


def _stacks(facts: Facts) -> Iterator[Note]:
    if facts.is_profiled:
        yield Note(
            "Python stacks were recorded while the GPU waited for the CPU: the times of the "
            "CPU include the work of the profiler, and without it the program may be faster.",
            (),
            "Record again with with_stack=False for the times, and keep this trace for the frames.",
        )


def _graphs(facts: Facts) -> Iterator[Note]:
    """Graph launches that keep the GPU waiting."""
    launches, waited = facts.idle.launch, facts.idle.ns("launch_call")
    replays = np.isin(launches, facts.named(GRAPH_LAUNCH.search, Role.CALL)) & (waited > 0)
    at_stake = int(waited[replays].sum())
    if at_stake and at_stake >= REPLAYS * facts.span_ns:
        name = printable(facts.trace.name_of(int(launches[replays][0])))
        yield Note(
            f"The GPU waits {of_span(facts, at_stake)} inside "
            f"{name}, which recording the nodes of a graph makes slower.",
            the_most(launches[replays], waited[replays]),
            "Time the step without the profiler to see how much of this stays.",
        )


def _unlinked(facts: Facts) -> Iterator[Note]:
    """GPU events without a launch call beside others that have one."""
    trace, rows = facts.trace, facts.gpu_rows
    without = rows[trace.launch[rows] < 0]
    lost, whole = int(trace.dur[without].sum()), int(trace.dur[rows].sum())
    if facts.has_launches and whole and lost >= UNLINKED * whole:
        yield Note(
            f"The launch calls of {plural(len(without), 'GPU event')} ({percent(lost, whole)} "
            "of the GPU time) are not in the trace: they came before it began, or were not "
            "recorded.",
            the_most(without, trace.dur[without]),
            "Call torch.{intel:xpu|:cuda}.synchronize() right before the recorded steps "
            "begin, so that no earlier work runs into them.",
        )


def _first_step(facts: Facts, found: Steps) -> Iterator[Note]:
    lengths = first_step(found)
    if lengths is None:
        return
    first, others = lengths
    if others and first >= SLOW_FIRST * others:
        yield Note(
            f"The first step takes {duration(first)}, {quantity(first / others, digits=2)} "
            f"times as long as the median of the others ({duration(round(others))}).",
            tuple(found.rows[:1].tolist()),
            "Look at the later steps (--step), or warm up for longer before recording.",
        )


def _captures(facts: Facts, found: Steps) -> Iterator[Note]:
    """Of steps that do little but capture graphs."""
    once = captures(facts.trace)
    length = int((found.end - found.start).sum())
    captured = int(union(once.start, once.end).within(found.start, found.end).sum())
    if captured >= CAPTURED * length > 0:
        yield Note(
            f"For {duration(captured)} of {plural(len(found), 'step')} "
            f"({percent(captured, length)}) a graph is captured: what is launched meanwhile "
            "becomes part of it and does not run.",
            tuple(once.rows[:FEWEST].tolist()),
            "Look at replays of the graph for what it costs.",
        )


def _few_steps(facts: Facts, found: Steps) -> Iterator[Note]:
    """Of a whole trace: one step that was asked for is no recording of its own. Servers have no
    schedule of the profiler."""
    profiled = found.by == PROFILED
    if facts.is_whole and 0 < len(found) < FEWEST and (profiled or found.are_iterations):
        yield Note(
            f"Only {plural(len(found), 'step')} {'was' if len(found) == 1 else 'were'} "
            "recorded: whether others take as long is not known.",
            tuple(found.rows.tolist()),
            f"Give the profiler a schedule with active={FEWEST} or more."
            if profiled
            else f"Record {FEWEST} steps or more.",
        )
