"""The steps of a server as text, and as a JSON document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

import msgspec

from fusetui.analysis.serving.answer import PhaseLimit, Serving, Step
from fusetui.analysis.serving.between import Between
from fusetui.analysis.serving.layers import Experts, Layers
from fusetui.analysis.serving.limit import Limit, Loss
from fusetui.gpu.kernel_names import short_name
from fusetui.text.figures import count, duration, percent, plural, quantity, several
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, left_out, table
from fusetui.trace import Trace

STEPS = 8  # that are listed: the outliers, then the longest
LOSSES, DOINGS, SLOW = 5, 5, 3
LARGEST = 1 << 53
LONGEST_NAME = 400
FOLDERS = re.compile(r"^[^<(]*/(?=[^/]*\.py\()")
"""Those of the file of a Python frame; its name, line and function follow."""
TIMES = (
    Column("phase", left=True),
    *(Column(title) for title in ("steps", "p50", "p90", "p99", "longest")),
)
STEP = (
    Column("model"),
    Column("from", spare=2),
    Column("phase", left=True),
    Column("batch"),
    Column("tokens", spare=1),
    Column("cached", spare=3),
    Column("captured", spare=4),
    Column("launched by", left=True),
)


def serving_text(found: Serving, width: int) -> str:
    """At most some 40 lines."""
    blocks = [_phases(found, width), _steps(found, width)]
    blocks += ["\n".join(_limit(found, one, width)) for one in found.limits]
    if found.between:
        blocks.append("\n".join(_between(found.between, width)))
    blocks += ["\n".join(_wrapped(f"Cannot tell: {text}", width)) for text in found.missing]
    return "\n\n".join(block for block in blocks if block)


def serving_json(found: Serving, trace: Trace) -> dict[str, Any]:
    """The keys of docs/json.md."""
    document: dict[str, Any] = msgspec.to_builtins(found)
    for one in document["limits"]:
        one["limit"] = {key: _exact(value) for key, value in one["limit"].items()}
    return {"base_ns": str(trace.begin_ns), **document}


def _exact(value: Any) -> Any:
    """An integer that a double cannot hold, rounded to one; such FLOP are possible."""
    return float(value) if isinstance(value, int) and value > LARGEST else value


def _phases(found: Serving, width: int) -> str:
    rows = [
        (
            one.phase,
            count(one.steps),
            *map(duration, (one.p50_ns, one.p90_ns, one.p99_ns, one.max_ns)),
        )
        for one in found.phases
    ]
    return table(TIMES, rows, width) if rows else ""


def _steps(found: Serving, width: int) -> str:
    order = sorted(found.steps, key=lambda step: (not step.outlier, -step.model_ns))
    rows = [_step_row(step) for step in order[:STEPS]]
    if not rows:
        return ""
    return "\n".join(
        [
            table(STEP, rows, width, 12),
            *left_out(len(order) - STEPS, "step", JSON_ALL),
            *(line for step in order[:STEPS] for line in _wrapped(_why_long(step), width)),
        ]
    )


def _step_row(step: Step) -> tuple[str, ...]:
    return (
        duration(step.model_ns),
        duration(step.start_ns),
        step.phase,
        _number(step.batch),
        _number(step.new_tokens),
        _number(step.cached_tokens),
        _number(step.captured_tokens),
        step.mode if step.replays < 2 else f"{step.replays} graphs",
    )


def _why_long(step: Step) -> str:
    """Of an outlier, in a line of its own; else empty."""
    if not step.outlier:
        return ""
    because = printable("; ".join(step.because)) or "nothing that was recorded explains it"
    return f"The step from {duration(step.start_ns)} is long: {because}."


def _number(value: int | None) -> str:
    return "-" if value is None else count(value)


def _limit(found: Serving, one: PhaseLimit, width: int) -> Iterator[str]:
    limit, step = one.limit, found.steps[one.step]
    article = "An" if one.phase[0] in "iu" else "A"
    what = f"{article} {one.phase} step"
    yield from _wrapped(f"{what} ({printable(step.name)}): {_verdict(limit)}", width)
    for line in _amounts(limit):
        yield from _wrapped(f"  {line}", width)
    layers = _layers(one.layers) if one.layers else "Layers: no sequence of kernels repeats."
    yield from _wrapped(f"  {layers}", width)
    if one.experts:
        yield from _wrapped(f"  {_experts(one.experts)}", width)
    lost = [_loss(loss) for loss in limit.losses if loss.least_ns is not None]
    rest = [_loss(loss) for loss in limit.losses if loss.least_ns is None]
    if any(loss.least_ns is not None and loss.kernels for loss in limit.losses):
        yield from _wrapped(f"  Largest losses: {several(lost, LOSSES)}.", width)
        if rest:
            told = f"Most time of what has no known limit: {several(rest, LOSSES)}"
            yield from _wrapped(f"  {told}.", width)
    else:
        losses = several([_loss(loss) for loss in limit.losses], LOSSES)
        yield from _wrapped(f"  Most time: {losses}.", width)
    if limit.cannot_tell:
        yield from _wrapped(f"  Cannot tell: {'; '.join(limit.cannot_tell)}.", width)


def _verdict(limit: Limit) -> str:
    took = duration(limit.dur_ns)
    if limit.least_ns is None:
        return f"{took}; its limit is not known."
    least, what = duration(limit.least_ns), "memory" if limit.bound == "memory" else "arithmetic"
    if limit.cannot_tell:
        return f"{took}, at least {least} for what is known of it, by the {what}."
    share = percent(limit.least_ns, limit.dur_ns)
    return f"{took}, at least {least}: {share} of what the {what} allows."


def _amounts(limit: Limit) -> Iterator[str]:
    if limit.products:
        yield (
            f"{plural(limit.products, 'matrix product')} read {_bytes(limit.weight_bytes)} of"
            f" weights{_at(limit.weight_bytes, limit.bytes_per_s)}{_computed(limit)}."
        )
    if limit.kv_bytes is not None and limit.kv_bytes_per_token is not None:
        source = "the shapes of attention" if limit.kv_source == "attention" else "config.json"
        yield (
            f"{plural(limit.kv_tokens or 0, 'token')} of {count(limit.kv_bytes_per_token)} B of"
            f" keys and values in {plural(limit.kv_layers, 'layer')}, by {source}, are"
            f" {_bytes(limit.kv_bytes)}{_at(limit.kv_bytes, limit.bytes_per_s)}."
        )
    for remark in limit.remarks:
        yield f"{remark[0].upper()}{remark[1:]}."


def _at(moved: int, bytes_per_s: float | None) -> str:
    """` (2.842 ms at 5.325 TB/s)`; empty if the bandwidth is not known."""
    if not bytes_per_s:
        return ""
    return f" ({duration(int(moved * 10**9 / bytes_per_s))} at {quantity(bytes_per_s, 'B/s')})"


def _computed(limit: Limit) -> str:
    if not limit.flop:
        return ""
    return f" and compute {quantity(limit.flop, 'FLOP')}{_took(limit.compute_ns)}"


def _took(ns: int | None) -> str:
    return "" if ns is None else f" ({duration(ns)})"


def _bytes(value: int) -> str:
    return quantity(value, "B")


def _layers(layers: Layers) -> str:
    median = layers.median_ns
    slow = [
        f"layer {layer.number} is {percent(layer.dur_ns - median, median)} slower"
        for layer in layers.slow
    ]
    told = several(slow, SLOW) if slow else "none is 5 % slower than the median"
    return (
        f"Layers by repetition (several that alternate count as one): {layers.count} of"
        f" {layers.kernels} kernels, the median {duration(median)}; {told}."
        f" {plural(layers.others, 'other kernel')}: {duration(layers.others_ns)}."
    )


def _experts(found: Experts) -> str:
    kernel = printable(short_name(found.name))
    return (
        f"Experts: {plural(found.kernels, 'kernel')} take {duration(found.total_ns)},"
        f" {percent(found.share, 1)} of all. The {found.runs} runs of {kernel} take"
        f" {duration(found.median_ns)} at the median and {duration(found.max_ns)} at most (run"
        f" {found.slowest}); the tokens of each expert are not recorded."
    )


def _loss(loss: Loss) -> str:
    lost = duration(loss.dur_ns - (loss.least_ns or 0))
    if not loss.kernels:
        return f"{lost} {loss.what}"
    known = "" if loss.least_ns is None else f" of {duration(loss.dur_ns)}"
    what = short_name(loss.what) if loss.of == "kernel" else loss.what
    return f"{lost}{known} in {printable(what)}"


def _between(between: Between, width: int) -> Iterator[str]:
    parts = [("kernels", between.compute_ns), ("communication", between.communication_ns)]
    parts += [("copies", between.copy_ns), *between.idle.items()]
    told = ", ".join(f"{name.replace('_', ' ')} {duration(ns)}" for name, ns in parts if ns)
    yield from _wrapped(f"{_which(between)}: {told}.", width)
    for one in between.doing[:DOINGS]:
        what = printable(FOLDERS.sub("", one.what[:LONGEST_NAME]))
        yield from _wrapped(f"  {duration(one.dur_ns)} {one.kind}: {what}", width)


def _which(between: Between) -> str:
    total = duration(between.total_ns)
    if between.median_ns is not None:
        median = duration(between.median_ns)
        return (
            f"Between passes of the model: {plural(between.count, 'gap')}, the median {median},"
            f" {total} in all"
        )
    sides = (between.before_ns or 0, "before"), (between.after_ns or 0, "after")
    told = " and ".join(f"{duration(ns)} {where} it" for ns, where in sides if ns)
    return f"Around the pass of the model, {told} are recorded"


def _wrapped(text: str, width: int) -> Sequence[str]:
    indent = "    " if text.startswith("  ") else "  "
    return wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
