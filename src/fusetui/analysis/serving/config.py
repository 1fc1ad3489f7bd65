"""The configuration of a model (config.json of transformers), and the products of a
dense one by it, where no shapes were recorded.

These only if all of this holds: the architecture is one of DENSE and its weights are
not quantized; one device runs the whole model; as many products ran as its layers have
(q, k and v in one or apart, gate and up likewise) with that of the vocabulary; and the
sequence of kernels repeats as often as it has layers. Everything else is a reason, in
words.
"""

from __future__ import annotations

import json  # which reads Infinity and NaN, as models write them
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.questions.process_groups import world_size
from fusetui.analysis.questions.server_steps import Requested
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.products import Product, Products, WeightShape
from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.trace.model.columns import Trace

MAX_CONFIG_BYTES = 1 << 22
MAX_SIZE = 1 << 31
"""Of anything in a configuration: a number that is not below it is none."""

DTYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
}
"""Types as configurations name them."""

DENSE = ("llama", "mistral", "qwen2", "qwen3")
"""`model_type` of decoders with layers of attention and a gated MLP: seven matrices,
all dense."""

PRODUCTS_OF_LAYER = (4, 5, 6, 7)
"""Of the seven matrices, q, k and v may be one, and gate and up."""

LACKS = "the configuration lacks the sizes or the type of the model"


class NoConfigError(Error):
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
    depth: int  # of a head; `hidden` if the document does not say how many there are
    vocabulary: int
    type_name: str  # of its elements
    is_quantized: bool
    is_latent: bool  # keys and values are kept in a compressed form

    @property
    def dtype(self) -> str:
        return DTYPES.get(self.type_name, "")


def read_config(path: str) -> ModelConfig:
    """The configuration of a model; that of the text model, if it has several. Raises
    NoConfigError."""
    document = _json_of(path)
    text_model = document
    if isinstance(document, dict):
        text_model = document.get("text_config", document)
    if not isinstance(text_model, dict) or not config_of(text_model).layers:
        raise NoConfigError(
            f"{path} has no num_hidden_layers: it is not the config.json of a model."
        )
    return config_of({**document, **text_model})


def _json_of(path: str) -> Any:
    """The document in a file. Raises NoConfigError."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise NoConfigError(
                f"{path} is too large to be the configuration of a model."
            )
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise NoConfigError(f"{path} is not JSON.") from None


def config_of(keys: Mapping[str, Any]) -> ModelConfig:
    """What these keys of a document say."""
    layers = _size(keys, "num_hidden_layers")
    hidden = _size(keys, "hidden_size")
    heads = _size(keys, "num_attention_heads")
    return ModelConfig(
        architecture=_text(keys.get("model_type")),
        layers=layers,
        full_layers=_full_layers(keys, layers),
        hidden=hidden,
        inner=_size(keys, "intermediate_size"),
        heads=heads,
        kv_heads=_size(keys, "num_key_value_heads") or heads,
        depth=_size(keys, "head_dim") or hidden // max(heads, 1),
        vocabulary=_size(keys, "vocab_size"),
        type_name=_text(keys.get("dtype") or keys.get("torch_dtype")),
        is_quantized=keys.get("quantization_config") is not None,
        is_latent=_size(keys, "kv_lora_rank") > 0,
    )


def _size(keys: Mapping[str, Any], key: str) -> int:
    """0 if it is not there, or no size."""
    value = keys.get(key)
    return value if type(value) is int and 0 < value < MAX_SIZE else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _full_layers(keys: Mapping[str, Any], layers: int) -> int:
    """How many of the layers attend to all tokens."""
    kinds = keys.get("layer_types")
    if isinstance(kinds, list):
        return kinds.count("full_attention")
    has_window = keys.get("sliding_window") and keys.get("use_sliding_window", True)
    return 0 if has_window else layers


class ConfiguredProducts(msgspec.Struct, frozen=True):
    """The products of a pass as a configuration tells them. If it does not, they are as
    they were, and `missing` says why."""

    products: Products
    remark: str = ""
    missing: str = ""


def by_configuration(
    trace: Trace,
    products: Products,
    layers: Layers | None,
    model: ModelConfig,
    requested: Requested,
) -> ConfiguredProducts:
    """The products of a pass with the weights that the configuration gives them, if it
    can. Without the tokens that were asked for no FLOP are known."""
    missing = _why_not(trace, products, layers, model)
    if missing:
        return ConfiguredProducts(products=products, missing=missing)
    of_layer = _matrices_of_layer(model)
    of_vocabulary = WeightShape(k=model.hidden, n=model.vocabulary)
    configured = []
    for shape in of_layer * model.layers:
        configured.append(_product(model, requested, requested.new_tokens, shape))
    shapes = set(of_layer)
    if products.unknown % model.layers:  # it ran as well
        configured.append(_product(model, requested, requested.batch, of_vocabulary))
        shapes.add(of_vocabulary)
    return ConfiguredProducts(
        products=replace(
            products,
            known=products.unknown,
            each=tuple(configured),
            shapes=tuple(sorted(shapes)),
            unknown=0,
            source="config",
        ),
        remark=(
            f"weight sizes are from the configuration ({model.architecture}), whose"
            f" {model.layers} layers have as many products as ran; the trace has no shapes"
        ),
    )


def _matrices_of_layer(model: ModelConfig) -> list[WeightShape]:
    """Those with one input as one: q, k and v, and gate and up."""
    width = model.heads * model.depth
    kv_width = model.kv_heads * model.depth
    return [
        WeightShape(k=model.hidden, n=width + 2 * kv_width),
        WeightShape(k=width, n=model.hidden),
        WeightShape(k=model.hidden, n=2 * model.inner),
        WeightShape(k=model.inner, n=model.hidden),
    ]


def _product(
    model: ModelConfig, requested: Requested, rows: int | None, weights: WeightShape
) -> Product:
    """`rows`: M, None if it is not known."""
    elements = weights.k * weights.n
    return Product(
        op="",
        bytes=ELEMENT_BYTES[model.dtype] * elements,
        flop=2 * (rows or 0) * elements if requested.new_tokens else 0,
        dtype=model.dtype,
    )


def _why_not(
    trace: Trace, products: Products, layers: Layers | None, model: ModelConfig
) -> str:
    """Why the products of the model are not known, or the model cannot be what ran; ""
    if they are."""
    if model.architecture not in DENSE:
        architecture = model.architecture or "unknown"
        return f"the architecture {architecture} is not a dense one whose products are known"
    if model.is_quantized:
        return "the weights are quantized"
    sizes = (model.hidden, model.inner, model.layers, model.heads, model.vocabulary)
    if not all(sizes) or not model.dtype:
        return LACKS
    of_layer, of_vocabulary = divmod(products.unknown, model.layers)
    if of_layer not in PRODUCTS_OF_LAYER or of_vocabulary > 1:
        return (
            f"the configuration is of another model: {products.unknown} products ran,"
            f" which are not those of {model.layers} layers"
        )
    if layers is None:
        return f"nothing repeats, but the configuration has {model.layers} layers"
    if not model.layers - 1 <= layers.count <= model.layers:
        return (
            f"the kernels repeat {layers.count} times, but the configuration has"
            f" {model.layers} layers"
        )
    ranks = world_size(trace.keys)
    if ranks != 1:
        return (
            f"the job has {ranks or 'an unknown number of'} ranks, and how they divide"
            " the model is not recorded"
        )
    other_types = sorted(products.dtypes - {model.dtype})
    if other_types:
        return (
            f"products of {', '.join(other_types)} ran, but the configuration has"
            f" {model.dtype}"
        )
    return ""
