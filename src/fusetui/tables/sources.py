"""The tables of a trace: their names, their columns from columns.txt, and their rows,
from a `--json` answer or from all slices. A table has all of its columns for every
trace.

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
from fusetui.tables.table import DTYPES, ColumnSpec, Kind
from fusetui.trace.model.columns import Trace

if TYPE_CHECKING:
    from fusetui.analysis.compiled.model import CompiledKernel, CompiledRegion
    from fusetui.analysis.ranks.model import JobAnswer

Specs = tuple[ColumnSpec, ...]
FILE = ColumnSpec(
    name="file",
    kind="text",
    meaning="the trace, as named in the command, if there are several",
    first=True,
)
BY: Final = {
    "shape": ("name", "op", "inputs"),
    "name": ("name",),
    "op": ("op",),
    "module": ("module",),
    "kind": ("kind",),
    "library": ("family",),
    "family": ("family",),
    "stream": ("stream",),
    "step": ("step",),
}
"""What identifies a group of kernels, by what they are grouped by."""


def columns_of(table: str, by: str = "name") -> Specs:
    """Return the columns of a table, in order; they are the same for every trace.

    Args:
        table: One of TABLES, or "ranks".
        by: What kernels or ops are grouped by, one of BY. Grouped by "family", kernels
            have the column `family` in place of `name`.
    """
    specs: list[ColumnSpec] = []
    for section_name in _section_names(table, by):
        specs += _sections()[section_name]
    if table == "gaps":
        specs += _idle_specs("dur_ns", optional=False)
    elif table == "ranks":
        specs += _idle_specs("idle_ns", optional=True)
    return tuple(specs)


def _section_names(table: str, by: str) -> list[str]:
    """Return the names of the sections of columns.txt that list the columns of a table.

    Most tables have one of their own name. Those of kernels and ops are composed:
    kernels by name have "name", "spread", "work" and "decoded".
    """
    if table == "kernels":
        has_names = "name" in BY[by]
        decoded = ["decoded"] if has_names else []
        return [*BY[by], "spread", "work", *decoded]
    if table == "ops":
        inputs = ["inputs"] if by == "shape" else []
        return ["name", *inputs, "spread", "of_ops"]
    return [table]


def _idle_specs(whole: str, *, optional: bool) -> list[ColumnSpec]:
    """Return the columns for the idle time by reason, one for each reason. `whole` is
    the column that they are a part of."""
    return [
        ColumnSpec(
            name=f"idle_{reason}_ns",
            kind="int",
            meaning=f"the part of {whole} with the reason `{reason}` ({words.sentence})",
            optional=optional,
        )
        for reason, words in IDLE.items()
    ]


@cache
def _sections() -> dict[str, Specs]:
    """Read columns.txt: the columns of each section by its name.

    A section is a line `[gaps]` and a line for each column, see `_parse_spec`.
    """
    text = Path(__file__).with_name("columns.txt").read_text(encoding="utf-8")
    _head, *sections = text.split("\n[")
    specs_by_section = {}
    for section in sections:
        name, body = section.split("]\n", maxsplit=1)
        lines = body.strip().splitlines()
        specs_by_section[name] = tuple(_parse_spec(line) for line in lines)
    return specs_by_section


KINDS: dict[str, Kind] = {kind: kind for kind in (*DTYPES, "text")}


def _parse_spec(line: str) -> ColumnSpec:
    """Read a line of columns.txt: name, kind and meaning of a column.

    `total_ns* int the time of all` is seen first by a person (*), and every row has a
    value; `launch int? the row of its launch` may lack a value (?).
    """
    name, kind, meaning = line.split(maxsplit=2)
    return ColumnSpec(
        name=name.rstrip("*"),
        kind=KINDS[kind.rstrip("?")],
        meaning=meaning,
        optional=kind.endswith("?"),
        first=name.endswith("*"),
    )


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


def trace_table(name: str, trace: Trace, request: TableRequest | None = None) -> Table:
    """Make a table of a trace.

    Args:
        name: One of TABLES: "kernels".
        trace: The trace.
        request: What of the table is asked for. Raises NoSuchSelectionError if it asks
            for a step or a window that is not in the trace.
    """
    if name == "slices":
        from fusetui.tables.slices import slices

        first = frozenset(spec.name for spec in columns_of(name) if spec.first)
        return slices(trace, first)
    request = request or TableRequest()
    columns = columns_of(name, request.by)
    answer = MAKERS[name](trace, request)
    if not isinstance(answer, PartialRecords):
        return table_of(name, columns, answer)
    table = table_of(name, columns, answer.records)
    return msgspec.structs.replace(table, left_out=answer.left_out)


def ranks_table(answer: JobAnswer) -> Table:
    """Make the table of the ranks of a job, with a row for each rank in the order of
    the answer."""
    records = []
    for rank in answer.ranks:
        record = msgspec.structs.asdict(rank)
        record["memory_peak"] = rank.memory_peak_bytes
        if rank.worst_wait is not None:
            record["wait_name"] = rank.worst_wait.name
            record["wait_start_ns"] = rank.worst_wait.start_ns
            record["wait_ns"] = rank.worst_wait.wait_ns
            record["wait_rank"] = rank.worst_wait.for_rank
        if rank.idle_ns is not None:
            record.update(_idle_columns(rank.idle))
        records.append(record)
    return table_of("ranks", columns_of("ranks"), records)


def _idle_columns(idle: Mapping[str, int]) -> dict[str, int]:
    """Return the value of each idle column: the ns of each reason, 0 for reasons that
    do not occur in `idle`."""
    return {f"idle_{reason}_ns": idle.get(reason, 0) for reason in IDLE}


def _make_kernels(trace: Trace, request: TableRequest) -> Records:
    """Make the rows of `kernels`: one for each group, the largest total first.

    What the name of a kernel says (family, dtype, tile) is in columns of its own, as
    far as no figure has that name; `kernel_op` is the op that the name says.
    """
    from fusetui.analysis.questions.groups import group_kernels
    from fusetui.gpu.kernel_names import short_name
    from fusetui.gpu.roofline.many import jobs
    from fusetui.report.groups import make_kernels_document

    kernel_jobs = jobs(trace, overrides=dict(request.peaks))
    groups = group_kernels(trace, kernel_jobs, request.by)
    document = make_kernels_document(groups, request.by, devices=())
    records = _to_builtins(document.kernels)
    for record in records:
        decoded_name = record.pop("decoded", None) or {}
        kernel_op = decoded_name.pop("op", None)
        for field, value in decoded_name.items():
            record.setdefault(field, value)
        if "name" in record:
            record["short"] = record.get("short") or short_name(record["name"])
            record["kernel_op"] = kernel_op
    return records


def _make_ops(trace: Trace, request: TableRequest) -> Records:
    """Make the rows of `ops`: one for each group of CPU ops."""
    from fusetui.analysis.questions.groups import group_ops

    records = _to_builtins(group_ops(trace, request.by))
    for record in records:
        record.setdefault("captured", False)  # which is left out where it is False
    return records


def _make_modules(trace: Trace, request: TableRequest) -> PartialRecords:
    """Make the rows of `modules`: one for each path of nn.Modules."""
    from fusetui.report.program import describe_outside_modules
    from fusetui.trace.program.modules import module_times
    from fusetui.trace.program.origin import origins

    times = module_times(origins(trace), request.expand)
    return PartialRecords(
        records=_to_builtins(times.modules), left_out=describe_outside_modules(times)
    )


def _make_lines(trace: Trace, request: TableRequest) -> PartialRecords:
    """Make the rows of `lines`: one for each function or source line of the program."""
    from fusetui.analysis.why.causes import find_idle_causes
    from fusetui.report.program import describe_outside_functions
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    causes = find_idle_causes(trace)
    by_line = request.by == "line"
    times = function_times(origins(trace), request.file, causes, by_line)
    return PartialRecords(
        records=_to_builtins(times.functions),
        left_out=describe_outside_functions(times),
    )


def _make_compile(trace: Trace, _: TableRequest) -> PartialRecords:
    """Make the rows of `compile`: one for each kernel of a compiled region, the largest
    total first."""
    from fusetui.analysis.compiled.answer import report_compilation
    from fusetui.analysis.compiled.finding import find_compile_log
    from fusetui.report.compiled import remarks

    answer = report_compilation(trace, find_compile_log(trace))
    records: Records = []
    for region in answer.regions:
        for kernel in region.kernels:
            records.append(_compiled_kernel_record(region, kernel))
    records.sort(key=lambda record: record["total_ns"], reverse=True)
    return PartialRecords(records=records, left_out=tuple(remarks(answer)))


def _compiled_kernel_record(
    region: CompiledRegion, kernel: CompiledKernel
) -> dict[str, Any]:
    """Return the row of `compile` for one kernel.

    Args:
        region: The compiled region that runs it.
        kernel: The kernel, with the lines of Python that it was made from.
    """
    lines = [f"{line.file}:{line.line}" for line in kernel.lines]
    code = [line.code for line in kernel.lines]
    return {
        "total_ns": kernel.total_ns,
        "runs": kernel.calls,
        "kernel": kernel.name,
        "handle": kernel.handle,
        "region": region.compile_id,
        "pass": region.pass_,
        "function": region.function,
        "lines": "; ".join(lines),
        "code": "\n".join(code),
        "possible": kernel.possible,
        "on_gpu": kernel.on_gpu,
        "joined_by": region.joined_by,
        "not_joined": kernel.not_joined,
        "key": region.key,
        "cache": region.cache,
    }


def _make_gaps(trace: Trace, request: TableRequest) -> Records:
    """Make the rows of `gaps`: one for each time in which a GPU was idle."""
    from fusetui.analysis.why.selection import account_for_selection
    from fusetui.report.why_answer import find_main_reason

    all_gaps = msgspec.structs.replace(request.part, all_gaps=True)
    account = account_for_selection(trace, all_gaps)
    records = []
    for gap, rows_at_end in zip(account.gaps, account._gap_rows, strict=True):
        event_row, launch_row = rows_at_end  # of the GPU event that ends the gap
        record = msgspec.structs.asdict(gap)
        record["device"] = str(gap.device)
        record["mostly"] = find_main_reason(gap)
        record.update(_idle_columns(gap.idle))
        record["row"] = event_row
        record["launch"] = _known(launch_row)
        records.append(record)
    return records


def _make_launches(trace: Trace, _: TableRequest) -> Records:
    """Make the rows of `launches`: one for each name of a launch call on each thread,
    such as cudaLaunchKernel on thread 7."""
    from fusetui.analysis.questions.launches import summarize_launches_by_thread

    records = []
    for thread in summarize_launches_by_thread(trace):
        for calls_of_name in thread.calls:
            record = msgspec.structs.asdict(calls_of_name)
            record["process"] = str(thread.process)
            record["thread"] = str(thread.thread)
            records.append(record)
    return records


def _make_collectives(trace: Trace, _: TableRequest) -> Records:
    """Make the rows of `collectives`: one for each collective operation on a GPU. Times
    are relative to the begin of the trace."""
    from fusetui.analysis.questions.collectives import find_collectives

    found = find_collectives(trace)
    records = []
    for collective, row, issued_ns in zip(
        found.collectives, found.rows.tolist(), found.issued.tolist(), strict=True
    ):
        records.append(
            {
                "collective": collective.name,
                "process_group": collective.group.name,
                "group_size": collective.group.size or None,
                "dtype": collective.dtype or None,
                "bytes": _known(collective.bytes),
                "sequence": _known(collective.sequence),
                "peer": _known(collective.peer),
                "issued_ns": issued_ns - trace.begin_ns,
                "start_ns": int(trace.start[row]) - trace.begin_ns,
                "dur_ns": int(trace.dur[row]),
                "kernel": trace.name_of(row),
                "row": row,
            }
        )
    return records


def _make_findings(trace: Trace, _: TableRequest) -> Records:
    """Make the rows of `findings`: one for each remark on what costs time."""
    from fusetui.analysis.why.answer import why

    records = []
    for finding in why(trace, Selection()).findings:
        record = msgspec.structs.asdict(finding)
        record["remedy"] = finding.try_
        record["evidence_rows"] = list(finding.evidence)
        records.append(record)
    return records


def _steps(trace: Trace, _: TableRequest) -> Records:
    """Make the rows of `steps`: one for each step of the program, with its number."""
    from fusetui.analysis.questions.summary import summary
    from fusetui.trace.layout.steps import steps_of

    records = _to_builtins(summary(trace).steps)
    for number, record in zip(steps_of(trace).numbers, records, strict=True):
        record["number"] = number
    return records


def _to_builtins(records: object) -> Records:
    """Convert records to dicts with values of built-in types."""
    plain: Records = msgspec.to_builtins(records)
    return plain


def _known(number: int) -> int | None:
    """Return a number, or None for a negative one, which stands for none."""
    return number if number >= 0 else None


MAKERS: Final[dict[str, Callable[[Trace, TableRequest], Records | PartialRecords]]] = {
    "kernels": _make_kernels,
    "ops": _make_ops,
    "modules": _make_modules,
    "lines": _make_lines,
    "compile": _make_compile,
    "gaps": _make_gaps,
    "launches": _make_launches,
    "collectives": _make_collectives,
    "findings": _make_findings,
    "steps": _steps,
}
TABLES = (*MAKERS, "slices")
"""In the order of the documentation."""
