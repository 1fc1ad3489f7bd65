"""The weights of a dense model by its configuration, where nothing was recorded of the
capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.servers import GEMM, MI300, call, cpu, gpu

from fusetui.analysis.serving.answer import PhaseLimit, serving
from fusetui.analysis.serving.config import extract_config
from fusetui.trace import Trace, open_trace

LAYERS, HIDDEN, INNER, WORDS = 6, 4096, 8192, 32_000
CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": WORDS,
    "torch_dtype": "bfloat16",
}
LAYER = (
    HIDDEN * (32 + 2 * 8) * 128 + HIDDEN * HIDDEN + HIDDEN * 2 * INNER + INNER * HIDDEN
)
NAME = "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk5000sqsq4sqsk5000)"


def replayed(
    path: Path,
    products: int = 4,
    vocabulary: int = 1,
    ranks: int | None = 1,
    gemm: str = GEMM,
) -> Trace:
    """A step that replays a graph of LAYERS layers, of each a norm and so many
    products."""
    names = (["norm", *[gemm] * products] * LAYERS) + ["norm"] + [gemm] * vocabulary
    events = [cpu(NAME, 0, 60, "user_annotation"), call("hipGraphLaunch", 10, 40, 1)]
    events += [gpu(name, 20 + 10 * n, 9, 1) for n, name in enumerate(names)]
    document: dict[str, Any] = {"deviceProperties": [MI300], "traceEvents": events}
    if ranks is not None:
        document["distributedInfo"] = {"world_size": ranks}
    path.write_text(json.dumps(document), encoding="utf-8")
    return open_trace(str(path))


def limit(trace: Trace, **changed: Any) -> PhaseLimit:
    (found,) = serving(trace, extract_config({**CONFIG, **changed})).limits
    return found


@pytest.mark.parametrize("products", [4, 7])
def test_dense_weights_and_flop_follow_from_the_configuration(
    tmp_path: Path, products: int
) -> None:
    """Whether q, k and v, and gate and up, are one product or several."""
    found = limit(replayed(tmp_path / "a.json", products)).limit
    assert found.weight_bytes == 2 * (LAYERS * LAYER + HIDDEN * WORDS)
    assert found.flop == 2 * 4 * (LAYERS * LAYER + HIDDEN * WORDS)
    assert found.kv_bytes == 5000 * LAYERS * 2 * 8 * 128 * 2
    assert (found.weight_source, found.kv_source) == ("config", "config")
    assert (found.products, found.cannot_tell) == (products * LAYERS + 1, ())
    assert (
        "the configuration (llama), because the trace has no shapes; its 6 layers"
    ) in found.remarks[0]


def test_vocabulary_product_outside_the_graph_is_not_counted(tmp_path: Path) -> None:
    found = limit(replayed(tmp_path / "a.json", vocabulary=0)).limit
    assert found.weight_bytes == 2 * LAYERS * LAYER


def test_without_the_configuration_it_says_what_is_needed(tmp_path: Path) -> None:
    (found,) = serving(replayed(tmp_path / "a.json")).limits
    assert found.limit.least_ns is None
    assert "trace of the graph capture" in found.limit.cannot_tell[0]
    assert "--model-config" in found.limit.cannot_tell[0]


@pytest.mark.parametrize(
    ("made", "changed", "why"),
    [
        ({"products": 3}, {}, "19 matrix products ran, which does not match 6 layers"),
        ({"products": 4, "vocabulary": 2}, {}, "26 matrix products ran"),
        ({"ranks": 8}, {}, "The job has 8 ranks"),
        ({"ranks": None}, {}, "The job has an unknown number of ranks"),
        (
            {},
            {"model_type": "gpt_oss"},
            "The matrix products of the architecture gpt_oss are not known",
        ),
        ({}, {"model_type": 7}, "The configuration does not state the architecture"),
        ({}, {"quantization_config": {"bits": 4}}, "The weights are quantized"),
        ({}, {"vocab_size": None}, "lacks the sizes or the dtype"),
        (
            {},
            {"torch_dtype": "float16"},
            "Matrix products in bf16 ran, but the configuration has fp16",
        ),
        (
            {},
            {"num_hidden_layers": 3},
            "25 matrix products ran, which does not match 3 layers",
        ),
    ],
)
def test_products_that_contradict_the_configuration_are_not_counted(
    tmp_path: Path, made: dict[str, Any], changed: dict[str, Any], why: str
) -> None:
    found = limit(replayed(tmp_path / "a.json", **made), **changed).limit
    assert (found.weight_bytes, found.weight_source, found.least_ns) == (0, "", None)
    assert why in found.cannot_tell[0]


def test_layers_that_do_not_repeat_are_not_those_of_the_configuration(
    tmp_path: Path,
) -> None:
    """As many products, but in half as many layers of twice their kernels."""
    trace = replayed(tmp_path / "a.json", products=4)
    found = limit(trace, num_hidden_layers=4, intermediate_size=INNER).limit
    assert found.weight_source == ""
    assert "repeat 6 times, but the configuration has 4 layers" in found.cannot_tell[0]


def test_losses_are_listed_by_kernel_where_no_op_is_known(tmp_path: Path) -> None:
    """Where no op is known."""
    losses = limit(replayed(tmp_path / "a.json")).limit.losses
    assert [loss.of for loss in losses] == ["kernel", "kernel", "gap"]
    assert [loss.kernels for loss in losses] == [25, 7, 0]
    assert sum(loss.dur_ns for loss in losses) == 32 * 10_000 - 1000
