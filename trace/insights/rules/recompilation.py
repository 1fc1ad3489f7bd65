"""Compilation inside what was recorded."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.trace.insights.facts import COMPILER, Facts
from fusetui.trace.insights.rule import Claim, Rule
from fusetui.trace.insights.wording import share_of_span
from fusetui.trace.model.categories import Role
from fusetui.trace.text.figures import duration


def find(facts: Facts) -> Iterator[Claim]:
    rows = facts.named(COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)
    waited = sum(int(ns.sum()) for ns in facts.idle_during(rows))
    if waited:
        yield Claim(
            text=f"The GPU waits {duration(waited)} ({share_of_span(facts, waited)}) while "
            "torch.compile compiles inside the recorded steps.",
            at_stake_ns=waited,
            rows=facts.heaviest(rows),
        )


RULE = Rule(
    id="recompilation",
    title="Compiling while recorded",
    question="Does compilation fall into the recorded steps?",
    needs="Annotations of torch.compile (dynamo_timed) or Python frames.",
    formula="The idle time of the device during which a thread that launches is compiling.",
    remedy="Warm up before recording; if it recurs, TORCH_LOGS=recompiles names the guard that "
    "failed, and torch.compile(dynamic=True) or mark_dynamic avoids recompiling for sizes.",
    thresholds={},
    find=find,
)
