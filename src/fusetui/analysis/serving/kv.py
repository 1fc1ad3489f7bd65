"""How many bytes of keys and values attention reads for a token, over all layers.

The shapes that attention was given say it exactly: its cache is two tensors [blocks, tokens of a
block, heads, depth], or one of [2, blocks, tokens of a block, heads, depth]. Otherwise the
configuration of the model does (config.json of transformers), provided that a product of the step
has the shape of its projection to q, k and v.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.serving.config import LACKS, ModelConfig
from fusetui.analysis.serving.weights import inputs_by_op
from fusetui.gpu.roofline.inputs import SIZES, Inputs
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.columns import Trace

MOST_RANKS = 64
Shapes = Sequence[tuple[int, int]]


class KeysAndValues(msgspec.Struct, frozen=True):
    """Bytes of a token, or why they are not known."""

    bytes_per_token: int | None = None
    layers: int = 0  # that are counted
    source: str = ""  # attention or config
    missing: str = ""
    remark: str = ""


def cache_of(
    trace: Trace, kernels: Rows, tokens: int | None, shapes: Shapes, model: ModelConfig | None
) -> KeysAndValues:
    """What the kernels of one pass read for a token. `tokens`: those in the cache, which has room
    for them; `shapes`: K and N of the products of the pass."""
    ops = np.unique(trace.op[kernels])
    ops = ops[[op >= 0 and "att" in trace.name_of(op).lower() for op in ops.tolist()]]
    own = [_of_attention(one, tokens or 0) for one in inputs_by_op(trace, ops).values()]
    if own and all(own):
        return KeysAndValues(sum(own), len(own), "attention")
    if model is None:
        told = "the shapes of attention do not tell (--model-config does)"
        return KeysAndValues(missing=told)
    return _of_config(model, shapes)


def _of_attention(inputs: Inputs, tokens: int) -> int:
    """Bytes of a token in the cache of one layer; 0 if the shapes do not tell."""
    tensors = [inputs.tensor(place) for place in range(len(inputs.dims))]
    known = [(t.shape, t.dtype) if t is not None else ((), None) for t in tensors]
    queries = {shape[1:] for shape, _ in known if len(shape) == 3}
    pairs = {a for a, b in itertools.pairwise(known) if a == b and len(a[0]) == 4}
    both = {(shape[1:], dtype) for shape, dtype in known if len(shape) == 5 and shape[0] == 2}
    found = pairs | both
    if len(found) != 1:
        return 0
    (blocks, size, heads, depth), dtype = found.pop()
    asks = any(d == depth and heads and h % heads == 0 for h, d in queries)
    if dtype is None or not asks or not tokens or blocks * size < tokens:
        return 0
    return 2 * heads * depth * SIZES[dtype]


def _of_config(model: ModelConfig, shapes: Shapes) -> KeysAndValues:
    if not model.layers or not model.hidden or not model.heads or not model.dtype:
        return KeysAndValues(missing=LACKS)
    if model.is_latent:
        return KeysAndValues(missing="the cache of latent attention has a layout of its own")
    ranks = _ranks(shapes, model)
    if ranks is None and not shapes:
        told = "no shapes tell whether the configuration is that of this model"
        return KeysAndValues(missing=told)
    if ranks is None:
        width = (model.heads + 2 * model.kv_heads) * model.depth
        return KeysAndValues(
            missing=f"no matrix product of the step is the projection of the configuration to q,"
            f" k and v ({model.hidden} x {width}): it is of another model"
        )
    each = 2 * max(model.kv_heads // ranks, 1) * model.depth * SIZES[model.dtype]
    remark = f"keys and values are taken to be {model.type_name}, as the configuration says of the"
    remark += " model"
    if model.full_layers < model.layers:
        without = model.layers - model.full_layers
        remark += f"; {without} layers with a window are not counted"
    return KeysAndValues(each * model.full_layers, model.full_layers, "config", remark=remark)


def _ranks(shapes: Shapes, model: ModelConfig) -> int | None:
    """Over how many ranks the heads are divided, by the projections that ran."""
    outputs = {n for k, n in shapes if k == model.hidden}
    for ranks in (1 << n for n in range(MOST_RANKS.bit_length())):
        q = model.heads * model.depth // ranks
        own = model.kv_heads * model.depth // min(ranks, model.kv_heads)
        if q + 2 * own in outputs or {q, own} <= outputs:
            return ranks
    return None
