"""What the time of a GPU goes to, in words, where the GPU is the limit."""

from __future__ import annotations

from fusetui.analysis.why.model import Share, Why
from fusetui.analysis.why.telling import headline
from fusetui.text.figures import percent
from fusetui.text.tables import cut

TOLD = 3  # in a sentence
LONGEST_TOLD = 48
BUSY = 0.8
"""From this share of the time asked about on, the GPU itself is the limit."""


def is_limit(found: Why) -> bool:
    """Whether the GPU is busy for most of what the answer is about."""
    _, sums = headline(found)
    return bool(found.devices) and sums["span"] - sums["idle"] >= BUSY * sums["span"] > 0


def breakdown_parts(found: Why) -> list[tuple[str, tuple[Share, ...], int]]:
    """By what the time is divided, its parts, and the time that their shares are of."""
    known = found.breakdown
    if known is None:
        return []
    parts = [("kernel", known.kernels, known.kernels_ns)]
    parts.append(("module or annotation", known.modules, known.modules_ns))
    return [part for part in parts if part[1]]


def breakdown_text(found: Why, longest: int = LONGEST_TOLD) -> str:
    """`GPU time by kernel: gemm bf16 39 %, ...; by module or annotation: Qwen2MLP 31 %, ...`; ""
    where the GPU is not the limit. Names are cut to `longest`, unless nobody sees that."""
    if found.breakdown is None or not found.breakdown.kernels or not is_limit(found):
        return ""
    told = (
        f"by {what}: "
        + ", ".join(f"{cut(one.name, longest)} {percent(one.ns, whole)}" for one in some[:TOLD])
        for what, some, whole in breakdown_parts(found)
    )
    return f"GPU time {'; '.join(told)}."
