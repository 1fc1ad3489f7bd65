"""The compiled scanner, scan.c. Both functions give None for what Python has to look at."""

from collections.abc import Callable
from typing import TypedDict

from fusetui.trace.model.arrays import Int64s

MAX_ARG_NAMES: int

class Column:
    """Read-only memory; numpy.frombuffer makes an array of it without a copy."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class ScannedEvents(TypedDict):
    phases: dict[str, int]  # how many events have each phase (ph)
    # by slice
    start: Column  # ns, int64
    dur: Column  # ns, int64
    correlation: Column  # int64, -1: none
    external_id: Column  # int64, -1: none
    order: Column  # the index of the event in the text, int64
    name: Column  # into `names`, int32
    category: Column  # into `categories`, int32
    lane: Column  # into `lanes`, int32
    # texts as they are written in JSON: strings of `ids` and labels with their quotes,
    # names and categories without
    names: list[bytes]
    categories: list[bytes]
    ids: list[bytes]  # of processes and threads
    lanes: list[tuple[int, int, int]]  # process and thread, into `ids`; device or -1
    distinct_labels: list[bytes]  # events (ph M)
    labels_in_order: Column  # of all labels of the text, into `distinct_labels`, int32
    # of the events that are no slices; first_ns > last_ns if there are none
    first_ns: int
    last_ns: int

def events(
    text: bytes | memoryview, is_on_gpu: Callable[[bytes], bool], /
) -> ScannedEvents | None:
    """The columns of elements with commas between them. `is_on_gpu` tells whether events
    of a category run on a stream of a GPU."""

def arguments(
    text: bytes,
    places: Int64s,
    names: tuple[bytes, ...],
    total_count: int,
    wants_sequences: bool,
    /,
) -> tuple[Column, list[bytes], Column, Column] | None:
    """Some args of the elements at these places, which ascend.

    The last `total_count` names are asked of memory events only. Returns, of each place,
    the number of its args among the distinct ones, int32, -1 for none; the texts of
    these, each with zeros between the args; place, sequence number and forward thread of
    each element that has a sequence number, int64, shape [elements, 3]; and of each
    memory event the totals, float64, shape [events, total_count], nan for none. Raises
    ValueError unless there are 1 to MAX_ARG_NAMES names."""
