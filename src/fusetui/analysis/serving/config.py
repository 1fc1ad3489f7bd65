"""Reads the configuration of a model, and derives its matrix products from it.

The configuration is the config.json of transformers. Its products are used where the
trace recorded no shapes, and only if all of this holds:

* The architecture is one of DENSE, and its weights are not quantized.
* One device runs the whole model.
* As many products ran as the layers of the model have, with that of the vocabulary.
  A layer may compute q, k and v in one product or in three, and gate and up likewise.
* The sequence of kernels repeats as often as the model has layers.

If one of these does not hold, the reason is given in words.
"""

from __future__ import annotations

import json  # which reads Infinity and NaN, as models write them
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.questions.process_groups import read_world_size
from fusetui.analysis.questions.server_steps import Requested
from fusetui.analysis.serving.layers import Layers
from fusetui.analysis.serving.products import Product, Products, WeightShape
from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.trace.model.columns import Trace

MAX_CONFIG_BYTES = 1 << 22
MAX_SIZE = 1 << 31
"""No size in a configuration is this large: such a number counts as missing."""

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
"""How many products a dense layer may run. It has seven matrices, of which q, k and v
may be joined into one, and gate and up likewise."""

LACKS = "the configuration lacks the sizes or the dtype of the model"


class NoConfigError(Error):
    """A configuration cannot be used; the message is one plain sentence."""


class ModelConfig(msgspec.Struct, frozen=True):
    """What a configuration says of a model.

    A field is 0 or "" where the configuration does not tell it.
    """

    architecture: str
    layers: int
    full_layers: int  # that attend to all tokens; those with a window read less
    hidden: int
    inner: int  # width of the MLP
    heads: int
    kv_heads: int
    depth: int  # of a head; `hidden` if the document does not say how many there are
    vocabulary: int
    type_name: str  # of its elements, as the configuration spells it
    is_quantized: bool
    is_latent: bool  # keys and values are kept in a compressed form

    @property
    def dtype(self) -> str:
        """The element type as it is called here, such as "bf16"; "" if not known."""
        return DTYPES.get(self.type_name, "")


def read_config(path: str) -> ModelConfig:
    """Read the configuration of a model from its config.json.

    If the model has several parts, such as one for images, the text model counts.

    Raises:
        NoConfigError: The file cannot be read, or is no configuration of a model.
    """
    document = _read_json(path)
    text_model = document
    if isinstance(document, dict):
        text_model = document.get("text_config", document)

    is_model = isinstance(text_model, dict) and extract_config(text_model).layers > 0
    if not is_model:
        raise NoConfigError(
            f"{path} is not the config.json of a model: it has no num_hidden_layers."
        )

    # What the part for text lacks, such as the dtype, may be stated for the whole.
    return extract_config({**document, **text_model})


def _read_json(path: str) -> Any:
    """Read the JSON document in a file. Raises NoConfigError if there is none."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise NoConfigError(f"{path} is too large for a model configuration.")
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise NoConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise NoConfigError(f"{path} is not JSON.") from None


def extract_config(keys: Mapping[str, Any]) -> ModelConfig:
    """Extract the configuration of a model from the keys of its config.json.

    Sizes that are missing or damaged become 0. Without `num_key_value_heads` there are
    as many as attention heads, and without `head_dim` the hidden size is divided among
    the heads.
    """
    layers = _parse_size(keys, "num_hidden_layers")
    hidden = _parse_size(keys, "hidden_size")
    heads = _parse_size(keys, "num_attention_heads")
    return ModelConfig(
        architecture=_text_or_empty(keys.get("model_type")),
        layers=layers,
        full_layers=_count_full_layers(keys, layers),
        hidden=hidden,
        inner=_parse_size(keys, "intermediate_size"),
        heads=heads,
        kv_heads=_parse_size(keys, "num_key_value_heads") or heads,
        depth=_parse_size(keys, "head_dim") or hidden // max(heads, 1),
        vocabulary=_parse_size(keys, "vocab_size"),
        type_name=_text_or_empty(keys.get("dtype") or keys.get("torch_dtype")),
        is_quantized=keys.get("quantization_config") is not None,
        is_latent=_parse_size(keys, "kv_lora_rank") > 0,
    )


def _parse_size(keys: Mapping[str, Any], key: str) -> int:
    """Return the size at a key; 0 if the key is missing or its value is no size."""
    value = keys.get(key)
    # bool is a subclass of int, and no size.
    if type(value) is int and 0 < value < MAX_SIZE:
        return value
    return 0


def _text_or_empty(value: Any) -> str:
    """Return the value if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def _count_full_layers(keys: Mapping[str, Any], layers: int) -> int:
    """Count the layers that attend to all tokens, not only to a window of the last."""
    layer_types = keys.get("layer_types")
    if isinstance(layer_types, list):
        return layer_types.count("full_attention")
    has_window = keys.get("sliding_window") and keys.get("use_sliding_window", True)
    return 0 if has_window else layers


class ConfiguredProducts(msgspec.Struct, frozen=True):
    """The products of a pass, completed by the configuration of the model.

    If the configuration does not tell the weights, the products are as the trace has
    them, and `missing` says why.
    """

    products: Products
    remark: str = ""  # what was taken from the configuration, for the user
    missing: str = ""  # why the configuration could not be used; "" if it was


def derive_products(
    trace: Trace,
    products: Products,
    layers: Layers | None,
    model: ModelConfig,
    requested: Requested,
) -> ConfiguredProducts:
    """Derive the weights of the products of a pass from the configuration.

    It is called for a trace that has no shapes of the products. E.g. a layer of a dense
    model with a hidden size of 4096 multiplies with matrices of 4096 x 6144 and so on;
    with 32 layers, each of these counts 32 times. If the configuration does not fit
    what ran, the products stay as they are. Without the number of tokens that the step
    was requested to compute, the FLOP count as 0.

    Args:
        trace: The trace of the server.
        products: The products of the pass as the trace has them.
        layers: The layers of the pass; None if none were recognized.
        model: The configuration.
        requested: The work of the step.
    """
    why_not = _explain_unsupported_model(model) or _explain_other_model(
        trace, products, layers, model
    )
    if why_not:
        return ConfiguredProducts(products=products, missing=why_not)

    # Products have one row for each token; 0 rows if the number is not known.
    tokens = requested.new_tokens or 0
    matrices = _list_matrices_of_layer(model)
    products_of_layer = [
        _compute_product(model.dtype, tokens, matrix) for matrix in matrices
    ]
    products_of_pass = products_of_layer * model.layers

    # `_explain_other_model` allows one product more than those of the layers: that with
    # the vocabulary, which has one row for each request.
    ran_vocabulary_product = products.unknown % model.layers > 0
    if ran_vocabulary_product:
        requests = (requested.batch or 0) if tokens else 0
        vocabulary_matrix = WeightShape(k=model.hidden, n=model.vocabulary)
        matrices.append(vocabulary_matrix)
        products_of_pass.append(
            _compute_product(model.dtype, requests, vocabulary_matrix)
        )

    configured = replace(
        products,
        known=products.unknown,
        each=tuple(products_of_pass),
        shapes=tuple(sorted(set(matrices))),
        unknown=0,
        source="config",
    )
    return ConfiguredProducts(
        products=configured,
        remark=(
            f"weight sizes are from the configuration ({model.architecture}), because "
            f"the trace has no shapes; its {model.layers} layers match the number of "
            "matrix products that ran"
        ),
    )


def _list_matrices_of_layer(model: ModelConfig) -> list[WeightShape]:
    """Return the shapes of the four weight matrices of one dense layer.

    Matrices with the same input count as one: q, k and v, and gate and up. Whether they
    ran in one product or apart, they have as many bytes and FLOP.
    """
    q_width = model.heads * model.depth
    kv_width = model.kv_heads * model.depth
    q_k_and_v = WeightShape(k=model.hidden, n=q_width + 2 * kv_width)
    attention_output = WeightShape(k=q_width, n=model.hidden)
    gate_and_up = WeightShape(k=model.hidden, n=2 * model.inner)
    down = WeightShape(k=model.inner, n=model.hidden)
    return [q_k_and_v, attention_output, gate_and_up, down]


def _compute_product(dtype: str, rows: int, weights: WeightShape) -> Product:
    """Compute the bytes and FLOP of the product of some rows with a weight matrix.

    Args:
        dtype: The element type, such as "bf16".
        rows: The number of rows of the activations (M).
        weights: The shape of the weight matrix.
    """
    elements = weights.k * weights.n
    return Product(
        op="",
        bytes=ELEMENT_BYTES[dtype] * elements,
        flop=2 * rows * elements,  # a multiplication and an addition for each element
        dtype=dtype,
    )


def _explain_unsupported_model(model: ModelConfig) -> str:
    """Say why the matrix products of a model do not follow from its configuration.

    They follow only for known architectures whose weights are not quantized, and if all
    sizes are given. Returns "" if they do follow.
    """
    if not model.architecture:
        return "the configuration does not state the architecture"
    if model.architecture not in DENSE:
        return (
            f"the matrix products of the architecture {model.architecture} are not "
            "known"
        )
    if model.is_quantized:
        return "the weights are quantized"
    sizes = (model.hidden, model.inner, model.layers, model.heads, model.vocabulary)
    if not all(sizes) or not model.dtype:
        return LACKS
    return ""


def _explain_other_model(
    trace: Trace, products: Products, layers: Layers | None, model: ModelConfig
) -> str:
    """Say in what the pass differs from what the configured model would run, or "".

    E.g. 28 layers run 28 x 4 products, and one more for the vocabulary; so 80 products
    are those of another model.

    Args:
        trace: The trace of the server.
        products: The matrix products that ran in the pass.
        layers: The layers of the pass; None if none were recognized.
        model: The configuration.
    """
    products_per_layer, vocabulary_products = divmod(products.unknown, model.layers)
    if products_per_layer not in PRODUCTS_OF_LAYER or vocabulary_products > 1:
        return (
            f"the configuration is of another model: {products.unknown} matrix "
            f"products ran, which does not match {model.layers} layers"
        )
    if layers is None:
        return f"nothing repeats, but the configuration has {model.layers} layers"
    # The first or the last layer may differ, and then does not repeat with the others.
    if layers.count not in (model.layers - 1, model.layers):
        return (
            f"the kernels repeat {layers.count} times, but the configuration has"
            f" {model.layers} layers"
        )

    ranks = read_world_size(trace.keys)
    if ranks != 1:
        return (
            f"the job has {ranks or 'an unknown number of'} ranks, and the trace does "
            "not record how they divide the model"
        )

    other_types = sorted(products.dtypes - {model.dtype})
    if other_types:
        return (
            f"matrix products in {', '.join(other_types)} ran, but the configuration "
            f"has {model.dtype}"
        )
    return ""
