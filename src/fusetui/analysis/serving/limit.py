"""The least time that a step can take: its weights and its keys and values have to be
read once, and its products computed, at the most that the device can do
(roofline/peaks.py).

It is a lower bound: whatever is not known is left out, and said. How many bytes of keys
and values attention reads for a token, the shapes that it was given say exactly: its
cache is two tensors [blocks, tokens of a block, heads, depth], or one of [2, blocks,
tokens of a block, heads, depth]. Otherwise the configuration of the model does,
provided that a product of the step has the shape of its projection to q, k and v.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.serving.config import LACKS, ModelConfig, by_configuration
from fusetui.analysis.serving.parts import Layers, Products, products_of
from fusetui.analysis.serving.passes import Pass
from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.gpu.roofline.inputs import NS, Inputs
from fusetui.gpu.roofline.many import inputs_by_op, peaks_of_devices
from fusetui.gpu.roofline.peaks import NO_PEAKS, Peak
from fusetui.text.figures import plural
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union_length

MOST_RANKS = 64
Shapes = Sequence[tuple[int, int]]


class KeysAndValues(msgspec.Struct, frozen=True):
    """Bytes of a token, or why they are not known."""

    bytes_per_token: int | None = None
    layers: int = 0  # that are counted
    source: Literal["attention", "config", ""] = ""
    missing: str = ""
    remark: str = ""


def cache_of(
    trace: Trace,
    kernels: Rows,
    tokens: int | None,
    shapes: Shapes,
    model: ModelConfig | None,
) -> KeysAndValues:
    """What the kernels of one pass read for a token. `tokens`: those in the cache,
    which has room for them; `shapes`: K and N of the products of the pass."""
    ops = np.unique(trace.op[kernels])
    ops = ops[[op >= 0 and "att" in trace.name_of(op).lower() for op in ops.tolist()]]
    own = [_of_attention(one, tokens or 0) for one in inputs_by_op(trace, ops).values()]
    if own and all(own):
        return KeysAndValues(sum(own), len(own), "attention")
    if model is None:
        return KeysAndValues(
            missing="the shapes of attention do not tell (--model-config does)"
        )
    return _of_config(model, shapes)


def _of_attention(inputs: Inputs, tokens: int) -> int:
    """Bytes of a token in the cache of one layer; 0 if the shapes do not tell."""
    tensors = map(inputs.tensor, range(len(inputs.dims)))
    known = [(t.shape, t.dtype) if t is not None else ((), None) for t in tensors]
    queries = {shape[1:] for shape, _ in known if len(shape) == 3}
    pairs = {a for a, b in itertools.pairwise(known) if a == b and len(a[0]) == 4}
    both = {
        (shape[1:], dtype)
        for shape, dtype in known
        if len(shape) == 5 and shape[0] == 2
    }
    found = pairs | both
    if len(found) != 1:
        return 0
    (blocks, size, heads, depth), dtype = found.pop()
    asks = any(d == depth and heads and h % heads == 0 for h, d in queries)
    if dtype is None or not asks or not tokens or blocks * size < tokens:
        return 0
    return 2 * heads * depth * ELEMENT_BYTES[dtype]


def _of_config(model: ModelConfig, shapes: Shapes) -> KeysAndValues:
    if not model.layers or not model.hidden or not model.heads or not model.dtype:
        return KeysAndValues(missing=LACKS)
    if model.is_latent:
        return KeysAndValues(
            missing="the cache of latent attention has a layout of its own"
        )
    if (ranks := _ranks(shapes, model)) is None:
        width = (model.heads + 2 * model.kv_heads) * model.depth
        other = (
            "no matrix product of the step is the projection of the configuration to q, k and v"
            f" ({model.hidden} x {width}): it is of another model"
        )
        unsure = "no shapes tell whether the configuration is that of this model"
        return KeysAndValues(missing=other if shapes else unsure)
    each = (
        2 * max(model.kv_heads // ranks, 1) * model.depth * ELEMENT_BYTES[model.dtype]
    )
    said = "as the configuration says of the model"
    remark = f"keys and values are taken to be {model.type_name}, {said}"
    if model.full_layers < model.layers:
        remark += (
            f"; {model.layers - model.full_layers} layers with a window are not counted"
        )
    return KeysAndValues(
        each * model.full_layers, model.full_layers, "config", remark=remark
    )


def _ranks(shapes: Shapes, model: ModelConfig) -> int | None:
    """Over how many ranks the heads are divided, by the projections that ran."""
    outputs = {n for k, n in shapes if k == model.hidden}
    for ranks in (1 << n for n in range(MOST_RANKS.bit_length())):
        q = model.heads * model.depth // ranks
        own = model.kv_heads * model.depth // min(ranks, model.kv_heads)
        if q + 2 * own in outputs or {q, own} <= outputs:
            return ranks
    return None


BETWEEN = "between kernels"
ATTENTION = "attention"
NEEDED = (
    "--captured-by gives them, with a trace of the capture of the graph; --model-config, if the"
    " model is dense"
)


class Loss(msgspec.Struct, frozen=True):
    """Where the time of a step goes: kernels of one op, or the time between kernels.
    `least_ns`: what they take at least, each product the longer of its bytes and its
    FLOP; None where that is not known of all of them."""

    what: str
    of: Literal["op", "kernel", "gap"]  # kernel where no op is known
    dur_ns: int
    kernels: int
    least_ns: int | None


class Limit(msgspec.Struct, frozen=True):
    """The limit of one pass of the model. Bytes and FLOP are those that are known;
    `share` is `least_ns` / `dur_ns`, None if nothing is."""

    dur_ns: int  # from its first start to its last end
    products: int  # matrix products whose weights are known
    products_unknown: int  # kernels of products whose weights are not
    weight_bytes: int
    weight_source: Literal["shapes", "config", ""]
    kv_tokens: int | None
    kv_bytes_per_token: int | None
    kv_bytes: int | None
    kv_layers: int
    kv_source: Literal["attention", "config", ""]
    flop: int
    bytes_per_s: float | None
    memory_ns: int | None
    compute_ns: int | None
    least_ns: int | None
    share: float | None
    bound: Literal["memory", "compute"] | None
    cannot_tell: tuple[str, ...]
    remarks: tuple[str, ...]
    losses: tuple[Loss, ...]


class _Needs(msgspec.Struct, frozen=True):
    """What a step has to read and compute, and the peaks of its device."""

    products: Products
    kv_bytes: int | None
    peak: Peak | None

    @property
    def memory_ns(self) -> int | None:
        """To read so much, rounded down; None if it may have stayed in the cache."""
        moved = self.products.weight_bytes + (self.kv_bytes or 0)
        if (
            self.peak is None
            or not self.peak.bytes_per_s
            or moved <= self.peak.cache_bytes
        ):
            return None
        return int(moved * NS / self.peak.bytes_per_s)

    @property
    def compute_ns(self) -> int | None:
        """For the products, at the rate of their element type; None if none has a
        rate."""
        rates = [
            (flop, self._flop_per_s(dtype))
            for dtype, flop in self.products.flop.items()
        ]
        known = [flop / rate for flop, rate in rates if rate]
        return int(sum(known) * NS) if known else None

    def by_op(self, reads_only: bool) -> dict[str, tuple[int, float]]:
        """By op: how many of its products are known, and what these take at least, in
        ns. ATTENTION: what reading the keys and values takes, if it `reads_only`."""
        if self.peak is None:
            return {}
        rate = self.peak.bytes_per_s if self.memory_ns is not None else None
        found: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for one in self.products.each:
            (count, ns), flop_per_s = found[one.op], self._flop_per_s(one.dtype)
            compute = one.flop * NS / flop_per_s if flop_per_s else 0.0
            # without a rate: may be in the cache
            read = one.bytes * NS / rate if rate else 0.0
            found[one.op] = count + 1, ns + max(compute, read)
        if self.kv_bytes is not None and rate and reads_only:
            found[ATTENTION] = 1, self.kv_bytes * NS / rate
        return found

    def _flop_per_s(self, dtype: str) -> float | None:
        """Of the fastest arithmetic for inputs of this type."""
        kind = "fp8" if dtype.startswith("fp8") else {"fp32": "tf32"}.get(dtype, dtype)
        return self.peak.flop_per_s(kind) if self.peak else None


def limit_of(
    trace: Trace,
    step: Pass,
    layers: Layers | None = None,
    model: ModelConfig | None = None,
    given: Mapping[str, float] = NO_PEAKS,
) -> Limit:
    """The limit of a pass, all of one device; of at least one event. `given`: figures
    of the device that override those of the table (see `peak_of`)."""
    rows, tokens = step.model, step.asked.kv_tokens
    ns = int(trace.end[rows].max() - trace.start[rows].min())
    products, told = products_of(trace, rows), ""
    if model is not None and not products.known and products.unknown:
        products, told = by_configuration(trace, products, layers, model, step.asked)
    cache = cache_of(trace, rows, tokens, products.shapes, model)
    unknown = cache.bytes_per_token is None or tokens is None
    kv = None if unknown else (cache.bytes_per_token or 0) * (tokens or 0)
    peak, guessed = _peak(trace, rows, given)
    needs = _Needs(products, kv, peak)
    memory, compute = needs.memory_ns, needs.compute_ns
    least = max((t for t in (memory, compute) if t is not None), default=None)
    missing = _missing(needs, told or ("" if model else NEEDED))
    if kv is None:
        why = cache.missing or "no annotation counts the tokens that attention reads"
        missing.append(f"keys and values are not counted: {why}")
    remarks = (
        told if products.known else "",
        guessed,
        "" if kv is None else cache.remark,
    )
    # tokens, so attention reads
    few = step.asked.phase in (ServerPhase.DECODE, ServerPhase.VERIFY)
    return Limit(
        dur_ns=ns,
        products=products.known,
        products_unknown=products.unknown,
        weight_bytes=products.weight_bytes,
        weight_source=products.source if products.known else "",
        kv_tokens=tokens,
        kv_bytes_per_token=cache.bytes_per_token,
        kv_bytes=kv,
        kv_layers=cache.layers,
        kv_source=cache.source,
        flop=sum(products.flop.values()),
        bytes_per_s=peak.bytes_per_s if peak else None,
        memory_ns=memory,
        compute_ns=compute,
        least_ns=least,
        share=least / ns if least is not None and ns else None,
        bound=None if least is None else "memory" if least == memory else "compute",
        cannot_tell=tuple(missing),
        remarks=tuple(filter(None, remarks)),
        losses=_losses(trace, rows, ns, needs.by_op(reads_only=few)),
    )


def _peak(
    trace: Trace, rows: Rows, given: Mapping[str, float]
) -> tuple[Peak | None, str]:
    """The peaks of the device of these rows, and a remark if its name is not
    recorded."""
    device, each = trace.track_of(int(rows[0])).pid, peaks_of_devices(trace, given)
    known = next((own for own in each if own.device == device), None)
    peak = known.peak if known else None
    guess = (
        "the device has no name in the trace: by its compute units and memory, it is an"
    )
    guessed = known and known.name is None and peak and not peak.given
    return peak, f"{guess} {peak.device}" if peak and guessed else ""


def _missing(needs: _Needs, why: str) -> list[str]:
    said, products = [], needs.products
    if not products.known:
        told = "weights are not counted: no matrix product has recorded shapes"
        said.append(f"{told} ({why})" if why else told)
    elif products.unknown:
        said.append(
            f"the weights of {plural(products.unknown, 'kernel')} of products are not counted:"
            " their shapes, or the experts that were routed to, are not recorded"
        )
    if needs.peak is None:
        said.append(
            "the peaks of the device are not known (--peak bandwidth=... gives them)"
        )
    elif needs.memory_ns is None and products.known:
        said.append(
            "so little is read that it may stay in the cache: memory is no limit"
        )
    return said


def _losses(
    trace: Trace, rows: Rows, ns: int, least: Mapping[str, tuple[int, float]]
) -> tuple[Loss, ...]:
    """By op, or where none is known by kernel, with the time between kernels as one
    more; the largest loss first. The keys and values are read by the op of attention,
    if there is only one."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    ops = trace.op[kernels]
    named = np.where(ops >= 0, trace.name[ops], -1 - trace.name[kernels])
    numbers = np.unique(named).tolist()
    attention = {n for n in numbers if n >= 0 and "att" in trace.names[n].lower()}
    found = []
    for name in numbers:
        own = kernels[named == name]
        what = trace.names[name if name >= 0 else -1 - name]
        of: Literal["op", "kernel"] = "op" if name >= 0 else "kernel"
        alone = attention == {name}
        known, floor = least.get(ATTENTION if alone else what, (0, 0.0))
        is_known = known >= (1 if alone else len(np.unique(trace.op[own])))
        spent = int(trace.dur[own].sum())
        found.append(Loss(what, of, spent, len(own), int(floor) if is_known else None))
    gaps = ns - union_length(trace.start[rows], trace.end[rows])
    found.append(Loss(BETWEEN, "gap", gaps, 0, 0))
    return tuple(sorted(found, key=lambda one: (one.least_ns or 0) - one.dur_ns))
