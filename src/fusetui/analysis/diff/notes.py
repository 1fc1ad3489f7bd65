"""What to know before reading a diff: what else differs, then how certain the result
is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from fusetui.analysis.diff.common_work import CommonWork, common_work
from fusetui.analysis.diff.evidence import Evidence, RenamedOp
from fusetui.analysis.diff.groups import WorkGroup, pairs_of
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import Accounting, StepChange
from fusetui.analysis.diff.statistics import FEW_STEPS, MIN_USUAL_STEPS
from fusetui.analysis.diff.work import by_graph
from fusetui.analysis.questions.note import note_of
from fusetui.text.figures import count, duration, percent, plural
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace

MAX_CALLS = 2000  # of one op on one side, whose inputs are compared; each is parsed
# of so many of the longest pairs shapes and dtypes are compared: each is parsed
LOOKED_AT = 6
NAMED = 3  # so many renamed ops are named
# with less of a side's time in common, that is told
MIN_COMMON_SHARE = 0.5
# an unexplained part gets a note when it is more than this share of a step
VARIES = 0.02


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
    """Sentences for a person, the most important first; `devices` are those of
    `other_devices`, `renamed` is what `renamed_at_places` returns, `renamed_dispatch`
    what `renamed_labels` does."""
    origins = [note_of(items.trace) for items in (a, b)]  # of what is not a recording
    found = [
        _ranks(a.trace, b.trace),
        *(origins[:1] if origins[0] == origins[1] else map(_of_side, (a, b), origins)),
        f"devices differ: {printable(devices)}" if devices else "",
        _changed("PyTorch versions differ", _torch(a.trace), _torch(b.trace)),
        _changed("runtime versions differ", _runtime(a.trace), _runtime(b.trace)),
        _little_in_common(common_work(a, b, groups)),
        _renamed(renamed),
        _renamed_dispatch(renamed_dispatch, renamed),
        *_streams(a, evidence.streams_a),
        *_streams(b, evidence.streams_b),
        *_graphs(a, b, groups),
        *_inputs(a, b, groups),
        *(_of_side(items, items.trace.report.missing or "") for items in (a, b)),
        _few_steps(a, b),
        *map(_few_usual, (a, b)),
        _rest(step, sums),
        *_drifts(a, b, step),
        _interrupted(a, step.interrupted_a),
        _interrupted(b, step.interrupted_b),
        *a.work.windows.notes,
        *b.work.windows.notes,
        *map(_alike, (a, b)),
    ]
    return [note for note in found if note]


def _little_in_common(common: CommonWork | None) -> str:
    """Where much of a side is paired by its sort or its place, or not at all."""
    if common is None:
        return ""
    if min(common.share_of_a, common.share_of_b) >= MIN_COMMON_SHARE:
        return ""
    of_a, of_b = percent(common.share_of_a, 1), percent(common.share_of_b, 1)
    shares = f"{of_a} of the time of A's work and {of_b} of B's"
    named = f"only {shares} have a kernel or an op in common"
    return f"{named}: the rest is paired by its sort or its place, or not at all"


def _renamed(renamed: Sequence[RenamedOp]) -> str:
    if not renamed:
        return ""
    kernels = plural(sum(one.kernels for one in renamed), "kernel")
    ops = f"{count(len(renamed))} ops were renamed, which launch"
    if len(renamed) == 1:
        ops = "an op was renamed, which launches"
    named = _first_of([(one.before, one.after) for one in renamed])
    return f"{ops} the same {kernels}: {named}"


def _renamed_dispatch(labels: Mapping[str, str], of_work: Sequence[RenamedOp]) -> str:
    """`labels`: by the name in B, the name in A; those of `of_work` are told
    already."""
    told = {(one.before, one.after) for one in of_work}
    renamed = [
        (before, after)
        for after, before in labels.items()
        if (before, after) not in told
    ]
    if not renamed:
        return ""
    ops = "an op that computes nothing was renamed, which runs at the same places"
    if len(renamed) > 1:
        number = count(len(renamed))
        ops = f"{number} ops that compute nothing were renamed, which run at the same places"
    return f"{ops}: {_first_of(renamed)}"


def _first_of(renamed: Sequence[tuple[str, str]]) -> str:
    """`old -> new, old -> new and 7 more`."""
    named = ", ".join(
        f"{printable(before)} -> {printable(after)}"
        for before, after in renamed[:NAMED]
    )
    rest = f" and {count(len(renamed) - NAMED)} more" if len(renamed) > NAMED else ""
    return named + rest


def _streams(items: WorkItems, groups: Sequence[Sequence[int]]) -> list[str]:
    """A note for each group of lanes that are compared as one."""
    what = "streams" if items.work.gpu else "threads"
    said = "which of them runs a piece of work is no change"
    found = []
    for lanes in groups:
        names = [printable(str(items.trace.first_track(lane).tid)) for lane in lanes]
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        found.append(_of_side(items, f"{what} {listed} are compared as one: {said}"))
    return found


def _graphs(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[str]:
    """The kernels that one side launches by calls of their own and the other one by
    graphs."""
    pairs = pairs_of(groups)
    calls = [
        items.trace.launch[items.row[of]]
        for items, of in zip((a, b), pairs, strict=True)
    ]
    graphs = [
        by_graph(items.work, items.row[of])
        for items, of in zip((a, b), pairs, strict=True)
    ]
    found = []
    for one, other in ((0, 1), (1, 0)):
        moved = ~graphs[one] & graphs[other] & (calls[one] >= 0)
        if moved.any():
            before = plural(len(np.unique(calls[one][moved])), "call")
            after = plural(len(np.unique(calls[other][moved])), "CUDA graph")
            what = f"{plural(int(moved.sum()), 'kernel')} that {'AB'[one]} launches by {before}"
            found.append(f"{what} a step, {'AB'[other]} launches by {after}")
    return found


def _alike(items: WorkItems) -> str:
    said = "steps differ in their work; times of rows are from the"
    alike, steps = len(items.alike), len(items.work.windows)
    return _of_side(
        items, f"{said} {alike} of {steps} steps that are alike" * (alike != steps)
    )


def _of_side(items: WorkItems, note: str) -> str:
    return f"{items.work.label}: {note}" if note else ""


def _changed(what: str, before: str, after: str) -> str:
    """Nothing when they agree, or when a side does not say."""
    told = before and after and before != after
    return f"{what}: {printable(before)} -> {printable(after)}" if told else ""


def _torch(trace: Trace) -> str:
    for key in ("torch_version", "pytorch_version"):
        if isinstance(trace.keys.get(key), str):
            return str(trace.keys[key])
    packages = _inner(trace.keys, "metadata", "system", "pip_packages")
    named = (
        (p for p in packages if isinstance(p, str))
        if isinstance(packages, list)
        else ()
    )
    return next(
        (p.removeprefix("torch==") for p in named if p.startswith("torch==")), ""
    )


def _inner(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _runtime(trace: Trace) -> str:
    """CUDA writes 12040 for 12.4, HIP 70051831 for 7.0.51831; some writers put it in a
    string."""
    texts = (str(trace.keys.get(f"{kind}_runtime_version")) for kind in ("cuda", "hip"))
    cuda, hip = (
        int(text) if text.isascii() and text.isdigit() else 0 for text in texts
    )
    of_hip = (
        f"HIP {hip // 10_000_000}.{hip // 100_000 % 100}.{hip % 100_000}" if hip else ""
    )
    return f"CUDA {cuda // 1000}.{cuda % 1000 // 10}" if cuda else of_hip


def _inputs(a: WorkItems, b: WorkItems, groups: Sequence[WorkGroup]) -> list[str]:
    """Shapes and dtypes of the longest pairs under one op: the first difference of
    each, unless the same inputs only occur in another order."""
    found: dict[str, str] = {}
    pairs = pairs_of(groups)
    longest = pairs[
        :, np.argsort(-(a.ns[pairs[0]] + b.ns[pairs[1]]), kind="stable")
    ].T.tolist()
    of_one_op = (
        (i, j) for i, j in longest if a.op_names[i] and a.stems[i] == b.stems[j]
    )
    for i, j in islice(of_one_op, LOOKED_AT):
        before_and_after = _input_of(a, i), _input_of(b, j)
        if _only_reordered(a, b, i, *before_and_after):
            continue
        for what, before, after in zip(
            ("shapes", "dtypes"), *before_and_after, strict=True
        ):
            if text := _changed(f"{what} differ in {a.op_names[i]}", before, after):
                found.setdefault(what, text)
    return list(found.values())


def _only_reordered(
    a: WorkItems,
    b: WorkItems,
    item: int,
    before: tuple[str, str],
    after: tuple[str, str],
) -> bool:
    """Whether A and B call the op of an item of A as often with the inputs `before`,
    and as often with the inputs `after`: then two different calls were compared. False
    where it is called too often to look at each call."""
    inputs = []
    for items in (a, b):
        calls = np.unique(items.op[[stem == a.stems[item] for stem in items.stems]])
        if len(calls) > MAX_CALLS:
            return False
        inputs.append(
            Counter(_inputs_of_call(items, int(row)) for row in calls if row >= 0)
        )
    in_a, in_b = inputs
    return in_a[before] == in_b[before] and in_a[after] == in_b[after]


def _input_of(items: WorkItems, item: int) -> tuple[str, str]:
    return _inputs_of_call(items, int(items.op[item]))


def _inputs_of_call(items: WorkItems, row: int) -> tuple[str, str]:
    """Shapes and dtypes of the first two inputs of an op that are tensors; "" when not
    recorded."""
    args = items.trace.args_of(row)
    dims = args.get("Input Dims", args.get("Input dims"))
    types = args.get("Input type")
    if not isinstance(dims, list):
        return "", ""
    tensors = [n for n, shape in enumerate(dims) if isinstance(shape, list) and shape][
        :2
    ]
    shapes = " x ".join(str(dims[n]) for n in tensors)
    if not isinstance(types, list) or len(types) != len(dims):
        return shapes, ""
    return shapes, " x ".join(
        str(types[n]).removeprefix("c10::").lower() for n in tensors
    )


def _few_steps(a: WorkItems, b: WorkItems) -> str:
    of_a, of_b = len(a.work.windows), len(b.work.windows)
    few = f"few steps ({plural(of_a, 'step')} of A, {of_b} of B): the changes may be noise;"
    return f"{few} profile at least {FEW_STEPS}" if min(of_a, of_b) < FEW_STEPS else ""


def _few_usual(items: WorkItems) -> str:
    """Where figures are of few of many steps: the others do other work."""
    every = len(items.work.windows)
    if every < FEW_STEPS or not 0 < len(items.usual) < MIN_USUAL_STEPS:
        return ""
    said = (
        f"its figures are of {len(items.usual)} of {every} steps: few do the usual work"
    )
    return _of_side(items, said)


def _drifts(a: WorkItems, b: WorkItems, step: StepChange) -> list[str]:
    """A run that becomes slower or faster shows how much another run may differ."""
    drifts = [(items, n) for items, n in ((a, step.drift_a), (b, step.drift_b)) if n]
    if step.turns:
        most = max((n for _, n in drifts), key=abs, default=0)
        both = f"; both became {_became(most)} meanwhile" if len(drifts) == 2 else ""
        return [
            f"the steps took turns, so each is compared with the one next to it{both}"
        ]
    widened = "from its first step to its last: the interval is widened by as much"
    return [f"{items.work.label} became {_became(n)} {widened}" for items, n in drifts]


def _became(drift: float) -> str:
    return f"{percent(abs(drift), 1, fine=True)} {'slower' if drift > 0 else 'faster'}"


def _interrupted(items: WorkItems, share: float) -> str:
    said = f"something interrupted its steps for {percent(share, 1)} of the time"
    return (
        _of_side(items, f"{said}, which the interval leaves out")
        if share > VARIES
        else ""
    )


def _ranks(a: Trace, b: Trace) -> str:
    """Two ranks of one job wait for each other."""
    of_a, of_b = (_inner(t.keys, "distributedInfo") for t in (a, b))
    if not (isinstance(of_a, dict) and isinstance(of_b, dict)):
        return ""
    ranks = of_a.get("rank"), of_b.get("rank")
    size = of_a.get("world_size")
    if (
        ranks[0] == ranks[1]
        or None in ranks
        or size != of_b.get("world_size")
        or not size
    ):
        return ""
    return (
        f"these look like ranks {printable(str(ranks[0]))} and {printable(str(ranks[1]))} of one"
        " job: the time of a collective includes waiting for the other ranks, and fusetui ranks"
        " tells who waits for whom"
    )


def _rest(step: StepChange, sums: Accounting) -> str:
    part = abs(sums.not_explained_ns)
    why = "the steps vary so much that those with the usual work do not take the median time"
    large = part > VARIES * max(step.a_ns or 0, step.b_ns or 0)
    return f"{duration(part)} not explained: {why}" if large else ""
