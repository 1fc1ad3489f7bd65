"""The configuration of a model (config.json of transformers), and the products of a
dense one by it, where no shapes were recorded.

These only if all of this holds: the architecture is one of DENSE and its weights are
not quantized; one device runs the whole model; as many products ran as its layers have
(q, k and v in one or apart, gate and up likewise) with that of the vocabulary; and the
sequence of kernels repeats as often as it has layers. Everything else is a reason, in
words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fusetui import Error
from fusetui.analysis.questions.process_groups import world_size
from fusetui.analysis.questions.server_steps import Requested
from fusetui.analysis.serving.parts import Layers, Product, Products
from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.trace.model.columns import Trace

LARGEST = 1 << 22  # bytes
DTYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
"""Types as configurations name them."""
DENSE = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of decoders with layers of attention and a gated MLP: seven matrices,
all dense."""
# products of a layer: of 7 matrices, q, k and v may be one, and gate and up
FUSED = (4, 5, 6, 7)
LACKS = "the configuration lacks the sizes or the type of the model"


class NoConfig(Error):  # noqa: N818
    """The configuration cannot be used; the message is one plain sentence."""


class ModelConfig(msgspec.Struct, frozen=True):
    """What a configuration says of a model; 0 or "" where it does not."""

    architecture: str
    layers: int
    full_layers: int  # that attend to all tokens; those with a window read less
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    depth: int  # of a head
    vocabulary: int
    type_name: str  # of its elements
    is_quantized: bool
    is_latent: bool  # keys and values are kept in a compressed form

    @property
    def dtype(self) -> str:
        return DTYPES.get(self.type_name, "")


def read_config(path: str) -> ModelConfig:
    """The configuration of a model; that of the text model, if it has several. Raises
    NoConfig."""
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
    if not isinstance(text, dict) or not config_of(text).layers:
        raise NoConfig(
            f"{path} has no num_hidden_layers: it is not the config.json of a model."
        )
    return config_of({**found, **text})


def config_of(keys: Mapping[str, Any]) -> ModelConfig:
    """What these keys of a document say."""

    def number(key: str) -> int:
        value = keys.get(key)
        return value if type(value) is int and 0 < value < 1 << 31 else 0

    def text(value: Any) -> str:
        return value if isinstance(value, str) else ""

    layers, hidden, heads = map(
        number, ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    kinds = keys.get("layer_types")
    windowed = keys.get("sliding_window") and keys.get("use_sliding_window", True)
    full = 0 if windowed else layers
    return ModelConfig(
        architecture=text(keys.get("model_type")),
        layers=layers,
        full_layers=kinds.count("full_attention") if isinstance(kinds, list) else full,
        hidden=hidden,
        inner=number("intermediate_size"),
        heads=heads,
        kv_heads=number("num_key_value_heads") or heads,
        depth=number("head_dim") or hidden // max(heads, 1),
        vocabulary=number("vocab_size"),
        type_name=text(keys.get("dtype", keys.get("torch_dtype"))),
        is_quantized=keys.get("quantization_config") is not None,
        is_latent=number("kv_lora_rank") > 0,
    )


def by_configuration(
    trace: Trace,
    found: Products,
    layers: Layers | None,
    model: ModelConfig,
    asked: Requested,
) -> tuple[Products, str]:
    """The products of a pass with the weights that the configuration gives them, if it
    can, and a remark about that; otherwise as they were found, and why. Without the
    tokens that were asked for no FLOP are known."""
    if missing := _other_model(trace, found, layers, model):
        return found, missing
    heads, hidden = model.heads * model.depth, model.hidden
    matrices = [
        (hidden, heads + 2 * model.kv_heads * model.depth),
        (heads, hidden),
        (hidden, 2 * model.inner),
        (model.inner, hidden),
    ]
    every = [(asked.new_tokens or 0, *sizes) for sizes in matrices * model.layers]
    with_vocabulary = found.unknown % model.layers
    every += [(asked.batch or 0, hidden, model.vocabulary)] * with_vocabulary
    size = ELEMENT_BYTES[model.dtype]
    each = (
        Product("", size * k * n, 2 * m * k * n if asked.new_tokens else 0, model.dtype)
        for m, k, n in every
    )
    shapes = tuple(sorted({(k, n) for _, k, n in every}))
    changed = {
        "known": found.unknown,
        "unknown": 0,
        "shapes": shapes,
        "source": "config",
    }
    return msgspec.structs.replace(found, each=tuple(each), **changed), (
        f"the weights are those of the configuration ({model.architecture}), whose {model.layers}"
        f" layers have as many products as ran; the trace itself does not tell their shapes"
    )


def _other_model(
    trace: Trace, found: Products, layers: Layers | None, model: ModelConfig
) -> str:
    """Why the products of the model are not known, or the model cannot be what ran."""
    if model.architecture not in DENSE:
        told = model.architecture or "unknown"
        return f"{told} is not a dense architecture whose products are known"
    if model.is_quantized:
        return "the weights are quantized"
    sizes = (model.hidden, model.inner, model.layers, model.heads, model.vocabulary)
    if not (all(sizes) and model.dtype):
        return LACKS
    each, vocabulary = divmod(found.unknown, model.layers)
    if each not in FUSED or vocabulary > 1:
        others = f"{found.unknown} products ran, which are not those of {model.layers} layers"
        return f"{others}: the configuration is of another model"
    if layers is None or not model.layers - 1 <= layers.count <= model.layers:
        told = (
            "nothing repeats"
            if layers is None
            else f"the kernels repeat {layers.count} times"
        )
        return f"{told}, and the configuration has {model.layers} layers"
    if (ranks := world_size(trace.keys)) != 1:
        told = str(ranks) if ranks else "an unknown number of"
        return (
            f"the job has {told} ranks, and how they divide the model is not recorded"
        )
    if types := sorted(found.dtypes - {model.dtype}):
        return f"products of {', '.join(types)} ran, and the configuration says {model.dtype}"
    return ""
