"""The steps of a server as text, and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import msgspec

from fusetui.analysis.serving.answer import PhaseLimit, ServerStep, Serving
from fusetui.analysis.serving.between import Between
from fusetui.analysis.serving.experts import Experts
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.limit import Limit, Loss
from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.roofline.inputs import NS
from fusetui.text.cutting import with_capital
from fusetui.text.figures import count, duration, percent, plural, quantity, several
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.text.tables import (
    JSON_ALL,
    Column,
    record_table,
    text_or_dash,
    times,
    top_table,
)
from fusetui.trace.layout.steps import StepLength
from fusetui.trace.model.ids import LARGEST

MAX_STEPS = 8
"""That are listed: the outliers, then the longest."""

MAX_LOSSES = 5
MAX_ACTIVITIES = 5
MAX_SLOW_LAYERS = 3
MIN_LAST_COLUMN = 12
"""Cells of the last column of the steps, before other columns are dropped."""

MAX_NAME_LENGTH = 400
"""Characters of a name that are searched."""

FOLDERS = lazy_pattern(r"^[^<(]*/(?=[^/]*\.py\()")
"""Those of the file of a Python frame; its name, line and function follow."""

PHASES = (
    Column(f"{StepLength.MODEL_PASS} of", left=True, cell=lambda phase: phase.phase),
    Column("steps", cell=lambda phase: count(phase.steps)),
    *times(p50=0, p90=0, p99=0),
    Column("longest", cell=lambda phase: duration(phase.max_ns)),
)
STEP = (
    Column(str(StepLength.MODEL_PASS), cell=lambda step: duration(step.model_ns)),
    Column("from", spare=2, cell=lambda step: duration(step.start_ns)),
    Column("phase", left=True, cell=lambda step: step.phase),
    Column("batch", cell=lambda step: text_or_dash(step.batch, count)),
    Column("tokens", spare=1, cell=lambda step: text_or_dash(step.new_tokens, count)),
    Column(
        "cached", spare=3, cell=lambda step: text_or_dash(step.cached_tokens, count)
    ),
    Column(
        "captured", spare=4, cell=lambda step: text_or_dash(step.captured_tokens, count)
    ),
    Column("launched by", left=True, cell=lambda step: _launched_by(step)),
)


def _launched_by(step: ServerStep) -> str:
    return step.mode if step.replays < 2 else f"{step.replays} graphs"


def serving_text(answer: Serving, width: int) -> str:
    """At most some 40 lines."""
    blocks = []
    if answer.phases:
        blocks.append(record_table(PHASES, answer.phases, width))
    if answer.steps:
        blocks.append(_steps(answer.steps, width))
    for limit in answer.limits:
        blocks.append(_wrapped(_limit(limit, answer.steps[limit.step]), width))
    if answer.between:
        blocks.append(_wrapped(_between(answer.between), width))
    for missing in answer.missing:
        blocks.append(_wrapped([f"Inconclusive: {missing}"], width))
    return "\n\n".join(blocks)


def serving_json(answer: Serving) -> dict[str, Any]:
    """Integers that no double holds become doubles: such FLOP are possible."""
    document: dict[str, Any] = msgspec.to_builtins(answer)
    for phase in document["limits"]:
        limit = phase["limit"]
        for key, value in limit.items():
            if isinstance(value, int) and value > LARGEST:
                limit[key] = float(value)
    return document


def _steps(steps: Sequence[ServerStep], width: int) -> str:
    """A table, and why outliers among its steps are long."""
    listed = sorted(steps, key=lambda step: (not step.outlier, -step.model_ns))
    table = top_table(
        STEP, listed, MAX_STEPS, width, "step", JSON_ALL, min_last_cells=MIN_LAST_COLUMN
    )
    lines = [table]
    for step in listed[:MAX_STEPS]:
        if step.outlier:
            lines.append(_wrapped([_why_long(step)], width))
    return "\n".join(lines)


def _why_long(step: ServerStep) -> str:
    because = printable("; ".join(step.because))
    if not because:
        because = "nothing in the trace explains it"
    return f"The step at {duration(step.start_ns)} is long: {because}."


def _limit(phase: PhaseLimit, step: ServerStep) -> Iterator[str]:
    """Of the step of the median time of a phase."""
    limit = phase.limit
    article = "An" if phase.phase.startswith(("i", "u")) else "A"
    yield f"{article} {phase.phase} step ({printable(step.name)}): {_verdict(limit)}"
    for amount in _amounts(limit):
        yield f"  {amount}"
    if phase.layers:
        yield f"  {_layers(phase.layers)}"
    else:
        yield "  Layers: no sequence of kernels repeats."
    if phase.experts:
        yield f"  {_experts(phase.experts)}"
    for losses in _losses(limit.losses):
        yield f"  {losses}"
    if limit.cannot_tell:
        first, *others = limit.cannot_tell
        sentences = [
            f"Inconclusive: {first}.",
            *(f"{with_capital(of)}." for of in others),
        ]
        yield f"  {' '.join(sentences)}"


def _losses(losses: Sequence[Loss]) -> Iterator[str]:
    limited = [loss for loss in losses if loss.least_ns is not None]
    unlimited = [loss for loss in losses if loss.least_ns is None]
    if not any(loss.kernels for loss in limited):
        yield f"Most time: {_listed(losses)}."
        return
    yield f"Largest losses: {_listed(limited)}."
    if unlimited:
        yield f"Most time without a known limit: {_listed(unlimited)}."


def _listed(losses: Sequence[Loss]) -> str:
    return several([_loss(loss) for loss in losses], MAX_LOSSES)


def _verdict(limit: Limit) -> str:
    took = f"{StepLength.MODEL_PASS} {duration(limit.dur_ns)}"
    if limit.least_ns is None:
        return f"{took}; its limit is unknown."
    least = duration(limit.least_ns)
    bound = "memory" if limit.bound == "memory" else "arithmetic"
    if limit.cannot_tell:
        return f"{took}; the {bound} limit of its known part is {least}."
    share = percent(limit.least_ns, limit.dur_ns)
    return f"{took}, {share} of the {bound} limit ({least})."


def _amounts(limit: Limit) -> Iterator[str]:
    if limit.products:
        yield (
            f"{plural(limit.products, 'matrix product')} read"
            f" {quantity(limit.weight_bytes, 'B')} of weights"
            f"{_reading_time(limit.weight_bytes, limit)}{_computed(limit)}."
        )
    if limit.kv_bytes is not None and limit.kv_bytes_per_token is not None:
        if limit.kv_source == "attention":
            source = "the attention shapes"
        else:
            source = "config.json"
        yield (
            "Keys and values take "
            f"{quantity(limit.kv_bytes, 'B')}{_reading_time(limit.kv_bytes, limit)}: "
            f"{plural(limit.kv_tokens or 0, 'token')} of "
            f"{count(limit.kv_bytes_per_token)} B in "
            f"{plural(limit.kv_layers, 'layer')}, according to {source}."
        )
    for remark in limit.remarks:
        yield f"{remark[0].upper()}{remark[1:]}."


def _computed(limit: Limit) -> str:
    """` and compute 484.1 GFLOP (370.3 us)`; "" without FLOP."""
    if not limit.flop:
        return ""
    took = ""
    if limit.compute_ns is not None:
        took = f" ({duration(limit.compute_ns)})"
    return f" and compute {quantity(limit.flop, 'FLOP')}{took}"


def _reading_time(moved_bytes: int, limit: Limit) -> str:
    """` (2.842 ms at 5.325 TB/s)`; "" if the bandwidth is not known."""
    rate = limit.bytes_per_s
    if not rate:
        return ""
    took_ns = int(moved_bytes * NS / rate)
    return f" ({duration(took_ns)} at {quantity(rate, 'B/s')})"


def _layers(layers: Layers) -> str:
    median_ns = layers.median_ns
    slow = [
        f"layer {layer.number} is {percent(layer.dur_ns - median_ns, median_ns)} slower"
        for layer in layers.slow
    ]
    if slow:
        slow_layers = several(slow, MAX_SLOW_LAYERS)
    else:
        slow_layers = (
            "no layer is more than 5 % slower than the median"  # see MIN_EXCESS
        )
    return (
        f"{plural(layers.count, 'layer')} of {layers.kernels} kernels (layers that alternate"
        f" count as one), median {duration(median_ns)}. {with_capital(slow_layers)}."
        f" {plural(layers.others, 'other kernel')}: {duration(layers.others_ns)}."
    )


def _experts(experts: Experts) -> str:
    kernel = printable(short_name(experts.name))
    return (
        f"Experts: {plural(experts.kernels, 'kernel')} take "
        f"{duration(experts.total_ns)}, {percent(experts.share, 1)} of kernel time. "
        f"{kernel} ran {experts.runs} times, median {duration(experts.median_ns)}, "
        f"longest {duration(experts.max_ns)} (run {experts.slowest}). Token counts "
        "per expert were not recorded."
    )


def _loss(loss: Loss) -> str:
    lost = duration(loss.lost_ns)
    if not loss.kernels:
        return f"{lost} {loss.what}"
    whole = "" if loss.least_ns is None else f" of {duration(loss.dur_ns)}"
    what = short_name(loss.what) if loss.of == "kernel" else loss.what
    return f"{lost}{whole} in {printable(what)}"


def _between(between: Between) -> Iterator[str]:
    yield f"{_which_time(between)}: {', '.join(_classes(between))}."
    for activity in between.doing[:MAX_ACTIVITIES]:
        what = printable(FOLDERS.sub("", activity.what[:MAX_NAME_LENGTH]))
        yield f"  {duration(activity.dur_ns)} {activity.kind}: {what}"


def _which_time(between: Between) -> str:
    if between.median_ns is not None:
        return (
            f"Between model passes: {plural(between.count, 'gap')},"
            f" median {duration(between.median_ns)},"
            f" total {duration(between.total_ns)}"
        )
    sides = []
    if between.before_ns:
        sides.append(f"{duration(between.before_ns)} before it")
    if between.after_ns:
        sides.append(f"{duration(between.after_ns)} after it")
    return f"Around the model pass ({' and '.join(sides)})"


def _classes(between: Between) -> Iterator[str]:
    """What the device did, with the reasons of its idle time; of each the time."""
    times_ns = {
        "kernels": between.compute_ns,
        "communication": between.communication_ns,
        "copies": between.copy_ns,
        **between.idle,
    }
    for name, ns in times_ns.items():
        if ns:
            yield f"{name.replace('_', ' ')} {duration(ns)}"


def _wrapped(texts: Iterable[str], width: int) -> str:
    lines: list[str] = []
    for text in texts:
        indent = "    " if text.startswith("  ") else "  "
        lines += wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)
