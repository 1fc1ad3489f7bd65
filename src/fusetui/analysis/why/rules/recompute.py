"""The forward pass is done once more in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import CannotTell, Claim, Rule, most_module, share_of_span
from fusetui.text.figures import duration, plural
from fusetui.trace.model.categories import Role

CHECKPOINT = "CheckpointFunctionBackward"
"""The node of torch.utils.checkpoint with use_reentrant=True; without, nothing names it."""


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    if not len(kernels.origins.modules):
        if len(facts.named(lambda name: name == CHECKPOINT, Role.OP)):
            raise CannotTell("Python frames and modules", "with_stack=True")
        return
    again = kernels.credit.recompute & kernels.is_kernel
    taken = int(kernels.effective_ns[again].sum())
    if not taken:
        return
    module = most_module(facts, kernels.module[again], kernels.effective_ns[again])
    number = int(np.count_nonzero(again))
    yield Claim(
        text=f"{plural(number, 'kernel')} of the forward pass {'runs' if number == 1 else 'run'} "
        f"once more in the backward pass, for {duration(taken)} ({share_of_span(facts, taken)})"
        f"{f', most of it in {module}' if module else ''}.",
        at_stake_ns=taken,
        rows=kernels.heaviest(again),
    )


RULE = Rule(
    id="recompute",
    title="Forward work done twice",
    question="What does activation checkpointing cost?",
    needs="Stacks: the calls of modules that begin inside a backward op.",
    formula="The effective time of the kernels that such calls launch.",
    remedy="As far as memory allows, checkpoint fewer modules, or keep the results of their "
    "products: torch.utils.checkpoint.create_selective_checkpoint_contexts.",
    thresholds={},
    find=find,
    of_kernels=True,
)
