"""Where in the program a slice comes from: how the chain of a kernel continues beyond its op."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.text.figures import duration
from fusetui.trace.model.memo import memo
from fusetui.trace.program.origin import Origins
from fusetui.trace.program.own_code import Program, path_of, program_of, source_of
from fusetui.trace.program.regions import label_of as region_label
from fusetui.tui.layout.kinds import label_of, narrow

SEPARATOR = " > "
LONGEST_PATH = 48  # characters
MOST = 1000  # modules and frames around a slice that are listed


def tells_more(found: Origins | None) -> bool:
    """Whether the trace names any modules, annotations or Python frames."""
    return found is not None and bool(len(found.regions) or len(found.frames))


def warm(found: Origins) -> None:
    """Computes what every line about a slice needs, before a key waits for it."""
    if len(found.trace):
        program_of(found, int(found.trace.gpu_rows[0]) if len(found.trace.gpu_rows) else 0)


def program_line(found: Origins | None, row: int) -> str:
    """`in Decoder_3 > MLP_3   my_model.py:42 forward`, for backward work, those of its forward
    op."""
    if found is None:
        return ""
    program = _program(found, row)
    source = source_of(found, program)
    file = source.file.rpartition("/")[2] if source else ""
    parts = (
        f"in {inner(path_of(found, program))}" if program.regions else "",
        f"{file}:{source.line} {source.name}" if source else "",
        _forward(found, program),
    )
    return "   ".join(narrow(part) for part in parts if part)


def inner(path: str) -> str:
    """The inner levels of a long path, which tell more than the outer ones.

    >>> inner("Qwen3Model_0 > Qwen3DecoderLayer_1 > Qwen2MLP_1 > MergedColumnParallelLinear_1")
    '… > Qwen2MLP_1 > MergedColumnParallelLinear_1'
    """
    levels = path.split(SEPARATOR)
    first = 0
    while first < len(levels) - 1 and len(SEPARATOR.join(levels[first:])) > LONGEST_PATH:
        first += 1
    return SEPARATOR.join(["…", *levels[first:]] if first else levels)


def module_lines(found: Origins | None, row: int) -> Iterator[str]:
    """The modules and annotations around it, innermost first, each with its duration."""
    if found is None:
        return
    program, trace = _program(found, row), found.trace
    if forward := _forward(found, program):
        yield f"  {narrow(forward)}"
    for over in program.regions[:MOST]:
        label = region_label(trace.name_of(over), expanded=True)
        yield f"  module {narrow(label)}   {duration(int(trace.dur[over]))}"


def frame_lines(found: Origins | None, row: int) -> Iterator[str]:
    """The Python frames around it, innermost first, each with its duration."""
    if found is None:
        return
    trace = found.trace
    for over in _program(found, row).frames[:MOST]:
        label = label_of(int(trace.role[over]), trace.name_of(over))
        yield f"  {label}   {duration(int(trace.dur[over]))}"


def is_told(found: Origins | None, row: int, over: int) -> bool:
    """Whether module_lines or frame_lines of a row list a slice around it."""
    if found is None:
        return False
    program = _program(found, row)
    return over in program.regions or over in program.frames


def _forward(found: Origins, program: Program) -> str:
    if program.forward_op < 0:
        return ""
    return f"backward of {found.trace.name_of(program.forward_op)}"


@memo(64)
def _program(found: Origins, row: int) -> Program:
    return program_of(found, row)
