"""`picture`, `report`: what the app shows, as files that others open; `stacks`: its
flame graphs as files of other tools. None is written where one of them raises
CommandError, or what it says beside that."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from fusetui import __version__
from fusetui.analysis.why.selection import Selection
from fusetui.commands.cut import part_asked
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
from fusetui.tui.layout.figure_trees import module_tree
from fusetui.tui.layout.flame import TIMES, Flame, flame_of
from fusetui.tui.layout.op_tree import call_tree, frame_tree

AS_TRACE = "fusetui cut writes it as a trace, of which any page can be drawn"
TIMELINE, DIFF = "timeline", "diff"
LETTER = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
LARGEST = 1_000_000  # bytes of a report
ROWS = (200, 100, 50, 20, 5)  # of each of its tables: as many as keep it below that


def run_picture(args: Namespace) -> int:
    """A page of the app as an SVG, a PNG or an HTML document. Raises Error."""
    form = Path(args.out).suffix.lower()
    if form not in (".svg", ".png", ".html"):
        raise CommandError(f"{args.out} must end in .svg, .png or .html.")
    check_new(args.out)
    rasterizer = _rasterizer() if form == ".png" else None
    names = [name for name in (args.trace, args.other) if name is not None]
    page = args.page or (DIFF if len(names) > 1 else TIMELINE)
    loaded = [load(name, args.captured_by) for name in names]
    traces = [one.trace for one in loaded]
    is_whole = args.step is None and args.begin is None and args.end is None
    window = None if is_whole else part_asked(traces[0], args)
    if window and page != TIMELINE:
        raise CommandError(f"A part is drawn by --page timeline alone: {AS_TRACE}.")
    from fusetui.tui.layout.view import short_label
    from fusetui.tui.pictures import drawn, shown
    from fusetui.tui.state.state import Size

    labels = [short_label(trace.report.file) for trace in traces]
    state = shown(traces, labels, page, Size(*args.size), window)
    title = f"{' and '.join(labels)}: {page}"
    svg = drawn(state, args.light is not False, title, pixels=args.pixels)
    if form == ".html":
        from fusetui.commands.web.html import document

        style = "body{margin:0}svg{max-width:100%;height:auto}"
        svg = document(
            f"fusetui: {args.trace}", svg, style, light=args.light is not False
        )
    with new_file(args.out) as file:
        file.write(rasterizer(svg) if rasterizer else svg.encode())
    emit(f"{printable(args.out)}: the page {page}.")
    return max(one.code for one in loaded)


def _rasterizer() -> Callable[[str], bytes]:
    """Makes a PNG of an SVG. Raises MissingPackageError; CommandError without a font
    for its texts."""
    from fusetui.tables.files import needed
    from fusetui.tui.pictures import FAMILY

    drawn = needed("resvg_py", "A PNG", "picture").svg_to_bytes

    def png(svg: str) -> bytes:
        return bytes(drawn(svg_string=svg))

    letter = f'<text y="15" font-family="{FAMILY}">M</text>'
    if png(LETTER.format(letter)) == png(LETTER.format("")):
        raise CommandError(
            "No font is installed, so a PNG would have no text: write an SVG."
        )
    return png


def run_report(args: Namespace) -> int:
    """One page for a browser about a trace or two. Raises CannotWriteError or
    NoStepsError."""
    if not args.out.lower().endswith((".html", ".htm")):
        raise CommandError(f"{args.out} must end in .html.")
    check_new(args.out)
    loaded = [load(name, ()) for name in (args.a, args.b) if name is not None]
    traces = [one.trace for one in loaded]
    from fusetui.analysis.replay.worth import with_worth
    from fusetui.analysis.why.answer import why
    from fusetui.commands.web.sections import html_of

    sides = [(trace, with_worth(trace, why(trace, Selection()))) for trace in traces]
    found = None
    if len(traces) > 1:
        from fusetui.analysis.diff.compare import diff

        found = diff(*traces)
    for most in ROWS:
        content = html_of(sides, found, args.light, most).encode()
        if len(content) < LARGEST:
            break
    with new_file(args.out) as file:
        file.write(content)
    emit(f"{printable(args.out)}: a report of {plural(len(traces), 'trace')}.")
    return max(one.code for one in loaded)


def run_stacks(args: Namespace) -> int:
    """Raises CommandError where no such time was recorded, and CannotWriteError."""
    if args.folded and args.speedscope:
        raise CommandError("Use either --folded or --speedscope, not both.")
    if args.out is not None:
        check_new(args.out)
    trace, code = load(args.trace, args.captured_by)
    time = args.time.upper() if args.time else TIMES[not len(trace.gpu_rows)]
    if args.of == "ops":
        flame = flame_of(call_tree(trace), time)
    elif args.of == "modules":
        found = origins(trace)
        flame = flame_of(module_tree(module_times(found), found), time)
    else:
        flame = flame_of(frame_tree(trace, origins(trace)), time)
    if not flame.whole_ns:
        raise CommandError(f"{trace.report.file} has no {time} time of {args.of}.")
    say(*_left_out(trace, flame, time, args.of))
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


def _left_out(trace: Trace, flame: Flame, time: str, kind: str) -> Iterator[str]:
    """A sentence if some GPU time is in none of the stacks of a kind."""
    whole_ns = int(trace.dur[trace.gpu_rows].sum())
    if time == "GPU" and flame.whole_ns < whole_ns:
        held = f"{duration(flame.whole_ns)} of {duration(whole_ns)} of GPU time"
        yield f"The stacks hold {held}: the rest belongs to no {OF_STACKS[kind]}."


OF_STACKS = {
    "ops": "CPU op",
    "modules": "module or annotation",
    "python": "Python frame",
}
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
BETWEEN = ";"


def stacks(flame: Flame) -> Iterator[tuple[list[int], int]]:
    """Those with any time, in the order of the tree: nodes from the outermost one on,
    and ns that belong to none further inside."""
    tree, own = flame.tree, flame.amount.copy()
    inner = np.flatnonzero(tree.parent >= 0)
    np.subtract.at(own, tree.parent[inner], flame.amount[inner])
    for node in np.flatnonzero(own > 0).tolist():
        yield flame.path(node), int(own[node])


def folded(flame: Flame) -> Iterator[str]:
    """A line for each stack, as flamegraph.pl and inferno read them: `a;b;c 1200`."""
    labels = [label.replace(BETWEEN, ",") for label in _labels(flame)]
    for nodes, ns in stacks(flame):
        yield f"{BETWEEN.join(labels[node] for node in nodes)} {ns}\n"


def speedscope(flame: Flame, name: str, trace: str) -> dict[str, Any]:
    """A document of one profile in the file format of speedscope."""
    labels = _labels(flame)
    frames = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    found = list(stacks(flame))
    weights = [ns for _, ns in found]
    profile = {
        **{"type": "sampled", "name": name, "unit": "nanoseconds"},
        **{"startValue": 0, "endValue": sum(weights), "weights": weights},
        "samples": [[frames[labels[node]] for node in nodes] for nodes, _ in found],
    }
    return {
        **{"$schema": SCHEMA, "exporter": f"fusetui {__version__}", "name": trace},
        "shared": {"frames": [{"name": label} for label in frames]},
        "profiles": [profile],
    }


def _labels(flame: Flame) -> Sequence[str]:
    return [flame.tree.label(node) for node in range(len(flame.amount))]
