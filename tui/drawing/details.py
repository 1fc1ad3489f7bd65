"""The details of one slice: in a pane of fixed height, so that no lane moves, or in
full, with its args or as JSON."""

from __future__ import annotations

import json  # which shows every value of an event, also NaN
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
from fusetui.trace.program.regions import is_module
from fusetui.trace.program.regions import label_of as region_label
from fusetui.tui.drawing.picture import Said, clipped, cut_in
from fusetui.tui.drawing.schemes import Glyphs
from fusetui.tui.layout.kinds import label_of, narrow, note_of
from fusetui.tui.layout.view import Side

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks
    from fusetui.gpu.kernel_names.record import Annotated

MAX_DEPTH = 16  # levels of nested lists and objects in the value of an arg
MAX_VALUE_CHARS = 2000  # of one value; no screen shows more
INDENT = "  "
MAX_LISTED = 1000  # args, and calls around a slice, that the overlay lists


def value_text(value: object, ellipsis: str, as_json: bool = False) -> str:
    """The printable text of a value: a string as it is, unless `as_json`; anything else
    as JSON. What is too deep or too long is replaced by the ellipsis."""
    if isinstance(value, str) and not as_json:
        text = value[: MAX_VALUE_CHARS + 1]
    else:
        text = ""
        for chunk in _json_chunks(value, MAX_DEPTH, ellipsis):
            text += chunk[: MAX_VALUE_CHARS + 1]
            if len(text) > MAX_VALUE_CHARS:
                break
    return clip(narrow(printable(text)), MAX_VALUE_CHARS, ellipsis)


def _json_chunks(value: object, levels: int, ellipsis: str) -> Iterator[str]:
    """The JSON of a value in chunks, so that a caller may stop early. Lists and objects
    that lie more than `levels` deep are replaced by the ellipsis."""
    if not isinstance(value, dict | list) or not value:
        start = value[: MAX_VALUE_CHARS + 1] if isinstance(value, str) else value
        yield json.dumps(start, ensure_ascii=False, default=str)
        return
    if levels == 0:
        yield ellipsis
        return
    is_object = isinstance(value, dict)
    yield "{" if is_object else "["
    for number, key in enumerate(value if is_object else range(len(value))):
        if number:
            yield ", "
        if isinstance(key, str):
            yield f"{json.dumps(key[: MAX_VALUE_CHARS + 1], ensure_ascii=False)}: "
        yield from _json_chunks(value[key], levels - 1, ellipsis)
    yield "}" if is_object else "]"


def raw_lines(trace: Trace, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """The event of a row as JSON, as the file has it; every member begins a line of
    `width` cells. At most MAX_LISTED lines."""
    missing = why_missing(trace)
    if missing:
        return [Said(missing)]
    event = trace.elements.element(int(trace.order[row]))
    lines = chain(["{"], _member_lines(event, INDENT, width, glyphs.ellipsis), ["}"])
    return [Said(line) for line in islice(lines, MAX_LISTED)]


def _member_lines(
    members: dict[str, Any], indent: str, width: int, ellipsis: str
) -> Iterator[str]:
    """Lines of JSON: each member of an object begins one. The members of an object that
    is itself a member of an event (its args) are on lines of their own, too."""
    for number, (key, value) in enumerate(members.items(), start=1):
        comma = "," if number < len(members) else ""
        key_text = f"{indent}{value_text(key, ellipsis, as_json=True)}: "
        if isinstance(value, dict) and indent == INDENT:
            yield key_text + "{"
            yield from _member_lines(value, indent + INDENT, width, ellipsis)
            yield f"{indent}}}{comma}"
            continue
        yield from textwrap.wrap(
            f"{key_text}{value_text(value, ellipsis, as_json=True)}{comma}",
            max(20, width),
            subsequent_indent=f"{indent}    ",
            replace_whitespace=False,
            drop_whitespace=False,
        )


def why_missing(trace: Trace) -> str:
    """Why no args can be shown now; "" if they can."""
    problem = trace.elements.text.problem()
    if problem:
        return printable(f"no args are shown: {problem}")
    if trace.elements.text.at_hand:
        return ""
    return "its args follow: the file is being unpacked"


LAUNCH_ARGS = (
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "est. achieved occupancy %",
)
MAX_SHOWN = 64  # args, tensors or surrounding calls that the lines below a page name
NO_PROGRAM = Program(forward_op=-1, regions=(), frames=(), own_frame=-1)
MAX_NODES_NAMED = 8  # of a graph
MAX_PROGRAM_LEVELS = 1000  # modules, and Python frames, that the overlay lists
SEPARATOR = " > "
MAX_PATH_CHARS = 48
MAX_NAME_CHARS = 4000  # that are shown and marked
OTHER_ARGS = {
    "Input Dims",
    "Input type",
    "Concrete Inputs",
    "Input Strides",
    "External id",
    "correlation",
    "Ev Idx",
    "Record function id",
    "device",
    "stream",
    "Python id",
    "Python parent id",
    "Python module id",
    "Trace name",
    "Trace iteration",
    "cbid",
    "context",
    "queued",
}
"""Args that are not listed in the lines below a page: shapes are written in another way
there, and links are followed."""
MEANING_OF_ARG = {
    "cbid": "the number of the called function in CUPTI",
    "context": "the CUDA context that it ran in",
    "queued": "when it was queued, by CUPTI; 0: not recorded",
    "Ev Idx": "the number of the event in the profiler",
    "External id": "the number by which an op and its GPU events are linked",
    "correlation": "the number by which a launch call and its GPU events are linked",
    "Fwd thread id": "which thread ran the forward op of this backward op",
    "Sequence number": "the number by which an op and its backward op are linked",
    "Record function id": "the number of the call in the profiler",
    "est. achieved occupancy %": "occupancy, as the profiler estimates it",
    "warps per SM": "warps of the launch, divided by the number of SMs",
    "blocks per SM": "blocks of the launch, divided by the number of SMs",
}
"""Args whose names do not say what their values are."""
BLANK = Said("")
FIXED_LINES = 5  # of the details of a kernel, beside its name and the legend


def details(
    side: Side, row: int, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """At most `height` lines about a row; of kernels the same facts are always on the
    same line. If the trace names parts of the program, a line says where in the program
    it comes from."""
    trace = side.trace
    origins = side.insight.origins
    program = []
    if origins is not None and (len(origins.regions) or len(origins.frames)):
        program.append(program_line(origins, row))

    facts = _facts(trace, row, glyphs)
    facts += while_it_ran(trace, row, side.device_counters)
    below = [*program, _origin(trace, row, glyphs), *flow(facts, width)]
    meaning = _meaning(trace, row)
    if meaning:
        below += textwrap.wrap(meaning, max(20, width))
    lines = [title(trace, row, width, glyphs)]
    lines += _name_lines(
        _annotated(trace, row, width, glyphs), width, height, len(program), glyphs
    )
    lines += map(Said, below)
    shown = cut_in(lines, width, height, glyphs.ellipsis)
    return clipped(shown, width, height, glyphs.ellipsis)


def _name_lines(
    marked: Annotated, width: int, height: int, program_lines: int, glyphs: Glyphs
) -> list[Said]:
    """The lines of a name in details of `height` lines, `program_lines` of which say
    where in the program it is. If its parts are marked and there is room, one line of
    the name, the marks below it and a fixed number of lines that explain them; else as
    many lines of the name as fit."""
    legend_height = max(1 - program_lines, height - 6 - program_lines)
    if marked.legend and legend_height > 0:
        name_height = 1
    else:
        name_height = max(1, height - FIXED_LINES)
    lines = _cut_name(marked, name_height, width, glyphs)
    if marked.legend:
        lines += [BLANK] * (name_height - len(lines))
    if marked.legend and legend_height > 0:
        lines.append(Said(marked.lines[0][1], "warning"))
        meanings = [Said(line) for line in flow(marked.legend, width)]
        meanings = [*cut_in(meanings, width, legend_height, glyphs.ellipsis)]
        lines += meanings
        lines += [BLANK] * (legend_height - len(meanings))
    return lines


def _cut_name(marked: Annotated, height: int, width: int, glyphs: Glyphs) -> list[Said]:
    """The first lines of a name, at most `height` of them; an ellipsis at their end if
    there are more."""
    names = [narrow(text) for text, _ in marked.lines]
    lines = [Said(name, "plain") for name in names[:height]]
    if height < len(names):
        room = width - len(glyphs.ellipsis)
        last = clip(names[height - 1], room, "") + glyphs.ellipsis
        lines[-1] = Said(last, "plain")
    return lines


def details_height(lines: int) -> int:
    """How many lines of a page of this height are for the details, including the
    rule."""
    return max(7, min(12, lines // 3))


def all_details(side: Side, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """Everything about a row, for the overlay: also the modules and Python frames
    around it, the innermost first, each with its duration."""
    trace = side.trace
    origins = side.insight.origins
    program = _program(origins, row) if origins else NO_PROGRAM
    lines = [title(trace, row, width, glyphs), BLANK]
    lines += _marked_name(_annotated(trace, row, width, glyphs))
    lines.append(BLANK)
    lines += _module_lines(trace, program)
    lines.append(Said(_origin(trace, row, glyphs)))
    lines += map(Said, _graph_neighbors(trace, row))
    lines += _call_lines(trace, row, program)
    lines += map(Said, while_it_ran(trace, row, side.device_counters))
    meaning = _meaning(trace, row)
    if meaning:
        lines += map(Said, textwrap.wrap(meaning, max(20, width)))
    missing = why_missing(trace)
    if missing:
        return [*lines, BLANK, Said(missing)]
    for fact in (describe(trace, row), *remarks(trace, row)):
        if fact:
            lines.append(Said(fact))
    lines.append(BLANK)
    lines += _short_name_lines(trace, row)
    lines += _arg_lines(trace, row, glyphs)
    return lines


def _marked_name(marked: Annotated) -> Iterator[Said]:
    """All lines of a name, each with the marks below it, and what the marks mean."""
    for text, marks in marked.lines:
        yield Said(narrow(text), "plain")
        if marks:
            yield Said(marks, "warning")
    for meaning in marked.legend:
        yield Said("  " + meaning)


def _short_name_lines(trace: Trace, row: int) -> Iterator[Said]:
    """What the words of the short name of a kernel mean, as far as they are known."""
    if trace.role[row] != Role.KERNEL:
        return
    decoded = decode(trace.name_of(row))
    if decoded is None:
        return
    from fusetui.gpu.kernel_names.short_words import short_words  # once it is asked for

    words = [*short_words(decoded)]
    if not words:
        return
    yield Said(f"short name: {decoded.short}", "title")
    for word, meaning in words:
        yield Said(f"  {word}: {meaning}")
    yield BLANK


def _module_lines(trace: Trace, program: Program) -> Iterator[Said]:
    """The forward op of backward work, and the modules around a row, each with its
    duration where it is recorded."""
    forward = _forward(trace, program)
    if forward:
        yield Said(f"  {narrow(forward)}")
    for region in program.regions[:MAX_PROGRAM_LEVELS]:
        label = narrow(region_label(trace.name_of(region), expanded=True))
        is_timed = not without_times(trace, np.array([region]))[0]
        lasted = f"   {duration(int(trace.dur[region]))}" if is_timed else ""
        kind = "module" if is_module(trace.name_of(region)) else "annotation"
        yield Said(f"  {kind} {label}{lasted}")


def _call_lines(trace: Trace, row: int, program: Program) -> Iterator[Said]:
    """The calls and ops that led to a row, then the Python frames around it, each with
    its duration."""
    in_program = {*program.regions, *program.frames}
    calls = [
        call for call in launch_chain(trace, row)[:MAX_LISTED] if call not in in_program
    ]
    for call in (*calls, *program.frames[:MAX_PROGRAM_LEVELS]):
        lasted = duration(int(trace.dur[call]))
        yield Said(f"  {_name(trace, call)}   {lasted}")


def _arg_lines(trace: Trace, row: int, glyphs: Glyphs) -> Iterator[Said]:
    """The args of a row below a title, one a line, at most MAX_LISTED of them."""
    args = _args(trace, row)
    yield Said("args" if args else "no args", "title")
    for key, value in islice(args.items(), MAX_LISTED):
        text = value_text(value, glyphs.ellipsis)
        meaning = MEANING_OF_ARG.get(key)
        explained = f"   ({meaning})" if meaning else ""
        yield Said(f"  {value_text(key, '')}: {text}{explained}")
    if len(args) > MAX_LISTED:
        yield Said(f"  and {count(len(args) - MAX_LISTED)} more")


def _meaning(trace: Trace, row: int) -> str:
    """What the compile log says of a slice, or what a call of the CUDA API is for, where
    its name does not say it; else ""."""
    note = note_of(trace, row)
    if note is not None:
        return note.text
    if trace.role[row] != Role.CALL:
        return ""
    return meaning_of_call(trace.name_of(row))


def while_it_ran(
    trace: Trace, row: int, counters: Sequence[DeviceCounter]
) -> list[str]:
    """`while it ran: SM clock 1755 MHz, power 250 W` as a list of one: the means of the
    counters of its device over a GPU event. Empty where there are none."""
    if not is_gpu(trace, row):
        return []
    begin = trace.start[row : row + 1]
    end = trace.end[row : row + 1]
    device = trace.track_of(row).pid
    means = []
    for counter in counters:
        if counter.device != device:
            continue
        mean = float(counter.mean(begin, end)[0])
        if not math.isnan(mean):
            means.append(f"{counter.kind} {mean:.4g} {counter.unit}")
    return [f"while it ran: {', '.join(means)}"] if means else []


def on_path_text(marks: Marks, trace: Trace, row: int) -> str:
    """How a row relates to the critical path: that it lies on it, or its slack; "" where
    that is not known."""
    on_path_ns = int(marks.ns[row])
    slack_ns = int(marks.spare_ns[row])
    if on_path_ns:
        if on_path_ns >= int(trace.dur[row]):
            return "on the critical path"
        return f"{duration(on_path_ns)} of it on the critical path"
    if slack_ns < 0:  # unknown
        return ""
    return f"slack: {duration(slack_ns)}"


def warm(origins: Origins) -> None:
    """Computes what every line about a slice needs, before a key waits for it."""
    trace = origins.trace
    if len(trace):
        first_row = int(trace.gpu_rows[0]) if len(trace.gpu_rows) else 0
        program_of(origins, first_row)


def program_line(origins: Origins, row: int) -> str:
    """`in Decoder_3 > MLP_3   my_model.py:42 forward`: the modules and the line of the
    program that a row comes from, and of backward work its forward op."""
    program = _program(origins, row)
    source = source_of(origins, program)
    parts = []
    if program.regions:
        parts.append(f"in {inner(path_of(origins, program))}")
    if source:
        file = source.file.rpartition("/")[2]
        parts.append(f"{file}:{source.line} {source.name}")
    forward = _forward(origins.trace, program)
    if forward:
        parts.append(forward)
    return "   ".join(narrow(part) for part in parts)


def inner(path: str) -> str:
    """The inner levels of a long path, which tell more than the outer ones.

    >>> inner("Qwen3Model_0 > Qwen3DecoderLayer_1 > Qwen2MLP_1 > MergedColumnParallelLinear_1")
    '… > Qwen2MLP_1 > MergedColumnParallelLinear_1'
    """
    levels = path.split(SEPARATOR)
    while len(levels) > 1 and len(SEPARATOR.join(levels)) > MAX_PATH_CHARS:
        del levels[0]
    shown = SEPARATOR.join(levels)
    return shown if shown == path else f"…{SEPARATOR}{shown}"


def _forward(trace: Trace, program: Program) -> str:
    """The forward op of backward work; "" for other work."""
    op = program.forward_op
    return f"backward of {trace.name_of(op)}" if op >= 0 else ""


@memo(64)
def _program(origins: Origins, row: int) -> Program:
    """Where in the program a row comes from. A row that is itself a module is not among
    the modules around it."""
    program = program_of(origins, row)
    around = tuple(region for region in program.regions if region != row)
    return replace(program, regions=around)


def title(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Said:
    """The first line about a row: its short name, cut to leave room for its duration
    and the label of its track."""
    name = label_of(int(trace.role[row]), trace.name_of(row))
    lasted = duration(int(trace.dur[row]))
    track = narrow(trace.track_of(row).label)
    after_name = f"   {lasted}   {track}"
    name_width = max(8, width - len(after_name))
    return Said(clip(name, name_width, glyphs.ellipsis) + after_name, "title")


def _annotated(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Annotated:
    """The name of a row on lines of `width` cells; of a kernel with marks below the
    parts of its name that are known, and what they mean."""
    from fusetui.gpu.kernel_names.record import annotate  # once a slice is selected

    name = trace.name_of(row)
    decoded = decode(name) if trace.role[row] == Role.KERNEL else None
    parts = []
    for part in decoded.parts if decoded else ():
        end = part[1]
        if end <= MAX_NAME_CHARS:
            parts.append(part)
    return annotate(name[:MAX_NAME_CHARS], parts, max(1, width), glyphs.underline)


def flow(texts: Sequence[str], width: int) -> list[str]:
    """Lines with as many of the texts each as fit in `width` cells, three blanks between
    them. A text that does not fit has a line of its own, which is longer."""
    lines: list[str] = []
    for text in texts:
        longer = f"{lines[-1]}   {text}" if lines else ""
        if lines and len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(text)
    return lines


def _origin(trace: Trace, row: int, glyphs: Glyphs) -> str:
    """Where a GPU event was launched from, or what a CPU slice launched."""
    chain = _chain(trace, launch_chain(trace, row), glyphs)
    if not is_gpu(trace, row):
        parts = [_launched(trace, row), f"in {chain}" if chain else ""]
        return "   ".join(part for part in parts if part)
    if trace.launch[row] < 0:
        if chain:
            return f"in {chain}"
        where = "what was read of this trace" if trace.report.prefix else "this trace"
        return f"its launch is not recorded in {where}"
    captured = ""
    if is_joined(trace, row):  # a node of a graph
        call = int(trace.asked[row])
        calls = _chain(trace, [call, *ancestors(trace, call)], glyphs)
        captured = f"captured by {calls}   "
    return f"{captured}launched {_waited(trace, row)} by {chain}"


def _launched(trace: Trace, row: int) -> str:
    """How many GPU events a CPU slice launched, and their time; "" for none."""
    events, kernels, ns = launched_sums(trace, row)
    if not events:
        return ""
    of_them = ""
    if is_replay(trace.name_of(row)):
        of_them = f" ({plural(kernels, 'kernel')})"
    return f"launched {plural(events, 'GPU event')}{of_them}, {duration(ns)}"


def _graph_neighbors(trace: Trace, row: int) -> Iterator[str]:
    """The nodes of its graph that a node comes after, and those that it comes before,
    each on one line; nothing until the dependencies are known."""
    known = kept_result(trace, dependencies)
    if not isinstance(known, Dependencies):
        return
    rows_before, rows_after = waits_for(known, row)
    for word, rows in (("after", rows_before), ("before", rows_after)):
        if not len(rows):
            continue
        named = rows[:MAX_NODES_NAMED].tolist()
        names = ", ".join(narrow(trace.name_of(other)) for other in named)
        others = len(rows) - MAX_NODES_NAMED
        more = f" and {count(others)} more" if others > 0 else ""
        yield f"  {word}: {names}{more}"


def _chain(trace: Trace, rows: Sequence[int], glyphs: Glyphs) -> str:
    """The names of these rows, each called by the one after it, in one line."""
    names = [_name(trace, row) for row in rows[:MAX_SHOWN]]
    return f" {glyphs.chain} ".join(names)


def _name(trace: Trace, row: int) -> str:
    """The printable name of a row; of a Python frame with its file in short, `forward
    my_model.py:42`."""
    name = trace.name_of(row)[:MAX_NAME_CHARS]
    is_frame = int(trace.role[row]) == Role.PYTHON
    return label_of(int(Role.PYTHON), name) if is_frame else narrow(name)


def _waited(trace: Trace, row: int) -> str:
    """How long before its start a GPU event was launched, and why it waited, if
    known."""
    latency_ns = launch_latency_ns(trace, row) or 0
    if latency_ns < 0:
        return f"{duration(-latency_ns)} later (the clocks differ)"
    text = f"{duration(latency_ns)} earlier"
    queued_ns = queue_delay_ns(trace, row)
    # of a part of a trace, what kept the stream busy may be in the rest
    if queued_ns and not trace.report.prefix:
        text += f" (for {duration(queued_ns)} the stream was busy)"
    return text


def _facts(trace: Trace, row: int, glyphs: Glyphs) -> list[str]:
    """What a kernel computed and how efficiently, else the shapes; then the args, those
    of the launch first. Or the one reason why no args can be shown."""
    missing = why_missing(trace)
    if missing:
        return [missing]
    args = _args(trace, row)
    work = describe(trace, row) if is_gpu(trace, row) else ""
    facts = [work or _shapes(args, glyphs), *remarks(trace, row)]
    for key in _shown_args(args):
        value = args[key]
        if isinstance(value, float):
            value = float(f"{value:.4g}")  # to four significant digits
        facts.append(f"{value_text(key, '')} {value_text(value, glyphs.ellipsis)}")
    return [fact for fact in facts if fact]


def _shown_args(args: dict[str, Any]) -> list[str]:
    """The names of the args to show: those of a launch in the order of LAUNCH_ARGS, then
    at most MAX_SHOWN others in the order of the file."""
    of_launch = [key for key in LAUNCH_ARGS if key in args]
    hidden = {*LAUNCH_ARGS, *OTHER_ARGS}
    others = (key for key in args if key not in hidden)
    return [*of_launch, *islice(others, MAX_SHOWN)]


_args = memo(256)(Trace.args_of)


def _shapes(args: dict[str, Any], glyphs: Glyphs) -> str:
    """The shapes of the inputs that are tensors, at most MAX_SHOWN of them; "" where
    they are not recorded."""
    dims = args.get("Input Dims")
    if not isinstance(dims, Sequence) or isinstance(dims, str):
        return ""
    tensors = islice((shape for shape in dims if shape), MAX_SHOWN)
    return ", ".join(value_text(shape, glyphs.ellipsis) for shape in tensors)
