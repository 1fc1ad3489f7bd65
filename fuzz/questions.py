"""Everything that a person can ask about a trace, asked of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import msgspec
import numpy as np
import orjson
from fuzz.checks import check, check_json
from fuzz.commands import answer
from tests.finding import find
from tests.hostile import obeyed

from fusetui.analysis.diff.compare import diff
from fusetui.analysis.diff.model import Diff, RowKind
from fusetui.analysis.questions.busy import summarize_window
from fusetui.analysis.questions.chain import (
    find_launch_chain,
    find_launched_gpu_rows,
    measure_launch_latency_ns,
    measure_queue_delay_ns,
)
from fusetui.analysis.questions.computing import count_kinds_by_step
from fusetui.analysis.questions.summary import summary
from fusetui.analysis.questions.totals import sum_kernels_by_name, sum_ops_by_name
from fusetui.capture.record import compare_guess, parse_guess
from fusetui.command_line.file_commands import PICTURED
from fusetui.commands.errors import DONE
from fusetui.commands.loading import notices
from fusetui.gpu.kernel_names import decode, short_name
from fusetui.gpu.kernel_names.record import UNDERLINE, annotate
from fusetui.gpu.kinds import KINDS
from fusetui.gpu.roofline.row import describe_work, remarks
from fusetui.report import output
from fusetui.report.diff import document, format_diff, format_markdown
from fusetui.report.summary import (
    format_kernel_totals,
    format_op_totals,
    format_summary,
)
from fusetui.text.printable import printable_lines
from fusetui.text.tables import TOP_ALL
from fusetui.timeline.cells import DepthRows, cells, edges
from fusetui.trace import Trace
from fusetui.trace.layout.counters import counters, curve_of, values
from fusetui.trace.model.categories import Role

Asked = Callable[[], None]

ROWS = 12  # that are asked about one by one
WIDTH = 100
COMMANDS: dict[str, list[str]] = {
    **{
        name: []
        for name in ("summary", "kernels", "ops", "why", "gaps", "modules", "lines")
    },
    **{name: [] for name in ("launches", "ranks", "serving", "memory")},
    "check": ["--expect", "kernels=1 gemm=2"],
    "diff": ["{path}"],
}
"""Each with what follows the trace."""


def questions(
    trace: Trace, other: Callable[[], Trace | None], path: Path, rnd: Random
) -> Iterator[tuple[str, Asked]]:
    """Each with its name. `other` makes another trace, to compare it with."""
    yield "summary", lambda: ask_summary(trace)
    yield "kernels", lambda: ask_kernels(trace)
    yield "ops", lambda: ask_ops(trace)
    yield "check", lambda: ask_check(trace)
    yield "counters", lambda: ask_counters(trace)
    yield "search", lambda: ask_search(trace, rnd)
    yield "windows", lambda: ask_windows(trace, rnd)
    yield "rows", lambda: ask_rows(trace, rnd)
    yield "cells", lambda: ask_cells(trace, rnd)
    yield "diff with itself", lambda: ask_same(trace)
    yield "diff", lambda: ask_other(trace, other())
    yield "command line", lambda: ask_command_line(path, rnd)
    yield "files", lambda: ask_files(path, rnd)


def ask_summary(trace: Trace) -> None:
    found = summary(trace)
    _encoded(msgspec.to_builtins(found))
    _shown(
        format_summary(found, sum_kernels_by_name(trace), sum_ops_by_name(trace), WIDTH)
    )
    _shown("\n".join(notices(trace.report)))
    check(
        found.slices == sum(track.slices for track in found.tracks), "slices of tracks"
    )
    linked = found.gpu_events_linked
    check(found.kernels <= found.gpu_events >= linked, "counts of GPU events")


def ask_kernels(trace: Trace) -> None:
    totals = sum_kernels_by_name(trace)
    _shown(format_kernel_totals(totals, 10, WIDTH, TOP_ALL))
    rows = trace.rows_of(Role.KERNEL)
    check(sum(total.count for total in totals) == len(rows), "kernels by name")
    check(
        sum(total.total_ns for total in totals) == int(trace.dur[rows].sum()),
        "total of kernels",
    )
    for name in trace.names[:100]:
        decoded = decode(name)
        if decoded:
            _encoded(msgspec.to_builtins(decoded))
            annotate(name, decoded.parts, WIDTH, UNDERLINE)
        short_name(name)


def ask_ops(trace: Trace) -> None:
    totals = sum_ops_by_name(trace)
    _shown(format_op_totals(totals, 10, WIDTH, TOP_ALL))
    rows = trace.rows_of(Role.OP)
    check(sum(total.count for total in totals) == len(rows), "ops by name")
    for total in totals:
        check(total.total_ns >= 0 and total.self_ns >= 0, "time of an op", total)


def ask_check(trace: Trace) -> None:
    counted = count_kinds_by_step(trace)
    guesses = compare_guess(
        parse_guess(" ".join(f"{kind}=1" for kind in KINDS)), counted
    )
    check(len(guesses) == len(KINDS), "guesses")
    for kind in KINDS:
        counted.mean_per_step(kind)


def ask_counters(trace: Trace) -> None:
    for counter in counters(trace):
        check(len(counter.time) == len(counter.value) > 0, "an empty counter")
        check((np.diff(counter.time) >= 0).all(), "a counter goes back in time")
        check(np.isfinite(counter.value).all(), "a value that is not finite")
        curve = curve_of(counter)
        begin, end = int(counter.time[0]), int(counter.time[-1])
        found = values(curve, edges(begin, end + 1, 7), max_scanned=2)
        check(np.nanmax(found) == curve.largest, "largest value of a counter")


def ask_search(trace: Trace, rnd: Random) -> None:
    name = rnd.choice(trace.names or ("a",))
    begin = rnd.randint(0, len(name))
    for text in ("", "a", name, name[begin : begin + 3]):
        rows = find(trace, text)
        check((np.diff(trace.start[rows]) >= 0).all(), "hits in order")
        check(
            all(text.lower() in trace.name_of(row).lower() for row in rows[:20]),
            "a hit",
        )


def ask_windows(trace: Trace, rnd: Random) -> None:
    for _ in range(3):
        begin, end = sorted(rnd.randint(trace.begin_ns, trace.end_ns) for _ in range(2))
        found = summarize_window(trace, begin, end)
        check(
            0 <= found.busy_ns <= found.span_ns * found.devices,
            "busy of a window",
            found,
        )
        check(
            max((s.busy_ns for s in found.streams), default=0) <= found.busy_ns,
            "streams",
            found,
        )


def ask_rows(trace: Trace, rnd: Random) -> None:
    """Where a row comes from, what it started, and everything that is said about it."""
    for row in sorted(rnd.sample(range(len(trace)), min(ROWS, len(trace)))):
        chain = find_launch_chain(trace, row)
        check(
            len(set(chain)) == len(chain) and row not in chain,
            "a chain that goes round",
        )
        under = find_launched_gpu_rows(trace, row)
        check((np.diff(trace.start[under]) >= 0).all(), "launched in order")
        check(
            (measure_launch_latency_ns(trace, row) is None) == (trace.launch[row] < 0),
            "latency",
        )
        check((measure_queue_delay_ns(trace, row) or 0) >= 0, "a negative delay")
        _shown(describe_work(trace, row))
        _shown("\n".join(remarks(trace, row)))
        check(isinstance(trace.args_of(row), dict), "args")


def ask_cells(trace: Trace, rnd: Random) -> None:
    """What is drawn covers as much as the slices do."""
    span = max(trace.end_ns - trace.begin_ns, 1)
    borders = edges(trace.begin_ns, trace.begin_ns + span + 1, rnd.choice((1, 7, 90)))
    for line in islice(DepthRows(trace, trace.tracks), 20):
        found = cells(line, borders)
        if (trace.dur[line.rows] > 0).all():
            covered = int(found.covered.sum())
            check(covered == int((line.end - line.start).sum()), "cells cover a line")
        check(
            ((found.row >= 0) == (found.count > 0)).all(), "a cell shows what is in it"
        )


def ask_same(trace: Trace) -> None:
    found = ask_diff(trace, trace)
    check(
        all(row.kind is RowKind.SAME and not row.change_ns for row in found.rows),
        "same",
        found.rows,
    )
    check(
        found.step.a_ns == found.step.b_ns and not found.step.shown,
        "the same step",
        found.step,
    )
    check(found.step.ratio in (1, None), "ratio of the same", found.step)


def ask_other(trace: Trace, other: Trace | None) -> None:
    if other is not None:
        ask_diff(trace, other)
        ask_diff(other, trace)


def ask_diff(a: Trace, b: Trace) -> Diff:
    found = diff(a, b)
    sums = found.accounting
    terms = sum(msgspec.structs.asdict(sums).values()) - sums.step_ns
    check(
        terms == sums.step_ns == found.step.change_ns,
        "the sum of the diff",
        sums,
    )
    _encoded(msgspec.to_builtins(document(found)))
    _shown(format_diff(found, width=WIDTH))
    _shown(format_markdown(found))
    for one, rows in ((a, "a_rows"), (b, "b_rows")):
        check(
            all(r < len(one) for row in found.rows for r in getattr(row, rows)),
            "rows of a diff",
        )
    return found


def ask_command_line(path: Path, rnd: Random) -> None:
    """One command, as text or as JSON: it ends with an exit code and says what it has
    to."""
    command = rnd.choice(list(COMMANDS))
    more = [word.format(path=path) for word in COMMANDS[command]]
    answer([command, str(path), *more, *(["--json"] if rnd.random() < 0.5 else [])])


def ask_files(path: Path, rnd: Random) -> None:
    """A picture is XML, a report HTML of one script; neither has what a terminal would
    obey."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out.svg"
        words = [
            "--page",
            rnd.choice(PICTURED),
            "--size",
            rnd.choice(("40x10", "118x32")),
        ]
        if answer(["picture", str(path), str(out), *words]).code == DONE:
            ElementTree.fromstring(out.read_text(encoding="utf-8"))
            check(
                not obeyed(out.read_text(encoding="utf-8")),
                "a control character in a picture",
            )
        out = Path(folder) / "out.html"
        if answer(["report", str(path), str(out)]).code == DONE:
            text = out.read_text(encoding="utf-8")
            check(not obeyed(text), "a control character in a report")
            check(text.count("<script") == 1 and len(text) < 1_000_000, "a report")
    answer(["stacks", str(path), "--of", rnd.choice(("ops", "modules", "python"))])


def _encoded(document: Any) -> None:
    """As `--json` writes it."""
    texts: list[str] = []
    with patch.object(output, "write", texts.append):
        output.emit_json(document)
    (text,) = texts
    check_json(text)
    check(orjson.loads(text) is not None, "JSON")


def _shown(text: str) -> None:
    """As it reaches a terminal."""
    shown = printable_lines(text)
    check(
        shown.replace("\n", "").isprintable(), "text that a terminal obeys", shown[:200]
    )
    shown.encode("utf-8")
