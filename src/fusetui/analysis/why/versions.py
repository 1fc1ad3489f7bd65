"""Determine which versions of torch may have recorded a trace, and which version a
setting needs.

No profiler writes the version into the trace. Categories in capitals (`Kernel`,
`Operator`) end with torch 1.13; `baseTimeNanoseconds` and names of Dynamo came later.
"""

from __future__ import annotations

from typing import Final

from fusetui.text.patterns import lazy_pattern
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.memo import memo

Version = tuple[int, int]
TORCH_2: Final[Version] = (2, 0)
UNKNOWN: Final[Version] = (0, 0)
"""The version of which nothing is known."""

SINCE: Final[dict[str, Version]] = {
    "torch.set_float32_matmul_precision": (1, 12),
    "torch.compile": TORCH_2,
    "torch.nn.functional.scaled_dot_product_attention": TORCH_2,
    # of AdamW; Adam has it since 1.13, SGD since 2.3, Adagrad since 2.4
    "fused=True": TORCH_2,
    "TORCH_LOGS": (2, 1),
    "expandable_segments": (2, 1),
    "torch.nn.attention.sdpa_kernel": (2, 3),
    "torch.amp.GradScaler": (2, 3),
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": (2, 5),
}
"""What remedies name, and the first version of torch that has it.

The wheels of the version before, from 1.11 to 2.4, do not contain it.
"""

PROFILER_CATEGORIES = ("Operator", "Kernel", "Memcpy", "Memset", "Runtime")
"""Categories that torch wrote in capitals before version 2.0."""
OF_DYNAMO = lazy_pattern(r"Torch-Compiled Region|torch/_dynamo/|\(dynamo_timed\)")
"""Matches names that only versions with Dynamo write."""
BASE_TIME_SINCE: Final[Version] = (2, 3)
"""The first version that writes `baseTimeNanoseconds`."""


@memo()
def find_oldest_version(trace: Trace) -> Version:
    """Return the oldest version that can have recorded the trace.

    It is (0, 0) if nothing tells.
    """
    if "baseTimeNanoseconds" in trace.keys:
        return BASE_TIME_SINCE
    if any(OF_DYNAMO.search(name) for name in trace.names):
        return TORCH_2
    return UNKNOWN


@memo()
def is_before_torch_2(trace: Trace) -> bool:
    """Whether the trace has a form that torch 2.0 no longer writes."""
    return bool(set(PROFILER_CATEGORIES) & set(trace.categories))


def add_versions(remedy: str, trace: Trace) -> str:
    """Add the versions of torch to a remedy that its settings need.

    Nothing is added if the trace is known to come from these versions or later ones.
    """
    oldest = find_oldest_version(trace)
    needed = {}
    for name, first_version in SINCE.items():
        if name in remedy and first_version > oldest:
            needed[name] = first_version

    if not needed:
        return remedy

    names_by_version = by_key(needed, lambda name: needed[name])
    parts = []
    for version, names in names_by_version.items():
        major, minor = version
        require = "requires" if len(names) == 1 else "require"
        parts.append(f"{' and '.join(names)} {require} torch {major}.{minor} or later")

    return f"{remedy} {', and '.join(parts)}."
