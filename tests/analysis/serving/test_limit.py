"""The least time of a step, worked out a second time by plain arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import GEMM, call, cpu, gpu, opened

from fusetui.analysis.questions.server_steps import Requested, ServerPhase
from fusetui.analysis.serving.config import NoConfigError, extract_config, read_config
from fusetui.analysis.serving.kv_cache import KeyValueCache, measure_key_value_cache
from fusetui.analysis.serving.limit import Limit, compute_limit
from fusetui.analysis.serving.passes import Mode, Pass
from fusetui.analysis.serving.products import WeightShape
from fusetui.trace import Trace
from fusetui.trace.model.arrays import Rows

CONFIG = {
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
}
"""Of Qwen3-8B."""
QKV = WeightShape(k=4096, n=(32 + 2 * 8) * 128)
K, N, BATCH = 16384, 32768, 32
MI300_BYTES_PER_S = 5325 * 10**9
MI300_BF16 = 1307.4e12

Event = dict[str, Any]


def op(
    name: str, at: float, number: int, kernel: str, dims: list[Any], dtype: str
) -> list[Event]:
    """An op that launches a kernel of 1 ms."""
    args = {"Input Dims": dims, "Input type": [dtype] * len(dims)}
    return [
        {**cpu(name, at, 5), "args": args},
        call("hipLaunchKernel", at + 1, 2, number),
        gpu(kernel, 1000 * number, 1000, number),
    ]


def mm(number: int, k: int = K, n: int = N, name: str = "aten::mm") -> list[Event]:
    return op(name, 10 * number, number, GEMM, [[BATCH, k], [k, n]], "c10::BFloat16")


def step(
    rows: Rows, tokens: int | None = None, phase: ServerPhase = ServerPhase.UNKNOWN
) -> Pass:
    asked = Requested(phase, BATCH, BATCH, tokens)
    return Pass("step", 0, 0, asked, Mode.EAGER, rows, rows, 0)


def limit(trace: Trace, tokens: int | None = None, **more: Any) -> Limit:
    return compute_limit(trace, step(trace.gpu_rows, tokens), **more)


def test_limit_counts_weights_and_flop_of_products(tmp_path: Path) -> None:
    found = limit(opened(tmp_path / "a.json", mm(1), mm(2)))
    moved, flop = 2 * K * N * 2, 2 * 2 * BATCH * K * N
    assert (found.products, found.weight_bytes, found.flop) == (2, moved, flop)
    assert found.memory_ns == moved * 10**9 // MI300_BYTES_PER_S
    assert found.compute_ns == int(flop / MI300_BF16 * 1e9)
    assert (found.least_ns, found.bound) == (found.memory_ns, "memory")
    assert found.dur_ns == 2_000_000
    assert found.share == pytest.approx(found.memory_ns / 2_000_000)


def test_kv_bytes_follow_from_the_shapes_of_attention(tmp_path: Path) -> None:
    cache = [900, 16, 8, 128]
    attention = op(
        "my::paged_attention",
        50,
        5,
        "attn",
        [[BATCH, 32, 128], cache, cache],
        "c10::BFloat16",
    )
    found = limit(opened(tmp_path / "a.json", mm(1), attention), 10_000)
    assert found.kv_bytes_per_token == 2 * 8 * 128 * 2
    assert found.kv_bytes == 10_000 * 2 * 8 * 128 * 2
    assert (found.kv_layers, found.kv_source, found.cannot_tell) == (1, "attention", ())
    moved = K * N * 2 + 10_000 * 2 * 8 * 128 * 2
    assert found.memory_ns == moved * 10**9 // MI300_BYTES_PER_S


def test_a_cache_without_room_for_the_tokens_is_not_one(tmp_path: Path) -> None:
    small = [2, 16, 8, 128]
    attention = op(
        "my::paged_attention",
        50,
        5,
        "attn",
        [[BATCH, 32, 128], small, small],
        "c10::BFloat16",
    )
    found = limit(opened(tmp_path / "a.json", mm(1), attention), 10_000)
    assert (found.kv_bytes, len(found.cannot_tell)) == (None, 1)


def cache_by(
    tmp_path: Path, shapes: list[WeightShape], **changed: Any
) -> KeyValueCache:
    trace = opened(tmp_path / "a.json", mm(1))
    return measure_key_value_cache(
        trace, trace.gpu_rows, 1, shapes, extract_config({**CONFIG, **changed})
    )


def test_kv_bytes_follow_from_the_configuration(tmp_path: Path) -> None:
    found = cache_by(tmp_path, [QKV])
    assert found.bytes_per_token == 36 * 2 * 8 * 128 * 2 == 147_456
    assert "bfloat16" in found.remark


def test_kv_bytes_are_divided_by_tensor_parallel_ranks(tmp_path: Path) -> None:
    found = cache_by(tmp_path, [WeightShape(k=4096, n=(8 + 2 * 2) * 128)])
    assert found.bytes_per_token == 147_456 // 4


def test_configuration_of_another_model_is_refused(tmp_path: Path) -> None:
    found = cache_by(tmp_path, [WeightShape(k=5120, n=7168)])
    assert found.bytes_per_token is None
    assert "is of another model. No" in found.missing
    # 32 heads of queries and 2 x 8 of keys and values
    assert "(4096 x 6144)" in found.missing


def test_layers_with_a_window_are_not_counted(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention"] * 18
    found = cache_by(tmp_path, [QKV], layer_types=kinds)
    assert found.bytes_per_token == 147_456 // 2
    assert "18 sliding-window layers are not counted" in found.remark


def test_latent_attention_is_not_guessed(tmp_path: Path) -> None:
    assert cache_by(tmp_path, [QKV], kv_lora_rank=512).bytes_per_token is None


def test_without_tokens_the_keys_are_not_counted(tmp_path: Path) -> None:
    found = limit(opened(tmp_path / "a.json", mm(1)))
    assert found.kv_bytes is None
    assert "keys and values are not counted" in found.cannot_tell[0]


def test_experts_are_not_guessed(tmp_path: Path) -> None:
    experts = mm(2, name="vllm::moe_forward")
    found = limit(opened(tmp_path / "a.json", mm(1), experts))
    assert (found.products, found.products_unknown) == (1, 1)
    assert "the weights of 1 matrix product are not counted," in found.cannot_tell[0]


def test_traffic_that_fits_the_cache_is_no_limit(tmp_path: Path) -> None:
    found = limit(opened(tmp_path / "a.json", mm(1, 1024, 1024)))
    assert (found.memory_ns, found.bound) == (None, "compute")
    assert any("may fit in the cache" in text for text in found.cannot_tell)


def test_peaks_that_the_user_gives(tmp_path: Path) -> None:
    found = limit(
        opened(tmp_path / "a.json", mm(1)), peak_overrides={"bandwidth": 1e12}
    )
    assert found.memory_ns == K * N * 2 * 10**9 // 10**12


def test_losses_add_up(tmp_path: Path) -> None:
    found = limit(opened(tmp_path / "a.json", mm(1), mm(4)))
    assert [(loss.what, loss.dur_ns) for loss in found.losses] == [
        ("between kernels", 2_000_000),
        ("aten::mm", 2_000_000),
    ]
    assert sum(loss.dur_ns for loss in found.losses) == found.dur_ns


def test_each_product_loses_what_it_takes_over_the_longer_of_bytes_and_flop(
    tmp_path: Path,
) -> None:
    """One product of few tokens, whose weights take longer, and one of many, whose FLOP
    do."""
    many = 100 * BATCH
    large = op("aten::mm", 20, 2, GEMM, [[many, K], [K, N]], "c10::BFloat16")
    found = limit(opened(tmp_path / "a.json", mm(1), large))
    (loss,) = [one for one in found.losses if one.what == "aten::mm"]
    floors = 2 * K * N * 1e9 / MI300_BYTES_PER_S, 2 * many * K * N * 1e9 / MI300_BF16
    assert loss.least_ns == int(sum(floors))
    assert found.memory_ns is not None
    assert loss.least_ns > max(found.memory_ns, found.compute_ns or 0)


def test_an_ops_least_time_is_unknown_if_that_of_one_product_is(
    tmp_path: Path,
) -> None:
    unknown = op("aten::mm", 20, 2, GEMM, [], "c10::BFloat16")
    found = limit(opened(tmp_path / "a.json", mm(1), unknown))
    assert [one.least_ns for one in found.losses if one.what == "aten::mm"] == [None]


@pytest.mark.parametrize(
    ("phase", "is_known"), [(ServerPhase.DECODE, True), (ServerPhase.PREFILL, False)]
)
def test_attention_of_many_tokens_does_more_than_read(
    tmp_path: Path, phase: ServerPhase, is_known: bool
) -> None:
    cache = [900, 16, 8, 128]
    attention = op(
        "my::attention", 50, 5, "k", [[BATCH, 32, 128], cache, cache], "c10::BFloat16"
    )
    trace = opened(tmp_path / "a.json", mm(1), attention)
    found = compute_limit(trace, step(trace.gpu_rows, 10_000, phase))
    (loss,) = [one for one in found.losses if one.what == "my::attention"]
    least = 10_000 * 2 * 8 * 128 * 2 * 10**9 // MI300_BYTES_PER_S
    assert loss.least_ns == (least if is_known else None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"num_hidden_layers": true}']
)
def test_files_that_are_no_model_configuration_are_refused(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(NoConfigError, match=r"config\.json"):
        read_config(str(path))


def test_configuration_inside_text_config_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": CONFIG, "dtype": "float16"}))
    assert read_config(str(path)).layers == 36
