"""How many bytes of keys and values attention reads for a token.

The shapes that attention was given say it exactly: its cache is two tensors [blocks,
tokens of a block, heads, depth], or one of [2, blocks, tokens of a block, heads,
depth]. Otherwise the configuration of the model does, provided that a product of the
step has the shape of its projection to q, k and v.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.serving.config import LACKS, ModelConfig
from fusetui.analysis.serving.products import WeightShape
from fusetui.gpu.dtypes import ELEMENT_BYTES
from fusetui.gpu.roofline.inputs import Inputs, Tensor
from fusetui.gpu.roofline.many import inputs_by_op
from fusetui.trace.model.arrays import Rows, distinct
from fusetui.trace.model.columns import Trace

MAX_RANKS = 64
"""Over so many ranks the heads may be divided."""

KEYS_AND_VALUES = 2
"""Tensors of the cache of a layer."""


class KeysAndValues(msgspec.Struct, frozen=True):
    """Bytes of a token, or why they are not known."""

    bytes_per_token: int | None = None
    layers: int = 0  # that are counted
    source: Literal["attention", "config", ""] = ""
    missing: str = ""
    remark: str = ""

    def bytes_of(self, tokens: int | None) -> int | None:
        """Of so many tokens; None if either is not known."""
        if self.bytes_per_token is None or tokens is None:
            return None
        return self.bytes_per_token * tokens


def is_attention(op_name: str) -> bool:
    """Whether an op of this name computes attention."""
    return "att" in op_name.lower()


def cache_of(
    trace: Trace,
    kernels: Rows,
    tokens: int | None,
    shapes: Sequence[WeightShape],
    model: ModelConfig | None,
) -> KeysAndValues:
    """What the kernels of one pass read for a token. `tokens`: those in the cache,
    which has room for them; `shapes`: those of the products of the pass."""
    attention_ops = [
        op
        for op in distinct(trace.op[kernels]).tolist()
        if op >= 0 and is_attention(trace.name_of(op))
    ]
    inputs_of_ops = inputs_by_op(trace, np.array(attention_ops, dtype=np.intp))
    bytes_of_layers = [
        _bytes_of_attention(inputs, tokens or 0) for inputs in inputs_of_ops.values()
    ]
    if bytes_of_layers and all(bytes_of_layers):
        return KeysAndValues(
            bytes_per_token=sum(bytes_of_layers),
            layers=len(bytes_of_layers),
            source="attention",
        )
    if model is None:
        return KeysAndValues(
            missing="the shapes of attention do not give their size (--model-config does)"
        )
    return _of_config(model, shapes)


class _HalfCache(NamedTuple):
    """The tensor of the keys of one layer; that of its values has the same shape."""

    blocks: int
    tokens_of_block: int
    heads: int
    depth: int
    dtype: str | None


def _bytes_of_attention(inputs: Inputs, tokens: int) -> int:
    """Bytes of a token in the cache of one layer; 0 if the shapes do not tell."""
    tensors = [inputs.tensor(place) for place in range(len(inputs.dims))]
    caches = _caches_among(tensors)
    if len(caches) != 1:
        return 0
    (cache,) = caches
    if not any(_are_queries_of(cache, tensor) for tensor in tensors):
        return 0
    has_room = 0 < tokens <= cache.blocks * cache.tokens_of_block
    if cache.dtype is None or not has_room:
        return 0
    element_bytes = ELEMENT_BYTES[cache.dtype]
    return KEYS_AND_VALUES * cache.heads * cache.depth * element_bytes


def _caches_among(tensors: Sequence[Tensor | None]) -> set[_HalfCache]:
    """What may be a cache: two successive inputs of four dimensions and of one shape
    and type, or one of five dimensions."""
    caches = set()
    for tensor, following in pairwise((*tensors, None)):
        if tensor is None:
            continue
        if len(tensor.shape) == 4 and _are_alike(tensor, following):
            blocks, tokens_of_block, heads, depth = tensor.shape
        elif len(tensor.shape) == 5 and tensor.shape[0] == KEYS_AND_VALUES:
            _, blocks, tokens_of_block, heads, depth = tensor.shape
        else:
            continue
        caches.add(_HalfCache(blocks, tokens_of_block, heads, depth, tensor.dtype))
    return caches


def _are_alike(a: Tensor, b: Tensor | None) -> bool:
    """Whether both have one shape and one type."""
    return b is not None and a.shape == b.shape and a.dtype == b.dtype


def _are_queries_of(cache: _HalfCache, tensor: Tensor | None) -> bool:
    """Whether a tensor [tokens, heads, depth] has heads that share those of a cache."""
    if tensor is None or len(tensor.shape) != 3 or not cache.heads:
        return False
    _, heads, depth = tensor.shape
    return depth == cache.depth and heads % cache.heads == 0


def _of_config(model: ModelConfig, shapes: Sequence[WeightShape]) -> KeysAndValues:
    """What attention reads for a token by the configuration of the model; `missing` is
    set where it does not tell, or is of another model. `shapes`: of the products of the
    pass."""
    if not model.layers or not model.hidden or not model.heads or not model.dtype:
        return KeysAndValues(missing=LACKS)
    if model.is_latent:
        return KeysAndValues(
            missing="the cache of latent attention has a layout of its own"
        )
    if not shapes:
        return KeysAndValues(
            missing="no shapes show whether the configuration is of this model"
        )
    ranks = _ranks(shapes, model)
    if ranks is None:
        return KeysAndValues(missing=_of_another_model(model))
    heads = max(model.kv_heads // ranks, 1)
    elements_of_layer = KEYS_AND_VALUES * heads * model.depth
    bytes_of_layer = elements_of_layer * ELEMENT_BYTES[model.dtype]
    return KeysAndValues(
        bytes_per_token=bytes_of_layer * model.full_layers,
        layers=model.full_layers,
        source="config",
        remark=_config_remark(model),
    )


def _of_another_model(model: ModelConfig) -> str:
    """Why the configuration does not fit the products of the pass, in a sentence."""
    width = (model.heads + KEYS_AND_VALUES * model.kv_heads) * model.depth
    return (
        "the configuration is of another model. No matrix product of the step is"
        f" its projection to q, k and v ({model.hidden} x {width})"
    )


def _config_remark(model: ModelConfig) -> str:
    """What is taken from the configuration, and which layers are not counted, in a
    sentence."""
    remark = (
        f"keys and values are assumed to be {model.type_name}, the type of the"
        " configuration"
    )
    with_window = model.layers - model.full_layers
    if with_window > 0:
        remark += f"; {with_window} layers with a window are not counted"
    return remark


def _ranks(shapes: Sequence[WeightShape], model: ModelConfig) -> int | None:
    """Over how many ranks the heads are divided, by the projections that ran: to q, k
    and v in one, or apart. None if no number of ranks explains them."""
    outputs = {shape.n for shape in shapes if shape.k == model.hidden}
    ranks = 1
    while ranks <= MAX_RANKS:
        ranks_of_kv_head = min(ranks, model.kv_heads)
        q_width = model.heads * model.depth // ranks
        k_width = model.kv_heads * model.depth // ranks_of_kv_head
        is_in_one = q_width + 2 * k_width in outputs
        are_apart = q_width in outputs and k_width in outputs
        if is_in_one or are_apart:
            return ranks
        ranks *= 2
    return None
