"""How much of the GPU's time the slices of each kind take."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.tui.layout.kinds import Kind, kind_of


class Share(msgspec.Struct, frozen=True):
    """The sum of the durations of one kind, and of all; `of`: of what."""

    kind: Kind
    ns: int
    whole_ns: int
    of: str = "GPU"


def shares(trace: Trace) -> tuple[Share, ...]:
    """Of the GPU events, else of those of other devices, the largest first. Made once per trace:
    `side.once(shares)`."""
    of, roles = ("GPU", GPU_ROLES) if len(trace.gpu_rows) else ("device", (Role.DEVICE,))
    found: dict[Kind, int] = {}
    for role in roles:
        rows = trace.rows_of(role)
        sums = np.bincount(trace.name[rows], weights=trace.dur[rows])
        for name in np.flatnonzero(sums).tolist():
            kind = kind_of(int(role), trace.names[name])
            found[kind] = found.get(kind, 0) + int(sums[name])
    whole = sum(found.values())
    order = sorted(found.items(), key=lambda item: -item[1])
    return tuple(Share(kind, ns, whole, of) for kind, ns in order)
