"""`picture` and `report` write pages of the app to files; `stacks` writes its flame
graphs in the formats of other tools. None is written where one of them raises
CommandError, or what it says beside that."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from fusetui import __version__
from fusetui.analysis.why.selection import Selection
from fusetui.commands.cut import window_of_options
from fusetui.commands.errors import CommandError, say
from fusetui.commands.loading import load
from fusetui.report.output import emit
from fusetui.report.streams import write
from fusetui.text.figures import duration, plural
from fusetui.text.printable import printable
from fusetui.trace.model.columns import Trace
from fusetui.trace.new_file import check_new, new_file
from fusetui.trace.program.modules import module_times
from fusetui.trace.program.origin import origins
from fusetui.tui.layout.figure_trees import build_module_tree
from fusetui.tui.layout.flame import TIMES, Flame, build_flame
from fusetui.tui.layout.op_tree import build_call_tree, build_frame_tree

REPORT_SUFFIXES = (".html", ".htm")
TIMELINE = "timeline"
DIFF = "diff"
"""Pages of the app, as TIMELINE."""

MAX_REPORT_BYTES = 1_000_000
ROWS_OF_A_TABLE = (200, 100, 50, 20, 5)
"""Each table of a report has as many rows as keep it below MAX_REPORT_BYTES."""


def run_picture(args: Namespace) -> int:
    """Write a page of the app to `args.out`, as SVG, PNG or HTML, and return the exit
    code. Raises Error."""
    from fusetui.tui.pictures import check_picture, save_picture, shown

    check_picture(args.out)
    names = [args.trace] if args.other is None else [args.trace, args.other]
    page = args.page or (DIFF if len(names) > 1 else TIMELINE)
    loaded = [load(name, args.captured_by) for name in names]
    traces = [one.trace for one in loaded]
    is_whole = args.step is None and args.begin is None and args.end is None
    window = None if is_whole else window_of_options(traces[0], args)
    if window and page != TIMELINE:
        raise CommandError(
            "Only --page timeline can draw part of a trace. To draw another page, "
            "write the part as a trace with fusetui cut."
        )
    from fusetui.tui.layout.view import short_label
    from fusetui.tui.state.state import Size

    labels = [short_label(trace.report.file) for trace in traces]
    state = shown(traces, labels, page, Size(*args.size), window)
    is_light = args.light is not False
    save_picture(state, args.out, is_light, args.pixels)
    emit(f"{printable(args.out)}: the page {page}.")
    return max(one.code for one in loaded)


def run_report(args: Namespace) -> int:
    """Write a page for a browser about a trace, or about two and their difference.
    Returns the exit code. Raises CommandError, CannotWriteError or NoStepsError."""
    if not args.out.lower().endswith(REPORT_SUFFIXES):
        raise CommandError(f"{args.out} must end in .html.")
    check_new(args.out)
    names = [args.a] if args.b is None else [args.a, args.b]
    loaded = [load(name, (), args.compile_log) for name in names]
    traces = [one.trace for one in loaded]
    content = _make_report(traces, args.light)
    with new_file(args.out) as file:
        file.write(content)
    emit(f"{printable(args.out)}: a report of {plural(len(traces), 'trace')}.")
    return max(one.code for one in loaded)


def _make_report(traces: Sequence[Trace], light: bool | None) -> bytes:
    """Return the HTML of the report, with as many rows per table as MAX_REPORT_BYTES
    allows, or else with the fewest. Raises NoStepsError."""
    from fusetui.analysis.replay.worth import with_worth
    from fusetui.analysis.why.answer import why
    from fusetui.commands.web.sections import ReportedTrace, make_html

    reported = [
        ReportedTrace(trace, with_worth(trace, why(trace, Selection())))
        for trace in traces
    ]
    difference = None
    if len(traces) > 1:
        from fusetui.analysis.diff.compare import diff

        difference = diff(*traces)
    for max_rows in ROWS_OF_A_TABLE:
        content = make_html(reported, difference, light, max_rows).encode()
        # numbers of rows come in descending order, so the first that fits is the best
        if len(content) < MAX_REPORT_BYTES:
            break
    return content


def run_stacks(args: Namespace) -> int:
    """Write the stacks of a flame graph, as folded lines or as a document of
    speedscope. Returns the exit code. Raises CommandError if no such time was recorded,
    and CannotWriteError."""
    if args.folded and args.speedscope:
        raise CommandError("Use either --folded or --speedscope, not both.")
    if args.out is not None:
        check_new(args.out)
    trace, code = load(args.trace, args.captured_by)
    if args.time:
        time = args.time.upper()
    else:
        time = GPU_TIME if len(trace.gpu_rows) else CPU_TIME
    flame = _make_flame(trace, args.of, time)
    if not flame.whole_ns:
        raise CommandError(f"{trace.report.file} has no {time} time of {args.of}.")
    say(*_describe_uncovered(trace, flame, time, args.of))
    if args.speedscope:
        name = printable(Path(trace.report.file).name)
        document = speedscope(flame, f"{name}: {time} time of {args.of}", name)
        text = orjson.dumps(document).decode() + "\n"
    else:
        text = "".join(folded(flame))
    if args.out is None:
        write(text)
        return code
    with new_file(args.out) as file:
        file.write(text.encode())
    emit(f"{printable(args.out)}: {duration(flame.whole_ns)} of {time} time.")
    return code


def _make_flame(trace: Trace, kind: str, time: str) -> Flame:
    """Return the flame graph of a trace by ops, modules or Python frames (`kind`).
    `time` is GPU_TIME or CPU_TIME."""
    if kind == "ops":
        return build_flame(build_call_tree(trace), time)
    origins_of_kernels = origins(trace)
    if kind == "modules":
        times = module_times(origins_of_kernels)
        return build_flame(build_module_tree(times, origins_of_kernels), time)
    return build_flame(build_frame_tree(trace, origins_of_kernels), time)


def _describe_uncovered(
    trace: Trace, flame: Flame, time: str, kind: str
) -> Iterator[str]:
    """Yield a sentence if some GPU time of the trace is in none of the stacks of this
    kind. CPU time needs none."""
    whole_ns = int(trace.dur[trace.gpu_rows].sum())
    if time == GPU_TIME and flame.whole_ns < whole_ns:
        covered_text = f"{duration(flame.whole_ns)} of {duration(whole_ns)} of GPU time"
        yield f"The stacks cover {covered_text}; the rest belongs to no {OF_STACKS[kind]}."


GPU_TIME, CPU_TIME = TIMES
OF_STACKS = {
    "ops": "CPU op",
    "modules": "module or annotation",
    "python": "Python frame",
}
"""What a frame of a stack is, by the kind of stacks."""
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
SEPARATOR = ";"
"""Between two frames of a folded stack."""


class Stack(NamedTuple):
    """The nodes of the tree from the outermost one on, and the time that belongs to the
    innermost one and to none further inside."""

    nodes: list[int]
    ns: int


def stacks(flame: Flame) -> Iterator[Stack]:
    """Yield each stack that has time of its own, in the order of the tree. The time of
    a node without that of its children is its own time."""
    tree = flame.tree
    self_ns = flame.amount.copy()
    inner_nodes = np.flatnonzero(tree.parent >= 0)
    np.subtract.at(self_ns, tree.parent[inner_nodes], flame.amount[inner_nodes])
    for node in np.flatnonzero(self_ns > 0).tolist():
        yield Stack(nodes=flame.path(node), ns=int(self_ns[node]))


def folded(flame: Flame) -> Iterator[str]:
    """Yield a line for each stack, as flamegraph.pl and inferno read it, with the time
    in ns.

        a;b;c 1200
    """
    labels = [label.replace(SEPARATOR, ",") for label in _label_nodes(flame)]
    for stack in stacks(flame):
        path = SEPARATOR.join(labels[node] for node in stack.nodes)
        yield f"{path} {stack.ns}\n"


def speedscope(flame: Flame, name: str, trace: str) -> dict[str, Any]:
    """Return a flame graph as a document in the file format of speedscope (SCHEMA),
    with one profile. `name` is the name of the profile, and `trace` that of the
    document."""
    labels = _label_nodes(flame)
    frame_of_label: dict[str, int] = {}
    for label in labels:
        frame_of_label.setdefault(label, len(frame_of_label))
    samples = []
    weights = []
    for stack in stacks(flame):
        samples.append([frame_of_label[labels[node]] for node in stack.nodes])
        weights.append(stack.ns)
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "weights": weights,
        "samples": samples,
    }
    return {
        "$schema": SCHEMA,
        "exporter": f"fusetui {__version__}",
        "name": trace,
        "shared": {"frames": [{"name": label} for label in frame_of_label]},
        "profiles": [profile],
    }


def _label_nodes(flame: Flame) -> Sequence[str]:
    """Return the label of each node of the flame graph, by its number."""
    return [flame.tree.label(node) for node in range(len(flame.amount))]
