"""What is said about one slice: in a pane of a fixed height, so that no lane moves, and
in full, with its args, or as JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import (
    ancestors,
    is_gpu,
    launch_chain,
    launch_latency_ns,
    launched_sums,
    queue_delay_ns,
)
from fusetui.analysis.questions.device_counters import DeviceCounter
from fusetui.analysis.questions.launches import is_replay
from fusetui.gpu.calls import meaning_of_call
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.row import describe, remarks
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined, without_times
from fusetui.trace.model.memo import kept_result, memo
from fusetui.trace.program.backward import Dependencies, dependencies, waits_for
from fusetui.trace.program.origin import Origins
from fusetui.trace.program.own_code import Program, path_of, program_of, source_of
from fusetui.trace.program.regions import label_of as region_label
from fusetui.tui.drawing.picture import Said, clipped
from fusetui.tui.drawing.schemes import Glyphs
from fusetui.tui.layout.kinds import label_of, narrow, note_of
from fusetui.tui.layout.view import Side

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks
    from fusetui.gpu.kernel_names.record import Annotated

DEEPEST = 16  # levels of nested lists and objects
LONGEST = 2000  # characters; no screen shows more
INDENT = "  "
MOST_LINES = 1000  # of args, and of slices around it, in the overlay


def value_text(value: object, ellipsis: str, as_json: bool = False) -> str:
    """A string as it is, unless `as_json`, all else as JSON; an ellipsis for what is
    too deep or too long."""
    text, is_plain = "", isinstance(value, str) and not as_json
    for piece in [str(value)] if is_plain else _pieces(value, DEEPEST, ellipsis):
        text += piece[: LONGEST + 1]
        if len(text) > LONGEST:
            break
    return clip(narrow(printable(text)), LONGEST, ellipsis)


def _pieces(value: object, deep: int, ellipsis: str) -> Iterator[str]:
    """The text of a value piece by piece, only as far as it is needed."""
    if not isinstance(value, dict | list) or not value:
        text = value[: LONGEST + 1] if isinstance(value, str) else value
        yield json.dumps(text, ensure_ascii=False, default=str)
    elif not deep:
        yield ellipsis
    else:
        before, closing = "{}" if isinstance(value, dict) else "[]"
        for key in value if isinstance(value, dict) else range(len(value)):
            yield before
            if isinstance(key, str):
                yield f"{json.dumps(key[: LONGEST + 1], ensure_ascii=False)}: "
            yield from _pieces(value[key], deep - 1, ellipsis)
            before = ", "
        yield closing


def raw_lines(trace: Trace, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """The event as the file has it, as JSON, an arg on a line or more."""
    if missing := why_missing(trace):
        return [Said(missing)]
    event = trace.elements.element(int(trace.order[row]))
    lines = chain(["{"], _members(event, INDENT, width, glyphs.ellipsis), ["}"])
    return [Said(line) for line in islice(lines, MOST_LINES)]


def _members(
    event: dict[str, Any], indent: str, width: int, ellipsis: str
) -> Iterator[str]:
    """Each on a line or more; the objects in an event on lines of their own."""
    last = len(event) - 1
    for number, (key, value) in enumerate(event.items()):
        comma, text = (
            "," * (number < last),
            f"{indent}{value_text(key, ellipsis, True)}: ",
        )
        if isinstance(value, dict) and indent == INDENT:
            yield text + "{"
            yield from _members(value, indent + INDENT, width, ellipsis)
            yield f"{indent}}}{comma}"
            continue
        yield from textwrap.wrap(
            f"{text}{value_text(value, ellipsis, True)}{comma}",
            max(20, width),
            subsequent_indent=f"{indent}    ",
            replace_whitespace=False,
            drop_whitespace=False,
        )


def why_missing(trace: Trace) -> str:
    """Why no args can be shown now; "" if they can."""
    if problem := trace.elements.text.problem():
        return printable(f"no args are shown: {problem}")
    return (
        ""
        if trace.elements.text.at_hand
        else "its args follow: the file is being unpacked"
    )


LAUNCH_ARGS = (
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "est. achieved occupancy %",
)
MOST = 64  # args, tensors, slices around it that the few lines use
NOWHERE = Program(-1, (), (), -1)
MOST_NODES = 8  # of a graph that are named
MOST_PROGRAM = 1000  # modules and frames around a slice that are listed
SEPARATOR = " > "
LONGEST_PATH = 48  # characters
LONGEST_NAME = 4000  # characters of a name that are shown and marked
OTHER_ARGS = {  # shapes are said, links followed
    *(
        "Input Dims",
        "Input type",
        "Concrete Inputs",
        "Input Strides",
        "External id",
        "correlation",
    ),
    *("Ev Idx", "Record function id", "device", "stream"),
    *("Python id", "Python parent id", "Python module id"),
}


def details(
    side: Side, row: int, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """At most `height` lines about a row; of kernels the same facts are always on the
    same line. If the trace names parts of the program, a line says where in the program
    it comes from."""
    trace, found = side.trace, side.insight.origins
    tells_more = found is not None and (len(found.regions) or len(found.frames))
    program = [program_line(found, row)] if found and tells_more else []
    marked = _annotated(trace, row, width, glyphs)
    names = [narrow(text) for text, _ in marked.lines]
    legend = max(1 - len(program), height - 6 - len(program))
    room = 1 if marked.legend and legend > 0 else max(1, height - 5)
    name = [Said(text, "plain") for text in names[:room]]
    if room < len(names):
        more = clip(names[room - 1], width - len(glyphs.ellipsis), "") + glyphs.ellipsis
        name[-1] = Said(more, "plain")
    name += [Said("")] * (bool(marked.legend) * (room - len(name)))
    # the marks below the name, and lines that explain them
    if marked.legend and legend > 0:
        meanings = [Said(line) for line in flow(marked.legend, width)[:legend]]
        blanks = [Said("")] * (legend - len(meanings))
        name += [Said(marked.lines[0][1], "warning"), *meanings, *blanks]
    lines = [title(trace, row, width, glyphs), *name]
    ran = while_it_ran(trace, row, side.device_counters)
    facts = flow([*_facts(trace, row, glyphs), *ran], width)
    if meaning := _meaning(trace, row):
        facts = [*facts, *textwrap.wrap(meaning, max(20, width))]
    lines += [Said(text) for text in (*program, _origin(trace, row, glyphs), *facts)]
    return clipped(lines, width, height, glyphs.ellipsis)


def details_height(lines: int) -> int:
    """How many lines of a page of this height are for the details, including the
    rule."""
    return max(7, min(12, lines // 3))


def all_details(side: Side, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """Everything about a row, for the overlay: also the modules and Python frames
    around it, the innermost first, each with its duration."""
    trace, found = side.trace, side.insight.origins
    lines = [title(trace, row, width, glyphs), Said("")]
    marked = _annotated(trace, row, width, glyphs)
    for text, under in marked.lines:
        lines += [Said(narrow(text), "plain"), Said(under, "warning")]
    lines += [Said("  " + meaning) for meaning in marked.legend] + [Said("")]
    program = _program(found, row) if found else NOWHERE
    if forward := _forward(trace, program):
        lines.append(Said(f"  {narrow(forward)}"))
    for over in program.regions[:MOST_PROGRAM]:
        label = narrow(region_label(trace.name_of(over), expanded=True))
        timed = not without_times(trace, np.array([over]))[0]
        lasted = f"   {duration(int(trace.dur[over]))}" if timed else ""
        lines.append(Said(f"  module {label}{lasted}"))
    lines += [
        Said(text) for text in (_origin(trace, row, glyphs), *_waiting(trace, row))
    ]
    known = {*program.regions, *program.frames}
    calls = [
        over for over in launch_chain(trace, row)[:MOST_LINES] if over not in known
    ]
    for over in (*calls, *program.frames[:MOST_PROGRAM]):
        lines.append(Said(f"  {_name(trace, over)}   {duration(int(trace.dur[over]))}"))
    lines += map(Said, while_it_ran(trace, row, side.device_counters))
    if meaning := _meaning(trace, row):
        lines += [Said(line) for line in textwrap.wrap(meaning, max(20, width))]
    if missing := why_missing(trace):
        return [*lines, Said(""), Said(missing)]
    lines += [
        Said(text) for text in (describe(trace, row), *remarks(trace, row)) if text
    ]
    args = _args(trace, row)
    lines += [Said(""), Said("args" if args else "no args", "title")]
    for key, value in islice(args.items(), MOST_LINES):
        lines.append(
            Said(f"  {value_text(key, '')}: {value_text(value, glyphs.ellipsis)}")
        )
    if len(args) > MOST_LINES:
        lines.append(Said(f"  and {count(len(args) - MOST_LINES)} more"))
    return lines


def _meaning(trace: Trace, row: int) -> str:
    """What the compile log says of a slice, or what a call is for, where its name does
    not say it."""
    note = note_of(trace, row)
    if note is not None:
        return note.text
    return meaning_of_call(trace.name_of(row)) if trace.role[row] == Role.CALL else ""


def while_it_ran(
    trace: Trace, row: int, counters: Sequence[DeviceCounter]
) -> list[str]:
    """`while it ran: SM clock 1755 MHz, power 250 W`: means over a GPU event, if there
    are any."""
    if not is_gpu(trace, row):
        return []
    begin, end = trace.start[row : row + 1], trace.end[row : row + 1]
    device = trace.track_of(row).pid
    own = (
        (one, float(one.mean(begin, end)[0]))
        for one in counters
        if one.device == device
    )
    means = [
        f"{one.kind} {mean:.4g} {one.unit}" for one, mean in own if not math.isnan(mean)
    ]
    return [f"while it ran: {', '.join(means)}"] if means else []


def on_path_text(marks: Marks, trace: Trace, row: int) -> str:
    """`on the critical path`, `could take 41 us longer ...`; "" where that is not
    known."""
    ns, spare = int(marks.ns[row]), int(marks.spare_ns[row])
    if ns:
        whole = ns >= int(trace.dur[row])
        return f"{'' if whole else f'{duration(ns)} of it '}on the critical path"
    if spare < 0:
        return ""
    longer = (
        f"could take {duration(spare)} longer" if spare else "could not take longer"
    )
    return f"{longer} without moving the end"


def warm(found: Origins) -> None:
    """Computes what every line about a slice needs, before a key waits for it."""
    if len(found.trace):
        program_of(
            found, int(found.trace.gpu_rows[0]) if len(found.trace.gpu_rows) else 0
        )


def program_line(found: Origins, row: int) -> str:
    """`in Decoder_3 > MLP_3   my_model.py:42 forward`; of backward work those of its forward op."""
    program = _program(found, row)
    source = source_of(found, program)
    file = source.file.rpartition("/")[2] if source else ""
    parts = (
        f"in {inner(path_of(found, program))}" if program.regions else "",
        f"{file}:{source.line} {source.name}" if source else "",
        _forward(found.trace, program),
    )
    return "   ".join(narrow(part) for part in parts if part)


def inner(path: str) -> str:
    """The inner levels of a long path, which tell more than the outer ones.

    >>> inner("Qwen3Model_0 > Qwen3DecoderLayer_1 > Qwen2MLP_1 > MergedColumnParallelLinear_1")
    '… > Qwen2MLP_1 > MergedColumnParallelLinear_1'
    """
    levels = path.split(SEPARATOR)
    while len(levels) > 1 and len(SEPARATOR.join(levels)) > LONGEST_PATH:
        del levels[0]
    shown = SEPARATOR.join(levels)
    return shown if shown == path else f"…{SEPARATOR}{shown}"


def _forward(trace: Trace, program: Program) -> str:
    op = program.forward_op
    return f"backward of {trace.name_of(op)}" if op >= 0 else ""


@memo(64)
def _program(found: Origins, row: int) -> Program:
    """Where it comes from: nothing is inside itself."""
    known = program_of(found, row)
    return replace(known, regions=tuple(over for over in known.regions if over != row))


def title(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Said:
    """Short name, duration, place."""
    label = label_of(int(trace.role[row]), trace.name_of(row))
    rest = f"   {duration(int(trace.dur[row]))}   {narrow(trace.track_of(row).label)}"
    return Said(clip(label, max(8, width - len(rest)), glyphs.ellipsis) + rest, "title")


def _annotated(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Annotated:
    from fusetui.gpu.kernel_names.record import annotate  # once a slice is selected

    name = trace.name_of(row)
    decoded = decode(name) if trace.role[row] == Role.KERNEL else None
    parts = [
        part for part in (decoded.parts if decoded else ()) if part[1] <= LONGEST_NAME
    ]
    return annotate(name[:LONGEST_NAME], parts, max(1, width), glyphs.underline)


def flow(pieces: Sequence[str], width: int) -> list[str]:
    """Puts as many pieces on each line as fit."""
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + 3 + len(piece) <= width:
            lines[-1] += "   " + piece
        else:
            lines.append(piece)
    return lines


def _origin(trace: Trace, row: int, glyphs: Glyphs) -> str:
    """Where a GPU event was launched from, or what a CPU slice launched."""
    chain = _chain(trace, launch_chain(trace, row), glyphs)
    if not is_gpu(trace, row):
        events, kernels, ns = launched_sums(trace, row)
        of_them = (
            f" ({plural(kernels, 'kernel')})" if is_replay(trace.name_of(row)) else ""
        )
        launched = f"launched {plural(events, 'GPU event')}{of_them}, {duration(ns)}"
        parts = (launched if events else "", f"in {chain}" if chain else "")
        return "   ".join(part for part in parts if part)
    if trace.launch[row] < 0:
        place = "what was read of this trace" if trace.report.prefix else "this trace"
        return f"in {chain}" if chain else f"its launch is not recorded in {place}"
    captured = ""
    if is_joined(trace, row):  # a node of a graph
        call = int(trace.asked[row])
        captured = (
            f"captured by {_chain(trace, [call, *ancestors(trace, call)], glyphs)}   "
        )
    return f"{captured}launched {_waited(trace, row)} by {chain}"


def _waiting(trace: Trace, row: int) -> Iterator[str]:
    """Which nodes of its graph it waits for, and which wait for it, once that is
    known."""
    if isinstance(found := kept_result(trace, dependencies), Dependencies):
        for word, rows in zip(("after", "before"), waits_for(found, row), strict=True):
            if names := [
                narrow(trace.name_of(other))
                for other in rows[: MOST_NODES + 1].tolist()
            ]:
                more = f" and {count(len(rows) - MOST_NODES)} more"
                rest = more if len(rows) > MOST_NODES else ""
                yield f"  {word}: {', '.join(names[:MOST_NODES])}{rest}"


def _chain(trace: Trace, rows: Sequence[int], glyphs: Glyphs) -> str:
    return f" {glyphs.chain} ".join(_name(trace, over) for over in rows[:MOST])


def _name(trace: Trace, row: int) -> str:
    """A Python frame with its file in short, `forward my_model.py:42`; else the whole
    name."""
    name = trace.name_of(row)[:LONGEST_NAME]
    is_frame = int(trace.role[row]) == Role.PYTHON
    return label_of(int(Role.PYTHON), name) if is_frame else narrow(name)


def _waited(trace: Trace, row: int) -> str:
    """How long before its start a GPU event was launched, and why it waited, if
    known."""
    latency, queued = launch_latency_ns(trace, row) or 0, queue_delay_ns(trace, row)
    if trace.report.prefix:  # what kept the stream busy may be in the rest of the trace
        queued = 0
    if latency < 0:
        return f"{duration(-latency)} later (the clocks differ)"
    behind = f" (for {duration(queued)} the stream was busy)" if queued else ""
    return f"{duration(latency)} earlier{behind}"


def _facts(trace: Trace, row: int, glyphs: Glyphs) -> list[str]:
    """What a kernel computed and how efficiently, else the shapes; then the most
    important args."""
    if missing := why_missing(trace):
        return [missing]
    args = _args(trace, row)
    work = describe(trace, row) if is_gpu(trace, row) else ""
    parts = [work or _shapes(args, glyphs), *remarks(trace, row)]
    others = islice(
        (key for key in args if key not in {*LAUNCH_ARGS, *OTHER_ARGS}), MOST
    )
    for key in (*(key for key in LAUNCH_ARGS if key in args), *others):
        value = args[key]  # with a fraction, to four significant digits
        value = float(f"{value:.4g}") if isinstance(value, float) else value
        parts.append(f"{value_text(key, '')} {value_text(value, glyphs.ellipsis)}")
    return [part for part in parts if part]


_args = memo(256)(Trace.args_of)


def _shapes(args: dict[str, Any], glyphs: Glyphs) -> str:
    dims = args.get("Input Dims")
    if not isinstance(dims, Sequence) or isinstance(dims, str):
        return ""
    tensors = islice((dim for dim in dims if dim), MOST)
    return ", ".join(value_text(dim, glyphs.ellipsis) for dim in tensors)
