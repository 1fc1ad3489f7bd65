"""Results about a trace that arrive after its lanes: counters, idle reasons, the
answer, the diff with another trace, and search matches in args. Nothing here needs a
terminal, so that another process can work it out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from inspect import unwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from fusetui.analysis.questions.groups import describe_work_of_kernels
from fusetui.analysis.questions.launches import measure_queues
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.search import (
    collect_name_texts,
    search,
    search_args_for_words,
    search_in_args,
)
from fusetui.trace.layout.counters import counters, curve_of
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.memo import memo
from fusetui.trace.model.report import Stop
from fusetui.trace.program.backward import dependencies
from fusetui.tui.layout.answer import WORTH, AnswerPage, Insight, build_answer_lists
from fusetui.tui.layout.figure_trees import build_module_tree
from fusetui.tui.layout.kernel_table import group_kernels_fully
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.layout.op_tree import (
    FRAMES,
    build_call_tree,
    build_callers_tree,
    build_frame_tree,
    build_op_tree,
)
from fusetui.tui.layout.search_hits import NO_ROWS
from fusetui.tui.layout.view import short_label
from fusetui.tui.state.reading import Piece
from fusetui.tui.state.state import BESIDE, FUNCTIONS, MARKS, ROWS

if TYPE_CHECKING:
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.facts import Facts
    from fusetui.analysis.why.idle_time import IdleTime
    from fusetui.analysis.why.model import Why
    from fusetui.trace.program.functions import Functions

SECONDS_BETWEEN_COUNTS = 0.2  # of hits, while args are read


class ArgsRead(NamedTuple):
    """What a search has found after a part of the args was read."""

    by_name: Rows  # all hits, or those that names say
    by_args: Rows  # further hits, of which only args say it
    share: float  # of the args that was read, up to 1.0


def answers(
    trace: Trace,
    cancelled: Stop,
    other: Trace | None,
    search: str = "",
    replayed: str = "",
) -> Iterator[Any]:
    """Return an iterator over the results of one kind of background work on a trace.

    With `replayed`, it is one answer: of its memory events or of a replay. With
    `other`, it is the diff of the two traces. With `search`, it is the hits found while
    args are read. Otherwise it is all that the app shows later.
    """
    if replayed == MEMORY:
        return iter([_replay_memory(trace)])
    if replayed:
        return iter([_replay_trace(trace, replayed)])
    if other is not None:
        from fusetui.analysis.diff.compare import diff

        return iter([diff(trace, other)])
    if search:
        return often(search_args(trace, search))
    return compute_pieces(trace, cancelled)


def _replay_memory(trace: Trace) -> object:
    """Return the allocations over time on each device, from the memory events of a
    trace. Where there are none, or the file cannot be read, return a sentence that says
    so."""
    from fusetui.analysis.memory.of_trace import prepare_moments_of_trace
    from fusetui.report.memory_words import explain_no_events

    moments = prepare_moments_of_trace(trace)
    return trace.elements.text.problem() or moments or explain_no_events(trace)


def _replay_trace(trace: Trace, asked: str) -> object:
    """Return the answer of a replay of the trace, by what was asked.

    It is the time of the user's functions, marks or rows of the critical path, or the
    gain of a change. After BESIDE it is the predicted trace with the idle time of its
    devices. For a wrong change it is a sentence.
    """
    from fusetui.analysis.replay.changes import WrongChangeError
    from fusetui.analysis.replay.marks import compute_marks
    from fusetui.analysis.replay.path import path
    from fusetui.analysis.replay.predicted import predict_slices
    from fusetui.analysis.replay.whatif import whatif
    from fusetui.analysis.why.account import Accounts

    if asked == FUNCTIONS:
        return _measure_functions(trace)
    if asked == MARKS:
        return compute_marks(trace)
    try:
        if asked == ROWS:
            return path(trace)
        if not asked.startswith(BESIDE):
            return whatif(trace, [asked])
        prediction = predict_slices(trace, [asked.removeprefix(BESIDE)])
        return prediction, measure_idle(Accounts(prediction.make_trace(trace)))
    except WrongChangeError as wrong:
        return str(wrong)


def _measure_functions(trace: Trace) -> Functions:
    """Return the time spent in the user's own Python functions, as `fusetui lines`
    gives it."""
    from fusetui.analysis.why.causes import find_idle_causes
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    return function_times(origins(trace), idle=find_idle_causes(trace))


def compute_pieces(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """Yield what the app shows of a trace after its lanes, one result at a time, the
    quick ones first.

    They are launch queues, idle time and the answer, op trees, counters of the file,
    and dependencies between graph nodes. The iterator ends early once `cancelled`
    returns true.
    """
    queue_curves = tuple(curve_of(queue) for queue in measure_queues(trace))
    if queue_curves:
        yield queue_curves
    if not cancelled():
        yield from _compute_insights(trace, cancelled)
    for make_tree in (build_call_tree, build_callers_tree, build_op_tree):
        if not cancelled():
            yield {make_tree: unwrap(make_tree)(trace)}  # not kept: only sent
    if cancelled():
        return
    counter_curves = tuple(curve_of(counter) for counter in counters(trace, cancelled))
    if counter_curves and not cancelled():
        yield queue_curves + counter_curves
    from fusetui.analysis.graphs.captures import has_node_numbers  # many modules

    if not cancelled() and has_node_numbers(trace):
        yield {dependencies: dependencies(trace)}


def opened(path: str) -> MemorySide:
    """Read a memory snapshot and return it with the allocations over time on each
    device. Raise TraceError if it cannot be read or has no device."""
    from fusetui.analysis.memory.answer import derive_memory_facts
    from fusetui.analysis.memory.moments import prepare_moments
    from fusetui.trace.snapshot.reading import read_snapshot

    devices = derive_memory_facts(read_snapshot(path))
    device_moments = tuple(prepare_moments(facts) for facts in devices)
    if not device_moments:
        raise CannotReadError(f"{path} holds no memory of any device.")
    return MemorySide(path, short_label(path), device_moments)


def measure_idle(accounts: Accounts) -> tuple[IdleTime, ...]:
    """Return the idle time of each device, in the order of the lanes of the devices."""
    from fusetui.analysis.why.idle_time import prepare_idle_times

    idle_of_devices: list[IdleTime] = []
    for devices in accounts.devices_by_axis:
        idle_of_devices += prepare_idle_times(devices)
    return tuple(idle_of_devices)


def _compute_insights(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """Yield what explains the time of a trace: idle time, the answer with its lists,
    the tree of Python frames, and estimated gains.

    Nothing is yielded for a part of a trace, because the rest could reverse the answer.
    """
    if trace.report.prefix:
        return
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.answer import answer_question
    from fusetui.analysis.why.selection import resolve_selection
    from fusetui.tui.drawing.details import prepare_details

    accounts = Accounts(trace)
    idle_of_devices = measure_idle(accounts)
    if cancelled():
        return
    yield Insight(idle_of_devices)
    why, facts = answer_question(resolve_selection(accounts))
    prepare_details(facts.kernels.origins)
    if why._module_times and not cancelled():
        yield Insight(idle_of_devices, _make_answer_page(trace, why, facts))
    if not cancelled():
        yield {FRAMES: build_frame_tree(trace, facts.kernels.origins)}
    has_changes = any(change is not None for change in why._wanted)
    if has_changes and not cancelled():
        yield {WORTH: _estimate_gains(trace, why)}


def _make_answer_page(trace: Trace, why: Why, facts: Facts) -> AnswerPage:
    """Return the answer together with the lists and tables that the app shows with it.
    The module times of `why` must be known."""
    assert why._module_times is not None
    origins = facts.kernels.origins
    tree = build_module_tree(why._module_times, origins)
    answer = replace(why, _wanted=())  # which nobody else needs
    return AnswerPage(
        why=answer,
        modules=tree,
        lists=build_answer_lists(answer, tree, trace),
        kernel_keys=group_kernels_fully(trace, facts.kernels.jobs, origins),
        kernel_work=describe_work_of_kernels(trace, facts.kernels.jobs),
        origins=origins,
    )


def _estimate_gains(trace: Trace, why: Why) -> Why:
    """Return the answer with the estimated gain of each finding, and without what the
    pages do not need. It is sent between processes, so it is kept small."""
    from fusetui.analysis.replay.worth import with_worth

    answer = with_worth(trace, why)
    changes = [change if isinstance(change, str) else None for change in answer._wanted]
    return replace(answer, _wanted=tuple(changes), modules=None, _module_times=None)


@memo()
def search_names(trace: Trace, text: str) -> Rows:
    """Return the rows of the slices whose names match a query, in order of time."""
    return search(trace, collect_name_texts(trace), parse(text))


def search_args(trace: Trace, text: str) -> Iterator[ArgsRead]:
    """Yield the hits of a query after each part of the file whose args were read.

    A query that is about args alone yields all hits so far. Otherwise hits by name come
    with the further hits by args.
    """
    query = parse(text)
    texts = collect_name_texts(trace)
    rows = search_names(trace, text)
    if query.reads_args:
        for hits, share in search_in_args(trace, texts, query):
            yield ArgsRead(by_name=hits, by_args=NO_ROWS, share=share)
    else:
        for extra, share in search_args_for_words(trace, texts, query, rows):
            yield ArgsRead(by_name=rows, by_args=extra, share=share)


def often(counts: Iterator[ArgsRead]) -> Iterator[ArgsRead]:
    """Yield some of the search results, at least SECONDS_BETWEEN_COUNTS apart, and
    always the last one."""
    last_time = time.monotonic()
    for read in counts:
        current_time = time.monotonic()
        if read.share == 1.0 or current_time - last_time > SECONDS_BETWEEN_COUNTS:
            last_time = current_time
            yield read
