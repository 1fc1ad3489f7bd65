"""What is said about one slice: a pane of a fixed height, so that no lane moves while a person goes
from one to the next."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from fusetui.analysis.questions.chain import (
    ancestors,
    is_gpu,
    launch_chain,
    launch_latency_ns,
    launched_sums,
    queue_delay_ns,
)
from fusetui.analysis.questions.launches import is_replay
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.annotate import Annotated, annotate
from fusetui.gpu.roofline.describe import describe, remarks
from fusetui.text.cutting import clip
from fusetui.text.figures import count, duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined
from fusetui.trace.model.memo import memo
from fusetui.trace.program.origin import Origins
from fusetui.tui.drawing.glyphs import Glyphs
from fusetui.tui.drawing.picture import Said
from fusetui.tui.drawing.program_lines import (
    frame_lines,
    is_told,
    module_lines,
    program_line,
    tells_more,
)
from fusetui.tui.layout.kinds import label_of, narrow

DEEPEST = 16  # levels of nested lists and objects
LONGEST = 2000  # characters; no screen shows more


def value_text(value: object, ellipsis: str) -> str:
    """A string as it is, everything else as JSON; an ellipsis stands for what is too deep or too
    long."""
    pieces = iter([value]) if isinstance(value, str) else _pieces(value, DEEPEST, ellipsis)
    return _bounded(pieces, ellipsis)


def json_text(value: object, ellipsis: str) -> str:
    """A value as JSON, a string too, as far as a screen can show it."""
    return _bounded(_pieces(value, DEEPEST, ellipsis), ellipsis)


def _bounded(pieces: Iterator[str], ellipsis: str) -> str:
    text = ""
    for piece in pieces:
        text += piece[: LONGEST + 1]
        if len(text) > LONGEST:
            break
    return clip(narrow(printable(text)), LONGEST, ellipsis)


def _pieces(value: object, deep: int, ellipsis: str) -> Iterator[str]:
    """The text of a value piece by piece, only as far as it is needed."""
    if isinstance(value, dict | list):
        if value and not deep:
            yield ellipsis
            return
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        yield opening
        yield from _inner(value, deep - 1, ellipsis)
        yield closing
    elif isinstance(value, str):
        yield json.dumps(value[: LONGEST + 1], ensure_ascii=False)
    else:
        yield json.dumps(value, default=str)


def _inner(value: dict[str, object] | list[object], deep: int, ellipsis: str) -> Iterator[str]:
    for number, item in enumerate(value):
        yield ", " if number else ""
        if isinstance(value, dict):
            yield f"{json.dumps(str(item)[: LONGEST + 1], ensure_ascii=False)}: "
            item = value[str(item)]
        yield from _pieces(item, deep, ellipsis)


SHAPE_ARGS = ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")
LAUNCH_ARGS = (
    "grid",
    "block",
    "registers per thread",
    "shared memory",
    "est. achieved occupancy %",
)
MOST = 64  # args, tensors, slices around it that the few lines use
INDENT = "  "
MOST_LINES = 1000  # of args, and of slices around it, in the overlay
LONGEST_NAME = 4000  # characters of a name that are shown and marked
LINK_ARGS = (
    *("External id", "correlation", "Ev Idx", "Record function id", "device", "stream"),
    *("Python id", "Python parent id", "Python module id"),
)


def details(
    trace: Trace,
    row: int,
    width: int,
    height: int,
    glyphs: Glyphs,
    origins: Origins | None = None,
) -> list[Said]:
    """At most `height` lines about a row; of kernels the same facts are always on the same line.

    `origins`: if the trace names parts of the program, a line says where in the program it comes
    from.
    """
    program = [program_line(origins, row)] if tells_more(origins) else []
    found = _annotated(trace, row, width, glyphs)
    if found.legend:
        legend = max(1 - len(program), height - 6 - len(program))
        name = _marked(found, width, legend)
    else:
        name = [Said(narrow(text), "plain") for text, _ in found.lines[: max(1, height - 5)]]
    lines = [title(trace, row, width, glyphs), *name]
    facts = flow(_facts(trace, row, glyphs), width)
    lines += [Said(text) for text in (*program, _origin(trace, row, glyphs), *facts)]
    return [Said(clip(line.text, width, glyphs.ellipsis), line.token) for line in lines][:height]


def details_height(lines: int) -> int:
    """How many lines of a page of this height are for the details, including the rule."""
    return max(7, min(12, lines // 3))


def all_details(
    trace: Trace, row: int, width: int, glyphs: Glyphs, origins: Origins | None = None
) -> list[Said]:
    """Everything about a row, for the overlay."""
    lines = [title(trace, row, width, glyphs), Said("")]
    found = _annotated(trace, row, width, glyphs)
    for text, under in found.lines:
        lines += [Said(narrow(text), "plain"), Said(under, "warning")]
    lines += [Said("  " + meaning) for meaning in found.legend]
    lines += [Said(""), *(Said(text) for text in module_lines(origins, row))]
    lines += [Said(_origin(trace, row, glyphs))]
    for over in launch_chain(trace, row)[:MOST_LINES]:
        if not is_told(origins, row, over):
            lines.append(Said(f"  {_name(trace, over)}   {duration(int(trace.dur[over]))}"))
    lines += [Said(text) for text in frame_lines(origins, row)]
    if missing := _missing(trace):
        return [*lines, Said(""), Said(missing)]
    lines += [Said(text) for text in (describe(trace, row), *remarks(trace, row)) if text]
    args = _args(trace, row)
    lines += [Said(""), Said("args" if args else "no args", "title")]
    for key, value in islice(args.items(), MOST_LINES):
        lines.append(Said(f"  {value_text(key, '')}: {value_text(value, glyphs.ellipsis)}"))
    if len(args) > MOST_LINES:
        lines.append(Said(f"  and {count(len(args) - MOST_LINES)} more"))
    return lines


def raw_lines(trace: Trace, row: int, width: int, glyphs: Glyphs) -> list[Said]:
    """The event as the file has it, as JSON, an arg on a line or more."""
    if missing := _missing(trace):
        return [Said(missing)]
    event = trace.elements.element(int(trace.order[row]))
    return [Said(line) for line in islice(_raw(event, width, glyphs.ellipsis), MOST_LINES)]


def _raw(event: dict[str, Any], width: int, ellipsis: str) -> Iterator[str]:
    """Lines as they are asked for, however many there are."""
    yield "{"
    yield from _members(event, INDENT, width, ellipsis)
    yield "}"


def _members(event: dict[str, Any], indent: str, width: int, ellipsis: str) -> Iterator[str]:
    """Each on a line or more; the objects in an event on lines of their own."""
    last = len(event) - 1
    for number, (key, value) in enumerate(event.items()):
        comma, text = "," * (number < last), f"{indent}{json_text(key, ellipsis)}: "
        if isinstance(value, dict) and indent == INDENT:
            yield text + "{"
            yield from _members(value, indent + INDENT, width, ellipsis)
            yield f"{indent}}}{comma}"
            continue
        yield from textwrap.wrap(
            f"{text}{json_text(value, ellipsis)}{comma}",
            max(20, width),
            subsequent_indent=f"{indent}    ",
            replace_whitespace=False,
            drop_whitespace=False,
        )


def _missing(trace: Trace) -> str:
    """Why no args can be shown now; "" if they can."""
    if problem := trace.elements.text.problem():
        return printable(f"no args are shown: {problem}")
    return "" if trace.elements.text.at_hand else "its args follow: the file is being unpacked"


def title(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Said:
    """Short name, duration, place."""
    label = label_of(int(trace.role[row]), trace.name_of(row))
    rest = f"   {duration(int(trace.dur[row]))}   {narrow(trace.track_of(row).label)}"
    return Said(clip(label, max(8, width - len(rest)), glyphs.ellipsis) + rest, "title")


def _marked(found: Annotated, width: int, legend: int) -> list[Said]:
    """The name, the marks below it, and `legend` lines that explain them."""
    text, under = found.lines[0]
    meanings = [Said(line) for line in flow(found.legend, width)[:legend]]
    blanks = [Said("")] * (legend - len(meanings))
    return [Said(narrow(text), "plain"), Said(under, "warning"), *meanings, *blanks]


def _annotated(trace: Trace, row: int, width: int, glyphs: Glyphs) -> Annotated:
    name = trace.name_of(row)
    decoded = decode(name) if trace.role[row] == Role.KERNEL else None
    parts = [part for part in (decoded.parts if decoded else ()) if part[1] <= LONGEST_NAME]
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
    around = launch_chain(trace, row)[:MOST]
    chain = f" {glyphs.chain} ".join(_name(trace, over) for over in around)
    if not is_gpu(trace, row):
        parts = (_launched(trace, row), f"in {chain}" if chain else "")
        return "   ".join(part for part in parts if part)
    if trace.launch[row] < 0:
        place = "what was read of this trace" if trace.report.prefix else "this trace"
        return f"in {chain}" if chain else f"its launch is not recorded in {place}"
    return f"{_captured(trace, row, glyphs)}launched {_waited(trace, row)} by {chain}"


def _captured(trace: Trace, row: int, glyphs: Glyphs) -> str:
    """Where a node of a graph was captured, if it was joined with that."""
    if not is_joined(trace, row):
        return ""
    call = int(trace.asked[row])
    around = [call, *ancestors(trace, call)][:MOST]
    chain = f" {glyphs.chain} ".join(_name(trace, over) for over in around)
    return f"captured by {chain}   "


def _name(trace: Trace, row: int) -> str:
    """A Python frame with its file in short, `forward my_model.py:42`; else the whole name."""
    name = trace.name_of(row)[:LONGEST_NAME]
    is_frame = int(trace.role[row]) == Role.PYTHON
    return label_of(int(Role.PYTHON), name) if is_frame else narrow(name)


def _waited(trace: Trace, row: int) -> str:
    """How long before its start a GPU event was launched, and why it waited, if known."""
    latency, queued = launch_latency_ns(trace, row) or 0, queue_delay_ns(trace, row)
    if trace.report.prefix:  # what kept the stream busy may be in the rest of the trace
        queued = 0
    if latency < 0:
        return f"{duration(-latency)} later (the clocks differ)"
    behind = f" (for {duration(queued)} the stream was busy)" if queued else ""
    return f"{duration(latency)} earlier{behind}"


def _launched(trace: Trace, row: int) -> str:
    found = launched_sums(trace, row)
    if not found.events:
        return ""
    of_them = f" ({plural(found.kernels, 'kernel')})" if is_replay(trace.name_of(row)) else ""
    return f"launched {plural(found.events, 'GPU event')}{of_them}, {duration(found.ns)}"


def _facts(trace: Trace, row: int, glyphs: Glyphs) -> list[str]:
    """What a kernel computed and how efficiently, else the shapes; then the most important args."""
    if missing := _missing(trace):
        return [missing]
    args = _args(trace, row)
    work = describe(trace, row) if is_gpu(trace, row) else ""
    parts = [work or _shapes(args, glyphs), *remarks(trace, row)]
    skip = {*SHAPE_ARGS, *LAUNCH_ARGS, *LINK_ARGS}
    others = islice((key for key in args if key not in skip), MOST)
    for key in (*(key for key in LAUNCH_ARGS if key in args), *others):
        parts.append(f"{value_text(key, '')} {value_text(_rounded(args[key]), glyphs.ellipsis)}")
    return [part for part in parts if part]


def _rounded(value: Any) -> Any:
    """A number with a fraction to four significant digits; whole numbers are kept."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


@memo(256)
def _args(trace: Trace, row: int) -> dict[str, Any]:
    return trace.args_of(row)


def _shapes(args: dict[str, Any], glyphs: Glyphs) -> str:
    """`[8192, 768] x [768, 3072]  bf16`: tensors only."""
    dims = args.get("Input Dims")
    if not isinstance(dims, Sequence) or isinstance(dims, str):
        return ""
    tensors = islice((dim for dim in dims if dim), MOST)
    return " x ".join(value_text(dim, glyphs.ellipsis) for dim in tensors)
