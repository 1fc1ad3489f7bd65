"""Adjacent pointwise kernels whose work one kernel could do."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.trace.insights.evidence import the_most
from fusetui.trace.insights.facts import Facts
from fusetui.trace.insights.idle import Flags, Int64s, Rows
from fusetui.trace.insights.kernels import Kernels
from fusetui.trace.insights.rule import CannotTell, Claim, Rule, is_worth
from fusetui.trace.insights.wording import module_text, share_of_work
from fusetui.trace.kernel_names import KernelName
from fusetui.trace.layout.step_spans import OPTIMIZER
from fusetui.trace.model.arguments import parsed
from fusetui.trace.roofline.inputs import inputs_of
from fusetui.trace.roofline.many import INPUTS
from fusetui.trace.text.figures import count, duration, plural

OPS = ("elementwise", "copy", "reduction", "fill", "index")
SHORTEST_NS = 2_000
NS = 1_000_000_000
INTO = "aten::copy_"  # writes its first input
UNKNOWN = -1


class Runs(msgspec.Struct, frozen=True, eq=False):
    """Runs of at least two kernels, as indices into Kernels.in_order; arrays of shape [runs]."""

    begin: Rows
    end: Rows
    ns: Int64s  # effective
    module: Rows

    @property
    def kernels(self) -> int:
        return int((self.end - self.begin).sum())


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    pointwise = kernels.flags(is_pointwise)
    if not pointwise.any():
        return
    if not (kernels.module >= 0).any():
        raise CannotTell(
            "modules or annotations",
            "record_function" if facts.has_stacks else "with_stack=True, or record_function",
        )
    runs = runs_of(kernels, pointwise)
    if not len(runs.ns):
        return
    least = _least_ns(kernels, runs)
    saved = np.where(least >= 0, np.maximum(runs.ns - least, 0), 0)
    at_stake, taken = int(saved.sum()), int(runs.ns.sum())
    text = (
        f"{plural(len(runs.ns), 'run')} of pointwise kernels, {count(runs.kernels)} in all, "
        f"take {duration(taken)} ({share_of_work(facts, taken)}), most of it in "
        f"{_most(facts, runs)}"
    )
    if (least >= 0).any():
        yield Claim(
            text=f"{text}. One kernel for each run has to read its first inputs and to write its "
            f"last output, and saves {duration(at_stake)} ({share_of_work(facts, at_stake)}) at "
            "most.",
            at_stake_ns=at_stake,
            rows=_evidence(kernels, runs, saved),
            why_likely="Other inputs of a run, and results that are used again later, must be "
            "read and written too.",
        )
    elif is_worth(facts, taken, of_kernels=True):
        yield Claim(
            text=f"{text}. One kernel could do each run; without {_lacking(kernels)}, how much "
            "that would save is unknown.",
            at_stake_ns=None,
            rows=_evidence(kernels, runs, runs.ns),
        )


def claimed(facts: Facts) -> Flags:
    """The kernels of the claim with a figure, if that is worth a look."""
    kernels = facts.kernels
    found = np.zeros(len(kernels.rows), dtype=np.bool_)
    runs = runs_of(kernels, kernels.flags(is_pointwise))
    least = _least_ns(kernels, runs)
    saved = int(np.maximum(runs.ns - least, 0)[least >= 0].sum())
    if (least >= 0).any() and is_worth(facts, saved, of_kernels=True):
        inside = np.zeros(len(kernels.rows) + 1, dtype=np.int64)
        inside[runs.begin] += 1
        inside[runs.end] -= 1  # which may be where the next one begins
        found[kernels.in_order] = np.cumsum(inside[:-1]) > 0
    return found


def is_pointwise(kernel: KernelName) -> bool:
    """PyTorch's own kernels that make one pass over their tensors, without those fused already."""
    return kernel.op in OPS and kernel.family.startswith("aten")


def runs_of(kernels: Kernels, wanted: Flags) -> Runs:
    """Neighbors on a stream under one module or annotation, at least two of which read something.

    Those of an optimizer work on many tensors that have nothing to do with each other.
    """
    order = kernels.in_order
    ns, module = kernels.effective_ns[order], kernels.module[order]
    wanted = wanted[order] & (module >= 0) & ~_is_optimizer(kernels)[module]
    stream = kernels.stream[order]
    joined = wanted[1:] & wanted[:-1] & (module[1:] == module[:-1]) & (stream[1:] == stream[:-1])
    begin = np.flatnonzero(np.concatenate((wanted[:1], wanted[1:] & ~joined)))
    end = np.flatnonzero(np.concatenate((wanted[:-1] & ~joined, wanted[-1:]))) + 1
    reads = _before(kernels.flags(lambda kernel: kernel.op != "fill")[order])
    several = reads[end] - reads[begin] >= 2
    begin, end = begin[several], end[several]
    total = _before(ns)
    return Runs(begin, end, total[end] - total[begin], module[begin])


def _before(amounts: NDArray[np.generic]) -> Int64s:
    """The sum before each index, and the total; shape [n + 1]."""
    found: Int64s = np.concatenate(([0], np.cumsum(amounts, dtype=np.int64)))
    return found


def _is_optimizer(kernels: Kernels) -> Flags:
    """Per row of the trace."""
    names = kernels.trace.names
    return np.array([OPTIMIZER.match(name) is not None for name in names])[kernels.trace.name]


def _least_ns(kernels: Kernels, runs: Runs) -> Int64s:
    """How long one kernel for each run would take at least (ns), or UNKNOWN.

    It reads the inputs of the first kernel, or the largest tensor of a later one if that is more;
    and it writes the output of the last one, whose size is taken for that of its largest input.
    """
    rate = kernels.peak.bytes_per_s if kernels.peak else None
    if not rate or not len(runs.ns):
        return np.full(len(runs.ns), UNKNOWN, dtype=np.int64)
    every, largest, written = _bytes(kernels)
    read = np.maximum(every[runs.begin], _largest(largest, runs))
    written = np.where(_reduces(kernels)[runs.end - 1], 0, written[runs.end - 1])
    known = (every[runs.begin] >= 0) & (written >= 0)
    least = np.maximum((read + written) / rate * NS, SHORTEST_NS)
    return np.where(known, np.rint(least), UNKNOWN).astype(np.int64)


def _largest(bytes_: Int64s, runs: Runs) -> Int64s:
    edges = np.stack((runs.begin, runs.end), axis=1).reshape(-1)
    found: Int64s = np.maximum.reduceat(np.append(bytes_, UNKNOWN), edges)[::2]
    return found


def _bytes(kernels: Kernels) -> tuple[Int64s, Int64s, Int64s]:
    """For each kernel in order, the bytes that its op reads: all, and of the largest tensor; and
    those that it writes. UNKNOWN without shapes."""
    trace, found = kernels.trace, kernels.inputs
    table = np.array(
        [*(_of_inputs(texts) for texts in found.distinct), (UNKNOWN,) * 4], dtype=np.int64
    )
    every, largest, first, second = table[found.number[kernels.in_order]].T
    op = trace.op[kernels.rows[kernels.in_order]]
    copies = np.array([name == INTO for name in trace.names] or [False])[trace.name[op]] & (op >= 0)
    every, largest = np.where(copies, second, every), np.where(copies, second, largest)
    return every, largest, np.where(copies, first, largest)


def _of_inputs(texts: tuple[bytes, ...]) -> tuple[int, int, int, int]:
    """Bytes of all tensors, of the largest, of the first and of the second one."""
    given = inputs_of("", {name: parsed(text) for name, text in zip(INPUTS, texts, strict=True)})
    tensors = [given.tensor(place) for place in range(len(given.dims))] if given else []
    sizes = [tensor.bytes for tensor in tensors if tensor is not None]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return (UNKNOWN,) * 4
    return sum(known), max(known), known[0], known[1] if len(known) > 1 else 0


def _reduces(kernels: Kernels) -> Flags:
    return kernels.flags(lambda kernel: kernel.op == "reduction")[kernels.in_order]


def _lacking(kernels: Kernels) -> str:
    return "shapes" if kernels.peak else "a device whose bandwidth is known"


def _most(facts: Facts, runs: Runs) -> str:
    """The kind of module or annotation with the most time."""
    names = facts.trace.name[runs.module]
    by_kind: dict[str, int] = {}
    for name in np.unique(names).tolist():
        kind = module_text(facts.trace.names[name])
        by_kind[kind] = by_kind.get(kind, 0) + int(runs.ns[names == name].sum())
    return max(by_kind, key=lambda kind: by_kind[kind])


def _evidence(kernels: Kernels, runs: Runs, ns: Int64s) -> tuple[int, ...]:
    return the_most(kernels.rows[kernels.in_order[runs.begin]], ns)


RULE = Rule(
    id="fusable-run",
    title="Pointwise kernels that could be one",
    question="Do kernels pass tensors through memory that one kernel could keep in registers?",
    needs="Ops, modules or annotations; shapes for the figure.",
    formula="The effective time of runs of at least two pointwise, cast, copy or reduction kernels "
    "next to each other on a stream under one module, minus the time to read the inputs of the "
    "first one (or the largest tensor that a later one reads, if that is more) and to write the "
    "output of the last one once, at the bandwidth of the data sheet, and at least 2 us per run.",
    remedy="{compile:torch.compile fuses such runs; a|:A} fused norm, activation or rotary "
    "embedding does it by hand.",
    thresholds={"shortest_ns": SHORTEST_NS},
    find=find,
    of_kernels=True,
    silent="The kernels of an optimizer work on unrelated tensors: see optimizer-launches.",
)
