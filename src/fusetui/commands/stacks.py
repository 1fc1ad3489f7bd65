"""`stacks`: the flame graphs of the app as files of other tools."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from fusetui import __version__
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import load
from fusetui.report.output import emit
from fusetui.report.streams import write
from fusetui.text.figures import duration
from fusetui.text.printable import printable
from fusetui.trace import Trace
from fusetui.trace.new_file import check_new, new_file
from fusetui.trace.program.modules import module_times
from fusetui.trace.program.origin import origins
from fusetui.tui.layout.figure_trees import module_tree
from fusetui.tui.layout.flame import TIMES, Flame, flame_of
from fusetui.tui.layout.op_tree import call_tree, frame_tree


def run_stacks(args: Namespace) -> int:
    """Raises CommandError where no such time was recorded, and CannotWrite."""
    if args.folded and args.speedscope:
        raise CommandError("Use either --folded or --speedscope, not both.")
    if args.out is not None:
        check_new(args.out)
    trace, code = load(args.trace, args.captured_by)
    time = args.time.upper() if args.time else TIMES[not len(trace.gpu_rows)]
    flame = _flame(trace, args.of, time)
    if not flame.whole_ns:
        raise CommandError(f"{trace.report.file} has no {time} time of {args.of}.")
    if args.speedscope:
        name = printable(Path(trace.report.file).name)
        document = speedscope(flame, f"{name}: {time} time of {args.of}", name)
        text = orjson.dumps(document).decode() + "\n"
    else:
        text = "".join(folded(flame))
    if args.out is None:
        write(text)
        return code
    with new_file(args.out) as place:
        place.write_text(text, encoding="utf-8")
    emit(f"{printable(args.out)}: {duration(flame.whole_ns)} of {time} time.")
    return code


def _flame(trace: Trace, of: str, time: str) -> Flame:
    if of == "ops":
        return flame_of(call_tree(trace), time)
    found = origins(trace)
    if of == "modules":
        return flame_of(module_tree(module_times(found), found), time)
    return flame_of(frame_tree(trace, found), time)


SCHEMA = "https://www.speedscope.app/file-format-schema.json"
BETWEEN = ";"


def stacks(flame: Flame) -> Iterator[tuple[list[int], int]]:
    """Those with any time, in the order of the tree: nodes from the outermost one on, and ns that
    belong to none further inside."""
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
