"""Which tables there are of a trace, their columns as columns.txt has them, and their
rows: those of an answer of `--json`, or all slices. A table has all of its columns for
every trace.

Names are those of `--json`, without dots; one differs where SQL reserves it or another
column has it. Ids are texts, because a trace may name a process or a device by any
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from fusetui.analysis.why.model import IDLE
from fusetui.analysis.why.selection import Selection
from fusetui.tables.public import Table, table_of
from fusetui.tables.table import DTYPES, Kind, Spec
from fusetui.trace.model.columns import Trace

if TYPE_CHECKING:
    from fusetui.analysis.ranks.model import JobAnswer

Specs = tuple[Spec, ...]
FILE = Spec(
    "file", "text", "the trace, as it was named; where several were given", False, True
)
BY: Final = {
    "shape": ("name", "op", "inputs"),
    **{by: (by,) for by in ("name", "op", "module", "family", "stream", "step")},
}
"""What identifies a group of kernels, by what they are grouped by."""


def columns_of(table: str, by: str = "name") -> Specs:
    """The columns of a table; `by`: what kernels or ops are grouped by."""
    parts: tuple[str, ...] = (table,)
    if table == "kernels":
        parts = (*BY[by], "spread", "work", *(["decoded"] if "name" in BY[by] else []))
    elif table == "ops":
        parts = ("name", *(["inputs"] if by == "shape" else []), "spread", "of_ops")
    found = [spec for part in parts for spec in _sections()[part]]
    if whole := {"gaps": "dur_ns", "ranks": "idle_ns"}.get(table):
        found += [
            Spec(
                f"idle_{name}_ns",
                "int",
                f"of {whole}: {reason.sentence}",
                table == "ranks",
            )
            for name, reason in IDLE.items()
        ]
    return tuple(found)


@cache
def _sections() -> dict[str, Specs]:
    """The parts of columns.txt by name."""
    text = Path(__file__).with_name("columns.txt").read_text(encoding="utf-8")
    kinds: dict[str, Kind] = {kind: kind for kind in (*DTYPES, "text")}

    def spec(line: str) -> Spec:
        name, kind, meaning = line.split(maxsplit=2)
        known = kinds[kind.rstrip("?")]
        return Spec(
            name.rstrip("*"), known, meaning, kind.endswith("?"), name.endswith("*")
        )

    sections = (section.split("]\n", 1) for section in text.split("\n[")[1:])
    return {
        name: tuple(map(spec, lines.strip().splitlines())) for name, lines in sections
    }


Records = list[dict[str, Any]]


class PartialRecords(msgspec.Struct, frozen=True, eq=False):
    """Records which some GPU time belongs to none of."""

    records: Records
    left_out: tuple[str, ...]  # sentences: how much, and why


class TableRequest(msgspec.Struct, frozen=True):
    """What of a table is asked for, where its command has options."""

    by: str = "name"  # what kernels, ops and lines are grouped by
    peaks: Mapping[str, float] = {}
    expand: bool = False  # modules with their indices
    file: str | None = None  # the functions of this file or folder
    part: Selection = Selection()  # of gaps


def made(name: str, trace: Trace, asked: TableRequest | None = None) -> Table:
    """One of TABLES. Raises NotThere if a part was asked for that is not in the
    trace."""
    if name == "slices":
        from fusetui.tables.slices import slices

        return slices(
            trace, frozenset(spec.name for spec in columns_of(name) if spec.first)
        )
    chosen = asked or TableRequest()
    answer = MAKERS[name](trace, chosen)
    if not isinstance(answer, PartialRecords):
        return table_of(name, columns_of(name, chosen.by), answer)
    table = table_of(name, columns_of(name, chosen.by), answer.records)
    return msgspec.structs.replace(table, left_out=answer.left_out)


def ranks_table(answer: JobAnswer) -> Table:
    """A row for each rank, in the order of the answer."""
    records = []
    for row in answer.ranks:
        record = {**msgspec.structs.asdict(row), "memory_peak": row.memory_peak_bytes}
        if (worst := row.worst_wait) is not None:
            record |= {"wait_name": worst.name, "wait_start_ns": worst.start_ns}
            record |= {"wait_ns": worst.wait_ns, "wait_rank": worst.for_rank}
        if row.idle_ns is not None:
            record |= {f"idle_{name}_ns": row.idle.get(name, 0) for name in IDLE}
        records.append(record)
    return table_of("ranks", columns_of("ranks"), records)


def _kernels(trace: Trace, asked: TableRequest) -> Records:
    from fusetui.analysis.questions.groups import kernel_groups
    from fusetui.gpu.kernel_names import short_name
    from fusetui.gpu.roofline.many import jobs
    from fusetui.report.groups import kernels_json

    groups = kernel_groups(trace, jobs(trace, given=dict(asked.peaks)), asked.by)
    rows = _plain(kernels_json(groups, asked.by, ()).kernels)
    for row in rows:
        decoded = row.pop("decoded", None) or {}
        row |= {
            key: row.get(key, value) for key, value in decoded.items() if key != "op"
        }
        if "name" in row:
            row |= {"short": row.get("short") or short_name(row["name"])}
            row["kernel_op"] = decoded.get("op")
    return rows


def _ops(trace: Trace, asked: TableRequest) -> Records:
    from fusetui.analysis.questions.groups import op_groups

    return [{"captured": False, **row} for row in _plain(op_groups(trace, asked.by))]


def _modules(trace: Trace, asked: TableRequest) -> PartialRecords:
    from fusetui.report.program import outside_modules
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins

    times = module_times(origins(trace), asked.expand)
    return PartialRecords(
        records=_plain(times.modules), left_out=outside_modules(times)
    )


def _lines(trace: Trace, asked: TableRequest) -> PartialRecords:
    from fusetui.analysis.why.causes import idle_causes
    from fusetui.report.program import outside_functions
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    causes = idle_causes(trace)
    times = function_times(origins(trace), asked.file, causes, asked.by == "line")
    return PartialRecords(
        records=_plain(times.functions), left_out=outside_functions(times)
    )


def _gaps(trace: Trace, asked: TableRequest) -> Records:
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


def _launches(trace: Trace, _: TableRequest) -> Records:
    from fusetui.analysis.questions.launches import thread_launches

    return [
        {
            "process": str(one.process),
            "thread": str(one.thread),
            **msgspec.structs.asdict(call),
        }
        for one in thread_launches(trace)
        for call in one.calls
    ]


def _collectives(trace: Trace, _: TableRequest) -> Records:
    from fusetui.analysis.questions.collectives import collectives_of

    found = collectives_of(trace)
    each = zip(found.told, found.rows.tolist(), found.issued.tolist(), strict=True)
    return [
        {
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
        for told, row, issued in each
    ]


def _findings(trace: Trace, _: TableRequest) -> Records:
    from fusetui.analysis.why.answer import why

    return [
        {
            **msgspec.structs.asdict(one),
            "remedy": one.try_,
            "evidence_rows": [*one.evidence],
        }
        for one in why(trace, Selection()).findings
    ]


def _steps(trace: Trace, _: TableRequest) -> Records:
    from fusetui.analysis.questions.summary import summary
    from fusetui.trace.layout.steps import steps_of

    rows = zip(steps_of(trace).numbers, _plain(summary(trace).steps), strict=True)
    return [{"number": number, **row} for number, row in rows]


def _plain(records: object) -> Records:
    found: Records = msgspec.to_builtins(records)
    return found


def _row(number: int) -> int | None:
    """-1 stands for none."""
    return number if number >= 0 else None


MAKERS: Final[dict[str, Callable[[Trace, TableRequest], Records | PartialRecords]]] = {
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
