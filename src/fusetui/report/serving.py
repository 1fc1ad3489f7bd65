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
    Column("launched by", left=True, cell=lambda step: _format_launcher(step)),
)


def _format_launcher(step: ServerStep) -> str:
    return step.mode if step.replays < 2 else f"{step.replays} graphs"


def format_serving(answer: Serving, width: int) -> str:
    """Return the answer about an inference server in at most some 40 lines: phases,
    steps, lower bounds, time between steps, and what is inconclusive."""
    blocks = []
    if answer.phases:
        blocks.append(record_table(PHASES, answer.phases, width))
    if answer.steps:
        blocks.append(_format_steps(answer.steps, width))
    for limit in answer.limits:
        blocks.append(
            _wrap_texts(_describe_limit(limit, answer.steps[limit.step]), width)
        )
    if answer.between:
        blocks.append(_wrap_texts(_describe_between(answer.between), width))
    for missing in answer.missing:
        blocks.append(
            _wrap_texts([f"Inconclusive: {missing[0].lower()}{missing[1:]}"], width)
        )
    return "\n\n".join(blocks)


def make_serving_document(answer: Serving) -> dict[str, Any]:
    """Return the answer about an inference server for --json. FLOP may exceed the
    integers that a double holds exactly, and such numbers become floats."""
    document: dict[str, Any] = msgspec.to_builtins(answer)
    for phase in document["limits"]:
        limit = phase["limit"]
        for key, value in limit.items():
            if isinstance(value, int) and value > LARGEST:
                limit[key] = float(value)
    return document


def _format_steps(steps: Sequence[ServerStep], width: int) -> str:
    """Return a table of the outliers and the longest steps, then why each outlier is
    long."""
    outliers_first = sorted(steps, key=lambda step: (not step.outlier, -step.model_ns))
    table = top_table(
        STEP,
        outliers_first,
        MAX_STEPS,
        width,
        "step",
        JSON_ALL,
        min_last_cells=MIN_LAST_COLUMN,
    )
    lines = [table]
    for step in outliers_first[:MAX_STEPS]:
        if step.outlier:
            lines.append(_wrap_texts([_explain_long_step(step)], width))
    return "\n".join(lines)


def _explain_long_step(step: ServerStep) -> str:
    """Return a sentence about why a step is long, as far as the trace explains it."""
    because = printable("; ".join(step.because))
    if not because:
        because = "nothing in the trace explains it"
    return f"The step at {duration(step.start_ns)} is long: {because}."


def _describe_limit(phase: PhaseLimit, step: ServerStep) -> Iterator[str]:
    """Yield lines about the lower bound of a phase, of which `step` has the median
    time. They say what must be read, which layers are slow, and where time is lost."""
    limit = phase.limit
    article = "An" if phase.phase.startswith(("i", "u")) else "A"
    yield f"{article} {phase.phase} step ({printable(step.name)}): {_judge_limit(limit)}"
    for amount in _describe_amounts(limit):
        yield f"  {amount}"
    if phase.layers:
        yield f"  {_describe_layers(phase.layers)}"
    else:
        yield "  No layers were found, because no sequence of kernels repeats."
    if phase.experts:
        yield f"  {_describe_experts(phase.experts)}"
    for losses in _describe_losses(limit.losses):
        yield f"  {losses}"
    if limit.cannot_tell:
        first, *others = limit.cannot_tell
        sentences = [
            f"Inconclusive: {first}.",
            *(f"{with_capital(of)}." for of in others),
        ]
        yield f"  {' '.join(sentences)}"


def _describe_losses(losses: Sequence[Loss]) -> Iterator[str]:
    """Yield sentences about where the most time is lost beyond the lower bound, or
    where most time goes if no bound is known."""
    limited = [loss for loss in losses if loss.least_ns is not None]
    unlimited = [loss for loss in losses if loss.least_ns is None]
    if not any(loss.kernels for loss in limited):
        yield f"Most time: {_list_losses(losses)}."
        return
    yield f"Largest losses: {_list_losses(limited)}."
    if unlimited:
        yield f"Most time without a known limit: {_list_losses(unlimited)}."


def _list_losses(losses: Sequence[Loss]) -> str:
    return several([_describe_loss(loss) for loss in losses], MAX_LOSSES)


def _judge_limit(limit: Limit) -> str:
    """Return how long a step took and what share of that its lower bound is, as far as
    it is known."""
    took = f"the {StepLength.MODEL_PASS} takes {duration(limit.dur_ns)}"
    if limit.least_ns is None:
        return f"{took}; its limit is unknown."
    least = duration(limit.least_ns)
    bound = "memory" if limit.bound == "memory" else "arithmetic"
    if limit.cannot_tell:
        return f"{took}; the {bound} limit of its known part is {least}."
    share = percent(limit.least_ns, limit.dur_ns)
    return f"{took}; its {bound} limit is {least}, {share} of that."


def _describe_amounts(limit: Limit) -> Iterator[str]:
    """Yield sentences about what a step must read and compute: weights, keys and
    values, and remarks."""
    if limit.products:
        read = "reads" if limit.products == 1 else "read"
        yield (
            f"{plural(limit.products, 'matrix product')} {read}"
            f" {quantity(limit.weight_bytes, 'B')} of weights"
            f"{_describe_reading_time(limit.weight_bytes, limit)}{_describe_computation(limit)}."
        )
    if limit.kv_bytes is not None and limit.kv_bytes_per_token is not None:
        if limit.kv_source == "attention":
            source = "the attention shapes"
        else:
            source = "config.json"
        yield (
            "Keys and values take "
            f"{quantity(limit.kv_bytes, 'B')}{_describe_reading_time(limit.kv_bytes, limit)}: "
            f"{plural(limit.kv_tokens or 0, 'token')} of "
            f"{count(limit.kv_bytes_per_token)} B in "
            f"{plural(limit.kv_layers, 'layer')}, according to {source}."
        )
    for remark in limit.remarks:
        yield f"{remark[0].upper()}{remark[1:]}."


def _describe_computation(limit: Limit) -> str:
    """Return how much a step computes and in what time at best, such as ` and compute
    484.1 GFLOP (370.3 us)`. "" without FLOP."""
    if not limit.flop:
        return ""
    took = ""
    if limit.compute_ns is not None:
        took = f" ({duration(limit.compute_ns)})"
    return f" and compute {quantity(limit.flop, 'FLOP')}{took}"


def _describe_reading_time(moved_bytes: int, limit: Limit) -> str:
    """Return how long it takes at best to move so many bytes, such as ` (2.842 ms at
    5.325 TB/s)`. "" if the bandwidth is unknown."""
    rate = limit.bytes_per_s
    if not rate:
        return ""
    took_ns = int(moved_bytes * NS / rate)
    return f" ({duration(took_ns)} at {quantity(rate, 'B/s')})"


def _describe_layers(layers: Layers) -> str:
    """Return sentences about the layers of a model that repeat in a step, and which of
    them are slow."""
    median_ns = layers.median_ns
    slow = [
        f"layer {layer.number} by {percent(layer.dur_ns - median_ns, median_ns)}"
        for layer in layers.slow
    ]
    if slow:
        slow_layers = f"Slower than the median: {several(slow, MAX_SLOW_LAYERS)}"
    else:
        slow_layers = (
            "No layer is more than 5 % slower than the median"  # see MIN_EXCESS
        )
    take = "takes" if layers.others == 1 else "take"
    return (
        f"The pass has {plural(layers.count, 'layer')} of {layers.kernels} kernels, with a median "
        f"of {duration(median_ns)} (alternating layers count as one). {slow_layers}."
        f" {plural(layers.others, 'other kernel')} {take} {duration(layers.others_ns)}."
    )


def _describe_experts(experts: Experts) -> str:
    """Return sentences about the kernels of a mixture of experts, and its slowest run."""
    kernel = printable(short_name(experts.name))
    return (
        f"Expert kernels take {duration(experts.total_ns)}, {percent(experts.share, 1)} of "
        f"kernel time, in {plural(experts.kernels, 'launch')}. {kernel} runs "
        f"{plural(experts.runs, 'time')}, with a median of {duration(experts.median_ns)} and a "
        f"maximum of {duration(experts.max_ns)} (run {experts.slowest}). Token counts "
        "per expert were not recorded."
    )


def _describe_loss(loss: Loss) -> str:
    """Return how much time is lost in a kernel or for another reason, such as `1 ms of
    3 ms in gemm`."""
    lost = duration(loss.lost_ns)
    if not loss.kernels:
        return f"{lost} {loss.what}"
    whole = "" if loss.least_ns is None else f" of {duration(loss.dur_ns)}"
    cause_text = short_name(loss.what) if loss.of == "kernel" else loss.what
    return f"{lost}{whole} in {printable(cause_text)}"


def _describe_between(between: Between) -> Iterator[str]:
    """Yield lines about the time between model passes: how long it is, what the GPU
    did, and what the CPU did."""
    yield f"{_describe_gap_times(between)}: {', '.join(_describe_classes(between))}."
    for activity in between.doing[:MAX_ACTIVITIES]:
        activity_text = printable(FOLDERS.sub("", activity.what[:MAX_NAME_LENGTH]))
        yield f"  {duration(activity.dur_ns)} {activity.kind}: {activity_text}"


def _describe_gap_times(between: Between) -> str:
    """Return a phrase about the time between several model passes, or around a single
    one."""
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


def _describe_classes(between: Between) -> Iterator[str]:
    """Yield what a device did between model passes, with the time of each kind of work
    and each reason of idle time."""
    times_ns = {
        "kernels": between.compute_ns,
        "communication": between.communication_ns,
        "copies": between.copy_ns,
        **between.idle,
    }
    for name, ns in times_ns.items():
        if ns:
            yield f"{name.replace('_', ' ')} {duration(ns)}"


def _wrap_texts(texts: Iterable[str], width: int) -> str:
    """Return the texts as lines of at most `width` cells. Lines after the first of a
    text are indented, further if the text is."""
    lines: list[str] = []
    for text in texts:
        indent = "    " if text.startswith("  ") else "  "
        lines += wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)
