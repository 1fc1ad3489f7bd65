"""Pointwise kernels next to each other that one kernel could do."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.facts import Facts, Flags, Int64s, Rows
from fusetui.trace.insights.kernels import Kernels
from fusetui.trace.insights.rule import CannotTell, Claim, Rule
from fusetui.trace.insights.wording import module_text, share_of_span
from fusetui.trace.kernel_names import KernelName
from fusetui.trace.model.arguments import Arguments, parsed
from fusetui.trace.roofline.attainable import attainable
from fusetui.trace.roofline.inputs import inputs_of
from fusetui.trace.roofline.many import INPUTS, inputs_of_ops
from fusetui.trace.text.figures import count, duration, plural

OPS = ("elementwise", "copy", "reduction", "fill", "index")
LEAST_SHARE = 0.02  # of the span, where it is not known what fusing gives
SHORTEST_NS = 2_000
NS = 1_000_000_000


class Runs(msgspec.Struct, frozen=True, eq=False):
    """Runs of at least two kernels; arrays of shape [runs]."""

    first: Rows  # rows of the trace
    last: Rows
    length: Rows
    ns: Int64s  # effective
    module: Rows


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    pointwise = kernels.flags(is_pointwise)
    if not pointwise.any():
        return
    if not (kernels.module >= 0).any():
        raise CannotTell("modules or annotations", "with_stack=True, or record_function")
    runs = runs_of(kernels, pointwise)
    if not len(runs.ns):
        return
    least = _least_ns(kernels, runs)
    known = least >= 0
    saved = np.where(known, np.maximum(runs.ns - least, 0), 0)
    at_stake = int(saved.sum())
    taken = int(runs.ns.sum())
    text = (
        f"{plural(len(runs.ns), 'run')} of pointwise kernels, {count(int(runs.length.sum()))} in "
        f"all, "
        f"take {duration(taken)} ({share_of_span(facts, taken)})"
    )
    if not known.any():
        if taken < LEAST_SHARE * facts.span_ns:
            return
        yield Claim(
            text=f"{text}: one kernel could do each run.",
            at_stake_ns=None,
            rows=_evidence(runs, runs.ns),
        )
        return
    yield Claim(
        text=f"{text}, most of it in {_most(facts, runs)}: one kernel for each run would read its "
        f"first inputs and write its last output once, and save {duration(at_stake)} at most.",
        at_stake_ns=at_stake,
        rows=_evidence(runs, saved),
        certainty="likely",
        why_likely="Other inputs of a run, and what is used again later, must be read and written "
        "too.",
    )


def is_pointwise(kernel: KernelName) -> bool:
    """PyTorch's own kernels of one pass over their tensors; what is fused already is another."""
    return kernel.op in OPS and kernel.family.startswith("aten")


def runs_of(kernels: Kernels, wanted: Flags) -> Runs:
    """Neighbours on a stream under one module or annotation."""
    order = kernels.in_order
    rows, ns = kernels.rows[order], kernels.effective_ns[order]
    wanted, module = wanted[order] & (kernels.module[order] >= 0), kernels.module[order]
    stream = kernels.stream[order]
    joined = wanted[1:] & wanted[:-1] & (module[1:] == module[:-1]) & (stream[1:] == stream[:-1])
    begins = np.flatnonzero(np.concatenate(([True], ~joined)))
    ends = np.append(begins[1:], len(rows)) - 1
    several = ends > begins
    begins, ends = begins[several], ends[several]
    total = np.concatenate(([0], np.cumsum(ns)))
    return Runs(
        rows[begins], rows[ends], ends - begins + 1, total[ends + 1] - total[begins], module[begins]
    )


def _least_ns(kernels: Kernels, runs: Runs) -> Int64s:
    """How long one kernel for each run would take at least (ns), -1 where that is not known."""
    trace, peak = kernels.trace, kernels.peak
    rate = attainable(peak).bytes_per_s if peak else None
    if not rate:
        return np.full(len(runs.ns), -1, dtype=np.int64)
    first = inputs_of_ops(trace, trace.op[runs.first])
    last = inputs_of_ops(trace, trace.op[runs.last])
    read = _bytes(first, largest=False)
    written = np.where(_reduces(kernels, runs.last), 0, _bytes(last, largest=True))
    known = (read >= 0) & (written >= 0)
    least = np.maximum((read + written) / rate * NS, SHORTEST_NS)
    return np.where(known, np.rint(least), -1).astype(np.int64)


def _bytes(found: Arguments, largest: bool) -> NDArray[np.int64]:
    """Bytes of all tensors that an op was given, or of the largest one; -1 where not known."""
    table = [_of_inputs(texts, largest) for texts in found.distinct]
    return np.array([*table, -1], dtype=np.int64)[found.number]


def _of_inputs(texts: tuple[bytes, ...], largest: bool) -> int:
    given = inputs_of("", {name: parsed(text) for name, text in zip(INPUTS, texts, strict=True)})
    if given is None:
        return -1
    tensors = [given.tensor(place) for place in range(len(given.dims))]
    sizes = [tensor.bytes for tensor in tensors if tensor is not None]
    if not sizes or None in sizes:
        return -1
    known = [size for size in sizes if size is not None]
    return max(known) if largest else sum(known)


def _reduces(kernels: Kernels, rows: Rows) -> Flags:
    found: Flags = Kernels(kernels.trace, rows).flags(lambda kernel: kernel.op == "reduction")
    return found


def _most(facts: Facts, runs: Runs) -> str:
    """The kind of module with the most time."""
    names = facts.trace.name[runs.module]
    by_kind: dict[str, int] = {}
    for name in np.unique(names).tolist():
        kind = module_text(facts.trace.names[name])
        by_kind[kind] = by_kind.get(kind, 0) + int(runs.ns[names == name].sum())
    return max(by_kind, key=lambda kind: by_kind[kind])


def _evidence(runs: Runs, ns: Int64s) -> tuple[int, ...]:
    return tuple(runs.first[np.argsort(-ns, kind="stable")[:5]].tolist())


RULE = Rule(
    id="fusable-run",
    title="Pointwise kernels that could be one",
    question="Do kernels pass tensors to each other through memory that one kernel could keep in "
    "registers?",
    needs="Ops, modules or annotations; shapes for the figure.",
    formula="The effective time of runs of at least two pointwise, cast, copy or reduction kernels "
    "next to each other on a stream under one module, less that of reading the inputs of the first "
    "and writing the output of the last one once, and at least 2 us a run.",
    remedy="torch.compile fuses such runs; a fused norm, activation or optimizer does the same by "
    "hand.",
    thresholds={"shortest_ns": SHORTEST_NS},
    find=find,
)
