"""Why a device is idle: the reasons of the account, and how each is said."""

from __future__ import annotations

from typing import Final

import msgspec

LOADER, COMPILER = "data_loading", "compilation"
"""What a thread that launches does instead, by the rules data-loading and recompilation."""


class IdleReason(msgspec.Struct, frozen=True):
    """One reason, in words for different places. Its key in IDLE is its name in JSON, and that of
    its color in the schemes of the app."""

    letter: str  # on the timeline
    short: str  # in a column of a table
    where: str  # in a few words
    sentence: str
    while_: str  # at the end of a sentence
    meanwhile: str = ""  # of a rank that others waited for; "" is not told


IDLE: Final = {
    # what launched the event that ends the gap is unknown
    "unlinked": IdleReason(
        "?",
        "launch not recorded",
        "for an unknown reason",
        "the launch of the next kernel was not recorded",
        "for a reason that was not recorded",
    ),
    # its call launched earlier events too: between the nodes of a CUDA graph
    "graph": IdleReason(
        "g",
        "in a CUDA graph",
        "between graph nodes",
        "between the nodes of a CUDA graph",
        "between the nodes of a CUDA graph",
    ),
    # not launched yet: what the launching thread was doing, in the order of Host
    "host_sync": IdleReason(
        "s",
        "sync",
        "in synchronization",
        "not launched yet: the thread waited for the GPU",
        "while the thread that launches waited for the GPU",
        "the GPU was idle while the launching thread waited in a synchronization",
    ),
    "host_alloc": IdleReason(
        "m",
        "allocation",
        "in allocations",
        "not launched yet: memory was allocated or freed",
        "while the thread that launches allocated or freed memory",
        "the GPU was idle while memory was allocated",
    ),
    "host_call": IdleReason(
        "r",
        "runtime call",
        "in runtime calls",
        "not launched yet: other runtime calls",
        "while the thread that launches was in other runtime calls",
        "the GPU was idle during runtime calls",
    ),
    "host_op": IdleReason(
        "o",
        "CPU op",
        "in CPU ops",
        "not launched yet: CPU ops ran",
        "while the thread that launches ran CPU ops",
        "the GPU was idle while ops ran on the CPU",
    ),
    "host_python": IdleReason(
        "p",
        "Python",
        "in Python",
        "not launched yet: Python ran",
        "while the thread that launches ran Python",
        "the GPU was idle while Python ran",
    ),
    "host_annotation": IdleReason(
        "a",
        "annotation",
        "in annotations",
        "not launched yet: inside an annotation",
        "while the thread that launches was inside an annotation",
        "the GPU was idle in annotated code",
    ),
    "host_nothing": IdleReason(
        "n",
        "nothing recorded",
        "with nothing recorded",
        "not launched yet: nothing was recorded",
        "while nothing was recorded of the thread that launches",
        "the GPU was idle and nothing was recorded on the launching thread",
    ),
    # the launch call was running
    "launch_call": IdleReason(
        "c",
        "launch call",
        "in launch calls",
        "the launch call was running",
        "while a launch call was running",
        "the GPU was idle during launch calls",
    ),
    # launched, for no longer than that usually takes
    "launch_latency": IdleReason(
        "l",
        "launch latency",
        "in launch latency",
        "the usual delay from launch to start",
        "between a launch and its start, as is usual",
    ),
    # launched, but not started
    "queued": IdleReason(
        "q",
        "queued",
        "although work was queued",
        "launched, but not started yet",
        "although the next event was launched already",
        "the GPU was idle though work had been launched",
    ),
    # after the last event of the device; only in steps and windows
    "after": IdleReason(
        "e",
        "after the last event",
        "after the last event",
        "after the last GPU event",
        "after the last GPU event",
    ),
}
"""Every ns of idle time has one of these reasons."""
