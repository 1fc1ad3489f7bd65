"""Which tables there are of a trace: the rows of an answer of `--json`, or all slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusetui.analysis.why.selection import Selection
from fusetui.tables.columns import columns_of
from fusetui.tables.public import Table, table_of
from fusetui.trace.model.columns import Trace

if TYPE_CHECKING:
    from fusetui.analysis.ranks.model import JobAnswer

Records = list[dict[str, Any]]


class Asked(msgspec.Struct, frozen=True):
    """What of a table is asked for, where its command has options."""

    by: str = "name"  # what kernels, ops and lines are grouped by
    peaks: Mapping[str, float] = {}
    expand: bool = False  # modules with their indices
    file: str | None = None  # the functions of this file or folder
    part: Selection = Selection()  # of gaps


def made(name: str, trace: Trace, asked: Asked | None = None) -> Table:
    """One of TABLES. Raises NotThere if a part was asked for that is not in the trace."""
    if name == "slices":
        from fusetui.tables.slices import slices

        return slices(trace)
    chosen = asked or Asked()
    return table_of(name, columns_of(name, chosen.by), MAKERS[name](trace, chosen))


def ranks_table(answer: JobAnswer) -> Table:
    """A row for each rank, in the order of the answer."""
    from fusetui.analysis.why.model import IDLE

    records = []
    for row in answer.ranks:
        worst = row.worst_wait
        longest = worst and {
            "wait_name": worst.name,
            "wait_start_ns": worst.start_ns,
            "wait_ns": worst.wait_ns,
            "wait_rank": worst.for_rank,
        }
        reasons = () if row.idle_ns is None else IDLE
        idle = {f"idle_{name}_ns": row.idle.get(name, 0) for name in reasons}
        peak = {"memory_peak": row.memory_peak_bytes}
        records.append({**msgspec.structs.asdict(row), **(longest or {}), **idle, **peak})
    return table_of("ranks", columns_of("ranks"), records)


def _kernels(trace: Trace, asked: Asked) -> Records:
    from fusetui.analysis.questions.groups import kernel_groups
    from fusetui.gpu.kernel_names import short_name
    from fusetui.gpu.roofline.many import jobs
    from fusetui.report.groups import kernels_json

    groups = kernel_groups(trace, jobs(trace, given=dict(asked.peaks)), asked.by)
    rows: Records = msgspec.to_builtins(kernels_json(groups, asked.by, ()))["kernels"]
    for row in rows:
        decoded = row.pop("decoded", None) or {}
        row |= {key: row.get(key, value) for key, value in decoded.items() if key != "op"}
        if "name" in row:
            row |= {"short": row.get("short") or short_name(row["name"])}
            row["kernel_op"] = decoded.get("op")
    return rows


def _ops(trace: Trace, asked: Asked) -> Records:
    from fusetui.analysis.questions.groups import op_groups

    rows: Records = msgspec.to_builtins(op_groups(trace, asked.by))
    return [{"captured": False, **row} for row in rows]


def _modules(trace: Trace, asked: Asked) -> Records:
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins

    rows: Records = msgspec.to_builtins(module_times(origins(trace), asked.expand).modules)
    return rows


def _lines(trace: Trace, asked: Asked) -> Records:
    from fusetui.analysis.why.causes import idle_causes
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    by_line = asked.by == "line"
    times = function_times(origins(trace), asked.file, idle_causes(trace), by_line)
    rows: Records = msgspec.to_builtins(times.functions)
    return rows


def _gaps(trace: Trace, asked: Asked) -> Records:
    """All of them."""
    from fusetui.analysis.why.model import IDLE
    from fusetui.analysis.why.selection import accounted
    from fusetui.report.why_answer import main_reason

    found = accounted(trace, msgspec.structs.replace(asked.part, all_gaps=True))
    return [
        {
            **msgspec.structs.asdict(gap),
            "device": str(gap.device),
            "mostly": main_reason(gap),
            **{f"idle_{name}_ns": gap.idle.get(name, 0) for name in IDLE},
            "row": event,
            "launch": _row(launch),
        }
        for gap, (event, launch) in zip(found.gaps, found.gap_rows, strict=True)
    ]


def _launches(trace: Trace, _: Asked) -> Records:
    """Launch calls by thread and name."""
    from fusetui.analysis.questions.launches import thread_launches

    return [
        {"process": str(one.process), "thread": str(one.thread), **msgspec.structs.asdict(call)}
        for one in thread_launches(trace)
        for call in one.calls
    ]


def _collectives(trace: Trace, _: Asked) -> Records:
    from fusetui.analysis.questions.collectives import collectives_of

    found = collectives_of(trace)

    def rows() -> Iterator[dict[str, Any]]:
        each = zip(found.told, found.rows.tolist(), found.issued.tolist(), strict=True)
        for told, row, issued in each:
            yield {
                "collective": told.name,
                "process_group": told.group.name,
                "group_size": told.group.size or None,
                "dtype": told.dtype or None,
                "bytes": _row(told.bytes),
                "sequence": _row(told.sequence),
                "peer": _row(told.peer),
                "issued_ns": issued - trace.begin_ns,
                "start_ns": int(trace.start[row]) - trace.begin_ns,
                "dur_ns": int(trace.dur[row]),
                "kernel": trace.name_of(row),
                "row": row,
            }

    return [*rows()]


def _findings(trace: Trace, _: Asked) -> Records:
    from fusetui.analysis.why.answer import why

    return [
        {**msgspec.structs.asdict(one), "remedy": one.try_, "evidence_rows": [*one.evidence]}
        for one in why(trace, Selection()).findings
    ]


def _steps(trace: Trace, _: Asked) -> Records:
    from fusetui.analysis.questions.summary import summary
    from fusetui.trace.layout.steps import steps_of

    rows: Records = msgspec.to_builtins(summary(trace).steps)
    numbers = steps_of(trace).numbers
    return [{"number": number, **row} for number, row in zip(numbers, rows, strict=True)]


def _row(number: int) -> int | None:
    """-1 stands for none."""
    return number if number >= 0 else None


MAKERS: Final[dict[str, Callable[[Trace, Asked], Records]]] = {
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
TABLES = (*MAKERS, "slices")
"""In the order of the documentation."""
