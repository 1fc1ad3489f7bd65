"""Computes how many bytes of keys and values attention reads per token.

The shapes of the inputs of attention tell it exactly: its cache is two tensors [blocks,
tokens of a block, heads, depth], or one of [2, blocks, tokens of a block, heads,
depth]. If they are not recorded, the configuration of the model tells it, provided that
a product of the step has the shape of its projection to q, k and v.
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
from fusetui.gpu.roofline.many import read_inputs_by_op
from fusetui.trace.model.arrays import Rows, distinct
from fusetui.trace.model.columns import Trace

RANKS_TRIED = (1, 2, 4, 8, 16, 32, 64)
"""Over how many ranks the heads may be divided."""

KEYS_AND_VALUES = 2
"""The cache of a layer consists of two tensors of the same shape."""


class KeyValueCache(msgspec.Struct, frozen=True):
    """How many bytes of keys and values attention reads for one token.

    If this is not known, `missing` says why.
    """

    bytes_per_token: int | None = None  # over all counted layers
    layers: int = 0  # that are counted
    source: Literal["attention", "config", ""] = ""  # what tells the bytes
    missing: str = ""
    remark: str = ""  # what is assumed, for the user

    def bytes_of(self, tokens: int | None) -> int | None:
        """Return the bytes of so many tokens; None if either number is not known."""
        if self.bytes_per_token is None or tokens is None:
            return None
        return self.bytes_per_token * tokens


def is_attention(op_name: str) -> bool:
    """Decide whether an op computes attention, by its name."""
    return "att" in op_name.lower()


def measure_key_value_cache(
    trace: Trace,
    kernels: Rows,
    tokens: int | None,
    shapes: Sequence[WeightShape],
    model: ModelConfig | None,
) -> KeyValueCache:
    """Find out how many bytes of keys and values one pass reads for a token.

    The recorded shapes of attention decide; where they do not tell, the configuration
    of the model.

    Args:
        trace: The trace of the server.
        kernels: The kernels of the pass.
        tokens: How many tokens are in the cache. A tensor without room for them is not
            the cache. None if the number is not known.
        shapes: The weights of the products of the pass, by which the configuration is
            checked.
        model: The configuration of the model, if the user gave one.
    """
    ops = distinct(trace.op[kernels])
    ops = ops[ops >= 0]  # -1 stands for kernels without one
    attention_ops = [op for op in ops.tolist() if is_attention(trace.name_of(op))]

    # Each layer runs one op of attention. 0 bytes: its shapes do not tell.
    inputs_of_ops = read_inputs_by_op(trace, np.array(attention_ops, dtype=np.intp))
    bytes_of_layers = [
        _compute_bytes_per_token(inputs, tokens or 0)
        for inputs in inputs_of_ops.values()
    ]
    if bytes_of_layers and all(bytes_of_layers):
        return KeyValueCache(
            bytes_per_token=sum(bytes_of_layers),
            layers=len(bytes_of_layers),
            source="attention",
        )
    if model is None:
        return KeyValueCache(
            missing=(
                "the attention shapes do not determine their size (pass --model-config)"
            )
        )
    return _derive_cache_from_config(model, shapes)


class _KeysOfLayer(NamedTuple):
    """The shape of the keys of one layer in the cache; its values have the same."""

    blocks: int
    tokens_of_block: int
    heads: int
    depth: int  # elements of a head
    dtype: str | None


def _compute_bytes_per_token(inputs: Inputs, tokens: int) -> int:
    """Compute the bytes of one token in the cache of one layer.

    Args:
        inputs: The recorded inputs of an op of attention.
        tokens: How many tokens the cache holds.

    Returns:
        0 if it is not clear which of the inputs are the cache.
    """
    tensors = [inputs.tensor(position) for position in range(len(inputs.dims))]
    possible_caches = _find_possible_caches(tensors)
    if len(possible_caches) != 1:
        return 0

    (cache,) = possible_caches
    has_queries = any(_may_be_queries_of(cache, tensor) for tensor in tensors)
    has_room = 0 < tokens <= cache.blocks * cache.tokens_of_block
    if cache.dtype is None or not has_queries or not has_room:
        return 0

    element_bytes = ELEMENT_BYTES[cache.dtype]
    return KEYS_AND_VALUES * cache.heads * cache.depth * element_bytes


def _find_possible_caches(tensors: Sequence[Tensor | None]) -> set[_KeysOfLayer]:
    """Return the shapes among the inputs of attention that may be a key-value cache.

    A cache of blocks is either two successive inputs (keys, then values) of the same
    shape [blocks, tokens, heads, depth] and type, or one input of the shape
    [2, blocks, tokens, heads, depth].

    Args:
        tensors: The inputs in their order; None for one that is no tensor.
    """
    possible_caches = set()
    for tensor, following in pairwise((*tensors, None)):
        if tensor is None:
            continue
        if len(tensor.shape) == 4 and _has_same_layout(tensor, following):
            blocks, tokens_of_block, heads, depth = tensor.shape
        elif len(tensor.shape) == 5 and tensor.shape[0] == KEYS_AND_VALUES:
            _, blocks, tokens_of_block, heads, depth = tensor.shape
        else:
            continue
        cache = _KeysOfLayer(
            blocks=blocks,
            tokens_of_block=tokens_of_block,
            heads=heads,
            depth=depth,
            dtype=tensor.dtype,
        )
        possible_caches.add(cache)
    return possible_caches


def _has_same_layout(a: Tensor, b: Tensor | None) -> bool:
    """Decide whether two tensors have the same shape and the same type.

    They do not if there is no second one.
    """
    if b is None:
        return False
    return a.shape == b.shape and a.dtype == b.dtype


def _may_be_queries_of(cache: _KeysOfLayer, tensor: Tensor | None) -> bool:
    """Decide whether a tensor may be the queries that read this cache.

    Queries are [tokens, heads, depth]. Several of their heads may share one of the
    cache.
    """
    if tensor is None or len(tensor.shape) != 3 or not cache.heads:
        return False
    _, heads, depth = tensor.shape
    return depth == cache.depth and heads % cache.heads == 0


def _derive_cache_from_config(
    model: ModelConfig, shapes: Sequence[WeightShape]
) -> KeyValueCache:
    """Compute the bytes of one token in the cache from the configuration of the model.

    E.g. 32 layers with 8 heads of keys and of values, each of 128 bf16 numbers, take 32
    x 2 x 8 x 128 x 2 bytes = 128 KB on one rank.

    Args:
        model: The configuration.
        shapes: The weights of the products of the pass. One of them must be the
            projection to q, k and v, else the configuration is of another model.
    """
    if not model.layers or not model.hidden or not model.heads or not model.dtype:
        return KeyValueCache(missing=LACKS)
    if model.is_latent:
        return KeyValueCache(missing="latent attention uses its own cache layout")
    if not shapes:
        return KeyValueCache(
            missing=(
                "without shapes, fusetui cannot check that the configuration is of "
                "this model"
            )
        )
    ranks = _infer_tensor_parallel_ranks(shapes, model)
    if ranks is None:
        return KeyValueCache(missing=_explain_other_model(model))

    heads_per_rank = max(model.kv_heads // ranks, 1)
    elements_of_layer = KEYS_AND_VALUES * heads_per_rank * model.depth
    bytes_of_layer = elements_of_layer * ELEMENT_BYTES[model.dtype]
    return KeyValueCache(
        bytes_per_token=bytes_of_layer * model.full_layers,
        layers=model.full_layers,
        source="config",
        remark=_describe_assumptions(model),
    )


def _explain_other_model(model: ModelConfig) -> str:
    """Say why the configuration does not fit the products of the pass."""
    width = (model.heads + KEYS_AND_VALUES * model.kv_heads) * model.depth
    return (
        "the configuration is of another model. No matrix product of the step is"
        f" its projection to q, k and v ({model.hidden} x {width})"
    )


def _describe_assumptions(model: ModelConfig) -> str:
    """Say what is assumed from the configuration, and which layers are not counted."""
    remark = (
        f"keys and values are assumed to be {model.type_name}, as in the configuration"
    )
    layers_with_window = model.layers - model.full_layers
    if layers_with_window > 0:
        remark += f"; {layers_with_window} sliding-window layers are not counted"
    return remark


def _infer_tensor_parallel_ranks(
    shapes: Sequence[WeightShape], model: ModelConfig
) -> int | None:
    """Find out over how many ranks the heads of attention are divided.

    Powers of two are tried until the projection to q, k and v of one rank is among the
    products that ran, either as one matrix or as separate ones. E.g. a model of 32
    heads and 8 heads of keys, each of 128, has a matrix of (32 + 2 x 8) x 128 = 6144
    columns on one rank, and of 3072 on each of two.

    Args:
        shapes: The shapes of the weights of the products that ran.
        model: The configuration.

    Returns:
        The number of ranks; None if none fits, because another model ran.
    """
    # Of the products whose input is as wide as that of attention.
    output_widths = {shape.n for shape in shapes if shape.k == model.hidden}
    for ranks in RANKS_TRIED:
        q_width = model.heads * model.depth // ranks

        # With more ranks than heads of keys, several ranks keep the same head.
        different_ranks = min(ranks, model.kv_heads)
        k_width = model.kv_heads * model.depth // different_ranks

        is_one_matrix = q_width + 2 * k_width in output_widths
        are_separate = q_width in output_widths and k_width in output_widths
        if is_one_matrix or are_separate:
            return ranks
    return None
