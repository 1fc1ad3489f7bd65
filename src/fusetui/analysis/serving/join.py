"""Joins the graph replays of a trace with the capture of their graphs: every replayed kernel then
has the op, the module, the Python frame and the shapes of the call that was captured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.serving.captures import Capture, captures
from fusetui.analysis.serving.choose import BY_KIND, Chosen, choose, counted
from fusetui.analysis.serving.fit import kernels_alone
from fusetui.analysis.serving.graft import graft
from fusetui.analysis.serving.replays import Nodes, bare_launches, replays
from fusetui.analysis.serving.sizes import Size, sizes
from fusetui.analysis.serving.steps import server_steps
from fusetui.text.figures import plural
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import CERTAIN, LIKELY, Join, Joined

NO_OPS = "The capture recorded no op around its calls: it says nothing about what was replayed."

Rows = NDArray[np.intp]


def join(trace: Trace, there: Trace, found: bool = False) -> tuple[Trace, Join]:
    """The trace with what could be joined, and a record of that. If nothing could be, it is the
    same trace. `there` is the trace of the capture, which may be the trace itself; `found`: nobody
    named it."""
    own = [nodes for nodes in replays(trace) if not _is_joined(trace, nodes)]
    known = captures(there)
    if known.whole and not any((there.op[one.calls] >= 0).any() for one in known.whole):
        return trace, _nothing(there, len(own), NO_OPS, found)
    chosen = _chosen(trace, there, own, known.whole)
    _again_in_other_orders(trace, there, own, chosen, known.whole)
    made = [
        _paired(trace, nodes, known.whole[one.capture], there, one)
        for nodes, one in zip(own, chosen, strict=True)
        if one.capture >= 0
    ]
    likely = list(dict.fromkeys(one.likely for one in chosen if one.likely))
    refused = counted([one.problem for one in chosen if one.problem])
    record = Join(
        path=there.report.path,
        replays=len(made),
        of_replays=len(own),
        kernels=sum(len(nodes) for nodes, _ in made),  # copies and sets too
        certainty=LIKELY if likely else CERTAIN,
        why_likely="; ".join(likely),
        refused=(*refused, *_remarks(trace, own, known.whole, known.cut)),
        found=found,
    )
    if not made:
        return trace, record
    nodes, calls = (np.concatenate(rows) for rows in zip(*made, strict=True))
    return graft(trace, there, nodes, calls, record), record


def _nothing(there: Trace, replays: int, why: str, found: bool) -> Join:
    """The record of a capture with which nothing was joined."""
    return Join(
        path=there.report.path,
        replays=0,
        of_replays=replays,
        kernels=0,
        certainty=CERTAIN,
        why_likely="",
        refused=(why,),
        found=found,
    )


def _paired(
    trace: Trace, nodes: Nodes, capture: Capture, there: Trace, one: Chosen
) -> tuple[Rows, Rows]:
    """The nodes and their calls."""
    if one.kernels_only:
        nodes, capture = kernels_alone(trace, nodes, capture, there)
    return nodes.rows, capture.calls


def _again_in_other_orders(
    trace: Trace, there: Trace, own: list[Nodes], chosen: list[Chosen], whole: Sequence[Capture]
) -> None:
    """Tries again what does not fit: by time, if its nodes are numbered otherwise, and as the file
    has it, as on AMD devices times are sometimes wrong, while the file has the nodes in the order
    of the graph. There the names of all kernels must agree."""
    for column, by_kind in ((trace.start, True), (trace.order, False)):
        rest = [n for n, one in enumerate(chosen) if one.problem]
        again = [_in_order(own[n], column) for n in rest]
        if all((again[at].rows == own[n].rows).all() for at, n in enumerate(rest)):
            continue
        found = _chosen(trace, there, again, whole)
        for at, n in enumerate(rest):
            if found[at].capture >= 0 and (by_kind or BY_KIND not in found[at].likely):
                own[n], chosen[n] = again[at], found[at]


def _in_order(nodes: Nodes, column: NDArray[np.integer]) -> Nodes:
    order = np.argsort(column[nodes.rows], kind="stable")
    return replace(nodes, rows=nodes.rows[order], numbered=False)


def _is_joined(trace: Trace, nodes: Nodes) -> bool:
    return isinstance(trace, Joined) and int(trace.captured[nodes.rows[0]]) >= 0


def _chosen(
    trace: Trace, there: Trace, own: Sequence[Nodes], whole: Sequence[Capture]
) -> list[Chosen]:
    if not own:
        return []
    steps = server_steps(trace)
    at = steps.steps.at(np.array([int(trace.start[nodes.call]) for nodes in own], dtype=np.int64))
    asked = [steps.asked[step] if step >= 0 else None for step in at.tolist()]
    of_steps = [Size() if one is None else Size(one.batch, one.new_tokens) for one in asked]
    each = list(zip(at.tolist(), of_steps, strict=True))
    return choose(trace, there, own, whole, sizes(there, whole), each)


def _remarks(
    trace: Trace, own: Sequence[Nodes], whole: Sequence[Capture], cut: int
) -> tuple[str, ...]:
    """What is missing, where nothing could be compared."""
    said = []
    if bare := bare_launches(trace):
        said.append(
            f"{plural(bare, 'graph launch')} recorded no kernels: the profiler did not trace graphs"
            " by node."
        )
    elif not own:
        said.append("The trace has no graph replay to join.")
    if not whole:
        said.append(
            "The capture has no stream capture from its begin to its end"
            + (f": {plural(cut, 'capture')} did not end in it." if cut else ".")
        )
    return tuple(said)
