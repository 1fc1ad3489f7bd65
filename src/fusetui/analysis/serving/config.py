"""The configuration of a model (config.json of transformers), and the products of a dense one by
it, where no shapes were recorded.

These only if all of this holds: the architecture is one of DENSE and its weights are not quantized;
one device runs the whole model; as many products ran as its layers have (q, k and v in one or
apart, gate and up likewise) with that of the vocabulary; and the sequence of kernels repeats as
often as it has layers. Everything else is a reason, in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.weights import Product, Products
from fusetui.gpu.roofline.inputs import SIZES
from fusetui.trace.model.columns import Trace

LARGEST = 1 << 22  # bytes
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""Types as configurations name them."""


class NoConfig(Exception):  # noqa: N818
    """The configuration cannot be used; the message is one plain sentence."""


def read_config(path: str) -> Mapping[str, Any]:
    """The configuration of a model; that of the text model, if it has several. Raises NoConfig."""
    try:
        file = Path(path)
        if file.stat().st_size > LARGEST:
            raise NoConfig(f"{path} is too large to be the configuration of a model.")
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoConfig(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise NoConfig(f"{path} is not JSON.") from None
    text = found.get("text_config", found) if isinstance(found, dict) else None
    if not isinstance(text, dict) or whole(text, "num_hidden_layers") is None:
        raise NoConfig(f"{path} has no num_hidden_layers: it is not the config.json of a model.")
    return {**found, **text}


def whole(config: Mapping[str, Any], key: str) -> int | None:
    """A positive number of the configuration."""
    value: object = config.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
        return value
    return None


DENSE = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of decoders whose layers are attention and a gated MLP: seven matrices, nothing
shared, no experts."""
FUSED = (4, 5, 6, 7)
"""Products of a layer: of 7 matrices, q, k and v may be one, and gate and up."""


class Dense(msgspec.Struct, frozen=True):
    """The matrices of a model [K, N], by layer and of the vocabulary; or why they are not known."""

    layer: tuple[tuple[int, int], ...] = ()
    vocabulary: tuple[int, int] = (0, 0)
    layers: int = 0
    dtype: str = ""
    missing: str = ""


def by_configuration(
    trace: Trace,
    found: Products,
    layers: Layers | None,
    config: Mapping[str, Any],
    new_tokens: int | None,
    batch: int | None,
) -> tuple[Products, str]:
    """The products of a pass with the weights that the configuration gives them, if it can, and a
    remark about that; otherwise as they were found, and why. `new_tokens` and `batch` are those of
    the step: without them no FLOP are known."""
    model = _dense(config)
    missing = model.missing or _disagrees(trace, found, layers, model)
    if missing:
        return found, missing
    with_vocabulary = found.unknown % model.layers
    own = model.layer * model.layers
    rows = [new_tokens or 0] * len(own) + [batch or 0] * with_vocabulary
    every = (*own, *([model.vocabulary] * with_vocabulary))
    size = SIZES[model.dtype]
    known = msgspec.structs.replace(
        found,
        known=found.unknown,
        kernels=found.unknown,
        each=tuple(
            Product("", size * k * n, 2 * m * k * n if new_tokens else 0, model.dtype)
            for m, (k, n) in zip(rows, every, strict=True)
        ),
        shapes=tuple(sorted(set(every))),
        unknown=0,
        source="config",
    )
    return known, (
        f"the weights are those of the configuration ({config['model_type']}), whose {model.layers}"
        f" layers have as many products as ran; the trace itself does not tell their shapes"
    )


def _dense(config: Mapping[str, Any]) -> Dense:
    kind = config.get("model_type")
    if kind not in DENSE:
        told = kind if isinstance(kind, str) else "unknown"
        return Dense(missing=f"{told} is not a dense architecture whose products are known")
    if config.get("quantization_config") is not None:
        return Dense(missing="the weights are quantized")
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    sizes = [whole(config, name) for name in (*names, "vocab_size")]
    word = config.get("dtype", config.get("torch_dtype"))
    dtype = DTYPES.get(word) if isinstance(word, str) else None
    if dtype is None or None in sizes:
        return Dense(missing="the configuration lacks the sizes or the type of the model")
    hidden, inner, layers, heads, words = (size or 0 for size in sizes)
    kv = whole(config, "num_key_value_heads") or heads
    depth = whole(config, "head_dim") or hidden // heads
    return Dense(
        layer=(
            (hidden, (heads + 2 * kv) * depth),
            (heads * depth, hidden),
            (hidden, 2 * inner),
            (inner, hidden),
        ),
        vocabulary=(hidden, words),
        layers=layers,
        dtype=dtype,
    )


def _disagrees(trace: Trace, found: Products, layers: Layers | None, model: Dense) -> str:
    """Why the model cannot be what ran."""
    each, vocabulary = divmod(found.unknown, model.layers)
    if each not in FUSED or vocabulary > 1:
        return (
            f"{found.unknown} products ran, which are not those of {model.layers} layers: the"
            " configuration is of another model"
        )
    if layers is None or not model.layers - 1 <= layers.count <= model.layers:
        told = "nothing repeats" if layers is None else f"the kernels repeat {layers.count} times"
        return f"{told}, and the configuration has {model.layers} layers"
    ranks = _world(trace)
    if ranks != 1:
        told = "an unknown number of" if ranks is None else str(ranks)
        return f"the job has {told} ranks, and how they divide the model is not recorded"
    if others := sorted(found.dtypes - {model.dtype}):
        return f"products of {', '.join(others)} ran, and the configuration says {model.dtype}"
    return ""


def _world(trace: Trace) -> int | None:
    """How many ranks the job has; None if the trace does not say."""
    info = trace.keys.get("distributedInfo")
    size = info.get("world_size") if isinstance(info, dict) else None
    return size if isinstance(size, int) else None
