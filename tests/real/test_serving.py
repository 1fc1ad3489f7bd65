"""Steps, layers, experts and the limits of real servers, and graphs with their captures."""

from __future__ import annotations

import numpy as np
import pytest
from tests.analysis.graphs.test_join import kernels_with_their_names
from tests.analysis.serving.test_limit import CONFIG, MI300_BYTES_PER_S, QKV, step
from tests.real.traces import real

from fusetui.analysis.graphs.captures import replays
from fusetui.analysis.graphs.join import join
from fusetui.analysis.serving.answer import serving
from fusetui.analysis.serving.config import extract_config
from fusetui.analysis.serving.kv_cache import measure_key_value_cache
from fusetui.analysis.serving.limit import compute_limit
from fusetui.trace import Trace, open_trace


def test_real_replay_has_every_kernel_name_of_its_capture() -> None:
    """SGLang on an MI300X."""
    replay, capture = real("mi300_sglang_decode_graph"), real("mi300_sglang_capture")
    assert kernels_with_their_names(replay, capture) == 544


def test_real_mixture_of_experts_has_two_products_per_layer() -> None:
    """gpt-oss in vLLM: two grouped products in each of 24 layers."""
    (found,) = serving(open_trace(str(real("mi300_vllm_decode_graph")))).limits
    assert found.experts is not None
    assert (found.experts.kernels, found.experts.runs) == (48, 24)


def test_layers_are_found_though_some_events_are_out_of_time_order() -> None:
    """Twenty kernels of this trace have times of 4.6 ms before those that ran before
    them."""
    layers = serving(open_trace(str(real("mi300_deepseek_r1_decode")))).limits[0].layers
    assert layers is not None
    assert layers.kernels == 11
    assert layers.count * 11 + layers.others == 356


REAL = {
    "mi300_vllm_decode_graph": ("decode", 32, 55_086, "graph", 421),
    "b300_deepseek_r1_decode": ("decode", 16, 8_209, "graph", 356),
    "mi300_sglang_decode_graph": ("decode", 32, 32_785, "graph", 544),
    "b200_vllm_eager": ("prefill", 1, None, "eager", 929),
}


def copied(trace: Trace) -> int:
    """When the last input of the first product was copied."""
    named = [(trace.name_of(row), row) for row in trace.gpu_rows.tolist()]
    first = min(trace.start[row] for name, row in named if name.startswith("nvjet"))
    copies = [
        int(trace.end[row]) for name, row in named if name.startswith("Memcpy HtoD")
    ]
    return max(end for end in copies if end < first)


@pytest.mark.parametrize("name", REAL)
def test_steps_of_real_servers_equal_figures_from_the_columns(name: str) -> None:
    """Each figure again from the columns of the trace alone."""
    trace = open_trace(str(real(name)))
    (only,) = serving(trace).steps
    phase, batch, tokens, mode, events = REAL[name]
    assert (only.phase, only.batch, only.kv_tokens, only.mode) == (
        phase,
        batch,
        tokens,
        mode,
    )
    rows = trace.gpu_rows
    if mode == "graph":
        calls = trace.launch[rows]
        rows = rows[calls == np.bincount(calls[calls >= 0]).argmax()]
    assert len(rows) == events
    if mode == "eager":
        rows = rows[trace.start[rows] > copied(trace)]
    assert only.model_ns == int(trace.end[rows].max() - trace.start[rows].min())


def test_limit_of_a_real_step_counts_its_products() -> None:
    """Qwen3-8B in SGLang on an MI300X: 36 layers of four products, and one for the
    vocabulary."""
    trace, _ = join(
        open_trace(str(real("mi300_sglang_decode_graph"))),
        open_trace(str(real("mi300_sglang_capture"))),
    )
    rows = replays(trace)[0].rows
    found = compute_limit(trace, step(rows, 32_785))
    layer = 4096 * 6144 + 4096 * 4096 + 4096 * 24576 + 12288 * 4096
    weights = 2 * (36 * layer + 4096 * 151_936)
    assert (found.products, found.weight_bytes) == (4 * 36 + 1, weights)
    assert found.kv_bytes == 32_785 * 147_456
    assert found.flop == 2 * 32 * weights // 2
    assert (
        found.memory_ns
        == (weights + 32_785 * 147_456) * 10**9 // MI300_BYTES_PER_S
        == 3_750_336
    )
    assert found.dur_ns == 9_930_636
    by_config = measure_key_value_cache(
        trace, rows[:1], 32_785, [QKV], extract_config(CONFIG)
    )
    assert by_config.bytes_per_token == found.kv_bytes_per_token
