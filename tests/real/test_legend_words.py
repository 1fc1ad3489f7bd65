"""Words of the legend of real traces of many kinds of work."""

from __future__ import annotations

from tests.real.traces import FRESH, TRACES, each_of
from tests.tui.layout.test_legend_words import test_words_of_the_legend_are_searched

NAMES = (
    "a10g_small",
    "h100_transformer_step",
    "mi300_torch_compile_triton",
    "nccl_collectives",
    "v100_resnet50_2021",
    "mtia_inference",
)
any_trace = each_of(
    [
        *(TRACES / f"{name}.json.gz" for name in NAMES),
        FRESH / "rtx4090_ddp_tiny.json.gz",
    ]
)
