"""Which tables there are of a trace: each is the list of an answer of `--json`, or all slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from fusetui.tables.table import Table, table_of
from fusetui.trace.model.columns import Trace

Records = Sequence[dict[str, Any]]


def tables() -> dict[str, Callable[[Trace], Table]]:
    """By name, in the order of the documentation."""
    from fusetui.tables.slices import slices

    made = {
        "kernels": _kernels,
        "ops": _ops,
        "modules": _modules,
        "lines": _lines,
        "gaps": _gaps,
        "launches": _launches,
        "collectives": _collectives,
        "findings": _findings,
        "steps": _steps,
    }
    return {
        **{
            name: lambda trace, n=name, make=make: table_of(n, make(trace))
            for name, make in made.items()
        },
        "slices": slices,
    }


def plain(answer: object) -> Any:
    """An answer as dicts and lists, as `--json` prints it."""
    return msgspec.to_builtins(answer)


def _kernels(trace: Trace) -> Records:
    from fusetui.analysis.questions.kernel_groups import kernel_groups
    from fusetui.gpu.roofline.many import jobs, peaks_of_devices
    from fusetui.report.groups import kernels_json

    groups = kernel_groups(trace, jobs(trace), "name")
    rows: Records = plain(kernels_json(groups, "name", peaks_of_devices(trace)))["kernels"]
    return [{**row, "decoded": _without_parts(row.get("decoded"))} for row in rows]


def _without_parts(decoded: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (decoded or {}).items() if key not in ("parts", "name")}


def _ops(trace: Trace) -> Records:
    from fusetui.analysis.questions.op_groups import op_groups
    from fusetui.report.groups import ops_json

    rows: Records = plain(ops_json(op_groups(trace, "name"), "name"))["ops"]
    return rows


def _modules(trace: Trace) -> Records:
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins

    rows: Records = plain(module_times(origins(trace), False).modules)
    return rows


def _lines(trace: Trace) -> Records:
    from fusetui.analysis.why.causes import idle_causes
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    rows: Records = plain(function_times(origins(trace), None, idle_causes(trace)).functions)
    return rows


def _gaps(trace: Trace) -> Records:
    from fusetui.analysis.why.selection import Selection, accounted
    from fusetui.report.why import gaps_document

    rows: Records = plain(gaps_document(accounted(trace, Selection(all_gaps=True))))["gaps"]
    return rows


def _launches(trace: Trace) -> Records:
    """Launch calls by thread and name."""
    from fusetui.analysis.questions.launches import thread_launches
    from fusetui.report.launches import launches_json

    threads = plain(launches_json(trace, thread_launches(trace), (), []))["threads"]
    return [
        {"process": one["process"], "thread": one["thread"], **call}
        for one in threads
        for call in one["calls"]
    ]


def _collectives(trace: Trace) -> Records:
    from fusetui.analysis.questions.collectives import collectives_of

    found = collectives_of(trace)
    return [*_told(trace, found)]


def _told(trace: Trace, found: Any) -> Iterator[dict[str, Any]]:
    for told, row, issued in zip(
        found.told, found.rows.tolist(), found.issued.tolist(), strict=True
    ):
        yield {
            "collective": told.name,
            "group": told.group.name,
            "ranks": told.group.size or None,
            "dtype": told.dtype or None,
            "bytes": told.bytes if told.bytes >= 0 else None,
            "sequence": told.sequence if told.sequence >= 0 else None,
            "peer": told.peer if told.peer >= 0 else None,
            "issued_ns": issued - trace.begin_ns,
            "start_ns": int(trace.start[row]) - trace.begin_ns,
            "dur_ns": int(trace.dur[row]),
            "row": row,
            "kernel": trace.name_of(row),
        }


def _findings(trace: Trace) -> Records:
    from fusetui.analysis.why.answer import why
    from fusetui.analysis.why.selection import Selection
    from fusetui.report.why import why_document

    rows: Records = plain(why_document(why(trace, Selection()), trace))["findings"]
    return rows


def _steps(trace: Trace) -> Records:
    from fusetui.analysis.questions.summary import summary

    rows: Records = plain(summary(trace))["steps"]
    return rows
