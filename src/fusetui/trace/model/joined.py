"""A trace whose graph replays were joined with the capture of their graphs.

The rows of the capture that contain a captured call follow those of the trace itself,
on tracks of their own: calls, ops, Python frames and annotations, with the times
between them as they were recorded there, shifted to the beginning of the trace. Their
role is CAPTURED, so that nothing counts them as work of this trace.

Where nodes of graphs are annotated instead, there is such a row for each path that an
annotation names, and one of the role OTHER for nodes without an annotation. They tell
the module of a node and nothing else: its call, op and frame are those of the launch of
the graph.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from fusetui.text.figures import plural
from fusetui.trace.model.arrays import NO_ROW, Flags, Int32s, Integers, Kinds, Rows
from fusetui.trace.model.categories import GRAPH_ANNOTATION, Layer, Role
from fusetui.trace.model.columns import Trace

CERTAIN, LIKELY = "certain", "likely"
CAPTURE, ANNOTATIONS = "capture", "annotations"


class Join(msgspec.Struct, frozen=True):
    """The replays that were joined with one capture or with annotations, and those
    that were not."""

    path: str  # of the capture, or of the file with the annotations
    replays: int  # graph launches that were joined
    of_replays: int  # that had not been joined before
    kernels: int  # nodes that were joined, copies and sets too
    certainty: str  # certain or likely
    why_likely: str
    # a sentence for each way in which replays could not be joined
    refused: tuple[str, ...]
    found: bool = False  # the capture was found, not named
    joined_by: str = CAPTURE  # or ANNOTATIONS: of `kernels` the module alone is known
    unnamed: int = 0  # nodes of these replays without an annotation

    @property
    def sentence(self) -> str:
        """A sentence about this join that has to be said with every answer: what was
        joined with which capture."""
        replays = f"{self.replays} of {self.of_replays} graph replays"
        events = plural(self.kernels, "event")
        take_their = "takes its" if self.kernels == 1 else "take their"
        if self.joined_by == ANNOTATIONS:
            rest = ""
            if self.unnamed:
                have = "has" if self.unnamed == 1 else "have"
                unnamed = plural(self.unnamed, "event")
                rest = f"; {unnamed} {have} no annotation and thus no module"
            return (
                f"In {replays}, {events} {take_their} module from annotations in "
                f"{self.path}{rest}."
            )
        likely = f" (likely: {self.why_likely})" if self.why_likely else ""
        return (
            f"In {replays}, {events} {take_their} op, module and shapes from the capture "
            f"in {self.path}{likely}."
        )


class Joined(Trace, frozen=True, eq=False, dict=True):
    """The arrays have the shape [slices]."""

    # of a node of a graph: the captured call, or its annotation; else -1
    captured: Int32s
    roles: Kinds  # the roles, and those that rows of a capture have there
    joins: tuple[Join, ...]

    @cached_property
    def asked(self) -> Int32s:
        """The call that asked for each GPU event: for a node of a joined graph its call
        in the capture, else its launch call."""
        has_call = (self.captured != NO_ROW) & ~self._by_annotation
        return np.where(has_call, self.captured, self.launch)

    @cached_property
    def annotated(self) -> Int32s:
        """For each node of an annotated graph the row that stands for its annotation;
        else -1."""
        return np.where(self._by_annotation, self.captured, np.int32(-1))

    @cached_property
    def _by_annotation(self) -> Flags:
        """A flag for each row: whether it is a node that an annotation names; shape
        [slices]."""
        is_call = self.roles[self.captured] == Role.CALL
        is_annotated: Flags = (self.captured != NO_ROW) & ~is_call
        return is_annotated

    @property
    def source_role(self) -> Kinds:
        """The role of each row; for rows from the capture, the role that they have
        there."""
        return self.roles

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences about joins that found any replay."""
        return tuple(join.sentence for join in self.joins if join.replays)

    def recorded(self) -> int:
        """The number of slices of the file itself, which come before those of the
        capture."""
        first_rows = [
            track.first_row for track in self.tracks if track.layer is Layer.CAPTURED
        ]
        return min(first_rows, default=len(self))


def is_joined(trace: Trace, row: int) -> bool:
    """Whether a GPU event got its op from the capture of its CUDA graph."""
    return int(trace.asked[row]) != int(trace.launch[row])


def without_times(trace: Trace, rows: Integers) -> Flags:
    """Tell of each row whether it stands for annotations of a CUDA graph, for which
    neither times nor a number of calls were recorded."""
    is_annotation = [category == GRAPH_ANNOTATION for category in trace.categories]
    of_annotations = np.array(is_annotation, dtype=np.bool_)[trace.cat[rows]]
    is_captured = trace.role[rows] == Role.CAPTURED
    are_without_times: Flags = of_annotations & is_captured
    return are_without_times


def rows_there(trace: Trace, role: Role) -> Rows:
    """The rows with a role, also those taken from a capture, ascending."""
    return np.flatnonzero(trace.source_role == role)
