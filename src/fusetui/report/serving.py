"""The steps of a server as text, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Any

import msgspec

from fusetui.analysis.serving.answer import PhaseLimit, Serving
from fusetui.analysis.serving.between import Between
from fusetui.analysis.serving.experts import Experts
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.limit import Limit, Loss
from fusetui.gpu.kernel_names import short_name
from fusetui.text.figures import count, duration, percent, plural, quantity, several
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, first_of, known, table_of, times
from fusetui.trace.model.ids import LARGEST

STEPS = 8  # that are listed: the outliers, then the longest
LOSSES, DOINGS, SLOW = 5, 5, 3
LONGEST_NAME = 400
FOLDERS = late(r"^[^<(]*/(?=[^/]*\.py\()")
"""Those of the file of a Python frame; its name, line and function follow."""
PHASES = (
    Column("phase", left=True, cell=lambda phase: phase.phase),
    Column("steps", cell=lambda phase: count(phase.steps)),
    *times(p50=0, p90=0, p99=0),
    Column("longest", cell=lambda phase: duration(phase.max_ns)),
)
STEP = (
    Column("model", cell=lambda step: duration(step.model_ns)),
    Column("from", spare=2, cell=lambda step: duration(step.start_ns)),
    Column("phase", left=True, cell=lambda step: step.phase),
    Column("batch", cell=lambda step: known(step.batch, count)),
    Column("tokens", spare=1, cell=lambda step: known(step.new_tokens, count)),
    Column("cached", spare=3, cell=lambda step: known(step.cached_tokens, count)),
    Column("captured", spare=4, cell=lambda step: known(step.captured_tokens, count)),
    Column(
        "launched by",
        True,
        cell=lambda s: s.mode if s.replays < 2 else f"{s.replays} graphs",
    ),
)


def serving_text(found: Serving, width: int) -> str:
    """At most some 40 lines."""
    phases = table_of(PHASES, found.phases, width) if found.phases else ""
    blocks = [phases, _steps(found, width)]
    blocks += [_wrapped(_limit(found, one), width) for one in found.limits]
    blocks.append(_wrapped(_between(found.between), width) if found.between else "")
    blocks += [_wrapped([f"Cannot tell: {text}"], width) for text in found.missing]
    return "\n\n".join(filter(None, blocks))


def serving_json(found: Serving) -> dict[str, Any]:
    """Integers that no double holds become doubles: such FLOP are possible."""
    document: dict[str, Any] = msgspec.to_builtins(found)
    for one in document["limits"]:
        for key, value in one["limit"].items():
            if isinstance(value, int) and value > LARGEST:
                one["limit"][key] = float(value)
    return document


def _steps(found: Serving, width: int) -> str:
    order = sorted(found.steps, key=lambda step: (not step.outlier, -step.model_ns))
    if not order:
        return ""
    lines = [first_of(STEP, order, STEPS, width, "step", JSON_ALL, least=12)]
    for step in order[:STEPS]:
        if step.outlier:
            because = (
                printable("; ".join(step.because))
                or "nothing that was recorded explains it"
            )
            told = f"The step from {duration(step.start_ns)} is long: {because}."
            lines.append(_wrapped([told], width))
    return "\n".join(lines)


def _limit(found: Serving, one: PhaseLimit) -> Iterator[str]:
    limit, step = one.limit, found.steps[one.step]
    article = "An" if one.phase[0] in "iu" else "A"
    yield f"{article} {one.phase} step ({printable(step.name)}): {_verdict(limit)}"
    yield from (f"  {line}" for line in _amounts(limit))
    layers = (
        _layers(one.layers) if one.layers else "Layers: no sequence of kernels repeats."
    )
    yield f"  {layers}"
    if one.experts:
        yield f"  {_experts(one.experts)}"
    lost = [_loss(loss) for loss in limit.losses if loss.least_ns is not None]
    rest = [_loss(loss) for loss in limit.losses if loss.least_ns is None]
    if any(loss.least_ns is not None and loss.kernels for loss in limit.losses):
        yield f"  Largest losses: {several(lost, LOSSES)}."
        if rest:
            yield f"  Most time of what has no known limit: {several(rest, LOSSES)}."
    else:
        yield f"  Most time: {several([_loss(loss) for loss in limit.losses], LOSSES)}."
    if limit.cannot_tell:
        yield f"  Cannot tell: {'; '.join(limit.cannot_tell)}."


def _verdict(limit: Limit) -> str:
    took = duration(limit.dur_ns)
    if limit.least_ns is None:
        return f"{took}; its limit is not known."
    least, what = (
        duration(limit.least_ns),
        "memory" if limit.bound == "memory" else "arithmetic",
    )
    if limit.cannot_tell:
        return f"{took}, at least {least} for what is known of it, by the {what}."
    share = percent(limit.least_ns, limit.dur_ns)
    return f"{took}, at least {least}: {share} of what the {what} allows."


def _amounts(limit: Limit) -> Iterator[str]:
    if limit.products:
        computed = (
            "" if limit.compute_ns is None else f" ({duration(limit.compute_ns)})"
        )
        flop = (
            f" and compute {quantity(limit.flop, 'FLOP')}{computed}"
            if limit.flop
            else ""
        )
        moved, took = _read(limit.weight_bytes, limit)
        yield f"{plural(limit.products, 'matrix product')} read {moved} of weights{took}{flop}."
    if limit.kv_bytes is not None and limit.kv_bytes_per_token is not None:
        source = (
            "the shapes of attention"
            if limit.kv_source == "attention"
            else "config.json"
        )
        yield (
            f"{plural(limit.kv_tokens or 0, 'token')} of {count(limit.kv_bytes_per_token)} B of"
            f" keys and values in {plural(limit.kv_layers, 'layer')}, by {source}, are"
            f" {''.join(_read(limit.kv_bytes, limit))}."
        )
    for remark in limit.remarks:
        yield f"{remark[0].upper()}{remark[1:]}."


def _read(moved: int, limit: Limit) -> tuple[str, str]:
    """`15.13 GB`, ` (2.842 ms at 5.325 TB/s)`; "" if the bandwidth is not known."""
    rate = limit.bytes_per_s
    took = duration(int(moved * 10**9 / rate)) if rate else ""
    return quantity(moved, "B"), f" ({took} at {quantity(rate, 'B/s')})" if rate else ""


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
    lost = duration(loss.lost_ns)
    if not loss.kernels:
        return f"{lost} {loss.what}"
    known = "" if loss.least_ns is None else f" of {duration(loss.dur_ns)}"
    what = short_name(loss.what) if loss.of == "kernel" else loss.what
    return f"{lost}{known} in {printable(what)}"


def _between(between: Between) -> Iterator[str]:
    parts = [
        ("kernels", between.compute_ns),
        ("communication", between.communication_ns),
    ]
    parts += [("copies", between.copy_ns), *between.idle.items()]
    told = ", ".join(
        f"{name.replace('_', ' ')} {duration(ns)}" for name, ns in parts if ns
    )
    total = duration(between.total_ns)
    if between.median_ns is not None:
        gaps, median = plural(between.count, "gap"), duration(between.median_ns)
        which = (
            f"Between passes of the model: {gaps}, the median {median}, {total} in all"
        )
    else:
        sides = (between.before_ns or 0, "before"), (between.after_ns or 0, "after")
        there = " and ".join(f"{duration(ns)} {where} it" for ns, where in sides if ns)
        which = f"Around the pass of the model, {there} are recorded"
    yield f"{which}: {told}."
    for one in between.doing[:DOINGS]:
        what = printable(FOLDERS.sub("", one.what[:LONGEST_NAME]))
        yield f"  {duration(one.dur_ns)} {one.kind}: {what}"


def _wrapped(texts: Iterable[str], width: int) -> str:
    lines: list[str] = []
    for text in texts:
        indent = "    " if text.startswith("  ") else "  "
        lines += wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)
