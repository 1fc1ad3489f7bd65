"""Images are transposed for the kernels of a library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule, most_module, share_of_work
from fusetui.gpu.kernel_names import KernelName
from fusetui.text.figures import duration, plural

LIBRARIES: Final = {"cudnn": "cuDNN", "miopen": "MIOpen"}


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    for family, library in LIBRARIES.items():
        found = kernels.flags(_of(family))
        ns = kernels.effective_ns[found]
        at_stake, number = int(ns.sum()), int(np.count_nonzero(found))
        if not at_stake:
            continue
        module = most_module(facts, kernels.module[found], ns)
        yield Claim(
            text=f"{plural(number, 'kernel')} of {library} {'takes' if number == 1 else 'take'} "
            f"{duration(at_stake)} ({share_of_work(facts, at_stake)}) to change the layout of "
            f"tensors for convolutions{f', most of it in {module}' if module else ''}.",
            at_stake_ns=at_stake,
            rows=kernels.heaviest(found),
            why_likely="The other kernels may be slower in that layout.",
        )


def _of(family: str) -> Callable[[KernelName], bool]:
    return lambda kernel: kernel.op == "copy" and kernel.family == family


RULE = Rule(
    id="layout-changes",
    title="Changes of layout for convolutions",
    question="Do cuDNN or MIOpen transpose tensors for their convolutions?",
    needs="Kernel names.",
    formula="The effective time of the kernels with which cuDNN or MIOpen change the layout of "
    "images.",
    remedy="model.to(memory_format=torch.channels_last), and the same for its inputs, if the "
    "convolutions want NHWC, as the fast ones of 16-bit types and TF32 do"
    "{amd:; on ROCm also PYTORCH_MIOPEN_SUGGEST_NHWC=1}.",
    thresholds={},
    find=find,
    of_kernels=True,
)
