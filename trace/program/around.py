"""The chain of a kernel beyond its op: the module and the Python frame around it."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.trace.program.origin import Origins
from fusetui.trace.program.own_code import Function, function_of, is_own
from fusetui.trace.program.regions import label_of
from fusetui.trace.program.spans import Spans


class Program(msgspec.Struct, frozen=True):
    """Where in the program a row comes from; rows of the trace, innermost first."""

    forward_op: int  # of backward work: the forward op, whose place in the program this is; else -1
    regions: tuple[int, ...]  # module calls, and annotations
    frames: tuple[int, ...]  # Python functions, including those of libraries
    own_frame: int  # the innermost frame of the user's own code, else -1


def program_of(found: Origins, row: int) -> Program:
    """For a GPU row: where it was launched, or if it is backward work, where its forward op is. For
    a row of a CPU thread: what contains it, including itself."""
    rows = np.array([row])
    region, frame = found.credit(found.regions, rows), found.credit(found.frames, rows)
    frames = _outwards(found.frames, int(frame.place[0]))
    return Program(
        forward_op=int(frame.forward_op[0]),
        regions=_outwards(found.regions, int(region.place[0])),
        frames=frames,
        own_frame=next((n for n in frames if _is_own(found.trace.name_of(n))), -1),
    )


def path_of(found: Origins, program: Program) -> str:
    """Its modules and annotations with their indices, outermost first: `Decoder_3 > MLP_3`."""
    names = [label_of(found.trace.name_of(row), expanded=True) for row in program.regions]
    return " > ".join(reversed(names))


def source_of(found: Origins, program: Program) -> Function | None:
    """The file, line and name of the user's function, else of the innermost one with a file."""
    wanted = program.frames if program.own_frame < 0 else (program.own_frame,)
    functions = (function_of(found.trace.name_of(row)) for row in wanted)
    return next((function for function in functions if function), None)


def _outwards(spans: Spans, place: int) -> tuple[int, ...]:
    rows: list[int] = []
    while place >= 0:
        rows.append(int(spans.rows[place]))
        place = int(spans.parent[place])
    return tuple(rows)


def _is_own(name: str) -> bool:
    function = function_of(name)
    return function is not None and is_own(function.file)
