"""The least time that a step can take: its weights and its keys and values have to be read once,
and its products computed, at the most that the device can do (roofline/peaks.py).

It is a lower bound: whatever is not known is left out, and said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from fusetui.analysis.serving.config import by_configuration
from fusetui.analysis.serving.kv import cache_of
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.steps import Asked, Phase
from fusetui.analysis.serving.weights import Product, Products, products_of
from fusetui.gpu.roofline.many import peaks_of_devices
from fusetui.gpu.roofline.model import NS
from fusetui.gpu.roofline.peaks import Peak
from fusetui.text.figures import plural
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Rows, Trace
from fusetui.trace.model.intervals import union_length

BETWEEN = "between kernels"
ATTENTION = "attention"
NEEDED = (
    "--captured-by gives them, with a trace of the capture of the graph; --model-config, if the"
    " model is dense"
)


class Loss(msgspec.Struct, frozen=True):
    """Where the time of a step goes: kernels of one op, or the time between kernels. `least_ns`:
    what they take at least, each product the longer of its bytes and its FLOP; None where that is
    not known of all of them."""

    what: str
    of: str  # op, kernel (where no op is known) or gap
    dur_ns: int
    kernels: int
    least_ns: int | None


class Limit(msgspec.Struct, frozen=True):
    """The limit of one pass of the model. Bytes and FLOP are those that are known; `share` is
    `least_ns` / `dur_ns`, None if nothing is."""

    dur_ns: int  # from its first start to its last end
    products: int  # matrix products whose weights are known
    products_unknown: int  # kernels of products whose weights are not
    weight_bytes: int
    weight_source: str  # shapes, config or ""
    kv_tokens: int | None
    kv_bytes_per_token: int | None
    kv_bytes: int | None
    kv_layers: int
    kv_source: str  # attention, config or ""
    flop: int
    bytes_per_s: float | None
    memory_ns: int | None
    compute_ns: int | None
    least_ns: int | None
    share: float | None
    bound: str | None  # memory or compute
    cannot_tell: tuple[str, ...]
    remarks: tuple[str, ...]
    losses: tuple[Loss, ...]


def limit_of(
    trace: Trace,
    rows: Rows,
    kv_tokens: int | None,
    config: Mapping[str, Any] | None = None,
    given: Mapping[str, float] | None = None,
    asked: Asked | None = None,
    layers: Layers | None = None,
) -> Limit:
    """The limit of a pass with these GPU events, all of one device; at least one. `given`: figures
    of the device that override those of the table (see `peak_of`); `asked` and `layers`: of the
    step, for what the configuration tells about it."""
    start, end = trace.start[rows], trace.end[rows]
    ns = int(end.max() - start.min())
    products, remarks = products_of(trace, rows), []
    not_dense = ""
    if config is not None and not products.known and products.unknown:
        new, batch = (asked.new_tokens, asked.batch) if asked else (None, None)
        products, told = by_configuration(trace, products, layers, config, new, batch)
        not_dense = "" if products.known else told
        remarks += [told] if products.known else []
    cache = cache_of(trace, rows, kv_tokens, products.shapes, config)
    kv = None
    if cache.bytes_per_token is not None and kv_tokens is not None:
        kv = cache.bytes_per_token * kv_tokens
    device = trace.track_of(int(rows[0])).pid
    known = next(
        (own for own in peaks_of_devices(trace, given or {}) if own.device == device), None
    )
    peak = known.peak if known else None
    if known and known.name is None and peak and not peak.given:
        remarks.append(
            f"the device has no name in the trace: by its compute units and memory, it is an"
            f" {peak.device}"
        )
    memory, compute = _memory(products.weight_bytes + (kv or 0), peak), _compute(products, peak)
    least = max((t for t in (memory, compute) if t is not None), default=None)
    missing = [*_missing(products, peak, memory, not_dense, config is not None)]
    if kv is None:
        why = cache.missing or "no annotation counts the tokens that attention reads"
        missing.append(f"keys and values are not counted: {why}")
    return Limit(
        dur_ns=ns,
        products=products.known,
        products_unknown=products.unknown,
        weight_bytes=products.weight_bytes,
        weight_source=products.source if products.known else "",
        kv_tokens=kv_tokens,
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
        remarks=(*remarks, *([cache.remark] if kv is not None and cache.remark else [])),
        losses=_losses(trace, rows, ns, _least_by_op(products, peak, memory, kv, asked)),
    )


def _memory(moved: int, peak: Peak | None) -> int | None:
    """Nanoseconds to read so much, rounded down; None if it may have stayed in the cache."""
    if peak is None or not peak.bytes_per_s or moved <= peak.cache_bytes:
        return None
    return int(moved * NS / peak.bytes_per_s)


def _compute(products: Products, peak: Peak | None) -> int | None:
    """Nanoseconds for the products, at the rate of their element type; None if one is unknown."""
    if peak is None or not products.flop:
        return None
    rates = {dtype: peak.flop_per_s(_kind(dtype)) for dtype in products.flop}
    known = [flop / rate for dtype, flop in products.flop.items() if (rate := rates[dtype])]
    return int(sum(known) * NS) if known else None


def _kind(dtype: str) -> str:
    """The fastest arithmetic for inputs of this type."""
    if dtype.startswith("fp8"):
        return "fp8"
    return {"fp32": "tf32"}.get(dtype, dtype)


def _missing(
    products: Products, peak: Peak | None, memory: int | None, not_dense: str, configured: bool
) -> list[str]:
    said = []
    if not products.known:
        given = not_dense or ("" if configured else NEEDED)
        said.append(
            "weights are not counted: no matrix product has recorded shapes"
            + (f" ({given})" if given else "")
        )
    elif products.unknown:
        said.append(
            f"the weights of {plural(products.unknown, 'kernel')} of products are not counted:"
            " their shapes, or the experts that were routed to, are not recorded"
        )
    if peak is None:
        said.append("the peaks of the device are not known (--peak bandwidth=... gives them)")
    elif memory is None and products.known:
        said.append("so little is read that it may stay in the cache: memory is no limit")
    return said


def _least_by_op(
    products: Products, peak: Peak | None, memory: int | None, kv: int | None, asked: Asked | None
) -> dict[str, tuple[int, float]]:
    """By op: how many of its products are known, and what these take at least, in ns. ATTENTION:
    what reading the keys and values takes, where attention of few tokens does little else."""
    if peak is None:
        return {}
    rate = peak.bytes_per_s if memory is not None else None
    found: dict[str, tuple[int, float]] = {}
    for one in products.each:
        count, ns = found.get(one.op, (0, 0.0))
        found[one.op] = count + 1, ns + _least(one, peak, rate)
    if kv is not None and rate and asked and asked.phase in (Phase.DECODE, Phase.VERIFY):
        found[ATTENTION] = 1, kv * NS / rate
    return found


def _least(product: Product, peak: Peak, bytes_per_s: float | None) -> float:
    """Nanoseconds; without `bytes_per_s` its weights may be in the cache."""
    flop_per_s = peak.flop_per_s(_kind(product.dtype))
    compute = product.flop * NS / flop_per_s if flop_per_s else 0.0
    return max(compute, product.bytes * NS / bytes_per_s if bytes_per_s else 0.0)


def _losses(
    trace: Trace, rows: Rows, ns: int, least: Mapping[str, tuple[int, float]]
) -> tuple[Loss, ...]:
    """By op, or where none is known by kernel, with the time between kernels as one more; the
    largest loss first. The keys and values are read by the op of attention, if there is only
    one."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    ops = trace.op[kernels]
    named = np.where(ops >= 0, trace.name[ops], -1 - trace.name[kernels])
    words = {trace.names[name] for name in np.unique(named).tolist() if name >= 0}
    attention = [word for word in words if "att" in word.lower()]
    found = []
    for name in np.unique(named).tolist():
        own = kernels[named == name]
        what = trace.names[name if name >= 0 else -1 - name]
        known, floor = least.get(ATTENTION if attention == [what] else what, (0, 0.0))
        if attention != [what] and known < len(np.unique(trace.op[own])):
            known = 0
        of = "op" if name >= 0 else "kernel"
        spent = int(trace.dur[own].sum())
        found.append(Loss(what, of, spent, len(own), int(floor) if known else None))
    gaps = ns - union_length(trace.start[rows], trace.end[rows])
    found.append(Loss(BETWEEN, "gap", gaps, 0, 0))
    found.sort(key=lambda loss: -(loss.dur_ns - (loss.least_ns or 0)))
    return tuple(found)
