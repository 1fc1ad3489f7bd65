"""The classes of the account, in words."""

from __future__ import annotations

from typing import Final

LOADER, COMPILER = "data_loading", "compilation"
"""What a thread that launches does instead, by the rules data-loading and recompilation."""

REASONS: Final = {
    "unlinked": "the launch of the next kernel was not recorded",
    "graph": "between the nodes of a CUDA graph",
    "host_sync": "not launched yet: the thread waited for the GPU",
    "host_alloc": "not launched yet: memory was allocated or freed",
    "host_call": "not launched yet: other runtime calls",
    "host_op": "not launched yet: CPU ops ran",
    "host_python": "not launched yet: Python ran",
    "host_annotation": "not launched yet: inside an annotation",
    "host_nothing": "not launched yet: nothing was recorded",
    "launch_call": "the launch call was running",
    "launch_latency": "the usual delay from launch to start",
    "queued": "launched, but not started yet",
    "after": "after the last GPU event",
}
"""Why a device was idle, by the names of gaps.IDLE."""

WHILE: Final = {
    "unlinked": "for a reason that was not recorded",
    "graph": "between the nodes of a CUDA graph",
    "host_sync": "while the thread that launches waited for the GPU",
    "host_alloc": "while the thread that launches allocated or freed memory",
    "host_call": "while the thread that launches was in other runtime calls",
    "host_op": "while the thread that launches ran CPU ops",
    "host_python": "while the thread that launches ran Python",
    "host_annotation": "while the thread that launches was inside an annotation",
    "host_nothing": "while nothing was recorded of the thread that launches",
    "launch_call": "while a launch call was running",
    "launch_latency": "between a launch and its start, as is usual",
    "queued": "although the next event was launched already",
    "after": "after the last GPU event",
}
"""The same as the end of a sentence."""

WHERE: Final = {
    "unlinked": "for an unknown reason",
    "graph": "between graph nodes",
    "host_sync": "in synchronization",
    "host_alloc": "in allocations",
    "host_call": "in runtime calls",
    "host_op": "in CPU ops",
    "host_python": "in Python",
    "host_annotation": "in annotations",
    "host_nothing": "with nothing recorded",
    "launch_call": "in launch calls",
    "launch_latency": "in launch latency",
    "queued": "although work was queued",
    "after": "after the last event",
}
"""The same in a few words."""

SHORT: Final = {
    "unlinked": "launch not recorded",
    "graph": "in a CUDA graph",
    "host_sync": "sync",
    "host_alloc": "allocation",
    "host_call": "runtime call",
    "host_op": "CPU op",
    "host_python": "Python",
    "host_annotation": "annotation",
    "host_nothing": "nothing recorded",
    "launch_call": "launch call",
    "launch_latency": "launch latency",
    "queued": "queued",
    "after": "after the last event",
}
"""The same for the column of a table."""

CLASSES: Final = {
    "span": "span",
    "compute": "compute",
    "exposed_comm": "communication, exposed",
    "exposed_copy": "copies, exposed",
    "idle": "idle",
}

SHORT_CLASSES: Final = {
    **CLASSES,
    "exposed_comm": "exposed comm",
    "exposed_copy": "exposed copies",
}
"""The same where there is less room."""
