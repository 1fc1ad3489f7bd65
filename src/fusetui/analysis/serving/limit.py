"""The least time that a step can take: its weights and its keys and values have to be
read once, and its products computed, at the most that the device can do
(roofline/peaks.py).

It is a lower bound: whatever is not known is left out, and said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from fusetui.analysis.questions.server_steps import ServerPhase
from fusetui.analysis.serving.config import (
    ConfiguredProducts,
    ModelConfig,
    by_configuration,
)
from fusetui.analysis.serving.kv_cache import KeysAndValues, cache_of, is_attention
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.passes import Pass
from fusetui.analysis.serving.products import Product, Products, products_of
from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.many import DevicePeak, peaks_of_devices
from fusetui.gpu.roofline.peaks import NO_PEAKS, Peak
from fusetui.text.cutting import with_capital
from fusetui.text.figures import plural
from fusetui.trace.layout.steps import model_pass
from fusetui.trace.model.arrays import Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union_length

BETWEEN_KERNELS = "between kernels"
HOW_TO_GIVE_SHAPES = (
    "Give them with --captured-by and a trace of the graph capture, or with --model-config"
    " for a dense model"
)


class Loss(msgspec.Struct, frozen=True):
    """Where the time of a step goes: kernels of one op, or the time between kernels.
    `least_ns`: their least time, for each product the longer of its bytes and its
    FLOP; None unless known for all of them."""

    what: str
    of: Literal["op", "kernel", "gap"]  # kernel where no op is known
    dur_ns: int
    kernels: int
    least_ns: int | None

    @property
    def lost_ns(self) -> int:
        """What it takes longer than the least; all of it where the least is not
        known."""
        return self.dur_ns - (self.least_ns or 0)


class Limit(msgspec.Struct, frozen=True):
    """The limit of one pass of the model, by its known bytes and FLOP. `share` is
    `least_ns` / `dur_ns`, None if none are known."""

    dur_ns: int  # model_pass
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


def limit_of(
    trace: Trace,
    step: Pass,
    layers: Layers | None = None,
    model: ModelConfig | None = None,
    given: Mapping[str, float] = NO_PEAKS,
) -> Limit:
    """The limit of a pass, all of one device; of at least one event. `given`: figures
    of the device that override those of the table (see `peak_of`)."""
    rows = step.model
    dur_ns = model_pass(trace, rows).span_ns
    configured = _products(trace, step, layers, model)
    products = configured.products
    cache = cache_of(trace, rows, step.asked.kv_tokens, products.shapes, model)
    kv_bytes = cache.bytes_of(step.asked.kv_tokens)
    device = _device_of(trace, rows, given)
    peak = device.peak if device else None
    needs = _Needs(products=products, kv_bytes=kv_bytes, peak=peak)
    least_ns = needs.least_ns
    uncounted = [
        *_uncounted(needs, configured.missing),
        *_uncounted_cache(needs, cache),
    ]
    return Limit(
        dur_ns=dur_ns,
        products=products.known,
        products_unknown=products.unknown,
        weight_bytes=products.weight_bytes,
        weight_source=products.source if products.known else "",
        kv_tokens=step.asked.kv_tokens,
        kv_bytes_per_token=cache.bytes_per_token,
        kv_bytes=kv_bytes,
        kv_layers=cache.layers,
        kv_source=cache.source,
        flop=sum(products.flop.values()),
        bytes_per_s=peak.bytes_per_s if peak else None,
        memory_ns=needs.memory_ns,
        compute_ns=needs.compute_ns,
        least_ns=least_ns,
        share=least_ns / dur_ns if least_ns is not None and dur_ns else None,
        bound=_bound(least_ns, needs.memory_ns),
        cannot_tell=tuple(uncounted),
        remarks=tuple(_remarks(configured, device, needs, cache)),
        losses=_losses(trace, rows, dur_ns, _least_times(needs, step.asked.phase)),
    )


def _uncounted_cache(needs: _Needs, cache: KeysAndValues) -> Iterator[str]:
    """That keys and values are left out, and why, if they are."""
    if needs.kv_bytes is None:
        missing = cache.missing or (
            "no annotation has the number of tokens that attention reads"
        )
        yield f"keys and values are not counted: {missing}"


def _remarks(
    configured: ConfiguredProducts,
    device: DevicePeak | None,
    needs: _Needs,
    cache: KeysAndValues,
) -> Iterator[str]:
    """What the limit takes for granted of the configuration, the device and the cache,
    in sentences."""
    if configured.remark:
        yield configured.remark
    guessed = _guessed_device(device)
    if guessed:
        yield (
            f"the device is probably an {guessed}, judging by its compute units and"
            " memory; the trace does not name it"
        )
    if needs.kv_bytes is not None and cache.remark:
        yield cache.remark


def _products(
    trace: Trace, step: Pass, layers: Layers | None, model: ModelConfig | None
) -> ConfiguredProducts:
    """The products of a pass, by the configuration where the trace knows none of
    them."""
    products = products_of(trace, step.model)
    if model is None:
        return ConfiguredProducts(products=products, missing=HOW_TO_GIVE_SHAPES)
    if products.known or not products.unknown:
        return ConfiguredProducts(products=products)
    return by_configuration(trace, products, layers, model, step.asked)


def _device_of(
    trace: Trace, rows: Rows, given: Mapping[str, float]
) -> DevicePeak | None:
    """The peaks of the device of these rows; None if it ran no kernel."""
    pid = trace.track_of(int(rows[0])).pid
    for device in peaks_of_devices(trace, given):
        if device.device == pid:
            return device
    return None


def _guessed_device(device: DevicePeak | None) -> str:
    """What a device is called whose name is not recorded, but whose peaks are known
    without it; "" for any other."""
    if device is None or device.name is not None:
        return ""
    if device.peak is None or device.peak.given:
        return ""
    return device.peak.device


def _bound(
    least_ns: int | None, memory_ns: int | None
) -> Literal["memory", "compute"] | None:
    """What the least time is that of; None without one."""
    if least_ns is None:
        return None
    return "memory" if least_ns == memory_ns else "compute"


class _Needs(msgspec.Struct, frozen=True):
    """What a step has to read and compute, and the peaks of its device."""

    products: Products
    kv_bytes: int | None
    peak: Peak | None

    @property
    def bytes_per_s(self) -> float | None:
        """Of the memory; None if it is not known, or if all may have stayed in the
        cache."""
        if self.peak is None or self.moved_bytes <= self.peak.cache_bytes:
            return None
        return self.peak.bytes_per_s

    @property
    def moved_bytes(self) -> int:
        """The weights, keys and values that have to be read."""
        return self.products.weight_bytes + (self.kv_bytes or 0)

    @property
    def memory_ns(self) -> int | None:
        """How long it takes to read `moved_bytes` (ns, rounded down); None if memory is
        no limit."""
        if not self.bytes_per_s:
            return None
        return int(self.moved_bytes * NS / self.bytes_per_s)

    @property
    def compute_ns(self) -> int | None:
        """How long the products take, at the rate of their element type (ns, rounded
        down); None if none has a rate."""
        seconds = []
        for dtype, flop in self.products.flop.items():
            flop_per_s = self.flop_per_s(dtype)
            if flop_per_s:
                seconds.append(flop / flop_per_s)
        return int(sum(seconds) * NS) if seconds else None

    @property
    def least_ns(self) -> int | None:
        """The longer of both times; None if neither is known."""
        times_ns = [ns for ns in (self.memory_ns, self.compute_ns) if ns is not None]
        return max(times_ns, default=None)

    def of_product_ns(self, product: Product) -> float:
        """How long a product takes at least (ns): the longer of its bytes and its FLOP;
        0 for a rate that is not known."""
        flop_per_s = self.flop_per_s(product.dtype)
        compute_ns = product.flop * NS / flop_per_s if flop_per_s else 0.0
        bytes_per_s = self.bytes_per_s
        read_ns = product.bytes * NS / bytes_per_s if bytes_per_s else 0.0
        return max(compute_ns, read_ns)

    def flop_per_s(self, dtype: str) -> float | None:
        """The rate of the fastest arithmetic for inputs of this type; None if it is not
        known."""
        if self.peak is None:
            return None
        if dtype.startswith("fp8"):
            return self.peak.flop_per_s("fp8")
        return self.peak.flop_per_s("tf32" if dtype == "fp32" else dtype)


def _uncounted(needs: _Needs, why_no_weights: str) -> Iterator[str]:
    """What the limit leaves out, but for keys and values."""
    products = needs.products
    if not products.known:
        reason = f". {with_capital(why_no_weights)}" if why_no_weights else ""
        yield (
            "weights are not counted, because no matrix product has recorded shapes"
            + reason
        )
    elif products.unknown:
        yield (
            f"the weights of {plural(products.unknown, 'product')} are not counted, because"
            " their shapes or experts were not recorded"
        )
    if needs.peak is None:
        yield "the peak rates of the device are unknown (set them with --peak bandwidth=...)"
    elif needs.memory_ns is None and products.known:
        yield "memory is no limit, because so little is read that it may stay in the cache"


class _LeastTimes(NamedTuple):
    """What the products of each op take at least, and attention, in ns."""

    products: dict[str, int]  # how many are known, by op
    products_ns: dict[str, float]  # of these, by op
    attention_ns: float | None  # None if that is not known


def _least_times(needs: _Needs, phase: ServerPhase) -> _LeastTimes:
    """What the products of each op take at least, and attention; nothing without peaks.
    Attention of a decode, or of the verification of drafts, reads the keys and values
    and does little else."""
    if needs.peak is None:
        return _LeastTimes(products={}, products_ns={}, attention_ns=None)
    products: Counter[str] = Counter()
    products_ns: defaultdict[str, float] = defaultdict(float)
    for product in needs.products.each:
        products[product.op] += 1
        products_ns[product.op] += needs.of_product_ns(product)
    attention_ns = None
    reads_only = phase in (ServerPhase.DECODE, ServerPhase.VERIFY)
    if reads_only and needs.kv_bytes is not None and needs.bytes_per_s:
        attention_ns = needs.kv_bytes * NS / needs.bytes_per_s
    return _LeastTimes(
        products=dict(products),
        products_ns=dict(products_ns),
        attention_ns=attention_ns,
    )


def _losses(
    trace: Trace, rows: Rows, dur_ns: int, least: _LeastTimes
) -> tuple[Loss, ...]:
    """Where the time of a pass goes, the largest loss first: the kernels by op, or where
    none is known by kernel, and the time between kernels. `rows`: the GPU events of the
    pass; `dur_ns`: how long it takes."""
    kernels = rows[trace.role[rows] == Role.KERNEL]
    has_op = trace.op[kernels] >= 0
    losses = _losses_of_kernels(trace, kernels[~has_op])
    losses += _losses_of_ops(trace, kernels[has_op], least)
    busy_ns = union_length(trace.start[rows], trace.end[rows])
    gaps = Loss(
        what=BETWEEN_KERNELS, of="gap", dur_ns=dur_ns - busy_ns, kernels=0, least_ns=0
    )
    losses.append(gaps)
    return tuple(sorted(losses, key=lambda loss: -loss.lost_ns))


def _losses_of_kernels(trace: Trace, kernels: Rows) -> list[Loss]:
    """The time of these kernels by their own names. The last name comes first: so it
    stays for equal losses."""
    names = trace.name[kernels]
    losses = []
    for name in reversed(distinct(names).tolist()):
        of_name = kernels[names == name]
        loss = Loss(
            what=trace.names[name],
            of="kernel",
            dur_ns=int(trace.dur[of_name].sum()),
            kernels=len(of_name),
            least_ns=None,
        )
        losses.append(loss)
    return losses


def _losses_of_ops(trace: Trace, kernels: Rows, least: _LeastTimes) -> list[Loss]:
    """The time of these kernels by the names of their ops. The keys and values are read
    by the op of attention, if there is only one."""
    op_names = trace.name[trace.op[kernels]]
    names = distinct(op_names).tolist()
    attention = [name for name in names if is_attention(trace.names[name])]
    losses = []
    for name in names:
        of_name = kernels[op_names == name]
        op = trace.names[name]
        calls = len(distinct(trace.op[of_name]))
        least_ns: float | None = None
        if attention == [name]:
            least_ns = least.attention_ns
        elif least.products.get(op, 0) >= calls:
            least_ns = least.products_ns[op]
        loss = Loss(
            what=op,
            of="op",
            dur_ns=int(trace.dur[of_name].sum()),
            kernels=len(of_name),
            least_ns=None if least_ns is None else int(least_ns),
        )
        losses.append(loss)
    return losses
