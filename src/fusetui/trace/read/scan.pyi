from collections.abc import Callable

from fusetui.trace.model.arrays import Int64s

MOST_ARGS: int

def events(
    text: bytes | memoryview, on_gpu: Callable[[bytes], bool], /
) -> (
    tuple[
        dict[str, int],  # phases
        tuple[bytes, ...],  # start, dur, correlation, external id, order: int64
        tuple[bytes, ...],  # name, category, lane: int32, into the lists below
        list[bytes],  # names
        list[bytes],  # categories
        list[bytes],  # ids of processes and threads
        list[tuple[int, int, int]],  # lanes: two of these ids, and the device or -1
        list[bytes],  # distinct events that label threads
        bytes,  # these events in the order of the file: int32
        tuple[int, int],  # the first and the last time (ns) of what is no slice
    ]
    | None
):
    """The columns of elements; None for what Python has to look at."""

def arguments(
    text: bytes,
    places: Int64s,
    names: tuple[bytes, ...],
    totals: int,
    sequences: bool,
    /,
) -> tuple[bytes, list[bytes], bytes, bytes] | None:
    """Of the elements at these places (ascending) the index of their args in the texts, int32, -1
    for none; these texts; place, sequence number and thread of each that has one, int64; and of
    each memory event the last `totals` args, float64, nan for none, which the texts do not have."""
