"""Computes the least time that a step can take.

A step has to read its weights, keys and values once, and to compute its products. The
least time is what this takes at the peak rates of the device (roofline/peaks.py). It is
a lower bound: what is not known is left out, and the answer says so.
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
    derive_products,
)
from fusetui.analysis.serving.kv_cache import (
    KeyValueCache,
    is_attention,
    measure_key_value_cache,
)
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.passes import Pass
from fusetui.analysis.serving.products import Product, Products, find_products
from fusetui.gpu.roofline.inputs import NS
from fusetui.gpu.roofline.many import DevicePeak, find_peaks_of_devices
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
    "Provide the shapes with --captured-by and a trace of the graph capture, or with "
    "--model-config for a dense model"
)


class Loss(msgspec.Struct, frozen=True):
    """Part of the time of a step: the kernels of one op, or the time between kernels.

    `least_ns` is how long the part takes at least: the sum over its products, each of
    which takes the longer of the time for its bytes and that for its FLOP. It is None
    unless it is known for all of them.
    """

    what: str
    of: Literal["op", "kernel", "gap"]  # kernel where no op is known
    dur_ns: int
    kernels: int
    least_ns: int | None

    @property
    def lost_ns(self) -> int:
        """How much longer than necessary the part takes, in ns.

        If the least time is not known, all of its time counts as lost.
        """
        return self.dur_ns - (self.least_ns or 0)


class Limit(msgspec.Struct, frozen=True):
    """The least time of one pass of the model, by its known bytes and FLOP.

    `least_ns` is the longer of `memory_ns` and `compute_ns`, and `share` is `least_ns`
    / `dur_ns`. A field is None where the trace does not tell it.
    """

    dur_ns: int  # model_pass
    products: int  # matrix products whose weights are known
    products_unknown: int  # kernels of products whose weights are not known
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
    cannot_tell: tuple[str, ...]  # what is left out, and why
    remarks: tuple[str, ...]  # what is assumed
    losses: tuple[Loss, ...]  # the largest first


def compute_limit(
    trace: Trace,
    step: Pass,
    layers: Layers | None = None,
    model: ModelConfig | None = None,
    peak_overrides: Mapping[str, float] = NO_PEAKS,
) -> Limit:
    """Compute the least time of one pass of the model, and where more time goes.

    The least time is the longer one of two: of reading the weights, keys and values
    once at the peak bandwidth, and of the FLOP of the products at the peak rates. E.g.
    16 GB at 3.2 TB/s take at least 5 ms.

    Args:
        trace: The trace of the server.
        step: The pass. It has at least one event, and all are of one device.
        layers: The layers of the pass, if they were recognized.
        model: The configuration of the model, if the user gave one.
        peak_overrides: Peak figures of the device that replace those of the built-in
            table (see `peak_of`).
    """
    rows = step.model_rows
    kv_tokens = step.requested.kv_tokens
    dur_ns = model_pass(trace, rows).span_ns

    configured = _find_products_of_pass(trace, step, layers, model)
    products = configured.products
    cache = measure_key_value_cache(trace, rows, kv_tokens, products.shapes, model)
    kv_bytes = cache.bytes_of(kv_tokens)
    device = _find_device(trace, rows, peak_overrides)
    peak = device.peak if device else None

    needs = _Needs(products=products, kv_bytes=kv_bytes, peak=peak)
    least_ns = needs.least_ns
    share: float | None = None
    if least_ns is not None and dur_ns > 0:
        share = least_ns / dur_ns

    uncounted = [
        *_list_uncounted_parts(needs, configured.missing),
        *_explain_uncounted_cache(needs, cache),
    ]
    assumptions = _list_assumptions(configured, device, needs, cache)
    least_times = _compute_least_times(needs, step.requested.phase)
    return Limit(
        dur_ns=dur_ns,
        products=products.known,
        products_unknown=products.unknown,
        weight_bytes=products.weight_bytes,
        weight_source=products.source if products.known else "",
        kv_tokens=kv_tokens,
        kv_bytes_per_token=cache.bytes_per_token,
        kv_bytes=kv_bytes,
        kv_layers=cache.layers,
        kv_source=cache.source,
        flop=sum(products.flop.values()),
        bytes_per_s=peak.bytes_per_s if peak else None,
        memory_ns=needs.memory_ns,
        compute_ns=needs.compute_ns,
        least_ns=least_ns,
        share=share,
        bound=_determine_bound(least_ns, needs.memory_ns),
        cannot_tell=tuple(uncounted),
        remarks=tuple(assumptions),
        losses=_divide_into_losses(trace, rows, dur_ns, least_times),
    )


def _explain_uncounted_cache(needs: _Needs, cache: KeyValueCache) -> Iterator[str]:
    """Say why keys and values are left out of the limit, if they are."""
    if needs.kv_bytes is None:
        missing = cache.missing or (
            "no annotation gives the number of tokens that attention reads"
        )
        yield f"keys and values are not counted: {missing}"


def _list_assumptions(
    configured: ConfiguredProducts,
    device: DevicePeak | None,
    needs: _Needs,
    cache: KeyValueCache,
) -> Iterator[str]:
    """Say what the least time of a pass takes for granted, one phrase for each
    assumption.

    Args:
        configured: The products of the pass, with a remark if they follow from
            the configuration.
        device: The peak rates of the device; None if it ran no kernel.
        needs: What the pass has to read and compute.
        cache: The bytes of keys and values for a token, with a remark if they are
            assumed.
    """
    if configured.remark:
        yield configured.remark
    guessed_name = _name_guessed_device(device)
    if guessed_name:
        yield (
            f"the device is probably an {guessed_name}, judging by its compute units and"
            " memory; the trace does not name it"
        )
    if needs.kv_bytes is not None and cache.remark:
        yield cache.remark


def _find_products_of_pass(
    trace: Trace, step: Pass, layers: Layers | None, model: ModelConfig | None
) -> ConfiguredProducts:
    """Return the matrix products of one pass of a model, with their weights if these
    are known.

    If the trace does not tell the weights of any product, they are derived from the
    configuration.

    Args:
        trace: The trace of the server.
        step: The pass.
        layers: The layers of the pass, if they were recognized.
        model: The configuration of the model, if the user gave one.
    """
    products = find_products(trace, step.model_rows)
    if model is None:
        return ConfiguredProducts(products=products, missing=HOW_TO_GIVE_SHAPES)
    if products.known or not products.unknown:
        return ConfiguredProducts(products=products)
    return derive_products(trace, products, layers, model, step.requested)


def _find_device(
    trace: Trace, rows: Rows, peak_overrides: Mapping[str, float]
) -> DevicePeak | None:
    """Return the peak rates of the device that ran these rows.

    Returns None if the device ran no kernel.
    """
    pid = trace.track_of(int(rows[0])).pid
    for device in find_peaks_of_devices(trace, peak_overrides):
        if device.device == pid:
            return device
    return None


def _name_guessed_device(device: DevicePeak | None) -> str:
    """Return the name of a device that was recognized by its properties alone.

    Returns "" if the trace names the device, if it was not recognized, or if the user
    gave its peak rates.
    """
    if device is None or device.name is not None:
        return ""
    if device.peak is None or device.peak.overridden:
        return ""
    return device.peak.device


def _determine_bound(
    least_ns: int | None, memory_ns: int | None
) -> Literal["memory", "compute"] | None:
    """Tell whether memory or compute determines the least time; None without one."""
    if least_ns is None:
        return None
    return "memory" if least_ns == memory_ns else "compute"


class _Needs(msgspec.Struct, frozen=True):
    """What a step has to read and to compute, and the peak rates of its device."""

    products: Products
    kv_bytes: int | None  # keys and values that attention reads
    peak: Peak | None

    @property
    def bytes_per_s(self) -> float | None:
        """The peak bandwidth of the memory.

        It is None if it is not known, or if so little is read that all of it may have
        stayed in the cache.
        """
        if self.peak is None or self.moved_bytes <= self.peak.cache_bytes:
            return None
        return self.peak.bytes_per_s

    @property
    def moved_bytes(self) -> int:
        """The bytes of weights, keys and values that have to be read."""
        return self.products.weight_bytes + (self.kv_bytes or 0)

    @property
    def memory_ns(self) -> int | None:
        """How long it takes to read `moved_bytes`, in ns, rounded down.

        It is None if memory is no limit, or its bandwidth is not known.
        """
        if not self.bytes_per_s:
            return None
        return int(self.moved_bytes * NS / self.bytes_per_s)

    @property
    def compute_ns(self) -> int | None:
        """How long the products take at the peak rates, in ns, rounded down.

        Each product counts at the rate of its element type. It is None if no rate is
        known for any of them.
        """
        seconds = []
        for dtype, flop in self.products.flop.items():
            flop_per_s = self.flop_per_s(dtype)
            if flop_per_s:
                seconds.append(flop / flop_per_s)
        return int(sum(seconds) * NS) if seconds else None

    @property
    def least_ns(self) -> int | None:
        """The longer of `memory_ns` and `compute_ns`; None if neither is known."""
        if self.memory_ns is None:
            return self.compute_ns
        if self.compute_ns is None:
            return self.memory_ns
        return max(self.memory_ns, self.compute_ns)

    def least_product_ns(self, product: Product) -> float:
        """Compute how long one product takes at least, in ns.

        That is the longer of the times for its bytes and for its FLOP. Where a rate is
        not known, that time counts as 0.
        """
        flop_per_s = self.flop_per_s(product.dtype)
        compute_ns = product.flop * NS / flop_per_s if flop_per_s else 0.0
        bytes_per_s = self.bytes_per_s
        read_ns = product.bytes * NS / bytes_per_s if bytes_per_s else 0.0
        return max(compute_ns, read_ns)

    def flop_per_s(self, dtype: str) -> float | None:
        """Return the peak rate of the fastest arithmetic for inputs of an element type.

        Returns None if it is not known.
        """
        if self.peak is None:
            return None
        if dtype.startswith("fp8"):  # such as fp8_e4m3
            return self.peak.flop_per_s("fp8")
        if dtype == "fp32":  # tensor cores compute it as TF32
            return self.peak.flop_per_s("tf32")
        return self.peak.flop_per_s(dtype)


def _list_uncounted_parts(needs: _Needs, why_no_weights: str) -> Iterator[str]:
    """Say what the limit leaves out, except for keys and values.

    Args:
        needs: What the step has to read and compute.
        why_no_weights: Why no weights are known, if so; "" for no further reason.
    """
    products = needs.products
    if not products.known:
        reason = f". {with_capital(why_no_weights)}" if why_no_weights else ""
        yield (
            "weights are not counted, because no matrix product has recorded shapes"
            + reason
        )
    elif products.unknown:
        yield (
            f"the weights of {plural(products.unknown, 'matrix product')} are not "
            "counted, because their shapes or experts were not recorded"
        )

    if needs.peak is None:
        yield "the peak rates of the device are unknown (set them with --peak bandwidth=...)"
    elif needs.memory_ns is None and products.known:
        yield "there is no memory limit, because the data read may fit in the cache"


class _LeastTimes(NamedTuple):
    """How long the products of each op, and attention, take at least."""

    products: dict[str, int]  # number of products with known weights, by op
    products_ns: dict[str, float]  # the least time of these products, by op
    attention_ns: float | None  # None if it is not known


def _compute_least_times(needs: _Needs, phase: ServerPhase) -> _LeastTimes:
    """Compute how long the products of each op, and attention, take at least.

    Attention has a known least time only in a decode or in the verification of drafts.
    There it reads the keys and values and does little else. Without peak rates nothing
    is known.

    Args:
        needs: What the pass has to read and compute.
        phase: The phase of the step.
    """
    if needs.peak is None:
        return _LeastTimes(products={}, products_ns={}, attention_ns=None)

    products: Counter[str] = Counter()
    products_ns: defaultdict[str, float] = defaultdict(float)
    for product in needs.products.each:
        products[product.op] += 1
        products_ns[product.op] += needs.least_product_ns(product)

    attention_ns = None
    mainly_reads = phase in (ServerPhase.DECODE, ServerPhase.VERIFY)
    if mainly_reads and needs.kv_bytes is not None and needs.bytes_per_s:
        attention_ns = needs.kv_bytes * NS / needs.bytes_per_s
    return _LeastTimes(
        products=dict(products),
        products_ns=dict(products_ns),
        attention_ns=attention_ns,
    )


def _divide_into_losses(
    trace: Trace, rows: Rows, dur_ns: int, least_times: _LeastTimes
) -> tuple[Loss, ...]:
    """Divide the time of a pass into parts, the one that loses the most time first.

    A part is the kernels of one op, or where no op is known the kernels of one name, or
    the time between kernels.

    Args:
        trace: The trace of the server.
        rows: The GPU events of the pass.
        dur_ns: How long the pass takes.
        least_times: How long its products and its attention take at least.
    """
    kernels = rows[trace.role[rows] == Role.KERNEL]
    has_op = trace.op[kernels] >= 0
    losses = _sum_losses_by_kernel(trace, kernels[~has_op])
    losses += _sum_losses_by_op(trace, kernels[has_op], least_times)

    busy_ns = union_length(trace.start[rows], trace.end[rows])
    gaps = Loss(
        what=BETWEEN_KERNELS, of="gap", dur_ns=dur_ns - busy_ns, kernels=0, least_ns=0
    )
    losses.append(gaps)
    return tuple(sorted(losses, key=lambda loss: -loss.lost_ns))


def _sum_losses_by_kernel(trace: Trace, kernels: Rows) -> list[Loss]:
    """Add up the time of kernels that no known op launched, by their own names. Their
    least time is not known, so all of it counts as lost."""
    name_indices = trace.name[kernels]
    losses = []
    # In reverse order, so that of equal losses the last name stands first.
    for name_index in reversed(distinct(name_indices).tolist()):
        kernels_of_name = kernels[name_indices == name_index]
        loss = Loss(
            what=trace.names[name_index],
            of="kernel",
            dur_ns=int(trace.dur[kernels_of_name].sum()),
            kernels=len(kernels_of_name),
            least_ns=None,
        )
        losses.append(loss)
    return losses


def _sum_losses_by_op(
    trace: Trace, kernels: Rows, least_times: _LeastTimes
) -> list[Loss]:
    """Add up the time of kernels by the names of the ops that launched them.

    The least time of attention counts only if a single op computes attention, as that
    one then reads all keys and values.

    Args:
        trace: The trace of the server.
        kernels: The kernels, each with a known op.
        least_times: How long the products and the attention take at least.

    Returns:
        One part of the pass for each name of an op.
    """
    op_name_of_kernel = trace.name[trace.op[kernels]]
    name_indices = distinct(op_name_of_kernel).tolist()
    op_names = [trace.names[name_index] for name_index in name_indices]
    attention_ops = [op_name for op_name in op_names if is_attention(op_name)]

    losses = []
    for name_index, op_name in zip(name_indices, op_names, strict=True):
        kernels_of_name = kernels[op_name_of_kernel == name_index]
        op_calls = len(distinct(trace.op[kernels_of_name]))
        are_all_products_known = least_times.products.get(op_name, 0) >= op_calls

        least_ns: float | None = None
        if attention_ops == [op_name]:
            least_ns = least_times.attention_ns
        elif are_all_products_known:
            least_ns = least_times.products_ns[op_name]

        loss = Loss(
            what=op_name,
            of="op",
            dur_ns=int(trace.dur[kernels_of_name].sum()),
            kernels=len(kernels_of_name),
            least_ns=None if least_ns is None else int(least_ns),
        )
        losses.append(loss)
    return losses
