"""What to know before reading a diff: what else differs, then how certain the result
is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from fusetui.analysis.diff.common_work import CommonWork, common_work
from fusetui.analysis.diff.evidence import Evidence, RenamedOp
from fusetui.analysis.diff.groups import WorkGroup, paired_items
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import Accounting, StepChange
from fusetui.analysis.diff.statistics import FEW_STEPS, MIN_USUAL_STEPS
from fusetui.analysis.diff.work import is_launched_by_graph
from fusetui.analysis.questions.note import note_of
from fusetui.text.figures import count, duration, percent, plural, several
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Rows
from fusetui.trace.model.columns import Trace

MAX_COMPARED_CALLS = 2000
"""The inputs of no more calls of one op are compared on a side: each is parsed."""

MAX_COMPARED_PAIRS = 6
"""Shapes and dtypes of so many of the longest pairs are compared: each is parsed."""

MAX_COMPARED_TENSORS = 2  # of one call

MAX_NAMED_OPS = 3  # of those that were renamed

MIN_NOTED_SHARE = 0.02
"""What is not explained, and interruptions, are noted when they are more than this
share of a step."""

MIN_COMMON_SHARE = 0.5
"""With less of the time of a side's work in common, that is noted."""

TORCH_VERSION_KEYS = ("torch_version", "pytorch_version")


def notes(
    a: WorkItems,
    b: WorkItems,
    groups: list[WorkGroup],
    devices: str,
    step: StepChange,
    sums: Accounting,
    evidence: Evidence,
    renamed: Sequence[RenamedOp],
    renamed_dispatch: Mapping[str, str],
) -> list[str]:
    """Sentences for the reader of a diff, the most important first. Those that are
    about one side begin with its label.

    `devices`: of `other_devices`; `renamed`: of `renamed_at_places`;
    `renamed_dispatch`: of `renamed_labels`. The functions below make a note each, ""
    where there is nothing to note.
    """
    every_note = [
        _ranks(a.trace, b.trace),
        *_origins(a, b),
        f"devices differ: {printable(devices)}" if devices else "",
        _changed(
            "PyTorch versions differ", _torch_version(a.trace), _torch_version(b.trace)
        ),
        _changed(
            "runtime versions differ",
            _runtime_version(a.trace),
            _runtime_version(b.trace),
        ),
        _little_in_common(common_work(a, b, groups)),
        _renamed(renamed),
        _renamed_dispatch(renamed_dispatch, renamed),
        *_streams(a, evidence.streams_a),
        *_streams(b, evidence.streams_b),
        *_graphs(a, b, groups),
        *_inputs(a, b, groups),
        _of_side(a, a.trace.report.missing or ""),
        _of_side(b, b.trace.report.missing or ""),
        _few_steps(a, b),
        _few_usual_steps(a),
        _few_usual_steps(b),
        _not_explained(step, sums),
        *_drifts(a, b, step),
        _interrupted(a, step.interrupted_a),
        _interrupted(b, step.interrupted_b),
        *a.work.windows.notes,
        *b.work.windows.notes,
        _steps_alike(a),
        _steps_alike(b),
    ]
    return [note for note in every_note if note]


def _of_side(items: WorkItems, note: str) -> str:
    """The note with the name of the side; "" for none."""
    return f"{items.work.label}: {note}" if note else ""


def _changed(what: str, before: str, after: str) -> str:
    """`what: before -> after`; "" when they agree, or when a side does not say."""
    if not before or not after or before == after:
        return ""
    return f"{what}: {printable(before)} -> {printable(after)}"


def _origins(a: WorkItems, b: WorkItems) -> list[str]:
    """Where traces that are no recordings come from (`note_of`): once if both sides say
    the same."""
    origin_a = note_of(a.trace)
    origin_b = note_of(b.trace)
    if origin_a == origin_b:
        return [origin_a]
    return [_of_side(a, origin_a), _of_side(b, origin_b)]


def _ranks(a: Trace, b: Trace) -> str:
    """That the traces are two ranks of one job, which wait for each other; "" unless
    both files say their rank, and the same world size."""
    rank_a = _rank_in_job(a)
    rank_b = _rank_in_job(b)
    if rank_a is None or rank_b is None:
        return ""
    if rank_a.number == rank_b.number or rank_a.world_size != rank_b.world_size:
        return ""
    ranks = f"{printable(str(rank_a.number))} and {printable(str(rank_b.number))}"
    return (
        f"these look like ranks {ranks} of one job, whose collectives include waiting for"
        " other ranks: fusetui ranks shows who waits for whom"
    )


class _RankInJob(msgspec.Struct, frozen=True):
    """What a file says about the rank that it is of; numbers, in files that are in
    order."""

    number: Any
    world_size: Any


def _rank_in_job(trace: Trace) -> _RankInJob | None:
    """The rank of a trace; None where the file does not say it, or the world size."""
    number = _value_at(trace.keys, "distributedInfo", "rank")
    world_size = _value_at(trace.keys, "distributedInfo", "world_size")
    if number is None or not world_size:
        return None
    return _RankInJob(number=number, world_size=world_size)


def _value_at(value: Any, *path: str) -> Any:
    """The value at a path of keys in nested dicts; None where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _torch_version(trace: Trace) -> str:
    """The version of PyTorch that recorded a trace, as `2.4.0+cu121`; "" where the file
    does not say."""
    for key in TORCH_VERSION_KEYS:
        version = trace.keys.get(key)
        if isinstance(version, str):
            return version
    packages = _value_at(trace.keys, "metadata", "system", "pip_packages")
    if not isinstance(packages, list):
        return ""
    for package in packages:
        if isinstance(package, str) and package.startswith("torch=="):
            return package.removeprefix("torch==")
    return ""


def _runtime_version(trace: Trace) -> str:
    """`CUDA 12.4` or `HIP 7.0.51831`, for which a file has 12040 or 70051831, some files
    in a string; "" where it does not say."""
    cuda = _whole_number(trace.keys.get("cuda_runtime_version"))
    if cuda:
        return f"CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    hip = _whole_number(trace.keys.get("hip_runtime_version"))
    if hip:
        major = hip // 10_000_000
        minor = hip // 100_000 % 100
        patch = hip % 100_000
        return f"HIP {major}.{minor}.{patch}"
    return ""


def _whole_number(value: object) -> int:
    """A number, or a text of digits, as a number; 0 for anything else."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0


def _little_in_common(common: CommonWork | None) -> str:
    """That little of the work of a side has a name in common with the other; "" if both
    have MIN_COMMON_SHARE, or if a side has no work."""
    if common is None:
        return ""
    if min(common.share_of_a, common.share_of_b) >= MIN_COMMON_SHARE:
        return ""
    of_a = percent(common.share_of_a, 1)
    of_b = percent(common.share_of_b, 1)
    return (
        f"only {of_a} of the time of A's work and {of_b} of B's have a kernel or an op"
        " in common; the rest is paired by kind or position, or not at all"
    )


class _Renaming(msgspec.Struct, frozen=True):
    """The names of an op in A and in B."""

    before: str
    after: str

    @property
    def text(self) -> str:
        """`old -> new`."""
        return f"{printable(self.before)} -> {printable(self.after)}"


def _renamed(renamed: Sequence[RenamedOp]) -> str:
    """How many ops that launch work were renamed, and the first of them; "" for
    none."""
    if not renamed:
        return ""
    kernels = plural(sum(op.kernels for op in renamed), "kernel")
    if len(renamed) == 1:
        ops = "an op was renamed, which launches"
    else:
        ops = f"{count(len(renamed))} ops were renamed, which launch"
    texts = [_Renaming(before=op.before, after=op.after).text for op in renamed]
    return f"{ops} the same {kernels}: {several(texts, MAX_NAMED_OPS)}"


def _renamed_dispatch(labels: Mapping[str, str], of_work: Sequence[RenamedOp]) -> str:
    """How many ops that compute nothing were renamed, and the first of them; "" for
    none. `labels`: {name in B: name in A}; those of `of_work` are in another note."""
    of_other_note = {_Renaming(before=op.before, after=op.after) for op in of_work}
    texts = []
    for after, before in labels.items():
        renaming = _Renaming(before=before, after=after)
        if renaming not in of_other_note:
            texts.append(renaming.text)
    if not texts:
        return ""
    if len(texts) == 1:
        ops = "an op that computes nothing was renamed, which runs at the same places"
    else:
        ops = (
            f"{count(len(texts))} ops that compute nothing were renamed, which run at"
            " the same places"
        )
    return f"{ops}: {several(texts, MAX_NAMED_OPS)}"


def _streams(items: WorkItems, lane_groups: Sequence[Sequence[int]]) -> list[str]:
    """For each group of lanes of a side that are compared as one, a note that names its
    streams, or its threads if the side has no GPU. Each group has at least two
    lanes."""
    what = "streams" if items.work.gpu else "threads"
    stream_notes = []
    for lanes in lane_groups:
        names = []
        for lane in lanes:
            track = items.trace.first_track(lane)
            names.append(printable(str(track.tid)))
        all_but_last = ", ".join(names[:-1])
        note = f"{what} {all_but_last} and {names[-1]} are compared as one"
        stream_notes.append(_of_side(items, note))
    return stream_notes


class _Launches(msgspec.Struct, frozen=True, eq=False):
    """How some items of a side were launched; arrays of shape [items]."""

    side: str  # A or B
    call: Rows  # the row of the call, -1 where it is not in the file
    is_by_graph: Flags


def _launches(side: str, items: WorkItems, members: Rows) -> _Launches:
    """How the items `members` of a side were launched."""
    rows = items.row[members]
    return _Launches(
        side=side,
        call=items.trace.launch[rows].astype(np.intp),
        is_by_graph=is_launched_by_graph(items.work, rows),
    )


def _graphs(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[str]:
    """How many kernels one side launches by calls of their own and the other one by
    graphs: a note for each direction in which there are any."""
    items_a, items_b = paired_items(groups)
    of_a = _launches("A", a, items_a)
    of_b = _launches("B", b, items_b)
    return [_moved_to_graphs(of_a, of_b), _moved_to_graphs(of_b, of_a)]


def _moved_to_graphs(by_calls: _Launches, by_graphs: _Launches) -> str:
    """How many kernels the one side launches by calls and the other by graphs; "" if
    there are none. The n-th item of both is a pair."""
    has_call = by_calls.call >= 0
    is_moved = has_call & ~by_calls.is_by_graph & by_graphs.is_by_graph
    if not is_moved.any():
        return ""
    kernels = plural(int(is_moved.sum()), "kernel")
    calls = plural(len(np.unique(by_calls.call[is_moved])), "call")
    graphs = plural(len(np.unique(by_graphs.call[is_moved])), "CUDA graph")
    return (
        f"{by_calls.side} launches {kernels} by {calls} per step,"
        f" {by_graphs.side} by {graphs}"
    )


class _Inputs(msgspec.Struct, frozen=True):
    """The first MAX_COMPARED_TENSORS inputs of a call that are tensors, as `[2, 3] x [3,
    4]` and `float x float`; "" where the file does not say."""

    shapes: str
    dtypes: str


def _inputs(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[str]:
    """In which op the shapes of inputs differ, and in which one their dtypes: a note
    each, about the longest pair of one op in which they do, of the MAX_COMPARED_PAIRS
    longest ones. Pairs whose inputs only occur in another order do not count."""
    first_notes: dict[str, str] = {}  # of shapes, and of dtypes
    for item_a, item_b in _longest_of_one_op(a, b, groups):
        before = _inputs_of_call(a, int(a.op[item_a]))
        after = _inputs_of_call(b, int(b.op[item_b]))
        if _are_only_reordered(a, b, item_a, before, after):
            continue
        op = a.op_names[item_a]
        shapes = _changed(f"shapes differ in {op}", before.shapes, after.shapes)
        dtypes = _changed(f"dtypes differ in {op}", before.dtypes, after.dtypes)
        if shapes:
            first_notes.setdefault("shapes", shapes)
        if dtypes:
            first_notes.setdefault("dtypes", dtypes)
    return list(first_notes.values())


def _longest_of_one_op(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[tuple[int, int]]:
    """An item of A and one of B for each of the MAX_COMPARED_PAIRS pairs that take the
    longest on both sides together, of those whose items are of one op."""
    items_a, items_b = paired_items(groups)
    both_ns = a.ns[items_a] + b.ns[items_b]
    longest_first = np.argsort(-both_ns, kind="stable")
    of_one_op: list[tuple[int, int]] = []
    for pair in longest_first.tolist():
        if len(of_one_op) == MAX_COMPARED_PAIRS:
            break
        item_a = int(items_a[pair])
        item_b = int(items_b[pair])
        if a.op_names[item_a] and a.stems[item_a] == b.stems[item_b]:
            of_one_op.append((item_a, item_b))
    return of_one_op


def _are_only_reordered(
    a: WorkItems, b: WorkItems, item_of_a: int, before: _Inputs, after: _Inputs
) -> bool:
    """Whether A and B call the op of an item of A as often with the inputs `before`,
    and as often with the inputs `after`: then two different calls were compared. False
    where it is called too often to look at each call."""
    op = a.stems[item_of_a]
    calls_a = _calls_of_op(a, op)
    calls_b = _calls_of_op(b, op)
    if max(len(calls_a), len(calls_b)) > MAX_COMPARED_CALLS:
        return False
    inputs_a = Counter(_inputs_of_call(a, call) for call in calls_a if call >= 0)
    inputs_b = Counter(_inputs_of_call(b, call) for call in calls_b if call >= 0)
    is_as_often_before = inputs_a[before] == inputs_b[before]
    is_as_often_after = inputs_a[after] == inputs_b[after]
    return is_as_often_before and is_as_often_after


def _calls_of_op(items: WorkItems, op: str) -> list[int]:
    """The rows of the calls of an op that launch work in the step, ascending; `op` is
    its name without its namespace."""
    is_of_op = [stem == op for stem in items.stems]
    return [*np.unique(items.op[is_of_op]).tolist()]


def _inputs_of_call(items: WorkItems, row: int) -> _Inputs:
    """The recorded inputs of the call of an op."""
    args = items.trace.args_of(row)
    dims = args.get("Input Dims", args.get("Input dims"))
    types = args.get("Input type")
    if not isinstance(dims, list):
        return _Inputs(shapes="", dtypes="")
    places = [n for n, shape in enumerate(dims) if isinstance(shape, list) and shape]
    compared = places[:MAX_COMPARED_TENSORS]
    shapes = " x ".join(str(dims[n]) for n in compared)
    dtypes = ""
    if isinstance(types, list) and len(types) == len(dims):
        names = [str(types[n]).removeprefix("c10::").lower() for n in compared]
        dtypes = " x ".join(names)
    return _Inputs(shapes=shapes, dtypes=dtypes)


def _few_steps(a: WorkItems, b: WorkItems) -> str:
    """That a side has fewer than FEW_STEPS steps."""
    steps_a = len(a.work.windows)
    steps_b = len(b.work.windows)
    if min(steps_a, steps_b) >= FEW_STEPS:
        return ""
    steps = f"few steps ({plural(steps_a, 'step')} of A, {steps_b} of B)"
    return f"{steps}: the changes may be noise; profile at least {FEW_STEPS}"


def _few_usual_steps(items: WorkItems) -> str:
    """That the figures of a side with FEW_STEPS or more steps are of fewer than
    MIN_USUAL_STEPS of them, because the others do other work."""
    steps = len(items.work.windows)
    usual = len(items.usual_steps)
    if steps < FEW_STEPS or not 0 < usual < MIN_USUAL_STEPS:
        return ""
    note = f"its figures are of {usual} of {steps} steps, because few do the usual work"
    return _of_side(items, note)


def _steps_alike(items: WorkItems) -> str:
    """That not all steps of a side do the same work."""
    alike = len(items.alike_steps)
    steps = len(items.work.windows)
    if alike == steps:
        return ""
    rows = f"times of rows are from the {alike} similar ones of {steps} steps"
    return _of_side(items, f"steps differ in their work; {rows}")


def _not_explained(step: StepChange, sums: Accounting) -> str:
    """How much of the change the sum leaves out, if that is much (MIN_NOTED_SHARE)."""
    part_ns = abs(sums.not_explained_ns)
    if part_ns <= MIN_NOTED_SHARE * max(step.a_ns or 0, step.b_ns or 0):
        return ""
    why = "steps with the usual work do not take the median time"
    return f"{duration(part_ns)} not explained: {why}"


def _drifts(a: WorkItems, b: WorkItems, step: StepChange) -> list[str]:
    """How much slower or faster each run became, which shows how much another run may
    differ; one note for both where their steps took turns, which says so even without
    such a drift."""
    if step.turns:
        return [_turns(step)]
    return [_drift(a, step.drift_a), _drift(b, step.drift_b)]


def _turns(step: StepChange) -> str:
    """That the steps took turns, and how both sides drifted meanwhile, if they did."""
    note = "the steps alternated, so each is compared with the one next to it"
    if not step.drift_a or not step.drift_b:
        return note
    larger = max(step.drift_a, step.drift_b, key=abs)
    return f"{note}; both became {_became(larger)} over time"


def _drift(items: WorkItems, drift: float) -> str:
    """How much slower or faster the run of a side became; "" for no drift."""
    if not drift:
        return ""
    became = f"{items.work.label} became {_became(drift)}"
    return (
        f"{became} from its first step to its last; the interval is widened by as much"
    )


def _became(drift: float) -> str:
    """`1.2 % slower`; `drift` is a share, below 0 for faster."""
    direction = "slower" if drift > 0 else "faster"
    return f"{percent(abs(drift), 1, fine=True)} {direction}"


def _interrupted(items: WorkItems, share: float) -> str:
    """That interruptions took much of the time of a side (more than
    MIN_NOTED_SHARE)."""
    if share <= MIN_NOTED_SHARE:
        return ""
    interrupted = f"its steps were interrupted for {percent(share, 1)} of the time"
    return _of_side(items, f"{interrupted}, which the interval leaves out")
