"""Which versions of torch a trace may come from, and what a setting needs.

No profiler writes the version into the trace. Categories in capitals (`Kernel`,
`Operator`) end with torch 1.13; `baseTimeNanoseconds` and names of Dynamo came later.
"""

from __future__ import annotations

from typing import Final

from fusetui.text.patterns import late
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import by_key
from fusetui.trace.model.memo import memo

Version = tuple[int, int]
TORCH_2: Final[Version] = (2, 0)
UNKNOWN: Final[Version] = (0, 0)

SINCE: Final[dict[str, Version]] = {
    # pytorch.org/docs/1.12 documents it; whether 1.11 lacks it could not be checked.
    "torch.set_float32_matmul_precision": (1, 12),
    "torch.compile": TORCH_2,
    "torch.nn.functional.scaled_dot_product_attention": TORCH_2,
    "fused=True": TORCH_2,  # not verified
    # The release notes of 2.2 call it new (beta); earlier pages call it a prototype, of
    # an unknown version: not verified.
    "TORCH_LOGS": (2, 1),
    "expandable_segments": (2, 1),  # not verified
    "torch.nn.attention.sdpa_kernel": (2, 3),  # pytorch.org/docs/2.3 documents it
    # github.com/meta-pytorch/tnt/issues/751 and
    # github.com/ultralytics/ultralytics/issues/14677: torch 2.2.1 and 2.1.0 lack it.
    "torch.amp.GradScaler": (2, 3),
    # not verified
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": (2, 4),
}
"""What remedies name, and the first version of torch that has it."""

PROFILER_CATEGORIES = ("Operator", "Kernel", "Memcpy", "Memset", "Runtime")
OF_DYNAMO = late(r"Torch-Compiled Region|torch/_dynamo/|\(dynamo_timed\)")
BASE_TIME_SINCE: Final[Version] = (2, 3)


@memo()
def oldest_version(trace: Trace) -> Version:
    """The oldest version that can have recorded the trace; (0, 0) where nothing shows
    it."""
    if "baseTimeNanoseconds" in trace.keys:
        return BASE_TIME_SINCE
    if any(OF_DYNAMO.search(name) for name in trace.names):
        return TORCH_2
    return UNKNOWN


@memo()
def is_before_torch_2(trace: Trace) -> bool:
    """Whether the form of the trace is one that torch 2.0 no longer writes."""
    return bool(set(PROFILER_CATEGORIES) & set(trace.categories))


def with_versions(remedy: str, trace: Trace) -> str:
    """A remedy with the versions that its settings need, unless the trace is known to
    come from them or from a later one."""
    known = oldest_version(trace)
    needed = {
        name: since for name, since in SINCE.items() if name in remedy and since > known
    }
    if not needed:
        return remedy
    names_by_version = by_key(needed, lambda name: needed[name])
    parts = [
        f"torch {major}.{minor} for {' and '.join(names)}"
        for (major, minor), names in names_by_version.items()
    ]
    return f"{remedy} Needs {', '.join(parts)}."
