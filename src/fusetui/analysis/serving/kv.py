"""How many bytes of keys and values attention reads for a token, over all layers.

The shapes that attention was given say it exactly: its cache is two tensors [blocks, tokens of a
block, heads, depth], or one of [2, blocks, tokens of a block, heads, depth]. Otherwise the
configuration of the model does (config.json of transformers), provided that a product of the step
has the shape of its projection to q, k and v.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from fusetui.analysis.serving.config import DTYPES, whole
from fusetui.analysis.serving.weights import inputs_by_op
from fusetui.gpu.roofline.inputs import SIZES, Inputs, Tensor
from fusetui.trace.model.columns import Rows, Trace

MOST_RANKS = 64


class Cache(msgspec.Struct, frozen=True):
    """Bytes of a token, or why they are not known."""

    bytes_per_token: int | None = None
    layers: int = 0  # that are counted
    source: str = ""  # attention or config
    missing: str = ""
    remark: str = ""


def cache_of(
    trace: Trace,
    kernels: Rows,
    tokens: int | None,
    shapes: Sequence[tuple[int, int]],
    config: Mapping[str, Any] | None,
) -> Cache:
    """What the kernels of one pass read for a token. `tokens`: those in the cache, which has room
    for them; `shapes`: K and N of the products of the pass."""
    ops = np.unique(trace.op[kernels])
    ops = ops[ops >= 0]
    ops = ops[np.array(["att" in trace.name_of(op).lower() for op in ops.tolist()], np.bool_)]
    known = [_of_attention(one, tokens or 0) for one in inputs_by_op(trace, ops).values()]
    own = [size for size in known if size]
    if own and len(own) == len(known):
        return Cache(sum(own), len(own), "attention")
    if config is None:
        return Cache(missing="the shapes of attention do not tell (--model-config does)")
    return _of_config(config, shapes)


def _of_attention(inputs: Inputs, tokens: int) -> int:
    """Bytes of a token in the cache of one layer; 0 if the shapes do not tell."""
    tensors = [inputs.tensor(place) for place in range(len(inputs.dims))]
    queries = {(t.shape[1], t.shape[2]) for t in tensors if t is not None and len(t.shape) == 3}
    pairs = {
        (t.shape, t.dtype)
        for n, t in enumerate(tensors)
        if t is not None and len(t.shape) == 4 and _equal(t, tensors[n + 1 : n + 2])
    }
    whole = {
        (t.shape[1:], t.dtype)
        for t in tensors
        if t is not None and len(t.shape) == 5 and t.shape[0] == 2
    }
    found = pairs | whole
    if len(found) != 1:
        return 0
    (blocks, size, heads, depth), dtype = found.pop()
    asks = any(d == depth and heads and h % heads == 0 for h, d in queries)
    if dtype is None or not asks or not tokens or blocks * size < tokens:
        return 0
    return 2 * heads * depth * SIZES[dtype]


def _equal(one: Tensor, others: Sequence[Tensor | None]) -> bool:
    return any(o is not None and (o.shape, o.dtype) == (one.shape, one.dtype) for o in others)


def _of_config(config: Mapping[str, Any], shapes: Sequence[tuple[int, int]]) -> Cache:
    layers, hidden = whole(config, "num_hidden_layers"), whole(config, "hidden_size")
    heads = whole(config, "num_attention_heads")
    word = config.get("dtype", config.get("torch_dtype"))
    size = SIZES.get(DTYPES.get(word, "")) if isinstance(word, str) else None
    if not layers or not hidden or not heads or size is None:
        return Cache(missing="the configuration lacks the sizes or the type of the model")
    if whole(config, "kv_lora_rank"):
        return Cache(missing="the cache of latent attention has a layout of its own")
    full = _full_layers(config, layers)
    kv = whole(config, "num_key_value_heads") or heads
    depth = whole(config, "head_dim") or hidden // heads
    ranks = _ranks(shapes, hidden, heads * depth, kv * depth, kv)
    if ranks is None and not shapes:
        return Cache(missing="no shapes tell whether the configuration is that of this model")
    if ranks is None:
        width = (heads + 2 * kv) * depth
        return Cache(
            missing=f"no matrix product of the step is the projection of the configuration to q,"
            f" k and v ({hidden} x {width}): it is of another model"
        )
    each = 2 * max(kv // ranks, 1) * depth * size
    remark = f"keys and values are taken to be {word}, as the configuration says of the model"
    if full < layers:
        remark += f"; {layers - full} layers with a window are not counted"
    return Cache(full * each, full, "config", remark=remark)


def _ranks(
    shapes: Sequence[tuple[int, int]], hidden: int, q: int, kv: int, heads: int
) -> int | None:
    """Over how many ranks the heads are divided, by the projections that ran."""
    outputs = {n for k, n in shapes if k == hidden}
    for ranks in (1 << n for n in range(MOST_RANKS.bit_length())):
        own = kv // min(ranks, heads)
        if q // ranks + 2 * own in outputs or {q // ranks, own} <= outputs:
            return ranks
    return None


def _full_layers(config: Mapping[str, Any], layers: int) -> int:
    """Layers that attend to all tokens; those with a window read less, which is not counted."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(kind == "full_attention" for kind in kinds)
    windowed = config.get("sliding_window") and config.get("use_sliding_window", True)
    return 0 if windowed else layers
