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
    find_launch_chain,
    is_gpu_event,
    list_ancestors,
    measure_launch_latency_ns,
    measure_queue_delay_ns,
    sum_launched_gpu_rows,
)
from fusetui.analysis.questions.device_counters import DeviceCounter
from fusetui.analysis.questions.launches import is_graph_launch
from fusetui.gpu.calls import meaning_of_call
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.roofline.row import describe_work, remarks
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import NO_ROW, Int32s
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined, without_times
from fusetui.trace.model.memo import kept_result, memo
from fusetui.trace.program.backward import Dependencies, dependencies, waits_for
from fusetui.trace.program.origin import Origins
from fusetui.trace.program.own_code import Program, path_of, program_of, source_of
from fusetui.trace.program.regions import is_module
from fusetui.trace.program.regions import label_of as region_label
from fusetui.tui.drawing.picture import Said, clip_lines, cut_lines_to_width
from fusetui.tui.drawing.schemes import Glyphs
from fusetui.tui.layout.kinds import find_note, label_of, narrow
from fusetui.tui.layout.view import Side
from fusetui.tui.state.words import LIBRARIES, find_meaning

if TYPE_CHECKING:
    from fusetui.analysis.replay.marks import Marks
    from fusetui.gpu.kernel_names.record import Annotated

MAX_DEPTH = 16  # levels of nested lists and objects in the value of an arg
MAX_VALUE_CHARS = 2000  # of one value; no screen shows more
INDENT = "  "
MAX_LISTED = 1000  # args, and calls around a slice, that the overlay lists


def format_value(value: object, ellipsis: str, as_json: bool = False) -> str:
    """Return the printable text of the value of an arg, as it stands in the trace.

    A string is shown without quotes, unless `as_json` is set; any other value is shown
    as JSON. Lists and objects deeper than MAX_DEPTH, and text beyond MAX_VALUE_CHARS,
    are replaced by `ellipsis`.
    """
    if isinstance(value, str) and not as_json:
        value_chars = value[: MAX_VALUE_CHARS + 1]
    else:
        value_chars = ""
        for chunk in _generate_json(value, MAX_DEPTH, ellipsis):
            value_chars += chunk[: MAX_VALUE_CHARS + 1]
            # a value may be as large as the file: the rest of it is never formatted
            if len(value_chars) > MAX_VALUE_CHARS:
                break
    return clip(narrow(printable(value_chars)), MAX_VALUE_CHARS, ellipsis)


def _generate_json(value: object, levels: int, ellipsis: str) -> Iterator[str]:
    """Generate the JSON of a value piece by piece, so that the caller can stop early.

    Lists and objects that are nested more than `levels` deep are replaced by
    `ellipsis`. Long strings are cut to what a screen can show.
    """
    is_nested = isinstance(value, dict | list) and len(value) > 0
    if is_nested and levels == 0:
        yield ellipsis
    elif is_nested and isinstance(value, dict):
        yield "{"
        for index, (key, member) in enumerate(value.items()):
            if index:
                yield ", "
            yield f"{_format_scalar(key)}: "
            yield from _generate_json(member, levels - 1, ellipsis)
        yield "}"
    elif is_nested and isinstance(value, list):
        yield "["
        for index, element in enumerate(value):
            if index:
                yield ", "
            yield from _generate_json(element, levels - 1, ellipsis)
        yield "]"
    else:
        yield _format_scalar(value)


def _format_scalar(value: object) -> str:
    """Return the JSON of a string, a number or an empty list. A long string is cut just
    after what a screen can show, so that the caller sees that there is more."""
    if isinstance(value, str):
        value = value[: MAX_VALUE_CHARS + 1]
    return json.dumps(value, ensure_ascii=False, default=str)


def format_event_as_json(
    trace: Trace, row: int, width: int, glyphs: Glyphs
) -> list[Said]:
    """Return the event of a slice as lines of JSON, with all the members that the file
    has.

    Each member begins a new line of at most `width` cells. There are at most MAX_LISTED
    lines. If the text of the file is not available now, the only line is the reason.
    """
    missing = why_missing(trace)
    if missing:
        return [Said(missing)]
    event = trace.elements.element(int(trace.order[row]))
    lines = chain(["{"], _format_members(event, INDENT, width, glyphs.ellipsis), ["}"])
    return [Said(line) for line in islice(lines, MAX_LISTED)]


def _format_members(
    members: dict[str, Any], indent: str, width: int, ellipsis: str
) -> Iterator[str]:
    """Generate lines of JSON for the members of an object, each of which begins a line.

    `indent` is the text before each member. An object directly inside an event (its
    args) is opened too, with its members one level deeper. Deeper objects stay on one
    line, which is wrapped to `width` cells but not below 20.
    """
    for number, (key, value) in enumerate(members.items(), start=1):
        comma = "," if number < len(members) else ""
        key_text = f"{indent}{format_value(key, ellipsis, as_json=True)}: "
        if isinstance(value, dict) and indent == INDENT:
            yield key_text + "{"
            yield from _format_members(value, indent + INDENT, width, ellipsis)
            yield f"{indent}}}{comma}"
            continue
        # blanks are kept, because they may be part of a string
        yield from textwrap.wrap(
            f"{key_text}{format_value(value, ellipsis, as_json=True)}{comma}",
            max(20, width),
            subsequent_indent=f"{indent}    ",
            replace_whitespace=False,
            drop_whitespace=False,
        )


def why_missing(trace: Trace) -> str:
    """Return the reason why the args of slices cannot be shown now, or "" if they can.
    Args are read from the file when needed. They are missing if it has changed or is
    still being unpacked."""
    problem = trace.elements.text.problem()
    if problem:
        return printable(f"no args are shown: {problem}")
    if trace.elements.text.at_hand:
        return ""
    return "unpacking the file to read the args..."


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
    "grid": "thread blocks of the launch in x, y and z",
    "block": "threads of each thread block in x, y and z",
    "registers per thread": "32-bit registers of the SM that each thread has",
    "shared memory": "bytes of on-chip memory that each thread block has",
    "est. achieved occupancy %": (
        "occupancy, as the profiler estimates it, rounded: 0 means less than 0.5 %"
    ),
    "In msg nelems": "elements that this rank passes to the collective",
    "Out msg nelems": "elements that this rank gets from the collective",
    "In split size": (
        "of an all-to-all: elements that this rank sends to each rank; "
        "[]: equal parts, or another collective"
    ),
    "Out split size": (
        "of an all-to-all: elements that this rank gets from each rank; "
        "[]: equal parts, or another collective"
    ),
    "Group size": "ranks of the process group",
    "Process Group Description": (
        "the name that the program gave to the process group; "
        "default_pg is the group of all ranks"
    ),
    "warps per SM": "warps of the launch, divided by the number of SMs",
    "blocks per SM": "blocks of the launch, divided by the number of SMs",
}
"""Args whose names do not say what their values are."""
MEANING_OF_KIND = {
    "Dispatch Kernel": "ROCm started it by a launch of its own",
    "Dispatch Task": (
        "ROCm started it probably with others, in the replay of a HIP graph"
    ),
}
"""What the arg `kind` of a kernel means, by its value."""
BLANK = Said("")
FIXED_LINES = 5  # of the details of a kernel, beside its name and the legend


def details(
    side: Side, row: int, width: int, height: int, glyphs: Glyphs
) -> list[Said]:
    """Return at most `height` lines that describe a slice, for the pane below the
    timeline.

    The lines are: a title, the name, the line of the program, the launch, and then args
    and other facts. For kernels each fact has a fixed line, so that a person can
    compare kernels while moving. The line of the program is there only if the trace has
    modules or Python frames.

    Args:
        side: The trace, and what has been computed about it.
        row: The index of the slice in the trace.
        width: The cells of a line.
        height: The lines of the pane.
        glyphs: The drawing characters of the terminal.
    """
    trace = side.trace
    origins = side.insight.origins
    program_texts = []
    if origins is not None and (len(origins.regions) or len(origins.frames)):
        program_texts.append(describe_program_location(origins, row))
    texts_below_name = [*program_texts]
    texts_below_name.append(_describe_launch(trace, row, glyphs))
    facts = _list_facts(trace, row, glyphs)
    facts += summarize_counters(trace, row, side.device_counters)
    texts_below_name += flow_texts(facts, width)
    texts_below_name += _wrap_meaning(trace, row, width)

    name = _annotate_name(trace, row, width, glyphs)
    lines = [title(trace, row, width, glyphs)]
    lines += _fit_name(name, width, height, len(program_texts), glyphs)
    lines += [Said(below) for below in texts_below_name]
    fitting_lines = cut_lines_to_width(lines, width, height, glyphs.ellipsis)
    return clip_lines(fitting_lines, width, height, glyphs.ellipsis)


def _fit_name(
    marked: Annotated, width: int, height: int, program_lines: int, glyphs: Glyphs
) -> list[Said]:
    """Return the lines of a slice's name in a pane of `height` lines.

    A kernel name whose parts are known gets one line, with marks below its parts,
    followed by a fixed number of lines that explain them. Any other name, or a pane
    that is too low, gets as many lines of the name as fit. `program_lines` of the pane
    (0 or 1) show the place in the program.
    """
    # the line of the program comes out of the legend, so that no line below it moves; 6
    # are the title, the name, its marks, the launch and two of facts
    legend_height = max(1 - program_lines, height - 6 - program_lines)
    if marked.legend and legend_height > 0:
        _, marks_below_first_line = marked.lines[0]
        meanings = [Said(line) for line in flow_texts(marked.legend, width)]
        shown = cut_lines_to_width(meanings, width, legend_height, glyphs.ellipsis)
        return [
            *_pad_lines(_cut_name(marked, 1, width, glyphs), 1),
            Said(marks_below_first_line, "warning"),
            *_pad_lines([*shown], legend_height),
        ]
    name_height = max(1, height - FIXED_LINES)
    lines = _cut_name(marked, name_height, width, glyphs)
    # in a pane too low for the legend the lines below the name do not move either
    return _pad_lines(lines, name_height) if marked.legend else lines


def _pad_lines(lines: list[Said], height: int) -> list[Said]:
    """Return the lines with blank ones after them, so that they are at least `height`."""
    return lines + [BLANK] * (height - len(lines))


def _cut_name(marked: Annotated, height: int, width: int, glyphs: Glyphs) -> list[Said]:
    """Return the first lines of a name, at most `height` of them. If some are left out,
    the last one ends with an ellipsis."""
    name_lines = [narrow(text) for text, _ in marked.lines]
    lines = [Said(name, "plain") for name in name_lines[:height]]
    if height < len(name_lines):
        room = width - len(glyphs.ellipsis)
        last_line = clip(name_lines[height - 1], room, "") + glyphs.ellipsis
        lines[-1] = Said(last_line, "plain")
    return lines


def details_height(lines: int) -> int:
    """Return the height of the details pane on a page of `lines` lines, its rule
    included: a third, but from 7 to 12 lines."""
    return max(7, min(12, lines // 3))


def list_all_details(side: Side, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """Return everything that is known about a slice, as the lines of an overlay.

    To what the details pane shows it adds the modules and Python frames around the
    slice, the whole name, and all args. Modules and frames are listed from the
    innermost outwards, each with its duration. If the args cannot be read now, the
    reason stands in their place.
    """
    trace = side.trace
    origins = side.insight.origins
    program = _locate_in_program(origins, row) if origins else NO_PROGRAM
    lines = [title(trace, row, width, glyphs), BLANK]
    lines += _list_name_with_marks(_annotate_name(trace, row, width, glyphs))
    lines.append(BLANK)
    lines += _list_modules_around(trace, program)
    lines.append(Said(_describe_launch(trace, row, glyphs)))
    lines += [Said(nodes) for nodes in _list_graph_neighbors(trace, row)]
    lines += _list_calls_and_frames(trace, row, program)
    counters = summarize_counters(trace, row, side.device_counters)
    lines += [Said(means) for means in counters]
    lines += [Said(meaning) for meaning in _wrap_meaning(trace, row, width)]
    missing = why_missing(trace)
    if missing:
        return [*lines, BLANK, Said(missing)]
    work = describe_work(trace, row)
    if work:
        lines.append(Said(work))
    lines += [Said(remark) for remark in remarks(trace, row) if remark]
    lines.append(BLANK)
    lines += _list_short_name_words(trace, row)
    lines += _list_args(trace, row, glyphs)
    return lines


def _list_name_with_marks(marked: Annotated) -> Iterator[Said]:
    """Generate all lines of a name, each followed by a line of marks below its parts,
    then the meanings of the marks."""
    for text, marks in marked.lines:
        yield Said(narrow(text), "plain")
        if marks:
            yield Said(marks, "warning")
    for meaning in marked.legend:
        yield Said("  " + meaning)


def _list_short_name_words(trace: Trace, row: int) -> Iterator[Said]:
    """Generate lines that explain the words in the short name of a kernel, below a
    title, and its library. Nothing is generated for other slices, or if the name is not
    recognized."""
    if trace.role[row] != Role.KERNEL:
        return
    decoded = decode(trace.name_of(row))
    if decoded is None:
        return
    from fusetui.gpu.kernel_names.short_words import short_words  # once it is asked for

    if decoded.short:
        yield Said(f"short name: {decoded.short}", "title")
    for word, meaning in short_words(decoded):
        yield Said(f"  {word}: {meaning}")
    yield Said(f"  {decoded.family}: {find_meaning(decoded.family, LIBRARIES)}")
    yield BLANK


def _list_modules_around(trace: Trace, program: Program) -> Iterator[Said]:
    """Generate a line for the forward op of backward work, and one for each module or
    annotation around a slice.

    Each line has the duration, if the trace records it. At most MAX_PROGRAM_LEVELS
    modules are listed.
    """
    forward = _describe_forward_op(trace, program)
    if forward:
        yield Said(f"  {narrow(forward)}")
    for region in program.regions[:MAX_PROGRAM_LEVELS]:
        label = narrow(region_label(trace.name_of(region), expanded=True))
        # annotations taken from a graph capture have no recorded times
        is_timed = not without_times(trace, np.array([region]))[0]
        duration_text = f"   {duration(int(trace.dur[region]))}" if is_timed else ""
        kind = "module" if is_module(trace.name_of(region)) else "annotation"
        yield Said(f"  {kind} {label}{duration_text}")


def _list_calls_and_frames(trace: Trace, row: int, program: Program) -> Iterator[Said]:
    """Generate a line for each call and op that led to a slice, then one for each
    Python frame around it.

    Each line has a name and a duration. Slices that are already listed as modules are
    left out.
    """
    listed_elsewhere = {*program.regions, *program.frames}
    calls_and_frames = []
    for call in find_launch_chain(trace, row)[:MAX_LISTED]:
        if call not in listed_elsewhere:
            calls_and_frames.append(call)
    calls_and_frames += program.frames[:MAX_PROGRAM_LEVELS]
    for listed_row in calls_and_frames:
        duration_text = duration(int(trace.dur[listed_row]))
        yield Said(f"  {_short_name(trace, listed_row)}   {duration_text}")


def _list_args(trace: Trace, row: int, glyphs: Glyphs) -> Iterator[Said]:
    """Generate a title and one line for each arg of a slice, at most MAX_LISTED of
    them. Args whose names do not say what they mean are explained in parentheses. A
    last line counts the args that are left out."""
    args = _args(trace, row)
    yield Said("args" if args else "no args", "title")
    for key, value in islice(args.items(), MAX_LISTED):
        text = format_value(value, glyphs.ellipsis)
        is_kind = key == "kind" and isinstance(value, str)
        meaning = MEANING_OF_KIND.get(value) if is_kind else MEANING_OF_ARG.get(key)
        explained = f"   ({meaning})" if meaning else ""
        yield Said(f"  {format_value(key, '')}: {text}{explained}")
    if len(args) > MAX_LISTED:
        yield Said(f"  and {count(len(args) - MAX_LISTED)} more")


def _explain_slice(trace: Trace, row: int) -> str:
    """Return a sentence that explains a slice, or "" if there is none.

    It is the note of the compile log, for a compilation or graph break. For a call of
    the CUDA API it is the purpose of the function.
    """
    note = find_note(trace, row)
    if note is not None:
        return note.text
    if trace.role[row] != Role.CALL:
        return ""
    return meaning_of_call(trace.name_of(row))


def _wrap_meaning(trace: Trace, row: int, width: int) -> list[str]:
    """Return the sentence that explains a slice on lines of `width` cells, but not
    below 20; no lines where there is no such sentence."""
    return textwrap.wrap(_explain_slice(trace, row), max(20, width))


def summarize_counters(
    trace: Trace, row: int, counters: Sequence[DeviceCounter]
) -> list[str]:
    """Return the mean of each device counter while a GPU event ran, as a list of one
    line.

        while it ran: SM clock 1755 MHz, power 250 W

    The list is empty for CPU slices, and if no counter of the device has a value in
    that time.
    """
    if not is_gpu_event(trace, row):
        return []
    begin = trace.start[row : row + 1]
    end = trace.end[row : row + 1]
    device = trace.track_of(row).pid
    mean_texts = []
    for counter in counters:
        if counter.device != device:
            continue
        mean = float(counter.mean(begin, end)[0])
        if not math.isnan(mean):
            mean_texts.append(f"{counter.kind} {mean:.4g} {counter.unit}")
    return [f"while it ran: {', '.join(mean_texts)}"] if mean_texts else []


def describe_path_position(marks: Marks, trace: Trace, row: int) -> str:
    """Return whether a slice is on the critical path, and for how long; or its slack,
    the time by which it could be longer without delaying the end.

    "" means that neither is known. `marks` holds these figures for all rows of the
    trace.
    """
    on_path_ns = int(marks.ns[row])
    slack_ns = int(marks.spare_ns[row])
    if on_path_ns:
        if on_path_ns >= int(trace.dur[row]):
            return "on the critical path"
        return f"{duration(on_path_ns)} of it on the critical path"
    is_slack_known = slack_ns >= 0
    return f"slack: {duration(slack_ns)}" if is_slack_known else ""


def prepare_details(origins: Origins) -> None:
    """Compute and cache what describing any slice needs (its modules and frames), so
    that the first key press does not wait for it."""
    trace = origins.trace
    if len(trace):
        first_row = int(trace.gpu_rows[0]) if len(trace.gpu_rows) else 0
        # any row will do: what is computed for it serves all others
        program_of(origins, first_row)


def describe_program_location(origins: Origins, row: int) -> str:
    """Return where in the program a slice comes from, in one line.

        in Decoder_3 > MLP_3   my_model.py:42 forward

    The line has the modules around the slice, the line of the program's own code, and
    for backward work its forward op. Parts that are not known are left out.
    """
    program = _locate_in_program(origins, row)
    source = source_of(origins, program)
    parts = []
    if program.regions:
        parts.append(f"in {inner(path_of(origins, program))}")
    if source:
        file = source.file.rpartition("/")[2]
        parts.append(f"{file}:{source.line} {source.name}")
    forward = _describe_forward_op(origins.trace, program)
    if forward:
        parts.append(forward)
    return "   ".join(narrow(part) for part in parts)


def inner(path: str) -> str:
    """Shorten the path of a module to at most MAX_PATH_CHARS, by leaving out outer
    levels. Inner levels say more about a slice, so at least the last one is kept.

        >>> inner("Qwen3Model_0 > Qwen3DecoderLayer_1 > Qwen2MLP_1 > MergedColumnParallelLinear_1")
        '… > Qwen2MLP_1 > MergedColumnParallelLinear_1'
    """
    levels = path.split(SEPARATOR)
    while len(levels) > 1 and len(SEPARATOR.join(levels)) > MAX_PATH_CHARS:
        del levels[0]
    shown = SEPARATOR.join(levels)
    return shown if shown == path else f"…{SEPARATOR}{shown}"


def _describe_forward_op(trace: Trace, program: Program) -> str:
    """Return the name of the forward op that backward work belongs to, after `backward
    of`. "" for any other work."""
    op = program.forward_op
    return f"backward of {trace.name_of(op)}" if op != NO_ROW else ""


@memo(64)
def _locate_in_program(origins: Origins, row: int) -> Program:
    """Return the modules, Python frames and forward op that a slice comes from. If the
    slice is itself a module, it is left out."""
    program = program_of(origins, row)
    around = tuple(region for region in program.regions if region != row)
    return replace(program, regions=around)


def title(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Said:
    """Return the first line about a slice: its short name, its duration, and the label
    of its track (a thread or stream). The name is cut to leave room for the rest, but
    not below 8 cells."""
    name = label_of(int(trace.role[row]), trace.name_of(row))
    duration_text = duration(int(trace.dur[row]))
    track_label = narrow(trace.track_of(row).label)
    after_name = f"   {duration_text}   {track_label}"
    name_width = max(8, width - len(after_name))
    return Said(clip(name, name_width, glyphs.ellipsis) + after_name, "title")


def _annotate_name(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Annotated:
    """Return the name of a slice on lines of `width` cells.

    For a kernel, marks below the lines point to known parts of the name, such as the
    tile or the data type. The meanings of these parts are included. Only the first
    MAX_NAME_CHARS of a name count.
    """
    from fusetui.gpu.kernel_names.record import annotate  # once a slice is selected

    name = trace.name_of(row)
    decoded = decode(name) if trace.role[row] == Role.KERNEL else None
    shown_parts = []
    if decoded is not None:
        for part in decoded.parts:
            end = part[1]
            if end <= MAX_NAME_CHARS:
                shown_parts.append(part)
    return annotate(name[:MAX_NAME_CHARS], shown_parts, max(1, width), glyphs.underline)


def flow_texts(texts: Sequence[str], width: int) -> list[str]:
    """Distribute texts over lines of `width` cells, three blanks apart, as many on each
    line as fit. A text that is wider than a line gets a line of its own, which is not
    cut."""
    lines: list[str] = []
    for text in texts:
        longer = f"{lines[-1]}   {text}" if lines else ""
        if lines and len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(text)
    return lines


def _describe_launch(trace: Trace, row: int, glyphs: Glyphs) -> str:
    """Return how a GPU event was launched, or what a CPU slice launched, in one line.

    A GPU event is described by its latency and the calls around its launch, from the
    inside out. An event of a CUDA graph also has the call that captured it. A CPU slice
    is described by the number and time of its GPU events.
    """
    calls_around = _join_names(trace, find_launch_chain(trace, row), glyphs)
    if not is_gpu_event(trace, row):
        launched = _count_launched(trace, row)
        where = f"in {calls_around}" if calls_around else ""
        return "   ".join(part for part in (launched, where) if part)
    has_launch = trace.launch[row] != NO_ROW
    if has_launch:
        latency = _describe_latency(trace, row)
        captured = _describe_graph_capture(trace, row, glyphs)
        return f"{captured}launched {latency} by {calls_around}"
    if calls_around:
        return f"in {calls_around}"
    if trace.report.prefix:  # the launch may be in what is still to be read
        return "its launch is not recorded in the part that was read"
    return "its launch is not recorded in this trace"


def _describe_graph_capture(trace: Trace, row: int, glyphs: Glyphs) -> str:
    """Return the call that captured a GPU event into a CUDA graph, with the calls
    around it, and three blanks; "" for an event of no graph."""
    if not is_joined(trace, row):
        return ""
    capturing_call = int(trace.asked[row])
    calls = [capturing_call, *list_ancestors(trace, capturing_call)]
    return f"captured by {_join_names(trace, calls, glyphs)}   "


def _count_launched(trace: Trace, row: int) -> str:
    """Return the number of GPU events launched under a CPU slice and their total time,
    as a text. "" if there are none. For the replay of a CUDA graph the number of
    kernels is added."""
    events, kernels, ns = sum_launched_gpu_rows(trace, row)
    if not events:
        return ""
    kernels_text = ""
    if is_graph_launch(trace.name_of(row)):
        kernels_text = f" ({plural(kernels, 'kernel')})"
    return f"launched {plural(events, 'GPU event')}{kernels_text}, {duration(ns)}"


def _list_graph_neighbors(trace: Trace, row: int) -> Iterator[str]:
    """Generate a line for the nodes of a CUDA graph that a node waits for, and one for
    those that wait for it.

    Each line names at most MAX_NODES_NAMED nodes and counts the others. Nothing is
    generated until the dependencies of the trace have been computed in the background.
    """
    graph_dependencies = kept_result(trace, dependencies)
    if not isinstance(graph_dependencies, Dependencies):
        return
    rows_before, rows_after = waits_for(graph_dependencies, row)
    if len(rows_before):
        yield f"  after: {_name_nodes(trace, rows_before)}"
    if len(rows_after):
        yield f"  before: {_name_nodes(trace, rows_after)}"


def _name_nodes(trace: Trace, rows: Int32s) -> str:
    """Return the names of graph nodes, such as `gemm, relu and 3 more`. At most
    MAX_NODES_NAMED are named."""
    named = rows[:MAX_NODES_NAMED].tolist()
    names = ", ".join(narrow(trace.name_of(row)) for row in named)
    unnamed_count = len(rows) - len(named)
    return f"{names} and {count(unnamed_count)} more" if unnamed_count else names


def _join_names(trace: Trace, rows: Sequence[int], glyphs: Glyphs) -> str:
    """Return the names of some rows in one line, each row called by the next. At most
    MAX_SHOWN of them are named."""
    names = [_short_name(trace, row) for row in rows[:MAX_SHOWN]]
    return f" {glyphs.chain} ".join(names)


def _short_name(trace: Trace, row: int) -> str:
    """Return the printable name of a row, cut to MAX_NAME_CHARS. A Python frame is
    shown with its file and line, such as `forward my_model.py:42`."""
    name = trace.name_of(row)[:MAX_NAME_CHARS]
    is_frame = int(trace.role[row]) == Role.PYTHON
    return label_of(int(Role.PYTHON), name) if is_frame else narrow(name)


def _describe_latency(trace: Trace, row: int) -> str:
    """Return how long before its start a GPU event was launched, such as `12 us
    earlier`. If its stream was busy with other work in the meantime, that time is
    added. A launch after the start means that the clocks of CPU and GPU differ, which
    the text says."""
    latency_ns = measure_launch_latency_ns(trace, row) or 0
    starts_before_launch = latency_ns < 0
    if starts_before_launch:
        return f"{duration(-latency_ns)} later (the clocks differ)"
    latency_text = f"{duration(latency_ns)} earlier"
    queued_ns = measure_queue_delay_ns(trace, row)
    # of a part of a trace, what kept the stream busy may be in the rest
    if queued_ns and not trace.report.prefix:
        latency_text += f" (for {duration(queued_ns)} the stream was busy)"
    return latency_text


def _list_facts(trace: Trace, row: int, glyphs: Glyphs) -> list[str]:
    """Return short texts about a slice: for a kernel what it computed and its
    efficiency, for others the shapes of the inputs. Then come the args that are worth
    showing, those of the launch first. If the args cannot be read, the only text is the
    reason."""
    missing = why_missing(trace)
    if missing:
        return [missing]
    args = _args(trace, row)
    work = describe_work(trace, row) if is_gpu_event(trace, row) else ""
    facts = [work or _format_input_shapes(args, glyphs), *remarks(trace, row)]
    for key in _select_args(args):
        name = format_value(key, "")
        value = _round_float(args[key])
        facts.append(f"{name} {format_value(value, glyphs.ellipsis)}")
    return [fact for fact in facts if fact]


def _round_float(value: object) -> object:
    """Return a float to four significant digits, and any other value as it is."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _select_args(args: dict[str, Any]) -> list[str]:
    """Return the names of the args to show: those in LAUNCH_ARGS first, then at most
    MAX_SHOWN others in the order of the file. OTHER_ARGS are left out, because the pane
    shows them in another form."""
    of_launch = [key for key in LAUNCH_ARGS if key in args]
    hidden = {*LAUNCH_ARGS, *OTHER_ARGS}
    others = (key for key in args if key not in hidden)
    return [*of_launch, *islice(others, MAX_SHOWN)]


_args = memo(256)(Trace.args_of)


def _format_input_shapes(args: dict[str, Any], glyphs: Glyphs) -> str:
    """Return the shapes of the input tensors of an op, separated by commas. At most
    MAX_SHOWN are named. "" if the trace does not record them."""
    dims = args.get("Input Dims")
    if not isinstance(dims, Sequence) or isinstance(dims, str):
        return ""
    # an input that is no tensor, such as a scalar, has an empty shape
    shapes_of_tensors = (shape for shape in dims if shape)
    shown_shapes = islice(shapes_of_tensors, MAX_SHOWN)
    return ", ".join(format_value(shape, glyphs.ellipsis) for shape in shown_shapes)
