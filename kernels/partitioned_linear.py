"""n different nn.Linear, the i-th on x[:, i]: a list of layers against faster ways to write it.

The forms are in `partitioned_forms.py`; all of them are made from the list's weights.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .model import Shapes, Variant, Workload
from .partitioned_forms import Big, Bmm, Form, Fused, Masked, convert, random_loop
from .variants import COMPILED, EAGER


def _form(form: type[Form], *, compiled: bool = False, needs_gpu: bool = False) -> Variant:
    return Variant(partial(convert, to=form), compiled=compiled, needs_gpu=needs_gpu)


def _model(shapes: Shapes) -> nn.Module:
    return random_loop(shapes["n"], shapes["in"], shapes["out"])


def _inputs(shapes: Shapes) -> tuple[Tensor, ...]:
    return (torch.randn(shapes["batch"], shapes["n"], shapes["in"]),)


_SHAPES = {"batch": 64, "n": 32, "in": 32, "out": 32}

WORKLOAD = Workload(
    name="partitioned-linear",
    summary="n different nn.Linear on x[:, i]: a list of layers, one big one, one batched GEMM",
    dtype="bfloat16",
    gpu_shapes=_SHAPES,
    cpu_shapes=_SHAPES,
    model=_model,
    inputs=_inputs,
    variants={
        "loop": EAGER,
        "big": _form(Big),
        "masked": _form(Masked),
        "bmm": _form(Bmm),
        "fused": _form(Fused, needs_gpu=True),
        "loop-compiled": COMPILED,
        "masked-compiled": _form(Masked, compiled=True),
        "bmm-compiled": _form(Bmm, compiled=True),
    },
    # The source sweeps these four axes; the exact sizes are ours.
    sweeps={
        "paper-batch": "batch=64,128,...,2048",
        "paper-n": "n=2,4,...,128",
        "paper-in": "in=16,32,...,512",
        "paper-out": "out=16,32,...,512",
    },
)
