"""The answer about a job as text, as a JSON document and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from textwrap import wrap

import msgspec

from fusetui.analysis.ranks.model import (
    JobAnswer,
    KindOfCollective,
    LateStep,
    MeanStepChange,
    RankRow,
    Reason,
    StragglerCause,
)
from fusetui.report import printed
from fusetui.report.ranks_words import (
    clocks_text,
    headline,
    straggler_text,
    verdict_lines,
)
from fusetui.text.figures import count, duration, several, size
from fusetui.text.printable import printable
from fusetui.text.tables import JSON_ALL, Column, text_or_dash, top_table

STANDS_OUT = "*"
LEGEND = (
    "*: more than 3 scaled median absolute deviations from the median of the ranks. Others wait, "
    "and waits, are"
)
MOST_KINDS, MOST_HEAD = 5, 8
DEVICE = 12
NARROW = 8

CSV = (
    *(
        "rank",
        "path",
        "host",
        "device",
        "steps",
        "step_ns",
        "compute_ns",
        "exposed_comm_ns",
    ),
    *(
        "exposed_copy_ns",
        "idle_ns",
        "collectives",
        "unmatched",
        "last_count",
        "caused_ns",
    ),
    *(
        "waited_ns",
        "memory_peak_bytes",
        "offset_ns",
        "uncertainty_ns",
        "drift_ns_per_s",
    ),
)


def ranks_text(answer: JobAnswer, most: int, top: int) -> str:
    """Some forty lines: what was given, the ranks, who waits for whom and why, the
    collectives."""
    late, head = answer.stragglers, list(headline(answer))
    if (more := len(head) - MOST_HEAD) > 0:
        head[MOST_HEAD:] = [
            f"... and {count(more)} more remarks like these (--json has all)"
        ]
    sections = (
        _wrapped([*head, clocks_text(answer)], most),
        _ranks(answer, most, top),
        _wrapped(
            [*map(partial(straggler_text, answer), late), *verdict_lines(answer)], most
        ),
        _kinds(answer, most),
        _wrapped(_remarks(answer), most),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


class StragglerDocument(msgspec.Struct, frozen=True):
    """A rank that others wait for, in words; see Straggler."""

    rank: int
    last_count: int
    of: int
    caused_ns: int
    waiters: int
    cause: StragglerCause
    stage: int | None
    text: str
    reason: Reason
    late_steps: tuple[LateStep, ...]
    what_if: MeanStepChange | None


class RanksDocument(JobAnswer, frozen=True):
    """`ranks`: sentences in place of what they are made of."""

    stragglers: tuple[StragglerDocument, ...]  # type: ignore[assignment]
    verdict: tuple[str, ...]  # type: ignore[assignment]


def ranks_document(answer: JobAnswer) -> RanksDocument:
    late = answer.stragglers
    told = (
        printed(one, StragglerDocument, text=straggler_text(answer, one))
        for one in late
    )
    verdict = tuple(verdict_lines(answer))
    return printed(answer, RanksDocument, stragglers=tuple(told), verdict=verdict)


def ranks_csv(answer: JobAnswer) -> str:
    """A line per rank, and one per file that is left out, with its reason."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow([*CSV, "outliers", "reason"])
    for row in answer.ranks:
        values = [getattr(row, name) for name in CSV]
        lines.writerow([*values, " ".join(row.outliers), "; ".join(row.damage)])
    for left in answer.left_out:
        rank = "" if left.rank is None else left.rank
        lines.writerow([rank, left.path, *[""] * (len(CSV) - 1), left.reason])
    return out.getvalue().rstrip("\n")


def _wrapped(sentences: Iterable[str], most: int) -> list[str]:
    lines = (wrap(printable(one), most, subsequent_indent="  ") for one in sentences)
    return [*chain.from_iterable(lines)]


def _ranks(answer: JobAnswer, most: int, top: int) -> list[str]:
    if not answer.ranks:
        return []

    def figure(
        name: str, each: Callable[[RankRow], int] = lambda _: 1
    ) -> Callable[[RankRow], str]:
        def text(row: RankRow) -> str:
            value, mark = getattr(row, name), STANDS_OUT if name in row.outliers else ""
            return (
                "-"
                if value is None
                else f"{duration(value // max(each(row), 1))}{mark}"
            )

        return text

    def wait(name: str) -> Callable[[RankRow], str]:
        return (
            (lambda _: "-")
            if answer.clocks.refused
            else figure(name, lambda row: row.steps)
        )

    def clock(row: RankRow) -> str:
        if row.uncertainty_ns is None or answer.clocks.shared:
            return "-"
        return f"{duration(row.offset_ns or 0)} ± {duration(row.uncertainty_ns)}"

    where = "device" if any(row.device for row in answer.ranks) else "host"
    columns = (
        Column("rank", cell=lambda row: str(row.rank)),
        Column(
            "last",
            cell=lambda row: f"{count(row.last_count)} of {count(row.collectives)}",
        ),
        Column("others wait", cell=wait("caused_ns")),
        Column("waits", spare=1, cell=wait("waited_ns")),
        Column("step", cell=figure("step_ns")),
        Column("compute", spare=2, cell=figure("compute_ns")),
        Column("exposed comm", spare=3, cell=figure("exposed_comm_ns")),
        Column("copy", spare=5, cell=figure("exposed_copy_ns")),
        Column("idle", spare=4, cell=figure("idle_ns")),
        Column(
            "memory",
            spare=7,
            cell=lambda row: text_or_dash(row.memory_peak_bytes, size),
        ),
        Column("clock", spare=6, cell=clock),
        Column(where, True, cell=lambda row: printable(getattr(row, where)) or "-"),
    )
    return [
        top_table(
            columns, answer.ranks, top, most, "rank", min_last_cells=DEVICE, blank="-"
        )
    ]


def _kinds(answer: JobAnswer, most: int) -> list[str]:
    if not answer.kinds:
        return []

    def wait(kind: KindOfCollective) -> str:
        return "-" if answer.clocks.refused else duration(kind.wait_ns // kind.count)

    columns = (
        Column("collective", left=True, cell=lambda kind: printable(kind.name)),
        Column(
            "group", left=True, spare=1, cell=lambda kind: printable(kind.group) or "-"
        ),
        Column(
            "ranks", cell=lambda k: f"{k.given}{f' of {k.ranks}' if k.ranks else ''}"
        ),
        Column("size", cell=lambda kind: text_or_dash(kind.bytes, size)),
        Column("count", cell=lambda kind: count(kind.count)),
        Column("waits", cell=wait),
        Column("transfer", cell=lambda kind: text_or_dash(kind.transfer_ns, duration)),
        Column(
            "bus bandwidth",
            cell=lambda kind: text_or_dash(
                kind.bus_bytes_per_s, lambda rate: f"{size(round(rate))}/s"
            ),
        ),
    )
    return [
        top_table(columns, answer.kinds, MOST_KINDS, most, "kind", JSON_ALL, NARROW)
    ]


def _remarks(answer: JobAnswer) -> Iterator[str]:
    if answer.ranks:
        if answer.steps:
            yield f"Figures of steps are medians. {LEGEND} per step."
        else:
            yield f"Without steps, figures are those of the whole trace. {LEGEND} sums."
    if answer.stragglers and answer.steps and answer.no_what_if:
        yield f"What a step would take without the delays is not told: {answer.no_what_if}."
    if answer.inferred:
        yield f"Not recorded and inferred: {several(answer.inferred, 4)}."
