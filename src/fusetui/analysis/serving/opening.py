"""From the trace of replays to one that is joined with its captures, named or found."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from fusetui.analysis.serving.captures import has_captures
from fusetui.analysis.serving.find import candidates, files_named, remembered, same_process
from fusetui.analysis.serving.graphs import graph_calls, wants_capture
from fusetui.analysis.serving.join import join
from fusetui.analysis.serving.replays import replays
from fusetui.analysis.serving.steps import server_steps
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.ids import Id
from fusetui.trace.model.joined import Join

SOME = 8
MOST_TOLD = 4
Open = Callable[[str], Trace]


def with_captures(
    trace: Trace, named: Sequence[str], open_trace: Open
) -> tuple[Trace, tuple[Join, ...]]:
    """The trace, joined with the captures that are named; or if none is, with those in the trace
    itself, and then with those found in its folder.

    Raises TraceError if a named capture cannot be read.
    """
    joins: list[Join] = []
    if not named and (trace.report.prefix is not None or not wants_capture(trace)):
        return trace, ()
    if not named and has_captures(trace):
        trace, record = join(trace, trace, found=True)
        joins.append(record)
    for path in _in_order(named, trace) if named else _found(trace):
        if joins and not wants_capture(trace):
            break
        try:
            trace, record = join(trace, open_trace(path), found=not named)
        except TraceError:
            if named:
                raise
            continue  # nobody asked for this file
        joins.append(record)
    return trace, tuple(joins)


def _in_order(named: Sequence[str], trace: Trace) -> list[str]:
    """The files that a user names, of several those first that are likely to fit."""
    if len(named) < 2:
        return list(named)
    folders = list(remembered(files_named(named)))
    first = set(map(os.path.realpath, candidates(folders, _batches(trace), _kernels(trace))))
    return sorted(named, key=lambda path: os.path.realpath(path) not in first)


def _found(trace: Trace) -> list[str]:
    """The files beside the trace that may hold what it replays."""
    if not wants_capture(trace):
        return []
    folders = same_process(trace.report.path, _pids(trace))
    return candidates(folders, _batches(trace), _kernels(trace)) if folders else []


def _batches(trace: Trace) -> list[int]:
    """Of all steps, in requests and in tokens: captures count either."""
    asked = [one for one in server_steps(trace).asked if one is not None]
    both = [size for one in asked for size in (one.batch, one.new_tokens)]
    return [size for size in dict.fromkeys(both) if size]


def _pids(trace: Trace) -> set[Id]:
    """Of the processes that launch graphs: other tracks have names that are in every trace."""
    tracks = np.unique(trace.track[graph_calls(trace)])
    return {trace.tracks[track].pid for track in tracks.tolist()}


def _kernels(trace: Trace) -> list[str]:
    """Names of a few kernels that graphs launched."""
    rows = [row for nodes in replays(trace) for row in nodes.rows[:SOME].tolist()]
    names = dict.fromkeys(trace.name_of(r) for r in rows if trace.role[r] == Role.KERNEL)
    return list(names)[:SOME]


def said(joins: Sequence[Join]) -> list[str]:
    """What to tell a user who opened the trace: what could not be joined in the end. A capture that
    was found and fits nothing is not worth a word, nor is one of several for which another fits."""
    whole = joins and sum(join.replays for join in joins) == joins[0].of_replays
    told = [
        text for join in joins if join.replays or not (join.found or whole) for text in join.refused
    ]
    distinct = list(dict.fromkeys(told))
    more = len(distinct) - MOST_TOLD
    return distinct if more <= 0 else [*distinct[:MOST_TOLD], f"... and {more} more reasons."]
