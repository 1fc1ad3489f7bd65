"""Writes the notes of a diff, which explain its rows.

What else differs between the traces comes first, then how certain the result is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from fusetui.analysis.diff.common_work import CommonWork, measure_common_work
from fusetui.analysis.diff.evidence import Evidence, RenamedOp
from fusetui.analysis.diff.groups import WorkGroup, collect_paired_items
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import Accounting, StepChange
from fusetui.analysis.diff.statistics import MIN_STEPS_FOR_VERDICT, MIN_USUAL_STEPS
from fusetui.analysis.diff.work import is_launched_by_graph
from fusetui.analysis.questions.note import note_of
from fusetui.text.figures import count, duration, pace, percent, plural, several
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW, Flags, Rows, distinct
from fusetui.trace.model.columns import Trace

MAX_COMPARED_CALLS = 2000
"""Inputs are not compared if one side calls an op more often: each call is parsed."""

MAX_COMPARED_PAIRS = 6
"""Shapes and dtypes of this many of the longest pairs are compared: each is parsed."""

MAX_COMPARED_TENSORS = 2  # inputs of one call that are compared

MAX_NAMED_OPS = 3  # renamed ops that are named

MIN_NOTED_SHARE = 0.02
"""What is not explained, and interruptions, are noted when they are more than this
share of a step."""

MIN_COMMON_SHARE = 0.5
"""If less of the time of a side's work is in common, that is noted."""

TORCH_VERSION_KEYS = ("torch_version", "pytorch_version")


def write_notes(
    a: WorkItems,
    b: WorkItems,
    *,
    groups: list[WorkGroup],
    devices: str,
    step: StepChange,
    sums: Accounting,
    evidence: Evidence,
    renamed: Sequence[RenamedOp],
    renamed_dispatch: Mapping[str, str],
) -> list[str]:
    """Write the notes of a diff, the most important first.

    Notes about one side begin with its label.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        groups: Which items do the same work.
        devices: How the devices differ, of `describe_device_change`; "" if they do not.
        step: The change of the step.
        sums: The change of the step as a sum.
        evidence: How the items were made comparable.
        renamed: Ops that were renamed, of `find_renamed_ops`.
        renamed_dispatch: Renamed ops that compute nothing, of `pair_renamed_labels`.
    """
    # Each function below returns "" where there is nothing to note.
    every_note = [
        _describe_ranks(a.trace, b.trace),
        *_describe_origins(a, b),
        f"devices differ: {printable(devices)}" if devices else "",
        _describe_difference(
            "PyTorch versions differ",
            _read_torch_version(a.trace),
            _read_torch_version(b.trace),
        ),
        _describe_difference(
            "runtime versions differ",
            _read_runtime_version(a.trace),
            _read_runtime_version(b.trace),
        ),
        _warn_of_little_in_common(measure_common_work(a, b, groups)),
        _describe_renamed_ops(renamed),
        _describe_renamed_dispatch(renamed_dispatch, renamed),
        *_describe_merged_streams(a, evidence.streams_a),
        *_describe_merged_streams(b, evidence.streams_b),
        *_describe_moves_to_graphs(a, b, groups),
        *_describe_input_changes(a, b, groups),
        _prefix_label(a, a.trace.report.missing or ""),
        _prefix_label(b, b.trace.report.missing or ""),
        _warn_of_few_steps(a, b),
        _warn_of_few_usual_steps(a),
        _warn_of_few_usual_steps(b),
        _warn_of_unexplained_time(step, sums),
        *_describe_drift(a, b, step),
        _warn_of_interruptions(a, step.interrupted_a),
        _warn_of_interruptions(b, step.interrupted_b),
        *a.steps.notes,
        *b.steps.notes,
        _warn_of_unlike_steps(a),
        _warn_of_unlike_steps(b),
    ]
    return [note for note in every_note if note]


def _prefix_label(items: WorkItems, note: str) -> str:
    """Put the label of the side before a note; "" stays as it is."""
    return f"{items.work.label}: {note}" if note else ""


def _describe_difference(what: str, before: str, after: str) -> str:
    """Write `what: before -> after`.

    Returns "" if both values are equal, or if one of them is unknown ("").
    """
    if not before or not after or before == after:
        return ""
    return f"{what}: {printable(before)} -> {printable(after)}"


def _describe_origins(a: WorkItems, b: WorkItems) -> list[str]:
    """Say where traces come from that no profiler recorded.

    Returns a note for each such trace, or one note if it is the same for both. A note
    is "" for a recording.
    """
    origin_a = note_of(a.trace)
    origin_b = note_of(b.trace)
    if origin_a == origin_b:
        return [origin_a]
    return [_prefix_label(a, origin_a), _prefix_label(b, origin_b)]


def _describe_ranks(a: Trace, b: Trace) -> str:
    """Note that the traces are two ranks of one job, which wait for each other.

    Returns "" unless both files say their rank, with the same world size.
    """
    rank_a = _read_rank(a)
    rank_b = _read_rank(b)
    if rank_a is None or rank_b is None:
        return ""
    is_same_job = rank_a.world_size == rank_b.world_size
    if not is_same_job or rank_a.number == rank_b.number:
        return ""
    ranks = f"{printable(str(rank_a.number))} and {printable(str(rank_b.number))}"
    return (
        f"these look like ranks {ranks} of one job; their collectives include waiting "
        "for other ranks (fusetui ranks shows which rank waits for which)"
    )


class _RankInJob(msgspec.Struct, frozen=True):
    """What a file says about its rank: numbers, unless the file is odd."""

    number: Any
    world_size: Any


def _read_rank(trace: Trace) -> _RankInJob | None:
    """Return the rank of a trace; None if the file lacks it or the world size."""
    number = _read_nested_value(trace.keys, "distributedInfo", "rank")
    world_size = _read_nested_value(trace.keys, "distributedInfo", "world_size")
    if number is None or not world_size:
        return None
    return _RankInJob(number=number, world_size=world_size)


def _read_nested_value(keys: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path of keys in nested dicts; None if there is none.

    >>> _read_nested_value({"distributedInfo": {"rank": 3}}, "distributedInfo", "rank")
    3
    """
    value: Any = keys
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _read_torch_version(trace: Trace) -> str:
    """Return the version of PyTorch, as `2.4.0+cu121`; "" if the file does not say."""
    for key in TORCH_VERSION_KEYS:
        version = trace.keys.get(key)
        if isinstance(version, str):
            return version

    packages = _read_nested_value(trace.keys, "metadata", "system", "pip_packages")
    if not isinstance(packages, list):
        return ""
    for package in packages:
        if isinstance(package, str) and package.startswith("torch=="):
            return package.removeprefix("torch==")
    return ""


def _read_runtime_version(trace: Trace) -> str:
    """Return `CUDA 12.4` or `HIP 7.0.51831`; "" if the file does not say.

    A file has the number 12040 or 70051831 for these, some files as a string.
    """
    cuda = _parse_whole_number(trace.keys.get("cuda_runtime_version"))
    if cuda:  # 1000 * major + 10 * minor
        major = cuda // 1000
        minor = cuda // 10 % 100
        return f"CUDA {major}.{minor}"

    hip = _parse_whole_number(trace.keys.get("hip_runtime_version"))
    if hip:  # 10,000,000 * major + 100,000 * minor + patch
        major = hip // 10_000_000
        minor = hip // 100_000 % 100
        patch = hip % 100_000
        return f"HIP {major}.{minor}.{patch}"
    return ""


def _parse_whole_number(value: object) -> int:
    """Return a whole number, or a string of digits, as a number; else 0.

    >>> _parse_whole_number("12040"), _parse_whole_number(12040), _parse_whole_number("x")
    (12040, 12040, 0)
    """
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() else 0


def _warn_of_little_in_common(common: CommonWork | None) -> str:
    """Write a note if little of the work of A or B has a name in common with the other.

    Returns "" if both have MIN_COMMON_SHARE of their time in common, or if one of them
    does no work.
    """
    if common is None:
        return ""
    if min(common.share_of_a, common.share_of_b) >= MIN_COMMON_SHARE:
        return ""
    of_a = percent(common.share_of_a, 1)
    of_b = percent(common.share_of_b, 1)
    return (
        f"little work in common: only {of_a} of A's time and {of_b} of B's is in "
        "kernels or ops that both have; the rest is paired by kind or position, or "
        "not at all"
    )


class _Renaming(msgspec.Struct, frozen=True):
    """The names of an op in A and in B."""

    before: str
    after: str

    @property
    def text(self) -> str:
        """`old -> new`."""
        return f"{printable(self.before)} -> {printable(self.after)}"


def _describe_renamed_ops(renamed: Sequence[RenamedOp]) -> str:
    """Say how many ops that launch work were renamed, and name the first of them."""
    if not renamed:
        return ""
    kernels = plural(sum(op.kernels for op in renamed), "kernel")
    if len(renamed) == 1:
        ops = "an op was renamed but launches"
    else:
        ops = f"{count(len(renamed))} ops were renamed but launch"
    texts = [_Renaming(before=op.before, after=op.after).text for op in renamed]
    return f"{ops} the same {kernels}: {several(texts, MAX_NAMED_OPS)}"


def _describe_renamed_dispatch(
    labels: Mapping[str, str], renamed_work: Sequence[RenamedOp]
) -> str:
    """Say how many ops that compute nothing were renamed, and name the first of them.

    Args:
        labels: {name in B: name in A} of the renamed ops.
        renamed_work: Renamed ops that another note is about; they are left out here.
    """
    in_other_note = {_Renaming(before=op.before, after=op.after) for op in renamed_work}
    texts = []
    for after, before in labels.items():
        renaming = _Renaming(before=before, after=after)
        if renaming not in in_other_note:
            texts.append(renaming.text)
    if not texts:
        return ""

    if len(texts) == 1:
        ops = "an op that computes nothing was renamed but runs in the same places"
    else:
        ops = (
            f"{count(len(texts))} ops that compute nothing were renamed but run in "
            "the same places"
        )
    return f"{ops}: {several(texts, MAX_NAMED_OPS)}"


def _describe_merged_streams(
    items: WorkItems, merged_lanes: Sequence[Sequence[int]]
) -> list[str]:
    """Name the streams, or without a GPU the threads, that are compared as one.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        merged_lanes: Groups of at least two streams or threads that are compared as
            one.

    Returns:
        A note for each group.
    """
    what = "streams" if items.work.gpu else "threads"
    every_note = []
    for lanes in merged_lanes:
        *others, last = [
            printable(str(items.trace.first_track(lane).tid)) for lane in lanes
        ]
        note = f"{what} {', '.join(others)} and {last} are compared as one"
        every_note.append(_prefix_label(items, note))
    return every_note


class _Launches(msgspec.Struct, frozen=True, eq=False):
    """How some kernels of a trace were launched, one entry per kernel."""

    side: str  # A or B
    call: Rows  # row of the launch call, NO_ROW where it is not in the file
    is_by_graph: Flags


def _find_launches(side: str, items: WorkItems, members: Rows) -> _Launches:
    """Determine how each of some kernels was launched: by which call or graph.

    Args:
        side: The name of the trace, A or B.
        items: All kernels of a step of the trace.
        members: The indices of the kernels to look at.
    """
    rows = items.row[members]
    return _Launches(
        side=side,
        call=items.trace.launch[rows].astype(np.intp),
        is_by_graph=is_launched_by_graph(items.work, rows),
    )


def _describe_moves_to_graphs(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[str]:
    """Say how many kernels one side launches one by one and the other by graphs.

    There may be a note for each of the two directions.
    """
    items_a, items_b = collect_paired_items(groups)
    launches_a = _find_launches("A", a, items_a)
    launches_b = _find_launches("B", b, items_b)
    return [
        _describe_move_to_graphs(by_calls=launches_a, by_graphs=launches_b),
        _describe_move_to_graphs(by_calls=launches_b, by_graphs=launches_a),
    ]


def _describe_move_to_graphs(*, by_calls: _Launches, by_graphs: _Launches) -> str:
    """Say how many kernels one trace launches by calls and the other by CUDA graphs.

    Args:
        by_calls: The launches of the trace whose own calls are counted.
        by_graphs: The launches of the other trace, of the same kernels in the same
            order.

    Returns:
        "" if there are no such kernels.
    """
    has_call = by_calls.call != NO_ROW
    is_by_own_call = has_call & ~by_calls.is_by_graph
    is_moved = is_by_own_call & by_graphs.is_by_graph
    if not is_moved.any():
        return ""
    kernels = plural(int(is_moved.sum()), "kernel")
    calls = plural(len(distinct(by_calls.call[is_moved])), "call")
    graphs = plural(len(distinct(by_graphs.call[is_moved])), "CUDA graph")
    return (
        f"{by_calls.side} launches {kernels} with {calls} per step,"
        f" {by_graphs.side} with {graphs}"
    )


class _Inputs(msgspec.Struct, frozen=True):
    """The first MAX_COMPARED_TENSORS tensors that a call was given, in words."""

    shapes: str  # `[2, 3] x [3, 4]`, "" where the file does not say
    dtypes: str  # `float x float`


def _describe_input_changes(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[str]:
    """Name an op whose input shapes differ, and one whose input dtypes differ.

    Of the MAX_COMPARED_PAIRS longest pairs of one op, the longest one that differs is
    named. A pair does not count if its inputs only occur in another order.
    """
    note_by_topic: dict[str, str] = {}
    for item_a, item_b in _find_longest_pairs_of_one_op(a, b, groups):
        before = _describe_inputs(a, int(a.op[item_a]))
        after = _describe_inputs(b, int(b.op[item_b]))
        if before == after:
            continue  # spares reading the inputs of every call of the op
        if _are_only_reordered(a, b, a.stems[item_a], before, after):
            continue
        op = a.op_names[item_a]
        notes_of_pair = {
            "shapes": _describe_difference(
                f"shapes differ in {op}", before.shapes, after.shapes
            ),
            "dtypes": _describe_difference(
                f"dtypes differ in {op}", before.dtypes, after.dtypes
            ),
        }
        # The first note of a topic, which is about the longest pair, stays.
        for topic, note in notes_of_pair.items():
            if note and topic not in note_by_topic:
                note_by_topic[topic] = note
    return list(note_by_topic.values())


def _find_longest_pairs_of_one_op(
    a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]
) -> list[tuple[int, int]]:
    """Return the pairs of kernels of one op that take the longest in A and B together.

    Returns:
        (index of an item of A, index of an item of B) of at most MAX_COMPARED_PAIRS
        pairs, the longest first.
    """
    items_a, items_b = collect_paired_items(groups)
    total_ns = a.mean_ns[items_a] + b.mean_ns[items_b]
    longest_first = np.argsort(-total_ns, kind="stable")
    sorted_a = items_a[longest_first].tolist()
    sorted_b = items_b[longest_first].tolist()

    pairs: list[tuple[int, int]] = []
    for item_a, item_b in zip(sorted_a, sorted_b, strict=True):
        has_op = a.op_names[item_a] != ""
        if has_op and a.stems[item_a] == b.stems[item_b]:
            pairs.append((item_a, item_b))
        if len(pairs) == MAX_COMPARED_PAIRS:
            break
    return pairs


def _are_only_reordered(
    a: WorkItems, b: WorkItems, op: str, before: _Inputs, after: _Inputs
) -> bool:
    """Return whether inputs only differ because the calls are paired in another order.

    That is so if A and B call the op equally often with the inputs `before`, and
    equally often with the inputs `after`. The result is False if the op is called too
    often to look at each call.

    Args:
        a: All kernels of a step of A.
        b: All kernels of a step of B.
        op: The name of the op without its namespace, as `mm`.
        before: The inputs of one of its calls in A.
        after: The inputs of the call in B that it is compared with.
    """
    calls_a = _find_calls_of_op(a, op)
    calls_b = _find_calls_of_op(b, op)
    if max(len(calls_a), len(calls_b)) > MAX_COMPARED_CALLS:
        return False

    inputs_a = Counter(_describe_inputs(a, call) for call in calls_a)
    inputs_b = Counter(_describe_inputs(b, call) for call in calls_b)
    is_before_as_often = inputs_a[before] == inputs_b[before]
    is_after_as_often = inputs_a[after] == inputs_b[after]
    return is_before_as_often and is_after_as_often


def _find_calls_of_op(items: WorkItems, op: str) -> list[int]:
    """Return the rows of the calls of an op that launch work in the step, ascending.

    `op` is its name without the namespace, as `mm`.
    """
    is_of_op = np.array([name == op for name in items.stems], dtype=np.bool_)
    calls = distinct(items.op[is_of_op])
    return [*calls[calls != NO_ROW].tolist()]


def _describe_inputs(items: WorkItems, row: int) -> _Inputs:
    """Describe the recorded input tensors of a call of an op.

    Both texts are "" if the trace has no shapes. Only the first MAX_COMPARED_TENSORS
    tensors are described.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        row: The row of the call in the trace.
    """
    args = items.trace.args_of(row)
    dims = args.get("Input Dims", args.get("Input dims"))
    types = args.get("Input type")
    if not isinstance(dims, list):
        return _Inputs(shapes="", dtypes="")
    if not isinstance(types, list) or len(types) != len(dims):
        types = []

    shapes: list[str] = []
    dtypes: list[str] = []
    for index, shape in enumerate(dims):
        is_tensor = isinstance(shape, list) and len(shape) > 0
        if not is_tensor or len(shapes) == MAX_COMPARED_TENSORS:
            continue
        shapes.append(str(shape))
        if types:
            dtypes.append(str(types[index]).removeprefix("c10::").lower())
    return _Inputs(shapes=" x ".join(shapes), dtypes=" x ".join(dtypes))


def _warn_of_few_steps(a: WorkItems, b: WorkItems) -> str:
    """Warn if A or B has fewer than MIN_STEPS_FOR_VERDICT steps; "" otherwise."""
    steps_a = len(a.steps)
    steps_b = len(b.steps)
    if min(steps_a, steps_b) >= MIN_STEPS_FOR_VERDICT:
        return ""
    return (
        f"few steps (A {steps_a}, B {steps_b}): the changes may be noise; profile at "
        f"least {MIN_STEPS_FOR_VERDICT} steps"
    )


def _warn_of_few_usual_steps(items: WorkItems) -> str:
    """Warn if only a few of the steps of a trace do the usual work.

    These are fewer than MIN_USUAL_STEPS, although there are enough steps. The figures
    are means over these steps only. Returns "" otherwise.
    """
    steps = len(items.steps)
    usual_steps = len(items.usual_steps)
    are_few = 0 < usual_steps < MIN_USUAL_STEPS
    if steps < MIN_STEPS_FOR_VERDICT or not are_few:
        return ""
    why = "because the others do different work"
    return _prefix_label(items, f"figures cover {usual_steps} of {steps} steps, {why}")


def _warn_of_unlike_steps(items: WorkItems) -> str:
    """Warn if not all steps of a trace do the same work; "" otherwise."""
    same_work_steps = len(items.same_work_steps)
    steps = len(items.steps)
    if same_work_steps == steps:
        return ""
    rows = f"row times are from the {same_work_steps} of {steps} steps that are alike"
    return _prefix_label(items, f"steps do different work; {rows}")


def _warn_of_unexplained_time(step: StepChange, sums: Accounting) -> str:
    """Say how much of the change of the step the sum of the rows does not explain.

    Returns "" if that is at most MIN_NOTED_SHARE of the longer step.
    """
    unexplained_ns = abs(sums.not_explained_ns)
    longer_step_ns = max(step.a_ns or 0, step.b_ns or 0)
    if unexplained_ns <= MIN_NOTED_SHARE * longer_step_ns:
        return ""
    why = "steps with the usual work do not take the median time"
    return f"{duration(unexplained_ns)} not explained: {why}"


def _describe_drift(a: WorkItems, b: WorkItems, step: StepChange) -> list[str]:
    """Say how much slower or faster each run became over time.

    That shows how much another run may differ. Where the steps of both sides took
    turns, one note says so for both, with or without a drift.
    """
    if step.turns:
        return [_describe_alternation(step)]
    return [
        _describe_drift_of_side(a, step.drift_a),
        _describe_drift_of_side(b, step.drift_b),
    ]


def _describe_alternation(step: StepChange) -> str:
    """Note that the steps of A and B alternate, and how both drifted, if both did."""
    note = "steps of A and B alternate, so each is compared with its neighbor"
    if not step.drift_a or not step.drift_b:
        return note
    larger_drift = max(step.drift_a, step.drift_b, key=abs)
    slower = pace(1.0, 1.0 + larger_drift)
    return f"{note}; both became {slower} over time"


def _describe_drift_of_side(items: WorkItems, drift: float) -> str:
    """Say how much slower or faster the steps of a trace became; "" for no drift.

    A drift of 0.1 means that the last step took 10 % longer than the first.
    """
    if not drift:
        return ""
    slower = pace(1.0, 1.0 + drift)
    return (
        f"{items.work.label} became {slower} from its first step to its last; the "
        "confidence interval is widened accordingly"
    )


def _warn_of_interruptions(items: WorkItems, share: float) -> str:
    """Note that the steps of a trace were interrupted for some share of their time.

    Returns "" if the share is at most MIN_NOTED_SHARE.
    """
    if share <= MIN_NOTED_SHARE:
        return ""
    note = (
        f"steps were interrupted for {percent(share, 1)} of the time; the confidence "
        "interval excludes that time"
    )
    return _prefix_label(items, note)
