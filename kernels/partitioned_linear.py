"""n different nn.Linear, the i-th on x[:, i]: a list of layers against faster ways to write it.

The forms are in `partitioned_forms.py`; all of them are made from the list's weights. The source
names three: A is `big`, B is `loop`, C is `masked`.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .model import Shapes, Variant, Workload
from .partitioned_forms import Big, Bmm, Form, Fused, Masked, convert, random_loop
from .variants import COMPILED, EAGER, TENSOR_CORES


def _form(form: type[Form], *, compiled: bool = False) -> Variant:
    return Variant(partial(convert, to=form), compiled=compiled)


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
        "fused": Variant(partial(convert, to=Fused), needs_gpu=True, capability=TENSOR_CORES),
        "loop-compiled": COMPILED,
        "masked-compiled": _form(Masked, compiled=True),
        "bmm-compiled": _form(Bmm, compiled=True),
    },
    # The sweeps of the source. Its sizes are totals: 256, 1024, 8096 and 8192 over n = 32 layers,
    # or 1024 over n of them.
    sweeps={
        "paper-batch": "batch=64,128,...,2048",
        "paper-n": "n=4,8,...,32 in=1024/n out=1024/n",
        "paper-in": "in=8,32,253,256",
        "paper-out": "out=8,32,253,256",
    },
)
