"""A step of each real server's trace, every figure worked out a second time from the
events alone: by plain arithmetic, without columns, links or joins."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import pytest
from tests.real.traces import real

from fusetui.analysis.graphs.opening import with_captures
from fusetui.analysis.serving.answer import Serving, serving
from fusetui.analysis.serving.config import extract_config
from fusetui.trace import open_trace

Event = dict[str, Any]

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
}
"""Of Llama 3.1 8B: 32 layers of four products, and one, are the 129 that ran."""
LLAMA_LAYER = 4096 * 6144 + 4096 * 4096 + 4096 * 28_672 + 14_336 * 4096
QWEN_LAYER = 4096 * 6144 + 4096 * 4096 + 4096 * 24_576 + 12_288 * 4096


class Case(NamedTuple):
    """What is known of a trace besides its events: the model, by its published
    configuration."""

    file: str
    phase: str
    batch: int
    tokens: int
    kv_tokens: int | None
    layers: tuple[int, int]  # repetitions, and kernels of each
    weights: int | None  # bytes
    kv_bytes: int | None  # of a token
    bandwidth: int
    config: dict[str, Any] | None = None


LLAMA_BYTES = 2 * (32 * LLAMA_LAYER + 4096 * 128_256)
MI300X, B300 = 5325 * 10**9, 8000 * 10**9
CASES = [
    Case(
        "mi300_sglang_decode_graph",
        *("decode", 32, 32, 32_785, (36, 15)),
        *(2 * (36 * QWEN_LAYER + 4096 * 151_936), 36 * 2 * 8 * 128 * 2, MI300X),
    ),
    Case(
        "mi300_deepseek_r1_decode",
        *("decode", 16, 16, 8209, (32, 11)),
        *(LLAMA_BYTES, 32 * 2 * 8 * 128 * 2, MI300X, LLAMA),
    ),
    Case(
        "b300_deepseek_r1_decode",
        *("decode", 16, 16, 8209, (32, 11)),
        *(LLAMA_BYTES, 32 * 2 * 8 * 128 * 2, B300, LLAMA),
    ),
    Case(
        "mi300_vllm_decode_graph",
        *("decode", 32, 32, 55_086, (11, 35), None, None, MI300X),
    ),
]


@lru_cache(maxsize=8)
def events_of(file: str) -> tuple[list[Event], list[Event]]:
    """The calls that launch a graph, and all GPU events."""
    with gzip.open(real(file)) as text:
        events = json.load(text, parse_float=Fraction)["traceEvents"]
    calls = [
        e
        for e in events
        if e.get("cat") == "cuda_runtime" and "GraphLaunch" in e["name"]
    ]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    return calls, [event for event in events if event.get("cat") in kinds]


@lru_cache(maxsize=8)
def answer(case_file: str) -> Serving:
    case = next(case for case in CASES if case.file == case_file)
    trace, _ = with_captures(open_trace(str(real(case.file))), (), open_trace)
    return serving(trace, extract_config(case.config) if case.config else None)


def of_graph(file: str) -> list[Event]:
    (call,), gpu = events_of(file)
    number = call["args"]["correlation"]
    return [event for event in gpu if event["args"].get("correlation") == number]


def start(event: Event) -> int:
    return round(Fraction(event["ts"]) * 1000)


def duration(event: Event) -> int:
    return round(Fraction(event["dur"]) * 1000)


def end(event: Event) -> int:
    return start(event) + duration(event)


def busy(events: Sequence[Event], begin: int, until: int) -> int:
    """How long any of them ran in [begin, until)."""
    total, reached = 0, begin
    for event in sorted(events, key=start):
        a, b = max(start(event), reached), min(end(event), until)
        if b > a:
            total += b - a
        reached = max(reached, min(end(event), until))
    return total


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_real_step_has_phase_batch_tokens_and_times(case: Case) -> None:
    (step,) = answer(case.file).steps
    nodes = of_graph(case.file)
    assert (step.phase, step.batch, step.new_tokens) == (
        case.phase,
        case.batch,
        case.tokens,
    )
    assert step.kv_tokens == case.kv_tokens
    assert (step.mode, step.replays) == ("graph", 1)
    assert step.model_ns == max(map(end, nodes)) - min(map(start, nodes))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_real_layers_repeat_with_equal_names(case: Case) -> None:
    """The kernels that lie a period apart have one name, over all repetitions, wherever
    they begin; the durations of those add up."""
    (found,) = answer(case.file).limits
    assert found.layers is not None
    assert (found.layers.count, found.layers.kernels) == case.layers
    kernels = [event for event in of_graph(case.file) if event["cat"] == "kernel"]
    orders = (sorted(kernels, key=start), kernels)
    count, period = case.layers
    sums = []
    for own in orders:
        for first in range(len(own) - count * period + 1):
            inside = own[first : first + count * period]
            names = [event["name"] for event in inside]
            if names[period:] == names[:-period]:
                parts = [inside[n * period : (n + 1) * period] for n in range(count)]
                each = sorted(sum(map(duration, part)) for part in parts)
                sums.append((sum(each), each[(count - 1) // 2]))
    assert (found.layers.total_ns, found.layers.median_ns) in sums
    assert found.layers.total_ns + found.layers.others_ns == sum(map(duration, kernels))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_real_time_between_passes_adds_up(case: Case) -> None:
    """From the first event of the step to its graph, and from its end to the last
    event."""
    found = answer(case.file).between
    _, gpu = events_of(case.file)
    nodes = of_graph(case.file)
    first, last = min(map(start, nodes)), max(map(end, nodes))
    begin, until = min(map(start, gpu)), max(map(end, gpu))
    assert found is not None
    assert (found.before_ns, found.after_ns) == (first - begin, until - last)
    kernels = [event for event in gpu if event["cat"] == "kernel"]
    assert found.compute_ns == busy(kernels, begin, first) + busy(kernels, last, until)
    assert found.idle_ns == found.total_ns - busy(gpu, begin, first) - busy(
        gpu, last, until
    )
    assert found.idle_ns == sum(found.idle.values())
    assert found.total_ns == (
        found.compute_ns + found.communication_ns + found.copy_ns + found.idle_ns
    )


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.file)
def test_real_limit_counts_weights_and_kv_bytes(case: Case) -> None:
    (found,) = answer(case.file).limits
    limit = found.limit
    assert case.weights is not None
    assert case.kv_bytes is not None
    assert case.kv_tokens is not None
    moved = case.weights + case.kv_tokens * case.kv_bytes
    assert limit.weight_bytes == case.weights
    assert limit.kv_bytes == case.kv_tokens * case.kv_bytes
    assert limit.flop == 2 * case.tokens * case.weights // 2
    assert limit.least_ns == limit.memory_ns == moved * 10**9 // case.bandwidth
    assert limit.share == pytest.approx(limit.least_ns / limit.dur_ns)
    assert limit.cannot_tell == ()


def test_the_limit_of_experts_is_not_guessed() -> None:
    """gpt-oss in vLLM, without the capture: what is missing, and what would give it."""
    (found,) = answer("mi300_vllm_decode_graph").limits
    assert found.limit.least_ns is None
    assert "--captured-by" in found.limit.cannot_tell[0]
    assert found.limit.bytes_per_s == MI300X
    assert (
        "by its compute units and memory; the trace does not" in found.limit.remarks[0]
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_the_losses_add_up(case: Case) -> None:
    (found,) = answer(case.file).limits
    nodes = of_graph(case.file)
    spent = sum(loss.dur_ns for loss in found.limit.losses if loss.of != "gap")
    assert spent == sum(duration(event) for event in nodes if event["cat"] == "kernel")
    (gap,) = [loss for loss in found.limit.losses if loss.of == "gap"]
    first, last = min(map(start, nodes)), max(map(end, nodes))
    assert gap.dur_ns == last - first - busy(nodes, first, last)


def test_real_eager_prefill_counts_weights_and_flop() -> None:
    """vLLM on a B200: the weights and the FLOP of all products whose op is recorded."""
    file = real("b200_vllm_eager")
    (found,) = serving(open_trace(str(file))).limits
    with gzip.open(file) as text:
        events = json.load(text)["traceEvents"]
    weights, flop, count = 0, 0, 0
    for event in events:
        place = {"aten::mm": 0, "aten::addmm": 1}.get(event["name"], -1)
        if event.get("cat") == "cpu_op" and place >= 0:
            (m, k), (_, n) = event["args"]["Input Dims"][place : place + 2]
            weights, flop, count = weights + 2 * k * n, flop + 2 * m * k * n, count + 1
    assert (found.phase, found.limit.products) == ("prefill", count)
    assert (found.limit.weight_bytes, found.limit.flop) == (weights, flop)
    assert found.limit.bound == "compute"


def test_real_eager_prefill_losses_are_those_of_each_product() -> None:
    """Each product against the longer of its weights and its FLOP, by the ops around
    the calls."""
    file = real("b200_vllm_eager")
    (found,) = serving(open_trace(str(file))).limits
    with gzip.open(file) as text:
        events = json.load(text, parse_float=Fraction)["traceEvents"]
    calls = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and "correlation" in event["args"]
    }
    kernels = [
        (calls[e["args"]["correlation"]], e) for e in events if e.get("cat") == "kernel"
    ]
    spent, floor = 0, Fraction(0)
    for op in [
        e for e in events if e.get("cat") == "cpu_op" and e["name"] == "aten::addmm"
    ]:
        (m, k), (_, n) = op["args"]["Input Dims"][1:3]
        # TB/s, TFLOP/s
        floor += max(Fraction(2 * k * n, 8), Fraction(2 * m * k * n, 2250)) / 1000
        spent += sum(
            duration(kernel)
            for call, kernel in kernels
            if call["tid"] == op["tid"] and start(op) <= start(call) < end(op)
        )
    (loss,) = [one for one in found.limit.losses if one.what == "aten::addmm"]
    assert (loss.dur_ns, loss.least_ns) == (spent, int(floor))
    first = min(start(e) for _, e in kernels if e["name"].startswith("nvjet"))
    gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    copies = [e for e in gpu if e["name"].startswith("Memcpy HtoD") and end(e) <= first]
    model = [e for e in gpu if start(e) >= max(map(end, copies))]
    begin, until = min(map(start, model)), max(map(end, model))
    (gap,) = [one for one in found.limit.losses if one.of == "gap"]
    assert gap.dur_ns == until - begin - busy(model, begin, until)
